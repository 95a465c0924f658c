"""Changes of nodes, and of pods that no topology placed, taken into the cache."""

import asyncio
from typing import NoReturn

from policyd.api.nodes import Node
from policyd.controller.watch.cache import Cache
from policyd.jobs.pods import QueuedPod
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.pace import Pace
from policyd.workload.topology_values import node_spec, put_pod

NODE_SECONDS = 1.0
"""How long changes of nodes are gathered before anybody is tried again for them."""
POD_SECONDS = 10.0
"""The same for pods that leave room: there are many."""


class NodeChanges:
    """Keeps the allocator's nodes equal to what the mirrors show."""

    def __init__(self, cache: Cache, pace: Pace) -> None:
        self._cache = cache
        self._pace = pace
        self._nodes = cache.state.ground.nodes
        self._changed = asyncio.Event()
        self._freed = asyncio.Event()
        cache.mirrors.nodes.listen(self._node_changed)
        cache.mirrors.placed.listen(self._pod_changed)

    async def run(self) -> NoReturn:
        """Let workloads be tried again that what changed might help, until cancelled."""
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
                spec = node_spec(node)
                if self._nodes.node(spec.name) != spec:
                    self._nodes.put(spec)
                    self._changed.set()
            case Deleted(node):
                self._nodes.remove(node.metadata.name)

    def _pod_changed(self, change: Change[QueuedPod]) -> None:
        match change:
            case Added(pod) | Modified(object=pod):
                if put_pod(self._nodes, pod):
                    self._freed.set()
            case Deleted(pod):
                if self._nodes.remove_pod(pod.metadata.key):
                    self._freed.set()
