"""Everything about one job: its place, and what its Workload and its pods say."""

from collections import Counter

from policyd.api.kueue import Workload
from policyd.kube.client import PartialObject, Reader
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.pages import pages
from policyd.kube.resources import WORKLOADS
from policyd.questions.job_pods import JobPods, explained, job_pods, owner_of, with_obstacles
from policyd.questions.unqueued_jobs import JobQuery
from policyd.questions.why import why
from policyd.snapshot.values import QueueSnapshot
from policyd.workload.job_answer import JobAnswer, PodsOnNode
from policyd.workload.records import (
    check_records,
    condition_records,
    pod_set_records,
    preemptor_of,
    preemptor_path,
    preemptor_text,
    record_of,
)


async def job_answer(
    reader: Reader, subject: JobQuery, snapshot: QueueSnapshot | None, *, now: float
) -> JobAnswer:
    """Return everything about a job that its user may know.

    Args:
        reader: The API server.
        subject: The job.
        snapshot: The queues of its namespace; None if they cannot be known.
        now: Seconds since the epoch.

    Raises:
        JobNotFoundError: If there is no such job.
        ApiError: If the API server refuses, or does not answer.
    """
    answer = JobAnswer(why=await why(reader, subject, snapshot))
    namespace, name = answer.why.namespace, answer.why.workload
    if not name:
        return JobAnswer(why=await explained(reader, answer.why))
    try:
        workload = await reader.get(WORKLOADS, name, namespace=namespace, into=Workload)
    except NotFoundError:
        return _without(answer, f"Workload {name} was deleted meanwhile")
    except ForbiddenError as error:
        return _without(answer, f"times, conditions and pod sets: {error}")
    owner = owner_of(workload, answer.why.kind, answer.why.name)
    read = await job_pods(reader, owner)
    return JobAnswer(
        why=await with_obstacles(reader, answer.why, owner, read),
        record=record_of(workload, now=now),
        pod_sets=tuple(pod_set_records(workload)),
        pods=_on_nodes(read),
        conditions=tuple(condition_records(workload)),
        checks=tuple(check_records(workload)),
        preempted_by=await _preemptor(reader, workload),
        left_out=read.left_out,
    )


def _without(answer: JobAnswer, missing: str) -> JobAnswer:
    return JobAnswer(why=answer.why, left_out=(missing,))


def _on_nodes(read: JobPods) -> tuple[PodsOnNode, ...] | None:
    if read.pods is None:
        return None
    found = Counter((pod.spec.node_name, pod.status.phase) for pod in read.pods)
    return tuple(PodsOnNode(*place, count) for place, count in sorted(found.items()))


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
