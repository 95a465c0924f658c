"""Changes of a workload's status: conditions, reasons and messages as Kueue writes them.

Most functions take a workload and return the status it then has; the last ones compare two versions
of a workload. The time is an argument, so that nothing here depends on when it runs.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

from policyd.api.kueue import (
    Admission,
    AdmissionCheckState,
    EvictionCount,
    PodSetRequest,
    PreemptionGateState,
    SchedulingStats,
    Workload,
    WorkloadStatus,
)
from policyd.api.kueue.names import (
    ADMITTED,
    DEACTIVATION_TARGET,
    EVICTED,
    FINISHED,
    PREEMPTED,
    QUOTA_RESERVED,
    REQUEUED,
)
from policyd.api.meta import (
    Condition,
    condition_true,
    cut,
    find_condition,
    timestamp,
    with_condition,
    without_condition,
)
from policyd.jobs.base import controller_of, is_pod
from policyd.jobs.lifecycle import ON_HOLD, has_quota, is_finished
from policyd.status.quantities import format_amount

MESSAGE_BYTES = 32 * 1024
"""Longest message of a condition."""

BLOCKED_ON_GATES = "BlockedOnPreemptionGates"
_ALWAYS_WRITTEN = frozenset({"AdmissionGated", "Inadmissible", ON_HOLD})
"""Reasons that are always written. By its reason alone is known what waits for its job."""
_REQUEUED_AT_ONCE = frozenset({"Preempted", "NodeFailures", "StaleGang", "FlavorMigration"})

Status = Literal["True", "False"]


def set_condition(workload: Workload, condition: Condition, *, now: float) -> WorkloadStatus:
    """Return the workload's status with one condition set; its time and generation are filled in.

    An equal condition stays as it is.
    """
    old = find_condition(workload.status.conditions, condition.type)
    if old is not None and _content(old) == _content(condition):
        return workload.status
    stamped = msgspec.structs.replace(
        condition,
        message=cut(condition.message, MESSAGE_BYTES, end=" ..."),
        last_transition_time=timestamp(now),
        observed_generation=workload.metadata.generation,
    )
    return msgspec.structs.replace(
        workload.status, conditions=with_condition(workload.status.conditions, stamped)
    )


def _content(condition: Condition) -> tuple[str, str, str]:
    return condition.status, condition.reason, condition.message


def with_status(workload: Workload, status: WorkloadStatus) -> Workload:
    """Return the workload with another status."""
    return msgspec.structs.replace(workload, status=status)


def reserve(
    workload: Workload, admission: Admission, *, now: float, detailed: bool = True
) -> WorkloadStatus:
    """Reserve quota; without checks to wait for, admit at once.

    `detailed` as in `sync_admitted`.
    """
    message = f"Quota reserved in ClusterQueue {admission.cluster_queue}"
    reserved = Condition(QUOTA_RESERVED, "True", "QuotaReserved", message)
    status = set_condition(workload, reserved, now=now)
    status = msgspec.structs.replace(status, admission=admission, resource_requests=())
    workload = with_status(workload, status)
    for kind in (EVICTED, PREEMPTED, BLOCKED_ON_GATES):
        old = find_condition(workload.status.conditions, kind)
        if old is not None and old.status == "True":
            over = Condition(kind, "False", "QuotaReserved", f"Previously: {old.message}")
            workload = with_status(workload, set_condition(workload, over, now=now))
    return sync_admitted(workload, now=now, detailed=detailed)


def release(
    workload: Workload, *, reason: str, message: str, now: float, detailed: bool = True
) -> WorkloadStatus:
    """Take the reservation away; the workload is pending. `detailed` as in `sync_admitted`."""
    pending = Condition(QUOTA_RESERVED, "False", written_reason(reason, detailed=detailed), message)
    status = set_condition(workload, pending, now=now)
    if status.admission is not None:
        status = msgspec.structs.replace(status, admission=None)
    return sync_admitted(with_status(workload, status), now=now, detailed=detailed)


def written_reason(reason: str, *, detailed: bool) -> str:
    """Return the reason of a workload that has no quota; without detail there are only two."""
    if detailed or reason in _ALWAYS_WRITTEN:
        return reason
    return "Waiting" if reason == "WaitingForPodsReady" else "Pending"


def with_requests(
    status: WorkloadStatus, requests: Mapping[str, Mapping[str, int]]
) -> WorkloadStatus:
    """Return the status of a pending workload with its requests.

    Args:
        status: The status.
        requests: By pod set and resource, in canonical units.
    """
    needed = tuple(
        PodSetRequest(
            name=name, resources={r: format_amount(r, amount) for r, amount in totals.items()}
        )
        for name, totals in requests.items()
    )
    if status.resource_requests == needed:
        return status
    return msgspec.structs.replace(status, resource_requests=needed)


def sync_admitted(workload: Workload, *, now: float, detailed: bool = True) -> WorkloadStatus:
    """Set whether a workload is admitted: it is once it has quota and all checks are ready.

    Args:
        workload: The workload.
        now: Seconds since the epoch.
        detailed: Whether the reason is written whenever it is not admitted, and not only when it no
            longer is (gate UnadmittedWorkloadsObservability).
    """
    reserved = find_condition(workload.status.conditions, QUOTA_RESERVED)
    before = find_condition(workload.status.conditions, ADMITTED)
    if reserved is None and before is None:
        return workload.status
    has_quota = reserved is not None and reserved.status == "True"
    status, reason, message = _admitted(workload, reserved=has_quota, detailed=detailed)
    was = "False" if before is None else before.status
    current = before is not None and (status == "True" or before.reason == reason)
    if status == was and (current or not detailed):
        return workload.status
    new = set_condition(workload, Condition(ADMITTED, status, reason, message), now=now)
    if before is None or before.status != "True" or status == "True":
        return new
    since = before.last_transition_time
    ran = 0 if since is None else max(0, int(now - since.timestamp()))
    total = (new.accumulated_past_execution_time_seconds or 0) + ran
    return msgspec.structs.replace(new, accumulated_past_execution_time_seconds=total)


def _admitted(workload: Workload, *, reserved: bool, detailed: bool) -> tuple[Status, str, str]:
    ready = all(check.state == "Ready" for check in workload.status.admission_checks)
    if not (reserved or ready or detailed):
        message = "The workload has no reservation and not all checks ready"
        return "False", "NoReservationUnsatisfiedChecks", message
    if not reserved:
        return "False", "NoReservation", "The workload has no reservation"
    if not ready:
        reason = "UnsatisfiedAdmissionChecks" if detailed else "UnsatisfiedChecks"
        return "False", reason, "The workload has not all checks ready"
    admission = workload.status.admission
    assignments = () if admission is None else admission.pod_set_assignments
    if any(each.delayed_topology_request == "Pending" for each in assignments):
        message = "There are pending delayed topology requests"
        return "False", "PendingDelayedTopologyRequests", message
    return "True", "Admitted", "The workload is admitted"


def evict(
    workload: Workload, *, reason: str, message: str, now: float, cause: str = ""
) -> WorkloadStatus:
    """Begin to stop a workload; it keeps its quota until its job has stopped.

    The cause of a deactivation is in the reason; any other cause is only counted.
    """
    full_reason = f"{reason}DueTo{cause}" if cause and reason == "Deactivated" else reason
    status = set_condition(workload, Condition(EVICTED, "True", full_reason, message), now=now)
    if condition_true(status.conditions, BLOCKED_ON_GATES):
        opened = Condition(BLOCKED_ON_GATES, "False", full_reason, message)
        status = set_condition(with_status(workload, status), opened, now=now)
    return msgspec.structs.replace(
        status,
        admission_checks=tuple(_reset(check, now) for check in status.admission_checks),
        scheduling_stats=_counted(status.scheduling_stats, reason, cause),
        cluster_name=None,
        nominated_cluster_names=(),
        unhealthy_nodes=(),
        preemption_gates=tuple(_closed(gate, now) for gate in status.preemption_gates),
    )


def _closed(gate: PreemptionGateState, now: float) -> PreemptionGateState:
    if gate.position == "Closed":
        return gate
    return PreemptionGateState(gate.name, "Closed", timestamp(now))


def _reset(check: AdmissionCheckState, now: float) -> AdmissionCheckState:
    if check.state == "Pending":
        return check
    return AdmissionCheckState(
        name=check.name,
        state="Pending",
        last_transition_time=timestamp(now),
        message=f"Reset to Pending after eviction. Previously: {check.state}",
        requeue_after_seconds=check.requeue_after_seconds,
        retry_count=(check.retry_count or 0) + 1 if check.state == "Retry" else None,
    )


def _counted(stats: SchedulingStats | None, reason: str, cause: str) -> SchedulingStats:
    counts = {(e.reason, e.underlying_cause): e for e in (stats.evictions if stats else ())}
    old = counts.get((reason, cause))
    counts[reason, cause] = EvictionCount(
        reason=reason, underlying_cause=cause, count=1 if old is None else old.count + 1
    )
    return SchedulingStats(evictions=tuple(counts.values()))


def after_eviction(
    workload: Workload, *, now: float, detailed: bool = True, spares_pods: bool = True
) -> WorkloadStatus:
    """Give the quota of an evicted workload back, now that its job has stopped.

    A workload of a pod does not queue again if it `spares_pods`, as the pod was deleted (gate
    SkipReassignmentForPodOwnedWorkloads). `detailed` as in `sync_admitted`.
    """
    eviction = find_condition(workload.status.conditions, EVICTED)
    assert eviction is not None, "only what was evicted is released like this"
    gone = spares_pods and _is_of_pod(workload)
    at_once = eviction.reason in _REQUEUED_AT_ONCE and not gone
    requeued = Condition(
        REQUEUED, "True" if at_once else "False", eviction.reason, eviction.message
    )
    status = set_condition(workload, requeued, now=now)
    # An answer that came while the job stopped was for the reservation that ends here.
    checks = tuple(
        _reset(each, now) if each.failed or _answered_since(each, eviction) else each
        for each in status.admission_checks
    )
    return release(
        with_status(workload, msgspec.structs.replace(status, admission_checks=checks)),
        reason="PendingEvaluation",
        message=eviction.message,
        now=now,
        detailed=detailed,
    )


def _answered_since(check: AdmissionCheckState, eviction: Condition) -> bool:
    """Tell whether a check was answered since an eviction, which had reset it."""
    answered, evicted = check.last_transition_time, eviction.last_transition_time
    return answered is not None and evicted is not None and answered >= evicted


def _is_of_pod(workload: Workload) -> bool:
    """Tell whether a workload stands for one pod; that of a group can be replaced."""
    owner = controller_of(workload.metadata)
    return owner is not None and is_pod(owner)


def finish(workload: Workload, *, reason: str, message: str, now: float) -> WorkloadStatus:
    """Declare a workload finished; one that is stays as it ended."""
    if condition_true(workload.status.conditions, FINISHED):
        return workload.status
    return set_condition(workload, Condition(FINISHED, "True", reason, message), now=now)


def requeue(workload: Workload, *, reason: str, message: str, now: float) -> WorkloadStatus:
    """Let a workload queue again that had to wait for something else than quota."""
    return set_condition(workload, Condition(REQUEUED, "True", reason, message), now=now)


def without_deactivation(status: WorkloadStatus) -> WorkloadStatus:
    """Drop the cause of a deactivation, now that it is carried out."""
    kept = without_condition(status.conditions, DEACTIVATION_TARGET)
    return msgspec.structs.replace(status, conditions=kept, requeue_state=None)


def queued_since(workload: Workload) -> float:
    """Return when a workload began to wait: when it was created, or last evicted or requeued."""
    created = workload.metadata.creation_timestamp
    moments = [created.timestamp() if created else 0.0]
    for kind in (EVICTED, REQUEUED):
        condition = find_condition(workload.status.conditions, kind)
        if condition is not None and condition.last_transition_time is not None:
            moments.append(condition.last_transition_time.timestamp())
    return max(moments)


def holding_queue(workload: Workload) -> str:
    """Return the ClusterQueue that a workload holds quota of; empty if of none."""
    admission = workload.status.admission
    return "" if admission is None else admission.cluster_queue


def is_admitted(workload: Workload) -> bool:
    """Tell whether a workload may run."""
    return condition_true(workload.status.conditions, ADMITTED)


Phase = Literal["pending", "quotaReserved", "admitted", "finished"]


class EvictionEnd(NamedTuple):
    """An eviction whose quota was given back: where, why, and after how many seconds."""

    cluster_queue: str
    reason: str
    seconds: float


def phase_of(workload: Workload) -> Phase:
    """Return how far a workload has come."""
    if is_finished(workload):
        return "finished"
    if is_admitted(workload):
        return "admitted"
    return "quotaReserved" if has_quota(workload) else "pending"


def fell_back(before: Phase, after: Phase) -> bool:
    """Tell whether a workload that had quota waits for it again."""
    return before in {"quotaReserved", "admitted"} and after == "pending"


def eviction_end(before: Workload, after: Workload, *, now: float) -> EvictionEnd | None:
    """Return the eviction that ended between two looks at a workload; None if none did.

    Args:
        before: At the first look.
        after: At the second.
        now: When that was, in seconds since the epoch.
    """
    if not fell_back(phase_of(before), phase_of(after)):
        return None
    eviction = find_condition(after.status.conditions, EVICTED)
    since, queue = time_of(after, EVICTED), holding_queue(before)
    if eviction is None or eviction.status != "True" or since is None or not queue:
        return None
    return EvictionEnd(queue, eviction.reason, max(0.0, now - since))


def latest_eviction(before: Workload, after: Workload) -> EvictionCount | None:
    """Return which count of evictions grew between two looks at a workload; None if none did."""
    stats = [each.status.scheduling_stats for each in (before, after)]
    old, new = ((() if each is None else each.evictions) for each in stats)
    known = {(each.reason, each.underlying_cause): each.count for each in old}
    grown = (e for e in new if e.count > known.get((e.reason, e.underlying_cause), 0))
    return next(grown, None)


def execution_seconds(workload: Workload) -> float | None:
    """Return how long a workload ran that has finished, in all its runs; None if it never did."""
    past = workload.status.accumulated_past_execution_time_seconds
    if not is_finished(workload):
        return None
    began, ended = time_of(workload, ADMITTED), time_of(workload, FINISHED)
    if not is_admitted(workload) or began is None or ended is None:
        return None if past is None else float(past)
    return max(0.0, ended - began) + (past or 0)


def waiting_since(workload: Workload) -> float:
    """Return when a workload began to wait: when it was created, or requeued last."""
    created = workload.metadata.creation_timestamp
    start = created.timestamp() if created else 0.0
    return max(start, time_of(workload, REQUEUED) or start)


def time_of(workload: Workload, kind: str) -> float | None:
    """Return since when a condition of a workload is as it is, in seconds since the epoch."""
    condition = find_condition(workload.status.conditions, kind)
    since = None if condition is None else condition.last_transition_time
    return None if since is None else since.timestamp()


def became_true(before: tuple[Condition, ...], after: tuple[Condition, ...]) -> list[str]:
    """Return the types of the conditions that were not true, and now are."""
    return [
        each.type
        for each in after
        if each.status == "True" and not condition_true(before, each.type)
    ]
