"""The tokens of an expression one after the other, and what is wrong with them."""

from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

from policyd.cel.errors import MAX_ISSUES, Issue, issue_at
from policyd.cel.lexer import Token, tokenize

MAX_DEPTH: Final = 250
"""Levels of nesting cel-go allows."""
MAX_CODE_POINTS: Final = 100_000
"""Length of the longest expression cel-go reads."""

T = TypeVar("T")


class UnexpectedError(Exception):
    """The text cannot go on like this; the issue is recorded already."""


class Tokens:
    """Reads tokens, and collects issues.

    Attributes:
        readable: Whether there are tokens at all.
        issues: What is wrong so far.
        place: How many tokens have been read.
    """

    def __init__(self, source: str) -> None:
        """Cut `source` into tokens."""
        self._source = source
        self.issues: list[Issue] = []
        self.place = 0
        self._tokens: list[Token] = []
        self.readable = self._can_be_read()
        if self.readable:
            self._tokens = tokenize(source, self.issue)

    def _can_be_read(self) -> bool:
        """Tell whether the text can be read at all, and report why not."""
        size = len(self._source)
        if size > MAX_CODE_POINTS:
            wrong = f"size: {size}, limit: {MAX_CODE_POINTS}"
            self.issue(0, f"expression code point size exceeds limit: {wrong}")
        elif any("\ud800" <= character <= "\udfff" for character in self._source):
            self.issue(0, "Syntax error: the expression is not valid unicode")
        return not self.issues

    @property
    def current(self) -> Token:
        """The token to be read next."""
        return self._tokens[self.place]

    def at(self, text: str) -> bool:
        """Tell whether the current token is this operator."""
        token = self._tokens[self.place]
        return token.text == text and token.kind == "operator"

    def accept(self, text: str) -> bool:
        """Go on if the current token is this operator."""
        found = self.at(text)
        self.place += found
        return found

    def expect(self, text: str) -> int:
        """Go on behind this operator, and return its position."""
        position = self.current.position
        if not self.accept(text):
            self.unexpected(f"'{text}'")
        return position

    def issue(self, position: int, message: str, hint: str | None = None) -> None:
        """Report what is wrong at a position."""
        if len(self.issues) < MAX_ISSUES:
            self.issues.append(issue_at(self._source, position, message, hint))

    def unexpected(self, wanted: str) -> NoReturn:
        """Report the current token, and give up the part being read."""
        token = self.current
        word = "extraneous" if wanted == "<EOF>" else "mismatched"
        message = f"Syntax error: {word} input '{token.text}' expecting {wanted}"
        self.issue(token.position, message)
        raise UnexpectedError

    def recover(self, read: Callable[[], T]) -> T | None:
        """Read a part; None if it has a mistake."""
        try:
            return read()
        except UnexpectedError:
            return None
        except RecursionError:
            message = f"expression recursion limit exceeded: {MAX_DEPTH}"
            self.issue(self.current.position, message)
            self.place = len(self._tokens) - 1
            return None

    def behind_logical_operator(self) -> bool:
        """Go behind the next `&&` or `||`; tell whether there is one."""
        while self.current.kind != "end":
            self.place += 1
            if self._tokens[self.place - 1].text in ("&&", "||"):
                return True
        return False

    def skip_element(self, close: str) -> None:
        """Go to the comma or the bracket that ends an element with a mistake in it."""
        level = 0
        while self.current.kind != "end":
            text = self.current.text if self.current.kind == "operator" else ""
            if level == 0 and text in (",", close):
                return
            level = max(0, level + (text in ("(", "[", "{")) - (text in (")", "]", "}")))
            self.place += 1
        raise UnexpectedError
