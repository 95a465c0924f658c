"""Warn of a policy that never matches, fails unexpectedly, or costs too much.

Policies are tried on objects with only the required fields of their kind. An error there
refuses such objects with `failurePolicy: Fail`, whatever the policy's purpose.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from policyd.api.admission import Operation
from policyd.api.kinds import BuiltinResource, resource, resources
from policyd.api.meta import Json
from policyd.api.policy import MatchConstraints
from policyd.cel import Budget, CelCompileError, CelError
from policyd.cel.check.checker import check
from policyd.cel.cost import EXPRESSION_LIMIT
from policyd.cel.estimate.estimator import estimate_cost
from policyd.cel.estimate.spans import Span
from policyd.cel.recursion import deep_recursion
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.cel.syntax.unparse import unparse
from policyd.cel.types import DYN, Type
from policyd.engine.documents.findings import Finding, LintWarning
from policyd.engine.documents.reading import Document
from policyd.engine.evaluate.conditions import EvaluationError, Invocation, Match, matches
from policyd.engine.evaluate.mutation import mutate
from policyd.engine.evaluate.verdict import VerdictBuilder
from policyd.engine.lint.never_true import never_true
from policyd.engine.lint.overwritten import overwritten
from policyd.engine.model.compiled import (
    MUTATING,
    NATIVE,
    VALIDATING,
    CompiledPolicy,
    expressions_of,
)
from policyd.engine.model.facts import Facts
from policyd.engine.model.queue_facts import NOT_GIVEN, OF_THE_OBJECT, FactStruct
from policyd.engine.model.surroundings import PolicyContext
from policyd.engine.offline.requests import (
    RequestCircumstances,
    as_it_was,
    namespace_lookup,
    request_for,
)
from policyd.errors import PolicydError
from policyd.patch.builtin_views import type_of, typed_view

_CONTAINER: Final[Mapping[str, Any]] = {
    "name": "a",
    "image": "a",
    "imagePullPolicy": "Always",
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_POD: Final[Mapping[str, Any]] = {
    "containers": [_CONTAINER],
    "dnsPolicy": "ClusterFirst",
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "serviceAccountName": "default",
    "terminationGracePeriodSeconds": 30,
}
_TEMPLATE: Final[Mapping[str, Any]] = {"metadata": {"labels": {"a": "a"}}, "spec": _POD}
_PODS: Final[Mapping[str, Any]] = {
    "selector": {"matchLabels": {"a": "a"}},
    "template": _TEMPLATE,
    "revisionHistoryLimit": 10,
}
_JOB: Final[Mapping[str, Any]] = {
    "backoffLimit": 6,
    "completionMode": "NonIndexed",
    "completions": 1,
    "parallelism": 1,
    "suspend": False,
    "template": _TEMPLATE,
}
_CRON: Final[Mapping[str, Any]] = {
    "concurrencyPolicy": "Allow",
    "jobTemplate": {"spec": _JOB},
    "schedule": "* * * * *",
    "suspend": False,
}
_PORT: Final[Mapping[str, Any]] = {"port": 80, "protocol": "TCP", "targetPort": 80}
_SERVICE: Final[Mapping[str, Any]] = {
    "ports": [_PORT],
    "selector": {"a": "a"},
    "sessionAffinity": "None",
    "type": "ClusterIP",
}
_LEAST: Final[Mapping[tuple[str, str], Mapping[str, Any]]] = {
    ("", "pods"): {"spec": {**_POD, "enableServiceLinks": True}},
    ("", "configmaps"): {},
    ("", "namespaces"): {"spec": {"finalizers": ["kubernetes"]}},
    ("", "services"): {"spec": _SERVICE},
    ("apps", "deployments"): {"spec": {**_PODS, "replicas": 1, "strategy": {}}},
    ("apps", "statefulsets"): {"spec": {**_PODS, "replicas": 1, "updateStrategy": {}}},
    ("apps", "daemonsets"): {"spec": {**_PODS, "updateStrategy": {}}},
    ("batch", "jobs"): {"spec": _JOB},
    ("batch", "cronjobs"): {"spec": _CRON},
}
"""The least that objects of a kind have when policies see them, with the API server's defaults,
beside their metadata."""


def _least_of(constraints: MatchConstraints, operation: str) -> Iterator[BuiltinResource]:
    """Yield the resources that rules name for an operation, if their least objects are known."""
    for group, plural in _LEAST:
        found = resource(group, "v1", plural)
        if found is not None and any(
            (operation in rule.operations or "*" in rule.operations)
            and (group in rule.api_groups or "*" in rule.api_groups)
            and (plural in rule.resources or "*" in rule.resources)
            for rule in constraints.resource_rules
        ):
            yield found


def _least_object(of: BuiltinResource) -> Json:
    """Return an object as policies see it that has only its required fields."""
    version = f"{of.group}/{of.version}" if of.group else of.version
    obj: dict[str, Any] = {"apiVersion": version, "kind": of.kind, "metadata": {"name": "a"}}
    if of.namespaced:
        obj["metadata"] = {"name": "a", "namespace": "default"}
    obj |= _LEAST[of.group, of.plural]
    struct = type_of(obj)
    return obj if struct is None else typed_view(obj, struct)[0]


_MISSING: Final = "no such key"

_ELSEWHERE: Final = "is not available here"
"""The error of external data, which proves nothing about a policy."""

_ASK_FIRST: Final = "test `has(...)` first, or write `.?` before a field that may be missing"

_SINCE_1_37: Final = ("orValue", "or")
"""The functions that Kubernetes 1.37 accepts on optionals only; 1.36 returns other values as is."""


def lint(policy: CompiledPolicy) -> Iterator[Finding]:
    """Yield the warnings about a policy."""
    never = [*_idle(policy), *never_true(policy)]
    found = chain(
        never,
        () if never else _surprises(policy),
        overwritten(policy),
        _of_no_optional(policy),
        _costs(policy),
    )
    yield from (_warning(policy, warning) for warning in found)


def _idle(policy: CompiledPolicy) -> Iterator[LintWarning]:
    """Say that a policy asks and changes nothing; the API server refuses such of its own kinds."""
    work = policy.validations or policy.annotations or policy.mutations or policy.steps
    if not work and policy.kind not in NATIVE:
        yield LintWarning(
            "it has neither validations nor mutations", "add `validations`", "never-true"
        )


def _warning(policy: CompiledPolicy, warning: LintWarning) -> Finding:
    finding = Finding(
        source=policy.place, message=warning.message, hint=warning.hint, rule=warning.rule
    )
    return replace(finding, severity="warning")


def lint_document(document: Document) -> Iterator[Finding]:
    """Yield the warnings about a policy's document."""
    value = document.value
    if not isinstance(value, dict):
        return
    spec = value.get("spec")
    if value.get("kind") not in (VALIDATING, MUTATING) or not isinstance(spec, dict):
        return
    if "failurePolicy" not in spec:
        message = "field `failurePolicy` is missing: requests that cannot be evaluated are refused"
        finding = document.finding(message, ("spec",), hint="set it to `Fail` or `Ignore`")
        yield replace(finding, severity="warning", rule="failure-policy")
    yield from _unknown_params(document)


