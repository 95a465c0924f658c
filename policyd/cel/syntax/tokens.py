"""Read the tokens of an expression in order, and collect syntax errors."""

from collections.abc import Callable
from typing import Final, NoReturn

from policyd.cel.errors import MAX_ISSUES, Issue, issue_at
from policyd.cel.syntax.lexer import Token, tokenize

MAX_CODE_POINTS: Final = 100_000
"""Length of the longest expression cel-go reads."""


_OPENINGS: Final = frozenset("([{.!-")
_HINTS: Final = {
    word: f"did you mean `{operator}`?"
    for word, operator in (("and", "&&"), ("or", "||"), ("not", "!"))
}
"""The operators of CEL for words of other languages."""


class UnexpectedError(Exception):
    """The text cannot go on like this; the issue is recorded already."""


class Tokens:
    """Reads tokens, and collects issues.

    Attributes:
        readable: Whether there are tokens at all.
        issues: The errors so far.
        place: How many tokens have been read.
        closing: The brackets that must still come, the innermost last.
    """

    def __init__(self, source: str) -> None:
        """Cut `source` into tokens."""
        self._source = source
        self.issues: list[Issue] = []
        self.place = 0
        self.closing: list[str] = []
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

    @property
    def following(self) -> Token:
        """The token after the current one."""
        return self._tokens[min(self.place + 1, len(self._tokens) - 1)]

    def at(self, text: str) -> bool:
        """Tell whether the current token is this operator."""
        token = self._tokens[self.place]
        return token.text == text and token.kind == "operator"

    def accept(self, text: str) -> bool:
        """Go on if the current token is this operator."""
        found = self.at(text)
        self.place += found
        return found

    def expect(self, text: str, *, or_comma: bool = False) -> int:
        """Go on behind this operator, and return its position.

        If only one token too many, or this one, is between here and the text that follows, the
        mistake is reported, and reading goes on.
        """
        token = self.current
        if self.accept(text):
            return token.position
        wanted = f"{{'{text}', ','}}" if or_comma else f"'{text}'"
        following = self.following
        if token.kind != "end" and following.text == text and following.kind == "operator":
            self.place += 2
            self._unwanted(token, wanted)
            return following.position
        goes_on = begins_operand(token) if text == ":" else self._closes_outer(token)
        if or_comma or not goes_on:
            self.unexpected(wanted)
        self.issue(token.position, f"Syntax error: missing '{text}' at '{token.text}'")
        return token.position

    def _closes_outer(self, token: Token) -> bool:
        """Tell whether a token closes the brackets around the innermost ones."""
        if len(self.closing) < 2:
            return bool(self.closing) and token.kind == "end"
        return token.kind == "operator" and token.text == self.closing[-2]

    def skip_unwanted(self, wanted: str, fits: Callable[[Token], bool]) -> None:
        """Report the current token, and go on with the next one if that fits.

        Raises:
            UnexpectedError: If it does not.
        """
        if self.current.kind == "end" or not fits(self.following):
            self.unexpected(wanted)
        self.place += 1
        self._unwanted(self._tokens[self.place - 1], wanted)

    def _unwanted(self, token: Token, wanted: str) -> None:
        message = f"Syntax error: extraneous input '{token.text}' expecting {wanted}"
        self.issue(token.position, message, _HINTS.get(token.text))

    def issue(self, position: int, message: str, hint: str | None = None) -> None:
        """Report an issue at a position."""
        if len(self.issues) < MAX_ISSUES:
            self.issues.append(issue_at(self._source, position, message, hint))

    def unexpected(self, wanted: str, *, extraneous: bool = False) -> NoReturn:
        """Report the current token, and give up the part being read."""
        token = self.current
        word = "extraneous" if extraneous else "mismatched"
        message = f"Syntax error: {word} input '{token.text}' expecting {wanted}"
        self.issue(token.position, message, _HINTS.get(token.text))
        raise UnexpectedError

    def not_viable(self, start: int) -> NoReturn:
        """Report the text from `start` to the current token, and give up the part being read."""
        token = self.current
        end = token.position if token.kind == "end" else token.position + len(token.text)
        shown = self._source[start:end].rstrip()
        self.issue(token.position, f"Syntax error: no viable alternative at input '{shown}'")
        raise UnexpectedError

    def behind_logical_operator(self) -> bool:
        """Go behind the next `&&` or `||`; tell whether there is one."""
        while self.current.kind != "end":
            self.place += 1
            if self._tokens[self.place - 1].text in ("&&", "||"):
                return True
        return False

    def skip_to(self, *ends: str) -> None:
        """Go to the first of these operators that is in no brackets.

        Raises:
            UnexpectedError: If there is none.
        """
        level = 0
        while self.current.kind != "end":
            text = self.current.text if self.current.kind == "operator" else ""
            if level == 0 and text in ends:
                return
            level = max(0, level + (text in ("(", "[", "{")) - (text in (")", "]", "}")))
            self.place += 1
        raise UnexpectedError


def begins_operand(token: Token) -> bool:
    """Tell whether an operand may begin with a token."""
    if token.kind == "operator":
        return token.text in _OPENINGS
    return token.kind in ("number", "literal") or (token.kind == "name" and token.text != "in")
