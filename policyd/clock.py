"""The only reader of time: everything else takes `now`, or a Clock, as an argument."""

import time
from collections.abc import Callable
from typing import Final, Protocol


class Clock(Protocol):
    """What the shell needs to know about time."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some moment, never going back."""
        ...


LOADING_SECONDS: Final = 20.0
"""What loading a document may take of a processor. What is counted of its work is used up long
before: this bounds what is not."""


def cpu_limit(seconds: float = LOADING_SECONDS) -> Callable[[], bool]:
    """Return what tells whether this thread took so many seconds of a processor since now.

    A machine that is busy does not make it end sooner.
    """
    end = time.thread_time() + seconds
    return lambda: time.thread_time() > end


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    monotonic = staticmethod(time.monotonic)
    """Return seconds since some moment, never going back."""
