"""Which changes of a Workload are refused: those that its reservation of quota speaks against."""

from collections.abc import Iterator

import msgspec

from policyd.api.kueue.gates import ValidationGates
from policyd.api.kueue.gating import gating_changes
from policyd.api.kueue.names import (
    ADMITTED,
    ELASTIC_JOB,
    QUOTA_RESERVED,
    SLICE_REPLACEMENT_FOR,
)
from policyd.api.kueue.validation import IMMUTABLE, FieldError
from policyd.api.kueue.workload import Admission, Workload
from policyd.api.meta import condition_true


def is_reserved(workload: Workload) -> bool:
    """Tell whether a workload has quota reserved."""
    return condition_true(workload.status.conditions, QUOTA_RESERVED)


def is_elastic(workload: Workload, gates: ValidationGates) -> bool:
    """Tell whether a workload's pods may become fewer while it runs."""
    wanted = workload.metadata.annotations.get(ELASTIC_JOB) == "true"
    return wanted and gates.elastic_jobs_via_workload_slices


def change_errors(new: Workload, old: Workload, gates: ValidationGates) -> Iterator[FieldError]:
    """Yield forbidden changes; of pod templates, only fields that the queue reads count."""
    if is_reserved(old):
        yield from _pod_set_changes(new, old, gates)
        yield from _class_changes(new, old)
    if is_reserved(old) and is_reserved(new):
        if new.spec.queue_name != old.spec.queue_name:
            yield FieldError("spec.queueName", new.spec.queue_name, IMMUTABLE, schema=True)
        yield from _reclaimed_again(new, old, gates)
    yield from _time_changes(new, old)
    yield from _admission_changes(new, old)
    yield from _settled_checks(new, old)
    yield from _cluster_changes(new, old, gates)
    if gates.admission_gated_by:
        yield from gating_changes(old.metadata.annotations, new.metadata.annotations)


def _pod_set_changes(new: Workload, old: Workload, gates: ValidationGates) -> Iterator[FieldError]:
    if len(new.spec.pod_sets) != len(old.spec.pod_sets):
        value = msgspec.to_builtins(new.spec.pod_sets)
        yield FieldError("spec.podSets", value, IMMUTABLE)
        return
    for index, (after, before) in enumerate(zip(new.spec.pod_sets, old.spec.pod_sets, strict=True)):
        if gates.elastic_jobs_via_workload_slices and after.count < before.count:
            before = msgspec.structs.replace(before, count=after.count)  # noqa: PLW2901
        if after != before:
            yield FieldError(f"spec.podSets.{index}", msgspec.to_builtins(after), IMMUTABLE)


def _class_changes(new: Workload, old: Workload) -> Iterator[FieldError]:
    path = "spec.priorityClassRef"
    after, before = new.spec.priority_class_ref, old.spec.priority_class_ref
    if after is None or before is None:
        if after is not before:
            yield FieldError(path, msgspec.to_builtins(after), IMMUTABLE, schema=True)
        return
    if after.group != before.group:
        yield FieldError(f"{path}.group", after.group, IMMUTABLE, schema=True)
    if after.kind != before.kind:
        yield FieldError(f"{path}.kind", after.kind, IMMUTABLE, schema=True)
    if after.name != before.name and after.kind == "PriorityClass":
        yield FieldError(f"{path}.name", after.name, IMMUTABLE, schema=True)


def _reclaimed_again(new: Workload, old: Workload, gates: ValidationGates) -> Iterator[FieldError]:
    """Yield the pod sets that reclaim quota that was given back."""
    now = {p.name: p.count for p in new.status.reclaimable_pods}
    for before in old.status.reclaimable_pods:
        if is_elastic(new, gates) and has_shrunk(new, before.name):
            continue
        path = f"status.reclaimablePods[{before.name}]"
        if before.name not in now:
            yield FieldError(path, "", "cannot be removed", "Required")
        elif now[before.name] < before.count:
            message = f"cannot be less than {before.count}"
            yield FieldError(f"{path}.count", now[before.name], message)


def has_shrunk(workload: Workload, name: str) -> bool:
    """Tell whether a pod set wants fewer pods than it was admitted with."""
    admission = workload.status.admission
    admitted = {a.name: a.count for a in admission.pod_set_assignments} if admission else {}
    count = next((p.count for p in workload.spec.pod_sets if p.name == name), 0)
    return count < (admitted.get(name) or 0)


def _time_changes(new: Workload, old: Workload) -> Iterator[FieldError]:
    limit = new.spec.maximum_execution_time_seconds
    admitted = all(condition_true(w.status.conditions, ADMITTED) for w in (new, old))
    if admitted and limit != old.spec.maximum_execution_time_seconds:
        yield FieldError("spec.maximumExecutionTimeSeconds", limit, IMMUTABLE, schema=True)


def _admission_changes(new: Workload, old: Workload) -> Iterator[FieldError]:
    """Yield a change of an admission: it is set, or taken away; places may be found later."""
    after, before = new.status.admission, old.status.admission
    if after is not None and before is not None and _unplaced(after) != _unplaced(before):
        yield FieldError("status.admission", msgspec.to_builtins(after), IMMUTABLE)


def _unplaced(admission: Admission) -> Admission:
    assignments = tuple(
        msgspec.structs.replace(each, topology_assignment=None, delayed_topology_request=None)
        for each in admission.pod_set_assignments
    )
    return msgspec.structs.replace(admission, pod_set_assignments=assignments)


def _settled_checks(new: Workload, old: Workload) -> Iterator[FieldError]:
    now = {check.name: check for check in new.status.admission_checks}
    for index, before in enumerate(old.status.admission_checks):
        after = now.get(before.name, before)
        settled = before.state == after.state == "Ready"
        if settled and after.pod_set_updates != before.pod_set_updates:
            path = f"status.admissionChecks[{index}].podSetUpdates"
            yield FieldError(path, msgspec.to_builtins(after.pod_set_updates), IMMUTABLE)


def _cluster_changes(new: Workload, old: Workload, gates: ValidationGates) -> Iterator[FieldError]:
    path, name, before = "status.clusterName", new.status.cluster_name, old.status.cluster_name
    if not name or name == before:
        return
    if before:
        yield FieldError(path, name, IMMUTABLE, schema=True)
        return
    # A slice that replaces another goes where that one is.
    sliced = gates.elastic_jobs_via_workload_slices and (
        SLICE_REPLACEMENT_FOR in new.metadata.annotations
    )
    if name not in old.status.nominated_cluster_names and not sliced:
        yield FieldError(path, name, "must be one of the nominatedClusterNames")
