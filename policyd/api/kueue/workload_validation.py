"""Validation of Workloads beyond their schema, created or changed."""

import re
from collections.abc import Iterator
from typing import Final

from policyd.api.kueue.gates import DEFAULT_GATES, ValidationGates
from policyd.api.kueue.gating import gating_errors
from policyd.api.kueue.names import PODS_RESOURCE, PRIORITY_BOOST
from policyd.api.kueue.validation import (
    FieldError,
    amount_errors,
    annotation_errors,
    label_errors,
    supported_values,
    toleration_errors,
)
from policyd.api.kueue.workload import (
    Admission,
    LevelValues,
    PodCounts,
    PodSet,
    PodSetUpdate,
    PriorityClassReference,
    TopologyAssignment,
    TopologyRequest,
    TopologySlice,
    Workload,
)
from policyd.api.kueue.workload_changes import change_errors, is_elastic, is_reserved
from policyd.api.pods import Container, Resources
from policyd.api.quantity import QuantityError, parse_quantity

_INTEGER: Final = r"[+-]?\d+"
_CPU: Final = "cpu"


def validate_workload(
    workload: Workload, old: Workload | None = None, *, gates: ValidationGates = DEFAULT_GATES
) -> list[FieldError]:
    """Return the errors in a Workload, given the old one."""
    spec = workload.spec
    errors = [error for i, p in enumerate(spec.pod_sets) for error in _pod_set(p, i, gates)]
    errors.extend(_partial(workload, gates))
    errors.extend(_annotations(workload, gates))
    if spec.priority_class_ref is not None and spec.priority is None:
        message = "must be set when priorityClassRef is"
        errors.append(FieldError("spec.priority", None, message, "Required", schema=True))
    errors.extend(_class(spec.priority_class_ref))
    errors.extend(_reservation(workload, old))
    errors.extend(placement_errors(workload, old))
    errors.extend(_reclaimable(workload, old, gates))
    errors.extend(_check_updates(workload))
    errors.extend(_cluster(workload))
    if old is not None:
        errors.extend(change_errors(workload, old, gates))
    return errors


def _pod_set(pod_set: PodSet, index: int, gates: ValidationGates) -> Iterator[FieldError]:
    path = f"spec.podSets[{index}]"
    metadata, spec = pod_set.template.metadata, pod_set.template.spec
    if gates.workload_validation_for_pod_set_metadata:
        yield from label_errors(metadata.labels, f"{path}.template.metadata.labels")
        yield from annotation_errors(metadata.annotations, f"{path}.template.metadata.annotations")
    if pod_set.min_count is not None and pod_set.min_count > pod_set.count:
        message = "should be positive and less or equal to count"
        yield FieldError(f"{path}.minCount", pod_set.min_count, message, schema=True)
    where = f"{path}.template.spec"
    yield from _containers(spec.init_containers, f"{where}.initContainers", gates)
    yield from _containers(spec.containers, f"{where}.containers", gates)
    if spec.resources is not None:
        yield from _resources(spec.resources, f"{where}.resources", gates)
    if pod_set.topology_request is not None and gates.tas_validate_workload_slice_size:
        yield from _slices(pod_set.topology_request, f"{path}.topologyRequest")


def _containers(
    containers: tuple[Container, ...], path: str, gates: ValidationGates
) -> Iterator[FieldError]:
    for index, container in enumerate(containers):
        yield from _resources(container.resources, f"{path}[{index}].resources", gates)


def _resources(resources: Resources, path: str, gates: ValidationGates) -> Iterator[FieldError]:
    for name, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        for resource, quantity in amounts.items():
            where = f"{path}.{name}[{resource}]"
            if resource == PODS_RESOURCE:
                yield FieldError(where, resource, "the key is reserved for internal kueue use")
            if gates.workload_validate_resources_are_non_negative:
                yield from amount_errors(quantity, where)


