"""`policyd queue`: list the pending workloads of queues."""

from collections.abc import Iterator
from functools import partial
from typing import Unpack

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
from policyd.questions.known_names import NameFilter, of_owner, of_queue, of_team
from policyd.snapshot.answers import QueueLine, queue_lines
from policyd.snapshot.starting import start_order, start_text
from policyd.snapshot.values import QueueSnapshot
from policyd.status.ages import age
from policyd.status.quantities import amounts_text

_HEAD = ("QUEUE", "AHEAD", "NAMESPACE", "JOB", "PRIORITY", "REQUESTS", "WAITS", "START", "REASON")
_WIDE = (*_HEAD, "LOCAL QUEUE", "WORKLOAD", "OWNER", "MESSAGE")


class _Given(QuestionOptions):
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
@click.option("--user", default="", help="Only those of this owner.")
@click.option("--start", "by_start", is_flag=True, help="Sort by the forecast start.")
def command(**given: Unpack[_Given]) -> None:
    r"""List the pending workloads of each queue in the order in which they are considered.

    AHEAD is the number of workloads before this one in its ClusterQueue. The list contains the
    queues that the namespace submits to, and all queues that share quota with them. The
    setting `visibility.otherTeams` of the controller determines how jobs of other namespaces
    are named. The owner of a job is the label or annotation `policyd.io/owner` of its Workload
    or pods.

    START is the forecast of the start: the median, and the interval that contains nine of ten
    starts. It is `unknown` if there is no forecast for the workload, and `-` before the first
    forecast.

    Exits with 0, or 2 if a name does not exist or the cluster cannot be asked.

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
        filters=partial(_filters, given),
        empty="no pending workloads",
    )
    show(given, question)


def _filters(given: _Given, snapshot: QueueSnapshot) -> Iterator[NameFilter]:
    yield of_queue(given["queue"], snapshot)
    yield of_team(given["team"], snapshot)
    yield of_owner(given["user"], snapshot)


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
