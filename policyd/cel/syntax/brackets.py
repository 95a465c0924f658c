"""Read what is between brackets, and come back to the closing one after a mistake."""

from collections.abc import Callable
from typing import TypeVar

from policyd.cel.syntax import ast
from policyd.cel.syntax.nesting import Nesting
from policyd.cel.syntax.tokens import Tokens, UnexpectedError

T = TypeVar("T")


class Brackets:
    """Reads elements and groups; each mistake in them is reported by itself."""

    def __init__(self, tokens: Tokens, nesting: Nesting) -> None:
        self._tokens = tokens
        self._nesting = nesting

    def enclosed(self, close: str, read: Callable[[], ast.ExpressionNode]) -> ast.ExpressionNode:
        """Read one expression, and the bracket behind it."""
        tokens, state = self._tokens, self._nesting.state()
        position = tokens.current.position
        tokens.closing.append(close)
        try:
            tree = read()
            tokens.expect(close)
        except UnexpectedError:
            self._nesting.restore(state)
            tokens.skip_to(close)
            tokens.expect(close)
            tree = ast.Literal(position, None)
        finally:
            tokens.closing.pop()
        return tree

    def elements(self, close: str, read: Callable[[], T], *, trailing: bool = True) -> list[T]:
        """Read elements with commas between them, and the bracket behind them.

        Args:
            close: The bracket.
            read: Reads one element.
            trailing: Whether a comma may stand behind the last element.
        """
        tokens = self._tokens
        if trailing and tokens.at(",") and tokens.following.text == close:
            tokens.place += 1
        if tokens.accept(close):
            return []
        tokens.closing.append(close)
        try:
            return self._some(close, read, trailing=trailing)
        finally:
            tokens.closing.pop()

    def _some(self, close: str, read: Callable[[], T], *, trailing: bool) -> list[T]:
        tokens, state = self._tokens, self._nesting.state()
        found: list[T] = []
        while True:
            try:
                found.append(read())
                if not tokens.at(","):
                    tokens.expect(close, or_comma=trailing)
                    return found
            except UnexpectedError:
                self._nesting.restore(state)
                tokens.skip_to(",", close)
            if not tokens.accept(",") or (trailing and tokens.at(close)):
                tokens.expect(close)
                return found
