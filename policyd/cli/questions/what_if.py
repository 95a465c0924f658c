"""`policyd what-if`: show who would start earlier or later, and who would be preempted."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from math import inf
from typing import Final, NamedTuple, Unpack

import click
import msgspec

from policyd.api.kueue.names import QUEUE_NAME
from policyd.api.meta import Json, rfc3339
from policyd.cli.clusters import connection_for
from policyd.cli.configuring import CONFIG
from policyd.cli.formats.changes import ChangedObjects, Objects, as_new, changed
from policyd.cli.formats.current_workloads import UNDECLARED, CurrentWorkloads, last_known, present
from policyd.cli.formats.progress import progress
from policyd.cli.formats.scenario_jobs import SkippedJobs
from policyd.cli.formats.scenarios import (
    scenario_objects,
    scenario_state,
    seconds_of,
    with_configuration,
)
from policyd.cli.formats.tables import table_lines
from policyd.cli.options import CONTEXT, KUBECONFIG, ContextOptions, together, watch_option
from policyd.cli.questions.pages import (
    OUTPUT,
    READING_SECONDS,
    Output,
    Page,
    show_values,
    unless_stopped,
    watch,
)
from policyd.clock import SystemClock
from policyd.engine.objects.workloads import value_at
from policyd.errors import PolicydError
from policyd.kube.client import Client
from policyd.kube.errors import NotFoundError
from policyd.kube.http_client import HttpClient
from policyd.kube.resources import Resource
from policyd.process import run
from policyd.questions.queue_objects import (
    CONFIG_OPTION,
    configuration_of,
    queue_objects,
    request_objects,
)
from policyd.questions.unqueued_jobs import resource_of_job
from policyd.questions.what_if_answers import (
    DifferenceAnswer,
    SimulatedTimes,
    StopAnswer,
    UnknownEnd,
    WhatIfAnswer,
    change_text,
    left_out,
    start_text,
)
from policyd.simulate.comparison import (
    SimulatedCourse,
    SimulatedWorkload,
    WorkloadDifference,
    compare,
    course,
)
from policyd.simulate.scenario import Arrival
from policyd.standard_input import FILE
from policyd.status.ages import duration
from policyd.status.naming import Names
from policyd.status.queues import inactive_queues

_NOTHING: Final = "nothing would change"
_VERSION: Final = ("metadata", "resourceVersion")
_HEAD: Final = ("NAMESPACE", "JOB", "CLUSTERQUEUE", "STARTS", "WOULD START", "CHANGE")


class NoChangeError(PolicydError):
    """No change was given, or nothing of what was submitted can be queued."""


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
    watch: bool


_CHANGES = together(
    click.option(
        "--submit", multiple=True, type=FILE, metavar="FILE", help="Jobs or Workloads to submit."
    ),
    click.option(
        "--apply",
        multiple=True,
        type=FILE,
        metavar="FILE",
        help="New objects, or fields to change in existing objects.",
    ),
    click.option(
        "--delete",
        multiple=True,
        metavar="KIND/NAME",
        help="An object to delete, such as job/train or workload/team-a/w.",
    ),
    click.option("--lose-node", multiple=True, metavar="NAME", help="A node to delete."),
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
@click.option(
    "--until", default="", metavar="DURATION", help="End of the simulation, such as 24h from now."
)
@click.option(
    "--assume",
    default="",
    metavar="DURATION",
    help="Run time of jobs that declare none.  [unknown]",
)
@click.option(
    "-a", "--all", "everything", is_flag=True, help="Show workloads without a difference, too."
)
@OUTPUT
@watch_option("Read the cluster every ten seconds, and print the answer again after a change.")
def command(**given: Unpack[_Given]) -> None:
    r"""Show the effect of a change: which jobs start earlier or later, and which are preempted.

    The command simulates the queues from now on, once as they are and once with the change,
    with the scheduling code of the controller. It writes nothing.

    --apply changes quotas, weights, preemption policies and flavors: other fields keep their
    values, and lists are replaced as a whole. It can also add a node.

    The command sends the job of --submit to the API server as a dry run, so that policies set
    its queue and priority. With a dump, the job must name its queue.

    Run times are declared by workloads: a maximum execution time, or the annotation
    policyd.io/expected-run-time. After the start of a workload without one, the simulation of
    its cohort is unknown, unless --assume sets a run time. Run times of the past are not used.

    The command reads the Workloads of all namespaces from the API server: a snapshot of the
    queues does not have their pod sets and run times.

    A dump contains the objects that `policyd simulate` reads. If the controller's Configuration
    is not the default one, pass it with --config; the command reads that of a cluster from the
    controller.

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
    if given["dump"] and given["watch"]:
        raise click.UsageError("--watch reads a cluster, and --dump a file: use one of both")
    if given["dump"]:
        objects, namespace = scenario_objects(given["dump"]), given["namespace"] or "default"
        now = last_known(objects)
        planned = PlannedChange(given, _read(given["submit"]), namespace)
        _show(planned.answer(objects, now), given)
    else:
        run(partial(_run, given))


