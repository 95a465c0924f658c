"""Keeps plain pods, alone and in groups, in step with their workloads."""

import asyncio
from collections.abc import Sequence
from typing import Any

import structlog

from policyd.alloc.settings import Gates
from policyd.api.kueue import ReclaimablePod, Workload
from policyd.api.kueue.names import ADMISSION_GATE, IS_GROUP_WORKLOAD
from policyd.api.meta import Json
from policyd.controller.jobs.gangs import GANG_SECONDS, creation_order_of
from policyd.controller.jobs.job_reconciler import FLAVOR_SECONDS, PREBUILT_SECONDS, flavors_by_name
from policyd.controller.jobs.job_steps import WorkloadSteps
from policyd.controller.jobs.membership import Membership
from policyd.controller.patches import draft_of, versioned
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import ReconcileKey, owner_keys
from policyd.controller.watch.mirror import Mirror
from policyd.controller.writes import Writes
from policyd.jobs.base import controller_of
from policyd.jobs.copied import CopiedMetadata, DifferentMetadataError
from policyd.jobs.gangs.gang import start_order
from policyd.jobs.injection import FlavorMissingError, PodInjection, StartError, injections
from policyd.jobs.kinds.registry import parent_of_owner
from policyd.jobs.lifecycle import is_finished, is_on_hold, next_step
from policyd.jobs.matching import is_of_group, without_prebuilt
from policyd.jobs.pod_groups import PodGroup, Successes, new_group_workload, pod_template
from policyd.jobs.pods import (
    SUSPENDING_PARENT,
    QueuedPod,
    by_age,
    is_kept,
    is_let_go,
    is_over,
    owner_reference,
    pod_set_of,
    ungate,
)
from policyd.jobs.steps import (
    Adopt,
    CreateWorkload,
    JobView,
    Retire,
    Start,
    Step,
    Stop,
    UpdateWorkload,
)
from policyd.jobs.workload import body_of, new_workload
from policyd.kube.errors import ConflictError
from policyd.kube.resources import PODS

log = structlog.get_logger()

MEMBERS_SECONDS = 5.0
"""How long a group may be incomplete before that is recorded: its pods are still being created.
After twice as long, the event has their number."""


