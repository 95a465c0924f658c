"""The API server's table of which requests match which resources."""

import json

import msgspec

from policyd.api.policy import MatchResources
from policyd.engine.compile.check import check_selectors
from policyd.engine.compile.native import constraints_of
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.conditions import seen_by
from policyd.engine.model.facts import Facts
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.objects.equivalents import matched_kind
from policyd.engine.offline.requests import namespace_lookup
from tests.conformance.outcome import Outcome
from tests.conformance.policy_cases import request_of

NOTHING = {"matchExpressions": [{"key": "none", "operator": "In", "values": []}]}
"""What a selector that was never defaulted selects in Go: the API server never stores one."""

SERVED = {
    "apps": frozenset({"v1", "v1beta1", "v1alpha1"}),
    "extensions": frozenset({"v1beta1"}),
}
"""Versions of deployments that the table's server has, by group."""


def run_match(path):
    for case in json.loads(path.read_text()):
        yield Outcome(case["id"], why=_failure(case))


def _failure(case):
    # Nothing was defaulted here, as it is when the API server stores a policy.
    criteria = {"matchPolicy": "Exact", **case["criteria"]}
    for field in case["nilSelectors"]:
        criteria[field[0].lower() + field[1:]] = NOTHING
    constraints = constraints_of(msgspec.convert(criteria, MatchResources))
    surroundings = PolicyContext(namespaces=namespace_lookup((), {}), served=_served)
    facts = Facts(request_of(case), surroundings)
    matched = seen_by(constraints, facts)
    expect = case["expect"]
    if expect.get("errorContains"):
        return _error_difference(constraints, expect["errorContains"])
    if (matched is not None) != expect["matches"]:
        return f"matches should be {expect['matches']}"
    return "" if matched is None else _difference(facts, matched, expect)


def _error_difference(constraints, wanted):
    """Say whether a selector that Go cannot parse is refused, as it is when a policy is loaded."""
    findings = check_selectors(constraints, Document({}, "criteria"), ())
    if any(wanted in finding.message for finding in findings):
        return ""
    return f"no error with `{wanted}`"


def _difference(facts, matched, expect):
    kind = msgspec.to_builtins(matched_kind(facts.request.kind, facts.attributes, matched))
    kind = {"group": "", "version": "", **kind}
    if kind != expect.get("matchKind", kind):
        return f"{kind} != {expect['matchKind']}"
    resource = {field: getattr(matched, field) for field in ("group", "version", "resource")}
    wanted = expect.get("matchResource", resource)
    return "" if resource == wanted else f"{resource} != {wanted}"


def _served(group, plural):
    return SERVED.get(group, frozenset()) if plural == "deployments" else None