async def _run(given: _Given, stop: asyncio.Event) -> None:
    connection = connection_for(given)
    namespace = given["namespace"] or connection.namespace
    async with HttpClient(connection) as client:
        submitted = await submitted_objects(client, _read(given["submit"]), namespace)
        planned = PlannedChange(given, submitted, namespace)
        if given["watch"]:
            page = Page(given["output"], partial(_lines, given))
            ask = partial(_shown_of, given, planned, client)
            asked = watch(page, ask, seconds=READING_SECONDS)
            await unless_stopped(asyncio.create_task(asked), stop)
            return
        answer = await planned.ask(client)
    _show(answer, given)


async def _shown_of(given: _Given, planned: "PlannedChange", client: Client) -> WhatIfAnswer:
    return _shown(given, await planned.ask(client))


class PlannedChange:
    """A change that is planned on the objects of a cluster, again when these have changed."""

    def __init__(self, given: _Given, submitted: Objects, namespace: str) -> None:
        self._given, self._submitted, self._namespace = given, submitted, namespace
        self._applied = _read(given["apply"])
        self._warned: set[str] = set()
        self._versions: object = None
        self._answer: WhatIfAnswer | None = None

    async def ask(self, client: Client) -> WhatIfAnswer:
        """Return the answer for a cluster as it is: the last one if nothing has changed.

        Raises:
            PolicydError: If the cluster cannot be read, or the change is not possible.
        """
        given = self._given
        objects = await queue_objects(client, self.warn, nodes=bool(given["lose_node"]))
        known = with_configuration([], given["config"]) or await configuration_of(
            client, self.warn, CONFIG_OPTION
        )
        objects += [*known, *await request_objects(client, known, self.warn)]
        versions = [value_at(each, _VERSION) or each for each in objects]
        if self._answer is None or versions != self._versions:
            now = max(SystemClock().now(), last_known(objects))
            self._answer = await asyncio.to_thread(self.answer, objects, now)
            self._versions = versions
        return self._answer

    def warn(self, sentence: str) -> None:
        """Warn, once of the same."""
        if sentence not in self._warned:
            self._warned.add(sentence)
            click.secho(f"warning: {sentence}", fg="yellow", err=True)

    def answer(self, objects: Objects, now: float) -> WhatIfAnswer:
        """Return what differs on objects with the change, given seconds since the epoch.

        Raises:
            PolicydError: If the change is not possible.
        """
        given = self._given
        objects = with_configuration(objects, given["config"])
        after = changed(
            objects,
            submitted=self._submitted,
            applied=self._applied,
            deleted=(*given["delete"], *(f"node/{name}" for name in given["lose_node"])),
            namespace=self._namespace,
        )
        for sentence in after.mistyped:
            self.warn(sentence)
        if given["lose_node"] and not any(value_at(each, _TOPOLOGY) for each in objects):
            self.warn(_ANY_NODE)
        left_out = SkippedJobs(Names())
        horizon = Horizon(
            now=now,
            until=now + seconds_of(given["until"]) if given["until"] else inf,
            assumed=seconds_of(given["assume"]) if given["assume"] else None,
        )
        answer = what_if(objects, after, horizon, left_out)
        for sentence in left_out.sentences:
            self.warn(sentence)
        if any(each.after and each.after.start == "Never" for each in answer.differences):
            for sentence in inactive_queues(scenario_state(list(after.objects))):
                self.warn(sentence)
        self._check(answer)
        return answer

    def _check(self, answer: WhatIfAnswer) -> None:
        """Check that something of what is submitted is in the queues.

        Raises:
            NoChangeError: If nothing is.
        """
        submitted = self._submitted
        if submitted and not any(each.change == "New" for each in answer.differences):
            named = all(value_at(each, ("metadata", "labels", QUEUE_NAME)) for each in submitted)
            raise NoChangeError(
                "nothing of what is submitted can be queued",
                hint=_WARNED if named else _UNNAMED,
            )


def _read(files: Iterable[str]) -> list[dict[str, Json]]:
    return [each for file in files for each in scenario_objects(file)]


_WARNED: Final = "the warnings above show why; pods cannot be tried"
_UNNAMED: Final = "name a LocalQueue by the label `kueue.x-k8s.io/queue-name`; pods cannot be tried"
_TOPOLOGY: Final = ("spec", "topologyName")
_ANY_NODE: Final = (
    "no flavor has a topology: quotas do not depend on nodes, and jobs with pods on a node that is"
    " lost run longer than shown"
)


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
            UnknownEnd(key, there.unclear.get(key) or here.unclear.get(key, ""))
            for key in sorted({key for each in courses for key in each.doubts})
        ),
        unordered=tuple(sorted({name for each in courses for name in each.unordered})),
    )


