"""Compute with users, lists of objects, numbers, timestamps and regular expressions."""

import math
import re
from collections.abc import Callable
from typing import Any

from policyd.cel.cost import Budget, elements, search_pattern, traversal, traverse
from policyd.cel.errors import CelError
from policyd.cel.estimate.estimates import search_pattern as search_pattern_estimate
from policyd.cel.functions import Overload, Size, function
from policyd.cel.lib.regex import computed, each_match, find_work
from policyd.cel.lib.time import cron_of
from policyd.cel.types import (
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    Type,
    list_of,
    map_of,
    optional_of,
)
from policyd.cel.values import NONE, Duration, Optional, Struct, Timestamp

SERVICE_ACCOUNT = Type("user.ServiceAccount")
SERVICE_ACCOUNT_FIELDS = {"Name": STRING, "Namespace": STRING}
_PREFIX = "system:serviceaccount:"
# Beyond that, a double has no digits left to round.
_MOST_DIGITS = 300


def _service_account(user: str) -> Struct:
    rest = user.removeprefix(_PREFIX) if user.startswith(_PREFIX) else ""
    namespace, colon, name = rest.partition(":")
    fields = {"Name": name, "Namespace": namespace} if colon else {"Name": "", "Namespace": ""}
    return Struct(SERVICE_ACCOUNT.name, fields)


def _to_map(keys: list[Any], values: list[Any], key: str, value: str) -> dict[str, Any]:
    if len(keys) != len(values):
        raise CelError(f"lists of {len(keys)} and {len(values)} elements cannot be paired")
    if not all(isinstance(entry, dict) for entry in (*keys, *values)):
        raise CelError("listObjToMap takes lists of maps")
    made = {}
    for named, valued in zip(keys, values, strict=True):
        name = named.get(key)
        if not isinstance(name, str):
            raise CelError(f"`{key}` is not a string in every map of the first list")
        made[name] = valued.get(value)
    return made


def _round(number: float, digits: int) -> float:
    if not math.isfinite(number) or abs(digits) > _MOST_DIGITS:
        return number
    shifted = number * 10.0**digits
    if not math.isfinite(shifted):
        return number
    return math.copysign(math.floor(abs(shifted) + 0.5), number) / 10.0**digits


_LISTS = (list_of(DYN), list_of(DYN), STRING, STRING)
_MAP = map_of(STRING, DYN)

_OBJECTS: tuple[Overload, ...] = (
    *(
        function(
            name, STRING, returns=SERVICE_ACCOUNT, run=_service_account, size=Size(cost=traverse)
        )
        for name in ("parseServiceAccount", "user.parseServiceAccount")
    ),
    *(
        function(name, *_LISTS, returns=_MAP, run=_to_map, size=Size(work=elements))
        for name in ("listObjToMap", "transform.listObjToMap")
    ),
    function("math.round", DOUBLE, INT, returns=DOUBLE, run=_round),
)


# Go counts from the first day of the year 1.
_FIRST_DAY = -62_135_596_800 * 10**9
_WRITE = Size(work=10)


def _truncate(moment: Timestamp, length: Duration) -> Timestamp:
    if length.nanoseconds <= 0:
        return moment
    since = moment.nanoseconds - _FIRST_DAY
    return Timestamp(moment.nanoseconds - since % length.nanoseconds)


def moments(now: Callable[[], int] | None) -> tuple[Overload, ...]:
    """Return the functions, with a clock: nanoseconds since the epoch."""

    def read() -> Timestamp:
        if now is None:
            raise CelError("`time.now` is not available here: it needs a clock")
        return Timestamp(now())

    return (
        Overload(name="time.now", parameters=(), result=TIMESTAMP, run=read, constant=False),
        function("time.truncate", TIMESTAMP, DURATION, returns=TIMESTAMP, run=_truncate),
        function("time.toCron", TIMESTAMP, returns=STRING, run=cron_of, size=_WRITE),
    )


_REFERENCE = re.compile(r"\\(.?)", re.DOTALL)
# Making so many characters takes about as long as copying an element.
_MADE = 4


def _expanded(template: str, match: Any) -> str:  # noqa: ANN401 - re2 has no types
    r"""Put the groups of a match in the place of `\1` to `\9`, and a backslash for two."""

    def part(found: re.Match[str]) -> str:
        if found[1] == "\\":
            return "\\"
        if not (found[1].isascii() and found[1].isdigit()):
            raise CelError(f"invalid replacement: `{found[0]}` is not a group")
        group = int(found[1])
        if group > match.re.groups:
            raise CelError(f"replacement names group {group}, the pattern has {match.re.groups}")
        return match[group] or ""

    return _REFERENCE.sub(part, template)


def _replace_first(
    text: str, pattern: str, template: str, limit: int, budget: Budget | None = None
) -> str:
    written: list[str] = []
    end = 0
    for match in each_match(text, pattern, budget, limit):
        made = _expanded(template, match)
        if budget is not None:
            budget.charge_work((len(template) + len(made)) // _MADE)
        written += (text[end : match.start()], made)
        end = match.end()
    return "".join((*written, text[end:]))


def _replace(text: str, pattern: str, template: str, budget: Budget | None = None) -> str:
    return _replace_first(text, pattern, template, -1, budget)


def _captured(match: Any) -> str | None:  # noqa: ANN401 - re2 has no types
    if match.re.groups > 1:
        raise CelError(f"the pattern has {match.re.groups} groups, and may have one")
    found: str | None = match[match.re.groups]
    return found


def _extract(text: str, pattern: str) -> Optional:
    match = computed(pattern).search(text)
    found = _captured(match) if match else None
    return NONE if found is None else Optional(found)


def _extract_all(text: str, pattern: str, budget: Budget | None = None) -> list[str]:
    found = (_captured(match) for match in each_match(text, pattern, budget))
    return [part for part in found if part]


def _replace_cost(text: str, pattern: str, template: str, *_limit: int) -> int:
    """Cost of the search, and of the longest text it may make."""
    made = traversal((len(text) + 1) * len(template))
    return search_pattern(text, pattern) + made


_SEARCH = Size(cost=search_pattern, work=find_work)
_SEARCH_ALL = Size(cost=search_pattern, work=find_work, counted=True)
_REPLACE = Size(cost=_replace_cost, work=find_work, estimate=search_pattern_estimate, counted=True)
_THREE = (STRING, STRING, STRING)

_PATTERNS: tuple[Overload, ...] = (
    function("regex.replace", *_THREE, returns=STRING, run=_replace, size=_REPLACE),
    function("regex.replace", *_THREE, INT, returns=STRING, run=_replace_first, size=_REPLACE),
    function(
        "regex.extract", STRING, STRING, returns=optional_of(STRING), run=_extract, size=_SEARCH
    ),
    function(
        "regex.extractAll",
        STRING,
        STRING,
        returns=list_of(STRING),
        run=_extract_all,
        size=_SEARCH_ALL,
    ),
)

VALUES: tuple[Overload, ...] = (*_OBJECTS, *_PATTERNS)
"""All of them but those of moments, which need a clock."""
