"""The statuses that queues should have."""

from typing import TypeVar

import msgspec

from policyd.alloc.state import CoreState
from policyd.api.kueue import (
    ClusterQueue,
    ClusterQueueStatus,
    FlavorUsage,
    LocalQueue,
    LocalQueueFlavorUsage,
    LocalQueueStatus,
    ResourceUsage,
)
from policyd.api.kueue.names import ACTIVE
from policyd.api.kueue.queues import CohortStatus
from policyd.api.meta import (
    Condition,
    Json,
    ObjectMeta,
    find_condition,
    timestamp,
    with_condition,
    without_condition,
)
from policyd.api.quantity import QuantityError
from policyd.controller.patches import status_difference
from policyd.status.quantities import format_amount
from policyd.status.queues import Figures, Use, queue_status
from policyd.workload.conversion import queue_spec
from policyd.workload.opt_ins import OptInError

S = TypeVar("S", ClusterQueueStatus, LocalQueueStatus)
Status = ClusterQueueStatus | LocalQueueStatus | CohortStatus


def cluster_queue_active(state: CoreState, queue: ClusterQueue) -> Condition:
    """Return the condition `Active` of a ClusterQueue, without its time."""
    if queue.metadata.deletion_timestamp is not None:
        message = "Can't admit new workloads; clusterQueue is terminating"
        return Condition(ACTIVE, "False", "Terminating", message)
    try:
        queue_spec(queue, {})
    except QuantityError as error:  # so the allocator does not know it
        message = f"Can't admit new workloads: a quota cannot be read: {error}"
        return Condition(ACTIVE, "False", "Misconfigured", message)
    except OptInError as error:
        message = f"Can't admit new workloads: an annotation cannot be read: {error}"
        return Condition(ACTIVE, "False", "Misconfigured", message)
    active = queue_status(state, queue.metadata.name)
    return Condition(ACTIVE, "True" if active.active else "False", active.reason, active.message)


def cluster_queue_status(
    queue: ClusterQueue, figures: Figures, active: Condition, *, now: float
) -> ClusterQueueStatus:
    """Return the status that a ClusterQueue should have."""
    return _filled(
        queue.status,
        figures,
        _stamped(active, queue.metadata, now),
        flavors_reservation=_usages(figures, admitted=False),
        flavors_usage=_usages(figures, admitted=True),
    )


def local_queue_status(
    queue: LocalQueue, figures: Figures, active: Condition, *, now: float
) -> LocalQueueStatus:
    """Return the status that a LocalQueue should have."""
    return _filled(
        queue.status,
        figures,
        _stamped(active, queue.metadata, now),
        flavors_reservation=_local_usages(figures, admitted=False),
        flavors_usage=_local_usages(figures, admitted=True),
    )


def _filled(status: S, figures: Figures, active: Condition, **usages: object) -> S:
    conditions, old = status.conditions, find_condition(status.conditions, ACTIVE)
    if old is not None and old.reason != active.reason == "Stopped":
        # Its time says since when the queue is stopped, though it was inactive before.
        conditions = without_condition(conditions, ACTIVE)
    return msgspec.structs.replace(
        status,
        conditions=with_condition(conditions, active),
        pending_workloads=figures.pending,
        reserving_workloads=figures.reserving,
        admitted_workloads=figures.admitted,
        **usages,
    )


def _stamped(active: Condition, metadata: ObjectMeta, now: float) -> Condition:
    return msgspec.structs.replace(
        active, last_transition_time=timestamp(now), observed_generation=metadata.generation
    )


def _usages(figures: Figures, *, admitted: bool) -> tuple[FlavorUsage, ...]:
    flavors: dict[str, list[Use]] = {}
    for use in figures.uses:
        flavors.setdefault(use.flavor, []).append(use)
    return tuple(
        FlavorUsage(name=flavor, resources=tuple(_usage(use, admitted=admitted) for use in uses))
        for flavor, uses in flavors.items()
    )


def _usage(use: Use, *, admitted: bool) -> ResourceUsage:
    total = use.admitted if admitted else use.reserved
    borrowed = use.admitted_borrowed if admitted else use.reserved_borrowed
    return ResourceUsage(
        name=use.resource,
        total=format_amount(use.resource, total),
        borrowed=format_amount(use.resource, borrowed),
    )


def _local_usages(figures: Figures, *, admitted: bool) -> tuple[LocalQueueFlavorUsage, ...]:
    """Return usage without borrowed amounts: those are the ClusterQueue's."""
    usages = _usages(figures, admitted=admitted)
    return msgspec.convert(usages, tuple[LocalQueueFlavorUsage, ...], from_attributes=True)


def with_flavors(status: S, most: int) -> S:
    """Return a status with `most` flavors at most; those that are in use come first."""
    if len(status.flavors_reservation) <= most:
        return status
    by_use = sorted(status.flavors_reservation, key=lambda each: not _is_used(each))
    kept = {each.name for each in by_use[:most]}
    return msgspec.structs.replace(
        status,
        flavors_reservation=tuple(f for f in status.flavors_reservation if f.name in kept),
        flavors_usage=tuple(f for f in status.flavors_usage if f.name in kept),
    )


def _is_used(flavor: FlavorUsage | LocalQueueFlavorUsage) -> bool:
    return any(str(each.total) != "0" for each in flavor.resources)


def status_patch(old: Status, new: Status, metadata: ObjectMeta) -> Json:
    """Return the patch from one status to another; None if they are the same."""
    return status_difference(metadata, msgspec.to_builtins(old), msgspec.to_builtins(new))
