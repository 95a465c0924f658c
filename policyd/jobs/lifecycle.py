"""The next step of a job and its workload, found from the objects as they are.

Every step is one write, or a few that mean nothing without each other, and after it the next step
is found from the objects again. So it does not matter where a controller was stopped: its successor
takes the next step.
"""

from collections.abc import Sequence

from policyd.api.kueue import Workload, WorkloadSpec
from policyd.api.kueue.names import (
    ADMISSION_GATED_BY,
    ADMITTED,
    EVICTED,
    FINISHED,
    QUOTA_RESERVED,
    RESOURCE_IN_USE_FINALIZER,
)
from policyd.api.kueue.workload_changes import has_shrunk
from policyd.api.meta import ObjectMeta, condition_true, find_condition
from policyd.jobs.base import queue_name
from policyd.jobs.readiness import readiness
from policyd.jobs.steps import (
    ChangePriority,
    CreateWorkload,
    DeleteWorkload,
    DropFinalizer,
    Finish,
    JobView,
    Regate,
    Release,
    Report,
    ReportReady,
    Start,
    Step,
    Stop,
    UpdateWorkload,
)
from policyd.jobs.workload import Priority, maximum_execution_time, within_sizes

ON_HOLD = "OnHold"
"""Reason of a workload that waits for its job rather than for quota."""
NOT_ADMITTED = "Not admitted by cluster queue"
NO_WORKLOAD = "Missing Workload; unable to restore pod templates"
DELETED_WORKLOAD = "Workload is deleted"
WORKLOAD_DELETED = "WorkloadDeleted"
"""Reason of a stop after which a job may not be there any more."""
NO_MATCHING_WORKLOAD = (
    "No matching Workload; restoring pod templates according to existent Workload"
)


def next_step(
    job: JobView,
    workload: Workload | None,
    others: Sequence[Workload] = (),
    *,
    watched: bool = False,
) -> Step | None:
    """Return the next step.

    Args:
        job: The job.
        workload: The one that stands for it.
        others: Workloads of the job that do not fit it.
        watched: Whether the pods of `workload` are waited for.

    Returns:
        None if nothing is to be done until something changes.
    """
    if workload is not None and is_finished(workload):
        return DropFinalizer(workload) if has_finalizer(workload) else None
    if job.on_hold or (workload is not None and is_on_hold(workload)):
        return _held(job, workload)
    if job.outcome is not None:
        found = workload or next(iter(others), None)
        return None if found is None or is_finished(found) else Finish(found, job.outcome)
    if workload is None:
        return _without_workload(job, others)
    if others:
        return DeleteWorkload(others[0])
    return _with_workload(job, workload, watched=watched)


def _held(job: JobView, workload: Workload | None) -> Step | None:
    if workload is None:
        return None
    if job.on_hold is is_on_hold(workload):
        return _outdated(job, workload)  # once it is released, it may be admitted at once
    return Release(workload, on_hold=job.on_hold)


def _without_workload(job: JobView, others: Sequence[Workload]) -> Step | None:
    if job.running:
        known = others[0] if len(others) == 1 else None
        message = NO_WORKLOAD if known is None else NO_MATCHING_WORKLOAD
        return Stop(known, "NoMatchingWorkload", message, fits=known is None)
    if len(others) == 1 and not has_quota(others[0]) and not is_finished(others[0]):
        return UpdateWorkload(others[0]) if job.complete else None
    if others:
        return DeleteWorkload(others[0])
    return CreateWorkload() if job.complete and not job.active else None


def _with_workload(job: JobView, workload: Workload, *, watched: bool) -> Step | None:
    if workload.metadata.deletion_timestamp is not None:
        if job.running or job.leaves:
            return Stop(workload, WORKLOAD_DELETED, DELETED_WORKLOAD)
        return DropFinalizer(workload) if has_finalizer(workload) else None
    if has_quota(workload) and _may_report(job, workload):
        return Report(workload)
    condition = readiness(workload, ready=job.ready) if watched else None
    return _queued(job, workload) if condition is None else ReportReady(workload, condition)


def _queued(job: JobView, workload: Workload) -> Step | None:
    if condition_true(workload.status.conditions, EVICTED):
        return _evicted(job, workload)
    admitted = condition_true(workload.status.conditions, ADMITTED)
    if admitted and workload.spec.active and job.held:
        return Start(workload)
    # The pods of an elastic job run on while checks decide on its bigger slice.
    grows = job.elastic and has_quota(workload)
    if not admitted and job.running and not grows:
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


def change_of_priority(job: JobView, workload: Workload) -> ChangePriority | None:
    """Return the step by which a workload gets the priority of its job, if that is to be.

    The value alone may be another: an administrator, or who made a prebuilt one, has chosen it.
    """
    same = workload.spec.priority_class_ref == job.priority.reference
    return ChangePriority(workload) if may_take(workload, job.priority) and not same else None


def may_take(workload: Workload, priority: Priority) -> bool:
    """Tell whether a workload may get another priority: with quota, only from class to class."""
    return not has_quota(workload) or _of_workloads(workload.spec, priority)


def _outdated(job: JobView, workload: Workload) -> Step | None:
    if job.follows:
        return None
    changed, spec = change_of_priority(job, workload), workload.spec
    if changed is not None or has_quota(workload):
        return changed
    heeded = job.gated and not job.prebuilt
    if heeded and gates_of(job.metadata) != gates_of(workload.metadata):
        return Regate(workload)
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


def _may_report(job: JobView, workload: Workload) -> bool:
    """Tell whether another number of pods is to be given back than was.

    Quota that was given back stays so; but of a pod set that an elastic job has made smaller, the
    pods that had ended may be those that are no longer requested.
    """
    # More than there are is never written: tried again for ever, it would keep a job from its stop.
    given_back = within_sizes(job.reclaimable, workload.spec.pod_sets)
    counts = {each.name: each.count for each in given_back}
    before = {each.name: each.count for each in workload.status.reclaimable_pods}
    return counts != before and all(
        counts.get(name, 0) >= count or (job.elastic and has_shrunk(workload, name))
        for name, count in before.items()
    )


def has_quota(workload: Workload) -> bool:
    """Tell whether a workload holds a reservation."""
    return condition_true(workload.status.conditions, QUOTA_RESERVED)


def is_on_hold(workload: Workload) -> bool:
    """Tell whether a workload waits for its job rather than for quota."""
    reserved = find_condition(workload.status.conditions, QUOTA_RESERVED)
    return reserved is not None and reserved.reason == ON_HOLD


def is_finished(workload: Workload) -> bool:
    """Tell whether a workload has ended."""
    return condition_true(workload.status.conditions, FINISHED)


def has_finalizer(workload: Workload) -> bool:
    """Tell whether a workload cannot vanish yet."""
    return RESOURCE_IN_USE_FINALIZER in workload.metadata.finalizers


def gates_of(metadata: ObjectMeta) -> str | None:
    """Return the gates that an object names before it may be admitted; None if none."""
    return metadata.annotations.get(ADMISSION_GATED_BY)
