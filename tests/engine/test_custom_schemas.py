"""What is applied to objects of custom kinds goes by the schemas of their definitions, if given."""

import pytest
import yaml

from policyd.engine.compile.load import load_policies
from policyd.engine.offline.requests import (
    RequestCircumstances,
    custom_kinds,
    namespace_lookup,
    offline_set,
    request_for,
)
from policyd.patch.json_patch import apply_json_patch

DEFINITION = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {kind: Thing, plural: things}
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              set: {type: array, items: {type: string}, x-kubernetes-list-type: set}
              plain: {type: array, items: {type: string}}
              number: {type: integer}
              items:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  properties: {name: {type: string}, value: {type: string}}
"""
POLICY = """\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [things]}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: "Object{spec: Object.spec{%s}}"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: p}
"""
SPEC = {"set": ["a"], "plain": ["a"], "number": 1, "items": [{"name": "n", "value": "1"}]}
THING = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": SPEC}


def applied(fields, definition=DEFINITION):
    loaded = load_policies(f"{POLICY % fields}---\n{definition}", "p.yaml")
    assert not loaded.findings, loaded.findings
    asked = offline_set(loaded, namespace_lookup((), {}))
    known = custom_kinds([yaml.safe_load(DEFINITION)])
    decision = asked.mutate(request_for(THING, RequestCircumstances(kinds=known)))
    result = apply_json_patch(THING, list(decision.operations))
    return [denial.message for denial in decision.denials], result["spec"]


@pytest.mark.parametrize(
    ("fields", "changed"),
    [
        pytest.param("set: ['a', 'b']", {"set": ["a", "b"]}, id="set"),
        pytest.param("number: 2", {"number": 2}, id="number"),
        pytest.param(
            "items: [Object.spec.items{name: 'n', value: '2'}, Object.spec.items{name: 'm'}]",
            {"items": [{"name": "n", "value": "2"}, {"name": "m"}]},
            id="map",
        ),
    ],
)
def test_lists_merge_as_the_definition_says(fields, changed):
    assert applied(fields) == ([], SPEC | changed)


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        pytest.param("plain: ['b']", "may not mutate atomic arrays", id="atomic-list"),
        pytest.param("number: 'b'", "expected numeric (int or float), got string", id="type"),
        pytest.param("other: 1", ".spec.other: field not declared in schema", id="unknown-field"),
    ],
)
def test_objects_that_violate_the_definition_are_refused(fields, wrong):
    (message,) = applied(fields)[0]

    assert wrong in message


MISSHAPEN = ("properties: 7", "items: [1]", "additionalProperties: a", "type: [object]")


@pytest.mark.parametrize(
    "definition",
    [
        "",
        DEFINITION.replace("name: v1", "name: v2"),
        *(DEFINITION.replace("number: {type: integer}", f"number: {{{m}}}") for m in MISSHAPEN),
    ],
)
def test_without_a_definition_lists_are_replaced(definition):
    assert applied("set: ['b']", definition) == (
        [],
        SPEC | {"set": ["b"]},
    )
