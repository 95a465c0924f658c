"""`policyd what-if`: show who would start earlier or later, and who would be preempted."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from math import inf
from typing import Final, NamedTuple, Unpack

import click
import msgspec

from policyd.alloc.value import Value
from policyd.api.meta import Json, rfc3339
from policyd.cli.clusters import connection_for
from policyd.cli.configuring import CONFIG
from policyd.cli.formats.changes import ChangedObjects, Objects, changed
from policyd.cli.formats.files import once
from policyd.cli.formats.present import UNDECLARED, Present, last_known, present
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import count
from policyd.cli.formats.scenario_jobs import SkippedJobs
from policyd.cli.formats.scenarios import scenario_objects, scenario_state, seconds_of
from policyd.cli.formats.tables import show_table
from policyd.cli.options import CONTEXT, KUBECONFIG, ContextOptions, together
from policyd.cli.questions.listing import queue_objects, submitted_objects
from policyd.cli.questions.pages import Output, show_values
from policyd.clock import SystemClock
from policyd.errors import PolicydError
from policyd.kube.http_client import HttpClient
from policyd.process import run
from policyd.simulate.comparison import Change, Course, Stay, StayDifference, compare, course
from policyd.simulate.scenario import Arrival
from policyd.standard_input import FILE
from policyd.status.ages import duration
from policyd.status.naming import Names

_HEAD: Final = ("NAMESPACE", "JOB", "CLUSTERQUEUE", "STARTS", "WOULD START", "CHANGE")
_NAMED = 3
"""Workloads without a run time that are named; the others are counted."""


class NothingToTryError(PolicydError):
    """No change was given, or nothing of what was submitted can be queued."""


class StopAnswer(Value, frozen=True, rename="camel"):
    """A run that would be stopped.

    Attributes:
        seconds: When, from now on.
        by: `namespace/name` of the workload that it is preempted for; empty if it is for none.
        job: `Kind/name` of its job; empty if it stands for itself.
        reason: Why, as a Workload's condition has it.
    """

    seconds: float
    by: str
    job: str
    reason: str


class StayAnswer(Value, frozen=True, rename="camel"):
    """What happens to a workload, in seconds from now on.

    Attributes:
        start: `Runs`, `Starts`, `Never` or `Unknown`.
        seconds: When it starts; null if it does not, or that is unknown.
        stops: When it is preempted or evicted.
        restarts: When it starts again.
        known_seconds: For how long this is all that happens; null if nothing else is possible.
    """

    start: str
    seconds: float | None
    stops: tuple[StopAnswer, ...]
    restarts: tuple[float, ...]
    known_seconds: float | None


class DifferenceAnswer(Value, frozen=True, rename="camel"):
    """What differs for a workload.

    Attributes:
        namespace: Its namespace.
        workload: Its name.
        job: `Kind/name` of its job; empty if it stands for itself.
        cluster_queue: Its queue.
        change: What differs.
        seconds: How much later it starts, negative for earlier; null if that cannot be said.
        before: What happens as things are; null if it is not there.
        after: What happens after the change; null if it is not there.
    """

    namespace: str
    workload: str
    job: str
    cluster_queue: str
    change: Change
    seconds: float | None
    before: StayAnswer | None
    after: StayAnswer | None


class UnclearEnd(Value, frozen=True, rename="camel"):
    """A workload whose end is unknown.

    Attributes:
        workload: `namespace/name`.
        reason: Why it is.
    """

    workload: str
    reason: str


class WhatIfAnswer(Value, frozen=True, rename="camel"):
    """What a change would change.

    Attributes:
        now: The moment from which on seconds count.
        differences: By the time of the start after the change.
        same: How many workloads nothing changes for.
        unknown: For how many that cannot be said.
        unclear: Workloads whose end is unknown, and after whose start their queues are.
        unordered: ClusterQueues that past usage orders, of which nothing can be said.
    """

    now: str
    differences: tuple[DifferenceAnswer, ...]
    same: int
    unknown: int
    unclear: tuple[UnclearEnd, ...]
    unordered: tuple[str, ...]


class _Given(ContextOptions):
    """The arguments of the command."""

    namespace: str
    dump: str | None
    config: str
    submit: tuple[str, ...]
    apply: tuple[str, ...]
    delete: tuple[str, ...]
    lose_node: tuple[str, ...]
    until: str
    assume: str
    everything: bool
    output: Output


_CHANGES = together(
    click.option(
        "--submit", multiple=True, type=FILE, metavar="FILE", help="Jobs or Workloads that come."
    ),
    click.option(
        "--apply",
        multiple=True,
        type=FILE,
        metavar="FILE",
        help="New objects, or the fields to change of those that are there.",
    ),
    click.option(
        "--delete",
        multiple=True,
        metavar="KIND/NAME",
        help="An object that goes, such as job/train or workload/team-a/w.",
    ),
    click.option("--lose-node", multiple=True, metavar="NAME", help="A node that goes."),
)


@click.command("what-if")
@_CHANGES
@KUBECONFIG
@CONTEXT
@click.option(
    "-n", "--namespace", default="", help="Namespace of names without one.  [the context's]"
)
@click.option(
    "--dump", type=FILE, metavar="FILE", help="Read objects from a file, or -, not a cluster."
)
@CONFIG
@click.option("--until", default="", metavar="DURATION", help="How far to look, such as 24h.")
@click.option(
    "--assume",
    default="",
    metavar="DURATION",
    help="How long jobs run that declare nothing.  [that is unknown]",
)
@click.option(
    "-a", "--all", "everything", is_flag=True, help="Workloads that stay as they are, too."
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "json", "yaml"]),
    default="table",
    show_default=True,
    help="For people, with more columns, or for programs.",
)
def command(**given: Unpack[_Given]) -> None:
    r"""Show what a change would change: who starts earlier or later, and who is preempted.

    The queues are simulated twice from now on, as they are and after the change, by the code
    that decides in the controller. Nothing is written.

    Quotas, weights, preemption policies and flavors are changed by --apply: fields that its file
    does not name stay as they are, lists are replaced as a whole. A new node is applied, too.

    A job that is submitted is first given to the API server as a dry run, so that it gets the queue
    and the priority that policies give it; in a dump, it has to name its queue.

    Run times are those that workloads declare: a maximum execution time, or the annotation
    policyd.io/expected-run-time. Where one declares none, what happens after its start is
    unknown in its cohort, and is not guessed, unless --assume says how long such jobs run.

    A dump has the objects that `policyd simulate` reads. Pass the controller's Configuration by
    --config if it is not the default one.

    Exits with 0, or 2 if the change is not possible or the cluster cannot be asked.

    \b
    Examples:
      policyd what-if --submit train.yaml
      policyd what-if --apply more-quota.yaml --until 24h -o json
      policyd what-if --delete job/team-a/train --lose-node gpu-3
      kubectl get resourceflavors,clusterqueues,cohorts,localqueues,workloads -A -o yaml \
        | policyd what-if --dump - --submit train.yaml
    """
    if not (given["submit"] or given["apply"] or given["delete"] or given["lose_node"]):
        raise click.UsageError("no change: name one with --submit, --apply, --delete, --lose-node")
    once([given["dump"], *given["submit"], *given["apply"], given["config"]])
    if given["dump"]:
        objects, namespace = scenario_objects(given["dump"]), given["namespace"] or "default"
        now = last_known(objects)
        _answer(given, objects, _read(given["submit"]), now=now, namespace=namespace)
    else:
        run(partial(_run, given))


async def _run(given: _Given, _stop: asyncio.Event) -> None:
    connection = connection_for(given)
    namespace = given["namespace"] or connection.namespace
    async with HttpClient(connection) as client:
        objects = await queue_objects(client)
        submitted = await submitted_objects(client, _read(given["submit"]), namespace)
    now = max(SystemClock().now(), last_known(objects))
    _answer(given, objects, submitted, now=now, namespace=namespace)


def _answer(
    given: _Given, objects: Objects, submitted: Objects, *, now: float, namespace: str
) -> None:
    """Try the change on objects, and show what differs."""
    if given["config"]:
        objects = [*objects, *scenario_objects(given["config"])]
    after = changed(
        objects,
        submitted=submitted,
        applied=_read(given["apply"]),
        deleted=(*given["delete"], *(f"node/{name}" for name in given["lose_node"])),
        namespace=namespace,
    )
    left_out = SkippedJobs(Names())
    horizon = Horizon(
        now=now,
        until=now + seconds_of(given["until"]) if given["until"] else inf,
        assumed=seconds_of(given["assume"]) if given["assume"] else None,
    )
    answer = what_if(objects, after, horizon, left_out)
    for sentence in left_out.sentences:
        click.secho(f"warning: {sentence}", fg="yellow", err=True)
    if submitted and not any(each.change == "New" for each in answer.differences):
        raise NothingToTryError(
            "nothing of what is submitted can be queued",
            hint="name a LocalQueue by the label `kueue.x-k8s.io/queue-name`; pods cannot be tried",
        )
    _show(answer, given)


def _read(files: Iterable[str]) -> list[dict[str, Json]]:
    return [each for file in files for each in scenario_objects(file)]


class Horizon(NamedTuple):
    """The time of a comparison, in seconds since the epoch.

    Attributes:
        now: Its beginning.
        until: Its end.
        assumed: How long workloads run that do not declare it, in seconds; None if that is unknown.
    """

    now: float
    until: float = inf
    assumed: float | None = None


def what_if(
    objects: Objects,
    after: ChangedObjects,
    horizon: Horizon,
    left_out: SkippedJobs,
) -> WhatIfAnswer:
    """Return what differs between the queues as they are, and after a change.

    Args:
        objects: As they are.
        after: As they would be.
        horizon: From when on, and up to when.
        left_out: Collects the jobs that are not considered after the change.

    Raises:
        PolicydError: If an object is not as its kind has it.
    """
    now = horizon.now
    here = present(objects, SkippedJobs(Names()), now=now)
    there = present(after.objects, left_out, now=now, lost=after.lost)
    courses = [
        _course(given, arrivals, horizon)
        for given, arrivals in progress([(objects, here), (after.objects, there)], "simulating", 2)
    ]
    found = compare(*courses)
    changes, jobs = Counter(each.change for each in found), {**there.jobs, **here.jobs}
    return WhatIfAnswer(
        now=rfc3339(now),
        differences=tuple(_difference_answer(each, jobs, now) for each in found),
        same=changes["Same"],
        unknown=changes["Unknown"],
        unclear=tuple(
            UnclearEnd(key, there.unclear.get(key) or here.unclear.get(key, ""))
            for key in sorted({key for each in courses for key in each.doubts})
        ),
        unordered=tuple(sorted({name for each in courses for name in each.unordered})),
    )


def _course(given: Objects, of: Present, horizon: Horizon) -> Course:
    def assumed(arrival: Arrival) -> Arrival:
        why = of.unclear.get(arrival.workload.key)
        if why != UNDECLARED or horizon.assumed is None or arrival.ran_seconds > horizon.assumed:
            return arrival
        return msgspec.structs.replace(arrival, run_seconds=horizon.assumed)

    state = scenario_state(list(given))
    return course(state, map(assumed, of.arrivals), until=horizon.until)


def _difference_answer(
    found: StayDifference, jobs: Mapping[str, str], now: float
) -> DifferenceAnswer:
    stay = found.after or found.before
    namespace, _, name = found.key.partition("/")
    return DifferenceAnswer(
        namespace=namespace,
        workload=name,
        job=jobs.get(found.key, ""),
        cluster_queue="" if stay is None else stay.cluster_queue,
        change=found.change,
        seconds=found.seconds,
        before=_stay_answer(found.before, jobs, now),
        after=_stay_answer(found.after, jobs, now),
    )


def _stay_answer(stay: Stay | None, jobs: Mapping[str, str], now: float) -> StayAnswer | None:
    if stay is None:
        return None
    stops = (
        StopAnswer(each.at - now, each.by, jobs.get(each.by, ""), each.reason)
        for each in stay.interruptions
    )
    start = None if stay.runs else stay.start
    first = "Runs" if stay.runs else "Unknown" if start is None else "Starts"
    restarts = stay.starts if stay.runs else stay.starts[1:]
    return StayAnswer(
        start="Never" if start == inf else first,
        seconds=None if start is None or start == inf else start - now,
        stops=tuple(stops),
        restarts=tuple(at - now for at in restarts),
        known_seconds=None if stay.known_until == inf else stay.known_until - now,
    )


def _show(answer: WhatIfAnswer, given: _Given) -> None:
    shown = [
        each
        for each in answer.differences
        if given["everything"] or each.change not in {"Same", "Unknown"}
    ]
    if given["output"] in {"json", "yaml"}:
        show_values(msgspec.structs.replace(answer, differences=tuple(shown)), given["output"])
        return
    wide = given["output"] == "wide"
    if shown:
        head = (*_HEAD, "WORKLOAD", "KNOWN FOR") if wide else _HEAD
        show_table(head, (tuple(_cells(each, wide=wide)) for each in shown))
    else:
        click.echo("nothing would change", err=True)
    for line in _left(answer):
        click.echo(line, err=True)


def _cells(each: DifferenceAnswer, *, wide: bool) -> Iterator[str]:
    yield from (each.namespace, each.job or f"Workload/{each.workload}", each.cluster_queue)
    yield from (_start(each.before), _start(each.after), _change(each))
    if wide:
        known = [x.known_seconds for x in (each.before, each.after) if x is not None]
        least = min((seconds for seconds in known if seconds is not None), default=None)
        yield from (each.workload, "always" if least is None else duration(least))


def _start(stay: StayAnswer | None) -> str:
    if stay is None:
        return "-"
    if stay.seconds is None:
        return stay.start.lower()
    return "now" if stay.seconds <= 0 else f"in {duration(stay.seconds)}"


def _change(each: DifferenceAnswer) -> str:
    """Say what changes, and what else happens to the workload."""
    moved = f" by {duration(abs(each.seconds))}" if each.seconds is not None else ""
    stops = ""
    if each.after is not None and (each.before is None or each.before.stops != each.after.stops):
        stops = "; ".join(map(_stop, each.after.stops))
    word = "" if stops and each.change == "Preempted" else f"{each.change.lower()}{moved}"
    again = each.after.restarts if stops and each.after is not None else ()
    starts = f"starts again {_when(again[-1])}" if again else ""
    return ", ".join(filter(None, (word, stops, starts)))


def _stop(stop: StopAnswer) -> str:
    if not stop.by:
        return f"evicted {_when(stop.seconds)} ({stop.reason})"
    namespace, _, workload = stop.by.partition("/")
    name = stop.job.rpartition("/")[2] or workload
    return f"preempted {_when(stop.seconds)} for {namespace}/{name} ({stop.reason})"


def _when(seconds: float) -> str:
    return "now" if seconds <= 0 else f"in {duration(seconds)}"


def _left(answer: WhatIfAnswer) -> Iterator[str]:
    """Yield what the table leaves out."""
    if answer.same:
        yield f"{count(answer.same, 'workload')} as before"
    if answer.unordered:
        names = ", ".join(answer.unordered)
        yield f"unknown for {names} and the queues that share with it: past usage decides there"
    if answer.unclear:
        named = [f"{each.workload} ({each.reason})" for each in answer.unclear[:_NAMED]]
        more = len(answer.unclear) - len(named)
        others = f" and {more} more" if more else ""
        yield (
            f"unknown for {count(answer.unknown, 'workload')}, because of the end of"
            f" {', '.join(named)}{others}"
        )
