"""Label queries: the string form of selectors, as clients of the API send it.

The grammar and the error messages are those of the API server's own parser.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from policyd.api.names import label_key_problems, label_value_problems
from policyd.api.selectors import Operator, Requirement
from policyd.errors import PolicydError

_TOKEN: Final = re.compile(r"\s*(==|!=|[=!<>(),]|[^\s=!<>(),]+)")
_WORD: Final = re.compile(r"[^=!<>(),]+")
_OPERATORS: Final[dict[str, Operator]] = {
    "=": "In",
    "==": "In",
    "in": "In",
    "!=": "NotIn",
    "notin": "NotIn",
}
_COMPARISONS: Final = (">", "<")
_BINARY: Final = "in, notin, =, ==, !=, gt, lt"
_END: Final = ""


class SelectorError(PolicydError):
    """A label query cannot be read."""


class LabelComparison(NamedTuple):
    """A label that must be a number, greater or less than another."""

    key: str
    operator: Literal[">", "<"]
    limit: int

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` meet this requirement; a value that is not a number never does."""
        try:
            number = int(labels[self.key])
        except (KeyError, ValueError):
            return False
        return number > self.limit if self.operator == ">" else number < self.limit


class Query(NamedTuple):
    """A client's query: all requirements must be met; none match everything."""

    requirements: tuple[Requirement | LabelComparison, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` meet every requirement."""
        return all(requirement.matches(labels) for requirement in self.requirements)


def parse_query(text: str) -> Query:
    """Read a query such as `app=web,tier in (a, b),!legacy,rank>1`.

    Raises:
        SelectorError: If it is none.
    """
    return Query(tuple(_Parser(text).requirements()))


class _Parser:
    """Reads a query token by token; the end is an empty one."""

    def __init__(self, text: str) -> None:
        self._tokens: list[str] = [*_TOKEN.findall(text), _END]
        self._at = 0

    def requirements(self) -> Iterator[Requirement | LabelComparison]:
        """Yield the requirements, one after the other."""
        if self._next == _END:
            return
        if not (_is_word(self._next) or self._next == "!"):
            raise self._unexpected("!, identifier, or 'end of string'")
        while True:
            try:
                yield self._requirement()
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from error
            if self._next == _END:
                return
            if self._next != ",":
                raise self._unexpected("',' or 'end of string'")
            self._take()
            if not (_is_word(self._next) or self._next == "!"):
                raise self._unexpected("identifier after ','")

    @property
    def _next(self) -> str:
        return self._tokens[self._at]

    def _take(self) -> str:
        token = self._next
        self._at += token != _END
        return token

    def _unexpected(self, expected: str) -> SelectorError:
        return SelectorError(f"found '{self._next}', expected: {expected}")

    def _requirement(self) -> Requirement | LabelComparison:
        absent = self._next == "!"
        if absent:
            self._take()
        if not _is_word(self._next):
            raise self._unexpected("identifier")
        key = self._take()
        if problems := label_key_problems(key):
            raise _invalid("<nil>", key, "; ".join(problems))
        if absent or self._next in {_END, ","}:
            return Requirement(key=key, operator="DoesNotExist" if absent else "Exists")
        operator = self._next
        if operator not in _OPERATORS and operator not in _COMPARISONS:
            raise self._unexpected(_BINARY)
        self._take()
        values = self._values() if operator in {"in", "notin"} else [self._value()]
        return _requirement(key, operator, values)

    def _value(self) -> str:
        if self._next in {_END, ","}:
            return ""
        if not _is_word(self._next):
            raise self._unexpected("identifier")
        return self._take()

    def _values(self) -> list[str]:
        if self._next != "(":
            raise SelectorError(f"found '{self._next}' expected: '('")
        self._take()
        if not (_is_word(self._next) or self._next in {",", ")"}):
            raise self._unexpected("',', ')' or identifier")
        values = [self._listed()]
        while self._next == ",":
            self._take()
            values.append(self._listed())
        if self._next != ")":
            raise self._unexpected("',' or ')'")
        self._take()
        return sorted(set(values))

    def _listed(self) -> str:
        """Take one of several values, which may be empty."""
        if self._next in {",", ")"}:
            return ""
        if not _is_word(self._next):
            raise self._unexpected("',', or identifier")
        return self._take()


def _is_word(token: str) -> bool:
    return _WORD.fullmatch(token) is not None


def _requirement(key: str, operator: str, values: list[str]) -> Requirement | LabelComparison:
    for index, value in enumerate(values):
        if operator in _COMPARISONS and not re.fullmatch(r"[+-]?\d+", value):
            message = "for 'Gt', 'Lt' operators, the value must be an integer"
            raise _invalid(f"values[{index}]", value, message)
        if problems := label_value_problems(value):
            raise _invalid(f"values[{index}][{key}]", value, "; ".join(problems))
    match operator:
        case ">" | "<":
            return LabelComparison(key, operator, int(values[0]))
        case _:
            return Requirement(key=key, operator=_OPERATORS[operator], values=tuple(values))


def _invalid(path: str, value: str, message: str) -> SelectorError:
    return SelectorError(f"{path}: Invalid value: {msgspec.json.encode(value).decode()}: {message}")
