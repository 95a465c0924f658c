"""`policyd nodes`: show nodes, the pods on them, stranded devices, and moves that free them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, Unpack

import click
from msgspec.structs import replace

from policyd.cli.formats.progress import progress
from policyd.cli.formats.tables import table_lines
from policyd.cli.questions.question import SHARED, Question, QuestionOptions, show
from policyd.clock import SystemClock
from policyd.kube.client import Reader
from policyd.questions.nodes import NodesAnswer, nodes_answer, nodes_of_snapshot
from policyd.simulate.defragmentation import Defragmentation
from policyd.simulate.stranding import NodeLine, PendingGang, devices_of
from policyd.status.quantities import amounts_text, format_amount
from policyd.status.shortages import and_others

MOST_NAMED: Final = 3
"""Jobs of a node that are named in the table; the wide one names all."""
_NUMBERS = ("TOTAL", "FREE", "FRAGMENTS", "STRANDED")
_HEAD = ("DOMAIN", "NODE", "STATE", "DEVICE", *_NUMBERS, "STRANDED BY", "JOBS")
_WIDE = ("MISSING", "FREE CPU", "FREE MEMORY")


class _Given(QuestionOptions):
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
    now = SystemClock().now()
    answer = await nodes_answer(reader, most=given["moves"], now=now, showing=_progress)
    if not given["stranded"]:
        return answer
    nodes = tuple(each for each in answer.nodes if each.stranded)
    return replace(answer, nodes=nodes)


def _progress(gangs: Sequence[PendingGang]) -> Iterator[PendingGang]:
    return progress(gangs, "planning", len(gangs))


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
    for number, device in enumerate(devices_of(line.allocatable) or [""]):
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
