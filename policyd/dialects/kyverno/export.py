"""Export Kyverno's policies as the API server's own kinds, if they need nothing of Kyverno.

A policy for pods that Kyverno extends to controllers becomes one for each place of the template:
`object.spec` is then the template's. Parts without an exact counterpart are reported, and nothing
of such a policy is exported.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from policyd.api.admission import Rule
from policyd.api.meta import Json
from policyd.api.names import NAME_LABEL, is_label_key, is_label_value
from policyd.api.policy import Mutation, PolicySpec, Validation
from policyd.cel import CelCompileError
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.dialects.kyverno.autogen import CLUSTER_POLICY_CONTROLLERS
from policyd.engine.compile.native import GROUP
from policyd.engine.documents.reading import Document
from policyd.engine.export.expressions import NotExportableError
from policyd.engine.export.patch import as_json
from policyd.engine.export.policies import POLICY_LABEL, Exported, binding_spec, unreadable
from policyd.engine.model.compiled import (
    MUTATING,
    VALIDATING,
    CompiledException,
    CompiledMutation,
    CompiledPolicy,
)
from policyd.patch.operations import Path

_OBJECTS: Final = ("object", "oldObject")
_CRON_JOBS: Final = ("spec", "jobTemplate", "spec", "template")
_TEMPLATE: Final = ("spec", "template")


@dataclass(frozen=True, slots=True)
class _Target:
    """Kinds whose pods are in one place, and the rules that name them."""

    rules: tuple[Rule, ...]
    template: Path = ()
    suffix: str = ""


def export_kyverno(
    policies: Sequence[CompiledPolicy],
    document: Document,
    exceptions: Iterable[CompiledException] = (),
    *,
    version: str = "v1",
) -> Exported:
    """Write one of Kyverno's documents as the API server's own kinds.

    Args:
        policies: The compiled policies of the document: one policy, or one for each rule.
        document: The document: findings point into it.
        exceptions: Exemptions from policies.
        version: The version of the API server's kinds.
    """
    objects: list[Json] = []
    why: list[str] = []
    exceptions = tuple(exceptions)
    for policy in policies:
        found = list(_without_counterpart(policy, exceptions))
        made: list[Json] = []
        try:
            made = [] if found else list(_objects(policy, version))
        except NotExportableError as error:
            found.append(str(error))
        found += (problem.message for problem in unreadable(made))
        why += found
        objects += made
    name = policies[0].name if policies else ""
    findings = tuple(
        document.finding(f"policy `{name}` is not exported: {message}", ("spec",))
        for message in dict.fromkeys(why)
    )
    return Exported((), findings) if findings else Exported(tuple(objects))


def _without_counterpart(
    policy: CompiledPolicy, exceptions: tuple[CompiledException, ...]
) -> Iterator[str]:
    """Yield the features of a policy that the API server's own kinds do not have."""
    if policy.applies is not None:
        yield "its match and exclude blocks cannot be written as rules"
    if any(binding.actions_for is not None for binding in policy.bindings):
        yield "its failure action depends on the namespace"
    if any("namespaceObject" in program.variables_used for _, program in policy.conditions):
        yield "a match condition reads `namespaceObject`, which is null in the API server"
    if policy.templates:
        yield from _of_templates(policy)
    if any(map(_adds_nothing, policy.mutations[:-1])):
        yield "a mutation adds empty values, which the API server drops before the next mutation"
    names = {(policy.kind, policy.name), ("", policy.name)}
    for exception in exceptions:
        if not names.isdisjoint(exception.policies):
            name = exception.name
            yield f"exception `{name}` applies to it, and the API server has no exceptions"


def _of_templates(policy: CompiledPolicy) -> Iterator[str]:
    if policy.mutations:
        yield "a mutation of pods is extended to the templates of controllers"
    named = {rule.resources[0] for rule in policy.constraints.resource_rules}
    for plural in sorted(named - CLUSTER_POLICY_CONTROLLERS.keys() - {"pods"}):
        yield f"it is extended to `{plural}`, which have pod templates in places of their own"


def _adds_nothing(mutation: CompiledMutation) -> bool:
    """Tell whether a patch puts an empty object or list somewhere: types in Go leave it out."""
    try:
        tree = parse(mutation.program.source)
    except CelCompileError:
        return False
    return mutation.patch_type == "JSONPatch" and any(map(_is_empty, _values(tree)))


def _values(node: ast.ExpressionNode) -> Iterator[ast.ExpressionNode]:
    if isinstance(node, ast.StructLiteral) and node.name == "JSONPatch":
        yield from (field.value for field in node.fields if field.name == "value")
    for part in ast.children(node):
        yield from _values(part)


def _is_empty(node: ast.ExpressionNode) -> bool:
    literal = isinstance(node, ast.MapLiteral | ast.ListLiteral | ast.StructLiteral)
    return literal and not ast.children(node)


def _objects(policy: CompiledPolicy, version: str) -> Iterator[Json]:
    for target in _targets(policy):
        kind = MUTATING if policy.mutations else VALIDATING
        name = "-".join(filter(None, (policy.name, policy.part, target.suffix))).lower()
        spec = _spec(policy, target)
        common = {"apiVersion": f"{GROUP}/{version}"}
        labels = {POLICY_LABEL: policy.name} if is_label_value(policy.name) else {}
        metadata = {"name": name, "labels": labels}
        yield {**common, "kind": kind, "metadata": metadata, "spec": spec}
        binding = binding_spec(kind, name, policy.bindings[0])
        if policy.namespace:
            selector = {"matchLabels": {NAME_LABEL: policy.namespace}}
            binding["matchResources"] = {"namespaceSelector": selector}
        yield {**common, "kind": f"{kind}Binding", "metadata": metadata, "spec": binding}


