"""Find the field names that a policy reads, so that only changes of those run it again.

The names of the fields that an expression selects are collected from its tree. An expression that
uses a part of the object as a whole (compares it, counts it) may depend on anything in it.

Names are enough to decide whether to run a mutation again: one name too many costs a run. Whether
two pods get the same decision depends on whole paths, and whether a match condition can fail on the
fields that are sure to exist; both are analyses of their own.
"""

from collections.abc import Iterable, Iterator

from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.engine.model.functions import METHODS
from policyd.engine.objects.workloads import EACH, KINDS

EVERYTHING = frozenset({"*"})
"""Looks at so much that any change may matter."""

_ELSEWHERE = frozenset(("maker", "variables", "request", "namespaceObject", "oldObject", "params"))
"""Variables that no mutation changes; `variables` are looked at by themselves."""

_ON_THE_WAY = frozenset(
    {"spec", "metadata", "containers", "initContainers", "object"}
    | {step for kind in KINDS for place in kind.places for step in place.path if step != EACH}
)
"""Fields that hold more than one thing that a mutation can change."""


def reads_of(sources: Iterable[str]) -> frozenset[str]:
    """Return the names of the fields that expressions look at, or EVERYTHING.

    The expressions must be ones that compile.
    """
    names: set[str] = set()
    for source in sources:
        if not _gather(parse(source), names, whole=True):
            return EVERYTHING
    return frozenset(names)


def _gather(node: ast.ExpressionNode, names: set[str], *, whole: bool) -> bool:
    """Add the fields that `node` reads; False if it may read any field.

    `whole` tells that the value itself is used, and not only something in it.
    """
    found = selected(node)
    if found is not None:
        return _gather_field(*found, names, whole=whole)
    match node:
        case ast.Identifier(name=name):
            return not whole or name in _ELSEWHERE
        case ast.Index(operand=inner, index=index):
            return _gather(index, names, whole=True) and _gather(inner, names, whole=whole)
        case ast.Call(function=function, target=ast.ExpressionNode() as receiver) if (
            function in METHODS
        ):
            names.update(METHODS[function].reads)
            return _gather_parts(node, receiver, names)
        case ast.Comprehension(range=looped):
            return _gather_parts(node, looped, names)
        case _:
            return _gather_parts(node, None, names)


def variables_in(source: str) -> set[str]:
    """Return the variables of a policy that an expression names; it must be one that compiles."""
    return fields_in(source, "variables") - {""}


def fields_in(source: str, variable: str) -> set[str]:
    """Return the fields of a variable that an expression selects, and "" for it as a whole.

    The expression must be one that compiles.
    """
    return set(_fields_in(parse(source), variable))


def _fields_in(node: ast.ExpressionNode, variable: str) -> Iterator[str]:
    match selected(node):
        case (ast.Identifier(name=name), field) if name == variable:
            yield field
        case _:
            if isinstance(node, ast.Identifier) and node.name == variable:
                yield ""
            for part in ast.children(node):
                yield from _fields_in(part, variable)


def selected(node: ast.ExpressionNode) -> tuple[ast.ExpressionNode, str] | None:
    """Return the operand and the field of a selection by name."""
    match node:
        case ast.Select(operand=operand, field=field) | ast.Has(operand=operand, field=field):
            return operand, field
        case ast.Index(operand=operand, index=ast.Literal(value=str() as field)):
            return operand, field
        case _:
            return None


def _gather_field(operand: ast.ExpressionNode, field: str, names: set[str], *, whole: bool) -> bool:
    names.add(field)
    if whole and field in _ON_THE_WAY:
        return False
    return _gather(operand, names, whole=False)


def _gather_parts(
    node: ast.ExpressionNode, looked_into: ast.ExpressionNode | None, names: set[str]
) -> bool:
    """Add the fields that the parts of a node read, all but one of which are used whole."""
    return all(_gather(part, names, whole=part is not looked_into) for part in ast.children(node))