class PodReconciler:
    """Reconciles one group of pods, or one pod that is in none, at a time."""

    def __init__(self, cache: Cache, writes: Writes, steps: WorkloadSteps) -> None:
        self._cache = cache
        self._writes = writes
        self._steps = steps
        self._membership = Membership(cache, writes)
        self._successes: dict[str, Successes] = {}

    @property
    def _gates(self) -> Gates:
        return self._cache.state.settings.gates

    @property
    def _pods(self) -> Mirror[QueuedPod]:
        return self._cache.mirrors.pods

    @property
    def _workloads(self) -> Mirror[Workload]:
        return self._cache.mirrors.workloads

    async def reconcile(self, key: ReconcileKey) -> float | None:
        """Do the next step. Returns the seconds until it should be looked at again.

        Raises:
            ApiError: If a write did not succeed.
        """
        pods = by_age(self._cache.pods_of(key))
        if not pods:
            self._reconcile_parent(key)
            return None  # its workload finds out by itself
        group = PodGroup(name=key.name if key.subject == "PodGroup" else "", pods=tuple(pods))
        goes_on = self._concerns(group.first) and not self._is_refused(group)
        own, others = group.by_size() if goes_on else (group, pods)
        await self._membership.let_out(p for p in others if is_kept(p) and is_over(p))
        return await self._reconcile_group(own) if goes_on else None

    def _is_refused(self, group: PodGroup) -> bool:
        """Tell whether nothing can become of a group, and say so.

        One that has a workload goes on, and is stopped when it has to be, whatever pods are added.
        """
        contradiction = group.contradiction()
        if contradiction:
            waits = next(iter(group.gated()), group.first)
            self._writes.record(
                PODS, waits.metadata, "ErrWorkloadCompose", contradiction, warning=True
            )
            if self._named(group) is None:
                return True
        return bool(group.name) and self._name_is_taken(group)

    def _reconcile_parent(self, key: ReconcileKey) -> None:
        """Reconcile the parent of a group, now that none of its pods is left."""
        workload = self._workloads.get(key.path)
        if key.subject == "PodGroup" and workload is not None:
            for owner in owner_keys(workload) - {key}:
                self._cache.hooks.reconcile(owner)

    def _concerns(self, pod: QueuedPod) -> bool:
        made = SUSPENDING_PARENT in pod.metadata.annotations
        on = made or self._cache.integrations.plain_pods
        return on and self._steps.concerns(pod.metadata)

    def _name_is_taken(self, group: PodGroup) -> bool:
        workload = self._named(group)
        if workload is None:
            return False
        if group.prebuilt:
            # What stands for a job has its quota: pods of a group would run beside the job's.
            taken = controller_of(workload.metadata) is not None
        else:
            noted = workload.metadata.annotations.get(IS_GROUP_WORKLOAD) == "true"
            taken = self._gates.pod_integration_validate_group_owner and not noted
        if not taken:
            return False
        message = (
            f'A Workload named "{group.name}" already exists but is not a pod group workload; '
            "this pod group cannot be admitted"
        )
        self._record(group, "WorkloadNameConflict", message, warning=True)
        return True

    async def _reconcile_group(self, group: PodGroup) -> float | None:
        workload, others = self._match(group)
        succeeded = self._succeeded(group, workload)
        if await self._membership.tend(group, workload):
            return None
        if workload is not None and not is_finished(workload):
            group = group.within(workload)
        view = self._view(group, workload, succeeded)
        if view is None:
            return FLAVOR_SECONDS
        self._steps.events.checks(PODS, view.metadata, workload)
        step = self._next(group, view, workload, others)
        if step is not None:
            return await self._take(group, view, step)
        return await self._stay(group, view, workload)

    async def _stay(
        self, group: PodGroup, view: JobView, workload: Workload | None
    ) -> float | None:
        """Do the work for pods that stay as they are; returns the same as `reconcile`."""
        if workload is None:
            left = await self._membership.call_off(group, None)
            return left if left is not None else self._await(group, view)
        left = self._steps.deactivated_left(workload)
        if left is not None:
            return await self._retire(group, workload, left)
        counted = self._succeeded(group, workload)
        if await self._membership.note_missing(group, workload, counted):
            return None
        return await self._membership.call_off(group, workload)

    async def _retire(self, group: PodGroup, workload: Workload, left: float) -> float | None:
        """Delete pods whose workload was deactivated, once they were kept long enough.

        Returns the same as `reconcile`.
        """
        await self._steps.delete_deactivated(self._pods, group.first, workload)
        if left > 0:
            return left
        await self._membership.let_out(p for p in group.pods if is_kept(p) and is_over(p))
        return None

    def _next(
        self, group: PodGroup, view: JobView, workload: Workload | None, others: list[Workload]
    ) -> Step | None:
        if group.prebuilt and workload is None:
            named = None if group.name else self._named(group)
            if named is not None and not (controller_of(named.metadata) or is_of_group(named)):
                return Adopt(named)
            return without_prebuilt(view, next(iter(others), None))
        if workload is not None and is_on_hold(workload):
            return None  # its creator says when it may queue again
        watched = workload is not None and self._steps.watches(workload)
        return next_step(view, workload, others, watched=watched)

    def _await(self, group: PodGroup, view: JobView) -> float | None:
        """Record that pods of a group are missing, once none was added for a while."""
        if group.prebuilt and view.outcome is None:
            return PREBUILT_SECONDS
        newest = group.pods[-1].metadata.creation_timestamp
        if view.complete or newest is None or not group.gated():
            return None
        left = newest.timestamp() + MEMBERS_SECONDS - self._writes.now
        if left > 0:
            return left
        message = f"'{group.name}' group has fewer runnable pods than expected"
        patient = left + MEMBERS_SECONDS
        if patient <= 0:
            message += f": {len(group.running_or_able_to())} of {group.total} pods are there"
        self._record(group, "ErrWorkloadCompose", message, warning=True)
        return patient if patient > 0 else None

    def _match(self, group: PodGroup) -> tuple[Workload | None, list[Workload]]:
        if group.name:
            named = self._named(group)
            if named is None:
                return None, []
            return (named, []) if group.fits(named) else (None, [named])
        owned = self._cache.workloads_of(group.first.metadata.uid)
        found = next((each for each in owned if group.fits(each)), None)
        return found, [each for each in owned if each is not found]

    def _named(self, group: PodGroup) -> Workload | None:
        return self._workloads.get(f"{group.first.metadata.namespace}/{group.workload_name}")

    def _succeeded(self, group: PodGroup, workload: Workload | None) -> tuple[ReclaimablePod, ...]:
        if workload is None or not group.name:
            return Successes(group, ()).count(group)
        uid = workload.metadata.uid
        if is_finished(workload):
            self._successes.pop(uid, None)
            return workload.status.reclaimable_pods
        if uid not in self._successes:
            self._successes[uid] = Successes(group, workload.status.reclaimable_pods)
        return self._successes[uid].count(group)

    def _view(
        self, group: PodGroup, workload: Workload | None, succeeded: tuple[ReclaimablePod, ...]
    ) -> JobView | None:
        pod_sets = self._steps.requested(group.pod_sets())
        priority = self._steps.priority(PODS, group.first.metadata, pod_sets, workload=workload)
        if priority is None:
            return None
        keeps = group.serving or not group.name
        complete, running = self._is_complete(group), any(is_let_go(pod) for pod in group.pods)
        return JobView(
            metadata=group.first.metadata,
            held=bool(group.to_let_go()) and (complete or running or not self._as_one(group)),
            running=running,
            active=group.active(
                now=self._writes.now, fast=self._gates.fast_quota_release_in_pod_integration
            ),
            ready=group.ready(),
            complete=complete,
            outcome=group.outcome(succeeded),
            pod_sets=pod_sets,
            reclaimable=() if keeps or not self._gates.reclaimable_pods else succeeded,
            priority=priority,
            follows=group.serving or self._has_parent(group),
            gated=self._gates.admission_gated_by,
            leaves=any(pod.metadata.deletion_timestamp is None for pod in group.pods),
        )

    def _has_parent(self, group: PodGroup) -> bool:
        """Tell whether the workload of a group is one that a StatefulSet or the like has made."""
        workload = self._named(group) if group.name else None
        owners = () if workload is None else workload.metadata.owner_references
        return any(parent_of_owner(each) is not None for each in owners)

    def _is_complete(self, group: PodGroup) -> bool:
        """Tell whether all pods exist that are made before one of them has to run."""
        in_time = len(group.running_or_able_to()) >= group.total
        return in_time or group.fast or creation_order_of(self._cache.mirrors, group.first) != ""

    def _as_one(self, group: PodGroup) -> bool:
        """Tell whether no pod may start before all exist: as a gang, or as one waits."""
        workload = self._named(group) if group.name else None
        ordered = any(start_order(pod.metadata) for pod in group.pods)
        return ordered or (workload is not None and self._steps.gangs.hands_over(workload))

    # Steps.

    async def _take(self, group: PodGroup, view: JobView, step: Step) -> float | None:
        match step:
            case CreateWorkload():
                await self._create(group, view)
            case Adopt(workload=workload):
                await self._steps.adopt(workload, owner_reference(group.first, controller=True))
            case UpdateWorkload():
                body = await self._body(group, view)
                await self._steps.update(PODS, group.first.metadata, step, body)
            case Start(workload=workload):
                return await self._start(group, workload)
            case Stop():
                await self._stop(group, step)
            case _:
                await self._steps.take(PODS, view, step)
                # Pods whose prebuilt workload was retired stop with it.
                stop = without_prebuilt(view, None) if isinstance(step, Retire) else None
                if isinstance(stop, Stop):
                    await self._stop(group, stop)
        return None

    async def _create(self, group: PodGroup, view: JobView) -> None:
        try:
            body = await self._body(group, view)
        except DifferentMetadataError as error:
            self._record(group, "ErrWorkloadCompose", str(error), warning=True)
            return
        await self._steps.create(PODS, group.first.metadata, body)

    async def _body(self, group: PodGroup, view: JobView) -> Json:
        """Return the body of the group's workload, with the whole specification of its pods."""
        metadata = group.first.metadata
        templates = []
        for name in group.examples():
            whole = await self._writes.client.get(
                PODS, name, namespace=metadata.namespace, into=dict[str, Any]
            )
            templates.append(pod_template(whole))
        if group.name:
            made = new_group_workload(group, pod_sets=view.pod_sets, priority=view.priority)
            return body_of(made, templates, self._copied(group))
        owner = owner_reference(group.first, controller=True)
        workload = new_workload(
            metadata, owner=owner, pod_sets=view.pod_sets, priority=view.priority
        )
        return body_of(workload, templates, self._copied(group))

    def _copied(self, group: PodGroup) -> CopiedMetadata:
        return self._steps.copied(*(pod.metadata for pod in group.pods))

    def _runs_elsewhere(self, workload: Workload) -> bool:
        """Tell whether the pods of a workload run on another cluster, and stay gated here."""
        chosen = workload.status.cluster_name is not None
        return chosen or self._cache.check_away(workload) is not None

    async def _start(self, group: PodGroup, workload: Workload) -> float | None:
        if self._runs_elsewhere(workload):
            return None
        try:
            flavors = flavors_by_name(self._cache.mirrors.flavors)
            given = injections(workload, flavors, self._gates)
            about, pods = (PODS, group.first.metadata), group.metadata_by_pod_set(workload)
            comes = creation_order_of(self._cache.mirrors, group.first)
            if not await self._steps.gangs.publish(about, workload, given, comes=comes, pods=pods):
                return GANG_SECONDS
            names = (pod_set.name for pod_set in workload.spec.pod_sets)
            by_pod_set = dict(zip(names, given, strict=True))
            turn, again = self._membership.admit_members(group.to_let_go(), workload)
            patches = [(pod, self._ungating(pod, workload, by_pod_set)) for pod in turn]
        except FlavorMissingError as error:
            log.warning("job_start_delayed", pods=group.first.metadata.key, error=str(error))
            return FLAVOR_SECONDS
        except StartError as error:
            await self._steps.fail_to_start(workload, str(error))
            return None
        calls = (self._writes.patch(self._pods, pod, p, kind="json") for pod, p in patches)
        _raise_first(await asyncio.gather(*calls, return_exceptions=True))
        if patches:
            log.info("pods_started", workload=workload.metadata.key, pods=len(patches))
        for pod, _ in patches:
            self._cache.hooks.ungated(ADMISSION_GATE, pod, workload)
            self._steps.events.started(PODS, pod.metadata, workload)
        return again

    def _ungating(
        self, pod: QueuedPod, workload: Workload, given: dict[str, PodInjection]
    ) -> Sequence[object]:
        draft = draft_of(pod)
        ungate(draft, given[pod_set_of(pod, workload)])
        return versioned(draft, pod.metadata)

    async def _stop(self, group: PodGroup, step: Stop) -> None:
        await self._membership.dismiss(group, step.reason, step.message)
        if step.workload is not None and not step.fits:
            await self._steps.delete(PODS, group.first.metadata, step.workload)
        log.info("pods_stopped", pods=group.first.metadata.key, reason=step.reason)

    def _record(self, group: PodGroup, reason: str, message: str, *, warning: bool = False) -> None:
        self._writes.record(PODS, group.first.metadata, reason, message, warning=warning)


def _raise_first(results: Sequence[object]) -> None:
    """Raise the first error among the results, the conflicts last: they resolve themselves."""
    errors = [result for result in results if isinstance(result, BaseException)]
    if errors:
        raise min(errors, key=lambda error: isinstance(error, ConflictError))
