"""What viewers share: the queues of a scope, read once for all of them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from policyd.clock import Clock
from policyd.errors import PolicydError
from policyd.kube.client import Reader
from policyd.questions import snapshots
from policyd.snapshot.reading import OLD_SECONDS
from policyd.snapshot.values import QueueSnapshot
from policyd.status.ages import duration

T = TypeVar("T")

FRESH_SECONDS: Final = 2.0
"""For how long what was read is shown: the controller makes no newer snapshot before."""
KEPT_SECONDS: Final = 600.0
"""For how long the last one is shown if no newer one can be read."""
MOST_SCOPES: Final = 32
"""Scopes whose queues are kept; those that were asked for last."""


@dataclass(frozen=True, slots=True)
class Found:
    """The queues, and how far they can be trusted.

    Attributes:
        snapshot: The queues.
        problem: Why no newer ones could be read; "" if these are the newest.
    """

    snapshot: QueueSnapshot
    problem: str = ""

    def notices(self, now: float) -> Iterator[str]:
        """Yield what to say above a view of them."""
        age = now - self.snapshot.taken_at
        if self.problem:
            ago = duration(max(0.0, age))
            yield f"The queues are shown as they were {ago} ago: {self.problem}."
        elif age > OLD_SECONDS:
            yield (
                f"The snapshot of the queues is {duration(age)} old; the queues may have changed"
                " since. Is the controller running?"
            )


class Kept(Generic[T]):
    """A value that is read at most once in a while, and once for all who ask at the same time."""

    def __init__(
        self, read: Callable[[], Awaitable[T]], *, clock: Clock, fresh_seconds: float
    ) -> None:
        self._read = read
        self._clock = clock
        self._fresh = fresh_seconds
        self._turn = asyncio.Lock()
        self._value: T | None = None
        self._read_at = 0.0
        self._tried_at = 0.0
        self._error: PolicydError | None = None

    async def get(self) -> tuple[T, PolicydError | None]:
        """Return the value, and why it could not be read again, if it could not.

        Raises:
            PolicydError: If it cannot be read, and was not a while ago.
        """
        async with self._turn:
            now = self._clock.monotonic()
            if (self._error is None and self._value is None) or now >= self._tried_at + self._fresh:
                await self._try(now)
            if self._value is None or self._too_old(now):
                assert self._error is not None, "one of both is there"
                raise self._error
            return self._value, self._error

    async def _try(self, now: float) -> None:
        try:
            self._value, self._error = await self._read(), None
            self._read_at = now
        except PolicydError as error:
            self._error = error.with_traceback(None)
        self._tried_at = self._clock.monotonic()

    def _too_old(self, now: float) -> bool:
        return self._error is not None and now > self._read_at + KEPT_SECONDS


class Feeds:
    """Reads with the rights of the page itself; the caller has checked those of who looks."""

    def __init__(self, reader: Reader, *, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._scopes: dict[str, Kept[QueueSnapshot]] = {}

    async def snapshot(self, scope: str) -> Found:
        """Return the queues of a scope.

        Raises:
            NoSnapshotsError: If the cluster serves none.
            ApiError: If the API server refuses, or does not answer.
            SnapshotError: If the answer is of another version of policyd.
        """
        kept = self._scopes.pop(scope, None)
        if kept is None:
            kept = Kept(
                lambda: snapshots.ask(self._reader, scope),
                clock=self._clock,
                fresh_seconds=FRESH_SECONDS,
            )
        self._scopes[scope] = kept
        while len(self._scopes) > MOST_SCOPES:
            del self._scopes[next(iter(self._scopes))]
        snapshot, error = await kept.get()
        return Found(snapshot, "" if error is None else str(error))