def _targets(policy: CompiledPolicy) -> Iterator[_Target]:
    rules = policy.constraints.resource_rules
    if policy.namespace:
        rules = tuple(msgspec.structs.replace(rule, scope="Namespaced") for rule in rules)
    if not policy.templates:
        yield _Target(rules)
        return
    pods = tuple(rule for rule in rules if rule.resources == ("pods",))
    cron_jobs = tuple(rule for rule in rules if rule.resources == ("cronjobs",))
    others = tuple(rule for rule in rules if rule not in (*pods, *cron_jobs))
    yield _Target(pods)
    if others:
        yield _Target(others, _TEMPLATE, "templates")
    if cron_jobs:
        yield _Target(cron_jobs, _CRON_JOBS, "cronjobs")


def _spec(policy: CompiledPolicy, target: _Target) -> dict[str, Json]:
    spec = policy.policy.spec
    constraints = msgspec.structs.replace(spec.match_constraints, resource_rules=target.rules)
    conditions = [
        {"name": _name(condition.name, index), "expression": _moved(condition.expression, target)}
        for index, condition in enumerate(spec.match_conditions)
    ]
    variables = [
        {"name": variable.name, "expression": _moved(variable.expression, target)}
        for variable in spec.variables
    ]
    given = (("matchConditions", conditions), ("variables", variables))
    params = {"paramKind": as_json(spec.param_kind)} if spec.param_kind else {}
    return {
        "failurePolicy": spec.failure_policy,
        "matchConstraints": as_json(constraints),
        **params,
        **{field: each for field, each in given if each},
        **(_changed(spec) if policy.mutations else _demanded(spec, target)),
    }


def _name(given: str, index: int) -> str:
    """Return the name of a condition, or another that the API server accepts."""
    return given if is_label_key(given) else f"condition-{index}"


def _demanded(spec: PolicySpec, target: _Target) -> dict[str, Json]:
    annotations = [
        {"key": each.key, "valueExpression": _moved(each.value_expression, target)}
        for each in spec.audit_annotations
    ]
    validations = [_validation(each, target) for each in spec.validations]
    given = (("validations", validations), ("auditAnnotations", annotations))
    return {field: each for field, each in given if each}


def _validation(validation: Validation, target: _Target) -> dict[str, Json]:
    written = {
        "expression": _moved(validation.expression, target),
        "message": " ".join(validation.message.split()),
        "messageExpression": _moved(validation.message_expression, target),
        "reason": validation.reason,
    }
    return {field: value for field, value in written.items() if value}


def _changed(spec: PolicySpec) -> dict[str, Json]:
    return {
        "reinvocationPolicy": spec.reinvocation_policy,
        "mutations": [_mutation(each) for each in spec.mutations],
    }


def _mutation(mutation: Mutation) -> dict[str, Any]:
    return {
        key: value for key, value in as_json(mutation).items() if value is not None and value != ""
    }


def _moved(source: str, target: _Target) -> str:
    """Return an expression on pods as one on the templates of a target.

    Raises:
        NotExportableError: If it takes the object as a whole.
    """
    if not source.strip():
        return source
    source = _without_request(source)
    if not target.template:
        return source
    text = source
    inner = "".join(f".{step}" for step in target.template)
    for end in sorted(_roots(parse(source), ()), reverse=True):
        text = text[:end] + inner + text[end:]
    return text


def _without_request(source: str) -> str:
    """Name the objects as the API server does, and not as fields of the request."""
    text = source
    for begin, end, name in sorted(_objects_of_request(parse(source), source), reverse=True):
        text = text[:begin] + name + text[end:]
    return text


def _objects_of_request(node: ast.ExpressionNode, source: str) -> Iterator[tuple[int, int, str]]:
    match node:
        case ast.Select(operand=ast.Identifier(name="request") as request, field=name) if (
            name in _OBJECTS and not node.optional
        ):
            yield request.position, source.index(name, node.position) + len(name), name
        case _:
            for part in ast.children(node):
                yield from _objects_of_request(part, source)


def _roots(node: ast.ExpressionNode, above: tuple[ast.ExpressionNode, ...]) -> Iterator[int]:
    """Yield the ends of the names of objects whose template is meant."""
    if isinstance(node, ast.Identifier) and node.name in _OBJECTS:
        if _is_of_pod(above):
            yield node.position + len(node.name)
        return
    for part in ast.children(node):
        yield from _roots(part, (node, *above))


def _is_of_pod(above: tuple[ast.ExpressionNode, ...]) -> bool:
    """Tell whether a selected field is the pod's, and not the object's own.

    Raises:
        NotExportableError: If it is all of it.
    """
    match above:
        case (
            ast.Select(field="metadata"),
            ast.Select(field="name" | "namespace") | ast.Has(field="name" | "namespace"),
            *_,
        ):
            return False
        case (ast.Select(field=field) | ast.Has(field=field), *_):
            return field in ("spec", "metadata")
        case (ast.Call(function="_==_" | "_!=_", arguments=arguments), *_) if any(
            isinstance(each, ast.Literal) and each.value is None for each in arguments
        ):
            return False
        case _:
            raise NotExportableError("an expression reads the whole object, not the pod")
