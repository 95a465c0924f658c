"""Waiting for no longer than somebody else does, at no cost to what waits for nothing.

A timer of its own costs a review a tenth of its time. So all of them are looked through now and
then, while there are any.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

LOOK_SECONDS: Final = 0.05
"""How often they are looked through, and how much later than said one may end."""

Result = TypeVar("Result")


class OutOfTimeError(Exception):
    """What was waited for would come too late."""


class Deadlines:
    """What is waited for, and until when."""

    def __init__(self) -> None:
        self._until: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()
        self._look: asyncio.TimerHandle | None = None

    async def within(self, seconds: float, awaited: Awaitable[Result]) -> Result:
        """Return what is awaited.

        Raises:
            OutOfTimeError: If it is not there in time.
        """
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        loop = task.get_loop()
        self._until[task] = loop.time() + seconds
        if self._look is None:
            self._look = loop.call_later(LOOK_SECONDS, self._look_through, loop)
        try:
            return await awaited
        except asyncio.CancelledError:
            if task in self._late and not task.uncancel():
                raise OutOfTimeError from None
            raise
        finally:
            del self._until[task]
            self._late.discard(task)

    def _look_through(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for task, until in self._until.items():
            if until < now and task not in self._late:
                self._late.add(task)
                task.cancel()
        self._look = (
            loop.call_later(LOOK_SECONDS, self._look_through, loop) if self._until else None
        )
