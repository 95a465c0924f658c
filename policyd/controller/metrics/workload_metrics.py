"""Metrics of workloads, by Kueue's names, counted as their conditions change in the watch."""

from collections.abc import Callable

from policyd.alloc.fair_sharing import above
from policyd.api.kueue import ClusterQueue, Cohort, LocalQueue, Workload
from policyd.api.kueue.names import ADMITTED, EVICTED, FINISHED, PODS_READY, QUOTA_RESERVED
from policyd.api.meta import ObjectMeta, condition_true, find_condition
from policyd.controller.metrics.counters import FAMILIES, ControllerMetrics, MetricsSettings
from policyd.controller.metrics.custom_labels import CustomLabels
from policyd.controller.metrics.series_bounds import OTHER
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.index import local_queue_key
from policyd.jobs.pods import QueuedPod, group_name
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.workload.transitions import (
    became_true,
    eviction_end,
    execution_seconds,
    holding_queue,
    latest_eviction,
    queued_since,
    time_of,
    waiting_since,
)

SLICE_REPLACED = "WorkloadSliceReplaced"
_LEFT_OUT = {
    "parent": frozenset({QUOTA_RESERVED, ADMITTED, EVICTED}),
    "variant": frozenset({PODS_READY, FINISHED}),
}
"""What is not counted of a workload, as it is counted of its variants, or of its parent."""


