"""Regular expressions: RE2's syntax, in time linear in the length of the text."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from policyd.cel.compile.allowance import current
from policyd.cel.cost import Budget, search_pattern
from policyd.cel.errors import CelError
from policyd.cel.estimate import estimates
from policyd.cel.functions import Overload, Size, function, method
from policyd.cel.types import BOOL, INT, STRING, list_of

# One compiled pattern may take so much memory for its automaton; RE2 falls back beyond.
_MEMORY = 8 << 20
_COMPUTED_MEMORY = 1 << 20
_CACHED = 1_024
_CACHED_COMPUTED = 64
_LONGEST_COMPUTED = 1 << 16
# The work of RE2, in elements compared: for a call through Python, for a match in a list of
# matches, to compile anything, to compile an instruction, to find a pattern too large.
_CALL_WORK = 8
_MATCH_WORK = 20
_FIND_WORK = 40
_COMPILE_WORK = 250
_INSTRUCTION_WORK = 4
_REFUSAL_WORK = 50_000
# The work for a pattern that is found too large, in instructions of one that is not.
_REFUSED_INSTRUCTIONS = 20_000
STEPS_WORK = 30
"""Steps of an automaton that take as long as comparing an element.

RE2 takes one for each character of a text, at worst one for each instruction of the pattern, too.
"""


@lru_cache(maxsize=1)
def _re2() -> Any:  # noqa: ANN401 - re2 has no types
    """Import RE2, which takes longer than the rest of the language, when it is first needed."""
    import re2  # noqa: PLC0415 - see above

    return re2


def _options(memory: int) -> Any:  # noqa: ANN401 - re2 has no types
    options = _re2().Options()
    options.log_errors = False
    options.max_mem = memory
    return options


def compiled(pattern: str) -> Any:  # noqa: ANN401 - re2 has no types
    """Compile a pattern.

    Raises:
        CelError: If it is not a pattern of RE2, or one too many.
    """
    if _is_used_up():
        raise CelError("the patterns of the document are too large together")
    found = _constant(pattern)
    _take(found.instructions)
    return found.usable()


def _is_used_up() -> bool:
    """Tell whether no more patterns of the document that is being compiled are looked at."""
    allowance = current()
    return allowance is not None and allowance.instructions < 0


def _take(instructions: int) -> None:
    """Charge a pattern to the allowance, whether or not it is compiled already."""
    allowance = current()
    if allowance is not None:
        allowance.instructions -= instructions


class _Constant:
    """A constant pattern, or why it is none: finding that out may take as long."""

    __slots__ = ("error", "expression", "instructions")

    def __init__(self, pattern: str) -> None:
        self.error: CelError | None = None
        self.expression: Any = None
        try:
            self.expression = _compile(pattern, _MEMORY)
            self.instructions = int(self.expression.programsize)
        except CelError as error:
            self.error = error.with_traceback(None)
            self.instructions = _REFUSED_INSTRUCTIONS if "too large" in error.message else 0

    def usable(self) -> Any:  # noqa: ANN401 - re2 has no types
        """Return the pattern.

        Raises:
            CelError: If it is none.
        """
        if self.error is not None:
            raise CelError(self.error.message)
        return self.expression


_constant = lru_cache(maxsize=_CACHED)(_Constant)


def _compile(pattern: str, memory: int) -> Any:  # noqa: ANN401 - re2 has no types
    re2 = _re2()
    try:
        return re2.compile(pattern, options=_options(memory))
    except (re2.error, UnicodeEncodeError) as error:
        raise CelError(f"error parsing regexp: {_reason(error)}: `{pattern[:100]}`") from None


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "invalid"
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tells whether a string contains the pattern.

    It calls the extension's object, without RE2's Python wrapper, which takes five times as long
    as the match itself; where a release has no such object, the wrapper serves.

    Raises:
        CelError: If it is not a pattern of RE2, or one too many.
    """
    compiled(pattern)
    return _matcher(pattern)


@lru_cache(maxsize=_CACHED)
def _matcher(pattern: str) -> Callable[[str], bool]:
    expression = _constant(pattern).usable()
    return _direct_match(pattern, _MEMORY) or (lambda text: expression.search(text) is not None)


def _steps(pattern: str) -> int:
    r"""Return how many steps a character may take: instructions, were characters bytes.

    A class as \pL is hundreds of instructions for UTF-8, and one or two of them are taken.
    """
    options = _options(_MEMORY)
    options.encoding = options.Encoding.LATIN1
    try:
        return int(_re2().compile(pattern.encode(), options=options).programsize)
    except _re2().error:
        return int(compiled(pattern).programsize)


@lru_cache(maxsize=_CACHED)
def steps(pattern: str) -> int:
    """Return how many steps a constant pattern may take for each character of a text."""
    return _steps(pattern)


def _direct_match(pattern: str, memory: int) -> Callable[[str], bool] | None:
    extension = getattr(_re2(), "_re2", None)
    if extension is None:
        return None
    options = _options(memory)
    options.never_capture = True
    expression = extension.RE2(pattern.encode(), options)
    if not expression.ok():
        return None
    match = expression.Match
    anywhere = extension.RE2.Anchor.UNANCHORED

    def contains_match(text: str) -> bool:
        encoded = text.encode()
        found: bool = match(anywhere, encoded, 0, len(encoded))[0][0] >= 0
        return found

    return contains_match


