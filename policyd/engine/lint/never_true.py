"""Find selectors and conditions that no request can meet."""

from collections.abc import Iterator
from itertools import product
from typing import Final

from policyd.api.kinds import BuiltinResource, resources
from policyd.api.policy import MatchConstraints
from policyd.api.selectors import LabelSelector
from policyd.cel import Budget, CelCompileError, CelError, Environment, compile_expression
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.cel.syntax.unparse import unparse
from policyd.engine.documents.findings import LintWarning
from policyd.engine.model.compiled import CompiledPolicy, environments_of
from policyd.errors import did_you_mean

_REPORTED: Final = frozenset(
    {
        ("object", "kind"),
        ("request", "operation"),
        ("request", "kind", "kind"),
        ("request", "kind", "group"),
        ("request", "resource", "resource"),
        ("request", "resource", "group"),
    }
)
"""The facts of a request that follow from the rules of a policy alone."""

_OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")
_MOST: Final = 400
"""Combinations of operation and kind that are tried."""


def never_true(policy: CompiledPolicy) -> Iterator[LintWarning]:
    """Yield why a policy concerns nothing at all."""
    constraints = policy.constraints
    if not constraints.resource_rules:
        hint = "add `resourceRules` to what it matches"
        yield LintWarning("no rule names a resource", hint, "never-true")
    yield from _unknown_resources(constraints)
    for name, selector in (
        ("namespaceSelector", constraints.namespace_selector),
        ("objectSelector", constraints.object_selector),
    ):
        key = _contradicted(selector)
        if key:
            message = f"{name} matches nothing: `{key}` cannot meet all requirements"
            yield LintWarning(message, rule="never-true")
    yield from _conditions(policy)


def _unknown_resources(constraints: MatchConstraints) -> Iterator[LintWarning]:
    """Yield names that no resource of Kubernetes' own groups has, such as the name of a kind."""
    plurals = {(each.group, each.kind.lower()): each.plural for each in resources()}
    known: dict[str, set[str]] = {}
    for each in resources():
        known.setdefault(each.group, set()).add(each.plural)
    for rule in constraints.resource_rules:
        for name in rule.resources:
            plural = name.partition("/")[0]
            if plural == "*" or any(plural in known.get(g, {plural}) for g in rule.api_groups):
                continue
            known_kinds = {plurals.get((group, plural.lower())) for group in rule.api_groups} - {
                None
            }
            among = {other for group in rule.api_groups for other in known.get(group, ())}
            hint = (
                f"did you mean `{known_kinds.pop()}`?"
                if known_kinds
                else did_you_mean(plural, among)
            )
            message = f"no rule can match `{name}`: there is no such resource"
            yield LintWarning(message, hint, "unknown")


def _contradicted(selector: LabelSelector) -> str:
    """Return a label that cannot be as a selector asks; empty if there is none."""
    for requirement in selector.match_expressions:
        given = selector.match_labels.get(requirement.key)
        alone = LabelSelector(match_expressions=(requirement,))
        if given is not None and not alone.matches({requirement.key: given}):
            return requirement.key
    return ""


def _conditions(policy: CompiledPolicy) -> Iterator[LintWarning]:
    """Yield the conditions of which a part is false for all requests that the rules match."""
    environment = environments_of(policy).conditions
    requests = list(_requests(policy.constraints))
    for name, program in policy.conditions:
        for part in _conjuncts(program.source, environment):
            if _is_never_true(part, environment, requests):
                shown = unparse(part)
                suffix = "" if shown == program.source.strip() else f", as `{shown}` is not"
                hint = "name the operation or the kind in a rule" if _names(part) else None
                yield LintWarning(
                    f"match condition `{name}` is never true{suffix}", hint, "never-true"
                )
                break


def _conjuncts(source: str, environment: Environment) -> list[ast.ExpressionNode]:
    """Return the parts that must all be true."""
    try:
        tree = parse(source, macros=environment.macros)
    except CelCompileError:
        return []
    return tree.operands if isinstance(tree, ast.Logic) and tree.conjunction else [tree]


def _is_never_true(
    part: ast.ExpressionNode, environment: Environment, requests: list[dict[str, object]]
) -> bool:
    names = _names(part)
    if names is None or not names <= _REPORTED or (names and not requests):
        return False
    try:
        program = compile_expression(unparse(part), environment)
    except CelCompileError:
        return False
    for variables in requests if names else [{}]:
        try:
            if program.evaluate(variables, Budget()) is not False:
                return False
        except CelError:
            return bool(not names)
    return True


def _names(node: ast.ExpressionNode) -> set[tuple[str, ...]] | None:
    """Return the facts that an expression reads; None if that is unknown, as for loops."""
    path = ast.qualified_name(node)
    if path is not None:
        return {path}
    if isinstance(node, ast.Comprehension | ast.Bind | ast.OptionalMap | ast.SortBy):
        return None
    found = [_names(part) for part in ast.children(node)]
    return None if None in found else set().union(*(each for each in found if each))


def _requests(constraints: MatchConstraints) -> Iterator[dict[str, object]]:
    """Yield the facts that the rules allow, as far as they are known."""
    named = [_named(constraints, resource) for resource in resources()]
    kinds = [each for each in named if each is not None]
    operations = {o for rule in constraints.resource_rules for o in rule.operations}
    chosen = _OPERATIONS if "*" in operations else tuple(sorted(operations))
    if not _all_known(constraints) or len(kinds) * len(chosen) > _MOST:
        return
    for kind, operation in product(kinds, chosen):
        obj = {"kind": kind.kind}
        yield {
            "object": None if operation == "DELETE" else obj,
            "request": {
                "operation": operation,
                "kind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
                "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
            },
        }


def _named(constraints: MatchConstraints, resource: BuiltinResource) -> BuiltinResource | None:
    return (
        resource
        if any(
            resource.group in rule.api_groups and resource.plural in rule.resources
            for rule in constraints.resource_rules
        )
        else None
    )


def _all_known(constraints: MatchConstraints) -> bool:
    """Tell whether every resource that rules name is a known one, none by `*`."""
    known = {(each.group, each.plural) for each in resources()}
    return all(
        (group, name) in known
        for rule in constraints.resource_rules
        for group in rule.api_groups
        for name in rule.resources
    )
