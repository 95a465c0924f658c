"""The observers of decisions: metrics and log, shadows of policies, and counts in reports."""

from functools import partial

import structlog

from policyd.admission.decisions import Observe, WithExternalData
from policyd.api.admission import AdmissionRequest
from policyd.clock import Clock
from policyd.engine.evaluate.policy_set import PHASES, Phase
from policyd.engine.model.decision import Decision
from policyd.engine.offline.shadows import ShadowDifference
from policyd.kube.reports import Reports
from policyd.registration.configurations import exempt_groups
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
