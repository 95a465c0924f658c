"""Represent lines of generated source, with their positions in the expression."""

from typing import Any, NamedTuple

from policyd.cel.syntax.record import Record


class Probe(NamedTuple):
    """The container and the key that a line selects, by names of local variables, for errors.

    `key` is the selected field itself, or the name of the variable that holds it.
    """

    container: str
    key: str
    key_is_variable: bool = False


class SourceLine:
    """A line of the generated source; an empty `text` is left out."""

    __slots__ = ("indent", "position", "probe", "text")

    def __init__(
        self, indent: int, text: str, position: int | None = None, probe: Probe | None = None
    ) -> None:
        self.indent = indent
        self.text = text
        self.position = position
        self.probe = probe


class Block(Record):
    """A block of lines: the first line charges the constant part of its cost and work."""

    line: SourceLine
    cost: int = 0
    work: int = 0


class Generated(Record):
    """The source of the function `cel`, its constants, and the purpose of each line."""

    source: str
    constants: dict[str, Any]
    lines: list[SourceLine]
    roots: frozenset[str]
