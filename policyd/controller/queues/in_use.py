"""Finalizers that keep queues, flavors, topologies and admission checks while they are in use.

The webhooks add the finalizer to queues, flavors and topologies when they are created, as Kueue
does; admission checks, and objects that were created without webhooks, get it here. It is removed
here: from a ClusterQueue once no workload holds its quota, from a ResourceFlavor or an
AdmissionCheck once no ClusterQueue has it, from a Topology once no ResourceFlavor names it.
`release` removes it, and the one of pods, before policyd is uninstalled.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from policyd.api.kueue import AdmissionCheck, ClusterQueue, ResourceFlavor, Topology
from policyd.api.kueue.names import MANAGED, RESOURCE_IN_USE_FINALIZER
from policyd.api.meta import ObjectMeta
from policyd.controller.patches import with_finalizer, without_finalizer
from policyd.controller.reconcile import Reconcile
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import ReconcileKey, Subject
from policyd.controller.watch.mirror import Mirror
from policyd.controller.writes import Writes
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.client import Client, PartialObject
from policyd.kube.errors import ConflictError, NotFoundError
from policyd.kube.pages import pages
from policyd.kube.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    PODS,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
    Resource,
)
from policyd.status.queues import queue_figures
from policyd.workload.conversion import check_names


@dataclass(frozen=True, slots=True)
class _Kind:
    """Objects that stay while they are in use, and a function that checks it by name."""

    mirror: Mirror[Any]
    in_use: Callable[[str], bool]


class InUse:
    """Adds finalizers to objects that may be in use, and removes those of unused deleted ones."""

    def __init__(self, cache: Cache, writes: Writes) -> None:
        self._cache = cache
        self._writes = writes
        mirrors = cache.mirrors
        self._kinds: dict[Subject, _Kind] = {
            "ClusterQueue": _Kind(mirrors.cluster_queues, self._holds_quota),
            "ResourceFlavor": _Kind(mirrors.flavors, self._is_in_a_queue),
            "Topology": _Kind(mirrors.topologies, self._is_named),
            "CheckInUse": _Kind(mirrors.checks, self._is_to_be_passed),
        }
        mirrors.cluster_queues.listen(self._queue_changed)
        mirrors.flavors.listen(self._flavor_changed)
        mirrors.topologies.listen(partial(self._changed, "Topology"))
        mirrors.checks.listen(partial(self._changed, "CheckInUse"))

    def all_keys(self) -> Iterator[ReconcileKey]:
        """Yield the objects that need a finalizer, and those that may lose it."""
        for subject, kind in self._kinds.items():
            for obj in kind.mirror:
                if _is_due(obj.metadata):
                    yield ReconcileKey(subject, "", obj.metadata.name)

    def reconcilers(self) -> dict[str, Reconcile]:
        """Return the reconcilers of the objects, by the subjects of their keys."""
        return dict.fromkeys(self._kinds, self._reconcile)

    async def _reconcile(self, key: ReconcileKey) -> None:
        """Hold an object, or let it go if it is deleted and not in use."""
        kind = self._kinds[key.subject]
        obj = kind.mirror.get(key.name)
        if obj is None or not _is_due(obj.metadata):
            return
        if obj.metadata.deletion_timestamp is None:
            await self._writes.patch(kind.mirror, obj, with_finalizer(obj.metadata))
        elif not kind.in_use(key.name):
            await self._writes.patch(kind.mirror, obj, without_finalizer(obj.metadata))

    def _holds_quota(self, queue: str) -> bool:
        # A change of the status, which has these counts, causes the next look.
        return queue_figures(self._cache.state, queue).reserving > 0

    def _is_in_a_queue(self, flavor: str) -> bool:
        return any(flavor in _flavors_of(queue) for queue in self._cache.mirrors.cluster_queues)

    def _is_named(self, topology: str) -> bool:
        return any(f.spec.topology_name == topology for f in self._cache.mirrors.flavors)

    def _is_to_be_passed(self, check: str) -> bool:
        return any(check in check_names(queue) for queue in self._cache.mirrors.cluster_queues)

    def _queue_changed(self, change: Change[ClusterQueue]) -> None:
        self._changed("ClusterQueue", change)
        match change:
            case Modified(old, new):
                flavors = _flavors_of(old) - _flavors_of(new)
                self._left(flavors, set(check_names(old)).difference(check_names(new)))
            case Deleted(old):
                self._left(_flavors_of(old), check_names(old))
            case Added():
                pass

    def _left(self, flavors: Iterable[str], checks: Iterable[str]) -> None:
        """Reconcile objects that a queue no longer names."""
        for name in flavors:
            self._look("ResourceFlavor", self._cache.mirrors.flavors.get(name))
        for name in checks:
            self._look("CheckInUse", self._cache.mirrors.checks.get(name))

    def _flavor_changed(self, change: Change[ResourceFlavor]) -> None:
        self._changed("ResourceFlavor", change)
        match change:
            case Modified(old) | Deleted(old):
                self._look("Topology", self._cache.mirrors.topologies.get(old.spec.topology_name))
            case Added():
                pass

    def _changed(
        self,
        subject: Subject,
        change: Change[ClusterQueue | ResourceFlavor | Topology | AdmissionCheck],
    ) -> None:
        if not isinstance(change, Deleted):
            self._look(subject, change.object)

    def _look(
        self,
        subject: Subject,
        obj: ClusterQueue | ResourceFlavor | Topology | AdmissionCheck | None,
    ) -> None:
        if obj is not None and _is_due(obj.metadata):
            self._cache.hooks.reconcile(ReconcileKey(subject, "", obj.metadata.name))


def _is_due(metadata: ObjectMeta) -> bool:
    """Tell whether something is deleted and held by us, or neither."""
    held = RESOURCE_IN_USE_FINALIZER in metadata.finalizers
    return held == (metadata.deletion_timestamp is not None)


def _flavors_of(queue: ClusterQueue) -> frozenset[str]:
    groups = queue.spec.resource_groups
    return frozenset(flavor.name for group in groups for flavor in group.flavors)


QUEUES: Final = (WORKLOADS, CLUSTER_QUEUES, RESOURCE_FLAVORS, TOPOLOGIES, ADMISSION_CHECKS)
"""Kinds whose objects stay as long as they are in use, by the controller's word."""


