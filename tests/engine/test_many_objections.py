"""Policies that object to everything: what is kept is bounded, and the decision is the same."""

import pytest
import yaml

from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.evaluate.review import respond
from policyd.engine.evaluate.verdict import MOST_REASONS
from policyd.engine.offline.requests import namespace_lookup
from tests.engine.reviews import pod, request

MANY = 3 * MOST_REASONS
RULE = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}
LIES, FAILS = "object.metadata.name == 'x'", "object.metadata.absent == 'x'"


def objecting(name, expression=LIES, count=MANY, **spec):
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [RULE]},
            "validations": [{"expression": expression, "message": f"n{i}"} for i in range(count)],
            **spec,
        },
    }


def decide(*documents, out_of_time=None):
    text = yaml.safe_dump_all(documents)
    loaded = load_policies(text, "p.yaml", EVERY_FORMAT)
    policies = PolicySet(loaded.policies, namespaces=namespace_lookup((), {}))
    return policies.validate(request(pod()), *([out_of_time] if out_of_time else []))


def test_a_refusal_names_some_objections_and_counts_the_others():
    decision = decide(objecting("a"))
    assert len(decision.denials) == MOST_REASONS
    assert decision.further == MANY - MOST_REASONS
    status = respond(request(pod()), decision).status
    assert status.message.endswith(f"\n{decision.further} more objections are left out")
    assert len({each.validation for each in decision.objections}) == MANY


@pytest.mark.parametrize("actions", [["Warn"], ["Audit"]])
def test_a_policy_that_denies_refuses_after_many_others_that_do_not(actions):
    decision = decide(objecting("a", validationActions=actions), objecting("b", count=1))
    assert [each.policy for each in decision.denials] == ["b"]
    assert len(decision.warnings) <= MOST_REASONS


def test_ignored_failures_are_bounded_and_hide_no_denial():
    ignoring = objecting("a", FAILS, failurePolicy="Ignore")
    ignoring["spec"]["validations"].append({"expression": LIES, "message": "no"})
    decision = decide(ignoring)
    assert len(decision.failures) <= MOST_REASONS
    assert sum(map(len, decision.audit_annotations.values())) < 200 * MOST_REASONS


def test_the_clock_is_read_between_the_validations_of_a_policy():
    asked = 0

    def out_of_time():
        nonlocal asked
        asked += 1
        return False

    decide(objecting("a"), out_of_time=out_of_time)
    assert asked >= MANY
