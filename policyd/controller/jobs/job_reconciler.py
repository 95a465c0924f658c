"""The way of a job: from its watch event to its Workload, and to its start, in six steps.

For kinds that can be suspended. Step 1 is taken at each event, the others by the worker that has
the job's key: once to create the Workload, and again to start the job when that is admitted.
"""

from contextlib import suppress
from typing import Any

import msgspec
import structlog

from policyd.alloc.settings import Gates
from policyd.api.kueue import ResourceFlavor, Workload
from policyd.api.kueue.names import QUEUE_NAME
from policyd.api.meta import Json, OwnerReference
from policyd.controller.jobs.bases import BASIS_SECONDS, as_it_runs, on_basis
from policyd.controller.jobs.children import Children
from policyd.controller.jobs.elastic_pods import ElasticPods
from policyd.controller.jobs.gangs import GANG_SECONDS
from policyd.controller.jobs.job_steps import WorkloadSteps
from policyd.controller.patches import draft_of, merge_patch, versioned
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.watch.mirror import Mirror
from policyd.controller.watch.mirrors import job_resource
from policyd.controller.writes import Writes
from policyd.jobs.base import JobKind, JobObject, prebuilt_name
from policyd.jobs.injection import FlavorMissingError, StartError, injections, put_back, start
from policyd.jobs.kinds.registry import KINDS
from policyd.jobs.lifecycle import is_finished
from policyd.jobs.matching import choose
from policyd.jobs.slices import as_slice, may_grow, settle
from policyd.jobs.steps import (
    Adopt,
    CreateWorkload,
    DropFinalizer,
    Finish,
    JobView,
    Release,
    Start,
    Step,
    Stop,
    UpdateWorkload,
)
from policyd.jobs.workload import admitted_counts, body_of, new_workload
from policyd.kube.changes import Change, Deleted
from policyd.kube.errors import ForbiddenError, InvalidError, NotFoundError
from policyd.patch.draft import Draft

log = structlog.get_logger()

STOPPING = "kueue.x-k8s.io/stopping"
"""Annotation of a job that was suspended, and whose template is still to be put back."""

PREBUILT_SECONDS = 5.0
"""Between looks for a prebuilt workload that a job names, and that does not exist yet."""
FLAVOR_SECONDS = 1.0
"""Between looks for a flavor that is not there yet."""
PUT_BACK_SECONDS = 10.0
"""How long it is tried to put back a template that the API server refuses."""

ENDS = Stop | Finish | Release | DropFinalizer
"""What is done with a job whose parts are gone, so that it is known by its workload alone."""


