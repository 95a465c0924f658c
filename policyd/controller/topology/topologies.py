"""Nodes and pods, where flavors have topologies: their changes go into the allocator's state.

Nodes and all pods are many. They are watched from when the first flavor with a topology is seen.
"""

import asyncio
from typing import NoReturn

from policyd.api.kueue import ResourceFlavor, Workload
from policyd.api.nodes import Node
from policyd.controller.reconcile import Reconcile
from policyd.controller.topology.node_failures import NodeFailures
from policyd.controller.topology.ungating import Ungating, places_keys
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.watch.pod_places import PodPlaces
from policyd.controller.writes import Writes
from policyd.jobs.places import given_up
from policyd.jobs.pods import QueuedPod
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.pace import Pace
from policyd.workload.topology_values import node_spec, put_pod


class Topologies:
    """Follows nodes and pods, lets pods go to their places, and notices nodes that fail."""

    def __init__(self, cache: Cache, writes: Writes, *, pace: Pace) -> None:
        mirrors = self._mirrors = cache.mirrors
        self._cache = cache
        self._changes = NodeChanges(cache, pace)
        places = PodPlaces(mirrors.placed, notify=self._pod_changed)
        gates = cache.state.settings.gates
        self._ungating = Ungating(
            mirrors.workloads,
            mirrors.placed,
            places,
            writes,
            gates=gates,
            chain=cache.index.chain,
            hold=cache.hold_for_claims,
            ungated=self._let_go,
        )
        self._failures = NodeFailures(mirrors, places, writes, gates=gates)
        self.wanted = asyncio.Event()
        """Set once a flavor has a topology, or if pods on unreachable nodes may be ended."""
        self._counted = asyncio.Event()
        if gates.failure_recovery_policy:
            self.wanted.set()
        mirrors.flavors.listen(self._flavor_changed)
        mirrors.nodes.listen(self._node_changed)
        mirrors.workloads.listen(self._workload_changed)

    def reconcilers(self) -> dict[str, Reconcile]:
        """Return the reconcilers of pods that wait for their places, and of nodes."""
        return {"Places": self._ungating.reconcile, "Node": self._failures.reconcile}

    def all_keys(self) -> list[ReconcileKey]:
        """Return the keys of all objects, as after a start."""
        waiting = [key for pod in self._mirrors.placed for key in places_keys(pod)]
        waiting += [_places_key(each) for each in self._mirrors.workloads if given_up(each)]
        return [*dict.fromkeys(waiting), *self._failures.all_keys()]

    async def run(self) -> None:
        """Watch nodes and pods once a flavor has a topology, until cancelled."""
        await self.wanted.wait()
        async with asyncio.TaskGroup() as group:
            for mirror in self._mirrors.of_topologies:
                group.create_task(mirror.informer.run())
                await mirror.informer.synced.wait()
            if self._cache.devices is not None:
                await self._cache.devices.begin(self._cache)
                self._counted.set()
            self._look_at(self.all_keys())
            group.create_task(self._changes.run())

    async def settle(self) -> None:
        """Wait until nodes, with their devices, and pods are known, if they are to be watched."""
        if self.wanted.is_set():
            for mirror in self._mirrors.of_topologies:
                await mirror.informer.synced.wait()
            if self._cache.devices is not None:
                await self._counted.wait()

    def _flavor_changed(self, change: Change[ResourceFlavor]) -> None:
        if not isinstance(change, Deleted) and change.object.spec.topology_name:
            self.wanted.set()

    def _node_changed(self, change: Change[Node]) -> None:
        self._look_at(self._failures.of_node(change))

    def _pod_changed(self, change: Change[QueuedPod]) -> None:
        self._look_at(self._failures.of_pod(change))
        # One that ends leaves its place to one that was made for it and waits.
        match change:
            case Modified():
                self._look_at(places_keys(change.object))
                if change.old.status.phase != change.object.status.phase:
                    self._look_at(self._ungating.beside(change.old))
            case Added():
                self._look_at(places_keys(change.object))
            case Deleted():
                self._look_at(self._ungating.beside(change.object))

    def _workload_changed(self, change: Change[Workload]) -> None:
        match change:
            case Modified():
                if change.old.status != change.object.status or given_up(change.object):
                    self._look_at_places(change.object)
            case Added():
                self._look_at_places(change.object)
            case Deleted():
                pass

    def _look_at_places(self, workload: Workload) -> None:
        if workload.status.admission is not None:
            self._look_at(self._failures.of_workload(workload))
            self._look_at([_places_key(workload)])

    def _let_go(self, gate: str, pod: QueuedPod, workload: Workload) -> None:
        self._cache.hooks.ungated(gate, pod, workload)

    def _look_at(self, keys: list[ReconcileKey]) -> None:
        # Before they are listed, nodes are not gone but unknown.
        if all(mirror.informer.synced.is_set() for mirror in self._mirrors.of_topologies):
            for key in keys:
                self._cache.hooks.reconcile(key)


def _places_key(workload: Workload) -> ReconcileKey:
    return ReconcileKey("Places", workload.metadata.namespace, workload.metadata.name)


NODE_SECONDS = 1.0
"""How long changes of nodes are gathered before workloads are tried again for them."""
POD_SECONDS = 10.0
"""The same for pods that leave room: there are many."""


class NodeChanges:
    """Keeps the allocator's nodes equal to the mirrors."""

    def __init__(self, cache: Cache, pace: Pace) -> None:
        self._cache = cache
        self._pace = pace
        self._nodes = cache.state.ledger.nodes
        self._fractions = cache.request_rules("").shared_gpus is not None
        self._changed = asyncio.Event()
        self._freed = asyncio.Event()
        cache.mirrors.nodes.listen(self._node_changed)
        cache.mirrors.placed.listen(self._pod_changed)

    async def run(self) -> NoReturn:
        """Requeue workloads that changes of nodes might help, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._wake(self._changed, NODE_SECONDS))
            group.create_task(self._wake(self._freed, POD_SECONDS))
        raise AssertionError("both tasks run until they are cancelled")

    async def _wake(self, event: asyncio.Event, seconds: float) -> NoReturn:
        while True:
            await event.wait()
            await self._pace.sleep(seconds)
            event.clear()
            self._cache.state.wake_placed()
            self._cache.hooks.schedule()

    def _node_changed(self, change: Change[Node]) -> None:
        match change:
            case Added(node) | Modified(object=node):
                spec = node_spec(node, fractions=self._fractions)
                if self._nodes.node(spec.name) != spec:
                    self._nodes.put(spec)
                    self._changed.set()
            case Deleted(node):
                self._nodes.remove(node.metadata.name)

    def _pod_changed(self, change: Change[QueuedPod]) -> None:
        match change:
            case Modified() | Added():
                if put_pod(self._nodes, change.object):
                    self._freed.set()
            case Deleted():
                if self._nodes.remove_pod(change.object.metadata.key):
                    self._freed.set()
