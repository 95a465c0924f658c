"""Nodes, their pods and the pods that wait, read for `policyd nodes` with the user's rights."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from policyd.alloc.amount import total_of
from policyd.alloc.topology.values import HOSTNAME, TopologyNode
from policyd.alloc.topology.values import PODS as POD_SLOTS
from policyd.api.configuration import decode_configuration
from policyd.api.kueue import ResourceFlavor, Topology
from policyd.api.kueue.names import WORKLOAD
from policyd.api.meta import Json
from policyd.api.nodes import Node
from policyd.api.quantity import QuantityError
from policyd.devices.mappings import DeviceMappings
from policyd.devices.objects import DeviceClass, ResourceClaim, ResourceSlice
from policyd.devices.on_nodes import ClaimedUse, DeviceOffer, HeldDevices, device_offer
from policyd.errors import ConfigurationError
from policyd.jobs.base import controller_of
from policyd.jobs.kinds.registry import parent_of_pod
from policyd.jobs.pods import NOT_ENDED, QueuedPod, group_name, has_ended
from policyd.kube.client import Reader
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.pages import pages
from policyd.kube.resources import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_FLAVORS,
    RESOURCE_SLICES,
    TOPOLOGIES,
)
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
        nodes: All nodes; devices that pods get by claims are among what they have.
        pods: All pods on them that have not ended, and claims with devices without such a pod.
        levels: The levels of each Topology.
        flavors: The node labels of each ResourceFlavor.
        left_out: What the user may not read.
    """

    nodes: list[TopologyNode]
    pods: list[RunningPods]
    levels: tuple[tuple[str, ...], ...]
    flavors: Mapping[str, Mapping[str, str]]
    left_out: tuple[str, ...] = ()


