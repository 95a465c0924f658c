"""Nodes, pods and topology requests of the API as the allocator places them, and places back."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain

import msgspec

from policyd.alloc.amount import request_amount
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.values import (
    HOST_PORT,
    NODE_NAME_FIELD,
    Mode,
    PlacementRequest,
    SliceLayer,
    TopologyNode,
    TopologyPlacement,
)
from policyd.api import kueue
from policyd.api.gpus import SHARED_GPU, THOUSANDTHS, WHOLE
from policyd.api.kueue.topology_assignment import decode_topology
from policyd.api.meta import OwnerReference
from policyd.api.nodes import Node
from policyd.api.pod_requests import amount, pod_requests
from policyd.api.pods import NodeSelectorTerm, PodSpec
from policyd.api.quantity import QuantityError
from policyd.api.schema import QuantityText
from policyd.jobs.places import takes_room
from policyd.jobs.pods import QueuedPod
from policyd.node_rules import LabelRequirement, NodeTaint, Term
from policyd.optimize.devices import devices_of
from policyd.workload.conversion import tolerations


def node_spec(node: Node, *, fractions: bool = False) -> TopologyNode:
    """Convert a Node; where parts of GPUs are counted, with the thousandths of its shared GPUs."""
    spec = _node_spec(node)
    if not fractions or SHARED_GPU not in spec.allocatable:
        return spec
    gpus = sum(each.gpus for each in devices_of(spec) if each.resource == SHARED_GPU)
    amounts = {**spec.allocatable, THOUSANDTHS: request_amount(int(gpus * WHOLE))}
    return msgspec.structs.replace(spec, allocatable=amounts)


def _node_spec(node: Node) -> TopologyNode:
    return TopologyNode(
        name=node.metadata.name,
        labels=node.metadata.labels,
        allocatable=_readable(node.status.allocatable),
        taints=tuple(
            NodeTaint(key=t.key, value=t.value, effect=t.effect) for t in node.spec.taints
        ),
        ready=node.ready,
        schedulable=not node.spec.unschedulable,
    )


def _readable(quantities: Mapping[str, QuantityText]) -> dict[str, int]:
    """Return the amounts that can be read; a node has none of an unreadable resource."""
    found: dict[str, int] = {}
    for name, quantity in quantities.items():
        with suppress(QuantityError):
            found[name] = request_amount(amount(name, quantity))
    return found


def put_pod(nodes: Nodes, pod: QueuedPod) -> str:
    """Count a pod while it takes room that no topology gave it.

    Returns:
        The node that has more room now; "" if none has.
    """
    key = f"{pod.metadata.namespace}/{pod.metadata.name}"
    if not takes_room(pod):
        return nodes.remove_pod(key)
    taken: dict[str, int] = {}
    with suppress(QuantityError):
        taken = taken_by(pod.spec)
    return nodes.put_pod(key, pod.spec.node_name, taken)


def taken_by(spec: PodSpec) -> dict[str, int]:
    """Return the usage of one pod on its node: its requests, and ports of the node.

    Raises:
        QuantityError: If a quantity cannot be read.
    """
    sidecars = (each for each in spec.init_containers if each.restart_policy == "Always")
    running = chain(spec.containers, sidecars)
    ports = (port for container in running for port in container.ports if port.host_port)
    names = (f"{HOST_PORT}{port.protocol}/{port.host_port}" for port in ports)
    return {**pod_requests(spec), **dict.fromkeys(names, 1)}


def is_single_pod(owners: Sequence[OwnerReference]) -> bool:
    """Tell from the owners of a workload whether it stands for one pod that already exists.

    A group of one has the same owners, and its pod can be replaced.
    """
    return [(owner.api_version, owner.kind) for owner in owners] == [("v1", "Pod")]


def asks_for_place(pod_set: kueue.PodSet) -> bool:
    """Tell whether a pod set asks to be placed by a topology."""
    asked = pod_set.topology_request
    return asked is not None and bool(
        asked.required or asked.preferred or asked.unconstrained or _slices(asked)
    )


def topology_request(
    pod_set: kueue.PodSet,
    *,
    count: int,
    requests: Mapping[str, int],
    held: TopologyPlacement | None = None,
    pinned: bool = False,
) -> PlacementRequest:
    """Convert a pod set's topology request; without one, it may be anywhere.

    Args:
        pod_set: Of a workload, adjusted as the workload's admission checks say.
        count: How many of its pods are to be placed.
        requests: The requests of one pod.
        held: Their earlier places.
        pinned: Whether they cannot go elsewhere.
    """
    asked = pod_set.topology_request or kueue.TopologyRequest()
    spec = pod_set.template.spec
    return PlacementRequest(
        pod_set=pod_set.name,
        count=count,
        requests=requests,
        mode=_mode(asked),
        level=asked.required or asked.preferred,
        slices=_slices(asked),
        group=asked.pod_set_group_name,
        node_selector=spec.node_selector,
        affinity=required_affinity(spec),
        preferred_affinity=_preferred(spec),
        tolerations=tolerations(spec.tolerations),
        held=held,
        pinned=pinned,
        short=count < pod_set.count,
    )


def topology_assignment(assignment: kueue.TopologyAssignment) -> TopologyPlacement:
    """Convert an assignment as a workload's status has it."""
    return TopologyPlacement(
        levels=assignment.levels,
        domains=tuple((values, pods) for values, pods in decode_topology(assignment)),
    )


def _mode(asked: kueue.TopologyRequest) -> Mode:
    if asked.required:
        return "Required"
    return "Preferred" if asked.preferred else "Unconstrained"


def _slices(asked: kueue.TopologyRequest) -> tuple[SliceLayer, ...]:
    layers = asked.podset_slice_required_topology_constraints
    if layers:
        return tuple(SliceLayer(level=layer.topology, size=layer.size) for layer in layers)
    level = asked.pod_set_slice_required_topology
    return (SliceLayer(level=level, size=asked.pod_set_slice_size or 0),) if level else ()


def required_affinity(spec: PodSpec) -> tuple[Term, ...]:
    """Return the terms of which a pod's node must meet one; without terms, any node will do."""
    node = spec.affinity.node_affinity if spec.affinity else None
    required = node.required_during_scheduling_ignored_during_execution if node else None
    return () if required is None else tuple(map(_term, required.node_selector_terms))


def _preferred(spec: PodSpec) -> tuple[tuple[int, Term], ...]:
    node = spec.affinity.node_affinity if spec.affinity else None
    preferred = node.preferred_during_scheduling_ignored_during_execution if node else ()
    return tuple((each.weight, _term(each.preference)) for each in preferred)


def _term(term: NodeSelectorTerm) -> Term:
    labels = [
        LabelRequirement(key=r.key, operator=r.operator, values=r.values)
        for r in term.match_expressions
    ]
    names = [
        LabelRequirement(key=NODE_NAME_FIELD, operator=r.operator, values=r.values)
        for r in term.match_fields
    ]
    return (*labels, *names)
