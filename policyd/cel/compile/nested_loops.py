"""Loops of nested loops while they are being written, and the values that change in them."""

from typing import NamedTuple

from policyd.cel.syntax import ast


class NestedLoop:
    """A loop, or the whole function.

    Attributes:
        parent: The loop around it.
        home: The loop in whose rounds what is looped over changes. If that is not the parent,
            rows of what is needed of each element are made there.
        element: The name of an element.
        row: Lines that need the element, and nothing else that changes.
        body: Lines that need more.
        counted: What a round costs besides, by names of `row`.
        fixed: What each round costs besides, by names from before the loop.
        is_in_place: Whether there are no rows, and all rounds are charged before the first.
    """

    def __init__(
        self, parent: "NestedLoop | None", home: "NestedLoop | None", element: str
    ) -> None:
        self.parent = parent
        self.home = home
        self.element = element
        self.row: list[str] = []
        self.body: list[str] = []
        self.counted: list[str] = []
        self.fixed: list[str] = []
        self.is_in_place = False

    def columns(self) -> str:
        """Return the names of `row` that `body` needs, or that of the element."""
        needed = {word for line in self.body for word in _words(line)}
        assigned = [self.element, *(line.partition(" = ")[0] for line in self.row)]
        return ", ".join(name for name in assigned if name in needed) or self.element

    @property
    def depth(self) -> int:
        """How many loops there are, down to this one."""
        return 1 + self.parent.depth if self.parent else 0


class NestedValue(NamedTuple):
    """A name or literal of the generated source, and the loop in whose rounds it changes."""

    code: str
    loop: NestedLoop
    literal: object = None


def _words(line: str) -> list[str]:
    return "".join(letter if letter.isalnum() else " " for letter in line).split()


def indented(lines: list[str]) -> list[str]:
    """Return lines one level deeper."""
    return [f" {line}" for line in lines]


def fields_of(node: ast.ExpressionNode, variable: str) -> tuple[str, ...] | None:
    """Return the fields that are selected from a variable; None if it is not that."""
    fields: tuple[str, ...] = ()
    while isinstance(node, ast.Select) and not node.optional:
        fields = (node.field, *fields)
        node = node.operand
    found = isinstance(node, ast.Identifier) and node.name == variable and not node.absolute
    return fields if found else None


def mentions(node: ast.ExpressionNode, variable: str) -> bool:
    """Tell whether a name stands anywhere in an expression."""
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, ast.Identifier) and part.name == variable:
            return True
        pending += ast.children(part)
    return False
