"""Values that viewers share, such as the queues of a scope: read once for all of them."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from policyd.clock import Clock
from policyd.errors import PolicydError
from policyd.kube.client import Reader
from policyd.kube.errors import ForbiddenError, UnauthorizedError
from policyd.questions import snapshots
from policyd.snapshot.reading import OLD_SECONDS
from policyd.snapshot.values import QueueSnapshot
from policyd.status.ages import duration

T = TypeVar("T")

FRESH_SECONDS: Final = 1.9
"""For how long what was read is shown: the controller makes a newer snapshot after two seconds, and
the live views ask for it then."""
KEPT_SECONDS: Final = 600.0
"""For how long the last one is shown if no newer one can be read."""
MOST_KEPT: Final = 32
"""Values that are kept; those that were asked for last."""
UNUSED_SECONDS: Final = 60.0
"""After which a value without requests for it is not kept."""


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


class CachedValue(Generic[T]):
    """A value that is read at most once in a while, and once for all who ask at the same time."""

    def __init__(self, *, clock: Clock, fresh_seconds: float) -> None:
        self._clock = clock
        self._fresh = fresh_seconds
        self._turn = asyncio.Lock()
        self._value: T | None = None
        self._read_at = 0.0
        self._tried_at: float | None = None
        self._error: PolicydError | None = None
        self.asked_at = 0.0

    async def get(self, read: Callable[[], Awaitable[T]]) -> tuple[T, PolicydError | None]:
        """Return the value, and why it could not be read again, if it could not.

        Args:
            read: Reads it, if it is to be read again.

        Raises:
            PolicydError: If it cannot be read, and was not a while ago.
        """
        async with self._turn:
            now = self._clock.monotonic()
            if self._tried_at is None or now >= self._tried_at + self._fresh:
                await self._try(read, now)
            if self._value is None or self._too_old(now):
                assert self._error is not None, "one of both is there"
                raise self._error
            return self._value, self._error

    async def _try(self, read: Callable[[], Awaitable[T]], now: float) -> None:
        try:
            self._value, self._error = await read(), None
            self._read_at = now
        except (ForbiddenError, UnauthorizedError):
            raise  # it says something of the one who asked, and nothing to the others
        except PolicydError as error:
            self._error = error.with_traceback(None)
        self._tried_at = now

    def _too_old(self, now: float) -> bool:
        return self._error is not None and now > self._read_at + KEPT_SECONDS


class Feeds:
    """Values that are read once for all viewers. The caller has checked their rights."""

    def __init__(self, own: Reader, *, clock: Clock) -> None:
        self._own = own
        self._clock = clock
        self._kept: dict[Hashable, CachedValue[Any]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    async def snapshot(self, scope: str) -> Found:
        """Return the queues of a scope, read with the rights of the page itself.

        Raises:
            NoSnapshotsError: If the cluster serves none.
            ApiError: If the API server refuses, or does not answer.
            SnapshotError: If the answer is of another version of policyd.
        """
        ask = partial(snapshots.ask, self._own, scope)
        snapshot, error = await self.shared(("snapshot", scope), ask, fresh_seconds=FRESH_SECONDS)
        return Found(snapshot, "" if error is None else str(error))

    async def shared(
        self, key: Hashable, read: Callable[[], Awaitable[T]], *, fresh_seconds: float
    ) -> tuple[T, PolicydError | None]:
        """Return what all who have the rights to read it share, and why it is not newer.

        Args:
            key: What it is, and of which scope.
            read: Reads it, with the rights of the one who asks.
            fresh_seconds: For how long it is not read again.

        Raises:
            PolicydError: If it cannot be read, and was not a while ago.
        """
        kept = self._kept.pop(key, None) or CachedValue(
            clock=self._clock, fresh_seconds=fresh_seconds
        )
        self._kept[key] = kept  # the one that was asked for last comes last
        kept.asked_at = now = self._clock.monotonic()
        while (first := next(iter(self._kept))) != key and (
            len(self._kept) > MOST_KEPT or now > self._kept[first].asked_at + UNUSED_SECONDS
        ):
            del self._kept[first]
        found: tuple[T, PolicydError | None] = await kept.get(read)
        return found
