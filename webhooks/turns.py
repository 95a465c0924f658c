"""What reviews of one namespace take from those of others: the time of the loop, and workers.

Longer reviews of a namespace that has taken its part leave the loop sooner for a while, and where
reviews wait for a worker, namespaces take turns.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final, TypeVar

T = TypeVar("T")

FREE_SECONDS: Final = 0.002
"""Processor time of a review that is not charged to its namespace: nearly all take less."""

MOST_SECONDS: Final = 0.02
"""Processor time that longer reviews of a namespace may take of the loop at once."""

SECONDS_PER_SECOND: Final = 0.02
"""How much of it a namespace gets back."""

MOST_NAMESPACES: Final = 1_000
"""Namespaces whose time is known: those that took some last."""


class LoopTime:
    """The time of the loop that longer reviews of each namespace took lately."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Begin with none.

        Args:
            now: Returns the time in seconds.
        """
        self._now = now
        self._taken: dict[str, tuple[float, float]] = {}

    def is_left(self, namespace: str) -> bool:
        """Tell whether longer reviews of a namespace may still take time of the loop."""
        return namespace not in self._taken or self._owed(namespace) < MOST_SECONDS

    def take(self, namespace: str, seconds: float) -> None:
        """Charge a namespace for a review."""
        if seconds <= FREE_SECONDS:
            return
        owed = self._owed(namespace) + seconds
        self._taken.pop(namespace, None)
        self._taken[namespace] = owed, self._now()
        if len(self._taken) > MOST_NAMESPACES:
            del self._taken[next(iter(self._taken))]

    def _owed(self, namespace: str) -> float:
        owed, since = self._taken.get(namespace, (0.0, 0.0))
        return max(owed - SECONDS_PER_SECOND * (self._now() - since), 0.0)


class Lane:
    """Some workers: they do one thing each at a time, for one namespace after the other."""

    def __init__(self, executor: Executor, workers: int) -> None:
        """Begin with nothing to do.

        Args:
            executor: Runs work, on threads of this process.
            workers: How much of it at a time.
        """
        self._executor = executor
        self._free = workers
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def run(self, work: Callable[[], T], namespace: str = "") -> T:
        """Have a worker do something, once it is the namespace's turn.

        A caller that stops waiting does not end it: the worker is free when it is done.
        """
        await self._turn(namespace)
        loop = asyncio.get_running_loop()
        try:
            done = self._executor.submit(work)
        except BaseException:
            self._release()
            raise
        done.add_done_callback(lambda _done: _call_soon(loop, self._release))
        result = asyncio.wrap_future(done)
        # An error refers to this frame: a reference to the error would keep both, and the body.
        del done
        try:
            return await result
        finally:
            del result

    async def _turn(self, namespace: str) -> None:
        """Wait for a worker: while one is free, nothing waits."""
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(namespace, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if not turn.cancel() and not turn.cancelled():  # it was this one's turn
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            namespace = next(iter(self._waiting))
            waiting = self._waiting.pop(namespace)
            turn = waiting.popleft()
            if waiting:
                self._waiting[namespace] = waiting  # behind all others
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def _call_soon(loop: asyncio.AbstractEventLoop, release: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(release)
