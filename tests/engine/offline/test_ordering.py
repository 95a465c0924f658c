"""Two policies that come to different objects in another order are told of."""

import pytest

from policyd.engine.compile.load import load_policies
from policyd.engine.offline.ordering import order_matters
from policyd.engine.offline.requests import (
    RequestCircumstances,
    namespace_lookup,
    offline_set,
    request_for,
)

POLICY = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: %s}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
"""
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a"},
    "spec": {"containers": [{"name": "one", "image": "a"}]},
}


def injecting(name, inject, more=""):
    return f"{POLICY % name}  inject: {inject}\n{more}"


def applying(name, configuration, condition="true"):
    return f"""{POLICY % name}
  matchConditions: [{{name: one, expression: "{condition}"}}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: "{configuration}"
"""


def patching(name, patch):
    return f"""{POLICY % name}
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: "{patch}"
"""


def found(*texts):
    loaded = load_policies("---\n".join(texts), "policies.yaml")
    assert not loaded.findings, loaded.findings
    policies = offline_set(loaded, namespace_lookup((), {}))
    return list(order_matters(policies, request_for(POD, RequestCircumstances())))


OVERRIDE = "{override: true, labels: {x: %s}}"


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(
            (injecting("a", OVERRIDE % "one"), injecting("b", OVERRIDE % "two")), id="overriding"
        ),
        pytest.param(
            (
                injecting("a", "{labels: {x: one}}"),
                injecting("b", "{labels: {x: two}}"),
            ),
            id="whoever-is-first-wins",
        ),
        pytest.param(
            (
                applying("a", "Object{spec: Object.spec{hostNetwork: true}}"),
                applying(
                    "b",
                    "Object{metadata: Object.metadata{labels: {'net': "
                    "string(object.spec.?hostNetwork.orValue(false))}}}",
                ),
            ),
            id="one-reads-what-the-other-writes-and-does-not-run-again",
        ),
    ],
)
def test_policies_that_come_to_another_object_are_reported(texts):
    texts = [text.replace("spec:\n", "spec:\n  reinvocationPolicy: Never\n", 1) for text in texts]
    findings = found(*texts)

    assert [str(each) for each in findings] == [
        "the order of `a` and `b` matters, and no `priority` says which goes first"
    ]
    assert "--- a first" in findings[0].difference


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(
            (injecting("a", "{labels: {x: one}}"), injecting("b", "{labels: {y: two}}")),
            id="other-fields",
        ),
        pytest.param(
            (
                injecting("a", OVERRIDE % "one"),
                injecting("b", OVERRIDE % "two", more="  priority: 1\n"),
            ),
            id="somebody-chose-the-order",
        ),
        pytest.param(
            (
                injecting("a", "{tolerations: [{key: a, operator: Exists}]}"),
                injecting("b", "{tolerations: [{key: b, operator: Exists}]}"),
            ),
            id="appended-to-a-list-whose-order-means-nothing",
        ),
        pytest.param(
            (
                injecting("a", "{labels: {x: one}}"),
                applying("b", "Object{spec: Object.spec{hostNetwork: true}}", "false"),
            ),
            id="one-is-not-concerned",
        ),
    ],
)
def test_policies_that_come_to_the_same_are_not(texts):
    assert found(*texts) == []


def test_init_containers_run_one_after_the_other_so_their_order_matters():
    pod = (
        "[JSONPatch{op: 'add', path: '/spec/initContainers', "
        "value: [Object.spec.initContainers{name: '%s', image: 'i'}] "
        "+ object.spec.?initContainers.orValue([])}]"
    )
    never = [
        patching(name, pod % name).replace("spec:\n", "spec:\n  reinvocationPolicy: Never\n", 1)
        for name in ("a", "b")
    ]

    assert len(found(*never)) == 1
