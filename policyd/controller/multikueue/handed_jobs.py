"""The jobs of workloads that go to other clusters, and whether they are handed over."""

from collections import OrderedDict
from typing import Any, NamedTuple

from policyd.api.kueue import Workload
from policyd.api.meta import ObjectMeta, OwnerReference
from policyd.controller.multikueue.context import ManagerContext
from policyd.controller.watch.mirrors import job_resource
from policyd.jobs.base import controller_of, is_pod
from policyd.jobs.kinds.registry import kind_of_owner, parent_of_owner
from policyd.jobs.managers import MANAGERS, JobManager
from policyd.jobs.parents import OWNER_KIND, OWNER_NAME
from policyd.kube.errors import NotFoundError
from policyd.kube.resources import PODS, Resource
from policyd.multikueue.copies import manager_of, unmanaged

MOST_MANAGED = 100_000
"""Jobs that are remembered as handed over."""


class HandedJob(NamedTuple):
    """The job of a workload, and how its kind is handed over.

    Attributes:
        owner: The job; of a group of pods, one of them.
        manager: The field by which it is handed over.
        resource: Its resource.
        pods: The names of all pods, if the job is one or several.
    """

    owner: OwnerReference
    manager: JobManager
    resource: Resource
    pods: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all objects that are copied."""
        return self.pods or (self.owner.name,)


class HandedJobs:
    """Finds the jobs of workloads, and reads each once to see that it is handed over."""

    def __init__(self, context: ManagerContext) -> None:
        self._cache = context.cache
        self._writes = context.writes
        self._settings = context.settings
        self._managed: OrderedDict[str, None] = OrderedDict()

    async def find(self, workload: Workload, *, deleted: bool) -> HandedJob | str:
        """Return the job of a workload; a message if it cannot be sent, or was not handed over.

        Raises:
            ApiError: If the job could not be read.
        """
        owner = job_of(workload.metadata)
        if owner is None:
            return "No multikueue adapter found"
        group, _, version = owner.api_version.rpartition("/")
        manager = manager_of(group, owner.kind, version, self._settings.frameworks)
        if not is_pod(owner) and (group, owner.kind) in MANAGERS:
            manager = manager if self._cache.integrations.has(group, owner.kind) else None
        resource = None if manager is None else await self._resource(owner)
        if manager is None or resource is None:
            about = f"{owner.api_version if group else f'/{version}'}, Kind={owner.kind}"
            return f'No multikueue adapter found for owner kind "{about}"'
        handed = HandedJob(owner, manager, resource, pods_of(workload.metadata, owner))
        return handed if deleted else await self._checked(handed, workload.metadata.namespace)

    async def _checked(self, handed: HandedJob, namespace: str) -> HandedJob | str:
        """Return a job that was handed over; a message if it was not."""
        owner = handed.owner
        if handed.manager.holds:
            return handed  # the gates of its pods keep it from starting
        if owner.uid not in self._managed:
            job = await self._writes.client.get(
                handed.resource, owner.name, namespace=namespace, into=dict[str, Any]
            )
            if reason := unmanaged(handed.manager, job):
                return f"The owner is not managed by Kueue: {reason}"
            self._managed[owner.uid] = None
            if len(self._managed) > MOST_MANAGED:
                self._managed.popitem(last=False)
        return handed

    async def resource_of(self, owner: OwnerReference) -> Resource | None:
        """Return the resource of a job if its kind can be sent; None if not."""
        group, _, version = owner.api_version.rpartition("/")
        known = manager_of(group, owner.kind, version, self._settings.frameworks)
        return None if known is None else await self._resource(owner)

    def forget(self, owner: OwnerReference) -> None:
        """Look at a job again before it is sent."""
        self._managed.pop(owner.uid, None)

    async def _resource(self, owner: OwnerReference) -> Resource | None:
        if is_pod(owner):
            return PODS
        kind = kind_of_owner(owner) or parent_of_owner(owner)
        if kind is not None:
            return job_resource(kind)
        try:
            served = await self._writes.client.served(owner.api_version)
        except NotFoundError:
            return None
        return next((each for each in served if each.kind == owner.kind), None)


def job_of(metadata: ObjectMeta) -> OwnerReference | None:
    """Return the job of a workload: the object whose pods are a group, before its pods."""
    owners = metadata.owner_references
    parent = next((each for each in owners if parent_of_owner(each) is not None), None)
    parent = parent or _former_parent(metadata)
    return controller_of(metadata) or parent or next(iter(owners), None)


def _former_parent(metadata: ObjectMeta) -> OwnerReference | None:
    """Return the parent that a workload notes, without a UID.

    Kubernetes takes a parent that is gone off the owners, as long as pods of it are among them.
    """
    api_version, _, kind = metadata.annotations.get(OWNER_KIND, "").partition(", Kind=")
    name = metadata.annotations.get(OWNER_NAME, "")
    noted = OwnerReference(api_version=api_version, kind=kind, name=name, uid="")
    return noted if name and parent_of_owner(noted) is not None else None


def pods_of(metadata: ObjectMeta, job: OwnerReference) -> tuple[str, ...]:
    """Return the names of the pods that a workload stands for, if its job is a pod."""
    owners = metadata.owner_references if is_pod(job) else ()
    return tuple(dict.fromkeys(each.name for each in owners if is_pod(each)))
