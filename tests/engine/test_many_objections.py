"""Policies that object to everything: what is kept is bounded, and the decision is the same."""

import pytest
import yaml

from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.evaluate.review import respond
from policyd.engine.evaluate.verdict import MOST_REASONS, MOST_VIOLATED
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


def test_failures_that_deny_are_bounded_and_counted():
    decision = decide(objecting("a", FAILS), objecting("b", count=1))
    assert {each.policy for each in decision.denials} == {"a", "b"}
    assert len(decision.failures) == MOST_REASONS
    assert decision.further == MANY - MOST_REASONS


def test_failed_annotations_are_bounded_and_deny_after_many_warnings():
    annotations = [{"key": f"k{i}", "valueExpression": f"string({FAILS})"} for i in range(20)]
    many = [objecting(f"a{n}", "true", count=1, auditAnnotations=annotations) for n in range(8)]
    warning = objecting("b", validationActions=["Warn"], auditAnnotations=annotations)

    decision = decide(*many, warning)

    assert len(decision.failures) <= MOST_REASONS + len(many) + 1
    assert {each.policy for each in decision.denials} == {"b", *(f"a{n}" for n in range(8))}


def test_violated_validations_are_listed_up_to_a_bound():
    many = [objecting(name, count=MOST_VIOLATED // 2) for name in "abc"]
    decision = decide(*many)
    assert len(decision.objections) <= MOST_VIOLATED + len(many)
    assert {each.policy for each in decision.objections} == set("abc")


@pytest.mark.parametrize("expression", [LIES, FAILS])
def test_the_clock_is_read_for_each_validation_and_for_each_objection(expression):
    asked = 0

    def out_of_time():
        nonlocal asked
        asked += 1
        return False

    decide(objecting("a", expression), out_of_time=out_of_time)
    assert asked >= 2 * MANY


def test_without_time_left_an_objection_has_its_static_message_and_reason():
    spec = {
        "validations": [
            {"expression": "false", "message": "static", "messageExpression": "'computed'"}
        ]
    }
    asked = iter([False, True])
    decision = decide(objecting("a", **spec), out_of_time=lambda: next(asked, True))
    assert [(each.message, each.reason) for each in decision.denials] == [("static", "Invalid")]