class WorkloadMetrics:
    """Counts changes of workloads while this process leads."""

    def __init__(
        self,
        cache: Cache,
        metrics: ControllerMetrics,
        *,
        leading: Callable[[], bool],
        settings: MetricsSettings,
    ) -> None:
        self._cache = cache
        self._metrics = metrics
        self._leading = leading
        self._settings = settings
        self._custom = CustomLabels(cache.mirrors, settings.custom)
        self._counters_of = {
            QUOTA_RESERVED: self._reserved,
            ADMITTED: self._admitted,
            PODS_READY: self._ready,
            EVICTED: self._evicted,
            FINISHED: self._finished,
        }
        cache.mirrors.workloads.listen(self._changed)
        cache.mirrors.cluster_queues.listen(self._queue_changed)
        cache.mirrors.local_queues.listen(self._local_queue_changed)
        cache.mirrors.cohorts.listen(self._cohort_changed)

    def has_metrics(self, queue: LocalQueue | None) -> bool:
        """Tell whether a LocalQueue has metrics of its own."""
        settings = self._settings
        if queue is None or not settings.local_queues:
            return False
        return settings.selector is None or settings.selector.matches(queue.metadata.labels)

    def workload_created(self, kind: str, job: ObjectMeta) -> None:
        """Observe how long after a job its workload was made."""
        if self._settings.creation and job.creation_timestamp is not None:
            took = max(0.0, self._cache.now - job.creation_timestamp.timestamp())
            self._metrics.observe("workload_creation_latency_seconds", took, kind)

    def ungated(self, gate: str, pod: QueuedPod, workload: Workload) -> None:
        """Observe how long after the admission of its workload a pod lost a gate."""
        admitted, queue = time_of(workload, ADMITTED), holding_queue(workload)
        if admitted is not None and queue:
            labels = gate, queue, "true" if group_name(pod.metadata) else "false"
            took = max(0.0, self._cache.now - admitted)
            self._took("pod_scheduling_gate_removal_seconds", took, workload, labels)

    def _changed(self, change: Change[Workload]) -> None:
        match change:
            case Modified():
                if self._leading():
                    self._count_changes(change.old, change.object)
            case Added() | Deleted():
                pass

    def _count_changes(self, old: Workload, new: Workload) -> None:
        before, after = old.status.conditions, new.status.conditions
        if before is after or before == after:
            return
        left_out = _LEFT_OUT.get(self._cache.role_of(new), frozenset())
        for kind in became_true(before, after):
            if kind in self._counters_of and kind not in left_out:
                self._counters_of[kind](old, new)
        if condition_true(after, EVICTED) and EVICTED not in left_out:
            end = eviction_end(old, new, now=self._cache.now)
            if end is not None:
                labels = end.cluster_queue, end.reason
                self._took("workload_eviction_latency_seconds", end.seconds, new, labels)

    def _reserved(self, old: Workload, new: Workload) -> None:
        self._count("quota_reserved_workloads_total", new)
        self._observe("quota_reserved_wait_time_seconds", new, QUOTA_RESERVED, queued_since(old))

    def _admitted(self, _old: Workload, new: Workload) -> None:
        self._count("admitted_workloads_total", new)
        self._observe("admission_wait_time_seconds", new, ADMITTED, waiting_since(new))
        reserved = time_of(new, QUOTA_RESERVED)
        self._observe("admission_checks_wait_time_seconds", new, ADMITTED, reserved)
        node = self._cache.state.tree.hierarchy.queues.get(holding_queue(new))
        if self._settings.cohorts and node is not None and not node.cyclic:
            for cohort in above(node):
                labels = cohort.name, self._class_of(new)
                self._add("cohort_subtree_admitted_workloads_total", new, labels)

    def _ready(self, old: Workload, new: Workload) -> None:
        before = find_condition(old.status.conditions, PODS_READY)
        if before is not None and before.reason == "WaitForRecovery":
            return  # they were ready before
        self._observe("ready_wait_time_seconds", new, PODS_READY, waiting_since(new))
        admitted = time_of(new, ADMITTED)
        self._observe("admitted_until_ready_wait_time_seconds", new, PODS_READY, admitted)

    def _evicted(self, old: Workload, new: Workload) -> None:
        counted, queue = latest_eviction(old, new), holding_queue(old)
        if counted is None or not queue:
            return
        labels = counted.reason, counted.underlying_cause
        self._count("evicted_workloads_total", new, *labels, queue=queue)
        if counted.count == 1:
            once = queue, *labels, self._class_of(new)
            self._add("evicted_workloads_once_total", new, once)
        evicted, ready = time_of(new, EVICTED), time_of(old, PODS_READY)
        if condition_true(old.status.conditions, PODS_READY) and evicted and ready:
            took = max(0.0, evicted - ready)
            self._took("pods_ready_to_evicted_time_seconds", took, new, (queue, *labels))

    def _finished(self, old: Workload, new: Workload) -> None:
        queue = holding_queue(new) or holding_queue(old) or self._queue_of(new)
        self._count("finished_workloads_total", new, queue=queue)
        took, finished = execution_seconds(new), find_condition(new.status.conditions, FINISHED)
        if took is not None:
            for name, labels in self._owners("execution_time_seconds", new, queue):
                self._took(name, took, new, (*labels, self._class_of(new)))
        if finished is not None and finished.reason == SLICE_REPLACED and queue:
            self._add("replaced_workload_slices_total", new, (queue,))

    def _count(self, name: str, workload: Workload, *labels: str, queue: str = "") -> None:
        queue = queue or holding_queue(workload)
        for whole, owner in self._owners(name, workload, queue):
            self._add(whole, workload, (*owner, *labels, self._class_of(workload)))

    def _observe(self, name: str, workload: Workload, kind: str, since: float | None) -> None:
        """Observe how long it took until a condition became true."""
        until = time_of(workload, kind)
        if since is None or until is None:
            return
        for whole, owner in self._owners(name, workload, holding_queue(workload)):
            took = max(0.0, until - since)
            self._took(whole, took, workload, (*owner, self._class_of(workload)))

    def _add(self, name: str, workload: Workload, labels: tuple[str, ...]) -> None:
        more = self._custom.of(FAMILIES[name], labels, workload)
        self._metrics.count(name, *labels, *more)

    def _took(self, name: str, seconds: float, workload: Workload, labels: tuple[str, ...]) -> None:
        more = self._custom.of(FAMILIES[name], labels, workload)
        self._metrics.observe(name, seconds, *labels, *more)

    def _owners(
        self, name: str, workload: Workload, queue: str
    ) -> list[tuple[str, tuple[str, ...]]]:
        """Return the families that a name stands for, each with the labels of its queue."""
        found: list[tuple[str, tuple[str, ...]]] = [(name, (queue,))] if queue else []
        local_queue = self._cache.mirrors.local_queues.get(local_queue_key(workload))
        if self.has_metrics(local_queue):
            labels = workload.spec.queue_name, workload.metadata.namespace
            found.append((f"local_queue_{name}", labels))
        return found

    def _class_of(self, workload: Workload) -> str:
        """Return the name of a priority class that exists: others are what a user has written."""
        reference, mirrors = workload.spec.priority_class_ref, self._cache.mirrors
        if reference is None:
            return ""
        name = reference.name
        known = mirrors.priorities.get(name) or mirrors.priority_classes.get(name)
        return OTHER if known is None else name

    def _queue_of(self, workload: Workload) -> str:
        local_queue = self._cache.local_queue_of(workload)
        return "" if local_queue is None else local_queue.spec.cluster_queue

    def _queue_changed(self, change: Change[ClusterQueue]) -> None:
        match change:
            case Modified(old):
                self._forget_unnamed(old.spec.cohort_name)
            case Deleted(old):
                self._metrics.forget(cluster_queue=old.metadata.name)
                self._metrics.forget(preempting_cluster_queue=old.metadata.name)
                self._forget_unnamed(old.spec.cohort_name)
            case Added():
                pass

    def _local_queue_changed(self, change: Change[LocalQueue]) -> None:
        match change:
            case Added():
                return
            case Modified(object=new) if self.has_metrics(new):
                return
            case Modified() | Deleted():
                metadata = change.object.metadata
                self._metrics.forget(name=metadata.name, namespace=metadata.namespace)

    def _cohort_changed(self, change: Change[Cohort]) -> None:
        match change:
            case Modified(old):
                self._forget_unnamed(old.spec.parent_name)
            case Deleted(old):
                self._metrics.forget(cohort=old.metadata.name)
                self._forget_unnamed(old.spec.parent_name)
            case Added():
                pass

    def _forget_unnamed(self, cohort: str) -> None:
        """Drop the counts of a cohort that has no object, and that no object names any more."""
        mirrors = self._cache.mirrors
        queues = (each.spec.cohort_name for each in mirrors.cluster_queues)
        cohorts = (each.spec.parent_name for each in mirrors.cohorts)
        known = mirrors.cohorts.get(cohort) is not None
        if cohort and not known and cohort not in {*queues, *cohorts}:
            self._metrics.forget(cohort=cohort)
