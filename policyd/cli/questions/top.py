"""`policyd top`: show how loaded queues are."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Unpack, get_args

import click

from policyd.cli.formats.tables import table_lines
from policyd.cli.questions.question import (
    ALL_NAMESPACES,
    SHARED,
    QuestionOptions,
    of_snapshot,
    show,
)
from policyd.clock import SystemClock
from policyd.questions.known_names import NameFilter, of_tree
from policyd.snapshot.loads import Order, QueueLoad, ResourceLoad, queue_loads
from policyd.snapshot.values import QueueSnapshot
from policyd.status.ages import age
from policyd.status.quantities import format_amount

_HEAD = ("QUEUE", "RUNNING", "PENDING", "OLDEST")


class _Given(QuestionOptions):
    """The arguments of the command."""

    everywhere: bool
    queue: str
    order: Order


@click.command("top")
@SHARED
@ALL_NAMESPACES
@click.option("--queue", default="", help="Only this ClusterQueue, or those of this Cohort.")
@click.option(
    "--sort-by",
    "order",
    type=click.Choice(get_args(Order)),
    default="pending",
    show_default=True,
    help="What comes first: most pending, longest waiting, largest share in use, or the names.",
)
def command(**given: Unpack[_Given]) -> None:
    r"""Show the load of ClusterQueues, those with the most pending workloads first.

    \b
    RUNNING  workloads with quota
    PENDING  pending workloads
    OLDEST   the longest time that one of them is pending
    other    for each resource, of all flavors together: used/nominal (share of its own quota);
             more than 100% is borrowed; with -o wide, also the requests of pending workloads

    Exits with 0, or 2 if a name does not exist or the cluster cannot be asked.

    \b
    Examples:
      policyd top
      policyd top -A --sort-by usage --watch
      policyd top -o json | jq '.[] | {name, pending}'
    """
    question = of_snapshot(
        partial(_answer, given),
        partial(_lines, wide=given["output"] == "wide"),
        everywhere=given["everywhere"],
        filters=partial(_filters, given),
        empty="no ClusterQueues",
    )
    show(given, question)


def _filters(given: _Given, snapshot: QueueSnapshot) -> Iterator[NameFilter]:
    yield of_tree(given["queue"], snapshot)


def _answer(given: _Given, snapshot: QueueSnapshot) -> list[QueueLoad]:
    return queue_loads(snapshot, by=given["order"], queue=given["queue"])


def _lines(loads: Sequence[QueueLoad], *, wide: bool) -> list[str]:
    if not loads:
        return []
    now = SystemClock().now()
    resources = list(dict.fromkeys(name for load in loads for name in load.resources))
    resources.sort(key=lambda name: ("/" not in name, name))
    head = (*_HEAD, *map(str.upper, resources))
    rows = (tuple(_cells(load, resources, now, wide=wide)) for load in loads)
    return table_lines(head, rows, numbers=head[1:])


def _cells(load: QueueLoad, resources: Sequence[str], now: float, *, wide: bool) -> Iterator[str]:
    yield load.name if load.active else f"{load.name} (inactive)"
    yield from (str(load.running), str(load.pending))
    yield age(load.oldest, now) if load.oldest else "-"
    for name in resources:
        found = load.resources.get(name)
        yield _usage(name, found, wide=wide) if found else "-"


def _usage(name: str, load: ResourceLoad, *, wide: bool) -> str:
    text = f"{format_amount(name, load.used)}/{format_amount(name, load.nominal)}"
    if load.nominal:
        text = f"{text} ({100 * load.used // load.nominal}%)"
    return f"{text} +{format_amount(name, load.pending)}" if wide and load.pending else text
