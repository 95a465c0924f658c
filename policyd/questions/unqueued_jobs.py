"""Jobs that no queue has: found at the API server, with what keeps them out of the queues."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from policyd.api.kueue import ClusterQueue, LocalQueue, Workload
from policyd.api.kueue.names import (
    ADMITTED,
    FINISHED,
    POD_GROUP_NAME,
    QUEUE_NAME,
    QUOTA_RESERVED,
)
from policyd.api.meta import (
    Json,
    ObjectMeta,
    OwnerReference,
    condition_true,
    find_condition,
    rfc3339,
)
from policyd.errors import PolicydError, did_you_mean
from policyd.jobs.ancestors import LONGEST_CHAIN
from policyd.jobs.base import JobKind, controller_of, prebuilt_name, queue_name
from policyd.jobs.kinds.registry import KINDS, PARENTS
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.jobs.parents import ParentKind
from policyd.jobs.pods import QueuedPod, counts, group_name, total_count
from policyd.kube.client import PartialObject, Reader
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.pages import pages
from policyd.kube.resources import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    PODS,
    PRIORITY_CLASSES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)
from policyd.questions.core_events import CoreEvent, events_about
from policyd.snapshot.answers import State, WhyAnswer
from policyd.status.queues import stopped_text
from policyd.workload.records import why_inactive

POD_GROUP: Final = "PodGroup"
"""What a group of plain pods is called as a kind; its Workload has its name."""
_SHORT: Mapping[str, str] = {
    "po": "pod", "wl": "workload", "deploy": "deployment", "sts": "statefulset",
    "podgroups": "podgroup", "rs": "replicaset", "lws": "leaderworkerset",
    "vcjob": "jobs.batch.volcano.sh", "vj": "jobs.batch.volcano.sh",
}  # fmt: skip

_LISTED: tuple[JobKind[Any] | ParentKind[Any], ...] = (*KINDS, *PARENTS)
JOBS: Mapping[str, Resource] = {
    kind.key: Resource(kind.group, kind.version, kind.plural, kind.kind) for kind in _LISTED
}
_CRON_JOBS: Final = Resource("batch", "v1", "cronjobs", "CronJob")
_KINDS: Mapping[str, Resource] = {
    **JOBS, "CronJob": _CRON_JOBS, "Pod": PODS, "Workload": WORKLOADS
}  # fmt: skip
_IN_PARTS: Final[Mapping[str, str]] = {
    **{kind.key: "pod" for kind in PARENTS},
    _CRON_JOBS.kind: "Job",
}
"""Kinds that are not queued as a whole, and what they make that is."""


class JobQuery(NamedTuple):
    """A job that is asked about."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class JobNotFoundError(PolicydError):
    """What is asked about cannot be found, or is nothing that can be in a queue."""


def kind_of(word: str) -> str:
    """Return the kind that a word means, as kubectl takes it: `jobs`, `job`, `jobs.batch`.

    Of kinds of one name, the word without a group means the first, which is that of Kubernetes.

    Raises:
        JobNotFoundError: If no kind that can be in a queue is called that.
    """
    asked, _, group = _SHORT.get(word.lower(), word.lower()).partition(".")
    asked = _SHORT.get(asked, asked)
    if asked == POD_GROUP.lower():
        return POD_GROUP
    for kind, resource in _KINDS.items():
        if asked in {resource.kind.lower(), resource.plural} and group in {"", resource.group}:
            return kind
    known = [kind.lower() for kind in (*_KINDS, POD_GROUP)]
    raise JobNotFoundError(
        f"`{word}` is not a kind that can be in a queue",
        hint=did_you_mean(asked, known) or f"kinds: {', '.join(sorted(known))}",
    )


def resource_of_job(obj: Mapping[str, Json]) -> Resource | None:
    """Return the resource of a job, given as a manifest; None if it is no job of a known kind."""
    named = obj.get("apiVersion"), obj.get("kind")
    return next((e for e in JOBS.values() if (e.api_version, e.kind) == named), None)


