"""Changes of nodes, and of pods that no topology placed, taken into the cache."""

import asyncio
from typing import NoReturn

from policyd.api.nodes import Node
from policyd.controller.watch.cache import Cache
from policyd.jobs.pods import QueuedPod
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
        self._nodes = cache.state.ledger.nodes
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
            self._cache.ears.schedule()

    def _node_changed(self, _old: Node | None, new: Node | None) -> None:
        if new is None:
            assert _old is not None, "a change has an object before or after"
            self._nodes.remove(_old.metadata.name)
            return
        spec = node_spec(new)
        if self._nodes.node(spec.name) != spec:
            self._nodes.put(spec)
            self._changed.set()

    def _pod_changed(self, old: QueuedPod | None, new: QueuedPod | None) -> None:
        if new is not None:
            freed = put_pod(self._nodes, new)
        else:
            assert old is not None, "a change has an object before or after"
            freed = self._nodes.remove_pod(old.metadata.key)
        if freed:
            self._freed.set()
