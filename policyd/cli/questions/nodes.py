"""`policyd nodes`: show nodes, the pods on them, stranded devices, and moves that free them."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Unpack

import click
from msgspec.structs import replace

from policyd.alloc.topology.values import HOSTNAME, Placement, TopologyNode, TopologyPlacement
from policyd.alloc.value import Value
from policyd.cli.formats.progress import progress
from policyd.cli.formats.tables import table_lines
from policyd.cli.questions.asking import (
    SHARED,
    Asking,
    NoSnapshotsError,
    Question,
    amounts_text,
    ask,
    show,
)
from policyd.cli.questions.node_listing import FoundNodes, find_nodes, pending_gangs
from policyd.clock import SystemClock
from policyd.kube.client import Reader
from policyd.kube.errors import ApiError, ForbiddenError
from policyd.simulate.defragmentation import Defragmentation
from policyd.simulate.stranding import (
    AskedGang,
    NodeLine,
    RunningPods,
    node_lines,
    planned_moves,
    whole_node,
)
from policyd.simulate.topology_map import TopologyMap, scarce_resource
from policyd.snapshot.values import NodeUse, QueueSnapshot
from policyd.status.quantities import format_amount
from policyd.status.shortages import and_others

MOST_NAMED: Final = 3
"""Jobs of a node that are named in the table; the wide one names all."""
MOST_PLANS: Final = 3
"""Pending workloads for which moves are planned, each of which can take a second."""
_RIGHTS: Final = (
    "an administrator has to grant `list` on `nodes` and `pods` of all namespaces, or `get` on"
    " `clusterqueuesnapshots.visibility.policyd.io`"
)

_NUMBERS = ("TOTAL", "FREE", "FRAGMENTS", "STRANDED")
_HEAD = ("DOMAIN", "NODE", "STATE", "DEVICE", *_NUMBERS, "STRANDED BY", "JOBS")
_WIDE = ("MISSING", "FREE CPU", "FREE MEMORY")


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


class _Given(Asking):
    """The arguments of the command."""

    stranded: bool
    moves: int


@click.command("nodes")
@SHARED
@click.option("--stranded", is_flag=True, help="Only nodes with stranded devices.")
@click.option(
    "--moves",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="How many jobs may be moved so that a pending one finds a place; 0 plans no moves.",
)
def command(**given: Unpack[_Given]) -> None:
    r"""Show nodes in their topology, with their pods, free devices and stranded devices.

    \b
    FREE         devices that no pod requests
    FRAGMENTS    free devices of nodes that are partly in use
    STRANDED     free devices that no pending pod can use; if no pending pod requests the
                 device: that a pod which requests all devices of a node cannot use
    STRANDED BY  the jobs that strand them

    Moves are proposals: the fewest jobs that have to run on other nodes so that a pending
    workload fits. Quota, and taints that exclude the pending workload, are ignored.

    The command reads nodes and pods with the permissions of the user. Without permission to
    list them, and with --snapshot, it shows the nodes of topologies, without pods.

    Exits with 0, or 2 if the cluster cannot be asked.

    \b
    Examples:
      policyd nodes
      policyd nodes --stranded -o wide
      policyd nodes -o json | jq .moves
    """
    show(
        given,
        Question(
            of_cluster=partial(_of_cluster, given),
            of_file=nodes_of_snapshot,
            lines=partial(nodes_lines, wide=given["output"] == "wide"),
            empty="no nodes",
            version=_version,
        ),
    )


async def _of_cluster(given: _Given, reader: Reader, _namespace: str) -> NodesAnswer:
    answer = await nodes_answer(reader, most=given["moves"])
    if not given["stranded"]:
        return answer
    nodes = tuple(each for each in answer.nodes if each.stranded)
    return replace(answer, nodes=nodes)


async def nodes_answer(reader: Reader, *, most: int) -> NodesAnswer:
    """Return the nodes, as far as the user may read them.

    Args:
        reader: The API server.
        most: How many jobs may be moved for a pending one.

    Raises:
        ApiError: If the API server refuses, or does not answer.
    """
    snapshot, left_out = None, list[str]()
    try:
        snapshot = await ask(reader, "")
    except NoSnapshotsError as error:
        left_out.append(f"pending workloads: {error}")
    except ApiError as error:
        if error.code not in {403, 503} and not isinstance(error, ForbiddenError):
            raise
        left_out.append(f"pending workloads: {error}")
    now = SystemClock().now()
    try:
        found = await find_nodes(reader, now=now)
    except ForbiddenError as error:
        if snapshot is None:
            raise ForbiddenError(str(error), hint=_RIGHTS) from error
        return replace(nodes_of_snapshot(snapshot), left_out=(f"pods: {error}",))
    gangs = [] if snapshot is None else [*pending_gangs(snapshot, found.flavors)]
    return _answer(found, gangs, (*left_out, *found.left_out), most=most)


def _answer(
    found: FoundNodes, gangs: Sequence[AskedGang], left_out: tuple[str, ...], *, most: int
) -> NodesAnswer:
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
    planned = progress(wanting, "planning", len(wanting)) if most and by else ()
    moves = planned_moves(found.nodes, found.pods, planned, stranding=by, most=most)
    return NodesAnswer(
        devices=tuple(_totals(lines)),
        nodes=lines,
        asked=tuple(dict.fromkeys(each.name for each in gangs)),
        moves=tuple(moves),
        map=tuple(_map(found)),
        left_out=left_out,
    )


def _asks(gang: AskedGang, devices: Mapping[str, int]) -> bool:
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
    for resource in sorted({name for line in lines for name in _devices(line)}):
        yield DeviceTotal(
            resource=resource,
            total=sum(line.allocatable.get(resource, 0) for line in lines),
            free=sum(max(0, line.free.get(resource, 0)) for line in lines),
            fragments=sum(line.fragments.get(resource, 0) for line in lines),
            stranded=sum(
                each.amount for line in lines for each in line.stranded if each.resource == resource
            ),
        )


def _devices(line: NodeLine) -> list[str]:
    return [name for name, amount in line.allocatable.items() if "/" in name and amount]


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


def _version(answer: NodesAnswer) -> object:
    """Return what is another when something changed; what moves cost grows by itself."""
    return answer.nodes, answer.asked


def nodes_lines(answer: NodesAnswer, *, wide: bool) -> Iterator[str]:
    """Yield nodes as people read them."""
    for each in answer.devices:
        in_parts = f"{each.fragments} of these in fragments, {each.stranded} stranded"
        yield f"{each.resource}: {each.total}, {each.free} free, {in_parts}"
    if answer.nodes:
        head = (*_HEAD, *(_WIDE if wide else ()))
        rows = [row for line in answer.nodes for row in _rows(line, wide=wide)]
        if not any(line.domain for line in answer.nodes):
            head, rows = head[1:], [row[1:] for row in rows]
        yield from table_lines(head, rows, numbers=_NUMBERS)
    if wide and answer.map:
        yield from ("", *answer.map)
    for plan in answer.moves:
        yield ""
        yield from _plan(plan)
    for missing in answer.left_out:
        yield from ("", f"not known: {missing}")


def _rows(line: NodeLine, *, wide: bool) -> Iterator[tuple[str, ...]]:
    stranded = {each.resource: each for each in line.stranded}
    for number, device in enumerate(_devices(line) or [""]):
        found = stranded.get(device)
        place = (line.domain or "-", line.name, line.state) if not number else ("", "", "")
        amounts = (
            line.allocatable.get(device, 0),
            line.free.get(device, 0),
            line.fragments.get(device, 0),
            0 if found is None else found.amount,
        )
        row = (
            *place,
            device or "-",
            *(map(str, amounts) if device else ("-",) * 4),
            "-" if found is None else _named(found.by, wide=wide) or "-",
            "-" if line.pods is None else _jobs(line, device, wide=wide) or "-",
        )
        shortage = "-" if found is None else ", ".join(found.missing) or "-"
        free = (_free(line, "cpu"), _free(line, "memory"))
        yield (*row, shortage, *free) if wide else row


def _free(line: NodeLine, resource: str) -> str:
    return format_amount(resource, line.free[resource]) if resource in line.free else "-"


def _jobs(line: NodeLine, device: str, *, wide: bool) -> str:
    """Name the jobs of a node, those that hold its devices with how many."""
    jobs = [(each.requests.get(device, 0), each) for each in line.pods or ()]
    shown = [pair for pair in jobs if wide or pair[0] or not device]
    shown.sort(key=lambda pair: (-pair[0], pair[1].job))
    names = [f"{each.job} ({held or amounts_text(each.requests)})" for held, each in shown]
    return _named(names, wide=wide)


def _named(names: Sequence[str], *, wide: bool) -> str:
    most = len(names) if wide else MOST_NAMED
    return ", ".join(names[:most]) + and_others(len(names[most:]))


def _plan(plan: Defragmentation) -> Iterator[str]:
    doubt = "" if plan.fewest else "; fewer may do"
    count = len(plan.moves)
    yield f"{plan.workload} would find a place after {count} move{'s' if count > 1 else ''}{doubt}:"
    for move in plan.moves:
        lost = f"{move.cost / 3_600:.1f} device-hours lost"
        yield f"  move {move.workload}: {_where(move.source)} -> {_where(move.target)} ({lost})"
    yield f"  start {plan.workload}: {_where(plan.target)}"


def _where(places: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({pods})" for name, pods in places.items())