class JobReconciler:
    """Reconciles the jobs of one kind, one at a time."""

    def __init__(
        self, kind: JobKind[Any], cache: Cache, writes: Writes, steps: WorkloadSteps
    ) -> None:
        self._kind = kind
        self._cache = cache
        self._writes = writes
        self._steps = steps
        self._resource = job_resource(kind)
        self._elastic_pods = ElasticPods(cache, writes)
        self._children = Children(kind, cache, writes)
        self._refused: dict[str, float] = {}
        """Since when the template of a job cannot be put back, by the uid of the job."""
        self._mirror.listen(self.changed)

    @property
    def _gates(self) -> Gates:
        return self._cache.state.settings.gates

    @property
    def _mirror(self) -> Mirror[JobObject]:
        return self._cache.mirrors.jobs[self._kind.kind]

    def changed(self, change: Change[JobObject]) -> None:
        """Take in a change of a job, be it of a watch event or of a write of our own."""
        # 1. Queue the key of the job, and those of its Workloads if it goes.
        for key in self._cache.job_keys(change, self._kind.kind):
            self._cache.hooks.reconcile(key)
        if isinstance(change, Deleted):
            self._refused.pop(change.object.metadata.uid, None)

    async def reconcile(self, key: ReconcileKey) -> float | None:
        """Do the next step. Returns the seconds until it should be looked at again.

        Raises:
            ApiError: If a write did not succeed.
        """
        job = self._mirror.get(key.path)
        if job is None:
            await self._release_left(key)
            await self._children.look(key.path, gates=self._gates)
            return None
        # 2. Leave out a job that does not queue, and suspend one that follows its owner.
        if not self._concerns(job) or await self._children.follow(job, gates=self._gates):
            return None
        # 3. Describe the job as jobs of all kinds are: its pod sets, its priority, its state.
        owned = self._cache.workloads_of(job.metadata.uid)
        known = settle(owned).newest
        whole = await self._whole(job)
        view = self._view(job if whole is None else whole, known, whole=whole is not None)
        if view is None:
            return BASIS_SECONDS if whole is None else FLAVOR_SECONDS
        # 4. Find its Workload, and decide which step is next.
        named = self._cache.mirrors.workloads.get(f"{key.namespace}/{view.prebuilt}")
        workload, step = choose(view, owned, named, watched=self._steps.watches)
        if whole is None:
            if isinstance(step, ENDS):
                await self._take(job, view, step)
            return BASIS_SECONDS
        job = whole
        self._steps.events.checks(self._resource, job.metadata, workload)
        if step is None:
            return await self._stay(job, view, workload)
        return await self._take(job, view, step)

    async def _release_left(self, key: ReconcileKey) -> None:
        """Delete the workloads of a job that names no queue any more, unless it runs.

        They would get quota, and keep it, though the job is never started.
        """
        on = self._cache.mirrors.integrations.has(self._kind.group, self._kind.kind)
        if not on or not self._cache.controls_some(key):
            return
        with suppress(NotFoundError):
            job = await self._writes.client.get(
                self._resource, key.name, namespace=key.namespace, into=self._kind.type
            )
            leaves = QUEUE_NAME not in job.metadata.labels
            if leaves and (self._kind.suspended(job) or self._kind.outcome(job) is not None):
                for workload in self._cache.workloads_of(job.metadata.uid):
                    if not is_finished(workload):
                        await self._steps.delete(self._resource, job.metadata, workload)

    async def _take(self, job: JobObject, view: JobView, step: Step) -> float | None:
        match step:
            # 5. Create the Workload: the allocator decides about it, in its own time.
            case CreateWorkload(replaces=old):
                await self._create(job, view, old)
            # 6. Start the job of an admitted Workload: its flavors and places go into the pods.
            case Start(workload=workload):
                return await self._start(job, workload)
            case Stop():
                await self._stop(job, step)
            case Adopt(workload=workload):
                await self._steps.adopt(workload, self._owner(job))
            case UpdateWorkload():
                await self._update(job, view, step)
            case _:
                await self._steps.take(self._resource, view, step)
        return None

    async def _stay(self, job: JobObject, view: JobView, workload: Workload | None) -> float | None:
        """Do the work for a job that stays as it is; returns the same as `reconcile`."""
        if view.elastic and not view.held:
            return await self._elastic_pods.let_go(job, self._kind)
        if view.prebuilt and workload is None:
            return None if view.outcome else PREBUILT_SECONDS
        return await self._steps.delete_deactivated(self._mirror, job, workload)

    def _concerns(self, job: JobObject) -> bool:
        """Tell whether a job queues; the workload of one that is deleted finds out by itself."""
        deleted = job.metadata.deletion_timestamp is not None
        concerned = self._steps.concerns(job.metadata)
        return concerned and not (deleted or self._kind.ignored(job))

    async def _whole(self, job: JobObject) -> JobObject | None:
        """Return a job with all that belongs to it; None if a part does not exist."""
        found = await on_basis(self._kind, job, self._writes)
        if found is None or not may_grow(self._kind, job.metadata, self._gates):
            return found
        return await as_it_runs(self._kind, found, self._writes)

    def _is_stopping(self, job: JobObject) -> bool:
        """Tell whether a suspended job is still to be restored."""
        return STOPPING in job.metadata.annotations or self._kind.reset(job) is not None

    def _view(self, job: JobObject, known: Workload | None, *, whole: bool) -> JobView | None:
        """Describe a job; None if that cannot be.

        Of one that is not whole any more, the pod sets are those that its workload has.
        """
        kind, pod_sets = self._kind, () if known is None else known.spec.pod_sets
        if whole:
            pod_sets = self._steps.requested(kind.pod_sets(job))
        elif known is None:
            return None
        priority = self._steps.priority(
            self._resource,
            job.metadata,
            pod_sets,
            named=kind.priority_class(job),
            workload=known,
        )
        if priority is None:
            return None
        suspended = kind.suspended(job)
        return JobView(
            metadata=job.metadata,
            held=suspended,
            running=not suspended or self._is_stopping(job),
            active=kind.active(job),
            ready=kind.ready(job),
            outcome=kind.outcome(job),
            on_hold=kind.on_hold(job),
            pod_sets=pod_sets,
            reclaimable=kind.reclaimable(job) if whole and self._gates.reclaimable_pods else (),
            priority=priority,
            prebuilt=prebuilt_name(job.metadata),
            gated=self._gates.admission_gated_by,
            elastic=may_grow(kind, job.metadata, self._gates),
        )

    async def _create(self, job: JobObject, view: JobView, old: Workload | None) -> None:
        body = await self._body(job, view, old)
        if body is not None:
            await self._steps.create(self._resource, job.metadata, body)

    async def _update(self, job: JobObject, view: JobView, step: UpdateWorkload) -> None:
        body = await self._body(job, view)
        if body is not None:
            await self._steps.update(self._resource, job.metadata, step, body)

    async def _body(self, job: JobObject, view: JobView, old: Workload | None = None) -> Json:
        """Return the body of the job's workload; None if the job changed meanwhile.

        The whole pod templates are read for it: only a part of a watched job is kept.
        """
        metadata = job.metadata
        whole = await self._writes.client.get(
            self._resource, metadata.name, namespace=metadata.namespace, into=dict[str, Any]
        )
        if whole["metadata"]["resourceVersion"] != metadata.resource_version:
            self._mirror.wrote(msgspec.convert(whole, self._kind.type))
            return None
        draft = Draft(whole)
        given = [draft.get(path) for path in self._kind.templates(job)]
        templates = self._kind.whole(job, given)
        owner = self._owner(job)
        workload = new_workload(
            metadata, owner=owner, pod_sets=view.pod_sets, priority=view.priority
        )
        if view.elastic:
            notes = self._kind.elastic.notes(job) if self._kind.elastic is not None else {}
            workload = as_slice(
                workload, owner=owner, generation=metadata.generation, old=old, notes=notes
            )
        return body_of(workload, templates, self._steps.copied(metadata))

    def _owner(self, job: JobObject) -> OwnerReference:
        return OwnerReference(
            api_version=self._kind.api_version,
            kind=self._kind.kind,
            name=job.metadata.name,
            uid=job.metadata.uid,
            controller=True,
            block_owner_deletion=True,
        )

    async def _start(self, job: JobObject, workload: Workload) -> float | None:
        draft = draft_of(job)
        try:
            flavors = flavors_by_name(self._cache.mirrors.flavors)
            given = injections(workload, flavors, self._gates)
            about, comes = (self._resource, job.metadata), self._kind.comes(job)
            if not await self._steps.gangs.publish(about, workload, given, comes=comes):
                return GANG_SECONDS
            counts = admitted_counts(workload)
            start(draft, job, kind=self._kind, given=given, counts=counts)
        except FlavorMissingError as error:
            log.warning("job_start_delayed", job=job.metadata.key, error=str(error))
            return FLAVOR_SECONDS
        except StartError as error:
            await self._steps.fail_to_start(workload, str(error))
            return None
        if self._kind.fixed_while_started and draft.changed:
            job = await self._patch(job, draft)
            draft = draft_of(job)
        self._kind.resume(draft)
        if STOPPING in job.metadata.annotations:
            draft.remove(("metadata", "annotations", STOPPING))
        await self._patch(job, draft)
        log.info("job_started", job=job.metadata.key, workload=workload.metadata.key)
        self._steps.events.started(self._resource, job.metadata, workload)
        return None

    async def _stop(self, job: JobObject, step: Stop) -> None:
        """Suspend a job and put its template back, in as many writes as the API server asks for.

        An annotation says that the job is between them, as it then looks like one that its user
        has changed.
        """
        suspended = self._kind.suspended(job)
        if not suspended:
            job = await self._suspend(job, step.workload)
            log.info("job_stopped", job=job.metadata.key, reason=step.reason)
            self._writes.record(self._resource, job.metadata, "Stopped", step.message)
        reset = self._kind.reset(job)
        if reset is not None:  # of this version alone: one that has ended keeps when it started
            patch = merge_patch(job.metadata, **reset)
            job = await self._writes.patch(self._mirror, job, patch, subresource="status")
        begun_by_others = (
            suspended and reset is not None and STOPPING not in job.metadata.annotations
        )
        if self._kind.fixed_while_active and self._kind.active(job) and not begun_by_others:
            return
        await self._put_back(job, step.workload)
        if step.workload is not None and not step.fits:
            await self._steps.delete(self._resource, job.metadata, step.workload)

    async def _suspend(self, job: JobObject, workload: Workload | None) -> JobObject:
        """Suspend a job, and put its template back in the same write where that may be.

        Its user may have changed a template so that it cannot be put back: the job stops even so.
        """
        draft = draft_of(job)
        self._kind.suspend(draft)
        if not self._kind.fixed_while_active:
            self._restore(draft, job, workload)
            try:
                return await self._patch(job, draft)
            except (ForbiddenError, InvalidError) as error:
                log.warning("template_not_put_back", job=job.metadata.key, error=str(error))
            draft = draft_of(job)
            self._kind.suspend(draft)
        if workload is not None or not self._kind.fixed_while_active:  # its template comes later
            draft.set(("metadata", "annotations", STOPPING), "true")
        return await self._patch(job, draft)

    async def _put_back(self, job: JobObject, workload: Workload | None) -> None:
        """Put the template of a job back that has stopped; end its stop without, in the end.

        Raises:
            ApiError: If that is refused, and is to be tried again: pods may still be there.
        """
        draft, uid = draft_of(job), job.metadata.uid
        self._restore(draft, job, workload)
        draft.remove(("metadata", "annotations", STOPPING))
        try:
            if draft.changed:
                await self._patch(job, draft)
        except (ForbiddenError, InvalidError) as error:
            since = self._refused.setdefault(uid, self._writes.now)
            if self._writes.now - since < PUT_BACK_SECONDS:
                raise
            log.warning("template_not_put_back", job=job.metadata.key, error=str(error))
            draft = draft_of(job)
            draft.remove(("metadata", "annotations", STOPPING))
            if draft.changed:
                await self._patch(job, draft)
        self._refused.pop(uid, None)

    async def _patch(self, job: JobObject, draft: Draft) -> JobObject:
        """Write what a draft changes of a job, if it still is of the version that was read."""
        patch = versioned(draft, job.metadata)
        return await self._writes.patch(self._mirror, job, patch, kind="json")

    def _restore(self, draft: Draft, job: JobObject, workload: Workload | None) -> None:
        """Restore the templates from the workload; without one, they stay."""
        original = workload.spec.pod_sets if workload is not None else ()
        put_back(draft, job, kind=self._kind, pod_sets=original)


def flavors_by_name(mirror: Mirror[ResourceFlavor]) -> dict[str, ResourceFlavor]:
    """Return the flavors that there are."""
    return {flavor.metadata.name: flavor for flavor in mirror}


def job_reconcilers(cache: Cache, writes: Writes, steps: WorkloadSteps) -> dict[str, JobReconciler]:
    """Return a reconciler for every kind of job, by kind."""
    return {kind.kind: JobReconciler(kind, cache, writes, steps) for kind in KINDS}
