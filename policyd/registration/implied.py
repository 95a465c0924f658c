"""Labels that an object must have, or have had, for a match condition to hold of it.

A selector of labels costs the API server next to nothing, where a condition costs half a
millisecond. So a condition that asks for a label is narrowed by a selector as well.
"""

from collections.abc import Iterable
from typing import Final

from policyd.api.admission import Rule
from policyd.api.selectors import Requirement
from policyd.cel.syntax import ast
from policyd.cel.syntax.parser import parse
from policyd.registration.requirements import Requirements

_OBJECTS: Final = frozenset({"object", "oldObject"})


def implied_labels(expressions: Iterable[str], rule: Rule) -> Requirements:
    """Return a label that there is, before or after, where all conditions hold; empty if none.

    One at most: a selector asks for all that it names of one object, either the old or the new one.

    Args:
        expressions: CEL that compiles, and that is asked of the request as a whole.
        rule: The requests that they are asked about.
    """
    keys = frozenset().union(*(_keys(parse(text), rule) for text in expressions))
    return frozenset(Requirement(key=key, operator="Exists") for key in sorted(keys)[:1])


def _keys(node: ast.ExpressionNode, rule: Rule) -> frozenset[str]:
    match node:
        case ast.Logic(conjunction=True, operands=operands):
            return frozenset().union(*(_keys(each, rule) for each in operands))
        case ast.Logic(operands=operands):
            left = [each for each in operands if not _never(each, rule)]
            found = [_keys(each, rule) for each in left]
            return frozenset.intersection(*found) if found else frozenset()
        case ast.Call(function="_!=_", arguments=(value, ast.Literal(value=""))):
            return _key(value)
        case _:
            return frozenset()


def _never(node: ast.ExpressionNode, rule: Rule) -> bool:
    """Tell whether a node is true of no request of the rule: by its operation, or its resource."""
    match node:
        case ast.Logic(conjunction=True, operands=operands):
            return any(_never(each, rule) for each in operands)
        case ast.Call(
            function="_==_",
            arguments=(
                ast.Select(operand=ast.Identifier(name="request"), field="operation"),
                ast.Literal(value=str() as operation),
            ),
        ):
            return operation not in rule.operations and "*" not in rule.operations
        case ast.Call(
            function="_!=_",
            arguments=(
                ast.Select(
                    operand=ast.Select(operand=ast.Identifier(name="request"), field="resource"),
                    field="resource",
                ),
                ast.Literal(value=str() as resource),
            ),
        ):
            return set(rule.resources) == {resource}
        case _:
            return False


def _key(node: ast.ExpressionNode) -> frozenset[str]:
    """Return the label that `object.metadata.?labels[?'key'].orValue('')` is the value of."""
    match node:
        case ast.Call(
            function="orValue",
            target=ast.Index(
                operand=ast.Select(
                    operand=ast.Select(operand=ast.Identifier(name=name), field="metadata"),
                    field="labels",
                ),
                index=ast.Literal(value=str() as key),
            ),
            arguments=(ast.Literal(value=""),),
        ) if name in _OBJECTS:
            return frozenset({key})
        case _:
            return frozenset()
