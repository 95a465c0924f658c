"""What must hold for an object beyond its schema: pure functions from an object to field errors.

The rules, the paths and, where it states them, the words are Kueue's.
"""

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from policyd.api.kueue.flavors import ResourceFlavor, Topology
from policyd.api.kueue.names import PODS_RESOURCE
from policyd.api.kueue.queues import ClusterQueue, Cohort, LocalQueue, ResourceGroup, ResourceQuota
from policyd.api.kueue.workload import Admission, PodSet, Workload
from policyd.api.meta import Json, condition_true
from policyd.api.names import is_label_key, is_label_value
from policyd.api.pods import Container, Resources
from policyd.api.quantity import QuantityError, parse_quantity
from policyd.api.schema import QuantityText

Problem = Literal[
    "Invalid",
    "Required",
    "Duplicate",
    "NotSupported",
    "NotFound",
    "Forbidden",
    "TooLong",
    "TooMany",
]

_MOST_FLAVORS = 256
_MOST_RESOURCES = 256
_MOST_QUOTAS = 512
_HOSTNAME = "kubernetes.io/hostname"


class FieldError(NamedTuple):
    """Something wrong with one field.

    Attributes:
        path: Where, as `spec.resourceGroups[0].flavors[1].name`.
        value: What is there.
        message: What is wrong with it.
        problem: The kind of mistake.
    """

    path: str
    value: Json
    message: str
    problem: Problem = "Invalid"

    def __str__(self) -> str:
        return f"{self.path}: {self.message}: `{self.value}`"


def validate_cluster_queue(queue: ClusterQueue) -> list[FieldError]:
    """Return what is wrong with a ClusterQueue."""
    spec = queue.spec
    errors: list[FieldError] = []
    alone = "must be nil when cohort is empty" if not spec.cohort_name else ""
    errors.extend(_groups(spec.resource_groups, alone, capped=True))
    fungibility, preemption = spec.flavor_fungibility, spec.preemption
    tries = {fungibility.when_can_borrow, fungibility.when_can_preempt}
    if fungibility.preference is not None and tries != {"TryNextFlavor"}:
        message = (
            f'preference "{fungibility.preference}" requires both whenCanBorrow and whenCanPreempt'
            " to be TryNextFlavor"
        )
        path = "spec.flavorFungibility.preference"
        errors.append(FieldError(path, fungibility.preference, message))
    borrows = preemption.borrow_within_cohort.policy
    if preemption.reclaim_within_cohort == "Never" and borrows != "Never":
        message = "must be Never while reclaimWithinCohort is Never"
        errors.append(FieldError("spec.preemption.borrowWithinCohort.policy", borrows, message))
    errors.extend(_checks(queue))
    return errors


def validate_cohort(cohort: Cohort) -> list[FieldError]:
    """Return what is wrong with a Cohort."""
    alone = "must be nil when parent is empty" if not cohort.spec.parent_name else ""
    return list(_groups(cohort.spec.resource_groups, alone, capped=False))


def validate_local_queue(queue: LocalQueue, old: LocalQueue | None = None) -> list[FieldError]:
    """Return what is wrong with a LocalQueue, given what it was before."""
    name = queue.spec.cluster_queue
    if old is not None and old.spec.cluster_queue != name:
        return [FieldError("spec.clusterQueue", name, "field is immutable")]
    return []


def validate_resource_flavor(flavor: ResourceFlavor) -> list[FieldError]:
    """Return what is wrong with a ResourceFlavor."""
    spec = flavor.spec
    errors = [
        FieldError("spec.nodeLabels", text, "is no label")
        for key, value in spec.node_labels.items()
        for text, valid in ((key, is_label_key(key)), (value, is_label_value(value)))
        if not valid
    ]
    if spec.topology_name and not spec.node_labels:
        message = "at least one nodeLabel is required when topology is set"
        errors.append(FieldError("spec.nodeLabels", {}, message, "Required"))
    seen = set()
    for index, taint in enumerate(spec.node_taints):
        if (taint.key, taint.effect) in seen:
            path = f"spec.nodeTaints[{index}]"
            errors.append(FieldError(path, taint.key, "is there twice", "Duplicate"))
        seen.add((taint.key, taint.effect))
    return errors


