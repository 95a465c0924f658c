"""Keys that wait to be reconciled: each once, some later, failed ones later still.

A key that is added while it waits is not added twice. A key that is added while it is worked on
comes again after `done`, because the work began before the change. One worker at a time has a key.

What is swept, everything there is, takes turns with what was added: it does not wait for ever, and
nobody waits for all of it.
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
            first_wait_seconds, longest_wait_seconds, chance=self._pace.chance
        )
        self._ready: dict[K, None] = {}
        self._swept: dict[K, None] = {}
        self._sweeps = False
        self._later: list[tuple[float, int, K]] = []
        self._due_at: dict[K, float] = {}
        self._numbers = count()
        self._working: set[K] = set()
        self._again: set[K] = set()
        self._backoffs: dict[K, Backoff] = {}
        self._woken = asyncio.Event()

    def __len__(self) -> int:
        """Return how many keys wait, the later ones included."""
        return len(self._ready) + len(self._swept) + len(self._due_at) + len(self._again)

    def add(self, key: K) -> None:
        """Have *key* worked on as soon as possible."""
        self._due_at.pop(key, None)
        self._swept.pop(key, None)
        if key in self._working:
            self._again.add(key)
        else:
            self._ready[key] = None
            self._woken.set()

    def sweep(self, keys: Iterable[K]) -> None:
        """Have many keys worked on that are not urgent, in turns with those that are added."""
        for key in keys:
            if key in self._working:
                self._again.add(key)
            elif key not in self._ready:
                self._due_at.pop(key, None)
                self._swept[key] = None
        self._woken.set()

    def add_after(self, key: K, seconds: float) -> None:
        """Have *key* worked on after `seconds`, or earlier if something else asks for that."""
        due_at = self._pace.clock.monotonic() + seconds
        waits = key in self._ready or key in self._swept
        if waits or self._due_at.get(key, float("inf")) <= due_at:
            return
        if seconds <= 0:
            self.add(key)
            return
        self._due_at[key] = due_at
        heapq.heappush(self._later, (due_at, next(self._numbers), key))
        self._woken.set()

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
        """Wait for the next key that is due. Call `done` with it, whatever comes of the work."""
        while True:
            self._woken.clear()
            wait = self._promote()
            if self._ready or self._swept:
                return self._next()
            await self._pace.wait(self._woken, wait)

    def _next(self) -> K:
        self._sweeps = bool(self._swept) and not (self._ready and self._sweeps)
        waiting = self._swept if self._sweeps else self._ready
        key = next(iter(waiting))
        del waiting[key]
        self._working.add(key)
        return key

    def done(self, key: K) -> None:
        """Give *key* back; if it was added meanwhile, it is next in line again."""
        self._working.discard(key)
        if key in self._again:
            self._again.remove(key)
            self.add(key)
        elif key in self._due_at:
            self._woken.set()

    def _promote(self) -> float | None:
        """Move what is due to what is ready; return the seconds until the next is due."""
        now = self._pace.clock.monotonic()
        while self._later:
            due_at, _, key = self._later[0]
            if self._due_at.get(key) == due_at:
                if due_at > now:
                    return due_at - now
                self.add(key)
            heapq.heappop(self._later)
        return None
