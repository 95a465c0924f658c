"""Who has a say in a request: the policies, then whatever else the door is built with.

Policies come first, so that what comes after, such as the defaults of jobs, sees the queue name
that a policy gave. Both are pure; here they are only put in a row.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import structlog

from policyd.api.admission import AdmissionRequest, decode_object
from policyd.engine.decision import ALLOWED, Decision
from policyd.engine.review import Decide, answer_review
from policyd.patch.draft import Draft
from policyd.patch.json_patch import apply_json_patch
from webhooks.app import Answer
from webhooks.metrics import DoorMetrics

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutator:
    """Something that changes objects after the policies did; doing it twice changes nothing."""

    concerns: Callable[[AdmissionRequest, Decision], bool]
    """Tells by the envelope, and by what the policies decided, whether `change` is to be asked:
    the object is decoded only then."""

    change: Callable[[AdmissionRequest, Draft], None]
    """Changes the object."""


def mutate_in_turn(policies: Decide, mutators: Sequence[Mutator]) -> Decide:
    """Let each mutator change what the policies, and the mutators before it, made of the object."""

    def decide(request: AdmissionRequest) -> Decision:
        decision = policies(request)
        concerned = [mutator for mutator in mutators if mutator.concerns(request, decision)]
        if not concerned or not decision.allowed:
            return decision
        obj = apply_json_patch(decode_object(request.object), list(decision.operations))
        draft = Draft(obj)
        for mutator in concerned:
            mutator.change(request, draft)
        return replace(decision, operations=(*decision.operations, *draft.operations))

    return decide


def validate_together(deciders: Sequence[Decide]) -> Decide:
    """Let all say what they have against a request; one answer carries it all."""

    def decide(request: AdmissionRequest) -> Decision:
        all_of_them = [decider(request) for decider in deciders]
        decisions = [decision for decision in all_of_them if decision is not ALLOWED]
        if not decisions:
            return ALLOWED
        annotations = [decision.audit_annotations.items() for decision in decisions]
        return Decision(
            denials=tuple(denial for d in decisions for denial in d.denials),
            warnings=tuple(warning for d in decisions for warning in d.warnings),
            audit_annotations=dict(pair for pairs in annotations for pair in pairs),
            matched=tuple(name for d in decisions for name in d.matched),
            failures=tuple(failure for d in decisions for failure in d.failures),
        )

    return decide


def answer_with(decide: Decide, metrics: DoorMetrics, path: str) -> Answer:
    """Answer reviews with what `decide` says; count the verdicts, and log what is refused."""
    verdicts = {
        True: metrics.reviews.labels(path, "allowed"),
        False: metrics.reviews.labels(path, "denied"),
    }

    def counted(request: AdmissionRequest) -> Decision:
        decision = decide(request)
        verdicts[decision.allowed].inc()
        if decision.failures or not decision.allowed:
            _note(request, decision, metrics)
        return decision

    def answer(body: bytes) -> bytes:
        return answer_review(body, counted)

    return answer


def _note(request: AdmissionRequest, decision: Decision, metrics: DoorMetrics) -> None:
    about = {
        "uid": request.uid,
        "kind": request.kind.kind,
        "namespace": request.namespace,
        "name": request.name,
        "dry_run": request.dry_run,
    }
    for failure in decision.failures:
        metrics.policy_failures.labels("ignored" if failure.ignored else "refused").inc()
        log.warning("policy_failed", policy=failure.policy, reason=failure.message, **about)
    if not decision.allowed:
        policies = sorted({denial.policy for denial in decision.denials})
        log.info("request_denied", policies=policies, **about)
