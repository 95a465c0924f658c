"""Hands gangs to other schedulers: makes their PodGroups before pods go, and takes them away.

A PodGroup exists while its workload is admitted, since some schedulers keep room for one without
pods. The workload owns it, so that one that is left over is deleted with the workload.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import structlog

from policyd.api.kueue import Admission, ClusterQueue, Workload
from policyd.api.meta import Json, ObjectMeta
from policyd.controller.jobs.gang_objects import GangObjects
from policyd.controller.reconcile import Reconcile
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.watch.mirrors import Mirrors
from policyd.controller.writes import Writes
from policyd.jobs.gangs.gang import CreationOrder, gang_of
from policyd.jobs.gangs.hand_over import (
    GANG_QUEUE,
    GANG_SCHEDULER,
    ExternalGang,
    hand_over,
    possible_names,
)
from policyd.jobs.gangs.schedulers import GangScheduler
from policyd.jobs.injection import PodInjection
from policyd.jobs.kinds.registry import PARENTS
from policyd.jobs.lifecycle import is_finished
from policyd.jobs.pods import SUSPENDING_PARENT, QueuedPod
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.errors import AlreadyExistsError, ForbiddenError, InvalidError, NotFoundError
from policyd.kube.resources import Resource
from policyd.workload.opt_ins import OptInError, gang_scheduler_of, gang_wait_of
from policyd.workload.transitions import is_admitted

log = structlog.get_logger()

GANG_SECONDS: Final = 10.0
"""Between tries to make a PodGroup that the API server does not take."""

Specs = Mapping[str, Json]


class Gangs:
    """Hands gangs that were admitted over to other schedulers."""

    def __init__(self, cache: Cache, writes: Writes) -> None:
        self._cache = cache
        self._writes = writes
        self._objects = GangObjects(cache.mirrors.workloads, writes)
        self._made: dict[str, tuple[GangScheduler, Specs]] = {}
        self._over: dict[str, tuple[GangScheduler, Specs]] = {}
        cache.mirrors.workloads.listen(self._changed)

    def reconcilers(self) -> dict[str, Reconcile]:
        """Return the reconcilers that delete PodGroups that are no longer needed."""
        return {"Gang": self._clear}

    async def publish(
        self,
        about: tuple[Resource, ObjectMeta],
        workload: Workload,
        given: Sequence[PodInjection],
        *,
        comes: CreationOrder = "",
        pods: Mapping[str, ObjectMeta] | None = None,
    ) -> bool:
        """Create the PodGroups of a gang that is about to start, if its queue has a scheduler.

        Args:
            about: The job, which gets events.
            workload: Its workload, admitted.
            given: The values that the pods of each pod set get; those of the gang are added.
            comes: How its pods are made.
            pods: The values of its pods, by pod set; None if they do not exist yet.

        Returns:
            Whether its pods may go.

        Raises:
            ApiError: If the API server did not answer.
        """
        admission = workload.status.admission
        assert admission is not None, "a gang that is about to start was admitted"
        queue = self._cache.mirrors.cluster_queues.get(admission.cluster_queue)
        scheduler = None if queue is None else gang_scheduler_of(queue.metadata.annotations)
        if queue is None or scheduler is None:
            return True
        gang = gang_of(
            workload,
            queue=queue.metadata.annotations.get(GANG_QUEUE, ""),
            topology=self._topology(admission),
            comes=comes,
            pods=pods,
        )
        wait = gang_wait_of(queue.metadata.annotations)
        handed = hand_over(replace(gang, wait_seconds=wait), scheduler)
        for injection, pod_set in zip(given, workload.spec.pod_sets, strict=True):
            injection.marks = handed.marks.get(pod_set.name, injection.marks)
        if self._made.get(workload.metadata.key) == (scheduler, handed.specs):
            return True
        try:
            for name, spec in handed.specs.items():
                await self._objects.make(scheduler, name, spec, of=workload)
        except (AlreadyExistsError, ForbiddenError, InvalidError, NotFoundError) as error:
            missing = isinstance(error, NotFoundError)
            why = f"the API server has no PodGroups of {scheduler.group}" if missing else str(error)
            self._writes.record(
                *about, "GangNotHandedOver", f"Cannot create the PodGroup: {why}", warning=True
            )
            log.warning("gang_not_handed_over", workload=workload.metadata.key, error=str(error))
            return False
        self._made[workload.metadata.key] = scheduler, handed.specs
        self._announce(about, queue, handed)
        return True

    def _topology(self, admission: Admission) -> str:
        assigned = admission.pod_set_assignments
        names = (name for each in assigned for name in each.flavors.values())
        found = (self._cache.mirrors.flavors.get(name) for name in names)
        return next((f.spec.topology_name for f in found if f and f.spec.topology_name), "")

    def _announce(
        self, about: tuple[Resource, ObjectMeta], queue: ClusterQueue, handed: ExternalGang
    ) -> None:
        scheduler = queue.metadata.annotations[GANG_SCHEDULER]
        if not handed.specs:
            message = f"Not handed over to {scheduler}: {handed.hindrance}"
            self._writes.record(*about, "GangNotHandedOver", message, warning=True)
            return
        message = f"Handed over to {scheduler} as PodGroup {', '.join(handed.specs)}"
        if handed.unsupported:
            message += f"; not supported: {'; '.join(handed.unsupported)}"
        self._writes.record(*about, "GangHandedOver", message, warning=bool(handed.unsupported))

    def _changed(self, change: Change[Workload]) -> None:
        match change:
            case Modified():
                if _is_over(change.object) and not _is_over(change.old):
                    self._ended(change.old)
            case Deleted():
                if not _is_over(change.object):
                    self._ended(change.object)
            case Added():
                pass

    def _ended(self, old: Workload) -> None:
        key = old.metadata.key
        if key in self._made:
            self._over[key] = self._made.pop(key)
        if key in self._over or self._scheduler(old) is not None:
            self._cache.hooks.reconcile(
                ReconcileKey("Gang", old.metadata.namespace, old.metadata.name)
            )

    def hands_over(self, workload: Workload) -> bool:
        """Tell whether another scheduler starts a gang, so that it must know all of it."""
        return self._scheduler(workload) is not None

    def _scheduler(self, workload: Workload) -> GangScheduler | None:
        queue = self._cache.cluster_queue_of(workload)
        try:
            return None if queue is None else gang_scheduler_of(queue.metadata.annotations)
        except OptInError:  # as the queue says itself
            return None

    async def _clear(self, key: ReconcileKey) -> float | None:
        workload = self._cache.mirrors.workloads.get(key.path)
        if workload is None or _is_over(workload):
            for scheduler, name in self._left_over(key, workload):
                await self._objects.remove(scheduler, name, of=key)
        self._over.pop(key.path, None)
        return None

    def _left_over(
        self, key: ReconcileKey, workload: Workload | None
    ) -> Iterator[tuple[GangScheduler, str]]:
        """Yield which PodGroups of a workload may be there, made perhaps before a restart."""
        if key.path in self._over:
            scheduler, specs = self._over[key.path]
            yield from ((scheduler, name) for name in specs)
            return
        known = None if workload is None else self._scheduler(workload)
        if workload is not None and known is not None:
            yield from ((known, name) for name in possible_names(workload, known))


def creation_order_of(mirrors: Mirrors, pod: QueuedPod) -> CreationOrder:
    """Return how the pods of a group are made, by the parent of one of them."""
    word = pod.metadata.annotations.get(SUSPENDING_PARENT)
    kind = next((kind for kind in PARENTS if kind.in_groups and kind.word == word), None)
    if kind is None:
        return ""
    parent = mirrors.jobs[kind.key].get(f"{pod.metadata.namespace}/{kind.name_of(pod)}")
    return "" if parent is None else kind.comes(parent)


def _is_over(workload: Workload) -> bool:
    return is_finished(workload) or not is_admitted(workload)