def validate_topology(topology: Topology) -> list[FieldError]:
    """Return what is wrong with a Topology."""
    labels = [level.node_label for level in topology.spec.levels]
    errors = []
    for index, label in enumerate(labels):
        path = f"spec.levels[{index}].nodeLabel"
        if label in labels[:index]:
            errors.append(FieldError(path, label, "must be unique", "Duplicate"))
        if label == _HOSTNAME and index < len(labels) - 1:
            message = "can only be used at the lowest level of topology"
            errors.append(FieldError(path, label, message))
    return errors


def validate_workload(workload: Workload) -> list[FieldError]:
    """Return what is wrong with a Workload."""
    spec, status = workload.spec, workload.status
    errors = [error for index, p in enumerate(spec.pod_sets) for error in _pod_set(p, index)]
    partial = sum(pod_set.min_count is not None for pod_set in spec.pod_sets)
    if partial > 1:
        message = "at most one podSet can use minCount"
        errors.append(FieldError("spec.podSets", partial, message))
    if spec.priority_class_ref is not None and spec.priority is None:
        message = "must be set when priorityClassRef is"
        errors.append(FieldError("spec.priority", None, message, "Required"))
    if status.admission is not None:
        errors.extend(_admission(status.admission, spec.pod_sets))
    elif condition_true(status.conditions, "QuotaReserved"):
        message = "must be set while the QuotaReserved condition is true"
        errors.append(FieldError("status.admission", "", message, "Required"))
    return errors


def _groups(groups: tuple[ResourceGroup, ...], alone: str, *, capped: bool) -> Iterator[FieldError]:
    resources: set[str] = set()
    flavors: set[str] = set()
    for index, group in enumerate(groups):
        path = f"spec.resourceGroups[{index}]"
        for position, resource in enumerate(group.covered_resources):
            where = f"{path}.coveredResources[{position}]"
            if not is_label_key(resource):
                yield FieldError(where, resource, "is no resource name")
            if resource in resources:
                yield FieldError(where, resource, "is covered twice", "Duplicate")
            resources.add(resource)
        for position, flavor in enumerate(group.flavors):
            where = f"{path}.flavors[{position}]"
            if flavor.name in flavors:
                yield FieldError(f"{where}.name", flavor.name, "is there twice", "Duplicate")
            flavors.add(flavor.name)
            yield from _names(flavor.resources, group, where)
            for number, quota in enumerate(flavor.resources):
                yield from _quota(quota, f"{where}.resources[{number}]", alone, capped=capped)
    yield from _totals(groups)


def _names(
    quotas: tuple[ResourceQuota, ...], group: ResourceGroup, where: str
) -> Iterator[FieldError]:
    names = tuple(quota.name for quota in quotas)
    if len(names) != len(group.covered_resources):
        message = "must have the same number of resources as the coveredResources"
        yield FieldError(f"{where}.resources", len(names), message)
        return
    for number, (name, covered) in enumerate(zip(names, group.covered_resources, strict=True)):
        if name != covered:
            path = f"{where}.resources[{number}].name"
            yield FieldError(path, name, f"must match coveredResources, where it is {covered}")


def _quota(quota: ResourceQuota, where: str, alone: str, *, capped: bool) -> Iterator[FieldError]:
    yield from _amount(quota.nominal_quota, f"{where}.nominalQuota")
    for name, limit in (
        ("borrowingLimit", quota.borrowing_limit),
        ("lendingLimit", quota.lending_limit),
    ):
        if limit is None:
            continue
        if alone:
            yield FieldError(f"{where}.{name}", limit, alone)
        wrong = list(_amount(limit, f"{where}.{name}"))
        yield from wrong
        if capped and name == "lendingLimit" and not wrong and _exceeds(limit, quota.nominal_quota):
            message = "must be less than or equal to the nominalQuota"
            yield FieldError(f"{where}.{name}", limit, message)