def kind_in_objects(kind: str) -> str:
    """Return what objects of a kind have as their `kind`: two groups may have one of the name."""
    return _KINDS[kind].kind if kind in _KINDS else kind


async def owners(reader: Reader, subject: JobQuery) -> list[tuple[JobQuery, ObjectMeta]]:
    """Return a job with its metadata, and those that it belongs to, the outermost last.

    Raises:
        JobNotFoundError: If there is no such job.
    """
    found: list[tuple[JobQuery, ObjectMeta]] = []
    while len(found) < LONGEST_CHAIN:
        resource = _KINDS[subject.kind]
        try:
            got = await reader.get(
                resource, subject.name, namespace=subject.namespace, into=PartialObject
            )
        except NotFoundError as error:
            if found:
                break  # it is being deleted
            raise JobNotFoundError(
                f"{subject} not found",
                hint=f"`kubectl get {resource.plural} -n {subject.namespace}` lists them",
            ) from error
        found.append((subject, got.metadata))
        owner = controller_of(got.metadata)
        if owner is None or not _is_job(owner) or subject.kind == "Workload":
            break
        subject = JobQuery(owner.kind, subject.namespace, owner.name)
    return found


def _is_job(owner: OwnerReference) -> bool:
    """Tell whether an owner is a kind of job that is queued as a whole."""
    resource = JOBS.get(owner.kind)
    group = owner.api_version.rpartition("/")[0]
    return resource is not None and resource.group == group and owner.kind not in _IN_PARTS


class FoundJob(NamedTuple):
    """A job that no queue has, and what the API server has of it.

    Attributes:
        subject: Which.
        metadata: Its metadata.
        queues: The LocalQueues of its namespace, by name.
        cluster_queue: Whether the ClusterQueue of its LocalQueue exists; None if that is unknown.
        workload: Its newest Workload, if it has one.
        warning: What the controller warned of last, if it has none.
        members: How many pods of its group are there, if it is a pod of a group without one.
        prebuilt: Whether the Workload exists that it names, if it has none.
    """

    subject: JobQuery
    metadata: ObjectMeta
    queues: Mapping[str, LocalQueue]
    cluster_queue: bool | None = None
    workload: Workload | None = None
    warning: CoreEvent | None = None
    members: int = 0
    prebuilt: bool = False

    @property
    def queue(self) -> str:
        """The LocalQueue that it names; "" for none."""
        if self.workload is not None and self.workload.spec.queue_name:
            return self.workload.spec.queue_name
        return queue_name(self.metadata)


async def look_up(reader: Reader, subject: JobQuery, metadata: ObjectMeta) -> FoundJob:
    """Find out what the API server has of a job."""
    namespace = subject.namespace
    queues = await reader.page(LOCAL_QUEUES, into=LocalQueue, namespace=namespace)
    by_name = {queue.metadata.name: queue for queue in queues.items}
    found = FoundJob(
        subject, metadata, by_name, workload=await newest_workload(reader, subject, metadata)
    )
    local = by_name.get(found.queue)
    if local is None:
        return found
    group = group_name(metadata) if subject.kind == "Pod" else ""
    if found.workload is None and group:
        with suppress(ForbiddenError):
            pods = await pods_of_group(reader, namespace, group)
            found = found._replace(members=sum(map(counts, pods)))
    if found.workload is None:
        found = found._replace(
            warning=await _last_warning(reader, subject),
            prebuilt=await _exists(reader, namespace, prebuilt_name(metadata)),
        )
    try:
        await reader.get(CLUSTER_QUEUES, local.spec.cluster_queue, into=ClusterQueue)
    except NotFoundError:
        return found._replace(cluster_queue=False)
    except ForbiddenError:
        return found
    return found._replace(cluster_queue=True)


