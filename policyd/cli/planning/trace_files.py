"""Files of traces: tables of jobs, and dumps of a Kubernetes cluster's jobs as they are."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, Literal

import click
import msgspec

from policyd.alloc.topology.values import PlacementRequest
from policyd.alloc.workload import QueuedPodSet
from policyd.api import kueue
from policyd.api.kueue.names import ADMITTED, FINISHED
from policyd.api.meta import Condition, Json, condition_true, find_condition
from policyd.api.names import RUN_FOR
from policyd.cli.formats.files import text_of
from policyd.cli.formats.report import count
from policyd.cli.formats.scenario_jobs import SkippedJobs, job_workloads
from policyd.cli.formats.scenarios import scenario_objects, scenario_workloads, seconds_of
from policyd.controller.watch.workload_values import WorkloadContext, workload_value
from policyd.engine.objects.workloads import value_at
from policyd.simulate.trace_columns import (
    Format,
    SkippedTraceJobs,
    TableLayout,
    format_of,
    read_jobs,
)
from policyd.simulate.traces import TracedJob, TraceError
from policyd.status.naming import Names

TraceFormat = Literal["auto", "csv", "sacct", "swf", "kubernetes"]

_ENDED: Final = frozenset({"Complete", "Completed", "Succeeded", "Failed", "Finished"})
"""Conditions, and states, of a job that has ended."""


def read_trace(file: str, form: TraceFormat, layout: TableLayout, resource: str) -> list[TracedJob]:
    """Read the jobs of a trace; say which are left out.

    Args:
        file: Its path; `-` for standard input.
        form: Its format, or `auto`.
        layout: How tables are read.
        resource: The resource of jobs that is counted, in dumps.

    Raises:
        TraceError: If it cannot be read, or has no job.
    """
    left_out = SkippedTraceJobs()
    name, content = ("", b"") if form == "kubernetes" else text_of(file)
    head = content[:4096].decode(errors="replace").lstrip("\ufeff \n").split("\n", 1)[0]
    if form == "kubernetes" or (form == "auto" and _is_dump(head)):
        jobs = list(_dumped(file, resource, left_out))
    else:
        try:
            lines = content.decode("utf-8-sig").splitlines()
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise TraceError(f"{name}:{line}: the text is not UTF-8") from error
        if content and not content.endswith(b"\n"):
            words = f"warning: {name}: the last line has no end: the file may have been cut off"
            click.secho(words, fg="yellow", err=True)
        known: Format = format_of(head) if form == "auto" else form
        jobs = list(read_jobs(lines, name, known, layout, left_out))
    for why, number in left_out.counts.items():
        words = f"warning: {count(number, 'job')} of the trace left out: {why}"
        click.secho(words, fg="yellow", err=True)
    if not jobs:
        raise TraceError(f"{name or file}: no job of the trace can be simulated")
    return jobs


def _is_dump(head: str) -> bool:
    """Tell whether a file that begins with a line has objects of Kubernetes."""
    return head.startswith(("{", "---", "#", "apiVersion:", "kind:", "items:", "metadata:"))


def _dumped(file: str, resource: str, left_out: SkippedTraceJobs) -> Iterator[TracedJob]:
    """Yield the jobs and Workloads among objects, as they ran."""
    objects = scenario_objects(file)
    skipped = SkippedJobs(Names(others="names", reader=""))
    workloads = list(scenario_workloads(objects))
    by_identity = {_identity(each): each for each in objects}
    for workload in (*workloads, *job_workloads(objects, workloads, skipped, past=True)):
        job = _past(workload, by_identity, resource, left_out)
        if job is not None:
            yield job
    for sentence in skipped.sentences:
        click.secho(f"warning: {sentence}", fg="yellow", err=True)


def _identity(given: Mapping[str, Json]) -> tuple[str, str, str]:
    namespace, name = (value_at(given, ("metadata", each)) for each in ("namespace", "name"))
    return str(given["kind"]), str(namespace or "default"), str(name)


def _past(
    workload: kueue.Workload,
    by_identity: Mapping[tuple[str, str, str], Mapping[str, Json]],
    resource: str,
    left_out: SkippedTraceJobs,
) -> TracedJob | None:
    """Return a workload as it ran; None if it is not known how long, or if it uses no GPU."""
    metadata = workload.metadata
    owners = [(each.kind, metadata.namespace, each.name) for each in metadata.owner_references]
    job = next((by_identity[each] for each in owners if each in by_identity), {})
    seconds = _seconds(workload, job)
    if seconds is None:
        left_out.note(f"they have not ended, and no annotation `{RUN_FOR}` says how long they run")
        return None
    pending = msgspec.structs.replace(workload, status=kueue.WorkloadStatus())
    value = workload_value(pending, WorkloadContext(now=0.0), cluster_queue="")
    gpus = sum(each.count * each.requests.get(resource, 0) for each in value.pod_sets)
    if not gpus:
        left_out.note(f"they request no {resource}")
        return None
    created = metadata.creation_timestamp or _time(value_at(job, ("metadata", "creationTimestamp")))
    limit = workload.spec.maximum_execution_time_seconds
    return TracedJob(
        key=metadata.key,
        at=0.0 if created is None else created.timestamp(),
        seconds=seconds,
        gpus=gpus,
        team=metadata.namespace,
        queue=workload.spec.queue_name,
        pod_sets=tuple(_placed(each) for each in value.pod_sets),
        priority=value.priority,
        limit=None if limit is None else float(limit),
    )


def _placed(pod_set: QueuedPodSet) -> QueuedPodSet:
    if pod_set.place is not None:
        return pod_set
    place = PlacementRequest(
        pod_set=pod_set.name, count=pod_set.count, requests=dict(pod_set.requests)
    )
    return msgspec.structs.replace(pod_set, place=place)


def _seconds(workload: kueue.Workload, job: Mapping[str, Json]) -> float | None:
    """Return how long it ran from its start to its end, or what an annotation says."""
    text = workload.metadata.annotations.get(RUN_FOR)
    if text is not None:
        return seconds_of(text)
    conditions = workload.status.conditions
    if condition_true(conditions, FINISHED):
        start, end = (_since(find_condition(conditions, each)) for each in (ADMITTED, FINISHED))
    else:
        start, end = _time(value_at(job, ("status", "startTime"))), _end(job)
    return None if start is None or end is None else max(0.0, (end - start).total_seconds())


def _since(condition: Condition | None) -> datetime | None:
    return None if condition is None else condition.last_transition_time


def _end(job: Mapping[str, Json]) -> datetime | None:
    """Return when a job of any kind ended; None if it has not."""
    for name in ("completionTime", "endTime"):
        if (end := _time(value_at(job, ("status", name)))) is not None:
            return end
    conditions = value_at(job, ("status", "conditions"))
    for each in conditions if isinstance(conditions, Iterable) else ():
        if isinstance(each, dict) and each.get("type") in _ENDED and each.get("status") == "True":
            return _time(each.get("lastTransitionTime"))
    return None


def _time(text: object) -> datetime | None:
    try:
        return msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        return None
