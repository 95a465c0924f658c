"""Define the errors of CEL: issues of compilation, and errors of evaluation."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from policyd.errors import PolicydError

MAX_ISSUES: Final = 20
"""Issues reported of one expression, at most."""
# The text of an error may quote an object, and a longer one is not readable.
_LONGEST: Final = 4_096
# A line of an expression longer than this is cut in messages: the caret says where to look.
_SHOWN = 200


class CelError(PolicydError):
    """An expression failed while it was evaluated.

    Attributes:
        message: The error, in cel-go's words.
        position: Offset in the expression, in code points; None until it is known.
        line: Line of the expression, from 1; 0 while it is unknown.
        column: Column of the line, from 1; 0 while it is unknown.
    """

    def __init__(self, message: str, *, position: int | None = None) -> None:
        message = message if len(message) <= _LONGEST else f"{message[:_LONGEST]}..."
        super().__init__(message)
        self.message = message
        self.position = position
        self.line = 0
        self.column = 0


class CelCostError(CelError):
    """An expression, or all expressions of a policy, exceeded the cost limit."""


class CelTimeError(CelCostError):
    """The caller's timeout is about to expire."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: not decided in time")


class CelInternalError(CelError):
    """A bug in policyd, or an object no JSON decoder makes, met while evaluating.

    It is never absorbed by `&&` or `||`: nothing may be decided from it.
    """


class Issue(NamedTuple):
    """One thing wrong with an expression; line and column count from 1."""

    line: int
    column: int
    message: str
    hint: str | None = None
    source_line: str = ""

    def __str__(self) -> str:
        shown, column = _window(self.source_line, self.column)
        text = f"ERROR: <input>:{self.line}:{self.column}: {self.message}"
        return f"{text}\n | {shown}\n | {'.' * (column - 1)}^"


class CelCompileError(PolicydError):
    """An expression cannot be compiled; each issue says where and why."""

    def __init__(self, issues: Iterable[Issue]) -> None:
        self.issues = tuple(issues)
        hint = next((issue.hint for issue in self.issues if issue.hint), None)
        super().__init__("\n".join(map(str, self.issues)), hint=hint)


class TooMuchError(CelCompileError):
    """A document has more than compiling it may take: nothing more of it is looked at."""


def locate(source: str, position: int) -> tuple[int, int]:
    """Return line and column, from 1, of an offset in `source`."""
    line = source.count("\n", 0, position) + 1
    return line, position - source.rfind("\n", 0, position)


def issue_at(source: str, position: int, message: str, hint: str | None = None) -> Issue:
    """Make an issue at an offset in `source`."""
    line, column = locate(source, position)
    end = source.find("\n", position)
    start = position - column + 1
    return Issue(line, column, message, hint, source[start : len(source) if end < 0 else end])


def _window(line: str, column: int) -> tuple[str, int]:
    """Return the part of a long line around `column`, and the column in it."""
    start = max(0, column - _SHOWN // 2) if len(line) > _SHOWN else 0
    return line[start : start + _SHOWN], column - start
