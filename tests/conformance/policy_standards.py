"""The Pod Security Standards of the library, against the official fixtures."""

import json
from pathlib import Path

from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.offline.requests import namespace_lookup
from tests.conformance.outcome import Outcome
from tests.conformance.policy_cases import request_of

_LIBRARY = Path(__file__).parents[2] / "policies" / "security"
_FOLDERS = ("pod-security-baseline", "pod-security-restricted")


def run_standards(path):
    policies = [policy for folder in _FOLDERS for policy in _load(folder)]
    for case in json.loads(path.read_text()):
        yield Outcome(case["id"], why=_difference(case, policies))


def _load(folder):
    loaded = load_policies((_LIBRARY / folder / "policy.yaml").read_bytes(), folder)
    assert not loaded.findings, loaded.findings
    return loaded.policies


def _difference(case, policies):
    labels = {"policyd.io/pod-security": case["policySet"]}
    policy_set = PolicySet(policies, namespaces=namespace_lookup((), labels))
    for typed in (False, True):
        decision = policy_set.validate(request_of(case, typed=typed))
        if decision.failures:
            return f"cannot be evaluated: {decision.failures[0].message}"
        if not decision.matched:
            return "no policy concerned it"
        if decision.allowed != case["expect"]["allowed"]:
            return f"allowed should be {case['expect']['allowed']}: {decision.denials}"
    return ""
