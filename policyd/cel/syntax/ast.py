"""The tree the parser makes. Macros stay what they are: the compiler turns them into loops.

Nodes compare by identity, since two equal sub-expressions may have different types.
"""

from collections.abc import Callable
from typing import Any, Final
from typing import Literal as OneOf

from policyd.cel.syntax.record import Record


class Node(Record):
    """A part of an expression; `position` is its offset in code points.

    As in cel-go, operators and calls stand where the operator or the opening parenthesis is.
    """

    position: int


class Literal(Node):
    """A constant."""

    value: object


class Identifier(Node):
    """A name; `absolute` with a leading dot, which skips local variables and the container."""

    name: str
    absolute: bool = False


class Select(Node):
    """`operand.field`, or `operand.?field`."""

    operand: Node
    field: str
    optional: bool = False


class Has(Node):
    """`has(operand.field)`."""

    operand: Node
    field: str


class Index(Node):
    """`operand[index]`, or `operand[?index]`."""

    operand: Node
    index: Node
    optional: bool = False


class Call(Node):
    """A function, a method (with a `target`), or an operator, named `_+_` as in cel-go."""

    function: str
    target: Node | None
    arguments: tuple[Node, ...]


class Logic(Node):
    """A chain of `&&` (a conjunction) or of `||`."""

    conjunction: bool
    operands: list[Node]


class Conditional(Node):
    """`condition ? then : otherwise`."""

    condition: Node
    then: Node
    otherwise: Node


class ListLiteral(Node):
    """`[a, ?b]`; `optionals` holds the indices of elements with a question mark."""

    elements: tuple[Node, ...]
    optionals: frozenset[int] = frozenset()


class Entry(Node):
    """`key: value` of a map literal, or `?key: value`."""

    key: Node
    value: Node
    optional: bool


class MapLiteral(Node):
    """`{key: value}`."""

    entries: tuple[Entry, ...]


class Field(Node):
    """`name: value` of a struct literal, or `?name: value`."""

    name: str
    value: Node
    optional: bool


class StructLiteral(Node):
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


class Comprehension(Node):
    """A macro that loops over `range`, with one or two variables.

    `condition` is the filter of `map` and `transform…`, if there is one; `result` is the last
    argument.
    """

    kind: MacroKind
    range: Node
    variables: tuple[str, ...]
    condition: Node | None
    result: Node


class Bind(Node):
    """`cel.bind(name, value, body)`."""

    name: str
    value: Node
    body: Node


class OptionalMap(Node):
    """`operand.optMap(name, body)`, or `optFlatMap` if `flat`."""

    operand: Node
    name: str
    body: Node
    flat: bool


class SortBy(Node):
    """`operand.sortBy(name, key)`."""

    operand: Node
    name: str
    key: Node


def children(node: Node) -> tuple[Node, ...]:
    """Return the direct parts of `node`, in the order of the text."""
    parts = _PARTS.get(type(node))
    return parts(node) if parts else ()


_PARTS: Final[dict[type[Node], Callable[[Any], tuple[Node, ...]]]] = {
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


def is_deeper(tree: Node, limit: int) -> bool:
    """Tell whether a tree has more levels than `limit`; a chain like `a.b.c` has three."""
    level: tuple[Node, ...] = (tree,)
    for _ in range(limit + 1):
        level = tuple(part for node in level for part in children(node))
        if not level:
            return False
    return True


def qualified_name(node: Node) -> tuple[str, ...] | None:
    """Return the parts of `a.b.c`, or None if `node` is something else."""
    parts: list[str] = []
    while isinstance(node, Select) and not node.optional:
        parts.append(node.field)
        node = node.operand
    if not isinstance(node, Identifier):
        return None
    parts.append(node.name)
    return tuple(reversed(parts))
