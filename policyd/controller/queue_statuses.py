"""Writes what queues hold into their statuses: gathered, once a second, and only what is new."""

import asyncio
from typing import NoReturn, TypeVar

import msgspec
import structlog

from policyd.alloc.fair_sharing import share_of
from policyd.alloc.state import State
from policyd.api.configuration.duration import DurationError
from policyd.api.kueue import (
    AdmissionFairSharingStatus,
    ClusterQueue,
    ClusterQueueStatus,
    FairSharingStatus,
    FlavorUsage,
    LocalQueue,
    LocalQueueFairSharingStatus,
    LocalQueueFlavorUsage,
    LocalQueueStatus,
    ResourceUsage,
)
from policyd.api.kueue.names import ACTIVE
from policyd.api.meta import Condition, Json, ObjectMeta, timestamp, with_condition
from policyd.api.quantity import Quantity, QuantityError
from policyd.api.schema import QuantityText
from policyd.controller.cache import Cache
from policyd.controller.conversion import queue_spec
from policyd.controller.metrics import Metrics
from policyd.controller.mirror import Mirror
from policyd.controller.patches import status_difference
from policyd.controller.writes import Writes
from policyd.kube.errors import ApiError, NotFoundError
from policyd.kube.pace import Pace
from policyd.status.quantities import format_amount
from policyd.status.queues import Figures, Use, queue_figures, queue_status
from policyd.status.shares import rounded_share

log = structlog.get_logger()

S = TypeVar("S", ClusterQueueStatus, LocalQueueStatus)

IDLE_SECONDS = 3_600.0
"""Between looks at usage that nobody is ordered by."""
GATHER_SECONDS = 1.0
"""Changes are gathered for so long before they are written."""