def _slices(request: TopologyRequest, path: str) -> Iterator[FieldError]:
    size, topology = request.pod_set_slice_size, request.pod_set_slice_required_topology
    if size is not None and size < 1:
        yield FieldError(f"{path}.podSetSliceSize", size, "must be greater than 0")
    if size is not None and not topology:
        message = "must be set when podSetSliceSize is"
        yield FieldError(f"{path}.podSetSliceRequiredTopology", "", message, "Required")
    if size is None and topology:
        message = "must be set when podSetSliceRequiredTopology is"
        yield FieldError(f"{path}.podSetSliceSize", "", message, "Required")
    for index, each in enumerate(request.podset_slice_required_topology_constraints):
        if each.size < 1:
            where = f"{path}.podsetSliceRequiredTopologyConstraints[{index}].size"
            yield FieldError(where, each.size, "must be greater than 0")


def _partial(workload: Workload, gates: ValidationGates) -> Iterator[FieldError]:
    partial = sum(pod_set.min_count is not None for pod_set in workload.spec.pod_sets)
    if partial > 1:
        yield FieldError("spec.podSets", partial, "at most one podSet can use minCount")
    if partial and is_elastic(workload, gates):
        message = "partial admission and elastic job cannot be used together"
        yield FieldError("spec.podSets", partial, message)


def _annotations(workload: Workload, gates: ValidationGates) -> Iterator[FieldError]:
    boost = workload.metadata.annotations.get(PRIORITY_BOOST)
    if boost is not None and gates.priority_boost and not _is_int32(boost):
        message = "must be a valid signed integer"
        if not boost:
            message += '; use "0" explicitly, empty string is not allowed'
        yield FieldError(f"metadata.annotations[{PRIORITY_BOOST}]", boost, message)
    if gates.admission_gated_by:
        yield from gating_errors(workload.metadata.annotations)


def _is_int32(text: str) -> bool:
    return re.fullmatch(_INTEGER, text) is not None and -(2**31) <= int(text) < 2**31


def _reservation(workload: Workload, old: Workload | None) -> Iterator[FieldError]:
    if not is_reserved(workload):
        return
    admission = workload.status.admission
    if admission is not None:
        yield from _admission(admission, workload.spec.pod_sets)
    elif old is None or not is_reserved(old) or old.status.admission is not None:
        message = "must be set while the QuotaReserved condition is true"
        yield FieldError("status.admission", "", message, "Required")


def _admission(admission: Admission, pod_sets: tuple[PodSet, ...]) -> Iterator[FieldError]:
    path = "status.admission.podSetAssignments"
    known = {pod_set.name for pod_set in pod_sets}
    if len(admission.pod_set_assignments) != len(pod_sets):
        message = "must have the same number of podSets as the spec"
        yield FieldError(path, len(admission.pod_set_assignments), message, schema=True)
    for index, assignment in enumerate(admission.pod_set_assignments):
        where = f"{path}[{index}]"
        if assignment.name not in known:
            yield FieldError(f"{where}.name", assignment.name, "", "NotFound")
        for resource, quantity in assignment.resource_usage.items():
            if assignment.count and _units(resource, quantity) % assignment.count:
                message = f"is not a multiple of {assignment.count}"
                yield FieldError(f"{where}.resourceUsage[{resource}]", str(quantity), message)


def _class(reference: PriorityClassReference | None) -> Iterator[FieldError]:
    if reference is None:
        return
    kinds = {"scheduling.k8s.io": "PriorityClass", "kueue.x-k8s.io": "WorkloadPriorityClass"}
    if reference.kind != kinds[reference.group]:
        message = f"must be {kinds[reference.group]} in the group {reference.group}"
        yield FieldError("spec.priorityClassRef.kind", reference.kind, message, schema=True)


def _cluster(workload: Workload) -> Iterator[FieldError]:
    status = workload.status
    if status.cluster_name is not None and status.nominated_cluster_names:
        message = "cannot be set together with nominatedClusterNames"
        yield FieldError("status.clusterName", status.cluster_name, message, schema=True)


