"""Workloads whose pods must become ready: all (waitForPodsReady), or those of some queues."""

from policyd.api.kueue import Workload, WorkloadStatus
from policyd.api.kueue.names import PODS_READY
from policyd.api.meta import find_condition
from policyd.controller.watch.cache import Cache
from policyd.jobs.lifecycle import has_quota
from policyd.jobs.readiness import STARTING
from policyd.workload.transitions import holding_queue, set_condition


class AwaitedPods:
    """Knows the workloads whose pods must become ready.

    Args:
        cache: The queues and workloads.
        every: Whether the pods of all workloads must (waitForPodsReady).
    """

    def __init__(self, cache: Cache, *, every: bool = False) -> None:
        self._cache = cache
        self._every = every

    def begun(self, workload: Workload, *, now: float) -> WorkloadStatus:
        """Return a workload's status with the note that its pods begin, if they are waited for.

        It is part of the first write of a workload's status, so that it costs none of its own.
        """
        known = find_condition(workload.status.conditions, PODS_READY)
        begins = self._every and known is None
        return set_condition(workload, STARTING, now=now) if begins else workload.status

    def watches(self, workload: Workload) -> bool:
        """Tell whether the condition PodsReady of a workload is kept up to date.

        It is not before the workload ever had quota: its first PodsReady says that pods start.
        """
        conditions = workload.status.conditions
        if find_condition(conditions, PODS_READY) is None and not has_quota(workload):
            return False
        if self._every:
            return True
        local_queue = self._cache.local_queue_of(workload)
        name = holding_queue(workload) or (local_queue and local_queue.spec.cluster_queue) or ""
        return self._cache.opt_ins(name).stale_seconds is not None


def stale_message(seconds: float) -> str:
    """Say why a gang is stopped that ran short of pods for so many seconds."""
    return f"The gang has run with fewer pods than it needs for {int(seconds)}s"
