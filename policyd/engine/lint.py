"""What is doubtful about a policy that compiles: what never matches, and what fails by surprise.

Match conditions are tried on objects that have nothing but what their kind requires. A condition
that fails there refuses such objects with `failurePolicy: Fail`, whatever the policy is about.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from policyd.api.kinds import Resource, resource, resources
from policyd.api.policy import MatchConstraints
from policyd.api.selectors import LabelSelector
from policyd.cel import Budget, CelCompileError, CelError, ast
from policyd.cel.parser import parse
from policyd.engine.compiled import MUTATING, VALIDATING, CompiledPolicy
from policyd.engine.documents import Document
from policyd.engine.evaluate import EvaluationError, Invocation, matches
from policyd.engine.facts import Facts
from policyd.engine.findings import Finding
from policyd.engine.offline import Circumstances, namespace_lookup, request_for
from policyd.engine.surroundings import Surroundings
from policyd.errors import PolicydError
from policyd.patch.builtin_views import type_of, typed_view

_MISSING: Final = "no such key"

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
"""What objects of a kind have at least when policies see them, the API server's defaults among it,
beside their metadata."""


def lint(policy: CompiledPolicy) -> Iterator[Finding]:
    """Yield what is doubtful about a policy."""
    never = list(_never_true(policy))
    found = chain(never, () if never else _surprises(policy))
    for message, hint, rule in found:
        finding = Finding(source=policy.place, message=message, hint=hint, rule=rule)
        yield replace(finding, severity="warning")


def lint_document(document: Document) -> Iterator[Finding]:
    """Yield what is doubtful about a policy as it is written."""
    value = document.value
    if not isinstance(value, dict) or value.get("kind") not in (VALIDATING, MUTATING):
        return
    spec = value.get("spec")
    if isinstance(spec, dict) and "failurePolicy" not in spec:
        message = "field `failurePolicy` is missing: what cannot be evaluated is refused"
        finding = document.finding(message, ("spec",), hint="say `Fail` or `Ignore`")
        yield replace(finding, severity="warning", rule="failure-policy")


_Doubt = tuple[str, str | None, str]


def _never_true(policy: CompiledPolicy) -> Iterator[_Doubt]:
    """Yield why a policy concerns nothing at all."""
    yield from _unknown_resources(policy.constraints)
    constraints = policy.constraints
    for name, selector in (
        ("namespaceSelector", constraints.namespace_selector),
        ("objectSelector", constraints.object_selector),
    ):
        key = _contradicted(selector)
        if key:
            yield f"{name} picks nothing: `{key}` cannot be all that is asked", None, "never-true"
    operations = {o for rule in constraints.resource_rules for o in rule.operations}
    for name, program in policy.conditions:
        if not program.variables_used and not _holds(policy, name):
            yield f"match condition `{name}` is never true", None, "never-true"
        asked = _operation_asked(program.source)
        if asked and "*" not in operations and asked not in operations:
            message = f"match condition `{name}` is never true: no rule is for {asked}"
            yield message, "name the operation in a rule", "never-true"


def _holds(policy: CompiledPolicy, name: str) -> bool:
    try:
        return dict(policy.conditions)[name].evaluate({}, Budget()) is True
    except CelError:
        return False


def _unknown_resources(constraints: MatchConstraints) -> Iterator[_Doubt]:
    """Yield kinds that stand where a resource's name should, in Kubernetes' own groups."""
    plurals = {(each.group, each.kind.lower()): each.plural for each in resources()}
    for rule in constraints.resource_rules:
        for group in rule.api_groups:
            for name in rule.resources:
                plural = plurals.get((group, name.lower()), name)
                if plural != name:
                    message = f"no rule can match `{name}`: there is no such resource"
                    yield message, f"did you mean `{plural}`?", "unknown"


def _contradicted(selector: LabelSelector) -> str:
    """Return a label that cannot be as a selector asks; empty if there is none."""
    for requirement in selector.match_expressions:
        given = selector.match_labels.get(requirement.key)
        alone = LabelSelector(match_expressions=(requirement,))
        if given is not None and not alone.matches({requirement.key: given}):
            return requirement.key
    return ""


def _operation_asked(source: str) -> str:
    """Return the operation that an expression asks for and for nothing else: `a == 'DELETE'`."""
    try:
        tree = parse(source)
    except CelCompileError:
        return ""
    if not isinstance(tree, ast.Call) or tree.function != "_==_" or len(tree.arguments) != 2:
        return ""
    names = [ast.qualified_name(argument) for argument in tree.arguments]
    values = [a.value for a in tree.arguments if isinstance(a, ast.Literal)]
    asks = ("request", "operation") in names and len(values) == 1
    return str(values[0]) if asks else ""


def _surprises(policy: CompiledPolicy) -> Iterator[_Doubt]:
    """Yield the match conditions that fail for objects with nothing but what they must have."""
    if not policy.conditions or policy.ignores_failures or policy.policy.spec.param_kind:
        return
    for found in _named(policy.constraints):
        reason = _failure(policy, found)
        if _MISSING in reason:
            message = f"for a {found.kind} with nothing but what it must have, {reason}"
            hint = "ask `has(...)` first, or write `.?` before what may be missing"
            yield message, hint, "null-unsafe"
            return


def _named(constraints: MatchConstraints) -> Iterator[Resource]:
    """Yield the resources that rules name, of those whose least objects are known."""
    for group, plural in _LEAST:
        found = resource(group, "v1", plural)
        if found is not None and any(
            ("CREATE" in rule.operations or "*" in rule.operations)
            and (group in rule.api_groups or "*" in rule.api_groups)
            and (plural in rule.resources or "*" in rule.resources)
            for rule in constraints.resource_rules
        ):
            yield found


def _failure(policy: CompiledPolicy, of: Resource) -> str:
    """Say how the match conditions fail for the least object of a kind; empty if they do not."""
    version = f"{of.group}/{of.version}" if of.group else of.version
    obj = {"apiVersion": version, "kind": of.kind, "metadata": {"name": "a"}}
    if of.namespaced:
        obj["metadata"] = {"name": "a", "namespace": "default"}
    obj |= _LEAST[of.group, of.plural]
    struct = type_of(obj)
    if struct is not None:
        obj = typed_view(obj, struct)[0]
    surroundings = Surroundings(namespaces=namespace_lookup((), {}))
    facts = Facts(request_for(obj, Circumstances()), surroundings)
    try:
        matches(Invocation(policy, policy.bindings[0], None, None), facts)
    except EvaluationError as error:
        return str(error)
    except PolicydError:
        return ""
    return ""
