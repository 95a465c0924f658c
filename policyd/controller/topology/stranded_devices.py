"""Counts stranded devices once a minute, so that a Prometheus has them over time."""

from collections.abc import Iterator
from heapq import nsmallest
from typing import Final, NoReturn

from policyd.alloc.cluster_queue import QueueState
from policyd.alloc.pending import Ticket
from policyd.alloc.topology.tree import TopologyTree
from policyd.alloc.workload import QueuedWorkload
from policyd.controller.metrics.counters import ControllerMetrics
from policyd.controller.watch.cache import Cache
from policyd.kube.pace import Pace
from policyd.kube.steps import Steps
from policyd.kube.unforeseen import log_unforeseen
from policyd.simulate.stranding import NodeFree, PendingPods, count_stranded

COUNT_SECONDS: Final = 60.0
"""Between two counts."""
MOST_REQUESTS: Final = 10
"""Different requests of a ClusterQueue's pending workloads that count: those that come first."""


class StrandedCounts:
    """Counts the devices of flavors whose topology names nodes."""

    def __init__(self, cache: Cache, *, metrics: ControllerMetrics, pace: Pace) -> None:
        self._cache, self._metrics, self._pace = cache, metrics, pace

    async def run(self) -> NoReturn:
        """Count until cancelled."""
        while True:
            with log_unforeseen("stranded_devices_error"):
                await self.count()
            await self._pace.sleep(COUNT_SECONDS)

    async def count(self) -> None:
        """Count once. Cycles and writes run between the steps."""
        state, found = self._cache.state, dict[tuple[str, str], int]()
        trees = [(name, tree) for name, tree in state.ledger.nodes.trees.items() if tree.to_nodes]
        pending = [_QueuePending(queue) for queue in state.queues.values()] if trees else ()
        for flavor, tree in trees:
            asked = [pods for queue in pending for pods in queue.asked(flavor)]
            nodes = [*_free(tree)]
            counted = await Steps(self._pace, rests=1.0).run(count_stranded(nodes, asked))
            found.update({(flavor, resource): n for resource, n in counted.items()})
        self._metrics.stranded(found)


def _free(tree: TopologyTree) -> Iterator[NodeFree]:
    for leaf in tree.leaves.values():
        node = tree.node(leaf)
        yield NodeFree(node, {name: tree.free.left(name, leaf) for name in node.allocatable})


class _QueuePending:
    """What is asked of a ClusterQueue."""

    def __init__(self, queue: QueueState) -> None:
        groups = () if queue.spec is None else queue.spec.groups
        self._flavors = {
            flavor.name: {resource for resource in flavor.quotas if "/" in resource}
            for group in groups
            for flavor in group.flavors
        }
        self._first = [*_first(queue)] if any(self._flavors.values()) else []

    def asked(self, flavor: str) -> Iterator[PendingPods]:
        """Yield the pods that ask for devices which the queue gives of a flavor."""
        devices = self._flavors.get(flavor, set())
        for each in (pod_set for workload in self._first for pod_set in workload.pod_sets):
            if any(each.requests.get(device) for device in devices):
                yield PendingPods(
                    count=each.count, requests=each.requests, node_selector=each.node_selector
                )


def _first(queue: QueueState) -> Iterator[QueuedWorkload]:
    """Yield the first pending workload of each of the first different requests."""
    firsts = dict[object, Ticket]()
    for ticket in queue.pending:
        known = firsts.setdefault(ticket.request_key, ticket)
        if queue.pending.turn(ticket) < queue.pending.turn(known):
            firsts[ticket.request_key] = ticket
    for ticket in nsmallest(MOST_REQUESTS, firsts.values(), key=queue.pending.turn):
        yield ticket.workload