async def release(
    client: Client, *, namespace: str = "", everything: bool = False, dry_run: bool = False
) -> AsyncIterator[str]:
    """Remove finalizers, and yield `resource/namespace/name` of each object that lost one.

    Args:
        client: The API server.
        namespace: Whose pods and workloads; empty for those of all.
        everything: Whether to remove those of workloads, queues, flavors and checks, too.
        dry_run: Whether nothing is written.

    Raises:
        ApiError: If the API server does not answer, or refuses.
    """
    kinds = [(PODS, MANAGED)]
    if everything:
        kinds += [(kind, RESOURCE_IN_USE_FINALIZER) for kind in QUEUES]
    for resource, finalizer in kinds:
        if namespace and not resource.namespaced:
            continue
        with suppress(NotFoundError):  # the kind is not served: there is nothing of it
            listed = pages(client, resource, into=PartialObject, namespace=namespace)
            async for page in listed:
                for found in page.items:
                    held = finalizer in found.metadata.finalizers
                    if held and (dry_run or await _take_off(client, resource, found, finalizer)):
                        yield f"{resource.plural}/{found.metadata.key}"


async def _take_off(
    client: Client, resource: Resource, found: PartialObject, finalizer: str
) -> bool:
    """Take a finalizer off an object, however often that changes; tell whether it was there."""
    name, namespace = found.metadata.name, found.metadata.namespace
    while finalizer in found.metadata.finalizers:
        patch = without_finalizer(found.metadata, finalizer)
        try:
            await client.patch(resource, name, patch, namespace=namespace, into=PartialObject)
        except NotFoundError:
            return False
        except ConflictError:
            with suppress(NotFoundError):
                found = await client.get(resource, name, namespace=namespace, into=PartialObject)
                continue
            return False
        return True
    return False
