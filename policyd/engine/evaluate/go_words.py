"""Errors of expressions in cel-go's words: a refusal begins as the API server's own does.

Our own say more, such as the types of what a function was called with.
"""

import re
from typing import Final

_NUMBERS: Final = frozenset({"int", "uint", "double"})
_TIMES: Final = frozenset({"google.protobuf.Duration", "google.protobuf.Timestamp"})
_TEXTS: Final = frozenset({"string", "bytes"})

_TAKEN: Final = {
    "_+_": _NUMBERS | _TEXTS | _TIMES | {"list"},
    "_-_": _NUMBERS | _TIMES | {"string"},
    **dict.fromkeys(("_*_", "_/_"), _NUMBERS | {"string"}),
    "_%_": frozenset({"int", "uint", "string"}),
    **dict.fromkeys(("_<_", "_<=_", "_>_", "_>=_"), _NUMBERS | _TEXTS | _TIMES | {"bool"}),
    "-_": frozenset({"string", "bool"}),
    "sort": frozenset({"string"}),
    **dict.fromkeys(("size", "_[_]"), frozenset()),
}
"""What cel-go hands to its type on the left, which knows nothing of the function's name."""

_NAMELESS: Final = frozenset(
    {"@in", "optional", "contains", "startsWith", "endsWith", "matches", "find", "findAll"}
)
"""What fails without a name, whatever it is called with."""


def _overload(found: re.Match[str]) -> str:
    name, types = found.groups()
    if name in _NAMELESS or types.partition(",")[0] in _TAKEN.get(name, ()):
        return "no such overload"
    shown = name if name in _TAKEN else f"{name}({types})"
    return f"no such overload: {shown}"


_CONVERSION: Final = r"type conversion error from 'string' to "
_RULES: Final = (
    (re.compile(r"no such overload: (\S+) applied to '\(([^']*)\)'"), _overload),
    (re.compile(r"no such overload: expected \w+, found \w+"), "no such overload"),
    (re.compile(r"no such overload: \S+ has no field '([^']*)'"), r"no such key: \1"),
    (re.compile(rf"({_CONVERSION}'\w+'): '[^']*'"), r"\1"),
    (re.compile(r"time: invalid duration '[^']*'"), f"{_CONVERSION}'google.protobuf.Duration'"),
    (re.compile(r"invalid timestamp '[^']*'"), f"{_CONVERSION}'google.protobuf.Timestamp'"),
)


def in_go_words(message: str) -> str:
    """Say an error of an expression as cel-go does."""
    for pattern, words in _RULES:
        message = pattern.sub(words, message)
    return message
