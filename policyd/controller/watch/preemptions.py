"""Preemptions: the victim's status, and the messages for both sides."""

from typing import Final

from policyd.alloc.plan import Preempt, PreemptionReason
from policyd.alloc.settings import Gates
from policyd.api.kueue import Workload, WorkloadStatus
from policyd.api.kueue.names import JOB_UID, PREEMPTED
from policyd.api.meta import Condition
from policyd.controller.watch.priorities import effective_priority
from policyd.workload.transitions import (
    BLOCKED_ON_GATES,
    evict,
    set_condition,
    with_status,
)

_RIGHTS: Final[dict[PreemptionReason, str]] = {
    "InClusterQueue": "prioritization in the ClusterQueue",
    "InCohortReclamation": "reclamation within the cohort",
    "InCohortFairSharing": "Fair Sharing within the cohort",
    "InCohortReclaimWhileBorrowing": "reclamation within the cohort while borrowing",
    "Consolidation": "consolidation: what it had fits elsewhere",
}
_UNKNOWN: Final = "UNKNOWN"
GATED_MESSAGE: Final = "Workload requires preemption, but it's gated"


def preempt(
    workload: Workload, *, reason: PreemptionReason, message: str, now: float
) -> WorkloadStatus:
    """Begin to stop a workload for another; it keeps its quota until its job has stopped."""
    preempted = Condition(PREEMPTED, "True", reason, message)
    status = evict(workload, reason="Preempted", message=message, now=now)
    return set_condition(with_status(workload, status), preempted, now=now)


def blocked_on_gates(workload: Workload, *, now: float) -> Workload:
    """Say of a workload that it could preempt, but that one of its gates is closed."""
    blocked = Condition(BLOCKED_ON_GATES, "True", "PreemptionGated", GATED_MESSAGE)
    return with_status(workload, set_condition(workload, blocked, now=now))


def preemption_message(
    *, uid: str, job_uid: str, reason: str, preemptor_path: str, path: str
) -> str:
    """Return for which workload another is preempted, and why; in Kueue's words.

    Args:
        uid: The preemptor's.
        job_uid: Of the preemptor's job.
        reason: By which right.
        preemptor_path: Where the preemptor queues, from the top of its tree.
        path: Where the victim holds quota.
    """
    named = (uid, job_uid, right_of(reason), preemptor_path, path)
    uid, job_uid, right, preemptor_path, path = (each or _UNKNOWN for each in named)
    return (
        f"Preempted to accommodate a workload (UID: {uid}, JobUID: {job_uid}) due to {right};"
        f" preemptor path: {preemptor_path}; preemptee path: {path}"
    )


def right_of(reason: str) -> str:
    """Return the meaning of a preemption's reason; "" for an unknown one."""
    return {str(name): text for name, text in _RIGHTS.items()}.get(reason, "")


def preempted_message(action: Preempt, preemptor: Workload | None) -> str:
    """Return the message of a planned preemption; the preemptor is None if it was deleted."""
    labels = {} if preemptor is None else preemptor.metadata.labels
    return preemption_message(
        uid=action.preemptor.uid,
        job_uid=labels.get(JOB_UID, ""),
        reason=action.reason,
        preemptor_path=action.preemptor_path,
        path=action.path,
    )


def priorities_text(preemptor: Workload, victim: Workload, gates: Gates) -> str:
    """Return the priorities of both, and the part of them that is a boost."""
    return "; ".join(
        f"{role} effective priority: {effective} (base: {base}, boost: {boost})"
        for role, workload in (("preemptor", preemptor), ("preemptee", victim))
        for effective, base, boost in (priority_parts(workload, gates),)
    )


def priority_parts(workload: Workload, gates: Gates) -> tuple[int, int, int]:
    """Return a workload's effective priority, and the priority and boost that make it up."""
    effective, base = effective_priority(workload, gates), workload.spec.priority or 0
    return effective, base, effective - base
