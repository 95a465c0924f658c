"""When the protection of a workload ends, those who waited for it are tried again."""

from policyd.api.kueue import Workload
from policyd.controller.watch.cache import Cache
from policyd.optimize.opt_ins import wants
from policyd.workload.transitions import holding_queue


class ProtectionTimer:
    """Lets those try again who waited for a workload whose protection ended."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._ahead: dict[str, int] = {}

    def left(self, workload: Workload, now: float) -> float | None:
        """Return the seconds until somebody more may preempt a workload; None if nobody will."""
        key, name = workload.metadata.key, holding_queue(workload)
        queue, holding = self._cache.state.queues.get(name), self._cache.state.holding(key)
        ends: list[float] = []
        if queue is not None and holding is not None:
            given, since = wants(queue.spec).protection, holding.workload.reserved_at
            lengths = {given.preemption, given.reclaim, given.repetition}
            ends = [end for length in lengths if (end := (since or now) + length) > now]
        if len(ends) < self._ahead.pop(key, 0):
            self._cache.state.wake(name)
            self._cache.ears.schedule()
        if not ends:
            return None
        self._ahead[key] = len(ends)
        return min(ends) - now