async def _exists(reader: Reader, namespace: str, workload: str) -> bool:
    """Tell whether a Workload exists; False for no name."""
    if workload:
        with suppress(NotFoundError, ForbiddenError):
            await reader.get(WORKLOADS, workload, namespace=namespace, into=Workload)
            return True
    return False


async def _last_warning(reader: Reader, job: JobQuery) -> CoreEvent | None:
    """Return what the controller warned of last about a job; None if that is not known."""
    try:
        events = await events_about(reader, job.namespace, job.kind, job.name)
    except ForbiddenError:
        return None
    warnings = (each for each in events if each.type == "Warning")
    return max(warnings, key=lambda each: each.last_at, default=None)


async def pods_of_group(reader: Reader, namespace: str, group: str) -> list[QueuedPod]:
    """Return the pods of a group, which may name it by an annotation alone."""
    return [
        pod
        async for page in pages(reader, PODS, into=QueuedPod, namespace=namespace)
        for pod in page.items
        if group_name(pod.metadata) == group
    ]


async def newest_workload(
    reader: Reader, subject: JobQuery, metadata: ObjectMeta
) -> Workload | None:
    """Return the newest Workload of a job; None if it has none."""
    newest: Workload | None = None
    if subject.kind == "Workload":
        return await reader.get(WORKLOADS, subject.name, namespace=subject.namespace, into=Workload)
    async for page in pages(reader, WORKLOADS, into=Workload, namespace=subject.namespace):
        for each in page.items:
            owned = any(owner.uid == metadata.uid for owner in each.metadata.owner_references)
            if owned and (newest is None or _created(each) >= _created(newest)):
                newest = each
    return newest


def _created(workload: Workload) -> float:
    made = workload.metadata.creation_timestamp
    return 0.0 if made is None else made.timestamp()


def why_found(job: FoundJob) -> WhyAnswer:
    """Say why a job is in no queue, by what the API server has of it."""
    kind, namespace, name = job.subject
    workload = job.workload
    about = WhyAnswer(
        kind=kind,
        namespace=namespace,
        name=name,
        state="NotQueued",
        message="",
        local_queue=job.queue,
    )
    if workload is None and (part := _IN_PARTS.get(kind)) is not None:
        ask = f"`policyd why {part.lower()}/NAME -n {namespace}`"
        return replace(
            about,
            message=f"a {kind} is not queued as a whole: its {part}s are",
            user=f"ask about one of its {part}s: {ask}",
        )
    if workload is not None and is_finished(workload):
        return _of_workload(about, job, workload, "Finished")
    if (outside := _outside(job)) is not None:
        message, user = outside
        return replace(about, message=message, user=user)
    if workload is None:
        return _without_workload(about, job)
    if not workload.spec.active:
        return _of_workload(about, job, workload, "Inactive")
    state: State = "QuotaReserved" if has_quota(workload) else "Pending"
    if condition_true(workload.status.conditions, ADMITTED):
        state = "Admitted"
    return _of_workload(about, job, workload, state)


def _without_workload(about: WhyAnswer, job: FoundJob) -> WhyAnswer:
    """Say why a job has no Workload, as far as it is known, and what its user can do."""
    kind, namespace, name = job.subject
    if 0 < job.members < (total := total_count(job.metadata)):
        group = group_name(job.metadata)
        return replace(
            about,
            message=f"its pod group {group} is incomplete: {job.members} of {total} pods are there",
            user=f"create the others, with the label `{POD_GROUP_NAME}: {group}`",
        )
    named = prebuilt_name(job.metadata)
    if named and job.warning is None:
        there = "belongs to another" if job.prebuilt else "does not exist"
        return replace(
            about,
            message=f"it waits for the prebuilt Workload {named}, which {there}",
            user="create that Workload, or create the job again without its name",
        )
    if job.warning is None:
        return replace(
            about,
            message="it has no Workload: the controller has not made one yet, or cannot",
            user=f"see its events: `kubectl events --for {kind.lower()}/{name} -n {namespace}`",
        )
    return replace(
        about,
        message=f"it has no Workload: {job.warning.message}",
        reason=job.warning.reason,
        since=rfc3339(job.warning.last_at),
        user=_REMEDIES.get(job.warning.reason, ""),
    )


