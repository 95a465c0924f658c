"""What is next for a job and its workload: one step, found from what is there.

Every step is one write, or a few that mean nothing without each other, and after it the next step
is found from what is there then. So it does not matter where a controller was stopped: the one
that follows takes the next step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from policyd.api.kueue import PodSet, ReclaimablePod, Workload, WorkloadSpec
from policyd.api.kueue.names import (
    ADMITTED,
    EVICTED,
    FINISHED,
    QUOTA_RESERVED,
    RESOURCE_IN_USE_FINALIZER,
)
from policyd.api.meta import ObjectMeta, condition_true, find_condition
from policyd.jobs.base import Outcome, queue_name
from policyd.jobs.workload import Priority, maximum_execution_time

NOT_ADMITTED = "Not admitted by cluster queue"
NO_WORKLOAD = "Missing Workload; unable to restore pod templates"
NO_MATCHING_WORKLOAD = (
    "No matching Workload; restoring pod templates according to existent Workload"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job of any kind, as far as its life in the queue goes.

    Attributes:
        metadata: Of the job; of a group of pods, the first pod's.
        held: Whether something of it waits to be started.
        running: Whether something of it was let go and has not ended.
        active: Whether it still has pods that use what it was given.
        complete: Whether all that it demands is known.
        outcome: How it ended; None while it has not.
        pod_sets: What it demands.
        reclaimable: Pods that need their quota no longer.
        priority: How important it is.
    """

    metadata: ObjectMeta
    held: bool
    running: bool
    active: bool
    complete: bool = True
    outcome: Outcome | None = None
    pod_sets: tuple[PodSet, ...] = ()
    reclaimable: tuple[ReclaimablePod, ...] = ()
    priority: Priority = field(default_factory=Priority)


@dataclass(frozen=True, slots=True)
class CreateWorkload:
    """Create the workload."""


@dataclass(frozen=True, slots=True)
class UpdateWorkload:
    """Let the workload demand what the job demands now.

    `fits` tells whether its pods are the job's already, and only its queue or time is not.
    """

    workload: Workload
    fits: bool = False


@dataclass(frozen=True, slots=True)
class ChangePriority:
    """Give the workload the priority that the job has now."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
    """Delete a workload that does not fit the job."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class Start:
    """Let the job go, to where its workload was assigned."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the job, and put back what its start changed.

    `reason` is a CamelCase word for the pods' conditions; `workload` knows what they were before.
    """

    workload: Workload | None
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Release:
    """Give the quota of an evicted workload back: its job has stopped."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class Report:
    """Say which pods need their quota no longer."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class Finish:
    """Declare the workload finished."""

    workload: Workload
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class DropFinalizer:
    """Let go of a workload that no longer matters."""

    workload: Workload


Step = (
    CreateWorkload
    | UpdateWorkload
    | ChangePriority
    | DeleteWorkload
    | Start
    | Stop
    | Release
    | Report
    | Finish
    | DropFinalizer
)


def next_step(
    job: JobView, workload: Workload | None, others: Sequence[Workload] = ()
) -> Step | None:
    """Say what is to be done next.

    Args:
        job: The job.
        workload: The one that stands for it.
        others: Workloads of the job that do not fit it.

    Returns:
        None if nothing is to be done until something changes.
    """
    if workload is not None and is_finished(workload):
        return DropFinalizer(workload) if has_finalizer(workload) else None
    if job.outcome is not None:
        found = workload or next(iter(others), None)
        return None if found is None or is_finished(found) else Finish(found, job.outcome)
    if workload is None:
        return _without_workload(job, others)
    return DeleteWorkload(others[0]) if others else _with_workload(job, workload)


def _without_workload(job: JobView, others: Sequence[Workload]) -> Step | None:
    if job.running:
        known = others[0] if len(others) == 1 else None
        message = NO_WORKLOAD if known is None else NO_MATCHING_WORKLOAD
        return Stop(known, "NoMatchingWorkload", message)
    if len(others) == 1 and not has_quota(others[0]) and not is_finished(others[0]):
        return UpdateWorkload(others[0]) if job.complete else None
    if others:
        return DeleteWorkload(others[0])
    return CreateWorkload() if job.complete and job.held and not job.active else None


def _with_workload(job: JobView, workload: Workload) -> Step | None:
    if workload.metadata.deletion_timestamp is not None:
        if job.running:
            return Stop(workload, "WorkloadDeleted", "missing workload")
        return DropFinalizer(workload) if has_finalizer(workload) else None
    if has_quota(workload) and _grew(job.reclaimable, workload.status.reclaimable_pods):
        return Report(workload)
    return _queued(job, workload)


def _queued(job: JobView, workload: Workload) -> Step | None:
    if condition_true(workload.status.conditions, EVICTED):
        return _evicted(job, workload)
    admitted = condition_true(workload.status.conditions, ADMITTED)
    if admitted and workload.spec.active and job.held:
        return Start(workload) if job.complete or job.running else None
    if not admitted and job.running:
        return Stop(workload, "NotAdmitted", NOT_ADMITTED)
    return _outdated(job, workload)


def _evicted(job: JobView, workload: Workload) -> Step | None:
    eviction = find_condition(workload.status.conditions, EVICTED)
    assert eviction is not None, "an evicted workload says so"
    if job.running:
        return Stop(workload, f"WorkloadEvictedDueTo{eviction.reason}", eviction.message)
    if not job.active and has_quota(workload):
        return Release(workload)
    return None if has_quota(workload) else _outdated(job, workload)


def _outdated(job: JobView, workload: Workload) -> Step | None:
    spec, priority = workload.spec, job.priority
    same = (spec.priority or 0, spec.priority_class_ref) == (priority.value, priority.reference)
    if not same and (not has_quota(workload) or _of_workloads(spec, priority)):
        return ChangePriority(workload)
    if has_quota(workload):
        return None
    limit = maximum_execution_time(job.metadata)
    same = (spec.queue_name, spec.maximum_execution_time_seconds) == (
        queue_name(job.metadata),
        limit,
    )
    return None if same else UpdateWorkload(workload, fits=True)


def _of_workloads(spec: WorkloadSpec, priority: Priority) -> bool:
    """Tell whether both priorities are of a WorkloadPriorityClass, which may change at any time."""
    classes = (spec.priority_class_ref, priority.reference)
    return all(each is not None and each.kind == "WorkloadPriorityClass" for each in classes)


def _grew(new: Sequence[ReclaimablePod], old: Sequence[ReclaimablePod]) -> bool:
    """Tell whether there is more to reclaim, and nowhere less: what was given back stays so."""
    counts = {each.name: each.count for each in new}
    before = {each.name: each.count for each in old}
    return counts != before and all(counts.get(name, 0) >= n for name, n in before.items())


def has_quota(workload: Workload) -> bool:
    """Tell whether a workload holds a reservation."""
    return condition_true(workload.status.conditions, QUOTA_RESERVED)


def is_finished(workload: Workload) -> bool:
    """Tell whether a workload has ended."""
    return condition_true(workload.status.conditions, FINISHED)


def has_finalizer(workload: Workload) -> bool:
    """Tell whether a workload cannot vanish yet."""
    return RESOURCE_IN_USE_FINALIZER in workload.metadata.finalizers
