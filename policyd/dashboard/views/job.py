"""One job, as it is shown: its state, its time line, its pods and what was set in it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from policyd.patch.operations import steps
from policyd.patch.recorded import FieldOrigin, ObjectOrigins
from policyd.snapshot.starting import start_sentence
from policyd.status.ages import age, duration, seconds_of
from policyd.status.quantities import amounts_text
from policyd.workload.job_answer import JobAnswer
from policyd.workload.pod_obstacles import obstacle_text
from policyd.workload.records import ConditionRecord, PodSetRecord
from policyd.workload.timeline import Step, TimelineEvent, TimelineMoment, timeline

MOST_NODES: Final = 100
"""Nodes that are listed; the others are counted."""

_STEPS: Final[Mapping[Step, str]] = {
    "created": "Created",
    "gated": "Gated",
    "waiting": "Waiting",
    "reserved": "Quota reserved",
    "admitted": "Admitted",
    "ready": "Pods ready",
    "preempted": "Preempted",
    "evicted": "Evicted",
    "finished": "Finished",
    "other": "",
}
_TAGS: Final[Mapping[str, str]] = {
    "Pending": "",
    "QuotaReserved": "admitted",
    "Admitted": "admitted",
    "Stopping": "evicted",
    "Finished": "finished",
    "Inactive": "warn",
    "NotQueued": "warn",
}


class ReadJob(NamedTuple):
    """What is read of a job.

    Attributes:
        answer: What `policyd job` says.
        events: Those of the job and its Workload.
        origins: The writers of its fields; None if they are unknown.
        unknown: What could not be found out, and why.
    """

    answer: JobAnswer
    events: tuple[TimelineEvent, ...] = ()
    origins: ObjectOrigins | None = None
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """A moment of the time line.

    Attributes:
        at: Seconds since the epoch.
        after: How long after the first moment.
        title: What happened.
        step: The step, as the style sheet knows it.
        reason: Word for programs.
        message: A sentence.
        warning: Whether it tells of a problem.
        times: How often it was seen.
    """

    at: float
    after: str
    title: str
    step: str
    reason: str
    message: str
    warning: bool
    times: int


@dataclass(frozen=True, slots=True)
class PlaceRow:
    """How many pods of a job are where."""

    place: str
    pods: int
    phase: str = ""


@dataclass(frozen=True, slots=True)
class PodSetRow:
    """A pod set."""

    name: str
    pods: str
    requests: str
    flavors: str
    topology: str
    places: tuple[PlaceRow, ...]
    more: int


@dataclass(frozen=True, slots=True)
class FieldRow:
    """A field that the job's writer did not send."""

    path: str
    value: str
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """What the view shows."""

    kind: str
    namespace: str
    name: str
    state: str
    tag: str
    message: str
    facts: tuple[tuple[str, str], ...]
    moments: tuple[TimelineRow, ...]
    pods: tuple[PlaceRow, ...] | None
    more_pods: int
    pod_sets: tuple[PodSetRow, ...]
    fields: tuple[FieldRow, ...] | None
    more_fields: int
    not_there: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]
    queue: str
    cluster: str
    placed: bool


def job_view(read: ReadJob, query: Mapping[str, str], now: float) -> JobPage:
    """Return what the view shows of a job."""
    del query
    answer, why = read.answer, read.answer.why
    pods = None if answer.pods is None else [*_pods(answer)]
    origins = read.origins
    return JobPage(
        kind=why.kind,
        namespace=why.namespace,
        name=why.name,
        state=why.state,
        tag=_TAGS.get(why.state, ""),
        message=why.message,
        facts=tuple((name, text) for name, text in _facts(answer, now) if text),
        moments=tuple(_rows(read)),
        pods=None if pods is None else tuple(pods[:MOST_NODES]),
        more_pods=max(0, len(pods or ()) - MOST_NODES),
        pod_sets=tuple(map(_pod_set, answer.pod_sets)),
        fields=None if origins is None else tuple(map(field_row, origins.fields)),
        more_fields=0 if origins is None else origins.more,
        not_there=() if origins is None else tuple(_not_there(origins)),
        unknown=(*answer.left_out, *why.left_out, *read.unknown),
        queue=why.cluster_queue,
        cluster="" if answer.record is None else answer.record.cluster,
        placed=any(each.node for each in answer.pods or ()),
    )


