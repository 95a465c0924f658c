"""Writes the usage of queues into their statuses: gathered, once a second, and only changes."""

import asyncio
from contextlib import suppress
from typing import Any, NoReturn, TypeVar

import msgspec
import structlog

from policyd.alloc.fair_sharing import above, share_of
from policyd.alloc.quota import QuotaNode
from policyd.api.kueue import (
    AdmissionFairSharingStatus,
    ClusterQueue,
    ClusterQueueStatus,
    Cohort,
    FairSharingStatus,
    LocalQueue,
    LocalQueueFairSharingStatus,
    LocalQueueStatus,
)
from policyd.api.kueue.names import ACTIVE
from policyd.api.meta import Condition, timestamp
from policyd.api.quantity import Quantity
from policyd.api.schema import QuantityText
from policyd.controller.metrics.counters import ControllerMetrics
from policyd.controller.queues.queue_status_values import (
    cluster_queue_active,
    cluster_queue_status,
    local_queue_status,
    status_patch,
    with_flavors,
)
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.mirror import Mirror
from policyd.controller.writes import NotLeadingError, Writes
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.errors import ApiError, InvalidError, NotFoundError
from policyd.kube.pace import Pace
from policyd.kube.unforeseen import log_unforeseen
from policyd.optimize.fragmentation import measured
from policyd.status.queues import queue_figures, queue_status
from policyd.status.shares import rounded_share

log = structlog.get_logger()

S = TypeVar("S", ClusterQueueStatus, LocalQueueStatus)

IDLE_SECONDS = 3_600.0
"""Between looks at usage that does not order workloads."""
GATHER_SECONDS = 1.0
"""Between two times that changes are written, at least."""
MOMENT_SECONDS = 0.05
"""Changes are gathered for so long, so that those of one moment are one write."""
LONGEST_REST_SECONDS = 5.0
"""After a flush, on a server so slow that decisions should be written first."""
MOST_FLAVORS = 256
"""Whose usage our definitions take in a status."""
FEWEST_FLAVORS = 64
"""As many as Kueue's own definitions take."""
LEFT_OUT = "FlavorsLeftOut"
MEASURE_SECONDS = 10.0
"""Between two looks at how devices are fragmented, at least."""


