"""`policyd job`: show everything about one job."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Unpack

import click

from policyd.cli.questions.question import SHARED, Question, QuestionOptions, show
from policyd.cli.questions.why import (
    field_line,
    kind_and_name,
    snapshot_for,
    why_lines,
    why_of_file,
    with_kind,
)
from policyd.clock import SystemClock
from policyd.kube.client import Reader
from policyd.questions.job import job_answer
from policyd.questions.unqueued_jobs import JobQuery
from policyd.snapshot.values import QueueSnapshot
from policyd.status.ages import duration
from policyd.status.quantities import amounts_text
from policyd.status.shortages import and_others
from policyd.workload.job_answer import JobAnswer, PodsOnNode
from policyd.workload.records import ConditionRecord, PodSetRecord, WorkloadRecord

MOST_NODES = 20
"""Nodes that are named to people; programs get all."""


@click.command("job")
@click.argument("job", metavar="[KIND/]NAME")
@SHARED
def command(job: str, **given: Unpack[QuestionOptions]) -> None:
    r"""Show all details of a job: position, requests, flavors, nodes, times and conditions.

    KIND is a kind of job, such as job, jobset or rayjob, or pod, podgroup or workload, and can be
    left out, as for `policyd why`. The command reads the Workload and the pods of the job with
    the permissions of the user.

    With --snapshot, only the position and the reason are shown.

    Exits with 0, or 2 if there is no such job or the cluster cannot be asked.

    \b
    Examples:
      policyd job train
      policyd job workload/job-train-5f3a2 -n team-a -o wide
      policyd job job/train -o json | jq .record.times
    """
    kind, name = kind_and_name(job)
    show(
        given,
        Question(
            of_cluster=partial(_of_cluster, kind, name),
            of_file=partial(_of_file, JobQuery(kind, given["namespace"] or "default", name)),
            lines=partial(job_lines, wide=given["output"] == "wide"),
            version=_version,
        ),
    )


def _version(answer: JobAnswer) -> object:
    """Return what is another when a job has changed: the seconds that it waited are not."""
    return answer.why, answer.pods, answer.conditions, answer.checks


def _of_file(subject: JobQuery, snapshot: QueueSnapshot) -> JobAnswer:
    missing = "a snapshot has no times, conditions, pod sets and nodes of a job"
    return JobAnswer(why=why_of_file(subject, snapshot), left_out=(missing,))


async def _of_cluster(kind: str, name: str, reader: Reader, namespace: str) -> JobAnswer:
    snapshot = await snapshot_for(reader, namespace)
    subject = with_kind(JobQuery(kind, namespace, name), snapshot)
    return await job_answer(reader, subject, snapshot, now=SystemClock().now())


def job_lines(answer: JobAnswer, *, wide: bool) -> Iterator[str]:
    """Yield an answer as people read it."""
    yield from why_lines(answer.why, wide=wide)
    for name, text in _fields(answer, wide=wide):
        if text:
            yield field_line(name, text)


def _fields(answer: JobAnswer, *, wide: bool) -> Iterator[tuple[str, str]]:
    record = answer.record
    if record is not None:
        yield from _of_record(record)
        yield "preempted by", answer.preempted_by
    for each in answer.pod_sets:
        yield "pod set", _pod_set(each)
        yield "  nodes", _named(f"{place} ({pods})" for place, pods in each.domains.items())
    yield "pods", _named(map(_on_node, answer.pods or ()))
    for check in answer.checks:
        yield "check", f"{check.type}: {check.status}{_because(check)}"
    for condition in answer.conditions:
        if wide or condition.status == "True":
            yield "condition", f"{condition.type}={condition.status}{_because(condition)}"
    yield from (("not known", each) for each in answer.left_out)


def _on_node(each: PodsOnNode) -> str:
    return f"{each.pods} {each.phase.lower()} on {each.node or 'no node'}"


def _of_record(record: WorkloadRecord) -> Iterator[tuple[str, str]]:
    times = record.times
    yield "owner", record.owner
    yield "priority", f"{record.priority} ({record.priority_class or 'no class'})"
    yield "created", times.created or ""
    yield "quota since", times.reserved or ""
    yield "admitted", times.admitted or ""
    yield "pods ready", times.ready or ""
    yield "finished", times.finished or ""
    yield "waited", duration(times.waited_seconds)
    yield "ran", "" if times.ran_seconds is None else duration(times.ran_seconds)
    yield "evictions", ", ".join(f"{count} {name}" for name, count in record.evictions.items())
    yield "cluster", record.cluster
    yield "may go to", ", ".join(record.nominated_clusters)


def _pod_set(each: PodSetRecord) -> str:
    fewer = each.admitted is not None and each.admitted != each.count
    count = f"{each.admitted} of {each.count}" if fewer else str(each.count)
    parts = (f"each {amounts_text(each.requests)}", _flavors(each.flavors), each.topology)
    pods = "pod" if each.count == 1 else "pods"
    return "; ".join((f"{each.name}: {count} {pods}", *filter(None, parts)))


def _flavors(flavors: Mapping[str, str]) -> str:
    """Name the flavors of resources: one alone, if all have the same."""
    if len({*flavors.values()}) == 1:
        return f"flavor {next(iter(flavors.values()))}"
    return ", ".join(f"{name} of {flavor}" for name, flavor in sorted(flavors.items()))


def _named(names: Iterable[str]) -> str:
    """Name some places, and say how many others there are."""
    found = list(names)
    return ", ".join(found[:MOST_NODES]) + and_others(len(found[MOST_NODES:]))


def _because(each: ConditionRecord) -> str:
    since = f" since {each.since}" if each.since else ""
    reason = f", {each.reason}" if each.reason else ""
    return f"{since}{reason}{f': {each.message}' if each.message else ''}"
