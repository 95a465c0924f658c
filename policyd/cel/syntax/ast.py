"""Define the syntax tree. Macros are nodes of their own, which the compiler turns into loops.

Nodes compare by identity, since two equal sub-expressions may have different types.
"""

from collections.abc import Callable
from typing import Any, Final
from typing import Literal as OneOf

from policyd.cel.syntax.record import Record


class ExpressionNode(Record):
    """A part of an expression; `position` is its offset in code points.

    As in cel-go, operators and calls stand where the operator or the opening parenthesis is.
    """

    position: int


class Literal(ExpressionNode):
    """A constant."""

    value: object


class Identifier(ExpressionNode):
    """A name; `absolute` with a leading dot, which skips local variables and the container."""

    name: str
    absolute: bool = False


class Select(ExpressionNode):
    """`operand.field`, or `operand.?field`."""

    operand: ExpressionNode
    field: str
    optional: bool = False


class Has(ExpressionNode):
    """`has(operand.field)`."""

    operand: ExpressionNode
    field: str


class Index(ExpressionNode):
    """`operand[index]`, or `operand[?index]`."""

    operand: ExpressionNode
    index: ExpressionNode
    optional: bool = False


class Call(ExpressionNode):
    """A function, a method (with a `target`), or an operator, named `_+_` as in cel-go."""

    function: str
    target: ExpressionNode | None
    arguments: tuple[ExpressionNode, ...]


class Logic(ExpressionNode):
    """A chain of `&&` (a conjunction) or of `||`."""

    conjunction: bool
    operands: list[ExpressionNode]


class Conditional(ExpressionNode):
    """`condition ? then : otherwise`."""

    condition: ExpressionNode
    then: ExpressionNode
    otherwise: ExpressionNode


class ListLiteral(ExpressionNode):
    """`[a, ?b]`; `optionals` holds the indices of elements with a question mark."""

    elements: tuple[ExpressionNode, ...]
    optionals: frozenset[int] = frozenset()


class MapEntry(ExpressionNode):
    """`key: value` of a map literal, or `?key: value`."""

    key: ExpressionNode
    value: ExpressionNode
    optional: bool


class MapLiteral(ExpressionNode):
    """`{key: value}`."""

    entries: tuple[MapEntry, ...]


class Field(ExpressionNode):
    """`name: value` of a struct literal, or `?name: value`."""

    name: str
    value: ExpressionNode
    optional: bool


class StructLiteral(ExpressionNode):
    """`Name{field: value}`."""

    name: str
    fields: tuple[Field, ...]


MacroKind = OneOf[
    "all",
    "exists",
    "exists_one",
    "filter",
    "map",
    "transformList",
    "transformMap",
    "transformMapEntry",
]


class Comprehension(ExpressionNode):
    """A macro that loops over `range`, with one or two variables.

    `condition` is the filter of `map` and `transform…`, if there is one; `result` is the last
    argument.
    """

    kind: MacroKind
    range: ExpressionNode
    variables: tuple[str, ...]
    condition: ExpressionNode | None
    result: ExpressionNode


class Bind(ExpressionNode):
    """`cel.bind(name, value, body)`."""

    name: str
    value: ExpressionNode
    body: ExpressionNode


class OptionalMap(ExpressionNode):
    """`operand.optMap(name, body)`, or `optFlatMap` if `flat`."""

    operand: ExpressionNode
    name: str
    body: ExpressionNode
    flat: bool


class SortBy(ExpressionNode):
    """`operand.sortBy(name, key)`."""

    operand: ExpressionNode
    name: str
    key: ExpressionNode


def children(node: ExpressionNode) -> tuple[ExpressionNode, ...]:
    """Return the direct parts of `node`, in the order of the text."""
    parts = _PARTS.get(type(node))
    return parts(node) if parts else ()


_PARTS: Final[dict[type[ExpressionNode], Callable[[Any], tuple[ExpressionNode, ...]]]] = {
    Select: lambda node: (node.operand,),
    Has: lambda node: (node.operand,),
    Index: lambda node: (node.operand, node.index),
    Call: lambda node: ((node.target,) if node.target else ()) + node.arguments,
    Logic: lambda node: tuple(node.operands),
    Conditional: lambda node: (node.condition, node.then, node.otherwise),
    ListLiteral: lambda node: node.elements,
    MapLiteral: lambda node: tuple(part for e in node.entries for part in (e.key, e.value)),
    StructLiteral: lambda node: tuple(field.value for field in node.fields),
    Comprehension: lambda node: tuple(
        part for part in (node.range, node.condition, node.result) if part
    ),
    Bind: lambda node: (node.value, node.body),
    OptionalMap: lambda node: (node.operand, node.body),
    SortBy: lambda node: (node.operand, node.key),
}


def is_deeper(tree: ExpressionNode, limit: int) -> bool:
    """Tell whether a tree has more levels than `limit`; a chain like `a.b.c` has three."""
    level: tuple[ExpressionNode, ...] = (tree,)
    for _ in range(limit + 1):
        level = tuple(part for node in level for part in children(node))
        if not level:
            return False
    return True


def qualified_name(node: ExpressionNode) -> tuple[str, ...] | None:
    """Return the parts of `a.b.c`, or None if `node` is something else."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.optional:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Identifier):
        return None
    parts.append(node.name)
    return tuple(reversed(parts))
