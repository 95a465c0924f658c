"""Policies that write the same field differently: found only where it is certain."""

import pytest

from policyd.engine.compile.load import load_policies
from policyd.engine.lint.conflicts import conflicts
from tests.engine.reviews import policy

JSON_PATCH = """
mutations:
- patchType: JSONPatch
  jsonPatch:
    expression: '[JSONPatch{op: "add", path: "/metadata/labels/%s", value: %s}]'
"""
APPLY = """
mutations:
- patchType: ApplyConfiguration
  applyConfiguration:
    expression: 'Object{metadata: Object.metadata{labels: {"a~b": "x"}}}'
"""


def found(one, other):
    """What is found of two policies with these specifications."""
    loaded = load_policies(f"{policy(one, 'one')}---\n{policy(other, 'two')}", "p.yaml")
    assert not loaded.findings, "\n".join(map(str, loaded.findings))
    return [finding.message for finding in conflicts(loaded.policies, loaded.bindings)]


def test_two_values_of_one_field_are_a_conflict():
    (message,) = found("inject: {labels: {team: a}}", "inject: {labels: {team: b}}")

    assert message == (
        "`one` sets labels `team` to `a`, and `two` in p.yaml:10:1 to `b`: "
        "the result depends on their names"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            "inject: {priorityClassName: a}",
            """
            matchConditions: [{name: c, expression: pod.gpus() > 0}]
            inject: {priorityClassName: b}
            """,
            id="one-has-conditions-besides",
        ),
        pytest.param(JSON_PATCH % ("team", '"a"'), JSON_PATCH % ("team", '"b"'), id="patches"),
        pytest.param(APPLY, JSON_PATCH % ("a~0b", '"y"'), id="patch-and-configuration"),
    ],
)
def test_certain_overlaps_are_conflicts(one, other):
    assert len(found(one, other)) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param("inject: {labels: {t: a}}", "inject: {labels: {t: a}}", id="same-value"),
        pytest.param("inject: {labels: {t: a}}", "inject: {labels: {u: b}}", id="other-field"),
        pytest.param(
            "inject: {labels: {t: a}}",
            "inject: {labels: {t: b}}\npriority: 5",
            id="order-is-declared",
        ),
        pytest.param(
            "inject: {labels: {t: a}}",
            "inject: {labels: {t: {expression: \"'b'\"}}}",
            id="computed-value",
        ),
        pytest.param(
            "matchConditions: [{name: c, expression: pod.gpus() > 0}]\ninject: {labels: {t: a}}",
            "matchConditions: [{name: c, expression: pod.gpus() == 0}]\ninject: {labels: {t: b}}",
            id="conditions-that-may-exclude-each-other",
        ),
        pytest.param(JSON_PATCH % ("-", '"a"'), JSON_PATCH % ("-", '"b"'), id="elements-of-a-list"),
    ],
)
def test_ambiguous_names_have_no_suggestion(one, other):
    assert found(one, other) == []


@pytest.mark.parametrize(
    ("constraint", "otherwise"),
    [
        pytest.param(
            "objectSelector: {matchLabels: {t: a}}",
            "objectSelector: {matchLabels: {t: b}}",
            id="selectors",
        ),
        pytest.param(
            "namespaceSelector: {matchLabels: {t: a}}",
            "namespaceSelector: {matchLabels: {u: b}}",
            id="namespaces-that-may-differ",
        ),
    ],
)
def test_policies_for_different_requests_do_not_meet(constraint, otherwise):
    texts = [
        policy(f"inject: {{labels: {{t: {name}}}}}", name).replace(
            "    resourceRules:", f"    {given}\n    resourceRules:"
        )
        for name, given in (("one", constraint), ("two", otherwise))
    ]

    loaded = load_policies("---\n".join(texts), "p.yaml")

    assert not loaded.findings
    assert list(conflicts(loaded.policies)) == []


def test_a_policy_that_a_binding_narrows_is_left_alone():
    binding = """\
apiVersion: policyd.io/v1alpha1
kind: PolicyBinding
metadata: {name: b}
spec: {policyName: one, matchResources: {objectSelector: {matchLabels: {a: b}}}}
"""
    texts = [policy(f"inject: {{labels: {{t: {name}}}}}", name) for name in ("one", "two")]

    loaded = load_policies("---\n".join([*texts, binding]), "p.yaml")

    assert list(conflicts(loaded.policies, loaded.bindings)) == []
