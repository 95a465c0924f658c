"""Workloads whose admission was refused: tried again later each time, and not by each change."""

from policyd.alloc.workload import Objection
from policyd.api.meta import cut
from policyd.controller.watch.cache import Cache
from policyd.kube.errors import ApiError, ForbiddenError, InvalidError
from policyd.kube.events import MESSAGE_BYTES
from policyd.kube.pace import Backoff, Pace

FIRST_SECONDS = 0.05
LONGEST_SECONDS = 300.0


class HeldBack:
    """Keeps workloads from being tried again too soon."""

    def __init__(self, cache: Cache, pace: Pace) -> None:
        self._cache = cache
        self._pace = pace
        self._backoffs: dict[str, Backoff] = {}
        self._until: dict[str, float] = {}
        self._objections: dict[str, Objection] = {}

    def put(self, key: str, error: ApiError) -> Objection | None:
        """Take an admission back that was refused, and keep the workload from being tried.

        Returns what to tell, unless somebody was only faster.
        """
        backoff = self._backoffs.get(key)
        if backoff is None:
            # At first it goes back to its queue at once, as in Kueue.
            backoff = Backoff(FIRST_SECONDS, LONGEST_SECONDS, chance=self._pace.chance)
            self._backoffs[key] = backoff
        else:
            self._until[key] = self._pace.clock.monotonic() + backoff.next()
            self._cache.hold_back(key)
        self._cache.retract(key)
        if not isinstance(error, ForbiddenError | InvalidError):
            return None
        message = cut(f"the admission is refused: {error}", MESSAGE_BYTES, end="...")
        self._objections[key] = Objection(reason="Misconfigured", message=message)
        return self._objections[key]

    def objection(self, key: str) -> Objection | None:
        """Return why a workload is held back."""
        return self._objections.get(key)

    def look(self, key: str) -> float | None:
        """Let a workload be tried whose time has come; return the seconds to wait otherwise."""
        left = self._until.get(key, 0.0) - self._pace.clock.monotonic()
        if key in self._until and left > 0:
            return left
        self._until.pop(key, None)
        self._objections.pop(key, None)
        self._cache.let_try_again(key)
        return None

    def forget(self, key: str) -> None:
        """Begin with the first wait again: it was admitted, or is gone."""
        for each in (self._backoffs, self._until, self._objections):
            each.pop(key, None)