async def find_nodes(
    reader: Reader, *, now: float, configuration: Mapping[str, Json] | None = None
) -> FoundNodes:
    """Read the nodes and the pods on them.

    Args:
        reader: The API server.
        now: Seconds since the epoch.
        configuration: That of the queues, which maps device classes to resources; None if it is
            not known.

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
    claimed = await _claimed(reader, nodes, configuration, left_out)
    pods: dict[object, RunningPods] = {}
    levels_of_all = {HOSTNAME, *(level for each in levels for level in each)}
    async for page in pages(reader, PODS, into=QueuedPod, field_selector=NOT_ENDED):
        for pod in page.items:
            if pod.spec.node_name and not has_ended(pod):
                running = claimed.running(pod.metadata.key, _running(pod, levels_of_all, now))
                _put(pods, replace(running, requests=alike.one(running.requests)))
    held = [*pods.values(), *claimed.unused()]
    return FoundNodes(claimed.with_devices(nodes), held, levels, flavors, tuple(left_out))


async def _device_offer(
    reader: Reader, configuration: Mapping[str, Json] | None, left_out: list[str]
) -> DeviceOffer | None:
    """Read the devices that pods get by claims; None if no driver offers any."""
    slices: list[ResourceSlice] = []
    try:
        async for page in pages(reader, RESOURCE_SLICES, into=ResourceSlice):
            slices += page.items
    except NotFoundError:  # an older cluster has no such devices
        return None
    if not slices:
        return None
    classes = await reader.page(DEVICE_CLASSES, into=DeviceClass, limit=0)
    mappings = _mappings(configuration, left_out)
    return await asyncio.to_thread(device_offer, slices, classes.items, mappings)


async def _claimed(
    reader: Reader,
    nodes: Sequence[TopologyNode],
    configuration: Mapping[str, Json] | None,
    left_out: list[str],
) -> "_ClaimedDevices":
    """Read the devices of claims; without the rights for that, there are none."""
    try:
        offer = await _device_offer(reader, configuration, left_out)
        if offer is None:
            return _ClaimedDevices(nodes, None, None)
        claims = [
            claim
            async for page in pages(reader, RESOURCE_CLAIMS, into=ResourceClaim)
            for claim in page.items
            if claim.status.allocation is not None
        ]
    except ForbiddenError as error:
        left_out.append(f"devices that pods get by claims: {error}")
        return _ClaimedDevices(nodes, None, None)
    left_out += offer.left_out
    return _ClaimedDevices(nodes, offer, offer.use(claims))


def _mappings(configuration: Mapping[str, Json] | None, left_out: list[str]) -> DeviceMappings:
    if configuration is None:
        return DeviceMappings()
    try:
        resources = decode_configuration(dict(configuration)).resources
    except ConfigurationError as error:  # of a newer controller
        left_out.append(f"which resources device classes are mapped to: {error}")
        return DeviceMappings()
    return DeviceMappings.of(() if resources is None else resources.device_class_mappings)


_GIVEN: Final = "given/"
"""Beginning of the label of a node that says how it gives pods a kind of devices: no other node
can give them to a pod that is moved."""
_BY_CLAIMS: Final = "claims"
_DIRECTLY: Final = "directly"


class _ClaimedDevices:
    """The devices of claims, given to the nodes that have them and the pods that use them."""

    def __init__(
        self, nodes: Sequence[TopologyNode], offer: DeviceOffer | None, use: ClaimedUse | None
    ) -> None:
        self._backed = frozenset[str]() if offer is None else offer.backed
        self._use = use
        # A node that has a resource itself gives pods no devices by claims for it.
        self._own = {node.name: node.allocatable for node in nodes} if self._backed else {}
        self._held: dict[str, list[HeldDevices]] = {}
        self._unused: dict[int, HeldDevices] = {}
        for held in () if use is None else use.held:
            self._unused[id(held)] = held
            for pod in held.pods:
                self._held.setdefault(pod, []).append(held)

    def with_devices(self, nodes: list[TopologyNode]) -> list[TopologyNode]:
        """Return nodes with the devices that pods get by claims."""
        if self._use is None:
            return nodes
        return [self._with(node, self._use.of_node(node.name).total) for node in nodes]

    def _with(self, node: TopologyNode, total: Mapping[str, int]) -> TopologyNode:
        labels = {
            **{_GIVEN + name: _BY_CLAIMS for name in devices_of(total)},
            **{_GIVEN + name: _DIRECTLY for name in devices_of(node.allocatable)},
        }
        allocatable = total_of(node.allocatable, total)
        return replace(node, allocatable=allocatable, labels={**node.labels, **labels})

    def running(self, pod: str, running: RunningPods) -> RunningPods:
        """Return a pod with what it holds, and where that is given in the same way.

        Of a claim that several pods use, the first holds the devices.

        Args:
            pod: `namespace/name`.
            running: The pod.
        """
        if self._use is None:
            return running
        own = self._own.get(running.node, {})
        requests = {
            name: amount
            for name, amount in running.requests.items()
            if name not in self._backed or own.get(name)
        }
        found = (self._unused.pop(id(each), None) for each in self._held.get(pod, ()))
        held = total_of(*(each.amounts for each in found if each is not None))
        ways = {
            # An extended resource that a class backs may be given in both ways.
            **{_GIVEN + n: _DIRECTLY for n in devices_of(requests) if n not in self._backed},
            **{_GIVEN + n: _BY_CLAIMS for n in devices_of(held) if not running.requests.get(n)},
        }
        return replace(
            running,
            requests=total_of(requests, held),
            node_selector={**running.node_selector, **ways},
        )

    def unused(self) -> Iterator[RunningPods]:
        """Yield what claims hold that no pod uses, as if a job held it that cannot be moved."""
        for claim, _, node, amounts in self._unused.values():
            namespace, _, name = claim.partition("/")
            job = f"{namespace}/ResourceClaim/{name}"
            yield RunningPods(job, node, 1, {**amounts, POD_SLOTS: 0}, movable=False)


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
        movable=owner is not None
        and not group
        and owner.kind not in _STAYS
        and not any(each.resource_claim_name for each in spec.resource_claims),
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
