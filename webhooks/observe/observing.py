"""Who takes note of what was decided: shadows of policies, and the counts in reports."""

from policyd.api.admission import AdmissionRequest
from policyd.controller.policies.reports import Reports
from policyd.engine.evaluate.policy_set import Phase
from policyd.engine.model.decision import Decision
from policyd.engine.offline.shadows import ShadowDifference
from policyd.registration.configurations import exempt_groups
from webhooks.decisions import Inquire, Observe
from webhooks.observe.admission_reports import ReportedCounts
from webhooks.observe.shadowing import Shadows
from webhooks.policies.in_force import PoliciesInForce
from webhooks.shared import Start, WebhookServer


def observers(
    door: WebhookServer, policies: PoliciesInForce, inquire: Inquire | None, start: Start
) -> dict[Phase, Observe]:
    """Return who takes note of decisions on changes, and of those on demands."""
    tally = (
        ReportedCounts(Reports(door.api_server), pace=door.pace) if door.settings.reports else None
    )
    shadows = Shadows(
        lambda: policies.in_force,
        metrics=door.metrics,
        clock=door.pace.clock,
        inquire=inquire,
        tell=_untold if tally is None else tally.take_difference,
        exempt=exempt_groups(door.settings.namespace),
    )
    start(shadows.run())
    if tally is not None:
        start(tally.run())

    def changed(request: AdmissionRequest, _decision: Decision) -> None:
        if policies.shadowed:
            shadows.offer("mutate", request)

    def checked(request: AdmissionRequest, decision: Decision) -> None:
        if policies.shadowed:
            shadows.offer("validate", request)
        if tally is not None and decision.objections:
            tally.take(request, decision)

    return {"mutate": changed, "validate": checked}


def _untold(_request: AdmissionRequest, _difference: ShadowDifference) -> None:
    """Do nothing: there are no reports."""