def _course(given: Objects, of: CurrentWorkloads, horizon: Horizon) -> SimulatedCourse:
    def assumed(arrival: Arrival) -> Arrival:
        why = of.unclear.get(arrival.workload.key)
        if why != UNDECLARED or horizon.assumed is None or arrival.ran_seconds > horizon.assumed:
            return arrival
        return msgspec.structs.replace(arrival, run_seconds=horizon.assumed)

    state = scenario_state(list(given), of.arrivals)
    return course(state, map(assumed, of.arrivals), until=horizon.until)


def _difference_answer(
    found: WorkloadDifference, jobs: Mapping[str, str], now: float
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


def _stay_answer(
    stay: SimulatedWorkload | None, jobs: Mapping[str, str], now: float
) -> SimulatedTimes | None:
    if stay is None:
        return None
    stops = (
        StopAnswer(each.at - now, each.by, jobs.get(each.by, ""), each.reason)
        for each in stay.interruptions
    )
    start = None if stay.runs else stay.start
    first = "Runs" if stay.runs else "Unknown" if start is None else "Starts"
    restarts = stay.starts if stay.runs else stay.starts[1:]
    return SimulatedTimes(
        start="Never" if start == inf else first,
        seconds=None if start is None or start == inf else start - now,
        stops=tuple(stops),
        restarts=tuple(at - now for at in restarts),
        known_seconds=None if stay.known_until == inf else stay.known_until - now,
    )


def _show(answer: WhatIfAnswer, given: _Given) -> None:
    if given["output"] in {"json", "yaml"}:
        show_values(_shown(given, answer), given["output"])
        return
    if table := _table(given, answer):
        click.echo("\n".join(table))
    else:
        click.echo(_NOTHING, err=True)
    for line in left_out(answer):
        click.echo(line, err=True)


def _shown(given: _Given, answer: WhatIfAnswer) -> WhatIfAnswer:
    """Return an answer without workloads for which nothing changes, unless all are asked for."""
    shown = (
        each
        for each in answer.differences
        if given["everything"] or each.change not in {"Same", "Unknown"}
    )
    return msgspec.structs.replace(answer, differences=tuple(shown))


def _table(given: _Given, answer: WhatIfAnswer) -> list[str]:
    shown, wide = _shown(given, answer).differences, given["output"] == "wide"
    head = (*_HEAD, "WORKLOAD", "KNOWN FOR") if wide else _HEAD
    return table_lines(head, (tuple(_cells(each, wide=wide)) for each in shown)) if shown else []


def _lines(given: _Given, answer: WhatIfAnswer) -> Iterator[str]:
    yield from _table(given, answer) or [_NOTHING]
    yield from left_out(answer)


def _cells(each: DifferenceAnswer, *, wide: bool) -> Iterator[str]:
    yield from (each.namespace, each.job or f"Workload/{each.workload}", each.cluster_queue)
    yield from (start_text(each.before), start_text(each.after), change_text(each))
    if wide:
        known = [x.known_seconds for x in (each.before, each.after) if x is not None]
        least = min((seconds for seconds in known if seconds is not None), default=None)
        yield from (each.workload, "always" if least is None else duration(least))


async def submitted_objects(
    client: Client, objects: Iterable[dict[str, Json]], namespace: str
) -> list[dict[str, Json]]:
    """Return jobs as a cluster would store them: with the queue that its policies give them.

    Args:
        client: Asked for a dry run of their creation.
        objects: Manifests; those that are no jobs are returned as they are.
        namespace: Where those go that name none.

    Raises:
        ApiError: If the API server refuses one, or a policy does.
    """
    found = []
    for each in objects:
        resource = resource_of_job(each)
        if resource is None:
            found.append(each)
            continue
        new = as_new(each)
        within = value_at(new, ("metadata", "namespace"))
        try:
            stored = await client.create(
                resource, new, into=dict, namespace=str(within or namespace), dry_run=True
            )
        except NotFoundError as error:
            if await _serves(client, resource):
                raise  # there is no such namespace
            what = f"{resource.kind} of {resource.api_version}"
            hint = "install its CustomResourceDefinition, or ask about another kind of job"
            raise NotFoundError(f"the cluster serves no {what}", hint=hint) from error
        about = {"apiVersion": resource.api_version, "kind": resource.kind}
        found.append({**stored, **about})
    return found


async def _serves(client: Client, resource: Resource) -> bool:
    try:
        served = await client.served(resource.api_version)
    except NotFoundError:
        return False
    return any(each.kind == resource.kind for each in served)