class QueueStatuses:
    """Keeps the statuses of ClusterQueues and LocalQueues up to date."""

    def __init__(self, cache: Cache, writes: Writes, *, metrics: Metrics, pace: Pace) -> None:
        self._cache = cache
        self._writes = writes
        self._metrics = metrics
        self._pace = pace
        self._due: dict[str, None] = {}
        self._woken = asyncio.Event()

    def note(self, name: str) -> None:
        """Note that the figures of a queue may have changed.

        Args:
            name: A ClusterQueue's name, or `namespace/name` of a LocalQueue.
        """
        self._due[name] = None
        self._woken.set()

    async def run(self) -> NoReturn:
        """Write statuses until cancelled."""
        while True:
            await self._woken.wait()
            await self._pace.sleep(GATHER_SECONDS)
            self._woken.clear()
            await self.flush()

    async def sample(self) -> NoReturn:
        """Follow what LocalQueues use until cancelled, where that orders their workloads."""
        ledger = self._cache.state.ledger
        seconds = IDLE_SECONDS if ledger is None else ledger.rules.sampling_seconds
        while True:
            await self._pace.sleep(seconds)
            self.sample_once()

    def sample_once(self) -> None:
        """Take notice of what every LocalQueue uses that is ordered by it."""
        state, now = self._cache.state, self._pace.clock.now()
        for queue in self._cache.mirrors.local_queues:
            if state.ledger is not None and self._by_usage(queue):
                key = queue.metadata.key
                state.ledger.sample(key, state.register.usage_of(key), now)
                self.note(key)
                self._cache.ears.schedule()

    def _by_usage(self, queue: LocalQueue) -> bool:
        """Tell whether what a LocalQueue used decides when its workloads are next."""
        behind = self._cache.state.queues.get(queue.spec.cluster_queue)
        return behind is not None and behind.spec is not None and behind.spec.by_usage

    async def flush(self) -> None:
        """Write what has changed; what cannot be written is tried again at the next flush."""
        due, self._due = self._due, {}
        for name in due:
            try:
                await self._write(name)
            except NotFoundError:
                continue  # it is gone, and so is its status
            except ApiError as error:
                log.info("queue_status_late", queue=name, error=str(error))
                self.note(name)

    async def _write(self, name: str) -> None:
        if "/" in name:
            await self._write_local_queue(name)
        else:
            await self._write_cluster_queue(name)

    async def _write_cluster_queue(self, name: str) -> None:
        mirror: Mirror[ClusterQueue] = self._cache.mirrors.cluster_queues
        queue = mirror.get(name)
        if queue is None:
            return
        figures = queue_figures(self._cache.state, name)
        self._metrics.figures(
            name, pending=figures.pending, reserving=figures.reserving, admitted=figures.admitted
        )
        status = cluster_queue_status(
            queue, figures, cluster_queue_active(self._cache.state, queue), now=self._writes.now
        )
        status = msgspec.structs.replace(status, fair_sharing=self._share(name))
        patch = _patch(queue.status, status, queue.metadata)
        if patch is not None:
            await self._writes.patch(mirror, queue, patch, subresource="status")

    def _share(self, name: str) -> FairSharingStatus | None:
        """Return the share of a ClusterQueue, where shares decide."""
        state = self._cache.state
        node = state.tree.hierarchy.queues.get(name)
        if state.settings.fair_sharing is None or node is None:
            return None
        state.settle()
        return FairSharingStatus(weighted_share=rounded_share(share_of(state.tree, node)))

    async def _write_local_queue(self, key: str) -> None:
        mirror: Mirror[LocalQueue] = self._cache.mirrors.local_queues
        queue = mirror.get(key)
        if queue is None:
            return
        figures = queue_figures(self._cache.state, queue.spec.cluster_queue, local_queue=key)
        status = local_queue_status(
            queue, figures, self._local_queue_active(queue), now=self._writes.now
        )
        if self._by_usage(queue):
            status = msgspec.structs.replace(status, fair_sharing=self._past(key))
        patch = _patch(queue.status, status, queue.metadata)
        if patch is not None:
            await self._writes.patch(mirror, queue, patch, subresource="status")

    def _past(self, key: str) -> LocalQueueFairSharingStatus | None:
        """Return what a LocalQueue used; None until it was looked at."""
        ledger = self._cache.state.ledger
        entry = None if ledger is None else ledger.entries.get(key)
        if entry is None:
            return None
        consumed: dict[str, QuantityText] = {
            name: str(Quantity(nano)) for name, nano in entry.consumed.items()
        }
        return LocalQueueFairSharingStatus(
            admission_fair_sharing_status=AdmissionFairSharingStatus(
                consumed_resources=consumed, last_update=timestamp(entry.updated_at)
            )
        )

    def _local_queue_active(self, queue: LocalQueue) -> Condition:
        if queue.spec.stop_policy != "None":
            return Condition(ACTIVE, "False", "Stopped", "LocalQueue is stopped")
        message = "Can't submit new workloads to clusterQueue"
        name = queue.spec.cluster_queue
        if self._cache.mirrors.cluster_queues.get(name) is None:
            return Condition(ACTIVE, "False", "ClusterQueueDoesNotExist", message)
        if not queue_status(self._cache.state, name).active:
            return Condition(ACTIVE, "False", "ClusterQueueIsInactive", message)
        return Condition(ACTIVE, "True", "Ready", "Can submit new workloads to localQueue")


def cluster_queue_active(state: State, queue: ClusterQueue) -> Condition:
    """Return the condition `Active` of a ClusterQueue, without its time."""
    if queue.metadata.deletion_timestamp is not None:
        message = "Can't admit new workloads; clusterQueue is terminating"
        return Condition(ACTIVE, "False", "Terminating", message)
    try:
        queue_spec(queue, {})
    except QuantityError as error:  # so the allocator does not know it
        message = f"Can't admit new workloads: a quota cannot be read: {error}"
        return Condition(ACTIVE, "False", "Misconfigured", message)
    except DurationError as error:
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
    return msgspec.structs.replace(
        status,
        conditions=with_condition(status.conditions, active),
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
    """Leave out what is borrowed: that is the ClusterQueue's."""
    usages = _usages(figures, admitted=admitted)
    return msgspec.convert(usages, tuple[LocalQueueFlavorUsage, ...], from_attributes=True)


def _patch(old: S, new: S, metadata: ObjectMeta) -> Json:
    """Return the patch from one status to another; None if they are the same."""
    return status_difference(metadata, msgspec.to_builtins(old), msgspec.to_builtins(new))
