"""`policyd queue`: list the pending workloads of queues."""

from collections.abc import Iterator
from functools import partial
from typing import Unpack

import click

from policyd.cli.formats.tables import table_lines
from policyd.cli.questions.asking import (
    ALL_NAMESPACES,
    SHARED,
    Asking,
    of_snapshot,
    show,
)
from policyd.clock import SystemClock
from policyd.snapshot.answers import QueueLine, queue_lines
from policyd.snapshot.starting import start_order, start_text
from policyd.snapshot.values import QueueSnapshot
from policyd.status.ages import age
from policyd.status.quantities import amounts_text

_HEAD = ("QUEUE", "AHEAD", "NAMESPACE", "JOB", "PRIORITY", "REQUESTS", "WAITS", "START", "REASON")
_WIDE = (*_HEAD, "LOCAL QUEUE", "WORKLOAD", "OWNER", "MESSAGE")


class _Given(Asking):
    """The arguments of the command."""

    everywhere: bool
    queue: str
    team: str
    user: str
    by_start: bool


@click.command("queue")
@SHARED
@ALL_NAMESPACES
@click.option("--queue", default="", help="Only those of this ClusterQueue or LocalQueue.")
@click.option("--team", default="", help="Only those of this namespace.")
@click.option("--user", default="", help="Only those that name this person as their owner.")
@click.option(
    "--start", "by_start", is_flag=True, help="The first that is forecast to start first."
)
def command(**given: Unpack[_Given]) -> None:
    r"""List pending workloads, queue by queue, in the order in which they will be tried.

    AHEAD is how many are before a workload in its ClusterQueue. Shown are the queues that the
    namespace submits to, and all that share quota with these. Jobs of other namespaces are
    named as far as `visibility.otherTeams` of the controller allows. The owner of a job is the
    label or annotation `policyd.io/owner` of its Workload or pods.

    START is the forecast of when a workload starts: the median, and the interval that holds nine
    starts of ten. It is `unknown` where nothing can be said, and `-` before the first forecast.

    Exits with 0, or 2 if the cluster cannot be asked.

    \b
    Examples:
      policyd queue
      policyd queue --team team-a -o wide
      policyd queue --user ann --watch
      policyd queue --start
      policyd queue -A -o json | jq '.[] | select(.reason == "ExceedsMaxQuota")'
    """
    question = of_snapshot(
        partial(_answer, given),
        partial(_lines, wide=given["output"] == "wide"),
        everywhere=given["everywhere"],
        empty="no pending workloads",
    )
    show(given, question)


def _answer(given: _Given, snapshot: QueueSnapshot) -> list[QueueLine]:
    lines = queue_lines(snapshot, queue=given["queue"], team=given["team"], owner=given["user"])
    if given["by_start"]:
        return sorted(lines, key=lambda line: start_order(line.forecast))
    return list(lines)


def _lines(lines: list[QueueLine], *, wide: bool) -> list[str]:
    if not lines:
        return []
    now = SystemClock().now()
    rows = (tuple(_cells(line, now, wide=wide)) for line in lines)
    return table_lines(_WIDE if wide else _HEAD, rows, numbers=("AHEAD", "PRIORITY"))


def _cells(line: QueueLine, now: float, *, wide: bool) -> Iterator[str]:
    yield from (line.cluster_queue, str(line.ahead), line.namespace or "-", line.job or "-")
    yield from (str(line.priority), amounts_text(line.requests), age(line.since, now))
    yield from (start_text(line.forecast, now), line.reason or "-")
    if wide:
        yield from (line.local_queue or "-", line.workload or "-", line.owner or "-", line.message)
