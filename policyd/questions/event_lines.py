"""Events about queues, as one story: those of Workloads and of their jobs, in the order of time."""

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Final, NamedTuple

import msgspec

from policyd.api.kueue import LocalQueue
from policyd.api.meta import ObjectMeta, Wire, rfc3339
from policyd.jobs.pods import group_name
from policyd.kube.client import Reader
from policyd.kube.pages import pages
from policyd.kube.resources import EVENTS, LOCAL_QUEUES, WORKLOADS
from policyd.questions.core_events import CoreEvent, plain_kind
from policyd.questions.known_names import QUEUE, NameFilter, require
from policyd.questions.unqueued_jobs import POD_GROUP, JobQuery, owners
from policyd.workload.records import job_of

SAME_SECONDS: Final = 5.0
"""Between the events of a Workload and of its job that say the same of one moment."""


class EventLine(msgspec.Struct, frozen=True, rename="camel"):
    """Something that happened.

    Attributes:
        time: When it was last seen.
        type: Normal or Warning.
        reason: Word for programs.
        namespace: Of the object; "" for a ClusterQueue.
        object: `Kind/name` of what it is about; of a Workload whose job is known, that of the job.
        workload: The Workload, if it is about one.
        count: How often it was seen.
        message: A sentence.
    """

    time: str
    type: str
    reason: str
    namespace: str
    object: str
    workload: str
    count: int
    message: str


class _QueueOf(Wire, frozen=True):
    queue_name: str = ""


class KnownWorkload(Wire, frozen=True):
    """The parts of a Workload that say whose it is."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _QueueOf = _QueueOf()

    @property
    def job(self) -> str:
        """`Kind/name` of the job that it stands for; "" if it stands for itself."""
        return job_of(self.metadata)


class EventScope(NamedTuple):
    """Which events are asked for.

    Attributes:
        namespace: Whose; "" for all.
        job: Those of this job; None for all.
        queue: Those of this LocalQueue or ClusterQueue, and of its workloads; "" for all.
    """

    namespace: str
    job: JobQuery | None = None
    queue: str = ""


async def queue_events(reader: Reader, scope: EventScope) -> list[EventLine]:
    """Return the events about queues, the latest last.

    Raises:
        JobNotFoundError: If there is no such job.
        UnknownNameError: If there is no such queue.
        ApiError: If the API server refuses, or does not answer.
    """
    namespace = scope.namespace
    workloads = [
        each
        async for page in pages(reader, WORKLOADS, into=KnownWorkload, namespace=namespace)
        for each in page.items
    ]
    chosen = await _chosen(reader, scope, workloads)
    events = [
        event
        async for page in pages(reader, EVENTS, into=CoreEvent, namespace=namespace)
        for event in page.items
        if (
            event.is_of_queues if chosen is None else _place(event) in chosen and event.is_of_queues
        )
    ]
    return list(merge_events(events, {each.metadata.key: each.job for each in workloads}))


def _place(event: CoreEvent) -> tuple[str, str, str]:
    about = event.involved_object
    return about.kind, about.namespace, about.name


async def _chosen(
    reader: Reader, scope: EventScope, workloads: Iterable[KnownWorkload]
) -> Set[tuple[str, str, str]] | None:
    """Return kind, namespace and name of what is asked about; None for everything."""
    if scope.job is not None:
        return await _of_job(reader, scope.job, workloads)
    if scope.queue:
        return await _of_queue(reader, scope, workloads)
    return None


async def _of_job(
    reader: Reader, job: JobQuery, workloads: Iterable[KnownWorkload]
) -> Set[tuple[str, str, str]]:
    if job.kind == POD_GROUP:
        job = job._replace(kind="Workload")
    chain = await owners(reader, job)
    found = {(plain_kind(part.kind), part.namespace, part.name) for part, _ in chain}
    groups = {group_name(metadata) for part, metadata in chain if part.kind == "Pod"} - {""}
    uids = {metadata.uid for _, metadata in chain}
    for each in workloads:
        of_chain = not uids.isdisjoint(owner.uid for owner in each.metadata.owner_references)
        if each.metadata.namespace == job.namespace and (of_chain or each.metadata.name in groups):
            found.add(("Workload", each.metadata.namespace, each.metadata.name))
    return found


async def _of_queue(
    reader: Reader, scope: EventScope, workloads: Iterable[KnownWorkload]
) -> Set[tuple[str, str, str]]:
    locals_ = {
        (each.metadata.namespace, each.metadata.name): each.spec.cluster_queue
        async for page in pages(reader, LOCAL_QUEUES, into=LocalQueue, namespace=scope.namespace)
        for each in page.items
    }
    known = {name for _, name in locals_} | set(locals_.values())
    require(NameFilter(scope.queue, QUEUE, known))
    chosen = {place for place, queue in locals_.items() if scope.queue in {place[1], queue}}
    found = {("LocalQueue", *place) for place in chosen}
    found |= {("ClusterQueue", "", scope.queue), ("ClusterQueue", "default", scope.queue)}
    for each in workloads:
        namespace = each.metadata.namespace
        if (namespace, each.spec.queue_name) in chosen:
            found.add(("Workload", namespace, each.metadata.name))
            kind, _, name = each.job.partition("/")
            found.add((plain_kind(kind), namespace, name))
    return found


def merge_events(events: Iterable[CoreEvent], jobs: Mapping[str, str]) -> Iterator[EventLine]:
    """Yield events in the order of time, one for a Workload and its job that say the same.

    Args:
        events: In any order.
        jobs: `Kind/name` of the job of each Workload, by the Workload's key.
    """
    seen: dict[tuple[EventLine, bool], float] = {}
    for event in sorted(events, key=_moment):
        line = _line(event, jobs)
        content = msgspec.structs.replace(line, time="", workload="", count=1)
        before = seen.get((content, not line.workload))
        if before is None or event.last_at - before > SAME_SECONDS:
            seen[content, bool(line.workload)] = event.last_at
            yield line


def _moment(event: CoreEvent) -> tuple[float, int]:
    """Return when an event was last seen, and its version: times are whole seconds."""
    version = event.metadata.resource_version
    return event.last_at, int(version) if version.isdecimal() else 0


def _line(event: CoreEvent, jobs: Mapping[str, str]) -> EventLine:
    about = event.involved_object
    of_workload = about.kind == "Workload"
    own = f"{about.kind}/{about.name}"
    job = jobs.get(f"{about.namespace}/{about.name}", "") if of_workload else ""
    return EventLine(
        time=rfc3339(event.last_at),
        type=event.type,
        reason=event.reason,
        namespace=about.namespace,
        object=job or own,
        workload=about.name if of_workload else "",
        count=event.times,
        message=event.message,
    )
