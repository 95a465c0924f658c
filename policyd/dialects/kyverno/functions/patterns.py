"""Regular expressions beyond the API server's: replacing, extracting, and text at random."""

import re
from typing import Any

from policyd.cel.cost import Budget, search_pattern, traversal
from policyd.cel.errors import CelError
from policyd.cel.estimate.estimates import search_pattern as search_pattern_estimate
from policyd.cel.functions import Overload, Size, function
from policyd.cel.lib.regex import computed, each_match, find_work
from policyd.cel.types import INT, STRING, list_of, optional_of
from policyd.cel.values import NONE, Optional

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

PATTERNS: tuple[Overload, ...] = (
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
