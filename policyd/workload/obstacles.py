"""Why a workload has no quota, where that is not for the scheduling loop to say."""

from dataclasses import dataclass
from typing import Literal

from policyd.alloc.settings import DEFAULTS, Gates
from policyd.alloc.workload import Objection
from policyd.api.kueue import ClusterQueue, LocalQueue, Workload, WorkloadStatus
from policyd.api.kueue.names import (
    ADMISSION_GATED_BY,
    IMPORT_GATE,
    QUOTA_RESERVED,
    WAITING_FOR_REPLACEMENT,
)
from policyd.api.meta import Condition, condition_true, find_condition
from policyd.jobs.lifecycle import is_on_hold
from policyd.workload.time_limits import ReadyRules
from policyd.workload.transitions import BLOCKED_ON_GATES, release, written_reason

GATED = "AdmissionGated"
DEACTIVATED = "The workload is deactivated"
PENDING = "Workload is pending evaluation in the scheduling queue"
UNREPLACED = "waiting for pods that replace the lost ones"
CLEARED = "AdmissionGatedBy cleared, waiting for quota reservation"
BYPASSED = "Bypassed scheduling evaluation because an equivalent workload recently failed"
BY_SCHEDULER = frozenset(
    {
        GATED,
        "NoMatchingFlavor",
        "WaitingForQuota",
        "ExceedsMaxQuota",
        "TopologyPlacementFailed",
        "WaitingForPreemptedWorkloads",
        "WaitingForPodsReady",
    }
)
_WITHOUT_DETAIL = frozenset({"Pending", "Waiting"})
"""Reasons of the scheduling loop without detail; with it, these are from an older release."""
_OF_QUEUEING = BY_SCHEDULER | _WITHOUT_DETAIL | {"PendingEvaluation"}
_EMPTY_MESSAGES = frozenset({PENDING, CLEARED})


FamilyRole = Literal["", "parent", "variant", "stranger"]
"""What a workload is to others: one that has variants, one of these, or one that only looks so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusContext:
    """The queues, limits and gates that a workload's status depends on.

    Attributes:
        local_queue: Its LocalQueue; None if it does not exist.
        cluster_queue: The ClusterQueue of that; None if it does not exist.
        inactive: Whether the ClusterQueue gives out no quota.
        objection: Why the workload cannot be considered.
        shared: Why workloads with the same requests do not fit; None if not known.
        ready_rules: How long its pods may take to become ready; None for no limit.
        jitter: A random number from 0 to 1, a new one each time.
        gates: Feature gates.
        role: Whether the workload has variants, or is one.
    """

    local_queue: LocalQueue | None
    cluster_queue: ClusterQueue | None
    inactive: bool = False
    objection: Objection | None = None
    shared: str | None = None
    ready_rules: ReadyRules | None = None
    jitter: float = 0.0
    gates: Gates = DEFAULTS.gates
    role: FamilyRole = ""


def unreserved(workload: Workload, context: StatusContext, now: float) -> WorkloadStatus:
    """Say why a workload has no quota, where that is not for the scheduling loop to say."""
    if workload.spec.active and is_on_hold(workload):
        return workload.status
    present = find_condition(workload.status.conditions, QUOTA_RESERVED)
    written = "" if present is None else present.reason
    if written == GATED and not (_gates(workload, context) or _held_by_gates(workload)):
        return released(workload, context, "PendingEvaluation", CLEARED, now)  # written first
    found = _obstacle(workload, context)
    if found is not None:
        return released(workload, context, *found, now)
    if present is None and not context.gates.unadmitted_workloads_explicit_status:
        return workload.status
    detailed = context.gates.unadmitted_workloads_observability
    reason, message = "PendingEvaluation", PENDING
    if context.shared:
        reason, message = context.shared, _kept_message(present)
    by_scheduler = BY_SCHEDULER if detailed else BY_SCHEDULER | _WITHOUT_DETAIL
    known = written in by_scheduler and context.shared is None
    if known or written in {reason, written_reason(reason, detailed=detailed)}:
        return workload.status
    return release(workload, reason=reason, message=message, now=now, detailed=detailed)


def _kept_message(present: Condition | None) -> str:
    """Return the message until the true one is known, which is soon.

    What the condition says of the queue, or of the last eviction, says more than that an equivalent
    workload failed.
    """
    if present is None or present.reason not in _OF_QUEUEING or present.message in _EMPTY_MESSAGES:
        return BYPASSED
    return present.message


def gated(workload: Workload, context: StatusContext, now: float) -> WorkloadStatus:
    """Take back the quota of a workload that is not to be admitted yet."""
    gates = _gates(workload, context)
    if gates in {"", IMPORT_GATE}:
        return workload.status
    return released(workload, context, GATED, _gated_by(gates), now)


def released(
    workload: Workload, context: StatusContext, reason: str, message: str, now: float
) -> WorkloadStatus:
    """Release a reservation, or write why there is none; without detail, no reason is written."""
    detailed = context.gates.unadmitted_workloads_observability
    plain = {GATED: GATED, "PendingEvaluation": "Pending"}.get(reason, "Inadmissible")
    written = reason if detailed else plain
    return release(workload, reason=written, message=message, now=now, detailed=detailed)


def _gates(workload: Workload, context: StatusContext) -> str:
    """Return the admission gates that keep a workload from being admitted; empty for none."""
    heeded = context.gates.admission_gated_by
    return workload.metadata.annotations.get(ADMISSION_GATED_BY, "") if heeded else ""


def _held_by_gates(workload: Workload) -> bool:
    """Tell whether a workload could preempt, and preemption gates keep it from that."""
    return condition_true(workload.status.conditions, BLOCKED_ON_GATES)


def _gated_by(gates: str) -> str:
    return f"Admission is gated by: {gates}"


def _obstacle(workload: Workload, context: StatusContext) -> tuple[str, str] | None:
    if not workload.spec.active:
        if context.gates.unadmitted_workloads_observability:
            return "Deactivated", DEACTIVATED
        return _queue_obstacle(workload, context)  # what its eviction says stays otherwise
    gates = _gates(workload, context)
    if gates:
        return GATED, _gated_by(gates)
    obstacle = _queue_obstacle(workload, context)
    if obstacle is not None:
        return obstacle
    objection = context.objection
    if objection is None:
        return _unreplaced(workload)
    # Without detail, Kueue's scheduling loop has one reason for all that it finds.
    detailed = context.gates.unadmitted_workloads_observability or objection.uncounted
    return objection.reason if detailed else "PendingEvaluation", objection.message


def _unreplaced(workload: Workload) -> tuple[str, str] | None:
    """Return why pods of a group were lost that have not been replaced yet."""
    lost = find_condition(workload.status.conditions, WAITING_FOR_REPLACEMENT)
    if lost is None or lost.status != "True":
        return None
    return "PendingEvaluation", f"{lost.message}; {UNREPLACED}"


def _queue_obstacle(workload: Workload, context: StatusContext) -> tuple[str, str] | None:
    queue = context.local_queue
    if queue is None or queue.metadata.deletion_timestamp is not None:
        return "Misconfigured", f"LocalQueue {workload.spec.queue_name} doesn't exist"
    if queue.spec.stop_policy != "None":
        return "Suspended", f"LocalQueue {workload.spec.queue_name} is inactive"
    if context.cluster_queue is None:
        return "Misconfigured", f"ClusterQueue {queue.spec.cluster_queue} doesn't exist"
    if context.inactive:
        return "Suspended", f"ClusterQueue {queue.spec.cluster_queue} is inactive"
    return None
