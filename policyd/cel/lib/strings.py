"""Strings: cel-go's extension, version 2, as the API server has it."""

from collections.abc import Callable
from typing import Final

from policyd.cel.cost import size_of, traversal, traverse, traverse_twice, visit
from policyd.cel.errors import CelError
from policyd.cel.estimate import estimates
from policyd.cel.functions import Overload, Size, function, method
from policyd.cel.types import INT, STRING, list_of
from policyd.cel.values import no_such_overload

_SPACE: Final = (
    " \t\n\v\f\r\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
# The backslash comes first: the others are written with it.
_QUOTED: Final = tuple(
    (character, f"\\{letter}")
    for character, letter in zip('\\\a\b\f\n\r\t\v"', '\\abfnrtv"', strict=True)
)


def _in_range(position: int, text: str) -> int:
    if 0 <= position <= len(text):
        return position
    raise CelError(f"index out of range: {position}")


def _char_at(text: str, position: int) -> str:
    position = _in_range(position, text)
    return text[position : position + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    return text.find(part, _in_range(start, text))


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return text.rfind(part)
    return text.rfind(part, 0, _in_range(start, text) + len(part))


def _search_work(text: str, part: str, *_start: int) -> int:
    """Return the work of looking for a part in each place: the cost sees the text alone."""
    return traversal(len(text)) * traversal(len(part)) // _LOOKS


def _bytewise(text: str, change: Callable[[bytes], bytes]) -> str:
    """Change ASCII characters only: no others have their bytes."""
    return change(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")


def _lower(text: str) -> str:
    return text.lower() if text.isascii() else _bytewise(text, bytes.lower)


def _upper(text: str) -> str:
    return text.upper() if text.isascii() else _bytewise(text, bytes.upper)


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    return text.replace(old, new, max(limit, -1))


def _replace_work(text: str, old: str, new: str, limit: int = -1) -> int:
    """Return the work of the inserted text: its size is not in the cost."""
    found = text.count(old) if old else len(text) + 1
    found = min(found, limit) if limit >= 0 else found
    return _search_work(text, old) + found + found * len(new) // _MADE


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)
    if limit < 0 or limit >= len(text):
        return list(text)
    return [*text[: limit - 1], text[limit - 1 :]]


def _split_work(text: str, separator: str, limit: int = -1) -> int:
    """Return how many strings are made."""
    made = text.count(separator) + 1 if separator else len(text)
    return _search_work(text, separator) + (min(made, limit) if limit >= 0 else made)


def _join(parts: list[str], separator: str = "") -> str:
    try:
        return separator.join(parts)
    except TypeError:
        raise no_such_overload("join", parts) from None


def _join_cost(parts: list[str], separator: str = "") -> int:
    size = sum(map(size_of, parts)) + len(separator) * max(0, len(parts) - 1)
    return traversal(2 * size)


def _parts_work(parts: list[str], _separator: str = "") -> int:
    return len(parts)


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is None:
        return text[_in_range(start, text) :]
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    return text[_in_range(start, text) : _in_range(end, text)]


def _trim(text: str) -> str:
    return text.strip(_SPACE)


def _reverse(text: str) -> str:
    return text[::-1]


def _quote_work(text: str) -> int:
    """Return the work where every character is escaped."""
    return len(text) // _MADE


def _quote(text: str) -> str:
    for character, escaped in _QUOTED:
        text = text.replace(character, escaped)
    return f'"{text}"'


# A search looks, at worst, at each character of the part in each place: so many of ten characters
# in ten places take about as long as an element.
_LOOKS: Final = 5
# Making characters takes no longer than looking at them, but they stay in memory.
_MADE: Final = 20
_ONCE = Size(cost=traverse)
_SPLIT = Size(cost=traverse_twice, work=_split_work, estimate=estimates.split)
_SEARCH = Size(cost=visit, work=_search_work)
_REPLACE = Size(cost=traverse_twice, work=_replace_work, estimate=estimates.replace)
_JOIN = Size(cost=_join_cost, work=_parts_work, estimate=estimates.join)
_QUOTE = Size(cost=traverse, work=_quote_work, estimate=estimates.quote)
_STRINGS = list_of(STRING)

STRINGS: tuple[Overload, ...] = (
    method("charAt", STRING, INT, returns=STRING, run=_char_at),
    method("indexOf", STRING, STRING, returns=INT, run=_index_of, size=_SEARCH),
    method("indexOf", STRING, STRING, INT, returns=INT, run=_index_of, size=_SEARCH),
    method("lastIndexOf", STRING, STRING, returns=INT, run=_last_index_of, size=_SEARCH),
    method("lastIndexOf", STRING, STRING, INT, returns=INT, run=_last_index_of, size=_SEARCH),
    method("lowerAscii", STRING, returns=STRING, run=_lower, size=_ONCE),
    method("upperAscii", STRING, returns=STRING, run=_upper, size=_ONCE),
    method("replace", STRING, STRING, STRING, returns=STRING, run=_replace, size=_REPLACE),
    method("replace", STRING, STRING, STRING, INT, returns=STRING, run=_replace, size=_REPLACE),
    method("split", STRING, STRING, returns=_STRINGS, run=_split, size=_SPLIT),
    method("split", STRING, STRING, INT, returns=_STRINGS, run=_split, size=_SPLIT),
    method("join", _STRINGS, returns=STRING, run=_join, size=_JOIN),
    method("join", _STRINGS, STRING, returns=STRING, run=_join, size=_JOIN),
    method("substring", STRING, INT, returns=STRING, run=_substring, size=_ONCE),
    method("substring", STRING, INT, INT, returns=STRING, run=_substring, size=_ONCE),
    method("trim", STRING, returns=STRING, run=_trim, size=_ONCE),
    function("strings.quote", STRING, returns=STRING, run=_quote, size=_QUOTE),
)
REVERSE: tuple[Overload, ...] = (
    method("reverse", STRING, returns=STRING, run=_reverse, size=_ONCE),
)
