"""Keys that wait to be reconciled: each once, some later, failed ones later still.

A key that is added while it waits is not added twice. A key that is added while it is worked on
comes again after `done`, because the work began before the change. One worker at a time has a key.

Ranked keys come out by rank, added keys in order. Swept keys, which are all that exist, are
not urgent. The three take turns: none of them waits for ever, nor for all of another.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterable
from itertools import count
from typing import Generic, TypeVar

from policyd.kube.pace import Backoff, Pace

K = TypeVar("K")

FIRST_WAIT_SECONDS = 0.05
LONGEST_WAIT_SECONDS = 300.0
RANKED, ADDED, SWEPT = range(3)
"""The lanes. A key is in one of them at a time, the most urgent."""


class RankedKeys(Generic[K]):
    """Keys by rank, the lowest first; in the order in which they came where ranks are equal."""

    def __init__(self) -> None:
        self._places: dict[K, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._numbers = count()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def add(self, key: K, rank: float) -> None:
        """Add *key*; if it is queued, the better rank counts."""
        if key not in self._places or rank < self._places[key][0]:
            place = self._places[key] = (rank, next(self._numbers))
            heapq.heappush(self._heap, (*place, key))

    def discard(self, key: K) -> None:
        """Remove *key*, if it is queued."""
        self._places.pop(key, None)  # the heap skips it later
        if not self._places:
            self._heap.clear()

    @property
    def least(self) -> float:
        """The rank of the first key; there is one."""
        while self._places.get(self._heap[0][2]) != self._heap[0][:2]:
            heapq.heappop(self._heap)
        return self._heap[0][0]

    def take(self) -> K:
        """Take the first key out; there is one."""
        while True:
            rank, number, key = heapq.heappop(self._heap)
            if self._places.get(key) == (rank, number):
                del self._places[key]
                return key


class WorkQueue(Generic[K]):
    """A queue of keys, for one loop; keys come out in the order in which they were due."""

    def __init__(
        self,
        *,
        pace: Pace | None = None,
        first_wait_seconds: float = FIRST_WAIT_SECONDS,
        longest_wait_seconds: float = LONGEST_WAIT_SECONDS,
    ) -> None:
        self._pace = pace or Pace()
        self._new_backoff: Callable[[], Backoff] = lambda: Backoff(
            first_wait_seconds, longest_wait_seconds, jitter=self._pace.jitter
        )
        self._lanes: tuple[RankedKeys[K], ...] = (RankedKeys(), RankedKeys(), RankedKeys())
        self._lane = ADDED
        self._later: RankedKeys[K] = RankedKeys()  # by the moment at which they are due
        self._working: set[K] = set()
        self._again: dict[K, tuple[int, float]] = {}
        self._backoffs: dict[K, Backoff] = {}
        self._idle: list[asyncio.Event] = []
        self._keeper: asyncio.Event | None = None

    def __len__(self) -> int:
        """Return how many keys wait, the later ones included."""
        return sum(map(len, self._lanes)) + len(self._later) + len(self._again)

    def add(self, key: K, *, rank: float | None = None) -> None:
        """Have *key* worked on as soon as possible; with a rank, before those of a higher one."""
        self._put(key, ADDED if rank is None else RANKED, rank or 0)

    def sweep(self, keys: Iterable[K]) -> None:
        """Have many keys worked on that are not urgent."""
        for key in keys:
            self._put(key, SWEPT)

    def _put(self, key: K, lane: int, rank: float = 0) -> None:
        self._later.discard(key)
        if key in self._working:
            self._again[key] = min((lane, rank), self._again.get(key, (lane, rank)))
        elif not any(key in better for better in self._lanes[:lane]):
            for worse in self._lanes[lane + 1 :]:
                worse.discard(key)
            self._lanes[lane].add(key, rank)
            self._wake()

    def add_after(self, key: K, seconds: float) -> None:
        """Have *key* worked on after `seconds`, or earlier if something else asks for that."""
        if any(key in lane for lane in self._lanes):
            return
        if seconds > 0:
            due = self._pace.clock.monotonic() + seconds
            self._later.add(key, due)
            if self._later.least == due:
                self._watch_time()
        else:
            self.add(key)

    def requeue(self, key: K) -> float:
        """Have *key* worked on again after a failure; return the seconds until then.

        They double with each failure of the key, until `forget`.
        """
        backoff = self._backoffs.setdefault(key, self._new_backoff())
        wait = backoff.next()
        self.add_after(key, wait)
        return wait

    def failures(self, key: K) -> int:
        """Return how often *key* was requeued since it was last forgotten."""
        return self._backoffs[key].failures if key in self._backoffs else 0

    def forget(self, key: K) -> None:
        """Count the failures of *key* from zero again, after a success."""
        self._backoffs.pop(key, None)

    async def get(self) -> K:
        """Wait for the next key that is due. Call `done` with it, after success and failure."""
        while True:
            wait = self._promote()
            if any(self._lanes):
                return self._next()
            await self._wait(wait)

    async def _wait(self, seconds: float | None) -> None:
        """Wait for a key; of the waiting workers, only one looks at the time."""
        woken = asyncio.Event()
        keeps = self._keeper is None and seconds is not None
        if keeps:
            self._keeper = woken
        self._idle.insert(0 if keeps else len(self._idle), woken)  # the last is woken first
        try:
            await self._pace.wait(woken, seconds if keeps else None)
        except BaseException:
            if woken.is_set():
                self._wake()  # another worker takes the key that this one was woken for
            raise
        finally:
            if not woken.is_set():
                self._idle.remove(woken)
            if keeps:
                self._keeper = None
                self._watch_time()

    def _wake(self) -> None:
        """Wake one of the waiting workers: the others would find nothing."""
        if self._idle:
            self._idle.pop().set()

    def _watch_time(self) -> None:
        """Have a worker look anew when the next key is due."""
        if self._keeper is None:
            if self._later:
                self._wake()
        elif self._keeper in self._idle:
            self._idle.remove(self._keeper)
            self._keeper.set()

    def _next(self) -> K:
        turns = (*range(self._lane + 1, len(self._lanes)), *range(self._lane + 1))
        self._lane = next(lane for lane in turns if self._lanes[lane])
        key = self._lanes[self._lane].take()
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """Give *key* back; if it was added meanwhile, it is next in line again."""
        self._working.discard(key)
        if key in self._again:
            self._put(key, *self._again.pop(key))

    def _promote(self) -> float | None:
        """Move due keys to the ready ones; return the seconds until the next is due."""
        now = self._pace.clock.monotonic()
        while self._later:
            if self._later.least > now:
                return self._later.least - now
            self.add(self._later.take())
        return None
