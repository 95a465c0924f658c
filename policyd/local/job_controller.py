"""A small Job controller: makes the pods of a Job that is not suspended, and counts how they end.

Implements the features that users of policyd need: parallelism, completions, indexed completion,
suspension, the back-off limit (without its delays), and deletion some time after the end.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from policyd.api.meta import (
    Condition,
    Json,
    condition_true,
    timestamp,
    with_condition,
)
from policyd.jobs.base import controller_of
from policyd.kube.changes import Change, Deleted, Modified
from policyd.kube.client import PartialObject, Writer
from policyd.kube.errors import ApiError, ConflictError, NotFoundError
from policyd.kube.events import EventRecorder
from policyd.kube.resources import JOBS, PODS
from policyd.local.objects import Job, JobStatus, LocalPod
from policyd.local.steps import DueObjects

INDEX = "batch.kubernetes.io/job-completion-index"
OWN = {"", "kubernetes.io/job-controller"}
"""The values of `managedBy` that leave a Job to this controller."""
UNSEEN_SECONDS = 5.0
"""After which a pod that was made and does not show is one that was deleted at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The actions of a Job controller on one Job.

    Attributes:
        create: The completion index of each pod to create; None where pods have none.
        remove: Pods to delete.
        status: The Job's status, as it then is.
        event: Reason and message of an event, if there is one.
    """

    create: tuple[int | None, ...] = ()
    remove: tuple[LocalPod, ...] = ()
    status: JobStatus
    event: tuple[str, str] | None = None


def reconcile(job: Job, pods: Iterable[LocalPod], now: float) -> Work:
    """Plan the actions on `job`, given the pods it owns."""
    mine = sorted(pods, key=lambda pod: pod.metadata.name)
    alive = [p for p in mine if not p.over and p.metadata.deletion_timestamp is None]
    if over(job.status):
        return Work(remove=tuple(alive), status=_counted(job, alive, mine))
    status = _begun(job, _counted(job, alive, mine), now)
    # The API server refuses the end of a Job that has not begun: it ends when it is resumed.
    ending = None if status.start_time is None else _ending(job, status, now)
    if ending is not None:
        return Work(remove=tuple(alive), status=ending, event=_event_of(ending))
    if job.spec.suspend:
        return Work(remove=tuple(alive), status=_suspended(status, now), event=_if_new(job, "True"))
    return Work(
        create=_missing(job, alive, mine),
        remove=_excess(job, alive),
        status=_resumed(status, now),
        event=_if_new(job, "False"),
    )


def over(status: JobStatus) -> bool:
    """Tell whether a Job has ended."""
    return condition_true(status.conditions, "Complete") or condition_true(
        status.conditions, "Failed"
    )


def pod_of(job: Job, index: int | None) -> Json:
    """Return the pod that a Job creates: its template, owned by the Job."""
    template = job.spec.template or {}
    metadata = template.get("metadata") or {}
    name = job.metadata.name
    annotations = dict(metadata.get("annotations") or {})
    labels = dict(metadata.get("labels") or {})
    spec = dict(template.get("spec") or {})
    if index is not None:
        annotations[INDEX] = labels[INDEX] = str(index)
        spec["hostname"] = f"{name}-{index}"
        name = f"{name}-{index}"
    owner = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": job.metadata.name,
        "uid": job.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": f"{name}-",
            "namespace": job.metadata.namespace,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [owner],
        },
        "spec": spec,
    }


def _counted(job: Job, alive: list[LocalPod], pods: list[LocalPod]) -> JobStatus:
    succeeded = sum(pod.status.phase == "Succeeded" for pod in pods)
    failed = sum(pod.status.phase == "Failed" for pod in pods)
    return msgspec.structs.replace(
        job.status,
        active=len(alive),
        ready=sum(pod.status.phase == "Running" for pod in alive),
        succeeded=max(succeeded, job.status.succeeded),
        failed=max(failed, job.status.failed),
    )


def _begun(job: Job, status: JobStatus, now: float) -> JobStatus:
    if job.spec.suspend or status.start_time is not None:
        return status
    return msgspec.structs.replace(status, start_time=timestamp(now))


def _ending(job: Job, status: JobStatus, now: float) -> JobStatus | None:
    if status.succeeded >= _completions(job):
        ended = _conditions(
            status,
            now,
            "Complete",
            "CompletionsReached",
            "Reached expected number of succeeded pods",
        )
        return msgspec.structs.replace(ended, completion_time=timestamp(now), active=0, ready=0)
    if status.failed > job.spec.backoff_limit:
        ended = _conditions(
            status,
            now,
            "Failed",
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        )
        return msgspec.structs.replace(ended, active=0, ready=0)
    return None


def _conditions(status: JobStatus, now: float, kind: str, reason: str, message: str) -> JobStatus:
    announced = "SuccessCriteriaMet" if kind == "Complete" else "FailureTarget"
    conditions = status.conditions
    for each in (announced, kind):
        conditions = with_condition(conditions, _true(each, reason, message, now))
    return msgspec.structs.replace(status, conditions=conditions)


def _true(kind: str, reason: str, message: str, now: float) -> Condition:
    return Condition(
        type=kind,
        status="True",
        reason=reason,
        message=message,
        last_transition_time=timestamp(now),
    )


def _suspended(status: JobStatus, now: float) -> JobStatus:
    condition = _true("Suspended", "JobSuspended", "Job suspended", now)
    conditions = with_condition(status.conditions, condition)
    return msgspec.structs.replace(status, conditions=conditions, start_time=None)


def _resumed(status: JobStatus, now: float) -> JobStatus:
    conditions = status.conditions
    if condition_true(conditions, "Suspended"):
        resumed = _true("Suspended", "JobResumed", "Job resumed", now)
        conditions = with_condition(conditions, msgspec.structs.replace(resumed, status="False"))
        status = msgspec.structs.replace(status, start_time=timestamp(now))
    return msgspec.structs.replace(status, conditions=conditions)


def _missing(job: Job, alive: list[LocalPod], pods: list[LocalPod]) -> tuple[int | None, ...]:
    succeeded = [pod for pod in pods if pod.status.phase == "Succeeded"]
    # One that succeeded and was deleted counts: it was counted when it ended.
    left = _completions(job) - max(len(succeeded), job.status.succeeded) - len(alive)
    room = max(0, min(left, job.spec.parallelism - len(alive)))
    if job.spec.completion_mode != "Indexed":
        return (None,) * room
    taken = {pod.metadata.annotations.get(INDEX) for pod in (*alive, *succeeded)}
    return tuple(i for i in range(_completions(job)) if str(i) not in taken)[:room]


def _excess(job: Job, alive: list[LocalPod]) -> tuple[LocalPod, ...]:
    """Return the pods that a Job which was made smaller has too many of.

    Those of an index that it does not have any more, then the highest indexes, or else pods that
    do not run yet, then the newest.
    """
    indexed = job.spec.completion_mode == "Indexed"

    def rank(pod: LocalPod) -> tuple[int, bool, str]:
        index = pod.metadata.annotations.get(INDEX, "") if indexed else ""
        created = pod.metadata.creation_timestamp
        number = int(index) if index.isdecimal() else 0
        return number, pod.status.phase != "Running", str(created or "")

    within = [pod for pod in alive if not indexed or rank(pod)[0] < _completions(job)]
    kept = sorted(within, key=rank)[: job.spec.parallelism]
    return tuple(pod for pod in alive if pod not in kept)


def _completions(job: Job) -> int:
    return job.spec.parallelism if job.spec.completions is None else job.spec.completions


def _if_new(job: Job, suspended: Literal["True", "False"]) -> tuple[str, str] | None:
    was = condition_true(job.status.conditions, "Suspended")
    if suspended == "True":
        return None if was else ("Suspended", "Job suspended")
    return ("Resumed", "Job resumed") if was else None


def _event_of(status: JobStatus) -> tuple[str, str]:
    if condition_true(status.conditions, "Complete"):
        return "Completed", "Job completed"
    return "BackoffLimitExceeded", "Job has reached the specified backoff limit"


@dataclass(slots=True)
class Done:
    """What was done for a Job, and may not show yet.

    Attributes:
        made: When pods were made, by uid.
        written: The version of the Job before the last write of its status.
    """

    made: dict[str, float] = field(default_factory=dict)
    written: str = ""


class JobController:
    """Keeps the pods and the status of every Job as they should be."""

    def __init__(self, writer: Writer, recorder: EventRecorder) -> None:
        self._writer = writer
        self._recorder = recorder
        self._jobs: DueObjects[Job] = DueObjects()
        self._owned: dict[str, dict[str, LocalPod]] = {}  # uid of a job to its pods, by key
        self._done: dict[str, Done] = {}  # by the uid of the job

    def take_job(self, change: Change[Job]) -> None:
        """Take a change of a Job."""
        self._jobs.take(change)
        if isinstance(change, Deleted):
            self._done.pop(change.object.metadata.uid, None)

    def take_pod(self, change: Change[LocalPod]) -> None:
        """Take a change of a pod."""
        old = change.old if isinstance(change, Modified) else change.object
        if (uid := self._notice_owner(old)) in self._owned:
            self._owned[uid].pop(old.metadata.key, None)
            if not self._owned[uid]:
                del self._owned[uid]
        if not isinstance(change, Deleted) and (uid := self._notice_owner(change.object)):
            self._owned.setdefault(uid, {})[change.object.metadata.key] = change.object

    def _notice_owner(self, pod: LocalPod) -> str:
        """Have the Job of a pod looked at; return its uid, empty without one."""
        owner = controller_of(pod.metadata)
        if owner is None or owner.kind != "Job":
            return ""
        self._jobs.add(f"{pod.metadata.namespace}/{owner.name}")
        return owner.uid

    async def step(self, now: float) -> float | None:
        """Act on every Job that is due; return the seconds until the next is."""
        return await self._jobs.step(self._reconcile, now)

    async def _reconcile(self, job: Job, now: float) -> float | None:
        """Act on a Job; return when it is due again."""
        if job.spec.managed_by not in OWN:
            return None
        uid = job.metadata.uid
        pods = list(self._owned.get(uid, {}).values())
        shown = {pod.metadata.uid for pod in pods}
        done = self._done.setdefault(uid, Done())
        done.made = {
            pod: at
            for pod, at in done.made.items()
            if pod not in shown and now - at < UNSEEN_SECONDS
        }
        outdated = done.written == job.metadata.resource_version
        if outdated or job.metadata.deletion_timestamp is not None:
            return None  # our own write will come as an event, and bring us back
        if done.made:
            return max(done.made.values()) + UNSEEN_SECONDS
        with suppress(NotFoundError, ConflictError):  # its change brings us back
            work = reconcile(job, pods, now)
            await self._carry_out(job, work, done, now)
            return now + UNSEEN_SECONDS if work.create else await self._expire(job, now)
        return None

    async def _carry_out(self, job: Job, work: Work, done: Done, now: float) -> None:
        namespace = job.metadata.namespace
        for pod in work.remove:
            with suppress(NotFoundError):
                await self._writer.delete(PODS, pod.metadata.name, namespace=namespace)
        for index in work.create:
            body = pod_of(job, index)
            try:
                made = await self._writer.create(
                    PODS, body, namespace=namespace, into=PartialObject
                )
            except ApiError as error:
                if error.refused:
                    self._record_refused(job, error)
                raise
            done.made[made.metadata.uid] = now
        if work.status != job.status:
            done.written = job.metadata.resource_version
            await self._write_status(job, work.status)
        if work.event is not None:
            about, (reason, message) = JOBS.reference(job.metadata), work.event
            self._recorder.record(about, reason=reason, message=message)

    def _record_refused(self, job: Job, error: ApiError) -> None:
        about, message = JOBS.reference(job.metadata), f"Error creating: {error}"
        self._recorder.record(about, kind="Warning", reason="FailedCreate", message=message)

    async def _write_status(self, job: Job, status: JobStatus) -> None:
        # An omitted field stays in a merge patch: a field to remove has to be named.
        body = {
            "active": status.active,
            "ready": status.ready,
            "succeeded": status.succeeded,
            "failed": status.failed,
            "startTime": status.start_time,
            "completionTime": status.completion_time,
            "conditions": status.conditions,
        }
        metadata = {"resourceVersion": job.metadata.resource_version}
        await self._writer.patch(
            JOBS,
            job.metadata.name,
            {"metadata": metadata, "status": body},
            namespace=job.metadata.namespace,
            subresource="status",
            field_manager="job-controller",
            into=PartialObject,
        )

    async def _expire(self, job: Job, now: float) -> float | None:
        """Delete a Job that ended long enough ago; return when that is so."""
        keep = job.spec.ttl_seconds_after_finished
        ended = job.status.completion_time
        if keep is None or ended is None or not over(job.status):
            return None
        due = ended.timestamp() + keep
        if due > now:
            return due
        await self._writer.delete(JOBS, job.metadata.name, namespace=job.metadata.namespace)
        return None
