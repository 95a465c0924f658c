"""Bound the work of compiling: characters, expressions, and instructions of patterns.

The author of a policy does not wait for it alone: while it is compiled, others wait. The allowance
is that of one document. It counts work and not seconds, so that a policy is used everywhere or
nowhere; where a caller waits, the time is checked, too.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

MOST_EXPRESSIONS: Final = 1_000
"""Expressions of one document."""

MOST_CHARACTERS: Final = 256 * 1024
"""Characters of all of them; one may have 100,000."""

MOST_INSTRUCTIONS: Final = 200_000
"""Instructions of the automata of all patterns: a pattern as people write them has some hundred."""

_HINT: Final = "take the policy apart into several"


@dataclass(slots=True)
class Allowance:
    """The part of the allowance that is left.

    Attributes:
        expressions: Expressions.
        characters: Characters of expressions.
        instructions: Instructions of patterns.
        out_of_time: Tells whether the caller's timeout has expired.
    """

    expressions: int = MOST_EXPRESSIONS
    characters: int = MOST_CHARACTERS
    instructions: int = MOST_INSTRUCTIONS
    out_of_time: Callable[[], bool] = lambda: False

    def take(self, source: str) -> None:
        """Charge for an expression before it is parsed."""
        self.expressions -= 1
        self.characters -= len(source)

    @property
    def exceeded(self) -> tuple[str, str] | None:
        """The bound that is exceeded, and a hint; None if everything is within bounds."""
        if self.expressions < 0:
            return f"more than {MOST_EXPRESSIONS:,} expressions in one document", _HINT
        if self.characters < 0:
            return f"expressions of more than {MOST_CHARACTERS:,} characters together", _HINT
        if self.instructions < 0:
            wrong = f"patterns of more than {MOST_INSTRUCTIONS:,} instructions together"
            return wrong, "repeat less: each `{n}` stands for n copies of what it repeats"
        if self.out_of_time():
            return "compiling the document takes too long", _HINT
        return None


_CURRENT: ContextVar[Allowance | None] = ContextVar("allowance", default=None)


def current() -> Allowance | None:
    """Return the allowance of the current compilation; None if it has none."""
    return _CURRENT.get()


@contextmanager
def within(allowance: Allowance) -> Iterator[Allowance]:
    """Compile within an allowance."""
    token = _CURRENT.set(allowance)
    try:
        yield allowance
    finally:
        _CURRENT.reset(token)
