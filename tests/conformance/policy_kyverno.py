"""Kyverno's policies as Kyverno has them: the same answers as of what they are as the API server's.

Kyverno's tests call a violation a failure whether or not it refuses, so that every policy is made
to refuse here.
"""

import copy
import json

from policyd.dialects.kyverno.declared import declared_values
from policyd.patch.operations import same_json
from tests.conformance.outcome import Outcome
from tests.conformance.policy_cases import MODES, ask, difference, expected_in, result_of

OUT_OF_SCOPE = {
    "mutateExisting": "changes objects that exist already, in the background of a cluster",
    "subresource-mapping": "Kyverno's CLI takes an object for a subresource of another",
}
"""Features of a case that need another system than the webhook."""


def _rules(case):
    rules = [OUT_OF_SCOPE[name] for name in case["requires"] if name in OUT_OF_SCOPE]
    if any("resourceFiles" in entry for entry in case.get("globalContextEntries") or ()):
        rules.append("what a GlobalContextEntry holds is in a file that the case names")
    return rules


def run_kyverno(path):
    for case in json.loads(path.read_text()):
        rules = _rules(case)
        yield Outcome(case["id"], rule=rules[0]) if rules else Outcome(case["id"], why=_why(case))


def _why(case):
    given = [_refusing(case), *(case.get("exceptions") or ())]
    extra = _outside(case)
    if not case.get("apiserver"):
        return _published_difference(case, ask(case, MODES[0], given=given, extra=extra))
    for mode in MODES:
        why = difference(ask(case, mode, given=given, extra=extra), expected_in(case, mode))
        if why:
            return f"{mode.name}: {why}"
    return ""


def _refusing(case):
    """Return the policy of a case, made to refuse, with the one rule that the case is about."""
    policy = copy.deepcopy(case["policy"])
    spec = policy["spec"]
    if policy["kind"] != "ClusterPolicy":
        if "validations" in spec:
            spec["validationActions"] = ["Deny"]
        return policy
    spec["validationFailureAction"] = "Enforce"
    spec["rules"] = [rule for rule in spec["rules"] if rule["name"] == case["rule"]]
    for rule in spec["rules"]:
        rule["validate"].pop("failureAction", None)
    return policy


def _published_difference(case, asked):
    """Compare with what Kyverno's test expects: a failure there is a violation."""
    expect = case["expect"]
    if asked.findings:
        return f"not loaded: {asked.findings[0]}"
    wanted = expect["result"]
    if wanted in ("fail", "skip") and "patched" not in expect and result_of(asked) != wanted:
        return f"result {result_of(asked)}, expected {wanted}: {asked.decision.denials}"
    if wanted == "pass" and asked.decision.denials:
        return f"denied: {asked.decision.denials[0]}"
    patched = expect.get("patched")
    if patched is not None and not same_json(_bare(asked.result), _bare(patched)):
        return f"patched {asked.result} != {patched}"
    return ""


def _bare(value):
    """Drop what is empty: Kyverno's tests compare objects without."""
    if isinstance(value, dict):
        kept = {key: _bare(part) for key, part in value.items()}
        return {key: part for key, part in kept.items() if part not in ({}, [], None)}
    return [_bare(part) for part in value] if isinstance(value, list) else value


def _outside(case):
    """Return what the case declares of the world outside."""
    contexts = [document["spec"] for document in case.get("context") or ()]
    cluster = [document["spec"] for document in case.get("clusterResources") or ()]
    return declared_values(
        objects=[obj for spec in (*contexts, *cluster) for obj in spec.get("resources") or ()],
        images=[image for spec in contexts for image in spec.get("images") or ()],
        responses=case.get("apiCallResponses") or (),
        entries=case.get("globalContextEntries") or (),
    )
