"""The observers of decisions: metrics, log, shadows of policies, counts in reports, and spans."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain, islice

import structlog

from policyd.admission.decisions import Observe, WithExternalData
from policyd.admission.handler import AdmissionHandler
from policyd.api.admission import AdmissionRequest
from policyd.clock import Clock
from policyd.engine.evaluate.policy_set import PHASES, Phase
from policyd.engine.model.deadline import OutOfTime
from policyd.engine.model.decision import Decision
from policyd.engine.offline.shadows import ShadowDifference
from policyd.kube.reports import Reports
from policyd.registration.configurations import exempt_groups
from policyd.tracing import MOST_CHARACTERS, MOST_EVENTS, Tracer
from webhooks.app import Answer
from webhooks.metrics import WebhookMetrics
from webhooks.observe.admission_reports import ReportedCounts
from webhooks.observe.review_log import ReviewLog
from webhooks.observe.shadowing import Shadows
from webhooks.policies.in_force import PoliciesInForce
from webhooks.shared import Start, WebhookServer

log = structlog.get_logger(__name__)


def observers(
    server: WebhookServer,
    policies: PoliciesInForce,
    with_external_data: WithExternalData,
    start: Start,
) -> dict[Phase, Observe]:
    """Return the observer of the decisions of each phase."""
    counts = None
    if server.settings.reports:
        counts = ReportedCounts(Reports(server.api_server), pace=server.pace)
    shadows = Shadows(
        lambda: policies.in_force,
        metrics=server.metrics,
        clock=server.pace.clock,
        inquire=with_external_data,
        report=_untold if counts is None else counts.take_difference,
        exempt=exempt_groups(server.settings.namespace),
    )
    start(shadows.run())
    if counts is not None:
        start(counts.run())

    def note(phase: Phase, request: AdmissionRequest, decision: Decision) -> None:
        if policies.shadowed:
            shadows.offer(phase, request)
        if counts is not None and phase == "validate" and decision.objections:
            counts.take(request, decision)

    clock = server.pace.clock
    return {
        phase: Verdicts(server.metrics, phase, clock=clock, then=partial(note, phase)).take
        for phase in PHASES
    }


class Verdicts:
    """Counts the decisions of one phase, and logs refusals and failures.

    Args of the constructor:
        metrics: Where they are counted.
        phase: The phase.
        clock: The clock that limits the rate of log lines.
        then: Called with each decision on a request that is not a dry run.
    """

    def __init__(
        self,
        metrics: WebhookMetrics,
        phase: Phase,
        *,
        clock: Clock | None = None,
        then: Observe | None = None,
    ) -> None:
        self._phase: Phase = phase
        self._allowed = metrics.reviews.labels(f"/{phase}", "allowed")
        self._denied = metrics.reviews.labels(f"/{phase}", "denied")
        self._results = metrics.results
        self._failures = metrics.policy_failures
        self._lines = ReviewLog(clock)
        self._then = then

    def take(self, request: AdmissionRequest, decision: Decision) -> None:
        """Take note of a decision."""
        (self._denied if decision.denials else self._allowed).inc()
        self._results.take(self._phase, decision)
        if decision.failures or decision.denials:
            self._log(request, decision)
        if self._then is not None and not request.dry_run:
            self._then(request, decision)

    def _log(self, request: AdmissionRequest, decision: Decision) -> None:
        about = {
            "uid": request.uid,
            "kind": request.kind.kind,
            "namespace": request.namespace,
            "name": request.name,
            "dry_run": request.dry_run,
        }
        for failure in decision.failures:
            self._failures.labels("ignored" if failure.ignored else "refused").inc()
            given = {"policy": failure.policy, "reason": failure.message}
            self._lines.write(log.warning, "policy_failed", failure.policy, **given, **about)
        if not decision.allowed:
            policies = sorted({denial.policy for denial in decision.denials})
            self._lines.write(log.info, "request_denied", policies[0], policies=policies, **about)


def _untold(_request: AdmissionRequest, _difference: ShadowDifference) -> None:
    """Do nothing: there are no reports."""


Event = tuple[str, dict[str, str | bool]]
"""Its name, and its attributes."""


def traced(handler: AdmissionHandler, tracer: Tracer) -> Answer:
    """Return what `handler.answer` does, with a span for each review."""

    async def answer(body: bytes, out_of_time: OutOfTime) -> bytes:
        span = tracer.start_span(f"review {handler.phase}")

        def observed(request: AdmissionRequest, decision: Decision) -> None:
            if span.is_recording():
                span.set_attributes(_about(request, decision))
                for name, attributes in islice(_events(decision), MOST_EVENTS):
                    span.add_event(name, attributes)
            if handler.observe is not None:
                handler.observe(request, decision)

        try:
            return await replace(handler, observe=observed).answer(body, out_of_time)
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)  # its message may quote
            raise
        finally:
            span.end()

    return answer


def _about(request: AdmissionRequest, decision: Decision) -> dict[str, str | bool | int]:
    resource = f"{request.resource.resource}.{request.resource.group}".rstrip(".")
    return {
        "policyd.review.uid": _short(request.uid),
        "policyd.review.resource": _short(resource),
        "policyd.review.operation": request.operation,
        "policyd.review.dry_run": request.dry_run,
        "policyd.review.allowed": decision.allowed,
        "policyd.review.changes": len(decision.operations),
        "k8s.namespace.name": _short(request.namespace),
        "k8s.object.name": _short(request.name),
    }


def _events(decision: Decision) -> Iterator[Event]:
    """Yield what policies did, the most important first: there may be more than fit."""
    return chain(
        (
            ("denied", {"policy": _short(each.policy), "validation": _short(each.validation)})
            for each in decision.denials
        ),
        (
            ("failed", {"policy": _short(each.policy), "ignored": each.ignored})
            for each in decision.failures
        ),
        (("matched", {"policy": _short(policy)}) for policy in decision.matched),
    )


def _short(text: str) -> str:
    return text[:MOST_CHARACTERS]
