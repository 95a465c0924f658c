"""Nodes, their pods and the pods that wait, read for `policyd nodes` with the user's rights."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from policyd.alloc.topology.values import HOSTNAME, TopologyNode
from policyd.api.kueue import ResourceFlavor, Topology
from policyd.api.kueue.names import WORKLOAD
from policyd.api.nodes import Node
from policyd.api.quantity import QuantityError
from policyd.jobs.base import controller_of
from policyd.jobs.kinds.registry import parent_of_pod
from policyd.jobs.pods import NOT_ENDED, QueuedPod, group_name, has_ended
from policyd.kube.client import Reader
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.pages import pages
from policyd.kube.resources import NODES, PODS, RESOURCE_FLAVORS, TOPOLOGIES
from policyd.node_rules import LabelRequirement, Term
from policyd.simulate.stranding import PendingGang, PendingPods, RunningPods, devices_of
from policyd.snapshot.answers import called
from policyd.snapshot.values import NONE, ClusterQueueUse, PodShape, QueueSnapshot
from policyd.workload.conversion import tolerations
from policyd.workload.topology_values import node_spec, required_affinity, taken_by

MOST_GANGS: Final = 10
"""Pending workloads of a queue, those that are tried next, whose pods count as asked for."""
_STAYS: Final = frozenset({"DaemonSet", "Node"})
"""Owners whose pods are made again on the same node."""


class FoundNodes(NamedTuple):
    """What there is on the API server.

    Attributes:
        nodes: All nodes.
        pods: All pods on them that have not ended.
        levels: The levels of each Topology.
        flavors: The node labels of each ResourceFlavor.
        left_out: What the user may not read.
    """

    nodes: list[TopologyNode]
    pods: list[RunningPods]
    levels: tuple[tuple[str, ...], ...]
    flavors: Mapping[str, Mapping[str, str]]
    left_out: tuple[str, ...] = ()


async def find_nodes(reader: Reader, *, now: float) -> FoundNodes:
    """Read the nodes and the pods on them.

    Raises:
        ApiError: If the API server refuses that, or does not answer.
    """
    alike = _Alike()
    nodes = [
        replace(spec, allocatable=alike.one(spec.allocatable))
        async for page in pages(reader, NODES, into=Node)
        for spec in map(node_spec, page.items)
    ]
    left_out: list[str] = []
    levels: tuple[tuple[str, ...], ...] = ()
    flavors: dict[str, Mapping[str, str]] = {}
    try:
        topologies = await reader.page(TOPOLOGIES, into=Topology, limit=0)
        levels = tuple(
            tuple(level.node_label for level in each.spec.levels) for each in topologies.items
        )
        found = await reader.page(RESOURCE_FLAVORS, into=ResourceFlavor, limit=0)
        flavors = {each.metadata.name: each.spec.node_labels for each in found.items}
    except (ForbiddenError, NotFoundError) as error:
        left_out.append(f"places in the topology, and which flavor a node is of: {error}")
    pods: dict[object, RunningPods] = {}
    levels_of_all = {HOSTNAME, *(level for each in levels for level in each)}
    async for page in pages(reader, PODS, into=QueuedPod, field_selector=NOT_ENDED):
        for pod in page.items:
            if pod.spec.node_name and not has_ended(pod):
                running = _running(pod, levels_of_all, now)
                _put(pods, replace(running, requests=alike.one(running.requests)))
    return FoundNodes(nodes, [*pods.values()], levels, flavors, tuple(left_out))


class _Alike:
    """Amounts that are alike are kept once: most nodes and pods have the same as thousands."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[str, int], ...], Mapping[str, int]] = {}

    def one(self, amounts: Mapping[str, int]) -> Mapping[str, int]:
        """Return amounts that are equal to these."""
        return self._known.setdefault(tuple(sorted(amounts.items())), amounts)


def _put(pods: dict[object, RunningPods], pod: RunningPods) -> None:
    """Add a pod to those of its job on its node that are alike."""
    key = pod.job, pod.node, tuple(sorted(pod.requests.items()))
    known = pods.get(key)
    pods[key] = pod if known is None else replace(known, count=known.count + 1)


def _running(pod: QueuedPod, levels: set[str], now: float) -> RunningPods:
    metadata, spec = pod.metadata, pod.spec
    owner, group = controller_of(metadata), group_name(metadata)
    kind, name = ("Pod", metadata.name) if owner is None else (owner.kind, owner.name)
    if group:
        parent = parent_of_pod(metadata)
        whole = "" if parent is None else parent.name_of(pod)
        kind, name = (parent.key, whole) if parent and whole else ("PodGroup", group)
    try:
        requests = taken_by(spec)
    except QuantityError:
        requests = {}
    # The queue sends pods to a node, or to a domain, by labels that they select.
    placed = levels if WORKLOAD in metadata.annotations else set()
    created = metadata.creation_timestamp
    return RunningPods(
        job=f"{metadata.namespace}/{kind}/{name}",
        node=spec.node_name,
        count=1,
        requests=requests,
        movable=owner is not None and not group and owner.kind not in _STAYS,
        ran_seconds=0.0 if created is None else max(0.0, now - created.timestamp()),
        node_selector={k: v for k, v in spec.node_selector.items() if k not in placed},
        affinity=required_affinity(spec),
        tolerations=tolerations(spec.tolerations),
    )


def pending_gangs(
    snapshot: QueueSnapshot, flavors: Mapping[str, Mapping[str, str]]
) -> Iterator[PendingGang]:
    """Yield the workloads that queues try next, with the nodes that their flavors are of.

    Args:
        snapshot: The queues.
        flavors: The node labels of flavors; of those that are not in here, any node is.
    """
    for queue in snapshot.cluster_queues:
        next_ = [row for row in queue.pending if row.ahead == NONE][:MOST_GANGS]
        for row in next_:
            if row.requests < len(queue.shapes):
                shapes = queue.shapes[row.requests]
                pods = tuple(_asked(each, queue, flavors) for each in shapes)
                yield PendingGang(name=called(row), pods=pods)


def _asked(
    shape: PodShape, queue: ClusterQueueUse, flavors: Mapping[str, Mapping[str, str]]
) -> PendingPods:
    devices = devices_of(shape.requests)
    named = {each.flavor for each in queue.quotas if each.resource in devices}
    return PendingPods(
        count=shape.count,
        requests=shape.requests,
        node_selector=shape.node_selector,
        affinity=_terms([flavors.get(name, {}) for name in sorted(named)]),
    )


def _terms(labels: Sequence[Mapping[str, str]]) -> tuple[Term, ...]:
    return tuple(
        tuple(
            LabelRequirement(key=key, operator="In", values=(value,))
            for key, value in sorted(each.items())
        )
        for each in labels
    )
