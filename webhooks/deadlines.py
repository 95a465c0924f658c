"""Waiting for no longer than somebody else does, at no cost to what waits for nothing.

A timer of its own costs a review a tenth of its time. So what ends without waiting, as nearly all
reviews do, is begun outside of any task and not even noted, and the others are looked through now
and then.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from functools import partial
from types import coroutine
from typing import Any, Final, TypeVar

LOOK_SECONDS: Final = 0.05
"""How often they are looked through, and how much later than said one may end."""

Result = TypeVar("Result")


class TooLateError(Exception):
    """What was waited for would come too late."""


class Deadlines:
    """What is waited for, and until when."""

    def __init__(self) -> None:
        self._until: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()
        self._look: asyncio.TimerHandle | None = None

    async def within(self, seconds: float, work: Awaitable[Result]) -> Result:
        """Return what comes of some work.

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
            return await work
        except asyncio.CancelledError:
            if task in self._late and not task.uncancel():
                raise TooLateError from None
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


@coroutine
def resumed(
    work: Coroutine[Any, Any, Result], waits_for: object
) -> Generator[object, object, Result]:
    """Go on, in a task, with work that was begun outside of it, and waits for something.

    An error knows this frame. So that it is forgotten with what it is about, a large body perhaps,
    nothing that holds the error is kept here.
    """
    while True:
        try:
            answer = yield waits_for
        except BaseException as error:  # noqa: BLE001 - cancelling, too
            step = partial(work.throw, error)
        else:
            step = partial(work.send, answer)
        waits_for = answer = None
        try:
            waits_for = step()
        except StopIteration as ended:
            result: Result = ended.value
            return result
        finally:
            del step
