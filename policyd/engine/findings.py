"""What is wrong with a file, and where: a finding is a sentence with a place and a hint."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

Severity = Literal["error", "warning"]


class Position(NamedTuple):
    """A place in a text; both count from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong.

    `field` is the path in the object (`spec.validations[0].expression`), for what was not read
    from a file. `excerpt` is the line of the source, for the caret.
    """

    source: str
    message: str
    line: int = 0
    column: int = 0
    field: str = ""
    hint: str | None = None
    severity: Severity = "error"
    excerpt: str = ""

    @property
    def place(self) -> str:
        """`file:line:column`, or what there is of it."""
        if self.line:
            return f"{self.source}:{self.line}:{self.column}"
        return f"{self.source}: {self.field}" if self.field else self.source

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


def field_path(path: tuple[str | int, ...]) -> str:
    """Write a path as users do: `spec.validations[0].expression`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


def caret_lines(finding: Finding) -> list[str]:
    """Draw the line of the source with a caret below the column; nothing if there is no line."""
    if not finding.excerpt:
        return []
    number = str(finding.line)
    # Tabs stay tabs, so that the caret stands where the terminal put the character.
    blank = "".join("\t" if c == "\t" else " " for c in finding.excerpt[: finding.column - 1])
    return [f"  {number} | {finding.excerpt}", f"  {' ' * len(number)} | {blank}^"]
