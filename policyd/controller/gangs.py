"""Hands gangs to other schedulers: makes their PodGroups before pods go, and takes them away.

A PodGroup is there while its workload is admitted, since some schedulers keep room for one that has
no pods. The workload owns it: what a restart forgets to take away goes with that.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec
import structlog

from policyd.api.kueue import Admission, ClusterQueue, Workload
from policyd.api.kueue.names import API_VERSION
from policyd.api.meta import Json, ObjectMeta, OwnerReference
from policyd.controller.cache import Cache
from policyd.controller.keys import Key
from policyd.controller.mirrors import Mirrors
from policyd.controller.opt_ins import gang_scheduler_of, gang_wait_of
from policyd.controller.reconcile import Reconcile
from policyd.controller.transitions import is_admitted
from policyd.controller.writes import Writes
from policyd.jobs.gangs.gang import Coming, gang_of
from policyd.jobs.gangs.hand_over import GANG_QUEUE, GANG_SCHEDULER, HandedOver, hand_over
from policyd.jobs.gangs.schedulers import GangScheduler
from policyd.jobs.injection import Injection
from policyd.jobs.kinds import PARENTS
from policyd.jobs.lifecycle import is_finished
from policyd.jobs.pods import SUSPENDING_PARENT, Pod
from policyd.kube.errors import AlreadyExistsError, ForbiddenError, InvalidError, NotFoundError
from policyd.kube.resources import Resource

log = structlog.get_logger()

GANG_SECONDS: Final = 10.0
"""Between tries to make a PodGroup that the API server does not take."""

Specs = Mapping[str, Json]


class Gangs:
    """What other schedulers are told of gangs that were admitted."""

    def __init__(self, cache: Cache, writes: Writes) -> None:
        self._cache = cache
        self._writes = writes
        self._versions: dict[str, Resource] = {}
        self._made: dict[str, tuple[GangScheduler, Specs]] = {}
        self._over: dict[str, tuple[GangScheduler, Specs]] = {}
        cache.mirrors.workloads.listen(self._changed)

    def reconcilers(self) -> dict[str, Reconcile]:
        """Return what takes PodGroups away that are needed no longer."""
        return {"Gang": self._clear}

    async def tell(
        self,
        about: tuple[Resource, ObjectMeta],
        workload: Workload,
        given: Sequence[Injection],
        *,
        comes: Coming = "",
        pods: Mapping[str, ObjectMeta] | None = None,
    ) -> bool:
        """Tell another scheduler of a gang that is about to start, if its queue wants that.

        Args:
            about: The job, which hears of it.
            workload: Its workload, admitted.
            given: What the pods of each pod set get; what they must say is added.
            comes: How its pods are made.
            pods: What its pods say, by pod set; None if they do not exist yet.

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
        told = hand_over(replace(gang, wait_seconds=wait), scheduler)
        for injection, pod_set in zip(given, workload.spec.pod_sets, strict=True):
            injection.marks = told.marks.get(pod_set.name, injection.marks)
        if self._made.get(workload.metadata.key) == (scheduler, told.specs):
            return True
        try:
            for name, spec in told.specs.items():
                await self._make(workload, scheduler, name=name, spec=spec)
        except (AlreadyExistsError, ForbiddenError, InvalidError, NotFoundError) as error:
            missing = isinstance(error, NotFoundError)
            why = f"the API server has no PodGroups of {scheduler.group}" if missing else str(error)
            self._writes.tell(*about, "GangNotHandedOver", f"Waits: {why}", bad=True)
            log.warning("gang_not_handed_over", workload=workload.metadata.key, error=str(error))
            return False
        self._made[workload.metadata.key] = scheduler, told.specs
        self._announce(about, queue, told)
        return True

    def _topology(self, admission: Admission) -> str:
        assigned = admission.pod_set_assignments
        names = (name for each in assigned for name in each.flavors.values())
        found = (self._cache.mirrors.flavors.get(name) for name in names)
        return next((f.spec.topology_name for f in found if f and f.spec.topology_name), "")

    def _announce(
        self, about: tuple[Resource, ObjectMeta], queue: ClusterQueue, told: HandedOver
    ) -> None:
        scheduler = queue.metadata.annotations[GANG_SCHEDULER]
        lost = f"{scheduler} is not told {'; '.join(told.lost)}" if told.lost else ""
        if not told.specs:
            self._writes.tell(*about, "GangNotHandedOver", lost, bad=True)
            return
        message = f"Handed over to {scheduler} as PodGroup {', '.join(told.specs)}"
        said = f"{message}; {lost}" if lost else message
        self._writes.tell(*about, "GangHandedOver", said, bad=bool(lost))

    async def _make(
        self, workload: Workload, scheduler: GangScheduler, *, name: str, spec: Json
    ) -> None:
        namespace = workload.metadata.namespace
        body = {"metadata": {"name": name, "ownerReferences": [_owner(workload)]}, "spec": spec}
        try:
            await self._create(scheduler, body, namespace)
        except AlreadyExistsError:
            found = await self._read(scheduler, name, namespace)
            if found is None or not self._is_ours(found, workload.metadata.name):
                return  # who made it knows better
            if _says(found, spec) and _owner(workload) in found["metadata"]["ownerReferences"]:
                return
            await self._writes.unmake(self._versions[scheduler.group], name, namespace=namespace)
            await self._create(scheduler, body, namespace)

    async def _create(self, scheduler: GangScheduler, body: Json, namespace: str) -> None:
        """Create a PodGroup in the best version that is served."""
        missing: NotFoundError | None = None
        for resource in self._candidates(scheduler):
            try:
                await self._writes.make(resource, body, namespace=namespace)
            except NotFoundError as error:
                missing = error
            except AlreadyExistsError:
                self._versions[scheduler.group] = resource
                raise
            else:
                self._versions[scheduler.group] = resource
                return
        self._versions.pop(scheduler.group, None)
        assert missing is not None, "every scheduler has a version"
        raise missing

    def _candidates(self, scheduler: GangScheduler) -> Iterator[Resource]:
        known = self._versions.get(scheduler.group)
        if known is not None:
            yield known
            return
        for version in scheduler.versions:
            yield Resource(scheduler.group, version, "podgroups", "PodGroup")

    async def _read(
        self, scheduler: GangScheduler, name: str, namespace: str
    ) -> dict[str, Any] | None:
        resource = self._versions[scheduler.group]
        try:
            return await self._writes.client.get(
                resource, name, namespace=namespace, into=dict[str, Any]
            )
        except NotFoundError:
            return None

    def _changed(self, old: Workload | None, new: Workload | None) -> None:
        key = "" if old is None else old.metadata.key
        if old is not None and key in self._made and (new is None or _is_over(new)):
            self._over[key] = self._made.pop(key)
            self._cache.ears.reconcile(Key("Gang", old.metadata.namespace, old.metadata.name))

    async def _clear(self, key: Key) -> float | None:
        if key.path in self._over and key.path not in self._made:
            scheduler, specs = self._over[key.path]
            for name in specs:
                found = await self._read(scheduler, name, key.namespace)
                if found is not None and self._is_ours(found, key.name):
                    resource = self._versions[scheduler.group]
                    await self._writes.unmake(resource, name, namespace=key.namespace)
        self._over.pop(key.path, None)
        return None

    def _is_ours(self, found: Mapping[str, Any], workload: str) -> bool:
        """Tell whether a PodGroup was made for a workload of that name, or for one that is gone."""
        metadata = found["metadata"]
        owners = metadata.get("ownerReferences") or ()
        names = [owner["name"] for owner in owners if owner["kind"] == "Workload"]
        there = self._cache.mirrors.workloads.get
        return any(n == workload or there(f"{metadata['namespace']}/{n}") is None for n in names)


def coming_of(mirrors: Mirrors, pod: Pod) -> Coming:
    """Say how the pods of a group are made, by what the parent of one of them says."""
    word = pod.metadata.annotations.get(SUSPENDING_PARENT)
    kind = next((kind for kind in PARENTS if kind.in_groups and kind.word == word), None)
    if kind is None:
        return ""
    parent = mirrors.jobs[kind.kind].get(f"{pod.metadata.namespace}/{kind.name_of(pod)}")
    return "" if parent is None else kind.comes(parent)


def _is_over(workload: Workload) -> bool:
    return is_finished(workload) or not is_admitted(workload)


def _owner(workload: Workload) -> dict[str, Any]:
    owner = OwnerReference(
        api_version=API_VERSION,
        kind="Workload",
        name=workload.metadata.name,
        uid=workload.metadata.uid,
        controller=True,
        block_owner_deletion=False,
    )
    return {"blockOwnerDeletion": False, **msgspec.to_builtins(owner)}


def _says(found: Mapping[str, Any], spec: Mapping[str, Json]) -> bool:
    said = found.get("spec") or {}
    return all(said.get(key) == value for key, value in spec.items())
