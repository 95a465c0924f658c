"""Events and log lines about workloads and their jobs."""

from typing import Final

import structlog

from policyd.api.kueue import Workload
from policyd.api.kueue.names import (
    ADMISSION_GATED_BY,
    ADMITTED,
    DEACTIVATION_TARGET,
    EVICTED,
    QUOTA_RESERVED,
)
from policyd.api.meta import ObjectMeta, condition_true, find_condition
from policyd.controller.writes import Writes
from policyd.jobs.lifecycle import has_quota
from policyd.kube.resources import WORKLOADS, Resource
from policyd.status.naming import Naming
from policyd.workload.transitions import holding_queue, is_admitted, queued_since

log = structlog.get_logger()

MOST_REMEMBERED = 10_000
"""Workloads whose end was recorded, until it is not asked for any more."""

_TARGETS: Final = {
    "AdmissionCheck": ("AdmissionCheckRejected", "Deactivated due to {message}"),
    "MaximumExecutionTimeExceeded": (
        "MaximumExecutionTimeExceeded",
        "The maximum execution time ({limit}s) exceeded",
    ),
}
"""Events of a workload that is to be stopped for good, by the reason of its condition."""


class WorkloadEvents:
    """Records events on workloads whose status was written."""

    def __init__(self, writes: Writes) -> None:
        self._writes = writes

    def reserved(
        self, before: Workload, workload: Workload, *, now: float, considered: str
    ) -> None:
        """Record that a workload got quota.

        Args:
            before: As it was while it waited.
            workload: As it is.
            now: When, in seconds since the epoch.
            considered: Flavors that did not simply fit; "" for none.
        """
        admission = workload.status.admission
        if admission is None:
            return
        self._record_gates(before, workload)
        waited, queue = max(0, int(now - queued_since(before))), admission.cluster_queue
        log.info("quota_reserved", workload=workload.metadata.key, cluster_queue=queue)
        message = f"Quota reserved in ClusterQueue {queue}, wait time since queued was {waited}s"
        if considered:
            message += f"; Flavors considered: {considered}"
        self._writes.record(WORKLOADS, workload.metadata, "QuotaReserved", message)
        if is_admitted(workload):
            self._admitted(workload)

    def changes(self, before: Workload, after: Workload) -> None:
        """Record that a workload was admitted, evicted, gated or is to be stopped, if it was."""
        if is_admitted(after) and not is_admitted(before):
            self._admitted(after)
        self._record_targets(before, after)
        self._record_gates(before, after)
        eviction = find_condition(after.status.conditions, EVICTED)
        if eviction is None or eviction.status != "True":
            return
        if has_quota(before) and not condition_true(before.status.conditions, EVICTED):
            self._evicted(after, eviction.reason, eviction.message)

    def preempted(self, victim: Workload, message: str) -> None:
        """Record on a workload that it was preempted."""
        self._writes.record(WORKLOADS, victim.metadata, "Preempted", message)

    def preempting(
        self, preemptor: Workload, victim: Workload, important: str, *, naming: Naming
    ) -> None:
        """Record on a workload which one it preempted, and the priorities of both."""
        metadata, queue = victim.metadata, holding_queue(victim)
        what = naming.one(metadata.key)
        if naming.names(metadata.key):
            what = f"workload {metadata.key} (UID: {metadata.uid})"
        message = f"Preempted {what} in ClusterQueue {queue}; {important}"
        self._writes.record(WORKLOADS, preemptor.metadata, "PreemptedWorkload", message)

    def _record_targets(self, before: Workload, after: Workload) -> None:
        """Record why a workload is to be stopped for good."""
        target = find_condition(after.status.conditions, DEACTIVATION_TARGET)
        known = condition_true(before.status.conditions, DEACTIVATION_TARGET)
        if target is None or known or target.reason not in _TARGETS:
            return
        event, what = _TARGETS[target.reason]
        limit = after.spec.maximum_execution_time_seconds
        message = what.format(message=target.message, limit=limit)
        self._writes.record(WORKLOADS, after.metadata, event, message, warning=True)

    def _record_gates(self, before: Workload, after: Workload) -> None:
        was, now = (
            find_condition(each.status.conditions, QUOTA_RESERVED) for each in (before, after)
        )
        gated = [each is not None and each.reason == "AdmissionGated" for each in (was, now)]
        gates = after.metadata.annotations.get(ADMISSION_GATED_BY, "")
        if gated == [False, True]:
            message = f"Workload admission is gated by: {gates}"
            self._writes.record(WORKLOADS, after.metadata, "AdmissionGated", message)
        elif gated == [True, False] and not gates:
            message = "Admission gate cleared, workload is now admissible"
            self._writes.record(WORKLOADS, after.metadata, "AdmissionGateCleared", message)

    def _admitted(self, workload: Workload) -> None:
        admission = workload.status.admission
        reserved = find_condition(workload.status.conditions, QUOTA_RESERVED)
        admitted = find_condition(workload.status.conditions, ADMITTED)
        if admission is None or reserved is None or admitted is None:
            return
        queue, waited = admission.cluster_queue, 0
        if reserved.last_transition_time and admitted.last_transition_time:
            passed = admitted.last_transition_time - reserved.last_transition_time
            waited = max(0, int(passed.total_seconds()))
        log.info("workload_admitted", workload=workload.metadata.key, cluster_queue=queue)
        self._writes.record(
            WORKLOADS,
            workload.metadata,
            "Admitted",
            f"Admitted by ClusterQueue {queue}, wait time since reservation was {waited}s",
        )

    def _evicted(self, workload: Workload, reason: str, message: str) -> None:
        log.info("workload_evicted", workload=workload.metadata.key, reason=reason)
        self._writes.record(WORKLOADS, workload.metadata, f"EvictedDueTo{reason}", message)


class JobEvents:
    """Records events on jobs about their workloads."""

    def __init__(self, writes: Writes) -> None:
        self._writes = writes
        self._recorded: dict[str, str] = {}
        self._ended: dict[str, None] = {}

    def started(self, resource: Resource, job: ObjectMeta, workload: Workload) -> None:
        """Record that a job was started, and in which ClusterQueue."""
        message = f"Admitted by clusterQueue {holding_queue(workload)}"
        self._writes.record(resource, job, "Started", message)

    def finished(self, resource: Resource, job: ObjectMeta, workload: Workload) -> None:
        """Record once that the workload of a job has finished: when that is written, or found."""
        uid = workload.metadata.uid
        if uid in self._ended:
            return
        self._ended[uid] = None
        if len(self._ended) > MOST_REMEMBERED:
            self._ended.pop(next(iter(self._ended)))
        message = f"Workload '{workload.metadata.key}' is declared finished"
        self._writes.record(resource, job, "FinishedWorkload", message)

    def checks(self, resource: Resource, job: ObjectMeta, workload: Workload | None) -> None:
        """Record the messages of pending admission checks on a job, whenever they change."""
        checks = () if workload is None else workload.status.admission_checks
        pending = (check for check in checks if check.state == "Pending" and check.message)
        message = "; ".join(f"{check.name}: {check.message}" for check in pending)
        if message and self._recorded.get(job.uid) != message:
            self._writes.record(resource, job, "UpdatedAdmissionCheck", message)
            self._recorded[job.uid] = message
        elif not message:
            self._recorded.pop(job.uid, None)
