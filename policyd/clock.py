"""The only reader of time: everything else takes `now`, or a Clock, as an argument."""

import time
from collections.abc import Callable
from typing import Final, Protocol


class Clock(Protocol):
    """The time, as the shell reads it."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        ...

    def monotonic(self) -> float:
        """Return seconds since some moment, never going back."""
        ...


LOADING_SECONDS: Final = 20.0
"""Processor time to load a document, at most. The limits of counted work end a load long before:
this limits work that is not counted."""


def cpu_limit(seconds: float = LOADING_SECONDS) -> Callable[[], bool]:
    """Return a function that tells whether this thread used so much processor time since now.

    A machine that is busy does not make it end sooner.
    """
    end = time.thread_time() + seconds
    return lambda: time.thread_time() > end


processor_seconds: Final[Callable[[], float]] = time.thread_time
"""Return the processor time of this thread so far."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    monotonic = staticmethod(time.monotonic)
    """Return seconds since some moment, never going back."""