def _facts(answer: JobAnswer, now: float) -> Iterator[tuple[str, str]]:
    why, record = answer.why, answer.record
    yield from (("Because", part) for part in why.parts)
    yield "LocalQueue", why.local_queue
    yield "ClusterQueue", why.cluster_queue
    if why.ahead is not None:
        yield "Ahead of it", _ahead(why.ahead, why.behind)
    yield from (("Pods", obstacle_text(each, now)) for each in why.obstacles)
    yield "Forecast", start_sentence(why.forecast, now)
    yield "You can", why.user
    yield "Administrators can", why.administrator
    if why.requests:
        yield ("Requests" if why.state == "Pending" else "Holds"), amounts_text(why.requests)
    if why.held:
        yield "Holds", f"{amounts_text(why.held)}, by another of its Workloads"
    if record is not None:
        yield "Owner", record.owner
        yield "Priority", f"{record.priority} ({record.priority_class or 'no class'})"
        yield "Waited", duration(record.times.waited_seconds)
        ran = record.times.ran_seconds
        yield "Ran", "" if ran is None else duration(ran)
        yield "Evictions", ", ".join(f"{times} {name}" for name, times in record.evictions.items())
        yield "Cluster", record.cluster
        yield "May go to", ", ".join(record.nominated_clusters)
    yield "Preempted by", answer.preempted_by
    for check in answer.checks:
        yield f"Check {check.type}", _checked(check)
    if why.since is not None and record is None:
        yield "Since", f"{age(why.since, now)} ago"


def _ahead(ahead: int, behind: str) -> str:
    if not ahead:
        return "none: it is the first in line"
    return f"{ahead} in the ClusterQueue" + (f"; {behind} is decided about first" if behind else "")


def _checked(check: ConditionRecord) -> str:
    return f"{check.status}: {check.message}" if check.message else check.status


def _rows(read: ReadJob) -> Iterator[TimelineRow]:
    record = read.answer.record
    created = None if record is None or record.times.created is None else record.times.created
    moments = timeline(
        read.answer.conditions,
        read.events,
        created=None if created is None else seconds_of(created),
    )
    for each in moments:
        yield TimelineRow(
            at=each.at,
            after=duration(max(0.0, each.at - moments[0].at)),
            title=_STEPS[each.step] or each.reason,
            step=each.step,
            reason=each.reason,
            message=_message(each, read.answer.preempted_by),
            warning=each.warning,
            times=each.times,
        )


def _message(moment: TimelineMoment, preemptor: str) -> str:
    named = moment.reason == "Preempted" and preemptor
    return f"{moment.message} (for {preemptor})" if named else moment.message


def _pods(answer: JobAnswer) -> Iterator[PlaceRow]:
    for each in answer.pods or ():
        yield PlaceRow(each.node, each.pods, each.phase)


def _pod_set(record: PodSetRecord) -> PodSetRow:
    fewer = record.admitted is not None and record.admitted != record.count
    places = [PlaceRow(name, pods) for name, pods in record.domains.items()]
    return PodSetRow(
        name=record.name,
        pods=f"{record.admitted} of {record.count}" if fewer else str(record.count),
        requests=amounts_text(record.requests),
        flavors=", ".join(sorted({*record.flavors.values()})),
        topology=record.topology,
        places=tuple(places[:MOST_NODES]),
        more=max(0, len(places) - MOST_NODES),
    )


def field_row(origin: FieldOrigin) -> FieldRow:
    """Return how a field is shown that was not sent."""
    by = ", ".join(origin.policies) or "the API server, or an unknown policy"
    if origin.manager:
        by = "policyd's controller, as it started the job"
    return FieldRow(_field_text(origin.path), origin.value, by)


def _field_text(path: str) -> str:
    """Write a JSON pointer as people do; names with dots in quotes."""
    text = ""
    for step in steps(path):
        if step.isdecimal():
            text += f"[{step}]"
        elif step.isidentifier():
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text


def _not_there(origins: ObjectOrigins) -> Iterator[tuple[str, str]]:
    for policy, paths in sorted(origins.not_there.items()):
        more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
        yield policy, f"{', '.join(map(_field_text, paths[:3]))}{more}"
