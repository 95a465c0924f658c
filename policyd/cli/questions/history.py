"""`policyd history`: list what ran, when and where, how long it waited, and who preempted it."""

from collections.abc import Iterator
from functools import partial
from typing import Unpack

import click
from msgspec.structs import replace

from policyd.api.kueue import Workload
from policyd.cli.formats.tables import table_lines
from policyd.cli.formats.times import MOMENT
from policyd.cli.questions.question import OF_CLUSTER, Question, QuestionOptions, show, warn_of
from policyd.clock import SystemClock
from policyd.kube.client import Reader
from policyd.kube.errors import ForbiddenError
from policyd.kube.pages import pages
from policyd.kube.resources import WORKLOADS
from policyd.questions.known_names import (
    QUEUE,
    NameFilter,
    check_names,
    owner_filter,
    queues_read,
)
from policyd.status.ages import duration, seconds_of
from policyd.status.quantities import amounts_text
from policyd.status.shortages import and_others
from policyd.workload.families import PARENT, parent_of
from policyd.workload.records import WorkloadRecord, preemptor_text, record_of

MOST_PLACES = 3
"""Nodes or domains that are named to people; programs get all."""
NOT_KEPT = (
    "Workloads that were deleted, with their job or by retention, are not kept; of several"
    " evictions, only the last one's time and preemptor are"
)

_HEAD = ("NAMESPACE", "JOB", "QUEUE", "STATE", "CREATED", "WAITED", "RAN", "REQUESTS", "WHERE")
_TABLE = (*_HEAD, "PREEMPTED BY")
_WIDE = (*_TABLE, "OWNER", "PRIORITY", "ADMITTED", "FINISHED", "EVICTIONS", "WORKLOAD", "MESSAGE")


class _Given(QuestionOptions):
    """The arguments of the command."""

    everywhere: bool
    queue: str
    user: str
    since: float | None


@click.command("history")
@OF_CLUSTER
@click.option(
    "-A", "--all-namespaces", "everywhere", is_flag=True, help="Workloads of all namespaces."
)
@click.option("--queue", default="", help="Only those of this LocalQueue or ClusterQueue.")
@click.option("--user", default="", help="Only those of this owner.")
@click.option(
    "--since",
    type=MOMENT,
    help="Only those that had not ended by then: a time, or how long ago, such as 90m or 7d.",
)
def command(**given: Unpack[_Given]) -> None:
    r"""List past and running jobs: when and where they ran, how long they waited, and preemptors.

    The command reads the Workloads that still exist, with the permissions of the user.
    Finished Workloads are kept until their job is deleted, or as long as
    `objectRetentionPolicies` allows. WAITED and RAN are sums over all evictions. WHERE shows
    nodes if a topology placed the pods, and otherwise flavors.

    Exits with 0, or 2 if a name does not exist or the cluster cannot be asked.

    \b
    Examples:
      policyd history --since 7d
      policyd history -A --user ann -o wide
      policyd history -o json | jq 'map(select(.evictions | length > 0))'
    """
    show(
        given,
        Question(
            of_cluster=partial(_of_cluster, given),
            of_file=None,
            lines=partial(history_lines, wide=given["output"] == "wide"),
            empty=f"no workloads; {NOT_KEPT}",
            version=_version,
        ),
    )


async def _of_cluster(given: _Given, reader: Reader, namespace: str) -> list[WorkloadRecord]:
    return await history(
        reader,
        "" if given["everywhere"] else namespace,
        queue=given["queue"],
        owner=given["user"],
        since=given["since"],
    )


async def history(
    reader: Reader,
    namespace: str,
    *,
    queue: str = "",
    owner: str = "",
    since: float | None = None,
) -> list[WorkloadRecord]:
    """Return what the Workloads of a namespace say of their past, the oldest first.

    A preemptor is named if it still exists and is in these namespaces; else its queue is.

    Args:
        reader: The API server.
        namespace: Where; "" for everywhere.
        queue: A LocalQueue or ClusterQueue; "" for all.
        owner: A person; "" for all.
        since: In seconds since the epoch; those that ended before are left out.

    Raises:
        UnknownNameError: If there is no such queue.
        ApiError: If the API server refuses, or does not answer.
    """
    found: list[tuple[WorkloadRecord, str]] = []
    names, parents, now = {}, set(), SystemClock().now()
    try:
        async for page in pages(reader, WORKLOADS, into=Workload, namespace=namespace):
            for each in page.items:
                names[each.metadata.uid] = each.metadata.key
                if each.metadata.labels.get(PARENT) == "true":
                    parents.add(each.metadata.uid)
                above = parent_of(each)
                found.append((record_of(each, now=now), above.uid if above else ""))
    except ForbiddenError as error:
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        raise ForbiddenError(
            str(error), hint=f"an administrator has to grant `list` on `workloads` {where}"
        ) from error
    queues = {name for each, _ in found for name in (each.local_queue, each.cluster_queue)} - {""}
    owners = {each.owner for each, _ in found}
    filters = (NameFilter(queue, QUEUE, queues, queues_read), owner_filter(owner, owners))
    warn_of(await check_names(reader, namespace, filters))
    chosen = (
        replace(each, preempted_by=_preemptor(each, names))
        for each, parent in found
        if parent not in parents  # a variant: its parent has what became of the job
        and queue in {"", each.local_queue, each.cluster_queue}
        and owner in {"", each.owner}
        and not _ended_before(each, since)
    )
    return sorted(chosen, key=lambda each: (each.times.created or "", each.namespace, each.job))


def _preemptor(record: WorkloadRecord, names: dict[str, str]) -> str:
    uid = record.preempted_by
    return names.get(uid) or preemptor_text(record.preemptor_path) if uid else ""


def _ended_before(record: WorkloadRecord, since: float | None) -> bool:
    finished = record.times.finished
    return since is not None and finished is not None and seconds_of(finished) < since


def _version(records: list[WorkloadRecord]) -> object:
    """Return what is another when something happened: waits and runs grow by themselves."""
    return [(each.uid, each.state, each.message, each.evictions) for each in records]


def history_lines(records: list[WorkloadRecord], *, wide: bool) -> Iterator[str]:
    """Yield a history as people read it."""
    if not records:
        return
    rows = (tuple(_cells(each, wide=wide)) for each in records)
    numbers = ("WAITED", "RAN", "PRIORITY")
    yield from table_lines(_WIDE if wide else _TABLE, rows, numbers=numbers)
    yield from ("", f"Oldest: {records[0].times.created}. {NOT_KEPT}.")


def _cells(record: WorkloadRecord, *, wide: bool) -> Iterator[str]:
    times = record.times
    queue = "/".join(filter(None, (record.cluster_queue, record.local_queue)))
    finished = record.state == "Finished" and record.outcome
    yield from (record.namespace, record.job, queue or "-", finished or record.state)
    yield from (times.created or "-", duration(times.waited_seconds))
    yield "-" if times.ran_seconds is None else duration(times.ran_seconds)
    yield from (amounts_text(record.requests), _where(record), record.preempted_by or "-")
    if wide:
        yield from (record.owner or "-", str(record.priority), times.admitted or "-")
        yield times.finished or "-"
        yield ", ".join(f"{count} {name}" for name, count in record.evictions.items()) or "-"
        yield from (record.workload, record.message)


def _where(record: WorkloadRecord) -> str:
    places = [f"{name} ({pods})" for name, pods in record.domains.items()] or [*record.flavors]
    return ", ".join(places[:MOST_PLACES]) + and_others(len(places[MOST_PLACES:])) or "-"
