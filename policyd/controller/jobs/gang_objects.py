"""PodGroups of other schedulers on the API server: of kinds that may be there or not."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from policyd.api.kueue import Workload
from policyd.api.kueue.names import API_VERSION
from policyd.api.meta import Json, OwnerReference
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.watch.mirror import Mirror
from policyd.controller.writes import Writes
from policyd.jobs.gangs.schedulers import GangScheduler
from policyd.kube.errors import AlreadyExistsError, NotFoundError
from policyd.kube.resources import Resource


class GangObjects:
    """Makes PodGroups that workloads own, and takes them away; those of others stay."""

    def __init__(self, workloads: Mirror[Workload], writes: Writes) -> None:
        self._workloads = workloads
        self._writes = writes
        self._versions: dict[str, Resource] = {}

    async def make(self, scheduler: GangScheduler, name: str, spec: Json, *, of: Workload) -> None:
        """Create a PodGroup with `spec`, unless another client has created one of that name.

        Raises:
            NotFoundError: If the API server has no such kind.
            ApiError: If it does not take it.
        """
        namespace, owner = of.metadata.namespace, _owner(of)
        body = {"metadata": {"name": name, "ownerReferences": [owner]}, "spec": spec}
        try:
            await self._create(scheduler, body, namespace)
        except AlreadyExistsError:
            found = await self._read(scheduler, name, namespace)
            if found is None or not self._is_ours(found, of.metadata.name):
                return  # it belongs to another client
            if _matches(found, spec) and owner in found["metadata"]["ownerReferences"]:
                return
            await self._writes.delete_named(
                self._versions[scheduler.group], name, namespace=namespace
            )
            await self._create(scheduler, body, namespace)

    async def remove(self, scheduler: GangScheduler, name: str, *, of: ReconcileKey) -> None:
        """Delete a PodGroup that was made for a workload, if it exists.

        Raises:
            ApiError: If that did not succeed.
        """
        found = await self._read(scheduler, name, of.namespace)
        if found is not None and self._is_ours(found, of.name):
            resource = self._versions[scheduler.group]
            await self._writes.delete_named(resource, name, namespace=of.namespace)

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
        for resource in self._candidates(scheduler):
            try:
                found = await self._writes.client.get(
                    resource, name, namespace=namespace, into=dict[str, Any]
                )
            except NotFoundError:
                continue
            self._versions[scheduler.group] = resource
            return found
        return None

    def _is_ours(self, found: Mapping[str, Any], workload: str) -> bool:
        """Tell whether a PodGroup was made for a workload of that name, or for one that is gone."""
        metadata = found["metadata"]
        owners = metadata.get("ownerReferences") or ()
        names = [owner["name"] for owner in owners if owner["kind"] == "Workload"]
        there = self._workloads.get
        return any(n == workload or there(f"{metadata['namespace']}/{n}") is None for n in names)


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


def _matches(found: Mapping[str, Any], spec: Mapping[str, Json]) -> bool:
    current = found.get("spec") or {}
    return all(current.get(key) == value for key, value in spec.items())
