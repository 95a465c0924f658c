"""Hold the known properties of values while the cost of an expression is estimated."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Any, Final

from policyd.cel.check.checked import CheckedExpression
from policyd.cel.environment import Environment
from policyd.cel.estimate.estimates import Sized
from policyd.cel.estimate.spans import ANY, NOTHING, ONE, Span
from policyd.cel.syntax import ast
from policyd.cel.types import DYN, Type

Path = tuple[str, ...]
"""The path of a value: a variable, then fields, `@items`, `@keys` or `@values`."""
SizeOf = Callable[[Path, Type], Span | None]
"""Tells the size of a string, list or map by its path; None if it does not know."""


def unknown_sizes(_path: Path, _kind: Type) -> Span | None:
    """Know no size."""
    return None


_SCALARS: Final = frozenset(
    ("bool", "double", "int", "uint", "google.protobuf.Duration", "google.protobuf.Timestamp")
)
_UNSELECTED: Final = frozenset(("dyn", "optional_type", "*error*"))


@dataclass(frozen=True, slots=True)
class KnownValue:
    """The known facts of a value: its path, its size, and the size of its elements."""

    path: Path = ()
    size: Span | None = None
    key: Span | None = None
    element: Span | None = None


NOTHING_KNOWN: Final = KnownValue()


Rule = Callable[["Estimation", Any], Span]
"""Returns the estimated cost of a node of its kind."""


class Estimation:
    """Walks one tree, and keeps the known facts of its values."""

    def __init__(
        self,
        checked: CheckedExpression,
        environment: Environment,
        sizes: SizeOf,
        rules: Mapping[type[ast.ExpressionNode], Rule],
    ) -> None:
        """Begin an estimation; `rules` has the rule for each kind of node."""
        self.rules = rules
        self.checked = checked
        self.environment = environment
        self.sizes = sizes
        self.known: dict[ast.ExpressionNode, KnownValue] = {}
        self.scope: dict[str, KnownValue] = {}

    def cost(self, node: ast.ExpressionNode) -> Span:
        """Return the estimated cost of a node; remember the known facts of its value."""
        return self.rules[type(node)](self, node)

    def kind(self, node: ast.ExpressionNode) -> Type:
        """Return the type of a node."""
        return self.checked.types.get(node, DYN)

    def known_of(self, node: ast.ExpressionNode) -> KnownValue:
        """Return the known facts of a node's value."""
        return self.known.get(node, NOTHING_KNOWN)

    def learn(self, node: ast.ExpressionNode, known: KnownValue) -> None:
        """Remember known facts, and those that follow from the type and the path."""
        kind = self.kind(node)
        size = known.size or self.sizes(known.path, kind)
        if size is None and _is_scalar(kind):
            size = ONE
        self.known[node] = KnownValue(known.path, size, known.key, known.element)

    def size(self, node: ast.ExpressionNode) -> Span:
        """Return the size of a node's value."""
        return self.known_of(node).size or ANY

    def sized(self, node: ast.ExpressionNode) -> Sized:
        """Describe a node as an argument."""
        kind, known = self.kind(node), self.known_of(node)
        element = None
        if kind.parameters:
            element = self.sizes((*known.path, "@items"), kind.parameters[0])
        literal = (node.value,) if isinstance(node, ast.Literal) else ()
        return Sized(kind, known.size or ANY, element or ANY, literal)

    # --- names

    def variable(self, name: str, fields: tuple[str, ...]) -> tuple[Span, Path]:
        """Return the cost of selecting fields from a variable, and the path to the last."""
        price, kind = ONE, self.environment.variables.get(name, DYN)
        for field in fields:
            price += selection(kind)
            kind = self.field(kind, field)
        return price, (name, *fields)

    def field(self, kind: Type, name: str) -> Type:
        """Return the type of a field."""
        if kind.name == "map":
            return kind.parameters[1]
        return self.environment.field_type(kind.name, name) or DYN

    @contextmanager
    def bound(self, variables: dict[str, KnownValue]) -> Iterator[None]:
        """Bind names to local variables for a while."""
        before = self.scope
        self.scope = {**before, **variables}
        yield
        self.scope = before

    def joined(self, parts: tuple[ast.ExpressionNode, ...]) -> Span | None:
        """Return the size of elements that come from all of `parts`, if all are known."""
        elements = [self.known_of(part).element for part in parts]
        return None if None in elements else reduce(or_, (e for e in elements if e is not None))


def _is_scalar(kind: Type) -> bool:
    if kind.name == "optional_type":
        return _is_scalar(kind.parameters[0])
    return kind.name in _SCALARS


def selection(kind: Type) -> Span:
    """Return the cost of selecting a field: nothing if the operand is unknown."""
    return NOTHING if kind.name in _UNSELECTED else ONE
