"""Out of the queue: every field that decides on membership, on every kind, by every way."""

import time
from functools import cache, partial

from policyd.api.admission import AdmissionRequest, parse_review
from policyd.api.selectors import LabelSelector, Requirement
from policyd.cel import Budget, Program, admission_environment, compile_expression
from policyd.engine.decision import ALLOWED
from policyd.jobs.integrations import EVERYTHING, Integrations
from tests.attacks.figures import Figures
from tests.attacks.leavings import Try, review, tries
from webhooks.authors import Authors
from webhooks.calls import Call, door_rules
from webhooks.cells import Cell, cells_of
from webhooks.decisions import Decide, except_for, validate_together
from webhooks.jobs import validate_jobs
from webhooks.registration import exempt_groups

ENVIRONMENT = admission_environment(params=False)

CONFIGURED = {
    "nothing said": EVERYTHING,
    "a selector of namespaces": Integrations(namespaces=LabelSelector(match_labels={"team": "a"})),
    "all that could queue": Integrations(manages_all=True),
}
"""What an administrator may have said, by how."""


def decider(integrations: Integrations) -> Decide:
    """Return what the webhooks decide by, without policies."""
    checked = partial(validate_jobs, integrations=integrations, authors=Authors("policyd"))
    validate = validate_together(lambda _request, _out_of_time: ALLOWED, [checked])
    return except_for(exempt_groups("policyd"), validate)


def is_refused(made: Try, decide: Decide, **author: object) -> bool:
    """Tell whether the webhooks refuse a change."""
    return not decide(parse_review(review(made, **author)), lambda: False).allowed  # type: ignore[arg-type]


def is_sent(made: Try, sent: tuple[Call, ...]) -> bool:
    """Tell whether the API server sends a change to the webhooks at all, given what it sends."""
    request = parse_review(review(made))
    return any(
        any(_covers(cell, request) for rule in call.rules for cell in cells_of(rule))
        and any(_meets(each, call.objects) for each in (made.old, made.new))
        and (not call.condition or _holds(call.condition, made))
        for call in sent
    )


@cache
def _compiled(condition: str) -> Program:
    return compile_expression(condition, ENVIRONMENT, wants="bool")


def _holds(condition: str, made: Try) -> bool:
    known = {"object": made.new, "oldObject": made.old, "request": {}}
    return bool(_compiled(condition).evaluate(known, Budget()))


def _covers(cell: Cell, request: AdmissionRequest) -> bool:
    plural = "/".join(filter(None, (request.resource.resource, request.sub_resource)))
    asked = Cell(request.kind.group, request.kind.version, "Namespaced", plural, "UPDATE")
    return cell.covers(asked)


def _meets(obj: dict, requirements: frozenset[Requirement]) -> bool:  # type: ignore[type-arg]
    labels = obj["metadata"].get("labels") or {}
    return all(requirement.matches(labels) for requirement in requirements)


def membership() -> Figures:
    """Try the whole table as a tenant, under everything that an administrator may have said."""
    tried, passed, faults, worst = 0, 0, [], 0.0
    for how, integrations in CONFIGURED.items():
        decide, sent = decider(integrations), door_rules((), queue=integrations).validate
        for made in tries():
            if made.only_required and not integrations.requires_queue:
                continue
            tried += 1
            began = time.process_time()
            stopped = is_refused(made, decide)
            worst = max(worst, time.process_time() - began)
            if not (stopped and is_sent(made, sent)):
                passed += 1
                faults.append(f"{made.name}, with {how}: {'not sent' if stopped else 'let in'}")
    return Figures(tried=tried, bypasses=passed, worst_seconds=worst, faults=tuple(faults))


ATTACKS = {"fields of membership": membership}