def _totals(groups: tuple[ResourceGroup, ...]) -> Iterator[FieldError]:
    flavors = sum(len(group.flavors) for group in groups)
    if flavors > _MOST_FLAVORS:
        yield FieldError("spec.resourceGroups", flavors, f"at most {_MOST_FLAVORS} flavors")
    resources = sum(len(group.covered_resources) for group in groups)
    if resources > _MOST_RESOURCES:
        message = f"at most {_MOST_RESOURCES} covered resources"
        yield FieldError("spec.resourceGroups", resources, message)
    for index, group in enumerate(groups):
        quotas = len(group.flavors) * len(group.covered_resources)
        if quotas > _MOST_QUOTAS:
            message = f"at most {_MOST_QUOTAS} combinations of flavor and resource"
            yield FieldError(f"spec.resourceGroups[{index}]", quotas, message)


def _checks(queue: ClusterQueue) -> Iterator[FieldError]:
    strategy = queue.spec.admission_checks_strategy
    if strategy is None:
        return
    known = [flavor.name for group in queue.spec.resource_groups for flavor in group.flavors]
    supported = ", ".join(f'"{name}"' for name in known)
    for index, check in enumerate(strategy.admission_checks):
        for position, flavor in enumerate(check.on_flavors):
            if flavor not in known:
                path = (
                    f"spec.admissionChecksStrategy.admissionChecks[{index}].onFlavors[{position}]"
                )
                yield FieldError(path, flavor, f"supported values: {supported}", "NotSupported")


def _pod_set(pod_set: PodSet, index: int) -> Iterator[FieldError]:
    path = f"spec.podSets[{index}]"
    if pod_set.min_count is not None and pod_set.min_count > pod_set.count:
        message = "should be positive and less or equal to count"
        yield FieldError(f"{path}.minCount", pod_set.min_count, message)
    spec = pod_set.template.spec
    yield from _containers(spec.init_containers, f"{path}.template.spec.initContainers")
    yield from _containers(spec.containers, f"{path}.template.spec.containers")
    if spec.resources is not None:
        yield from _resources(spec.resources, f"{path}.template.spec.resources")


def _containers(containers: Iterable[Container], path: str) -> Iterator[FieldError]:
    for index, container in enumerate(containers):
        yield from _resources(container.resources, f"{path}[{index}].resources")


def _resources(resources: Resources, path: str) -> Iterator[FieldError]:
    for name, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        for resource, quantity in amounts.items():
            where = f"{path}.{name}[{resource}]"
            if resource == PODS_RESOURCE:
                yield FieldError(where, resource, "the key is reserved for internal kueue use")
            yield from _amount(quantity, where)


def _admission(admission: Admission, pod_sets: tuple[PodSet, ...]) -> Iterator[FieldError]:
    path = "status.admission.podSetAssignments"
    known = {pod_set.name for pod_set in pod_sets}
    if len(admission.pod_set_assignments) != len(pod_sets):
        message = "must have the same number of podSets as the spec"
        yield FieldError(path, len(admission.pod_set_assignments), message)
    for index, assignment in enumerate(admission.pod_set_assignments):
        if assignment.name not in known:
            yield FieldError(f"{path}[{index}].name", assignment.name, "", "NotFound")


def _amount(quantity: QuantityText, path: str) -> Iterator[FieldError]:
    try:
        if parse_quantity(quantity).sign() < 0:
            yield FieldError(path, quantity, "must be greater than or equal to 0")
    except QuantityError as error:
        yield FieldError(path, quantity, str(error))


def _exceeds(limit: QuantityText, nominal: QuantityText) -> bool:
    try:
        return parse_quantity(limit) > parse_quantity(nominal)
    except QuantityError:
        return False
