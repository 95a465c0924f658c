"""Find policies that write the same field differently, before any request.

Only certain conflicts are reported: both values are constants, each request of one policy is a
request of the other in each respect, and no `priority` sets their order.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Final

from policyd.api.admission import Rule
from policyd.api.inject import Inject, Text
from policyd.api.policy import NamedExpression, Policy
from policyd.api.selectors import LabelSelector
from policyd.cel import CelCompileError
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.cel.syntax.unparse import unparse
from policyd.engine.documents.findings import Finding, field_path
from policyd.engine.inject.templates import fields_of_type
from policyd.engine.model.compiled import CompiledBinding, CompiledPolicy

Writes = dict[str, str]
"""The values that a policy writes out, by where they go."""

_TEXTS: Final = fields_of_type(Inject, Text | None)
_MAPS: Final = fields_of_type(Inject, dict[str, Text])


def conflicts(
    policies: Iterable[CompiledPolicy], bindings: Iterable[CompiledBinding] = ()
) -> Iterator[Finding]:
    """Yield where two policies write the same field differently: one of them is in vain.

    Args:
        policies: The policies of a cluster.
        bindings: Their bindings: a policy that one narrows is skipped.
    """
    narrowed = {(b.policy_kind, b.policy) for b in bindings if b.constraints is not None}
    writing = [
        (policy, written)
        for policy in policies
        if (policy.kind, policy.name) not in narrowed
        and policy.applies is None
        and not policy.shadow_of
        for written in [_writes(policy.policy)]
        if written
    ]
    for (one, first), (other, second) in combinations(writing, 2):
        differing = [path for path in first if second.get(path, first[path]) != first[path]]
        if differing and _meet(one, other):
            yield _finding(one, other, differing[0], (first, second))


def _finding(
    one: CompiledPolicy, other: CompiledPolicy, path: str, written: tuple[Writes, Writes]
) -> Finding:
    mine, theirs = (writes[path] for writes in written)
    message = (
        f"`{one.name}` sets {path} to {mine}, and `{other.name}` in {other.place} to {theirs}: "
        "the result depends on their names"
    )
    own = one.own and other.own
    hint = "give one of them a `priority`" if own else "narrow what one of them matches"
    return Finding(
        source=one.place, message=message, hint=hint, severity="warning", rule="conflict"
    )


def _meet(one: CompiledPolicy, other: CompiledPolicy) -> bool:
    """Tell whether there are certainly requests that concern both, in no chosen order."""
    mine, theirs = one.policy.spec, other.policy.spec
    if mine.priority != theirs.priority or one.namespace != other.namespace:
        return False
    if one.exceptions or other.exceptions or mine.param_kind or theirs.param_kind:
        return False
    a, b = one.constraints, other.constraints
    return (
        not (a.exclude_resource_rules or b.exclude_resource_rules)
        and _nested(_asked(a.namespace_selector), _asked(b.namespace_selector))
        and _nested(_asked(a.object_selector), _asked(b.object_selector))
        and _nested(_conditions(mine.match_conditions), _conditions(theirs.match_conditions))
        and any(_both(rule, like) for rule in a.resource_rules for like in b.resource_rules)
    )


def _nested(one: frozenset[object], other: frozenset[object]) -> bool:
    """Tell whether one asks for nothing that the other does not ask for too."""
    return one <= other or other <= one


def _asked(selector: LabelSelector) -> frozenset[object]:
    return frozenset((*selector.match_labels.items(), *selector.match_expressions))


def _conditions(conditions: Iterable[NamedExpression]) -> frozenset[object]:
    return frozenset(" ".join(condition.expression.split()) for condition in conditions)


def _both(one: Rule, other: Rule) -> bool:
    """Tell whether there are requests that both rules name."""
    pairs = (
        (one.operations, other.operations),
        (one.api_groups, other.api_groups),
        (one.api_versions, other.api_versions),
        (one.resources, other.resources),
    )
    if one.scope != other.scope or one.resource_names != other.resource_names:
        return False
    return all("*" in a or "*" in b or not set(a).isdisjoint(b) for a, b in pairs)


def _writes(policy: Policy) -> Writes:
    """Return the fields that a policy sets to constant values, for any object."""
    written = _injected(policy.spec.inject) if policy.spec.inject else {}
    for mutation in policy.spec.mutations:
        for given in (mutation.apply_configuration, mutation.json_patch):
            if given is not None:
                written |= _of_expression(given.expression)
    return written


def _injected(inject: Inject) -> Writes:
    texts = {name: getattr(inject, field) for name, field in _TEXTS.items()}
    maps = {
        f"{name} `{key}`": value
        for name, field in _MAPS.items()
        for key, value in getattr(inject, field).items()
    }
    return {name: f"`{value}`" for name, value in (texts | maps).items() if isinstance(value, str)}


def _of_expression(source: str) -> Writes:
    try:
        tree = parse(source)
    except CelCompileError:
        return {}
    if isinstance(tree, ast.ListLiteral):
        patches = (element for element in tree.elements if isinstance(element, ast.StructLiteral))
        return dict(pair for patch in patches for pair in _of_patch(patch))
    return dict(_leaves(tree, ()))


def _of_patch(patch: ast.StructLiteral) -> Iterator[tuple[str, str]]:
    fields = {field.name: field.value for field in patch.fields}
    op, path, value = (fields.get(name) for name in ("op", "path", "value"))
    if not isinstance(op, ast.Literal) or op.value not in ("add", "replace"):
        return
    if isinstance(path, ast.Literal) and isinstance(path.value, str) and value is not None:
        steps = path.value.strip("/").split("/")
        if "-" not in steps:  # another element of a list is added beside
            yield from _leaves(value, tuple(_unescaped(step) for step in steps))


def _unescaped(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")


def _leaves(node: ast.ExpressionNode, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the literals of a configuration, by where they go."""
    match node:
        case ast.StructLiteral():
            for field in node.fields:
                if not field.optional:
                    yield from _leaves(field.value, (*path, field.name))
        case ast.MapLiteral():
            for entry in node.entries:
                if isinstance(entry.key, ast.Literal) and not entry.optional:
                    yield from _leaves(entry.value, (*path, str(entry.key.value)))
        case ast.Literal() if path:
            yield field_path(path), f"`{unparse(node)}`"
