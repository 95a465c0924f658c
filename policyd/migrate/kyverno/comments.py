"""Find the comments of a policy, so that what is made of its rules keeps them."""

import re
from collections.abc import Sequence
from typing import Final

_WHOLE: Final = re.compile(r"\s*#\s?(?P<text>.*)")
_TRAILING: Final = re.compile(r"[^'\"#]*[^'\"#\s][^'\"#]*\s#\s?(?P<text>.*)")


def comments_of(text: str, starts: Sequence[int]) -> tuple[list[str], list[list[str]]]:
    """Return the comments before the rules of a policy, and those of each rule.

    Args:
        text: The text of the document.
        starts: The lines on which its rules begin, from 1.
    """
    before: list[str] = []
    of_rules: list[list[str]] = [[] for _ in starts]
    lines = text.splitlines()
    firsts = [_first_line(lines, start) for start in starts]
    for number, line in enumerate(lines, start=1):
        found = _WHOLE.fullmatch(line) or _TRAILING.fullmatch(line)
        if found is None:
            continue
        rule = sum(first <= number for first in firsts) - 1
        (of_rules[rule] if rule >= 0 else before).append(found["text"].rstrip())
    return before, of_rules


def _first_line(lines: Sequence[str], start: int) -> int:
    """Return the first line of the comments directly above a line; they belong to it."""
    while start > 1 and start - 2 < len(lines) and _WHOLE.fullmatch(lines[start - 2]):
        start -= 1
    return start
