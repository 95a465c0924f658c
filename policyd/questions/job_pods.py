"""The pods of a job, and why they do not run: read with the rights of the user, up to limits."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from policyd.api.kueue import Workload
from policyd.api.kueue.names import ADMITTED
from policyd.api.meta import ObjectReference, OwnerReference, condition_true, rfc3339
from policyd.jobs.ancestors import LONGEST_CHAIN
from policyd.jobs.base import controller_of
from policyd.jobs.lifecycle import is_finished
from policyd.jobs.places import belongs_to
from policyd.jobs.pods import LONGEST_AGO, QueuedPod, group_name
from policyd.kube.client import PartialObject, Reader
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.pages import pages
from policyd.kube.resources import EVENTS, PODS, WORKLOADS
from policyd.questions.core_events import CoreEvent
from policyd.questions.unqueued_jobs import JOBS, resource_of_job
from policyd.snapshot.answers import PodObstacle, WhyAnswer
from policyd.workload.pod_obstacles import StartingPod, pod_obstacles, refusal_in

MOST_READ: Final = 10_000
"""Pods and events of a namespace that are read."""
MOST_ASKED: Final = 50
"""Objects that are read to find out whose they are."""
MOST_REFUSALS: Final = 3
_LOOKED_AT: Final = frozenset({"Admitted", "NotQueued"})
"""The states in which pods of a job would run if nothing but quota kept them from it."""
_CORRECT: Final = "correct the pod template, and create the job again"
_DIRECT: Final = "Job"
"""The kind whose pods are all its own, one for each that its Workload was admitted with."""


class PodOwner(NamedTuple):
    """Whose pods are looked for.

    Attributes:
        namespace: Its namespace.
        kind: Of the job.
        name: Of the job; the objects that it has made for its pods are named after it.
        uids: Of the job, or of the owners of its Workload.
        workload: Its Workload; None if it has none.
    """

    namespace: str
    kind: str
    name: str
    uids: frozenset[str]
    workload: Workload | None

    @property
    def pods(self) -> int | None:
        """How many pods it has once all exist; None if that is not known."""
        admission = None if self.workload is None else self.workload.status.admission
        if admission is None or self.kind != _DIRECT:
            return None
        return sum(each.count or 0 for each in admission.pod_set_assignments)


class JobPods(NamedTuple):
    """The pods of a job; None if they cannot be listed. Besides, what could not be found out."""

    pods: tuple[StartingPod, ...] | None
    left_out: tuple[str, ...] = ()


async def explained(reader: Reader, answer: WhyAnswer) -> WhyAnswer:
    """Add to an answer why pods of the job do not run, if it does not wait for quota.

    Raises:
        ApiError: If the API server does not answer.
    """
    if answer.state not in {*_LOOKED_AT, "QuotaReserved"}:
        return answer
    try:
        owner = await _owner(reader, answer)
    except ForbiddenError as error:
        return replace(answer, left_out=(f"pods: {error}",))
    if owner is None:
        return answer
    if answer.state == "QuotaReserved":
        return _with_checks(answer, owner.workload)
    read = await job_pods(reader, owner)
    answer = await with_obstacles(reader, answer, owner, read)
    return replace(answer, left_out=(*read.left_out, *answer.left_out))


def _with_checks(answer: WhyAnswer, workload: Workload | None) -> WhyAnswer:
    """Add to an answer which admission checks a job with quota waits for, and where it is tried."""
    if workload is None:
        return answer
    status = workload.status
    tried = ", ".join(status.nominated_cluster_names)
    where = f"; no worker has admitted its copy so far: {tried}" if tried else ""
    found = [
        PodObstacle(
            type="Checked",
            what=check.name,
            message=": ".join(filter(None, (check.state, check.message))),
        )
        for check in status.admission_checks
        if check.state != "Ready"
    ]
    return replace(answer, obstacles=tuple(found), message=f"{answer.message}{where}")


async def _owner(reader: Reader, answer: WhyAnswer) -> PodOwner | None:
    """Return whose pods are looked for; None if there is nothing to explain.

    Raises:
        ApiError: If the API server refuses, or does not answer.
    """
    kind, namespace, name = answer.kind, answer.namespace, answer.name
    try:
        if answer.workload:
            workload = await reader.get(
                WORKLOADS, answer.workload, namespace=namespace, into=Workload
            )
            return owner_of(workload, kind, name)
        resource = PODS if kind == PODS.kind else JOBS.get(kind)
        if resource is None:
            return None
        job = await reader.get(resource, name, namespace=namespace, into=PartialObject)
    except NotFoundError:
        return None
    return PodOwner(namespace, kind, name, frozenset({job.metadata.uid}), None)


def owner_of(workload: Workload, kind: str, name: str) -> PodOwner:
    """Return whose pods the pods of a Workload are, given its job."""
    uids = frozenset(each.uid for each in workload.metadata.owner_references)
    return PodOwner(workload.metadata.namespace, kind, name, uids, workload)


async def job_pods(reader: Reader, owner: PodOwner) -> JobPods:
    """Return the pods of a job.

    Raises:
        ApiError: If the API server does not answer.
    """
    found: list[StartingPod] = []
    read, more = 0, ""
    ancestry = _Ancestry(reader, owner)
    try:
        async for page in pages(reader, PODS, into=StartingPod, namespace=owner.namespace):
            found += [
                pod
                for pod in page.items
                if _is_of(pod, owner) or await ancestry.has_made(controller_of(pod.metadata))
            ]
            read += len(page.items)
            if read >= MOST_READ and page.continue_:
                more = f"pods: only the first {read} of the namespace are looked at"
                break
    except ForbiddenError as error:
        return JobPods(None, (f"pods: {error}",))
    return JobPods(tuple(found), tuple(filter(None, (more,))))


def _is_of(pod: QueuedPod, owner: PodOwner) -> bool:
    """Tell whether a pod is of a job: itself, directly, of its group, or as it says."""
    mine = {pod.metadata.uid, *(each.uid for each in pod.metadata.owner_references)}
    workload = owner.workload
    if not owner.uids.isdisjoint(mine):
        return True
    return workload is not None and (
        group_name(pod.metadata) == workload.metadata.name or belongs_to(pod, workload)
    )


class _Ancestry:
    """Finds out whether objects belong to a job, by reading what they belong to."""

    def __init__(self, reader: Reader, owner: PodOwner) -> None:
        self._reader = reader
        self._owner = owner
        self._known = dict.fromkeys(owner.uids, True)
        self._left = MOST_ASKED

    async def has_made(self, controller: OwnerReference | None) -> bool:
        """Tell whether a job made the controller of a pod: that is named after it then."""
        owner = self._owner
        if (
            controller is None
            or owner.kind == _DIRECT
            or not controller.name.startswith(owner.name)
        ):
            return False
        return await self.has(controller)

    async def has(self, about: OwnerReference | ObjectReference) -> bool:
        """Tell whether an object is the job, or belongs to it."""
        passed: list[str] = []
        while about.uid not in self._known and len(passed) < LONGEST_CHAIN:
            passed.append(about.uid)
            above = await self._above(about)
            if above is None:
                break
            about = above
        found = self._known.get(about.uid, False)
        self._known.update(dict.fromkeys(passed, found))
        return found

    async def _above(self, about: OwnerReference | ObjectReference) -> OwnerReference | None:
        resource = resource_of_job({"apiVersion": about.api_version, "kind": about.kind})
        if resource is None or not self._left:
            return None
        self._left -= 1
        namespace = self._owner.namespace
        try:
            got = await self._reader.get(
                resource, about.name, namespace=namespace, into=PartialObject
            )
        except (ForbiddenError, NotFoundError):
            return None
        return controller_of(got.metadata)


async def with_obstacles(
    reader: Reader, answer: WhyAnswer, owner: PodOwner, read: JobPods
) -> WhyAnswer:
    """Add to an answer why pods of the job do not run, by its pods and by events.

    Raises:
        ApiError: If the API server does not answer.
    """
    workload = owner.workload
    if answer.state not in _LOOKED_AT or (workload is not None and not _lets_start(workload)):
        return answer
    if workload is not None and workload.status.cluster_name:
        where = f"pods: they are on the cluster {workload.status.cluster_name}"
        return replace(answer, left_out=(where,))
    found = list(pod_obstacles(read.pods or ()))
    left_out = ""
    pods = None if read.pods is None else len(read.pods)
    whole = owner.pods is not None and pods is not None and pods >= owner.pods
    if not whole or any(each.type == "Gated" for each in found):
        try:
            events = await _warnings(reader, owner.namespace)
        except ForbiddenError as error:
            left_out, events = f"refusals of pods: {error}", []
        found = [_with_event(each, events) for each in found]
        if not whole:
            found = [*await _refusals(reader, owner, read, events), *found]
    if owner.pods and pods == 0 and not found:
        found = [PodObstacle(type="Missing", message="it has no pods yet")]
    refused = any(each.type == "Refused" for each in found)
    return replace(
        answer,
        obstacles=tuple(found),
        left_out=tuple(filter(None, (left_out,))),
        user=answer.user or (_CORRECT if refused else ""),
    )


def _lets_start(workload: Workload) -> bool:
    admitted = condition_true(workload.status.conditions, ADMITTED)
    return admitted and not is_finished(workload)


async def _warnings(reader: Reader, namespace: str) -> list[CoreEvent]:
    """Return what components of the cluster warned of, the latest first."""
    found: list[CoreEvent] = []
    only = "type=Warning"
    async for page in pages(
        reader, EVENTS, into=CoreEvent, namespace=namespace, field_selector=only
    ):
        found += page.items
        if len(found) >= MOST_READ:
            break
    return sorted(found, key=lambda event: -event.last_at)


def _with_event(obstacle: PodObstacle, events: Iterable[CoreEvent]) -> PodObstacle:
    """Return why a pod is gated, with what the controller warned of about it."""
    if obstacle.type != "Gated":
        return obstacle
    about = (PODS.kind, obstacle.example)
    for event in events:
        of = event.involved_object
        if (of.kind, of.name) == about and event.is_of_queues:
            return replace(obstacle, message=f"{event.reason}: {event.message}")
    return obstacle


async def _refusals(
    reader: Reader, owner: PodOwner, read: JobPods, events: Iterable[CoreEvent]
) -> list[PodObstacle]:
    """Return why pods of a job are refused, which are missing."""
    made = (each.metadata.creation_timestamp or LONGEST_AGO for each in read.pods or ())
    newest = max(made, default=LONGEST_AGO)
    since = newest.timestamp() if owner.pods is None and read.pods else 0.0
    ancestry = _Ancestry(reader, owner)
    found: dict[tuple[str, str], PodObstacle] = {}
    for event in events:
        refusal = refusal_in(event.message)
        if event.last_at < since or len(found) == MOST_REFUSALS:
            break
        about = event.involved_object
        if refusal is None or refusal in found or about.kind == PODS.kind:
            continue
        if await ancestry.has(about):
            found[refusal] = PodObstacle(
                type="Refused",
                what=refusal.policy,
                message=refusal.message,
                last=rfc3339(event.last_at),
            )
    return list(found.values())
