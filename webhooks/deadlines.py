"""The timeout of callers, and the end of work whose answer would come after it.

A timer of its own costs a review a tenth of its time. So a review that ends without waiting, as
nearly all do, is begun outside of any task and has no timer; the others share one.
"""

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from functools import lru_cache, partial
from types import coroutine
from typing import Any, Final, TypeVar

MOST_TIMEOUT_SECONDS: Final = 30.0
"""The longest timeout that a webhook can have."""

DEFAULT_TIMEOUT_SECONDS: Final = 10.0
"""The API server's default, for callers that do not send their timeout."""

LATE: Final = 0.8
"""The part of the caller's timeout that is used: a later answer may arrive too late."""

SPARE_SECONDS: Final = 0.1
"""How much later work is ended: by then, deciding has seen that the time is up."""

LOOK_SECONDS: Final = 0.05
"""How often waiting work is checked, and how much later than its deadline it may end."""

Result = TypeVar("Result")


@lru_cache(maxsize=64)
def timeout_seconds(query: bytes) -> float:
    """Read the caller's timeout from `timeout=10s`, as the API server writes it: 30 s at most."""
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        if name == b"timeout" and value.endswith(b"s") and value[:-1].isdigit():
            return min(float(value[:-1]), MOST_TIMEOUT_SECONDS)
    return DEFAULT_TIMEOUT_SECONDS


class TooLateError(Exception):
    """The result of some work would come too late."""


class Deadlines:
    """The deadlines of tasks that wait."""

    def __init__(self) -> None:
        self._until: dict[asyncio.Task[object], float] = {}
        self._late: set[asyncio.Task[object]] = set()
        self._look: asyncio.TimerHandle | None = None

    async def within(self, seconds: float, work: Awaitable[Result]) -> Result:
        """Return the result of some work.

        Raises:
            TooLateError: If it takes longer than so many seconds.
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
    """Continue, in a task, work that was begun outside of it and waits for something.

    An error refers to this frame. Nothing here refers to the error, so that both are freed, and
    with them perhaps a large body.
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
