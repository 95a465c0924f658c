"""Queues, flavors and topologies that are deleted while they are in use: they stay until then.

The door gives them a finalizer when they are created, as Kueue does. It is taken away here: from a
ClusterQueue once no workload holds its quota, from a ResourceFlavor once no ClusterQueue has it,
from a Topology once no ResourceFlavor names it.
"""

from collections.abc import Iterator

from policyd.api.kueue import ClusterQueue, ResourceFlavor, Topology
from policyd.api.kueue.names import RESOURCE_IN_USE_FINALIZER
from policyd.api.meta import ObjectMeta
from policyd.controller.cache import Cache
from policyd.controller.keys import Key, Subject
from policyd.controller.mirror import Mirror
from policyd.controller.patches import without_finalizer
from policyd.controller.writes import Writes
from policyd.status.queues import queue_figures


class InUse:
    """Lets go of what is deleted and not in use any more."""

    def __init__(self, cache: Cache, writes: Writes) -> None:
        self._cache = cache
        self._writes = writes
        self._queues: Mirror[ClusterQueue] = cache.mirrors.cluster_queues
        self._flavors: Mirror[ResourceFlavor] = cache.mirrors.flavors
        self._topologies: Mirror[Topology] = cache.mirrors.topologies
        self._queues.listen(self._queue_changed)
        self._flavors.listen(self._flavor_changed)
        self._topologies.listen(self._topology_changed)

    def everything(self) -> Iterator[Key]:
        """Yield what may have to be let go."""
        for queue in self._queues:
            if _is_held(queue.metadata):
                yield _key("ClusterQueue", queue.metadata)
        for flavor in self._flavors:
            if _is_held(flavor.metadata):
                yield _key("ResourceFlavor", flavor.metadata)
        for topology in self._topologies:
            if _is_held(topology.metadata):
                yield _key("Topology", topology.metadata)

    async def reconcile_queue(self, key: Key) -> None:
        """Let a ClusterQueue go that no workload holds quota of."""
        queue = self._queues.get(key.name)
        if queue is None or not _is_held(queue.metadata):
            return
        # Whoever looks is told by a change of the status, in which these are counted.
        if queue_figures(self._cache.state, key.name).reserving == 0:
            await self._writes.patch(self._queues, queue, without_finalizer(queue.metadata))

    async def reconcile_flavor(self, key: Key) -> None:
        """Let a ResourceFlavor go that no ClusterQueue has."""
        flavor = self._flavors.get(key.name)
        if flavor is None or not _is_held(flavor.metadata):
            return
        if not any(key.name in _flavors_of(queue) for queue in self._queues):
            await self._writes.patch(self._flavors, flavor, without_finalizer(flavor.metadata))

    async def reconcile_topology(self, key: Key) -> None:
        """Let a Topology go that no ResourceFlavor names."""
        topology = self._topologies.get(key.name)
        if topology is None or not _is_held(topology.metadata):
            return
        if not any(flavor.spec.topology_name == key.name for flavor in self._flavors):
            patch = without_finalizer(topology.metadata)
            await self._writes.patch(self._topologies, topology, patch)

    def _queue_changed(self, old: ClusterQueue | None, new: ClusterQueue | None) -> None:
        if new is not None and _is_held(new.metadata):
            self._cache.ears.reconcile(_key("ClusterQueue", new.metadata))
        if old is None:
            return
        for name in _flavors_of(old) - (_flavors_of(new) if new is not None else frozenset()):
            flavor = self._flavors.get(name)
            if flavor is not None and _is_held(flavor.metadata):
                self._cache.ears.reconcile(_key("ResourceFlavor", flavor.metadata))

    def _flavor_changed(self, old: ResourceFlavor | None, new: ResourceFlavor | None) -> None:
        if new is not None and _is_held(new.metadata):
            self._cache.ears.reconcile(_key("ResourceFlavor", new.metadata))
        topology = None if old is None else self._topologies.get(old.spec.topology_name)
        if topology is not None:
            self._topology_changed(None, topology)

    def _topology_changed(self, _old: Topology | None, new: Topology | None) -> None:
        if new is not None and _is_held(new.metadata):
            self._cache.ears.reconcile(_key("Topology", new.metadata))


def _is_held(metadata: ObjectMeta) -> bool:
    """Tell whether something is deleted, and still there because of us."""
    return (
        metadata.deletion_timestamp is not None and RESOURCE_IN_USE_FINALIZER in metadata.finalizers
    )


def _flavors_of(queue: ClusterQueue) -> frozenset[str]:
    groups = queue.spec.resource_groups
    return frozenset(flavor.name for group in groups for flavor in group.flavors)


def _key(subject: Subject, metadata: ObjectMeta) -> Key:
    return Key(subject, "", metadata.name)
