"""Reviews that take long are decided in threads, a few at a time, and do not delay the others.

Most reviews end within a millisecond, and are decided on the loop. One that does not end soon is
left there, and begun again by a worker: deciding has no effects. A namespace whose reviews took
more than its part of the loop's time has them left there sooner. One worker is for brief reviews
alone: what takes longer there, and what is large, is decided by those for long ones.

Workers are threads: they share the state of policies, and Python lets them take turns.
"""

from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from functools import partial
from typing import Final, TypeVar

from policyd.admission.decisions import Decide
from policyd.admission.handler import HEAVY_BYTES
from policyd.api.admission import AdmissionRequest
from policyd.clock import Clock, processor_seconds
from policyd.engine.model.deadline import OutOfTime
from policyd.engine.model.decision import Decision
from webhooks.external_data.lookups import ExternalLookups
from webhooks.turns import FREE_SECONDS, Lane, LoopTime

T = TypeVar("T")

LOOP_SECONDS: Final = 0.005
"""Processor time of a review on the loop before it is begun again by a worker: not real time, as on
a busy machine any would be begun twice otherwise."""

BRIEF_SECONDS: Final = 0.05
"""Processor time of a review before it is begun again by a worker for long ones."""

BRIEF_WORKERS: Final = 1
LONG_WORKERS: Final = 2
"""Reviews that are decided by workers at a time. More would not be faster, as they take turns, and
each holds its objects in memory."""

WORKERS: Final = BRIEF_WORKERS + LONG_WORKERS

SWITCH_SECONDS: Final = 0.0005
"""How long a thread may go on when another wants to, a worker or one that loads policies: with
Python's 5 ms, a review would wait so long each time that something comes in for it."""


class TooLongError(BaseException):
    """A review takes longer than it may here. No error of a policy: nothing handles it."""


class Workers:
    """Decides on reviews, on the loop or beside it."""

    def __init__(
        self,
        executor: Executor,
        *,
        clock: Clock,
        spent: Callable[[], float] = processor_seconds,
    ) -> None:
        """Begin with nothing to do.

        Args:
            executor: Runs long work, on threads of this process.
            clock: Tells how long something takes.
            spent: Returns the processor time of the current thread so far.
        """
        self._now = clock.monotonic
        self._spent = spent
        self.lookups: ExternalLookups | None = None
        """Fetches the external data of reviews; None if there is none to fetch."""
        self._loop_time = LoopTime(self._now)
        self._brief = Lane(executor, BRIEF_WORKERS)
        self._long = Lane(executor, LONG_WORKERS)

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        """Have a worker do something, such as reading a long review."""
        return self._long.run(work)

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
        namespace = request.namespace
        if size_of(request) <= HEAVY_BYTES:
            if out_of_time():
                return decide(request, out_of_time)
            try:
                return self._decide_on_loop(decide, request, out_of_time)
            except TooLongError:
                pass  # other reviews must not wait for this one
            brief = partial(self._decide_briefly, decide, request, out_of_time)
            try:
                return await self._brief.run(brief, namespace)
            except TooLongError:
                pass  # other brief ones must not, either
        return await self._long.run(partial(decide, request, out_of_time), namespace)

    def _decide_on_loop(
        self, decide: Decide, request: AdmissionRequest, out_of_time: OutOfTime
    ) -> Decision:
        began_at, spent, namespace = self._now(), self._spent(), request.namespace
        is_left = self._loop_time.is_left(namespace)
        seconds = LOOP_SECONDS if is_left else FREE_SECONDS
        try:
            return decide(request, self._late(seconds, out_of_time, began_at, spent))
        finally:
            if is_left and self._now() - began_at > FREE_SECONDS:
                self._loop_time.take(namespace, self._spent() - spent)

    def _decide_briefly(
        self, decide: Decide, request: AdmissionRequest, out_of_time: OutOfTime
    ) -> Decision:
        return decide(request, self._late(BRIEF_SECONDS, out_of_time, self._now(), self._spent()))

    def _late(
        self, seconds: float, out_of_time: OutOfTime, began_at: float, spent: float
    ) -> OutOfTime:
        """Return a function that raises TooLongError once this thread spent so much time more."""
        now, spent_by_now = self._now, self._spent
        until, most = began_at + seconds, spent + seconds

        def is_late() -> bool:
            if now() <= until:
                return False
            if spent_by_now() > most:
                raise TooLongError
            return out_of_time()  # the machine had something else to do

        return is_late


def size_of(request: AdmissionRequest) -> int:
    """Return how long the objects of a request are, in bytes."""
    return len(memoryview(request.object)) + len(memoryview(request.old_object))
