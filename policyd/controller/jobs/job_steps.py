"""Steps that jobs of all kinds share: those that change the workload."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeVar

import msgspec
import structlog

from policyd.api.kueue import PodSet, ReclaimablePod, Workload
from policyd.api.kueue.names import ADMISSION_GATED_BY
from policyd.api.meta import Condition, Json, ObjectMeta, OwnerReference
from policyd.controller.jobs.gangs import Gangs
from policyd.controller.jobs.readiness import AwaitedPods
from policyd.controller.jobs.workload_events import JobEvents
from policyd.controller.patches import draft_of, merge_patch, versioned
from policyd.controller.retention import NO_LIMITS, TimeLimits, drop_finalizer, finish_slice
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.mirror import Mirror
from policyd.controller.watch.priorities import PriorityClassMissingError, priority_of
from policyd.controller.writes import Writes
from policyd.jobs.base import JobObject, JobOutcome, queue_name
from policyd.jobs.copied import NO_KEYS, CopiedKeys, CopiedMetadata
from policyd.jobs.lifecycle import ON_HOLD, gates_of, is_finished
from policyd.jobs.pods import QueuedPod
from policyd.jobs.slices import SLICE_REPLACED
from policyd.jobs.steps import (
    Adopt,
    ChangePriority,
    CreateWorkload,
    DeleteWorkload,
    DropFinalizer,
    Finish,
    JobView,
    Regate,
    Release,
    Report,
    ReportReady,
    Resize,
    Retire,
    Start,
    Step,
    Stop,
    UpdateWorkload,
)
from policyd.jobs.workload import Priority, uid_label, within_sizes
from policyd.kube.errors import AlreadyExistsError, InvalidError
from policyd.kube.resources import Resource
from policyd.patch.merge_patch import merge_difference
from policyd.workload.transitions import (
    after_eviction,
    finish,
    release,
    set_condition,
)

log = structlog.get_logger()

D = TypeVar("D", bound=JobObject | QueuedPod)

QuietStep = Release | Report | ReportReady | Retire | Resize

MAY_GO = ("maximumExecutionTimeSeconds", "priorityClassRef", "queueName")
"""Fields that a workload has only if its job sets them."""
HELD = "The job cannot use quota for now; workload on hold"
NOT_HELD = "Workload no longer on hold; waiting for quota reservation"


class WorkloadSteps:
    """Takes the next step for the workload of a job, and records it on the job."""

    def __init__(
        self,
        cache: Cache,
        writes: Writes,
        *,
        limits: TimeLimits = NO_LIMITS,
        keys: CopiedKeys = NO_KEYS,
    ) -> None:
        self._cache = cache
        self._writes = writes
        self._retention = limits.retention
        gates = cache.state.settings.gates
        annotations = keys.annotations if gates.custom_metric_labels else ()
        self.keys = replace(keys, annotations=annotations, gates=gates.admission_gated_by)
        """Which of the labels and annotations of a job its workload has too."""
        self._readiness = AwaitedPods(cache, every=limits.ready is not None)
        self.events = JobEvents(writes)
        self.gangs = Gangs(cache, writes)

    def copied(self, *jobs: ObjectMeta) -> CopiedMetadata:
        """Return the metadata that a workload copies from its job, or from the pods of one job.

        Raises:
            DifferentMetadataError: If the pods contradict each other.
        """
        return self.keys.of(*jobs)

    @property
    def _mirror(self) -> Mirror[Workload]:
        return self._cache.mirrors.workloads

    async def take(self, resource: Resource, view: JobView, step: Step) -> None:
        """Take a step that concerns the workload alone."""
        job = view.metadata
        match step:
            case ChangePriority(workload=workload):
                await self.change_priority(resource, job, workload, view.priority)
            case DeleteWorkload(workload=workload):
                await self.delete(resource, job, workload)
            case DropFinalizer(workload=workload):
                await self.drop_finalizer(resource, job, workload)
            case Finish(workload=workload, outcome=outcome):
                await self.finish(resource, job, workload, outcome)
            case Regate(workload=workload):
                await self._regate(resource, job, workload)
            case Release() | Report() | ReportReady() | Retire() | Resize():
                await self._take_quietly(view, step)
            case CreateWorkload() | Adopt() | UpdateWorkload() | Start() | Stop():
                raise AssertionError("these are different for every kind")

    async def _take_quietly(self, view: JobView, step: QuietStep) -> None:
        """Take a step without an event on the job."""
        match step:
            case Release(workload=workload, on_hold=on_hold):
                await self.release(workload, on_hold=on_hold, idle=view.held)
            case Report(workload=workload):
                await self.report(workload, view.reclaimable)
            case ReportReady(workload=workload, condition=condition):
                await self.report_ready(workload, condition)
            case Retire():
                await self._retire(step)
            case Resize(workload=workload):
                await self._resize(workload, view.pod_sets)

    async def _retire(self, step: Retire) -> None:
        workload, message = step.workload, step.message
        if step.reason == SLICE_REPLACED:
            await finish_slice(self._mirror, self._writes, workload, message)
            return
        status = finish(workload, reason=step.reason, message=message, now=self._writes.now)
        await self._writes.status(self._mirror, workload, status)

    async def _regate(self, resource: Resource, job: ObjectMeta, workload: Workload) -> None:
        gates, metadata = gates_of(job), workload.metadata
        patch = {
            "resourceVersion": metadata.resource_version,
            "annotations": {ADMISSION_GATED_BY: gates},
        }
        await self._writes.patch(self._mirror, workload, {"metadata": patch})
        message = f'Updated workload AdmissionGatedBy to "{gates or ""}"'
        self._writes.record(resource, job, "UpdatedWorkload", message)

    async def _resize(self, workload: Workload, pod_sets: Iterable[PodSet]) -> None:
        wanted, draft = {each.name: each.count for each in pod_sets}, draft_of(workload)
        for index, each in enumerate(workload.spec.pod_sets):
            draft.set(("spec", "podSets", index, "count"), wanted[each.name])
        patch = versioned(draft, workload.metadata)
        await self._writes.patch(self._mirror, workload, patch, kind="json")

    async def adopt(self, workload: Workload, owner: OwnerReference) -> None:
        """Make a job the owner of a workload that was created for it."""
        metadata = {
            "resourceVersion": workload.metadata.resource_version,
            "labels": uid_label(owner.uid),
            "ownerReferences": msgspec.to_builtins((*workload.metadata.owner_references, owner)),
        }
        await self._writes.patch(self._mirror, workload, {"metadata": metadata})

    def concerns(self, job: ObjectMeta) -> bool:
        """Tell whether a job queues: it names a queue or need not, and its namespace takes part."""
        integrations = self._cache.integrations
        namespace = self._cache.mirrors.namespaces.get(job.namespace)
        labels = {} if namespace is None else namespace.metadata.labels
        named = queue_name(job) or integrations.manages_all
        return bool(named) and integrations.covers(labels)

    def watches(self, workload: Workload) -> bool:
        """Tell whether the readiness of the pods of a workload is watched."""
        return self._readiness.watches(workload)

    def requested(self, pod_sets: tuple[PodSet, ...]) -> tuple[PodSet, ...]:
        """Return pod sets as they are requested: without topology, where the gate is off."""
        if self._cache.state.settings.gates.topology_aware_scheduling:
            return pod_sets
        return tuple(msgspec.structs.replace(each, topology_request=None) for each in pod_sets)

    async def report_ready(self, workload: Workload, condition: Condition) -> None:
        """Write the condition PodsReady of a workload."""
        status = set_condition(workload, condition, now=self._writes.now)
        await self._writes.status(self._mirror, workload, status)

    def priority(
        self,
        resource: Resource,
        job: ObjectMeta,
        pod_sets: tuple[PodSet, ...],
        *,
        named: str = "",
        workload: Workload | None,
    ) -> Priority | None:
        """Return the priority of a job; an event, and that of its workload, if its class is gone.

        None if it has no workload either. One that has is still to be stopped, and finished.
        """
        try:
            return priority_of(job, pod_sets, self._cache.mirrors, named=named)
        except PriorityClassMissingError as error:
            self._writes.record(resource, job, f"{error.kind}NotFound", str(error), warning=True)
        if workload is None:
            return None
        spec = workload.spec
        return Priority(value=spec.priority or 0, reference=spec.priority_class_ref)

    async def create(self, resource: Resource, job: ObjectMeta, body: Json) -> None:
        """Create the workload of a job, unless the job goes with its namespace."""
        namespace = self._cache.mirrors.namespaces.get(job.namespace)
        if namespace is not None and namespace.metadata.deletion_timestamp is not None:
            return  # the API server creates nothing there
        try:
            made = await self._writes.create(self._mirror, body, namespace=job.namespace)
        except AlreadyExistsError:
            # Created before a restart, or by another client: the next reconciliation finds out.
            key = f"{job.namespace}/{body['metadata']['name']}"
            await self._writes.look(self._mirror, key)
            left = self._mirror.get(key)
            if left is None or not _was_of(left.metadata, job):
                return
            await self.delete(resource, job, left)
            made = await self._writes.create(self._mirror, body, namespace=job.namespace)
        except InvalidError as error:
            self._record_refused(resource, job, body["metadata"]["name"], error)
            raise
        log.info("workload_created", workload=made.metadata.key)
        self._cache.hooks.workload_created(resource.kind, job)
        message = f"Created Workload: {made.metadata.key}"
        self._writes.record(resource, job, "CreatedWorkload", message)

    def _record_refused(
        self, resource: Resource, job: ObjectMeta, name: str, error: InvalidError
    ) -> None:
        """Record on a job that it cannot queue: its pod sets do not fit into a Workload."""
        message = f"the Workload {name} is refused: {error}"
        self._writes.record(resource, job, "ErrWorkloadCompose", message, warning=True)

    async def update(
        self, resource: Resource, job: ObjectMeta, step: UpdateWorkload, body: Json
    ) -> None:
        """Give a workload the spec that a new one of its job would have."""
        workload = step.workload
        spec = {**dict.fromkeys(MAY_GO), **body["spec"]}
        patch = merge_patch(workload.metadata, spec=spec)
        try:
            await self._writes.patch(self._mirror, workload, patch)
        except InvalidError as error:
            self._record_refused(resource, job, workload.metadata.name, error)
            raise
        if not step.fits:
            message = f"Updated not matching Workload for suspended job: {workload.metadata.key}"
            self._writes.record(resource, job, "UpdatedWorkload", message)

    async def change_priority(
        self, resource: Resource, job: ObjectMeta, workload: Workload, priority: Priority
    ) -> None:
        """Give a workload another priority."""
        reference = priority.reference
        old = workload.spec.priority_class_ref
        spec: Json = {"priority": priority.value, "priorityClassRef": None}
        if reference is not None:
            new = {"group": reference.group, "kind": reference.kind, "name": reference.name}
            before = {} if old is None else {"group": old.group, "kind": old.kind, "name": old.name}
            spec["priorityClassRef"] = merge_difference(before, new)
        patch = merge_patch(workload.metadata, spec=spec)
        await self._writes.patch(self._mirror, workload, patch)
        message = f"Updated workload priority class: {workload.metadata.key}"
        self._writes.record(resource, job, "UpdatedWorkload", message)

    async def delete(self, resource: Resource, job: ObjectMeta, workload: Workload) -> None:
        """Delete a workload that does not fit its job."""
        await drop_finalizer(self._writes, self._mirror, workload)
        if workload.metadata.deletion_timestamp is not None:
            return
        await self._writes.delete(self._mirror, workload)
        message = f"Deleted not matching Workload: {workload.metadata.key}"
        self._writes.record(resource, job, "DeletedWorkload", message)

    async def finish(
        self, resource: Resource, job: ObjectMeta, workload: Workload, outcome: JobOutcome
    ) -> None:
        """Declare a workload finished."""
        reason = "Succeeded" if outcome.succeeded else "Failed"
        status = finish(workload, reason=reason, message=outcome.message, now=self._writes.now)
        await self._writes.status(self._mirror, workload, status)
        log.info("workload_finished", workload=workload.metadata.key, reason=reason)
        self.events.finished(resource, job, workload)

    def deactivated_left(self, workload: Workload) -> float | None:
        """Return the seconds for which the job of a workload is kept; None if for ever."""
        return self._retention.deactivated_left(workload, now=self._writes.now)

    async def delete_deactivated(
        self, jobs: Mirror[D], job: D, workload: Workload | None
    ) -> float | None:
        """Delete a job whose workload the queue has deactivated, once it was kept long enough.

        Returns:
            The seconds for which it is kept; None if for ever, or no longer.
        """
        left = None if workload is None else self.deactivated_left(workload)
        if left is not None and left <= 0:
            await self._writes.delete(jobs, job)
            message = "Deleted job: deactivation retention period expired"
            self._writes.record(jobs.resource, job.metadata, "Deleted", message)
            return None
        return left

    async def fail_to_start(self, workload: Workload, message: str) -> None:
        """Declare a workload finished whose job can never be started."""
        status = finish(workload, reason="FailedToStart", message=message, now=self._writes.now)
        await self._writes.status(self._mirror, workload, status)
        log.warning("workload_failed_to_start", workload=workload.metadata.key, error=message)

    async def release(
        self,
        workload: Workload,
        *,
        on_hold: bool | None = None,
        why: str = HELD,
        idle: bool = False,
    ) -> None:
        """Give the quota of a workload back that was evicted, or goes on hold or off it.

        `why` says why it is on hold; `idle`, whether its job was never let go, and may be yet.
        """
        now = self._writes.now
        gates = self._cache.state.settings.gates
        detailed = gates.unadmitted_workloads_observability
        if on_hold is None:
            spares = gates.skip_reassignment_for_pod_owned_workloads and not idle
            status = after_eviction(workload, now=now, detailed=detailed, spares_pods=spares)
        else:
            reason, message = (ON_HOLD, why) if on_hold else ("PendingEvaluation", NOT_HELD)
            status = release(workload, reason=reason, message=message, now=now, detailed=detailed)
        await self._writes.status(self._mirror, workload, status)
        log.info("quota_released", workload=workload.metadata.key)

    async def report(self, workload: Workload, pods: tuple[ReclaimablePod, ...]) -> None:
        """Say which pods of a workload need their quota no longer."""
        listed = msgspec.to_builtins(within_sizes(pods, workload.spec.pod_sets))
        patch = merge_patch(workload.metadata, status={"reclaimablePods": listed})
        await self._writes.patch(self._mirror, workload, patch, subresource="status")

    async def drop_finalizer(self, resource: Resource, job: ObjectMeta, workload: Workload) -> None:
        """Let a workload vanish when it is deleted."""
        if is_finished(workload):
            self.events.finished(resource, job, workload)
        await drop_finalizer(self._writes, self._mirror, workload)


def _was_of(workload: ObjectMeta, job: ObjectMeta) -> bool:
    """Tell whether a workload was a job's, and does not name it as its owner any more."""
    own = uid_label(job.uid)
    return bool(own) and own.items() <= workload.labels.items() and not workload.owner_references
