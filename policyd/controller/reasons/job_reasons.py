"""Records on jobs why they are pending: an Event for each change of the reason.

`kubectl describe` on a job shows its Events, and not the condition of a Workload whose name the
user does not know. Kueue records nothing there, so these say more than its conditions may: that an
administrator stopped a queue, which queues exist, for which job this one was preempted.
"""

from collections.abc import Iterator

from policyd.alloc.plan import Preempt
from policyd.api.kueue import ClusterQueue, LocalQueue, Workload
from policyd.api.kueue.names import EVICTED, QUOTA_RESERVED
from policyd.api.meta import Condition, ObjectReference, find_condition
from policyd.controller.reasons.shortage import naming_for
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.index import local_queue_key
from policyd.controller.watch.preemptions import right_of
from policyd.controller.writes import Writes
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.resources import WORKLOADS
from policyd.status.queues import queue_status, stopped_since, stopped_text
from policyd.workload.obstacles import BYPASSED, CLEARED, PENDING

ROOM = 50
"""Events of ours that wait to be written at once: others must have room, too."""
MOST_OWNERS = 8
"""Pods of a group that get events."""
STATUS_SECONDS = 5.0
"""How long it is waited for that a queue's status says since when it is stopped."""
PREEMPTED_BY = "PreemptedBy"
_NO_REASONS = frozenset({PENDING, BYPASSED, CLEARED})
"""Messages that say nothing yet: the next will."""
_USUAL = frozenset(
    {
        "AdmissionGated",
        "OnHold",
        "Pending",
        "PendingEvaluation",
        "WaitingForPodsReady",
        "WaitingForPreemptedWorkloads",
        "WaitingForQuota",
    }
)
"""Reasons that need no action."""


class JobReasons:
    """Records on jobs the reasons of their workloads."""

    def __init__(self, cache: Cache, writes: Writes) -> None:
        self._cache = cache
        self._writes = writes
        self._new: dict[str, float] = {}
        self._preempted: dict[str, Preempt] = {}
        cache.mirrors.workloads.listen(self._changed)

    def drop(self) -> None:
        """Drop unrecorded events: another process leads from now on."""
        self._new.clear()
        self._preempted.clear()

    @property
    def waits(self) -> bool:
        """Whether events are due."""
        return bool(self._new or self._preempted)

    def preempted(self, action: Preempt) -> None:
        """Note that a workload was preempted."""
        self._preempted[action.workload.key] = action

    def flush(self) -> None:
        """Record the events that are due, as far as there is room for them."""
        for key, action in list(self._preempted.items())[: self._room]:
            del self._preempted[key]
            workload = self._cache.mirrors.workloads.get(key)
            if workload is not None:
                self._record_preempted(workload, action)
        for key, noted in list(self._new.items())[: self._room]:
            workload = self._cache.mirrors.workloads.get(key)
            if workload is None or self._record_reason(workload, noted):
                self._new.pop(key, None)

    @property
    def _room(self) -> int:
        return max(0, ROOM - self._writes.recorder.waiting)

    def _changed(self, change: Change[Workload]) -> None:
        match change:
            case Modified():
                self._note(change.old, change.object)
            case Added() | Deleted():  # as it was found: it has been recorded already
                pass

    def _note(self, old: Workload, new: Workload) -> None:
        before, after = _reason(old), _reason(new)
        if after and (before != after or _message(old) in _NO_REASONS):
            self._new[new.metadata.key] = self._writes.now
        elif not after:
            self._new.pop(new.metadata.key, None)

    def _record_reason(self, workload: Workload, noted: float) -> bool:
        """Tell a job why it waits, by a change that was noted then; False if it is unknown yet."""
        present = find_condition(workload.status.conditions, QUOTA_RESERVED)
        if present is None or not _reason(workload):
            return True
        evicted = find_condition(workload.status.conditions, EVICTED)
        if present.message in _NO_REASONS or (evicted and evicted.message == present.message):
            return False
        text = self._text(workload, present, noted)
        if text:
            self._record(workload, present.reason, text, warning=present.reason not in _USUAL)
        return bool(text)

    def _text(self, workload: Workload, present: Condition, noted: float) -> str:
        """Return why a job waits; "" if that is not known yet."""
        match present.reason:
            case "Misconfigured" | "Inadmissible":
                return self._misconfigured(workload) or present.message
            case "Suspended":
                return self._suspended(workload, present, noted)
            case _:
                return present.message

    def _misconfigured(self, workload: Workload) -> str:
        namespace, name = workload.metadata.namespace, workload.spec.queue_name
        if self._cache.mirrors.local_queues.get(local_queue_key(workload)) is not None:
            return ""
        queues = (queue.metadata for queue in self._cache.mirrors.local_queues)
        names = ", ".join(sorted(each.name for each in queues if each.namespace == namespace))
        return f"LocalQueue {name} doesn't exist; namespace {namespace} has {names or 'none'}"

    def _suspended(self, workload: Workload, present: Condition, noted: float) -> str:
        for queue in self._queues(workload):
            if queue.spec.stop_policy != "None":
                waited = self._writes.now - noted >= STATUS_SECONDS
                return stopped_text(queue) if waited or stopped_since(queue) else ""
            if isinstance(queue, ClusterQueue):
                found = queue_status(self._cache.state, queue.metadata.name)
                return f"{present.message}: {found.message}"
        return present.message

    def _queues(self, workload: Workload) -> Iterator[LocalQueue | ClusterQueue]:
        local_queue = self._cache.local_queue_of(workload)
        cluster_queue = self._cache.cluster_queue_of(workload)
        if local_queue is not None:
            yield local_queue
        if cluster_queue is not None:
            yield cluster_queue

    def _record_preempted(self, workload: Workload, action: Preempt) -> None:
        preemptor = naming_for(self._cache, workload.metadata.key).one(action.preemptor.key)
        text = f"preempted by {preemptor}, due to {right_of(action.reason)}"
        self._record(workload, PREEMPTED_BY, text, warning=False)
        self._writes.record(WORKLOADS, workload.metadata, PREEMPTED_BY, text)

    def _record(self, workload: Workload, reason: str, text: str, *, warning: bool) -> None:
        metadata = workload.metadata
        for owner in metadata.owner_references[:MOST_OWNERS]:
            about = ObjectReference(
                api_version=owner.api_version,
                kind=owner.kind,
                namespace=metadata.namespace,
                name=owner.name,
                uid=owner.uid,
            )
            self._writes.recorder.record(
                about, kind="Warning" if warning else "Normal", reason=reason, message=text
            )


def _reason(workload: Workload) -> str:
    """Return why a workload has no quota; "" if it has, or the reason is not known."""
    if has_quota(workload) or is_finished(workload):
        return ""
    present = find_condition(workload.status.conditions, QUOTA_RESERVED)
    return "" if present is None or present.status == "True" else present.reason


def _message(workload: Workload) -> str:
    present = find_condition(workload.status.conditions, QUOTA_RESERVED)
    return "" if present is None else present.message