class QueueStatuses:
    """Keeps the statuses of ClusterQueues, LocalQueues and Cohorts up to date."""

    def __init__(
        self, cache: Cache, writes: Writes, *, metrics: ControllerMetrics, pace: Pace
    ) -> None:
        self._cache = cache
        self._writes = writes
        self._metrics = metrics
        self._pace = pace
        self._due: dict[str, None] = {}
        self._shared: dict[str, None] = {}
        self._woken = asyncio.Event()
        self._measured: float | None = None
        self._most_flavors = MOST_FLAVORS
        cache.mirrors.cohorts.listen(self._cohort_changed)

    def _cohort_changed(self, change: Change[Cohort]) -> None:
        """Note a cohort: below it there may be no queue whose figures are written."""
        match change:
            case Added(cohort) | Modified(object=cohort):
                self._shared[cohort.metadata.name] = None
                self._woken.set()
            case Deleted():
                pass

    def note(self, name: str) -> None:
        """Note that the figures of a queue may have changed.

        Args:
            name: A ClusterQueue's name, or `namespace/name` of a LocalQueue.
        """
        self._due[name] = None
        self._woken.set()

    async def run(self) -> NoReturn:
        """Write statuses until cancelled."""
        clock, free_at = self._pace.clock, 0.0
        while True:
            await self._woken.wait()
            await self._pace.sleep(max(MOMENT_SECONDS, free_at - clock.monotonic()))
            self._woken.clear()
            began = clock.monotonic()
            free_at = began + GATHER_SECONDS
            with suppress(NotLeadingError):  # the next leader looks at all queues
                await self.flush()
            await self._pace.rest(began, most=LONGEST_REST_SECONDS)

    async def sample(self) -> NoReturn:
        """Sample the usage of LocalQueues until cancelled, if it orders their workloads."""
        history = self._cache.state.history
        seconds = IDLE_SECONDS if history is None else history.rules.sampling_seconds
        while True:
            await self._pace.sleep(seconds)
            self.sample_once()

    def sample_once(self) -> None:
        """Sample the usage of every LocalQueue, whether or not that orders its workloads."""
        state, now = self._cache.state, self._pace.clock.now()
        if state.history is None:
            return
        for queue in self._cache.mirrors.local_queues:
            key = queue.metadata.key
            with log_unforeseen("sample_error", queue=key):
                state.history.sample(key, state.usage_of(key), now)
            self.note(key)
        self._cache.hooks.schedule()

    async def flush(self) -> None:
        """Write changed statuses; failed writes are retried at the next flush."""
        due, self._due = self._due, {}
        for name in due:
            try:
                with log_unforeseen("queue_status_error", ApiError, NotLeadingError, queue=name):
                    await self._write(name)
            except NotFoundError:
                continue  # it is gone, and so is its status
            except ApiError as error:
                log.info("queue_status_late", queue=name, error=str(error))
                self.note(name)
        await self._flush_cohorts()
        with log_unforeseen("devices_error"):
            self._measure()

    def _measure(self) -> None:
        """Measure fragmentation, now and then: it takes milliseconds for large clusters."""
        now = self._pace.clock.monotonic()
        if self._measured is not None and now - self._measured < MEASURE_SECONDS:
            self._woken.set()  # the last change is looked at too
            return
        self._measured = now
        for found in measured(self._cache.state.ledger.nodes):
            self._metrics.devices(*found)

    async def _flush_cohorts(self) -> None:
        """Write the shares of the cohorts above queues whose figures were written."""
        due, self._shared = self._shared, {}
        for name in due:
            try:
                with log_unforeseen("cohort_status_error", ApiError, NotLeadingError, cohort=name):
                    await self._write_cohort(name)
            except NotFoundError:
                continue
            except ApiError as error:
                log.info("cohort_status_late", cohort=name, error=str(error))
                self._shared[name] = None
                self._woken.set()

    async def _write_cohort(self, name: str) -> None:
        mirror: Mirror[Cohort] = self._cache.mirrors.cohorts
        cohort = mirror.get(name)
        if cohort is None:
            return
        share = self._share(self._cache.state.tree.hierarchy.cohorts.get(name))
        status = msgspec.structs.replace(cohort.status, fair_sharing=share)
        patch = status_patch(cohort.status, status, cohort.metadata)
        if patch is not None:
            await self._writes.patch(mirror, cohort, patch, subresource="status")

    async def _write(self, name: str) -> None:
        if "/" in name:
            await self._write_local_queue(name)
        else:
            await self._write_cluster_queue(name)

    async def _write_cluster_queue(self, name: str) -> None:
        mirror: Mirror[ClusterQueue] = self._cache.mirrors.cluster_queues
        queue, node = mirror.get(name), self._cache.state.tree.hierarchy.queues.get(name)
        if queue is None:
            return
        if node is not None and not node.cyclic:
            self._shared.update((cohort.name, None) for cohort in above(node))
        figures = queue_figures(self._cache.state, name)
        status = cluster_queue_status(
            queue, figures, cluster_queue_active(self._cache.state, queue), now=self._writes.now
        )
        status = msgspec.structs.replace(status, fair_sharing=self._share(node))
        await self._store(mirror, queue, status)

    def _share(self, node: QuotaNode | None) -> FairSharingStatus | None:
        """Return the share of a ClusterQueue or a Cohort, where shares decide."""
        state = self._cache.state
        if state.settings.fair_sharing is None or node is None:
            return None
        state.settle()
        return FairSharingStatus(weighted_share=rounded_share(share_of(state.tree, node)))

    async def _write_local_queue(self, key: str) -> None:
        mirror: Mirror[LocalQueue] = self._cache.mirrors.local_queues
        queue = mirror.get(key)
        if queue is None:
            return
        name = queue.spec.cluster_queue
        known = self._cache.mirrors.cluster_queues.get(name) is not None
        # Workloads with quota of a deleted ClusterQueue are not counted.
        figures = queue_figures(self._cache.state, name if known else "", local_queue=key)
        status = local_queue_status(
            queue, figures, self._local_queue_active(queue), now=self._writes.now
        )
        status = msgspec.structs.replace(status, fair_sharing=self._past(queue))
        await self._store(mirror, queue, status)

    async def _store(
        self, mirror: Mirror[Any], queue: ClusterQueue | LocalQueue, status: S
    ) -> None:
        """Write the status of a queue, with as many flavors as its definition takes."""
        kept = with_flavors(status, self._most_flavors)
        patch = status_patch(queue.status, kept, queue.metadata)
        if patch is None:
            return
        all_, had, shown = (len(each.flavors_usage) for each in (status, queue.status, kept))
        try:
            await self._writes.patch(mirror, queue, patch, subresource="status")
        except InvalidError:
            if shown <= FEWEST_FLAVORS:
                raise
            self._most_flavors = FEWEST_FLAVORS
            await self._store(mirror, queue, status)
            return
        if shown < all_ and shown != had:
            message = (
                f"the status tells the usage of {shown} of {all_} flavors: the definition"
                f" {mirror.resource.plural}.{mirror.resource.group} takes no more"
            )
            self._writes.record(mirror.resource, queue.metadata, LEFT_OUT, message, warning=True)

    def _past(self, queue: LocalQueue) -> LocalQueueFairSharingStatus | None:
        """Return the past usage of a LocalQueue; None if it does not order workloads."""
        state, key = self._cache.state, queue.metadata.key
        if state.history is None:
            return None
        if key not in state.history.entries:
            state.history.seed(key, state.usage_of(key), self._pace.clock.now())
        entry = state.history.entries[key]
        behind = state.queues.get(queue.spec.cluster_queue)
        groups = behind.spec.groups if behind is not None and behind.spec is not None else ()
        known = {name: 0 for group in groups for name in group.resources}
        forgets = state.history.rules.half_life_seconds == 0
        consumed: dict[str, QuantityText] = {
            name: str(Quantity(nano))
            for name, nano in ({} if forgets else {**known, **entry.consumed}).items()
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
