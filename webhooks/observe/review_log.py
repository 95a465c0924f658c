"""Log lines that any caller can cause: a number each second, and how many were left out.

Otherwise, a caller that reaches the port, or a user who can create pods, could fill the log.
"""

from collections import Counter
from collections.abc import Callable, Hashable
from typing import Final

from policyd.clock import Clock, SystemClock

SECONDS: Final = 1.0
"""How long lines are counted together."""

EACH: Final = 5
"""Lines about one thing, in that time."""

ALL: Final = 50
"""Lines about anything, in that time."""


class ReviewLog:
    """Lines about reviews.

    Args of the constructor:
        clock: Tells when so many more may be written.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._now = (clock or SystemClock()).monotonic
        self._until = 0.0
        self._written: Counter[Hashable] = Counter()
        self._left_out = 0

    def write(
        self, line: Callable[..., object], event: str, about: Hashable = "", **more: object
    ) -> None:
        """Write a line, if there is room for it; say how many were left out since the last one.

        Args:
            line: Writes it: `log.warning`.
            event: The event.
            about: Its subject, such as a policy.
            more: Other fields of the line.
        """
        now = self._now()
        if now >= self._until:
            self._until = now + SECONDS
            self._written.clear()
        key = event, about
        if self._written[key] >= EACH or self._written.total() >= ALL:
            self._left_out += 1
            return
        self._written[key] += 1
        if self._left_out:
            more["lines_left_out"] = self._left_out
            self._left_out = 0
        line(event, **more)
