"""Time that stands still until a test moves it."""

import asyncio
import heapq
from itertools import count

from policyd.kube.pace import Pace

_TURNS = 30  # of the loop, in which woken tasks run before time goes on


class FakeClock:
    """A Clock that a test advances; sleepers wake in the order of their times."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._now = start
        self._elapsed = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self.slept: list[float] = []
        """How long each sleep was to be, in the order they began."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self._now

    def monotonic(self) -> float:
        """Return seconds since the clock was made, regardless of `jump`."""
        return self._elapsed

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator may; no time passes."""
        self._now += seconds

    async def sleep(self, seconds: float) -> None:
        """Wait until the clock has been advanced by `seconds`."""
        self.slept.append(seconds)
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + seconds, next(self._numbers), woken))
        await woken

    async def skip(self, seconds: float) -> None:
        """Let `seconds` pass at once: a sleep for tests in which nothing else happens meanwhile."""
        self.slept.append(seconds)
        self._pass(seconds)
        await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Let `seconds` pass, waking sleepers at their moments and giving each time to act."""
        end = self._elapsed + seconds
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= end:
            at, _, woken = heapq.heappop(self._sleepers)
            self._pass(max(0.0, at - self._elapsed))
            if not woken.done():
                woken.set_result(None)
                await _settle()
        self._pass(end - self._elapsed)

    def pace(self, *, jitter: float = 0.0) -> Pace:
        """Return this clock as a Pace with a constant random number."""
        return Pace(clock=self, sleep=self.sleep, jitter=lambda: jitter)

    def _pass(self, seconds: float) -> None:
        self._elapsed += seconds
        self._now += seconds


async def _settle() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