def _units(resource: str, quantity: str | int) -> int:
    try:
        parsed = parse_quantity(quantity)
    except QuantityError:
        return 0  # the API server refuses an invalid quantity
    return parsed.milli() if resource == _CPU else parsed.value()


def _reclaimable(
    workload: Workload, old: Workload | None, gates: ValidationGates
) -> Iterator[FieldError]:
    counts = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
    before = {} if old is None else {p.name: p.count for p in old.status.reclaimable_pods}
    for reclaimable in workload.status.reclaimable_pods:
        name, count = reclaimable.name, reclaimable.count
        path = f"status.reclaimablePods[{name}]"
        if name not in counts:
            yield FieldError(f"{path}.name", name, supported_values(counts), "NotSupported")
        elif count > counts[name] and not (
            is_elastic(workload, gates) and before.get(name) == count
        ):
            yield FieldError(f"{path}.count", count, f"should be less or equal to {counts[name]}")


def _check_updates(workload: Workload) -> Iterator[FieldError]:
    known = {pod_set.name for pod_set in workload.spec.pod_sets}
    for index, check in enumerate(workload.status.admission_checks):
        for position, update in enumerate(check.pod_set_updates):
            path = f"status.admissionChecks[{index}].podSetUpdates[{position}]"
            if update.name not in known:
                message = supported_values(known)
                yield FieldError(f"{path}.name", update.name, message, "NotSupported")
            yield from _update(update, path)


def _update(update: PodSetUpdate, path: str) -> Iterator[FieldError]:
    yield from toleration_errors(update.tolerations, f"{path}.tolerations")
    yield from annotation_errors(update.annotations, f"{path}.annotations")
    yield from label_errors(update.node_selector, f"{path}.nodeSelector")
    yield from label_errors(update.labels, f"{path}.labels")


_EITHER: Final = "either universal or individual is needed, and not both"


def placement_errors(new: Workload, old: Workload | None) -> Iterator[FieldError]:
    """Yield the errors in the new topology assignments of a workload."""
    known = () if old is None else _placements(old)
    for index, placement in enumerate(_placements(new)):
        if placement is not None and placement not in known:
            path = f"status.admission.podSetAssignments[{index}].topologyAssignment"
            yield from _placement(placement, path)


def _placements(workload: Workload) -> tuple[TopologyAssignment | None, ...]:
    admission = workload.status.admission
    assignments = () if admission is None else admission.pod_set_assignments
    return tuple(each.topology_assignment for each in assignments)


def _placement(placement: TopologyAssignment, path: str) -> Iterator[FieldError]:
    levels = len(placement.levels)
    for index, part in enumerate(placement.slices):
        where = f"{path}.slices[{index}]"
        if len(part.values_per_level) != levels:
            message = f"must have one value for each of the {levels} levels"
            count = len(part.values_per_level)
            yield FieldError(f"{where}.valuesPerLevel", count, message, schema=True)
        yield from _counts(part, part.pod_counts, f"{where}.podCounts")
        for level, values in enumerate(part.values_per_level):
            yield from _values(part, values, f"{where}.valuesPerLevel[{level}]")


def _counts(part: TopologySlice, counts: PodCounts, path: str) -> Iterator[FieldError]:
    given = len(counts.individual)
    if (counts.universal is None) == (not given):
        yield FieldError(path, given, _EITHER, schema=True)
    elif given and given != part.domain_count:
        message = f"must have one count for each of the {part.domain_count} domains"
        yield FieldError(f"{path}.individual", given, message, schema=True)


def _values(part: TopologySlice, values: LevelValues, path: str) -> Iterator[FieldError]:
    each = values.individual
    if (values.universal is None) == (each is None):
        yield FieldError(path, None, _EITHER, schema=True)
    elif each is not None and len(each.roots) != part.domain_count:
        message = f"must have one root for each of the {part.domain_count} domains"
        yield FieldError(f"{path}.individual.roots", len(each.roots), message, schema=True)
