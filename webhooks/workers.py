"""Reviews that take long are decided in threads, a few at a time, and do not delay the others.

A large one goes to a worker at once. Any other is begun on the loop, where most end within a
millisecond; one that does not end soon is left there, and begun again by a worker: deciding has no
effects. Workers are threads: they share the state of policies, and Python lets them take turns.
"""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from policyd.admission.decisions import Decide
from policyd.admission.handler import HEAVY_BYTES
from policyd.api.admission import AdmissionRequest
from policyd.clock import Clock, cpu_limit
from policyd.engine.model.deadline import OutOfTime
from policyd.engine.model.decision import Decision
from webhooks.external_data.lookups import ExternalLookups

T = TypeVar("T")

LOOP_SECONDS: Final = 0.02
"""Processor time of a review on the loop before it is begun again by a worker: not real time, as on
a busy machine any would be begun twice otherwise."""

WORKERS: Final = 2
"""Reviews that are decided by workers at a time. More would not be faster, as they take turns, and
each holds its objects in memory."""

SWITCH_SECONDS: Final = 0.0005
"""How long a thread may go on when another wants to, a worker or one that loads policies: with
Python's 5 ms, a review would wait so long each time that something comes in for it."""


class TooLongError(BaseException):
    """A review takes longer than it may on the loop. No error of a policy: nothing handles it."""


class Workers:
    """Decides on reviews, on the loop or beside it."""

    def __init__(
        self,
        executor: Executor,
        *,
        clock: Clock,
        limit: Callable[[float], OutOfTime] = cpu_limit,
        workers: int = WORKERS,
    ) -> None:
        """Begin with nothing to do.

        Args:
            executor: Runs long work, on threads of this process.
            clock: Tells how long something takes.
            limit: Begins to count the processor time of this thread, and returns a function that
                tells whether it exceeds so many seconds.
            workers: How much is run by the executor at a time.
        """
        self._executor = executor
        self._now = clock.monotonic
        self._limit = limit
        self.lookups: ExternalLookups | None = None
        """Fetches the external data of reviews; None if there is none to fetch."""
        self._free = asyncio.Semaphore(workers)

    def decide(
        self, decide: Decide, request: AdmissionRequest, out_of_time: OutOfTime
    ) -> Awaitable[Decision]:
        """Decide on a request, with all that it asks of others."""
        if self.lookups is None:
            return self._decide(decide, request, out_of_time)
        return self.lookups.decide(decide, request, out_of_time, run=self._decide)

    async def _decide(
        self, decide: Decide, request: AdmissionRequest, out_of_time: OutOfTime
    ) -> Decision:
        if size_of(request) <= HEAVY_BYTES:
            if out_of_time():
                return decide(request, out_of_time)
            now, took_long = self._now, self._limit(LOOP_SECONDS)
            until = now() + LOOP_SECONDS

            def is_late() -> bool:
                if now() <= until:
                    return False
                if took_long():
                    raise TooLongError
                return out_of_time()  # the machine had something else to do

            try:
                return decide(request, is_late)
            except TooLongError:
                pass  # other reviews must not wait for this one
        return await self.run(partial(decide, request, out_of_time))

    async def run(self, work: Callable[[], T]) -> T:
        """Have a worker do something, once there is one that is free.

        A caller that stops waiting does not end it: the worker is free when it is done.
        """
        await self._free.acquire()
        loop = asyncio.get_running_loop()
        try:
            done = self._executor.submit(work)
        except BaseException:
            self._free.release()
            raise
        done.add_done_callback(lambda _done: _call_soon(loop, self._free.release))
        result = asyncio.wrap_future(done)
        # An error refers to this frame: a reference to the error would keep both, and the body.
        del done
        try:
            return await result
        finally:
            del result


def _call_soon(loop: asyncio.AbstractEventLoop, release: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(release)


def size_of(request: AdmissionRequest) -> int:
    """Return how long the objects of a request are, in bytes."""
    return len(memoryview(request.object)) + len(memoryview(request.old_object))
