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


def _matching(rule):
    """Return a policy of each kind, and a binding of each, with other fields in their rule."""
    rules = {"resourceRules": [{**_RULE, "operations": ["CREATE"], **rule}]}
    return {
        "validating": validating(matchConstraints=rules),
        "mutating": _mutating(matchConstraints=rules),
        "validating-binding": _binding(matchResources=rules),
        "mutating-binding": _of_mutating(_binding(matchResources=rules, validationActions=None)),
    }


def _of_mutating(binding):
    return {**binding, "kind": "MutatingAdmissionPolicyBinding"}


def _with(obj, **metadata):
    return {**obj, "metadata": {**obj["metadata"], **metadata}}


def _params(kind="ConfigMap", version="v1"):
    return validating(paramKind={"kind": kind, "apiVersion": version})


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
    **{
        f"{what}-in-{where}": obj
        for what, rule in {
            "operation-in-small-letters": {"operations": ["Create"]},
            "operation-that-is-none": {"operations": ["CREATE", "FOO"]},
            "name-twice": {"resourceNames": ["a", "a"]},
            "name-with-a-slash": {"resourceNames": ["a/b"]},
            "name-of-a-dot": {"resourceNames": ["."]},
        }.items()
        for where, obj in _matching(rule).items()
    },
    "nothing-to-mutate": _mutating(mutations=[]),
    "binding-in-capitals": _with(_binding(), name="V_"),
    "binding-to-nothing": _binding(policyName=""),
    "binding-to-a-name-in-capitals": _binding(policyName="V_"),
    "params-with-a-slash": _binding(paramRef={**_REF, "name": "a/b"}),
    "params-with-a-wrong-label": _binding(
        paramRef={
            "selector": {"matchLabels": {"a b": "c"}},
            "parameterNotFoundAction": "Deny",
        }
    ),
    "params-without-a-kind": _params(kind=""),
    "params-of-a-kind-with-an-underscore": _params(kind="config_map"),
    "params-of-a-kind-with-a-digit": _params(kind="1Map"),
    "params-of-a-long-kind": _params(kind="K" * 64),
    "params-without-a-version": _params(version="a/"),
    "params-of-no-version": _params(version=""),
    "params-of-a-version-with-two-slashes": _params(version="a/b/c"),
    "params-of-a-version-in-capitals": _params(version="V_1"),
    "params-of-a-group-in-capitals": _params(version="A.b/v1"),
    "label-with-a-space": _with(validating(), labels={"a b": "c"}),
    "label-with-a-prefix-in-capitals": _with(validating(), labels={"A/b": "c"}),
    "label-of-two-words": _with(_mutating(), labels={"a": "b c"}),
    "finalizer-with-a-space": _with(validating(), finalizers=["a b"]),
    "finalizer-with-a-prefix-in-capitals": _with(_binding(), finalizers=["A.b/c"]),
    "finalizers-of-which-one-may-be": _with(
        validating(), finalizers=["orphan", "foregroundDeletion"]
    ),
    "annotated-with-a-space": _with(validating(), annotations={"a b": "c"}),
    "binding-annotated-with-two-slashes": _with(_binding(), annotations={"a/b/c": "d"}),
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
    "operation-twice": _rule("pods", operations=["CREATE", "CREATE"]),
    "name-that-is-none": _rule("pods", resourceNames=["A_b", "*", ""]),
    "params-of-a-kind-with-a-dash": _params(kind="Config-Map"),
    "params-of-the-core-group": _params(version="/v1"),
    "finalizers-with-and-without-a-prefix": _with(
        validating(), finalizers=["orphan", "a.example/B_c", "plain"]
    ),
    "annotated-with-a-prefix-in-capitals": _with(validating(), annotations={"A/b": "c"}),
    "warn-and-audit": _binding(validationActions=["Warn", "Audit"]),
}