def _unknown_params(document: Document) -> Iterator[Finding]:
    """Yield a kind of params that Kubernetes' own groups do not have."""
    given = document.value["spec"].get("paramKind")
    if not isinstance(given, dict):
        return
    group, _, version = str(given.get("apiVersion", "")).rpartition("/")
    kinds = {each.kind for each in resources() if (each.group, each.version) == (group, version)}
    if kinds and str(given.get("kind")) not in kinds:
        path = ("spec", "paramKind", "kind")
        message = f"`{given.get('kind')}` not found in {given.get('apiVersion')}"
        finding = document.finding(message, path)
        yield replace(finding, severity="warning", rule="unknown")


def _surprises(policy: CompiledPolicy) -> Iterator[LintWarning]:
    """Yield the failures for objects that have only their required fields."""
    if policy.ignores_failures or policy.policy.spec.param_kind:
        return
    operations: tuple[Operation, ...] = ("CREATE", "UPDATE")
    for operation in operations:
        for found in _least_of(policy.constraints, operation):
            reason = _failure(policy, found, operation)
            if reason:
                message = f"for a {found.kind} with only its required fields, {reason}"
                yield LintWarning(
                    message, _ASK_FIRST if _MISSING in reason else None, "null-unsafe"
                )
                return


class _NoQueue:
    """What is known of the queues for an object that names none; of others, nothing is."""

    def variables(self, namespace: str, queue: str) -> Mapping[str, object]:
        absent = FactStruct({})
        unknown = NOT_GIVEN.variables(namespace, queue)
        return {**unknown, **dict.fromkeys(OF_THE_OBJECT, absent)}

    def within(self, _namespace: str) -> "_NoQueue":
        return self


