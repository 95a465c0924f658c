"""Lengths of time as Go writes them: `1h30m`, `500ms`, `-1ns`."""

import re
from typing import Final

from policyd.errors import PolicydError

_SECONDS: Final = {
    "h": 3_600.0,
    "m": 60.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "\u00b5s": 1e-6,
    "\u03bcs": 1e-6,
    "ns": 1e-9,
}
_PART = rf"(\d+\.?\d*|\.\d+)({'|'.join(sorted(_SECONDS, key=len, reverse=True))})"
_WHOLE = re.compile(rf"[+-]?(0|({_PART})+)", re.ASCII)


class DurationError(PolicydError):
    """A text is not a duration."""


def duration_seconds(text: str) -> float:
    """Return how many seconds a duration is.

    Raises:
        DurationError: If it is none.
    """
    if not _WHOLE.fullmatch(text):
        raise DurationError(f"`{text}` is not a duration", hint="write `90s` or `1h30m`")
    parts = re.findall(_PART, text, re.ASCII)
    total = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    return -total if text.startswith("-") else total
