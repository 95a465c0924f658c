"""`policyd job`: show everything about one job."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Unpack

import click

from policyd.alloc.value import Value
from policyd.api.kueue import Workload
from policyd.cli.questions.asking import SHARED, Asking, Question, amounts_text, show
from policyd.cli.questions.why import field_line, kind_and_name, why, why_lines, why_of_file
from policyd.clock import SystemClock
from policyd.jobs.places import belongs_to
from policyd.jobs.pods import QueuedPod, group_name
from policyd.kube.client import PartialObject, Reader
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.pages import pages
from policyd.kube.resources import PODS, WORKLOADS
from policyd.questions.found_jobs import AskedJob
from policyd.snapshot.answers import WhyAnswer
from policyd.snapshot.values import QueueSnapshot
from policyd.status.ages import duration
from policyd.status.shortages import and_others
from policyd.workload.records import (
    ConditionRecord,
    PodSetRecord,
    WorkloadRecord,
    check_records,
    condition_records,
    pod_set_records,
    preemptor_of,
    preemptor_path,
    preemptor_text,
    record_of,
)

MOST_NODES = 20
"""Nodes that are named to people; programs get all."""


class PodsOnNode(Value, frozen=True, rename="camel"):
    """How many pods of a job are on a node ("" if on none yet), by their phase."""

    node: str
    phase: str
    pods: int


class JobAnswer(Value, frozen=True, rename="camel"):
    """A job, as `why` answers for it, and what its Workload and pods say.

    Attributes:
        why: Its place, or what it does.
        record: Its times, waits and evictions; None if it has no Workload.
        pod_sets: What it asks for, and got.
        pods: Where its pods are; None if they cannot be listed.
        preempted_by: Who preempted it last: `namespace/name` of a Workload, or as much as is known.
        left_out: What could not be found out, and why.
    """

    why: WhyAnswer
    record: WorkloadRecord | None = None
    pod_sets: tuple[PodSetRecord, ...] = ()
    pods: tuple[PodsOnNode, ...] | None = None
    conditions: tuple[ConditionRecord, ...] = ()
    checks: tuple[ConditionRecord, ...] = ()
    preempted_by: str = ""
    left_out: tuple[str, ...] = ()


@click.command("job")
@click.argument("job", metavar="KIND/NAME")
@SHARED
def command(job: str, **given: Unpack[Asking]) -> None:
    r"""Show everything about one job: its place, requests, flavors, nodes, times and conditions.

    KIND is a kind of job, such as job, jobset or rayjob, or pod, podgroup or workload, as for
    `policyd why`. The Workload and the pods of the job are read with the rights of the user.

    Of a snapshot that was kept, only the place and the reason are shown.

    Exits with 0, or 2 if there is no such job or the cluster cannot be asked.

    \b
    Examples:
      policyd job job/train
      policyd job workload/job-train-5f3a2 -n team-a -o wide
      policyd job job/train -o json | jq .record.times
    """
    kind, name = kind_and_name(job)
    show(
        given,
        Question(
            of_cluster=partial(_of_cluster, kind, name),
            of_file=partial(_of_file, AskedJob(kind, given["namespace"] or "default", name)),
            lines=partial(job_lines, wide=given["output"] == "wide"),
            version=_version,
        ),
    )


def _version(answer: JobAnswer) -> object:
    """Return what is another when a job has changed: the seconds that it waited are not."""
    return answer.why, answer.pods, answer.conditions, answer.checks


def _of_file(subject: AskedJob, snapshot: QueueSnapshot) -> JobAnswer:
    missing = "a snapshot has no times, conditions, pod sets and nodes of a job"
    return JobAnswer(why=why_of_file(subject, snapshot), left_out=(missing,))


async def _of_cluster(kind: str, name: str, reader: Reader, namespace: str) -> JobAnswer:
    return await job_answer(reader, AskedJob(kind, namespace, name))


async def job_answer(reader: Reader, subject: AskedJob) -> JobAnswer:
    """Return everything about a job that its user may know.

    Raises:
        JobNotFoundError: If there is no such job.
        ApiError: If the API server refuses, or does not answer.
    """
    answer = JobAnswer(why=await why(reader, subject))
    namespace, name = answer.why.namespace, answer.why.workload
    if not name:
        return answer
    try:
        workload = await reader.get(WORKLOADS, name, namespace=namespace, into=Workload)
    except NotFoundError:
        return _without(answer, f"Workload {name} was deleted meanwhile")
    except ForbiddenError as error:
        return _without(answer, f"times, conditions and pod sets: {error}")
    pods, left_out = await _pods(reader, workload)
    return JobAnswer(
        why=answer.why,
        record=record_of(workload, now=SystemClock().now()),
        pod_sets=tuple(pod_set_records(workload)),
        pods=pods,
        conditions=tuple(condition_records(workload)),
        checks=tuple(check_records(workload)),
        preempted_by=await _preemptor(reader, workload),
        left_out=left_out,
    )


def _without(answer: JobAnswer, missing: str) -> JobAnswer:
    return JobAnswer(why=answer.why, left_out=(missing,))


async def _pods(
    reader: Reader, workload: Workload
) -> tuple[tuple[PodsOnNode, ...] | None, tuple[str, ...]]:
    """Return where the pods of a Workload are, and what could not be found out."""
    found: Counter[tuple[str, str]] = Counter()
    try:
        async for page in pages(
            reader, PODS, into=QueuedPod, namespace=workload.metadata.namespace
        ):
            for pod in page.items:
                if _is_of(pod, workload):
                    found[pod.spec.node_name, pod.status.phase] += 1
    except ForbiddenError as error:
        return None, (f"nodes of pods: {error}",)
    return tuple(PodsOnNode(*place, count) for place, count in sorted(found.items())), ()


def _is_of(pod: QueuedPod, workload: Workload) -> bool:
    """Tell whether a pod is of a Workload: itself, of its job, of its group, or as it says."""
    owners = {owner.uid for owner in workload.metadata.owner_references}
    mine = {pod.metadata.uid, *(owner.uid for owner in pod.metadata.owner_references)}
    grouped = group_name(pod.metadata) == workload.metadata.name
    return bool(owners & mine) or grouped or belongs_to(pod, workload)


async def _preemptor(reader: Reader, workload: Workload) -> str:
    """Return for which Workload another was preempted last; its queue, if it cannot be seen."""
    uid = preemptor_of(workload)
    if not uid:
        return ""
    namespace = workload.metadata.namespace
    async for page in pages(reader, WORKLOADS, into=PartialObject, namespace=namespace):
        for each in page.items:
            if each.metadata.uid == uid:
                return each.metadata.key
    return preemptor_text(preemptor_path(workload))


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
    yield (
        "pods",
        _named(
            f"{each.pods} {each.phase.lower()} on {each.node or 'no node'}"
            for each in answer.pods or ()
        ),
    )
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
