"""`policyd import`: running pods and jobs come under queues, without a restart."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Unpack

import click
import msgspec

from policyd.api.kueue import ClusterQueue
from policyd.api.meta import Json
from policyd.api.names import is_subdomain
from policyd.api.pod_requests import amount
from policyd.cli.clusters import connection_for
from policyd.cli.formats.json_values import as_json
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import count, show_all
from policyd.cli.formats.tables import show_table
from policyd.cli.importing.planning import PlannedImport, QueuesAsTheyAre, planned
from policyd.cli.importing.reading import (
    IMPORTABLE,
    ImportSearch,
    RunningJobs,
    read_jobs,
    read_namespaces,
    read_pods,
)
from policyd.cli.importing.rules import ImportRuleSet, read_rules, rules_from_options
from policyd.cli.importing.writing import NotImportedError, import_job
from policyd.cli.options import CONTEXT, KUBECONFIG, TEXT_OR_JSON, ContextOptions
from policyd.clock import SystemClock
from policyd.controller.watch.mirrors import open_mirrors
from policyd.jobs.kinds.registry import KINDS
from policyd.kube import resources as r
from policyd.kube.client import Client
from policyd.kube.errors import ApiError, ForbiddenError
from policyd.kube.http_client import HttpClient
from policyd.kube.pace import Pace
from policyd.process import StoppedError, run, unless_stopped
from policyd.program import FINDINGS, INTERRUPTED, USAGE
from policyd.questions.queue_objects import (
    configuration_of,
    listed_if_served,
    queue_objects,
    request_objects,
)
from policyd.standard_input import FILE
from policyd.status.quantities import format_amount

_AT_A_TIME: Final = 8
"""Jobs that are written at a time."""

State = Literal["imported", "planned", "left"]


class ImportLine(msgspec.Struct, frozen=True):
    """What became of a job.

    Attributes:
        kind: Its kind.
        namespace: Its namespace.
        name: Its name.
        state: Whether it was imported, would be, or is left.
        rule: The rule that matches it.
        local_queue: Its LocalQueue.
        cluster_queue: The ClusterQueue that its quota is of.
        flavors: The flavors of its quota.
        requests: Its quota, by resource.
        priority: Its priority.
        over_quota: What exceeds the quota of the queue; "" if nothing does.
        reason: Why it is left; "" if it is not.
        hint: What can be done about that.
    """

    kind: str
    namespace: str
    name: str
    state: State
    rule: str
    local_queue: str
    cluster_queue: str
    flavors: list[str]
    requests: dict[str, str]
    priority: int
    over_quota: str = ""
    reason: str = ""
    hint: str = ""


@dataclass(slots=True)
class ImportAnswer:
    """What the command has done, or would do."""

    applied: bool
    lines: list[ImportLine] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    warnings: list[str] = field(default_factory=list)
    stopped: bool = False

    @property
    def left(self) -> list[ImportLine]:
        """The jobs that are left."""
        return [each for each in self.lines if each.state == "left"]

    @property
    def taken(self) -> list[ImportLine]:
        """The jobs that are imported, or would be."""
        return [each for each in self.lines if each.state != "left"]


class _Given(ContextOptions):
    """The arguments of the command."""

    rules: str | None
    queue_label: str
    mapping: tuple[str, ...]
    namespaces: tuple[str, ...]
    over_quota: bool
    apply: bool
    output: Literal["text", "json"]


@click.command("import")
@click.option("--rules", type=FILE, metavar="FILE", help="Rules: which jobs, and which queue.")
@click.option(
    "--queue-label", default="", metavar="KEY", help="The label of jobs that names their queue."
)
@click.option(
    "--queue-mapping",
    "mapping",
    multiple=True,
    metavar="VALUE=QUEUE",
    help="The LocalQueue for a value of --queue-label; may be repeated.",
)
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    help="Only this namespace; may be repeated.  [all namespaces]",
)
@click.option(
    "--over-quota", is_flag=True, help="Also import jobs that do not fit in the quota of the queue."
)
@click.option("--apply", is_flag=True, help="Import the jobs; without it, only show the plan.")
@KUBECONFIG
@CONTEXT
@TEXT_OR_JSON
def command(**given: Unpack[_Given]) -> None:
    r"""Bring running jobs and pods under queues, without a restart.

    Jobs, JobSets and other kinds of jobs, plain pods and groups of pods that run and name no
    queue are matched with the rules. For each, the command creates a Workload that has its quota
    already, and then writes the label of the queue. The flavors are those of the nodes on which
    the pods run. Jobs that do not fit in the quota, and those that cannot be imported, are listed
    with the reason and left as they are.

    Without --apply, nothing is written. The command can be stopped and run again at any time: it
    continues with the jobs that are left.

    A rule has `match` (kinds, namespaces, namespaceSelector, selector, priorityClasses, and
    condition, in CEL on `object` and `namespaceObject`), and `queue: NAME`, `queueLabel: KEY` or
    `skip: true`. The first rule that matches counts. --queue-label is a rule by itself.

    The user needs the rights to read the jobs and queues, to create Workloads, to patch
    workloads/status, and to patch the jobs. Who may not write workloads/status cannot import.

    Exits with 0 if all matching jobs are imported, or would be; 1 if some are left; 2 if the rules
    are wrong, or the API server refuses; 130 if it is stopped.

    \b
    Examples:
      policyd import --rules rules.yaml
      policyd import --rules rules.yaml -n team-a --apply
      policyd import --queue-label team --queue-mapping research=team-a --apply
    """
    rules = _rules(given)
    for name in given["namespaces"]:
        if not is_subdomain(name):
            raise click.UsageError(f"`{name}` is not the name of a namespace")
    codes: list[int] = []

    async def main(stop: asyncio.Event) -> None:
        connection = connection_for(given)
        async with HttpClient(connection) as client:
            answer = await _answer(client, rules, given, stop)
        _show(answer, given["output"])
        code = INTERRUPTED if answer.stopped else FINDINGS if answer.left else 0
        codes.append(code)

    run(main)
    sys.exit(codes[0])


def _rules(given: _Given) -> ImportRuleSet:
    if bool(given["rules"]) == bool(given["queue_label"]):
        raise click.UsageError("give either --rules or --queue-label")
    if given["mapping"] and not given["queue_label"]:
        raise click.UsageError("--queue-mapping needs --queue-label")
    if not given["rules"]:
        return rules_from_options(given["queue_label"], given["mapping"])
    found, findings = read_rules(given["rules"], IMPORTABLE)
    show_all(findings)
    if found is None:
        sys.exit(USAGE)
    return found


async def _answer(
    client: Client, rules: ImportRuleSet, given: _Given, stop: asyncio.Event
) -> ImportAnswer:
    answer = ImportAnswer(applied=given["apply"])
    try:
        plan = await unless_stopped(stop, _plan(client, rules, given, answer))
    except StoppedError:
        answer.stopped = True
        return answer
    if given["apply"]:
        await _apply(client, *plan, answer, stop)
    else:
        answer.lines = [_line(each, "left" if each.left else "planned") for each in plan[0]]
    return answer


async def _plan(
    client: Client, rules: ImportRuleSet, given: _Given, answer: ImportAnswer
) -> tuple[list[PlannedImport], QueuesAsTheyAre]:
    """Read the cluster, and plan what becomes of each job."""
    labels = await _namespaces(client, answer)
    if labels:
        missing = (each for each in given["namespaces"] if each not in labels)
        answer.warnings += (f"namespace `{each}` doesn't exist" for each in missing)
    search, found = ImportSearch(rules, given["namespaces"], labels), RunningJobs()
    for kind in progress((*KINDS, None), "reading", total=len(KINDS) + 1):
        if kind is None:
            await read_pods(client, search, found)
        else:
            await read_jobs(client, kind, search, found)
    queues = await _queues(client, labels, answer)
    answer.skipped = found.skipped
    found_plans = planned(
        found.candidates, queues, found.places_of(), over_quota=given["over_quota"]
    )
    plans = []
    for each in progress(found_plans, "planning", total=len(found.candidates)):
        plans.append(each)
        await asyncio.sleep(0)  # a signal is noticed between two jobs
    return plans, queues


async def _namespaces(client: Client, answer: ImportAnswer) -> dict[str, Json]:
    try:
        return await read_namespaces(client)
    except ForbiddenError as error:
        answer.warnings.append(f"{error}: rules cannot select by labels of namespaces")
        return {}


async def _queues(
    client: Client, namespaces: dict[str, Json], answer: ImportAnswer
) -> QueuesAsTheyAre:
    missing = answer.warnings.append
    objects = await queue_objects(client, missing, nodes=True)
    objects += await configuration_of(client, missing)
    objects += await request_objects(client, objects, missing)
    for resource in (r.LIMIT_RANGES, r.RUNTIME_CLASSES):
        try:
            objects += await listed_if_served(client, resource)
        except ForbiddenError as error:
            missing(f"{error}: defaults of pods are not counted")
    mirrors = open_mirrors(client, Pace())
    now = SystemClock().now()
    return QueuesAsTheyAre(objects, mirrors, namespaces=namespaces, now=now)


async def _apply(
    client: Client,
    plans: Sequence[PlannedImport],
    queues: QueuesAsTheyAre,
    answer: ImportAnswer,
    stop: asyncio.Event,
) -> None:
    """Import the jobs, several at a time; a job that was begun is finished."""
    answer.lines = [_line(each, "left") for each in plans if each.left]
    wanted, before = [each for each in plans if not each.left], len(answer.lines)

    def done() -> int:
        return len(answer.lines) - before

    for some in progress(_batches(wanted), "importing", len(wanted), done):
        if stop.is_set():
            answer.stopped = True
            break
        work = (_import(client, each, queues.cluster_queues) for each in some)
        answer.lines += await asyncio.gather(*work)


def _batches(plans: Sequence[PlannedImport]) -> Iterator[Sequence[PlannedImport]]:
    for start in range(0, len(plans), _AT_A_TIME):
        yield plans[start : start + _AT_A_TIME]


async def _import(
    client: Client, plan: PlannedImport, queues: dict[str, ClusterQueue]
) -> ImportLine:
    try:
        await import_job(client, plan, queues[plan.cluster_queue], now=SystemClock().now())
    except (ApiError, NotImportedError) as error:
        return _line(plan._replace(left=str(error), hint=error.hint or ""), "left")
    return _line(plan, "imported")


def _line(plan: PlannedImport, state: State) -> ImportLine:
    candidate, workload = plan.candidate, plan.workload
    admission = None if workload is None else workload.status.admission
    total: Counter[str] = Counter()
    for each in () if admission is None else admission.pod_set_assignments:
        for resource, quantity in each.resource_usage.items():
            total[resource] += amount(resource, str(quantity))
    return ImportLine(
        kind=candidate.kind,
        namespace=candidate.metadata.namespace,
        name=candidate.name,
        state=state,
        rule="" if candidate.rule is None else candidate.rule.name,
        local_queue=candidate.queue,
        cluster_queue=plan.cluster_queue,
        flavors=plan.flavors,
        requests={name: format_amount(name, number) for name, number in sorted(total.items())},
        priority=0 if workload is None else workload.spec.priority or 0,
        over_quota=plan.over,
        reason=plan.left,
        hint=plan.hint,
    )


def _show(answer: ImportAnswer, output: str) -> None:
    for warning in answer.warnings:
        click.secho(f"warning: {warning}", fg="yellow", err=True)
    if output == "json":
        value = {
            "applied": answer.applied,
            "stopped": answer.stopped,
            "jobs": as_json(answer.lines),
            "skipped": [{"reason": why, "objects": n} for why, n in sorted(answer.skipped.items())],
        }
        click.echo(json.dumps(value, indent=2))
    else:
        _show_tables(answer)
    _sum_up(answer)


def _show_tables(answer: ImportAnswer) -> None:
    if answer.taken:
        show_table(
            ["JOB", "RULE", "LOCALQUEUE", "CLUSTERQUEUE", "FLAVORS", "PRIORITY", "QUOTA"],
            (
                (
                    f"{each.kind} {each.namespace}/{each.name}",
                    each.rule,
                    each.local_queue,
                    each.cluster_queue,
                    ", ".join(each.flavors),
                    str(each.priority),
                    ", ".join(f"{n} {q}" for n, q in each.requests.items())
                    + (" (over quota)" if each.over_quota else ""),
                )
                for each in answer.taken
            ),
            numbers=["PRIORITY"],
        )
    if answer.left:
        if answer.taken:
            click.echo()
        rows = (
            (
                f"{each.kind} {each.namespace}/{each.name}",
                each.local_queue,
                each.reason + (f"; {each.hint}" if each.hint else ""),
            )
            for each in answer.left
        )
        show_table(["LEFT", "LOCALQUEUE", "REASON"], rows)


def _sum_up(answer: ImportAnswer) -> None:
    for why, number in sorted(answer.skipped.items()):
        click.echo(f"{count(number, 'object')} left alone: {why}", err=True)
    left = f", {len(answer.left)} left" if answer.left else ""
    if answer.applied:
        click.echo(f"{count(len(answer.taken), 'job')} imported{left}", err=True)
    else:
        words = f"{count(len(answer.taken), 'job')} would be imported{left}"
        also = "; --apply imports them" if answer.taken else ""
        click.echo(f"{words}{also}", err=True)
    if answer.stopped:
        click.echo("stopped: run the command again to continue", err=True)
