"""Long work in steps, so that others have their turn between them."""

from collections.abc import Generator
from typing import TypeVar

from policyd.kube.pace import Pace

T = TypeVar("T")


class Steps:
    """Runs generators step by step, with rests.

    Attributes:
        spent: Seconds of work so far, without rests.
    """

    def __init__(
        self, pace: Pace, *, seconds: float = 0.0, most: int = 1, rests: float = 0.0
    ) -> None:
        """Prepare; by default, others have their turn after each step.

        Args:
            pace: Time.
            seconds: Of work before a rest.
            most: Steps before a rest, at most, however short they are.
            rests: How long a rest is by the work before it.
        """
        self._pace, self._seconds, self._most, self._rests = pace, seconds, most, rests
        self.spent = 0.0

    async def run(self, work: Generator[None, None, T]) -> T:
        """Do work, and return its result."""
        clock = self._pace.clock
        began, count = clock.monotonic(), 0
        while True:
            try:
                next(work)
            except StopIteration as end:
                self.spent += clock.monotonic() - began
                result: T = end.value
                return result
            count += 1
            took = clock.monotonic() - began
            if took >= self._seconds or count >= self._most:
                self.spent += took
                await self._pace.sleep(self._rests * took)
                began, count = clock.monotonic(), 0
