"""Nodes, the pods on them, and the free devices that no pending pod can use."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from policyd.alloc.topology.values import HOSTNAME, Placement, TopologyNode, TopologyPlacement
from policyd.alloc.value import Value
from policyd.kube.client import Reader
from policyd.kube.errors import ApiError, ForbiddenError
from policyd.questions.node_listing import FoundNodes, find_nodes, pending_gangs
from policyd.questions.snapshots import NoSnapshotsError, ask
from policyd.simulate.defragmentation import Defragmentation
from policyd.simulate.stranding import (
    NodeLine,
    PendingGang,
    RunningPods,
    devices_of,
    node_lines,
    planned_moves,
    whole_node,
)
from policyd.simulate.topology_map import TopologyMap, scarce_resource
from policyd.snapshot.reading import OLD_SECONDS
from policyd.snapshot.values import NodeUse, QueueSnapshot
from policyd.status.ages import duration

MOST_PLANS: Final = 3
"""Pending workloads for which moves are planned, each of which can take a second."""
_RIGHTS: Final = (
    "an administrator has to grant `list` on `nodes` and `pods` of all namespaces, or `get` on"
    " `clusterqueuesnapshots.visibility.policyd.io`"
)


class DeviceTotal(Value, frozen=True, rename="camel"):
    """Devices of all nodes."""

    resource: str
    total: int
    free: int
    fragments: int
    stranded: int


class NodesAnswer(Value, frozen=True, rename="camel"):
    """The nodes.

    Attributes:
        devices: All devices, by resource.
        asked: The pending workloads whose pods were tried on the nodes.
        moves: Moves of jobs that would let one of these start.
        map: A picture of each topology, line by line.
        left_out: What could not be found out, and why.
    """

    devices: tuple[DeviceTotal, ...]
    nodes: tuple[NodeLine, ...]
    asked: tuple[str, ...] = ()
    moves: tuple[Defragmentation, ...] = ()
    map: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


Showing = Callable[[Sequence[PendingGang]], Iterable[PendingGang]]
"""Yields the gangs that moves are planned for, and may show which one is the next."""


async def nodes_answer(
    reader: Reader, *, most: int, now: float, showing: Showing = iter
) -> NodesAnswer:
    """Return the nodes, as far as the user may read them.

    Args:
        reader: The API server.
        most: How many jobs may be moved for a pending one.
        now: Seconds since the epoch.
        showing: Shows how far the planning has come.

    Raises:
        ApiError: If the API server refuses, or does not answer.
    """
    snapshot, left_out = None, list[str]()
    try:
        snapshot = await ask(reader, "")
        if now - snapshot.taken_at > OLD_SECONDS:
            age = duration(now - snapshot.taken_at)
            left_out.append(f"pending workloads of now: the snapshot is {age} old")
    except NoSnapshotsError as error:
        left_out.append(f"pending workloads: {error}")
    except ApiError as error:
        if error.code not in {403, 503} and not isinstance(error, ForbiddenError):
            raise
        left_out.append(f"pending workloads: {error}")
    try:
        configuration = None if snapshot is None else snapshot.configuration
        found = await find_nodes(reader, now=now, configuration=configuration)
    except ForbiddenError as error:
        if snapshot is None:
            raise ForbiddenError(str(error), hint=_RIGHTS) from error
        return replace(nodes_of_snapshot(snapshot), left_out=(f"pods: {error}",))
    gangs = [] if snapshot is None else [*pending_gangs(snapshot, found.flavors)]
    return found_answer(found, gangs, (*left_out, *found.left_out), most=most, showing=showing)


def found_answer(
    found: FoundNodes,
    gangs: Sequence[PendingGang],
    left_out: tuple[str, ...],
    *,
    most: int,
    showing: Showing = iter,
) -> NodesAnswer:
    """Return what there is to say about nodes that were found.

    Args:
        found: The nodes and the pods on them.
        gangs: The pending pods that are tried on them.
        left_out: What could not be found out, and why.
        most: How many jobs may be moved for a pending one; 0 plans no moves.
        showing: Shows how far the planning has come.
    """
    lines = tuple(node_lines(found.nodes, found.pods, gangs, found.levels))
    stranded = Counter[str]()
    for line in lines:
        stranded.update({each.resource: each.amount for each in line.stranded})
    wanting = [each for each in gangs if _asks(each, stranded)][:MOST_PLANS]
    for device in stranded:
        if not any(_asks(each, {device: 1}) for each in gangs):
            gang = whole_node(found.nodes, device)
            wanting += [] if gang is None else [gang]
    by = frozenset(job for line in lines for each in line.stranded for job in each.by)
    planned = showing(wanting) if most and by else ()
    moves = planned_moves(found.nodes, found.pods, planned, stranding=by, most=most)
    return NodesAnswer(
        devices=tuple(_totals(lines)),
        nodes=lines,
        asked=tuple(dict.fromkeys(each.name for each in gangs)),
        moves=tuple(moves),
        map=tuple(_map(found)),
        left_out=left_out,
    )


def _asks(gang: PendingGang, devices: Mapping[str, int]) -> bool:
    return any(each.requests.get(device) for each in gang.pods for device in devices)


def nodes_of_snapshot(snapshot: QueueSnapshot) -> NodesAnswer:
    """Return the nodes that a snapshot has: those of topologies, without pods."""
    lines = tuple(map(_without_pods, snapshot.nodes))
    missing = "a snapshot has only the nodes of topologies, without their pods and stranded devices"
    return NodesAnswer(devices=tuple(_totals(lines)), nodes=lines, left_out=(missing,))


def _without_pods(node: NodeUse) -> NodeLine:
    free, has = node.free, node.allocatable
    return NodeLine(
        name=node.name,
        domain="",
        state="Ready" if node.usable else "NotReady",
        allocatable=has,
        free=free,
        fragments={d: n for d, n in free.items() if 0 < n < has.get(d, 0)},
        pods=None,
    )


def _totals(lines: Sequence[NodeLine]) -> Iterator[DeviceTotal]:
    for resource in sorted({name for line in lines for name in devices_of(line.allocatable)}):
        yield DeviceTotal(
            resource=resource,
            total=sum(line.allocatable.get(resource, 0) for line in lines),
            free=sum(max(0, line.free.get(resource, 0)) for line in lines),
            fragments=sum(line.fragments.get(resource, 0) for line in lines),
            stranded=sum(
                each.amount for line in lines for each in line.stranded if each.resource == resource
            ),
        )


def _map(found: FoundNodes) -> Iterator[str]:
    """Yield the lines of a picture of each topology; of the nodes alone, if there is none."""
    nodes = [
        TopologyNode(
            name=each.name,
            labels={**each.labels, HOSTNAME: each.name},
            allocatable=each.allocatable,
        )
        for each in found.nodes
    ]
    if not nodes:
        return
    resource = scarce_resource(nodes)
    held = _placements(each for each in found.pods if each.requests.get(resource))
    for levels in found.levels or ((HOSTNAME,),):
        whole = levels if levels[-1] == HOSTNAME else (*levels, HOSTNAME)
        yield from TopologyMap(whole, nodes, resource=resource).draw(held)


def _placements(pods: Iterable[RunningPods]) -> dict[str, list[Placement]]:
    held: dict[str, list[Placement]] = {}
    for each in pods:
        where = TopologyPlacement(levels=(HOSTNAME,), domains=(((each.node,), each.count),))
        placement = Placement(flavor="", assignment=where, requests=each.requests)
        held.setdefault(each.job, []).append(placement)
    return held
