"""Whether the pods of workloads all run, where somebody waits for them.

That is the Configuration (waitForPodsReady), or a queue that wants gangs stopped that run short.

The condition PodsReady says so, in Kueue's words; since when it does is read from there, so that a
controller that is started again knows it too.
"""

from typing import Final

from policyd.api.kueue import Workload, WorkloadStatus
from policyd.api.kueue.names import EVICTED, PODS_READY
from policyd.api.meta import Condition, condition_true, find_condition
from policyd.controller.cache import Cache
from policyd.controller.keys import Key, owner_keys, workload_key
from policyd.controller.transitions import holding_queue, is_admitted, set_condition
from policyd.jobs.base import JobObject
from policyd.jobs.kinds import KINDS
from policyd.jobs.pods import Pod, PodGroup, by_age, group_name

STARTED: Final = Condition(
    PODS_READY, "True", "Started", "All pods reached readiness and the workload is running"
)
RECOVERING: Final = Condition(
    PODS_READY, "False", "WaitForRecovery", "At least one pod has failed, waiting for recovery"
)
STARTING: Final = Condition(
    PODS_READY, "False", "WaitForStart", "Not all pods are ready or succeeded"
)
_READY: Final = {kind.kind: kind.ready for kind in KINDS}


class Readiness:
    """Watches over the pods of workloads whose queues want that, or of all.

    Args:
        cache: What there is.
        every: Whether the pods of all workloads are waited for (waitForPodsReady).
    """

    def __init__(self, cache: Cache, *, every: bool = False) -> None:
        self._cache = cache
        self._every = every
        cache.mirrors.pods.listen(self._pod_changed)
        for jobs in cache.mirrors.jobs.values():
            jobs.listen(self._job_changed)

    def watched_status(
        self, workload: Workload, status: WorkloadStatus, *, now: float
    ) -> WorkloadStatus:
        """Return a status that also says whether enough pods run, if anybody wants to know."""
        if status != workload.status or not self._watches(workload):
            return status
        known = find_condition(status.conditions, PODS_READY)
        if not is_admitted(workload) or condition_true(status.conditions, EVICTED):
            return status if known is None else set_condition(workload, STARTING, now=now)
        if all(self._ready(key) for key in owner_keys(workload)):
            return set_condition(workload, STARTED, now=now)
        ran = known is not None and known.reason != STARTING.reason
        return set_condition(workload, RECOVERING, now=now) if ran else status

    def begun(self, workload: Workload, *, now: float) -> WorkloadStatus:
        """Return the status of a workload that has quota now, and whose pods are waited for."""
        known = find_condition(workload.status.conditions, PODS_READY)
        begins = self._every and known is None
        return set_condition(workload, STARTING, now=now) if begins else workload.status

    def _watches(self, workload: Workload) -> bool:
        if self._every:
            return True
        local_queue = self._cache.local_queue_of(workload)
        name = holding_queue(workload) or (local_queue and local_queue.spec.cluster_queue) or ""
        queue = self._cache.state.opted.get(name)
        return bool(queue and queue.spec and queue.spec.opt_ins.stale_seconds is not None)

    def _ready(self, key: Key) -> bool:
        if key.subject == "Job":
            job = self._cache.mirrors.jobs[key.kind].get(key.path)
            return job is None or _READY[key.kind](job)
        pods = by_age(self._cache.pods_of(key))
        group = PodGroup(name=key.name if key.subject == "PodGroup" else "", pods=tuple(pods))
        return bool(pods) and group.ready()

    def _job_changed(self, old: JobObject | None, new: JobObject | None) -> None:
        job = new or old
        if job is not None and (self._every or self._cache.state.opted):
            for workload in self._cache.workloads_of(job.metadata.uid):
                self._cache.ears.reconcile(workload_key(workload))

    def _pod_changed(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        watched = self._every or bool(self._cache.state.opted)
        if pod is not None and watched and group_name(pod.metadata):
            name = group_name(pod.metadata)
            self._cache.ears.reconcile(Key("Workload", pod.metadata.namespace, name))


def stale_message(seconds: float) -> str:
    """Say why a gang is stopped that ran short of pods for so many seconds."""
    return f"The gang has run with fewer pods than it needs for {int(seconds)}s"
