"""Time for the shell: clock, waits and random numbers in one value, so that tests take no time."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from policyd.clock import Clock, SystemClock

T = TypeVar("T")

RESTS = 5
"""How long a rest is by the work before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How a loop tells the time, waits, and varies its waiting."""

    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Waits for so many seconds of `clock`."""
    jitter: Callable[[], float] = random.random
    """Returns a number from 0 up to 1, to spread actions that would otherwise happen at once."""

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        """Wait until *event* is set, at most `seconds` (None: for ever); tell whether it is."""
        if seconds is None:
            await event.wait()
        elif not event.is_set():
            try:
                await self.within(seconds, event.wait())
            except TimeoutError:
                return event.is_set()
        return True

    def rest_after(self, began: float, *, most: float) -> float:
        """Return the seconds to wait after work: five times as long as it took.

        So work that others should not wait for has a sixth of the time, however slow it becomes.

        Args:
            began: When the work began, in seconds of the clock that only goes forward.
            most: Seconds, at most.
        """
        return min(most, RESTS * (self.clock.monotonic() - began))

    async def rest(self, began: float, *, most: float) -> None:
        """Wait after work, as `rest_after` says."""
        seconds = self.rest_after(began, most=most)
        if seconds > 0:
            await self.sleep(seconds)

    async def within(self, seconds: float, work: Awaitable[T]) -> T:
        """Await *work*, and cancel it after `seconds`.

        Raises:
            TimeoutError: If the time is up first.
        """
        task = asyncio.ensure_future(work)
        timer = asyncio.ensure_future(self.sleep(seconds))
        try:
            await asyncio.wait({task, timer}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise TimeoutError(f"not done within {seconds} s")
        finally:
            task.cancel()
            timer.cancel()
            await asyncio.gather(task, timer, return_exceptions=True)


class Backoff:
    """Waits that double with each failure, with random jitter, until a success."""

    def __init__(
        self, first: float, most: float, *, jitter: Callable[[], float], factor: float = 2.0
    ) -> None:
        self._first = first
        self._most = most
        self._factor = factor
        self._jitter = jitter
        self.failures = 0

    def next(self) -> float:
        """Count a failure, and return the seconds to wait: half to all of the doubled wait."""
        # The exponent is bounded, so that no number of failures overflows a float.
        wait = min(self._most, self._first * self._factor ** min(self.failures, 64))
        self.failures += 1
        return wait * (0.5 + self._jitter() / 2)

    def reset(self) -> None:
        """Begin with the first wait again."""
        self.failures = 0
