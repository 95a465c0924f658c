"""Parts of expressions that no case makes true, or false, are named."""

import pytest

from policyd.engine.compile.load import load_policies
from policyd.engine.lint.coverage import BranchCoverage
from policyd.engine.offline.cases import ask_case, load_cases

POLICY = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
"""
CASES = """\
cases:
- name: one
  object:
    apiVersion: v1
    kind: Pod
    metadata: {name: a, labels: {a: b}}
    spec: {containers: [{name: one, image: a}, {name: two, image: b, stdin: true}]}
  expect: {allowed: true}
"""


def missing(validation, condition="", variable="true"):
    text = f"""{POLICY}
  matchConditions: {f'[{{name: c, expression: "{condition}"}}]' if condition else "[]"}
  variables: [{{name: v, expression: "{variable}"}}]
  validations: [{{name: d, expression: "{validation}", message: wrong}}]
"""
    loaded = load_policies(text, "policy.yaml")
    assert loaded.policies, loaded.findings
    cases, findings = load_cases(CASES, "cases.yaml")
    assert not findings
    coverage = BranchCoverage(loaded.policies)
    for case in cases.cases:
        coverage.note(ask_case(case, cases, loaded))
    return [(branch.place, branch.part, branch.holds) for branch in coverage.missing]


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        pytest.param("object.kind == 'Pod'", [], id="nothing-is-decided-within"),
        pytest.param(
            "object.kind == 'Pod' && has(object.metadata.labels)",
            [("object.kind == 'Pod'", False), ("has(object.metadata.labels)", False)],
            id="and",
        ),
        pytest.param(
            "object.kind == 'Job' || has(object.metadata.labels)",
            [("object.kind == 'Job'", True), ("has(object.metadata.labels)", False)],
            id="or",
        ),
        pytest.param(
            "object.kind == 'Pod' || has(object.metadata.annotations)",
            [
                ("object.kind == 'Pod'", False),
                ("has(object.metadata.annotations)", True),
                ("has(object.metadata.annotations)", False),
            ],
            id="never-got-to",
        ),
        pytest.param(
            "object.kind == 'Pod' ? true : 'x' in object.spec || true",
            [
                ("object.kind == 'Pod'", False),
                ("'x' in object.spec", True),
                ("'x' in object.spec", False),
            ],
            id="one-side-of-a-choice",
        ),
        pytest.param("object.spec.containers.all(c, c.?stdin.orValue(false))", [], id="loop"),
        pytest.param(
            "object.spec.containers.exists(c, c.name == 'one' && c.image == 'a')",
            [("c.image == 'a'", False)],
            id="within-a-loop",
        ),
        pytest.param(
            "object.spec.containers.filter(c, !(c.name == 'one')).map(c, c.image).size() < 9", [],
            id="negated",
        ),
    ],
)  # fmt: skip
def test_parts_that_never_decide_are_named(expression, parts):
    assert missing(expression) == [("d", *part) for part in parts]


def test_conditions_and_variables_are_looked_into_too():
    found = missing(
        "variables.v",
        "object.kind == 'Pod' && true",
        "has(object.metadata.labels) ? 1 == 1 : false",
    )

    assert ("c", "object.kind == 'Pod'", False) in found
    assert ("v", "has(object.metadata.labels)", False) in found


def test_a_policy_that_leaves_the_case_out_takes_no_branch():
    found = missing("has(object.spec) && true", "object.kind == 'Job'")

    assert ("d", "has(object.spec)", True) in found
