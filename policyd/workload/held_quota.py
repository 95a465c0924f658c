"""How many GPUs a Workload holds quota for, and from when to when, as its status says."""

from collections.abc import Iterable, Mapping
from math import ceil
from typing import NamedTuple

from policyd.api.gpus import asks_for_part
from policyd.api.kueue import PodSet, PodSetAssignment, Workload
from policyd.api.kueue.names import FINISHED, QUOTA_RESERVED
from policyd.api.meta import find_condition
from policyd.api.pod_requests import amounts, pod_requests
from policyd.api.quantity import QuantityError
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.jobs.workload import pods_given_back, pods_left
from policyd.optimize.devices import counts_as_gpus, gpus_asked
from policyd.usage.record import PARTS, HeldQuota
from policyd.workload.records import owner_of


class QuotaTimes(NamedTuple):
    """When a Workload got quota, and when it gave it back, in seconds since the epoch.

    Attributes:
        begin: None if it has none, or never had.
        end: None if it has some.
    """

    begin: float | None
    end: float | None


def quota_times(workload: Workload) -> QuotaTimes:
    """Return when a Workload got its quota, and gave it back."""
    reserved = _since(workload, QUOTA_RESERVED)
    if not has_quota(workload):
        return QuotaTimes(None, reserved)
    return QuotaTimes(reserved, _since(workload, FINISHED) if is_finished(workload) else None)


def held_quota(workload: Workload) -> HeldQuota | None:
    """Return what a Workload holds of GPUs; None if it holds none of them."""
    admission = workload.status.admission
    if admission is None or not has_quota(workload):
        return None
    left = pods_left(workload, pods_given_back(workload))
    found: dict[str, int] = {}
    for each in admission.pod_set_assignments:
        for flavor, parts in _parts(each, left[each.name]).items():
            found[flavor] = found.get(flavor, 0) + parts
    gpus = {flavor: parts for flavor, parts in found.items() if parts}
    if not gpus:
        return None
    return HeldQuota(
        queue=admission.cluster_queue,
        local_queue=f"{workload.metadata.namespace}/{workload.spec.queue_name}",
        user=owner_of(workload),
        amounts=gpus,
    )


def asks_for_gpus(workload: Workload) -> bool:
    """Tell whether a Workload requests GPUs, or parts of them."""
    return pods_ask_for_gpus(workload.spec.pod_sets)


def pods_ask_for_gpus(pod_sets: Iterable[PodSet]) -> bool:
    """Tell whether pods request GPUs, or parts of them."""
    try:
        return any(
            asks_for_part(each.template.metadata.annotations)
            or gpus_asked(pod_requests(each.template.spec))
            for each in pod_sets
        )
    except QuantityError:
        return False


def parts_of(requests: Mapping[str, int]) -> int:
    """Return how many parts of GPUs amounts of resources are."""
    return ceil(gpus_asked(requests) * PARTS)


def _parts(assigned: PodSetAssignment, left: int) -> dict[str, int]:
    """Return the parts of GPUs of a pod set, by flavor, for those of its pods that are left."""
    gpus = {name: each for name, each in assigned.resource_usage.items() if counts_as_gpus(name)}
    try:
        usage = amounts(gpus)
    except QuantityError:
        return {}
    found: dict[str, int] = {}
    for resource, amount in usage.items():
        flavor = assigned.flavors.get(resource)
        if flavor is None:
            continue
        parts = parts_of({resource: amount})
        if assigned.count and left < assigned.count:
            parts = parts * left // assigned.count
        found[flavor] = found.get(flavor, 0) + parts
    return found


def _since(workload: Workload, kind: str) -> float | None:
    found = find_condition(workload.status.conditions, kind)
    since = None if found is None else found.last_transition_time
    return None if since is None else since.timestamp()
