"""Policies and bindings that the API server refuses, each by one thing, and some that it takes."""

import yaml

_VALIDATING = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations: [{expression: "true"}]
"""
_MUTATING = """\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: p}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: "[JSONPatch{op: 'test', path: '/a', value: 'b'}]"}
"""
_BINDING = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: b}
spec: {policyName: p, validationActions: [Deny]}
"""


def _changed(text, **spec):
    """Return an object with other fields in its specification; None takes one away."""
    obj = yaml.safe_load(text)
    kept = {**obj["spec"], **spec}
    return {**obj, "spec": {name: value for name, value in kept.items() if value is not None}}


def validating(**spec):
    return _changed(_VALIDATING, **spec)


def _mutating(**spec):
    return _changed(_MUTATING, **spec)


def _binding(**spec):
    return _changed(_BINDING, **spec)


def _condition(name):
    return validating(matchConditions=[{"name": name, "expression": "true"}])


def _variable(name):
    return validating(variables=[{"name": name, "expression": "1"}])


def _validation(**fields):
    return validating(validations=[{"expression": "true", **fields}])


def _annotations(*keys, value="'a'"):
    return validating(auditAnnotations=[{"key": key, "valueExpression": value} for key in keys])


_RULE = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}


def _rule(*resources, **fields):
    rule = {**_RULE, "operations": ["CREATE"], "resources": list(resources), **fields}
    return validating(matchConstraints={"resourceRules": [rule]})


_BOTH = {
    "patchType": "JSONPatch",
    "jsonPatch": {"expression": "[JSONPatch{op: 'test', path: '/a'}]"},
    "applyConfiguration": {"expression": "Object{}"},
}
_REF = {"name": "a", "parameterNotFoundAction": "Deny"}

REFUSED = {
    "name-in-capitals": {**validating(), "metadata": {"name": "P"}},
    "condition-with-a-space": _condition("a b"),
    "condition-without-a-name": _condition(""),
    "condition-with-a-long-name": _condition("a" * 64),
    "condition-with-a-wrong-prefix": _condition("A_b/c"),
    "variable-with-a-dash": _variable("a-b"),
    "variable-with-a-reserved-name": _variable("in"),
    "message-of-two-lines": _validation(message="a\nb"),
    "message-of-blanks": _validation(message="  "),
    "reason-that-is-none": _validation(reason="Unauthorized"),
    "annotation-with-a-space": _annotations("a b"),
    "annotation-that-is-there-twice": _annotations("a", "a"),
    "annotation-that-is-no-text": _annotations("a", value="1"),
    "annotation-that-may-be-no-text": _annotations("a", value="object.metadata.name"),
    "nothing-to-validate": validating(validations=[]),
    "no-reinvocation-policy": _mutating(reinvocationPolicy=None),
    "change-of-what-is-deleted": _mutating(
        matchConstraints={"resourceRules": [{**_RULE, "operations": ["DELETE"]}]}
    ),
    "no-rules": validating(matchConstraints={}),
    "empty-rules": validating(matchConstraints={"resourceRules": []}),
    "no-resources": _rule(),
    "no-operations": _rule("pods", operations=[]),
    "no-groups": _rule("pods", apiGroups=[]),
    "no-versions": _rule("pods", apiVersions=[]),
    "empty-version": _rule("pods", apiVersions=[""]),
    "empty-resource": _rule("pods", ""),
    "all-operations-and-one": _rule("pods", operations=["*", "CREATE"]),
    "all-groups-and-one": _rule("pods", apiGroups=["*", "apps"]),
    "all-versions-and-one": _rule("pods", apiVersions=["v1", "*"]),
    "all-resources-and-one": _rule("*", "deployments"),
    "everything-and-one": _rule("*/*", "pods"),
    "all-subresources-and-one": _rule("pods/*", "pods/exec"),
    "a-subresource-of-all-and-one": _rule("*/status", "pods/status"),
    "no-resources-excluded": validating(
        matchConstraints={
            "resourceRules": [{**_RULE, "operations": ["CREATE"]}],
            "excludeResourceRules": [{**_RULE, "operations": ["CREATE"], "resources": []}],
        }
    ),
    "binding-to-no-resources": _binding(
        matchResources={"resourceRules": [{**_RULE, "operations": ["*"], "resources": []}]}
    ),
    "mutation-in-two-ways": _mutating(mutations=[_BOTH]),
    "deny-and-warn": _binding(validationActions=["Deny", "Warn"]),
    "deny-twice": _binding(validationActions=["Deny", "Deny"]),
    "params-that-may-be-missing": _binding(paramRef={"name": "a"}),
}

TAKEN = {
    "condition-with-a-prefix": _condition("example.com/A_b"),
    "message-that-ends-with-a-line": _validation(message="a\n"),
    "expression-of-two-lines": validating(validations=[{"expression": "true &&\ntrue"}]),
    "annotation-that-may-be-null": _annotations("a", value="null"),
    "annotation-that-is-made-a-text": _annotations("a", value="string(object.metadata.name)"),
    "nothing-but-annotations": {**_annotations("a"), "metadata": {"name": "p"}},
    "change-of-anything": _mutating(
        matchConstraints={"resourceRules": [{**_RULE, "operations": ["*"]}]}
    ),
    "all-resources-and-a-subresource": _rule("*", "pods/exec"),
    "one-and-all-resources": _rule("deployments", "*"),
    "one-and-all-subresources": _rule("pods/exec", "pods/*"),
    "resource-twice": _rule("pods", "pods"),
    "binding-with-no-rules": _binding(matchResources={}),
    "binding-with-params": _binding(paramRef=_REF),
    "warn-and-audit": _binding(validationActions=["Warn", "Audit"]),
}
