"""`policyd events`: the events of queues, and of their workloads and jobs."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Unpack

import click

from policyd.cli.formats.tables import table_lines
from policyd.cli.questions.question import (
    ALL_NAMESPACES,
    OF_CLUSTER,
    Question,
    QuestionOptions,
    show,
)
from policyd.clock import SystemClock
from policyd.kube.client import Reader
from policyd.questions.event_lines import EventLine, EventScope, queue_events
from policyd.questions.unqueued_jobs import JobQuery, kind_of
from policyd.status.ages import age

_HEAD = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")


class _Given(QuestionOptions):
    """The arguments of the command."""

    job: str
    everywhere: bool
    queue: str


@click.command("events")
@click.argument("job", metavar="[KIND/NAME]", default="")
@OF_CLUSTER
@ALL_NAMESPACES
@click.option("--queue", default="", help="Only those of this LocalQueue or ClusterQueue.")
def command(**given: Unpack[_Given]) -> None:
    r"""Show events of queues in chronological order: admissions, preemptions, evictions.

    The list contains the events of queues and Workloads, and those that the controller records
    on jobs and pods. An event of a Workload is shown with the name of its job. KIND/NAME, such
    as job/train, selects the events of one job and its Workloads; --queue those of a queue and
    its workloads.

    The API server keeps events for an hour, unless configured otherwise.

    Exits with 0, or 2 if there is no such job or the cluster cannot be asked.

    \b
    Examples:
      policyd events
      policyd events job/train -n team-a
      policyd events --queue team-a --watch
      policyd events -A -o json | jq '.[] | select(.reason == "Preempted")'
    """
    word, slash, name = given["job"].partition("/")
    if given["job"] and (not slash or not name or "/" in name):
        raise click.UsageError(f"`{given['job']}` is not KIND/NAME, such as job/train")
    if given["job"] and (given["queue"] or given["everywhere"]):
        raise click.UsageError("KIND/NAME is one job: use it without --queue and -A")
    kind = kind_of(word) if given["job"] else ""

    async def asked(reader: Reader, namespace: str) -> list[EventLine]:
        job = JobQuery(kind, namespace, name) if kind else None
        where = "" if given["everywhere"] else namespace
        return await queue_events(reader, EventScope(where, job, given["queue"]))

    lines = partial(_lines, given)
    show(given, Question(asked, None, lines, "no events of queues"))


def _lines(given: _Given, events: Sequence[EventLine]) -> list[str]:
    if not events:
        return []
    everywhere, wide = given["everywhere"], given["output"] == "wide"
    head = (*(["NAMESPACE"] if everywhere else []), *_HEAD, *(["WORKLOAD"] if wide else []))
    now = SystemClock().now()
    rows = (tuple(_cells(each, now, everywhere=everywhere, wide=wide)) for each in events)
    return table_lines(head, rows)


def _cells(event: EventLine, now: float, *, everywhere: bool, wide: bool) -> Iterator[str]:
    if everywhere:
        yield event.namespace or "-"
    times = f" (x{event.count})" if event.count > 1 else ""
    yield f"{age(event.time, now)}{times}"
    yield from (event.type, event.reason, event.object, event.message)
    if wide:
        yield event.workload or "-"
