"""Why a job waits, or what it does instead."""

from msgspec.structs import replace

from policyd.api.meta import ObjectMeta
from policyd.jobs.pods import group_name
from policyd.kube.client import Reader
from policyd.questions.unqueued_jobs import (
    POD_GROUP,
    FoundJob,
    JobNotFoundError,
    JobQuery,
    chain_text,
    look_up,
    owners,
    pods_of_group,
    why_found,
)
from policyd.snapshot.answers import WhyAnswer, why_holding, why_pending
from policyd.snapshot.reading import FoundPending, find
from policyd.snapshot.values import QueueSnapshot


async def why(reader: Reader, subject: JobQuery, snapshot: QueueSnapshot | None) -> WhyAnswer:
    """Say why a job waits, by a snapshot and, where that has not got it, its objects.

    Args:
        reader: The API server.
        subject: The job.
        snapshot: The queues of its namespace; None if they cannot be known: conditions say less.

    Raises:
        JobNotFoundError: If there is no such job.
        ApiError: If the API server refuses, or does not answer.
    """
    if snapshot is not None and (answer := why_in(snapshot, subject)) is not None:
        return answer
    chain = await _chain(reader, subject)
    parts = tuple(chain_text(chain))
    for part, metadata in chain:
        group = group_name(metadata) if part.kind == "Pod" else ""
        if snapshot is not None and group:
            answer = why_in(snapshot, JobQuery(POD_GROUP, part.namespace, group))
            if answer is not None:
                return replace(answer, parts=(f"Pod {part.name} is of the pod group {group}",))
        if snapshot is not None and (answer := why_in(snapshot, part)) is not None:
            return replace(answer, parts=parts)
    last, metadata = chain[-1]
    job = await look_up(reader, last, metadata)
    answer = None if snapshot is None else _why_group(snapshot, job)
    return replace(answer or why_found(job), parts=parts)


async def _chain(reader: Reader, subject: JobQuery) -> list[tuple[JobQuery, ObjectMeta]]:
    """Return what `owners` does; a group is its Workload, or its first pod if it has none yet."""
    if subject.kind != POD_GROUP:
        return await owners(reader, subject)
    try:
        return await owners(reader, subject._replace(kind="Workload"))
    except JobNotFoundError:
        pods = await pods_of_group(reader, subject.namespace, subject.name)
        if not pods:
            raise
        return await owners(reader, subject._replace(kind="Pod", name=pods[0].metadata.name))


def _why_group(snapshot: QueueSnapshot, job: FoundJob) -> WhyAnswer | None:
    """Say why a job waits whose pods queue as a group: a snapshot has its Workload alone."""
    if job.workload is None:
        return None
    kind, namespace, name = job.subject
    answer = why_in(snapshot, JobQuery("Workload", namespace, job.workload.metadata.name))
    return answer and replace(answer, kind=kind, name=name)


def why_in(snapshot: QueueSnapshot, subject: JobQuery) -> WhyAnswer | None:
    """Say why a job waits, by a snapshot alone; None if it is not in there."""
    kind, namespace, name = subject
    found = find(snapshot, namespace, "Workload" if kind == POD_GROUP else kind, name)
    if found is None:
        return None
    if isinstance(found, FoundPending):
        return why_pending(found, kind, namespace, name)
    return why_holding(found, kind, namespace, name)
