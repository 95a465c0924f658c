"""The only reader of time: everything else takes `now`, or a Clock, as an argument."""

import time
from typing import Protocol


class Clock(Protocol):
    """What the shell needs to know about time."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some moment, never going back."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds since some moment, never going back."""
        return time.monotonic()
