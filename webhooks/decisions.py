"""Who has a say in a request: the policies, then whatever else the door is built with.

Policies come first, so that what comes after, such as the defaults of jobs, sees the queue name
that a policy gave. Both are pure; here they are only put in a row.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import structlog

from policyd.api.admission import AdmissionRequest, decode_object, parse_review
from policyd.api.meta import Json
from policyd.clock import Clock
from policyd.engine.evaluate.review import answer_review
from policyd.engine.model.deadline import OutOfTime, never
from policyd.engine.model.decision import ALLOWED, Decision, Denial
from policyd.errors import PolicydError
from policyd.patch.draft import Draft
from policyd.patch.json_patch import apply_json_patch
from webhooks.app import Answer
from webhooks.bodies import HEAVY_BYTES
from webhooks.metrics import WebhookMetrics
from webhooks.observe.lines import Lines

Decide = Callable[[AdmissionRequest, OutOfTime], Decision]
"""Decides on a request, as far as it can before it is out of time."""

Validator = Callable[[AdmissionRequest, Decision], Decision]
"""Says what it has against a request, having seen what the policies said."""

Prepare = Callable[[AdmissionRequest], Awaitable[None]]
"""Waits for what is needed to decide on a request."""

Observe = Callable[[AdmissionRequest, Decision], None]
"""Takes note of what was decided on a request; the answer waits for it."""

Inquire = Callable[[Decide, AdmissionRequest, OutOfTime], Awaitable[Decision]]
"""Decides on a request, having waited for what deciding on it asks."""

Run = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Does what needs nothing but time, where that keeps nobody waiting."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutator:
    """Something that changes objects after the policies did; doing it twice changes nothing."""

    name: str
    """Who refuses what cannot be changed, in the place of a policy's name."""

    concerns: Callable[[AdmissionRequest, Decision], bool]
    """Tells by the envelope, and by what the policies decided, whether `change` is to be asked:
    the object is decoded only then."""

    change: Callable[[AdmissionRequest, Draft], None]
    """Changes the object. Raises a PolicydError if it cannot be: the request is refused then."""


def mutate_in_turn(policies: Decide, mutators: Sequence[Mutator]) -> Decide:
    """Let each mutator change what the policies, and the mutators before it, made of the object."""

    def decide(request: AdmissionRequest, out_of_time: OutOfTime = never) -> Decision:
        decision = policies(request, out_of_time)
        if mutators and decision.operations and decision.object is msgspec.UNSET:
            decision = replace(decision, object=object_of(request, decision))
        concerned = [mutator for mutator in mutators if mutator.concerns(request, decision)]
        if not concerned or not decision.allowed:
            return decision
        draft = Draft(object_of(request, decision))
        for mutator in concerned:
            try:
                mutator.change(request, draft)
            except PolicydError as error:
                denial = Denial(policy=mutator.name, message=str(error))
                return replace(decision, denials=(denial,), operations=())
        changes = decision.operations + tuple(draft.operations)
        return replace(decision, operations=changes, object=draft.object)

    return decide


def except_for(groups: frozenset[str], decide: Decide) -> Decide:
    """Allow whatever members of some groups ask for, as if it had not been sent."""

    def decide_on_others(request: AdmissionRequest, out_of_time: OutOfTime = never) -> Decision:
        if not groups.isdisjoint(request.user_info.groups):
            return ALLOWED
        return decide(request, out_of_time)

    return decide_on_others


def object_of(request: AdmissionRequest, decision: Decision) -> Json:
    """Return the object as a decision leaves it, decoded only if the policies did not.

    Raises:
        ReviewError: If it cannot be decoded.
    """
    if decision.object is not msgspec.UNSET:
        return decision.object
    return apply_json_patch(decode_object(request.object), list(decision.operations))


def validate_together(policies: Decide, others: Sequence[Validator]) -> Decide:
    """Let all say what they have against a request; one answer carries it all."""

    def decide(request: AdmissionRequest, out_of_time: OutOfTime = never) -> Decision:
        first = policies(request, out_of_time)
        decisions = [] if first is ALLOWED else [first]
        for other in others:
            said = other(request, first)
            if said is not ALLOWED:
                decisions.append(said)
        if len(decisions) <= 1:
            return decisions[0] if decisions else ALLOWED
        annotations = [decision.audit_annotations.items() for decision in decisions]
        return Decision(
            denials=tuple(denial for d in decisions for denial in d.denials),
            warnings=tuple(warning for d in decisions for warning in d.warnings),
            audit_annotations=dict(pair for pairs in annotations for pair in pairs),
            matched=tuple(name for d in decisions for name in d.matched),
            failures=tuple(failure for d in decisions for failure in d.failures),
            objections=tuple(objection for d in decisions for objection in d.objections),
        )

    return decide


def answer_with(  # noqa: PLR0913 - what comes before and after deciding
    decide: Decide,
    metrics: WebhookMetrics,
    path: str,
    *,
    prepare: Prepare | None = None,
    inquire: Inquire | None = None,
    observe: Observe | None = None,
    run: Run | None = None,
    clock: Clock | None = None,
) -> Answer:
    """Answer reviews with what `decide` says; count the verdicts, and log what is refused.

    Args:
        decide: Decides, and waits for nothing.
        metrics: Where verdicts are counted.
        path: Under which path.
        prepare: Waited for before.
        inquire: Calls `decide` in its place, as often as there are answers to wait for.
        observe: Told of each request that is not dry, and of what was decided.
        run: Reads long reviews, and writes the answers to them; at once if left out.
        clock: Tells when another line may be logged.
    """
    verdicts = {
        True: metrics.reviews.labels(path, "allowed"),
        False: metrics.reviews.labels(path, "denied"),
    }
    lines = Lines(clock)

    async def answer(body: bytes, out_of_time: OutOfTime) -> bytes:
        beside = run if len(body) > HEAVY_BYTES else None
        request = await beside(partial(parse_review, body)) if beside else parse_review(body)
        if prepare is not None:
            await prepare(request)
        if inquire is None:
            decision = decide(request, out_of_time)
        else:
            decision = await inquire(decide, request, out_of_time)
        verdicts[decision.allowed].inc()
        if decision.failures or not decision.allowed:
            _note(request, decision, metrics, lines)
        if observe is not None and not request.dry_run:
            observe(request, decision)
        if beside is None:
            return answer_review(request, decision)
        answered: bytes = await beside(partial(answer_review, request, decision))
        return answered

    return answer


def _note(
    request: AdmissionRequest, decision: Decision, metrics: WebhookMetrics, lines: Lines
) -> None:
    about = {
        "uid": request.uid,
        "kind": request.kind.kind,
        "namespace": request.namespace,
        "name": request.name,
        "dry_run": request.dry_run,
    }
    for failure in decision.failures:
        metrics.policy_failures.labels("ignored" if failure.ignored else "refused").inc()
        given = {"policy": failure.policy, "reason": failure.message}
        lines.write(log.warning, "policy_failed", failure.policy, **given, **about)
    if not decision.allowed:
        policies = sorted({denial.policy for denial in decision.denials})
        lines.write(log.info, "request_denied", policies[0], policies=policies, **about)
