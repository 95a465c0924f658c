"""Regular expressions: RE2's syntax, in time linear in the text."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from policyd.cel import estimates
from policyd.cel.cost import search_pattern
from policyd.cel.errors import CelError
from policyd.cel.functions import Overload, Size, function, method
from policyd.cel.types import BOOL, INT, STRING, list_of

# One compiled pattern may take so much memory for its automaton; RE2 falls back beyond.
_MEMORY = 8 << 20
_CACHED = 1_024
_MATCH_WORK = 20


@lru_cache(maxsize=1)
def _options() -> tuple[Any, Any]:
    """Import RE2, which takes longer than the rest of the language, when it is first needed."""
    import re2  # noqa: PLC0415 - see above

    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    return re2, options


@lru_cache(maxsize=_CACHED)
def compiled(pattern: str) -> Any:  # noqa: ANN401 - re2 has no types
    """Compile a pattern.

    Raises:
        CelError: If it is no pattern of RE2.
    """
    re2, options = _options()
    try:
        return re2.compile(pattern, options=options)
    except (re2.error, UnicodeEncodeError) as error:
        raise CelError(f"error parsing regexp: {_reason(error)}: `{pattern[:100]}`") from None


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "invalid"
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


@lru_cache(maxsize=_CACHED)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tells whether a string contains the pattern.

    It calls the extension's object, without RE2's Python wrapper, which takes five times as long
    as the match itself; where a release has no such object, the wrapper serves.

    Raises:
        CelError: If it is no pattern of RE2.
    """
    expression = compiled(pattern)
    direct = _direct_match(pattern)
    if direct is None:
        return lambda text: expression.search(text) is not None
    return direct


def _direct_match(pattern: str) -> Callable[[str], bool] | None:
    re2, _ = _options()
    extension = getattr(re2, "_re2", None)
    if extension is None:
        return None
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MEMORY
    options.never_capture = True
    match = extension.RE2(pattern.encode(), options).Match
    anywhere = extension.RE2.Anchor.UNANCHORED

    def contains_match(text: str) -> bool:
        encoded = text.encode()
        return bool(match(anywhere, encoded, 0, len(encoded))[0][0] >= 0)

    return contains_match


def matches(text: str, pattern: str) -> bool:
    """Tell whether `text` contains a match of `pattern`."""
    return matcher(pattern)(text)


def _find(text: str, pattern: str) -> str:
    found = compiled(pattern).search(text)
    return str(found[0]) if found else ""


def _find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found: list[str] = []
    for match in compiled(pattern).finditer(text):
        if 0 <= limit <= len(found):
            break
        found.append(match[0])
    return found


def _find_all_work(text: str, pattern: str, limit: int = -1) -> int:
    """Return the work of a match in each place: the wrapper takes as long as for 20 elements."""
    del pattern
    places = len(text) + 1
    return _MATCH_WORK * (min(places, limit) if limit >= 0 else places)


_SEARCH = Size(cost=search_pattern)
_FIND = Size(cost=search_pattern, estimate=estimates.find)
_FIND_ALL = Size(cost=search_pattern, work=_find_all_work, estimate=estimates.find)
# The API server takes 1 for the function, and computes the cost of the method.
_MATCH = Size(work=search_pattern)

REGEX: tuple[Overload, ...] = (
    method("find", STRING, STRING, returns=STRING, run=_find, size=_FIND),
    method("findAll", STRING, STRING, returns=list_of(STRING), run=_find_all, size=_FIND_ALL),
    method("findAll", STRING, STRING, INT, returns=list_of(STRING), run=_find_all, size=_FIND_ALL),
)
MATCHES: tuple[Overload, ...] = (
    function("matches", STRING, STRING, returns=BOOL, run=matches, size=_MATCH),
    method("matches", STRING, STRING, returns=BOOL, run=matches, size=_SEARCH),
)