def _failure(policy: CompiledPolicy, of: BuiltinResource, operation: Operation) -> str:
    """Say how a policy fails for the least object of a kind; empty if it does not."""
    surroundings = PolicyContext(namespaces=namespace_lookup((), {}), queues=_NoQueue)
    obj = _least_object(of)
    old = as_it_was(obj, operation)
    request = request_for(obj, RequestCircumstances(operation=operation), old_object=old)
    facts = Facts(request, surroundings)
    try:
        found = matches(Invocation(policy, policy.bindings[0], None, None), facts)
    except EvaluationError as error:
        return str(error) if _MISSING in str(error) else ""
    except PolicydError:
        return ""
    failures = [*_failing_validations(policy, found)]
    if policy.mutations:
        verdict = VerdictBuilder()
        mutate([policy], facts, verdict)
        failures += (
            failure.message
            for failure in verdict.decision().failures
            if _ELSEWHERE not in failure.message
        )
    return next((failure for failure in failures if failure), "")


def _failing_validations(policy: CompiledPolicy, found: Iterable[Match]) -> Iterator[str]:
    for match in found:
        for validation in policy.validations:
            try:
                validation.program.evaluate(match.variables, Budget())
            except CelError as error:
                if _MISSING in error.message:
                    yield f"`{validation.place}` fails: {error.message}"


def _of_no_optional(policy: CompiledPolicy) -> Iterator[LintWarning]:
    """Yield calls on values that are not optional, which are errors from Kubernetes 1.37 on."""
    for _, program, environment in expressions_of(policy):
        try:
            tree = parse(program.source, macros=environment.macros)
            with deep_recursion():
                types = check(tree, program.source, environment).types
        except CelCompileError:
            continue
        for called in _called_on_none(tree, types):
            message = f"under Kubernetes 1.37: `{called}` fails, as it is not an optional value"
            yield LintWarning(message, "write `.?` before the field that may be missing", "dialect")


def _called_on_none(
    node: ast.ExpressionNode, types: Mapping[ast.ExpressionNode, Type]
) -> Iterator[str]:
    if isinstance(node, ast.Call) and node.function in _SINCE_1_37 and node.target is not None:
        plain = isinstance(node.target, ast.Select | ast.Index | ast.Identifier)
        if plain and types.get(node.target) == DYN and not getattr(node.target, "optional", False):
            yield f"{unparse(node.target)}.{node.function}"
    for part in ast.children(node):
        yield from _called_on_none(part, types)


_MANY: Final = 10
"""Elements of a list, or entries of an object, that are nothing special."""

_LONG: Final = 64
"""Letters of a text that are nothing special."""


def _costs(policy: CompiledPolicy) -> Iterator[LintWarning]:
    """Yield the expressions that may be over their limit for an object that is not even large."""
    for name, program, environment in expressions_of(policy):
        try:
            most = estimate_cost(program.source, environment, sizes=_ordinary).most
        except CelCompileError:  # compiled more leniently
            continue
        if most > EXPRESSION_LIMIT:
            message = (
                f"`{name}` may cost {most:,} where each list has {_MANY} elements,"
                f" the limit is {EXPRESSION_LIMIT:,}"
            )
            yield LintWarning(message, "avoid nested loops", "cost")


def _ordinary(_path: tuple[str, ...], kind: Type) -> Span:
    return Span(0, _LONG if kind.name in ("string", "bytes") else _MANY)