_REMEDIES: Final[Mapping[str, str]] = {
    f"{kind}NotFound": f"create it again with a class that exists: `kubectl get {plural}`"
    for kind, plural in (
        (PRIORITY_CLASSES.kind, PRIORITY_CLASSES.plural),
        (WORKLOAD_PRIORITY_CLASSES.kind, WORKLOAD_PRIORITY_CLASSES.plural),
    )
}
"""What the user of a job without a Workload can do, by the reason of the warning."""


def _of_workload(about: WhyAnswer, job: FoundJob, workload: Workload, state: State) -> WhyAnswer:
    """Return what the condition of a Workload says that belongs to a state."""
    kind, default_message = _CONDITIONS[state]
    conditions = workload.status.conditions
    condition = find_condition(conditions, kind) if kind else why_inactive(conditions)
    local = job.queues.get(job.queue)
    about = replace(
        about,
        state=state,
        message=default_message,
        workload=workload.metadata.name,
        cluster_queue="" if local is None else local.spec.cluster_queue,
        user=_resuming(job, state),
    )
    if condition is None:
        return about
    since = condition.last_transition_time
    message = condition.message or default_message
    if state == "Pending" and local is not None and local.spec.stop_policy != "None":
        message = stopped_text(local)
    return replace(
        about,
        message=message,
        reason=condition.reason,
        since=None if since is None else rfc3339(since.timestamp()),
    )


def _resuming(job: FoundJob, state: State) -> str:
    """Return how a job is resumed that is stopped itself, or with its LocalQueue; "" if neither."""
    subject, local = job.subject, job.queues.get(job.queue)
    if state == "Inactive":
        stopped = f"{subject.kind.lower()}/{subject.name}"
    elif state == "Pending" and local is not None and local.spec.stop_policy != "None":
        stopped = f"localqueue/{job.queue}"
    else:
        return ""
    return f"`policyd resume {stopped} -n {subject.namespace}`"


_CONDITIONS: Mapping[State, tuple[str, str]] = {
    "Admitted": (QUOTA_RESERVED, "it is not waiting for quota"),
    "Finished": (FINISHED, "it has finished"),
    "Inactive": ("", "its Workload is deactivated: `spec.active` is false"),
    "Pending": (QUOTA_RESERVED, "no reason is known yet"),
    "QuotaReserved": (QUOTA_RESERVED, "it waits for its admission checks"),
}
"""The condition that tells of a state, if it is always the same, and what to say without one."""


def _outside(job: FoundJob) -> tuple[str, str] | None:
    """Say what keeps a job out of the queues, and what its user can do; None if nothing does."""
    names = ", ".join(sorted(job.queues)) or "none"
    namespace, name = job.subject.namespace, job.queue
    if not name:
        first = next(iter(sorted(job.queues)), "QUEUE")
        return (
            f"it is in no queue: it has no label {QUEUE_NAME}; LocalQueues of {namespace}: {names}",
            f"create it again with the label `{QUEUE_NAME}: {first}`",
        )
    local = job.queues.get(name)
    if local is None:
        near = did_you_mean(name, job.queues)
        return (
            f"LocalQueue {name} doesn't exist; namespace {namespace} has {names}",
            near or f"name one of them in the label `{QUEUE_NAME}`",
        )
    if job.cluster_queue is False:
        return (
            f"ClusterQueue {local.spec.cluster_queue} of LocalQueue {name} doesn't exist",
            "ask an administrator to create it, or use another LocalQueue",
        )
    return None


def chain_text(found: list[tuple[JobQuery, ObjectMeta]]) -> Iterator[str]:
    """Yield how the outermost job of a chain comes to be answered for."""
    for (part, _), (whole, _) in pairwise(found):
        yield f"{part.kind} {part.name} belongs to {whole.kind} {whole.name}"
