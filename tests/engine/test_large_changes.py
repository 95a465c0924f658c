"""A change of a large object takes little work, or is an error; no seconds are measured here."""

import json
import sys

import pytest

from policyd.engine.compile.load import load_policies
from policyd.engine.evaluate.policy_set import PolicySet
from policyd.engine.offline.requests import namespace_lookup
from tests.engine.reviews import pod, request

MANY = 20_000
TEXTS = {f"k{number}": "v" for number in range(MANY)}
OTHERS = dict.fromkeys(TEXTS, "w")
POLICY = """
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}
  reinvocationPolicy: IfNeeded
  failurePolicy: Fail
  mutations:
  - CHANGE
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: p}
"""


def applying(expression):
    change = {
        "patchType": "ApplyConfiguration",
        "applyConfiguration": {"expression": expression},
    }
    return policies(change)


def patching(expression):
    return policies({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})


def policies(change):
    loaded = load_policies(POLICY.replace("CHANGE", json.dumps(change)), "policy.yaml")
    assert not loaded.findings
    lookup = namespace_lookup((), {})
    return PolicySet(loaded.policies, bindings=loaded.bindings, namespaces=lookup)


def calls(run):
    """The functions of Python that are called."""
    count = 0

    def note(_frame, event, _argument):
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


LABELS = "Object{metadata: Object.metadata{labels: object.metadata.annotations}}"
AGAIN = "Object{metadata: Object.metadata{annotations: object.metadata.annotations}}"
ONE = "Object{metadata: Object.metadata{labels: {'a': 'b'}}}"
SET = "[JSONPatch{op: 'add', path: '/metadata/labels', value: object.metadata.annotations}]"


@pytest.mark.parametrize(
    ("given", "before"),
    [
        pytest.param(applying(LABELS), None, id="new labels"),
        pytest.param(applying(LABELS), {"a": "b"}, id="more labels"),
        pytest.param(applying(LABELS), OTHERS, id="other labels"),
        pytest.param(applying(AGAIN), None, id="no change"),
        pytest.param(applying(ONE), None, id="one label"),
        pytest.param(patching(SET), {"a": "b"}, id="a patch"),
    ],
)
def test_labels_are_not_looked_at_one_by_one(given, before):
    metadata = {"annotations": TEXTS} | ({} if before is None else {"labels": before})
    large = request(pod(**metadata))
    given.mutate(request(pod(annotations={"a": "b"})))

    assert calls(lambda: given.mutate(large)) < MANY // 2
    assert not given.mutate(large).failures


ITEMS = "Object{spec: Object.spec{containers: object.spec.containers}}"
OPTIONAL = "Object{spec: Object.spec{?containers: object.spec.?containers}}"


@pytest.mark.parametrize("expression", [ITEMS, OPTIONAL, ONE])
def test_lists_of_too_many_items_are_not_merged(expression):
    made = pod()
    made["spec"]["containers"][0]["env"] = [
        {"name": f"k{number}", "value": "v"} for number in range(2 * MANY + 5_000)
    ]
    given, large = applying(expression), request(made)
    given.mutate(request(pod()))

    assert calls(lambda: given.mutate(large)) < MANY
    (failure,) = given.mutate(large).failures
    assert "too many items to merge" in failure.message
    assert not failure.ignored


def test_lists_of_some_thousand_items_are_merged():
    made = pod()
    made["spec"]["containers"][0]["env"] = [
        {"name": f"k{number}", "value": "v"} for number in range(MANY // 2)
    ]

    assert not applying(ITEMS).mutate(request(made)).failures
    assert not applying(ONE).mutate(request(made)).failures


DOUBLED = "['a']" + ".map(x, [x, x])" * 24


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda: applying(f"Object{{spec: Object.spec{{a: {DOUBLED}}}}}"), id="merged"),
        pytest.param(
            lambda: patching(
                f"[JSONPatch{{op: 'add', path: '/a', value: Object{{a: {DOUBLED}}}}}]"
            ),
            id="written",
        ),
        pytest.param(
            lambda: patching(f"[JSONPatch{{op: 'add', path: '/a', value: {DOUBLED}}}]"), id="a-list"
        ),
    ],
)
def test_what_is_written_has_no_part_more_often_than_can_be_written(change):
    given, decisions = change(), []

    used = calls(lambda: decisions.append(given.mutate(request(pod()))))

    assert "write more than 250,000 values" in decisions[0].denials[0].message
    assert used < 5_000


INJECTING = """
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}
  variables: VARIABLES
  inject:
    tolerations: {expression: EXPRESSION}
  failurePolicy: Fail
"""
TENFOLD = [
    {"name": "a0", "expression": "['x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x', 'x']"},
    *(
        {"name": f"a{n}", "expression": f"[{', '.join([f'variables.a{n - 1}'] * 10)}]"}
        for n in range(1, 9)
    ),
]
"""Lists of lists: the last one has a thousand million texts, and takes a few hundred bytes."""


@pytest.mark.parametrize(
    "expression",
    [
        pytest.param("[{'key': variables.a8}]", id="in-an-object"),
        pytest.param("variables.a8", id="of-the-wrong-type"),
        pytest.param("object.spec.items.map(i, object.spec.one)", id="a-part-of-the-object"),
    ],
)
def test_what_is_injected_has_no_part_more_often_than_can_be_written(expression):
    text = INJECTING.replace("VARIABLES", json.dumps(TENFOLD))
    loaded = load_policies(text.replace("EXPRESSION", json.dumps(expression)), "policy.yaml")
    assert not loaded.findings
    large = pod()
    large["spec"] |= {"one": TEXTS, "items": [0] * 200}

    decisions = []
    used = calls(
        lambda: decisions.append(
            PolicySet(loaded.policies, namespaces=namespace_lookup((), {})).mutate(request(large))
        )
    )

    assert "cost limit exceeded" in decisions[0].denials[0].message
    assert used < 5_000
