"""Keeps objects whose pods are held for them in step with the workloads of their groups.

A group's workload exists before its pods do. Once the pods are in their group, they are handled
like those of all groups of pods.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec
import structlog

from policyd.api.kueue import Workload
from policyd.api.kueue.names import ADMISSION_GATED_BY, EVICTED, ORIGIN_UID, QUOTA_RESERVED
from policyd.api.meta import Json, condition_true, find_condition
from policyd.controller.jobs.job_steps import WorkloadSteps
from policyd.controller.jobs.parent_pods import ParentPods
from policyd.controller.patches import merge_patch
from policyd.controller.retention import drop_finalizer
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.watch.mirror import Mirror
from policyd.controller.watch.mirrors import job_resource
from policyd.controller.writes import Writes
from policyd.jobs.kinds.registry import PARENTS
from policyd.jobs.lifecycle import gates_of, has_quota, is_finished, is_on_hold, may_take
from policyd.jobs.parents import (
    Parent,
    ParentKind,
    ParentPodGroup,
    PodParent,
    group_name_of,
    group_workload,
    owner_notes,
)
from policyd.jobs.pods import QueuedPod
from policyd.jobs.steps import UpdateWorkload
from policyd.jobs.workload import Priority, body_of
from policyd.kube.changes import Change
from policyd.kube.errors import ApiError
from policyd.patch.draft import Draft
from policyd.patch.merge_patch import merge_difference
from policyd.workload.transitions import is_admitted

log = structlog.get_logger()

AT_ONCE = 50
"""Groups that are looked at before others have their turn: a set may have thousands."""
CLASS_SECONDS = 1.0
"""Between looks for a priority class that is not there yet."""


class ParentReconciler:
    """Reconciles the parents of one kind, one at a time."""

    def __init__(
        self, kind: ParentKind[Any], cache: Cache, writes: Writes, steps: WorkloadSteps
    ) -> None:
        self._kind = kind
        self._cache = cache
        self._writes = writes
        self._steps = steps
        self._resource = job_resource(kind)
        self._pods = ParentPods(kind, cache, writes)
        self._mirror.listen(self.changed)

    @property
    def _mirror(self) -> Mirror[Any]:
        return self._cache.mirrors.jobs[self._kind.key]

    @property
    def _workloads(self) -> Mirror[Workload]:
        return self._cache.mirrors.workloads

    def changed(self, change: Change[Parent]) -> None:
        """Have a parent looked at that changed, and its workloads if it goes."""
        for key in self._cache.job_keys(change, self._kind.key):
            self._cache.hooks.reconcile(key)

    async def reconcile(self, key: ReconcileKey) -> float | None:
        """Do the next step. Returns the seconds until it should be looked at again.

        Raises:
            ApiError: If a write did not succeed.
        """
        pods = self._cache.pods_of(key)
        parent = self._mirror.get(key.path)
        if parent is None:
            await self._pods.leave(pods, key.name, namespace=key.namespace)
            return None
        deleted = parent.metadata.deletion_timestamp is not None
        if deleted or not self._steps.concerns(parent.metadata):
            return None  # its workloads find out by themselves
        assert self._kind.groups is not None, "only kinds of groups are reconciled"
        groups = {each.index: each for each in self._kind.groups(parent)}
        waits = await self._tend_all(parent, groups.values())
        await self._drop_others(parent, groups)
        await self._seat(parent, groups, pods)
        return waits

    # Workloads.

    def _name(self, parent: Parent, index: str) -> str:
        """Return the name of a group's workload: if there is one of long ago, its name."""
        metadata = parent.metadata
        uid, namespace = metadata.annotations.get(ORIGIN_UID) or metadata.uid, metadata.namespace
        name = group_name_of(self._kind, parent, index, uid=uid)
        old = group_name_of(self._kind, parent, index, uid="")
        return old if self._workloads.get(f"{namespace}/{old}") is not None else name

    async def _tend_all(self, parent: Parent, groups: Iterable[ParentPodGroup]) -> float | None:
        """Tend one group after the other; one that cannot be tended does not stop the others."""
        waits, failed = None, None
        for number, group in enumerate(groups):
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
            try:
                if not await self._tend(parent, group):
                    waits = CLASS_SECONDS
            except ApiError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return waits

    async def _tend(self, parent: Parent, group: ParentPodGroup) -> bool:
        """Keep a group's workload equal to the group; False if its priority is not known."""
        job, name = parent.metadata, self._name(parent, group.index)
        workload = self._workloads.get(f"{job.namespace}/{name}")
        if self._kind.outcome(parent) is not None or not group.total:
            await self._rest(parent, workload)
            return True
        pod_sets = self._steps.requested(group.pod_sets)
        priority = self._steps.priority(self._resource, job, pod_sets, workload=workload)
        if priority is None:
            return False
        if ORIGIN_UID in job.annotations and workload is None:
            return True  # a copy: the cluster that sent it creates its workloads, too
        if workload is None:
            body = await self._body(parent, group, name, priority)
            if body is not None:
                await self._steps.create(self._resource, job, body)
        elif not is_finished(workload):
            await self._sync(parent, group, workload, priority)
        return True

    async def _rest(self, parent: Parent, workload: Workload | None) -> None:
        """Finish the workload of a parent that has ended; take the quota of one without pods."""
        ended = self._kind.outcome(parent)
        if workload is None or is_finished(workload):
            return
        if ended is not None:
            await self._steps.finish(self._resource, parent.metadata, workload, ended)
        elif _may_be_held(workload):
            await self._hold(workload)

    async def _body(
        self, parent: Parent, group: ParentPodGroup, name: str, priority: Priority
    ) -> Json:
        """Return the body of a group's workload; None if the parent changed meanwhile."""
        metadata = parent.metadata
        whole = await self._writes.client.get(
            self._resource, metadata.name, namespace=metadata.namespace, into=dict[str, Any]
        )
        if whole["metadata"]["resourceVersion"] != metadata.resource_version:
            self._mirror.wrote(msgspec.convert(whole, self._kind.type))
            return None
        pod_sets = self._steps.requested(group.pod_sets)
        group = ParentPodGroup(index=group.index, pod_sets=pod_sets, paths=group.paths)
        workload = group_workload(self._kind, parent, group, name=name, priority=priority)
        templates = [Draft(whole).get(path) for path in group.paths]
        if self._kind.bare:
            templates = [{"spec": template["spec"]} for template in templates]
        return body_of(workload, templates, self._steps.copied(metadata))

    async def _sync(
        self, parent: Parent, group: ParentPodGroup, workload: Workload, priority: Priority
    ) -> None:
        counts = [each.count for each in workload.spec.pod_sets]
        copied = ORIGIN_UID in parent.metadata.annotations
        resized = not copied and counts != [each.count for each in group.pod_sets]
        if resized and has_quota(workload) and not self._has_pods(workload):
            await self._hold(workload)  # scaled to zero and up again before that was seen
            return
        if resized and not has_quota(workload):
            body = await self._body(parent, group, workload.metadata.name, priority)
            if body is not None:
                step = UpdateWorkload(workload)
                await self._steps.update(self._resource, parent.metadata, step, body)
            return
        if is_on_hold(workload):
            await self._steps.release(workload, on_hold=False)
            return
        if self._has_stopped(workload):
            await self._steps.release(workload)
            return
        await self._submit(parent, workload, priority)

    def _has_stopped(self, workload: Workload) -> bool:
        """Tell whether a group was evicted, and has no pods that would give its quota back."""
        return (
            has_quota(workload)
            and condition_true(workload.status.conditions, EVICTED)
            and not self._has_pods(workload)
        )

    def _has_pods(self, workload: Workload) -> bool:
        metadata = workload.metadata
        return bool(
            self._cache.pods_of(ReconcileKey("PodGroup", metadata.namespace, metadata.name))
        )

    async def _hold(self, workload: Workload) -> None:
        """Take the quota of a group without pods back, until its parent wants some again."""
        why = f"{self._kind.kind} scaled to zero; workload on hold"
        await self._steps.release(workload, on_hold=True, why=why)

    async def _submit(self, parent: Parent, workload: Workload, priority: Priority) -> None:
        """Have a workload queue where, as urgently, and when its parent says."""
        new = group_workload(
            self._kind, parent, _NO_GROUP, name=workload.metadata.name, priority=priority
        )
        held, wanted = _submission(workload), _submission(new)
        kept = set(held) - {"queueName"} if not may_take(workload, priority) else set[str]()
        if is_admitted(workload) or (has_quota(workload) and workload.status.admission_checks):
            kept.add("queueName")  # Kueue's definition does not let it change
        wanted |= {name: held[name] for name in kept}
        spec = merge_difference(held, wanted)
        gates = [gates_of(each.metadata) for each in (workload, parent)]
        same = gates[0] == gates[1] or not self._steps.keys.gates
        metadata: Json = {} if same else {"annotations": {ADMISSION_GATED_BY: gates[1]}}
        owners = workload.metadata.owner_references
        if parent.metadata.uid not in {each.uid for each in owners}:
            all_owners = (*owners, *new.metadata.owner_references)
            metadata["ownerReferences"] = msgspec.to_builtins(all_owners)
            metadata.setdefault("annotations", {}).update(owner_notes(self._kind, parent))
        if not spec and not metadata:
            return
        patch = merge_patch(workload.metadata, **({"spec": spec} if spec else {}))
        patch["metadata"].update(metadata)
        await self._writes.patch(self._workloads, workload, patch)
        if not same:
            message = f'Updated workload AdmissionGatedBy to "{gates[1] or ""}"'
            self._writes.record(self._resource, parent.metadata, "UpdatedWorkload", message)

    async def _drop_others(self, parent: Parent, groups: dict[str, ParentPodGroup]) -> None:
        """Delete the workloads of groups that no longer exist."""
        names = {self._name(parent, index) for index in groups}
        for workload in self._cache.workloads_of(parent.metadata.uid):
            if workload.metadata.name in names:
                continue
            await drop_finalizer(self._writes, self._workloads, workload)
            if workload.metadata.deletion_timestamp is None:
                await self._writes.delete(self._workloads, workload)
                log.info("workload_deleted", workload=workload.metadata.key)

    # Pods.

    async def _seat(
        self, parent: Parent, groups: dict[str, ParentPodGroup], pods: list[QueuedPod]
    ) -> None:
        by_index: dict[str, list[QueuedPod]] = {}
        for pod in pods:
            by_index.setdefault(self._kind.index_of(pod), []).append(pod)
        for number, (index, group) in enumerate(groups.items()):
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
            name = self._name(parent, index)
            seated = self._cache.pods_of(ReconcileKey("PodGroup", parent.metadata.namespace, name))
            seat = PodParent(
                kind=self._kind,
                parent=parent,
                group=group,
                workload=name,
                in_labels=not self._cache.state.settings.gates.workload_identifier_annotations,
            )
            for pod in (*by_index.get(index, ()), *seated):
                await self._pods.place(pod, seat)


_NO_GROUP = ParentPodGroup(index="", pod_sets=(), paths=())


def _submission(workload: Workload) -> Json:
    spec = workload.spec
    reference = spec.priority_class_ref
    return {
        "queueName": spec.queue_name,
        "priority": spec.priority or 0,
        "priorityClassRef": None if reference is None else msgspec.to_builtins(reference),
    }


def _may_be_held(workload: Workload) -> bool:
    """Tell whether a workload has been looked at, and could get quota or has some."""
    considered = find_condition(workload.status.conditions, QUOTA_RESERVED) is not None
    return considered and not (is_on_hold(workload) or is_finished(workload))


def parent_reconcilers(
    cache: Cache, writes: Writes, steps: WorkloadSteps
) -> dict[str, ParentReconciler]:
    """Return a reconciler for every kind of parent whose pods start together, by kind."""
    return {
        kind.key: ParentReconciler(kind, cache, writes, steps) for kind in PARENTS if kind.in_groups
    }