class _Computed:
    """A pattern that is not a constant: compiled while an expression runs, in little memory.

    `work` is the work of compiling, until an expression is charged for it; `steps` is that for a
    character of a text. A pattern that does not compile is kept too: the failure may cost as much.
    """

    __slots__ = ("error", "expression", "instructions", "match", "steps", "work")

    def __init__(self, pattern: str) -> None:
        self.error: CelError | None = None
        self.work = _COMPILE_WORK
        self.steps = 0
        self.instructions = 0
        try:
            self.expression = _compile(pattern, _COMPUTED_MEMORY)
        except CelError as error:
            self.error = error.with_traceback(None)
            too_large = "too large" in error.message
            self.work = _REFUSAL_WORK if too_large else _COMPILE_WORK
            self.instructions = _REFUSED_INSTRUCTIONS if too_large else 0
        else:
            direct = _direct_match(pattern, _COMPUTED_MEMORY)
            self.match = direct or (lambda text: self.expression.search(text) is not None)
            self.steps = _steps(pattern)
            self.instructions = int(self.expression.programsize)
            self.work += _COMPILE_WORK + _INSTRUCTION_WORK * self.instructions

    def usable(self) -> "_Computed":
        """Return this if it is a pattern.

        Raises:
            CelError: If it is none.
        """
        if self.error is not None:
            raise CelError(self.error.message)
        return self


_remembered = lru_cache(maxsize=_CACHED_COMPUTED)(_Computed)


def _computed(pattern: str) -> _Computed:
    """Return a pattern, compiled once while it is remembered.

    Raises:
        CelError: If it is too long for RE2 to compile in so little memory, valid or not.
    """
    if len(pattern) > _LONGEST_COMPUTED:
        raise CelError(f"error parsing regexp: pattern too large: `{pattern[:100]}`")
    return _remembered(pattern)


def pattern_work(text: str, pattern: str, *_rest: object) -> int:
    """Return the work of one match, and of compiling the pattern, if it is new.

    It is compiled then and there.
    """
    if _is_used_up():
        return _REFUSAL_WORK
    entry = _computed(pattern)
    _take(entry.instructions)
    work, entry.work = entry.work, 0
    return work + _CALL_WORK + len(text) * entry.steps // STEPS_WORK


def computed(pattern: str) -> Any:  # noqa: ANN401 - re2 has no types
    """Return a pattern that an expression put together, and paid for by `pattern_work`.

    Raises:
        CelError: If it is not a pattern of RE2.
    """
    return _computed(pattern).usable().expression


def matches(text: str, pattern: str) -> bool:
    """Tell whether `text` contains a match of `pattern`."""
    return _computed(pattern).usable().match(text)


def _find(text: str, pattern: str) -> str:
    found = computed(pattern).search(text)
    return str(found[0]) if found else ""


def each_match(text: str, pattern: str, budget: Budget | None, limit: int = -1) -> Iterator[Any]:
    """Yield all matches, or the first ones; each is charged, as there may be one in every place.

    Raises:
        CelError: If `pattern` is none of RE2.
        CelCostError: If there are too many.
    """
    for place, match in enumerate(computed(pattern).finditer(text)):
        if 0 <= limit <= place:
            return
        if budget is not None:
            budget.charge_work(_MATCH_WORK)
        yield match


def _find_all(text: str, pattern: str, budget: Budget | None = None) -> list[str]:
    return [match[0] for match in each_match(text, pattern, budget)]


def _find_first(text: str, pattern: str, limit: int, budget: Budget | None = None) -> list[str]:
    return [match[0] for match in each_match(text, pattern, budget, limit)]


def find_work(text: str, pattern: str, *_rest: object) -> int:
    """Return the work of one match that says where it is, by the wrapper."""
    return pattern_work(text, pattern) + _FIND_WORK


def _match_work(text: str, pattern: str) -> int:
    return search_pattern(text, pattern) + pattern_work(text, pattern)


_SEARCH = Size(cost=search_pattern, work=pattern_work)
_FIND = Size(cost=search_pattern, work=find_work, estimate=estimates.find)
_FIND_ALL = Size(cost=search_pattern, work=find_work, estimate=estimates.find, counted=True)
# The API server takes 1 for the function, and computes the cost of the method.
_MATCH = Size(work=_match_work)

REGEX: tuple[Overload, ...] = (
    method("find", STRING, STRING, returns=STRING, run=_find, size=_FIND),
    method("findAll", STRING, STRING, returns=list_of(STRING), run=_find_all, size=_FIND_ALL),
    method(
        "findAll", STRING, STRING, INT, returns=list_of(STRING), run=_find_first, size=_FIND_ALL
    ),
)
MATCHES: tuple[Overload, ...] = (
    function("matches", STRING, STRING, returns=BOOL, run=matches, size=_MATCH),
    method("matches", STRING, STRING, returns=BOOL, run=matches, size=_SEARCH),
)
