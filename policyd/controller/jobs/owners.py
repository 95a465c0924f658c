"""Owners: whether the jobs and pods of a workload exist, and the owners of those."""

from collections import OrderedDict
from typing import Final

from policyd.api.kueue import Workload
from policyd.api.kueue.names import IS_GROUP_WORKLOAD, JOB_UID
from policyd.api.meta import ObjectMeta, OwnerReference
from policyd.controller.watch.mirrors import Mirrors, job_resource
from policyd.controller.writes import Writes
from policyd.jobs.base import JobObject, is_pod
from policyd.jobs.kinds.registry import kind_of_owner, parent_of_owner
from policyd.jobs.lifecycle import is_finished
from policyd.jobs.pods import QueuedPod
from policyd.kube.client import PartialObject, Reader
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.resources import PODS, Resource

OWNER_SECONDS: Final = 300.0
"""How long the owner of an owner is remembered."""
MOST_OWNERS: Final = 4096
MOST_READ: Final = 16
"""Owners of a workload that one look reads from the API server."""


class Owners:
    """Looks for owners in the mirrors first, then on the API server.

    A tenant may name as many owners as an object has room for, so a look reads a few of them, and
    the next look goes on from there.
    """

    def __init__(self, mirrors: Mirrors, writes: Writes) -> None:
        self._mirrors = mirrors
        self._writes = writes
        self._places: dict[str, tuple[int, int, bool]] = {}
        """By the key of a workload: which owners are to be read, how many of them are gone, and
        whether the next one is there."""

    def are_unread(self, key: str) -> bool:
        """Tell whether the last look at a workload left owners for the next one."""
        return key in self._places and not self._places[key][-1]

    def forget(self, key: str) -> None:
        """Forget the owners of a workload."""
        self._places.pop(key, None)

    async def are_deleted(self, workload: Workload, *, orphans: bool = True) -> bool:
        """Tell whether all objects that a workload represents are known to be deleted.

        Objects that are not in mirrors are read: a job that no longer queues still exists.
        Owners of other kinds do not count, and a workload that was created by hand has none.

        Args:
            workload: The workload.
            orphans: Whether one that had an owner, and has none any more, was left behind.

        Raises:
            ApiError: If the API server cannot be asked.
        """
        metadata = workload.metadata
        deleted = metadata.deletion_timestamp is not None
        if is_finished(workload) and not deleted:
            return False
        if not metadata.owner_references:
            return deleted or (orphans and bool(metadata.labels.get(JOB_UID)))
        owners = [(owner, resource_of(owner)) for owner in _owners(workload)]
        if not owners:
            return False
        unseen = []
        for owner, resource in owners:
            there = resource is None or self._is_seen(owner, resource, metadata.namespace)
            if there:
                self.forget(metadata.key)
                return False
            if there is None and resource is not None:
                unseen.append((owner, resource))
        return await self._are_gone(unseen, workload)

    def _is_seen(self, owner: OwnerReference, resource: Resource, namespace: str) -> bool | None:
        """Tell whether an owner in the mirrors stays; None if it is in none of them."""
        mirror = self._mirrors.pods if resource == PODS else self._mirrors.jobs[key_of(owner)]
        seen = mirror.get(f"{namespace}/{owner.name}")
        if seen is None or seen.metadata.uid != owner.uid:
            return None
        return isinstance(seen, QueuedPod) or _stays(owner, seen)

    async def _are_gone(
        self, unseen: list[tuple[OwnerReference, Resource]], workload: Workload
    ) -> bool:
        """Read some owners; tell whether all were read by now, and none of them is there."""
        key, namespace = workload.metadata.key, workload.metadata.namespace
        which = hash(tuple(owner.uid for owner, _ in unseen))
        read, place, _ = self._places.pop(key, (which, 0, False))
        place = place if read == which else 0
        for owner, resource in unseen[place : place + MOST_READ]:
            found = await read_owner(self._writes.client, resource, owner, namespace)
            if found is not None and (resource == PODS or found.deletion_timestamp is None):
                if place:
                    self._places[key] = which, place, True
                return False
            place += 1
        if place < len(unseen):
            self._places[key] = which, place, False
        return place >= len(unseen)


async def read_owner(
    reader: Reader, resource: Resource, owner: OwnerReference, namespace: str
) -> ObjectMeta | None:
    """Read the metadata of an owner; None if it is not there any more.

    Raises:
        ApiError: If the API server cannot be asked.
    """
    try:
        found = await reader.get(resource, owner.name, namespace=namespace, into=PartialObject)
    except NotFoundError:
        return None
    return found.metadata if found.metadata.uid == owner.uid else None


def key_of(owner: OwnerReference) -> str:
    """Return the name of an owner's kind among all kinds of jobs; empty if it is none of them."""
    kind = kind_of_owner(owner) or parent_of_owner(owner)
    return "" if kind is None else kind.key


def resource_of(owner: OwnerReference) -> Resource | None:
    """Return where the pods or jobs are that an owner is one of; None if of no kind that queues."""
    if is_pod(owner):
        return PODS
    kind = kind_of_owner(owner) or parent_of_owner(owner)
    return None if kind is None else job_resource(kind)


class SeenOwners:
    """The metadata of owners, from the mirrors, or from an earlier answer of the API server."""

    def __init__(self, mirrors: Mirrors, writes: Writes) -> None:
        self._mirrors = mirrors
        self._writes = writes
        self._found: OrderedDict[str, tuple[float, ObjectMeta | None]] = OrderedDict()

    async def find(self, owner: OwnerReference, namespace: str) -> ObjectMeta | None:
        """Return the metadata of an owner; None if it is not there, or of no kind that is known.

        Raises:
            ApiError: If the API server cannot be asked.
        """
        resource = resource_of(owner)
        if resource is None or resource == PODS:
            return None
        mirror = self._mirrors.jobs.get(key_of(owner))
        seen = None if mirror is None else mirror.get(f"{namespace}/{owner.name}")
        if seen is not None and seen.metadata.uid == owner.uid:
            return seen.metadata
        key, now = "/".join((key_of(owner), namespace, owner.name, owner.uid)), self._writes.now
        at, found = self._found.get(key, (0.0, None))
        if now - at >= OWNER_SECONDS:
            found = await self._read(resource, owner, namespace)
            self._found[key] = now, found
        if len(self._found) > MOST_OWNERS:
            self._found.popitem(last=False)
        return found

    async def _read(
        self, resource: Resource, owner: OwnerReference, namespace: str
    ) -> ObjectMeta | None:
        try:
            return await read_owner(self._writes.client, resource, owner, namespace)
        except ForbiddenError:
            return None


def _owners(workload: Workload) -> tuple[OwnerReference, ...]:
    owners = workload.metadata.owner_references
    if workload.metadata.annotations.get(IS_GROUP_WORKLOAD) == "true":
        return owners
    return tuple(owner for owner in owners if owner.controller) or owners


def _stays(owner: OwnerReference, job: JobObject) -> bool:
    kind = kind_of_owner(owner)
    return job.metadata.deletion_timestamp is None or (kind is not None and kind.lingers(job))
