"""Workloads that go to other clusters: their copies there, and what comes back."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from msgspec.structs import replace

from policyd.api.kueue import Admission, AdmissionCheckState, Workload, WorkloadStatus
from policyd.api.kueue.names import DEACTIVATION_TARGET, RESOURCE_IN_USE_FINALIZER
from policyd.api.meta import (
    Condition,
    Json,
    ObjectMeta,
    OwnerReference,
    find_condition,
    timestamp,
    with_condition,
)
from policyd.controller.multikueue.context import ManagerContext
from policyd.controller.multikueue.forecasts import WorkerForecasts
from policyd.controller.multikueue.handed_jobs import HandedJob, HandedJobs, job_of, pods_of
from policyd.controller.multikueue.remotes import WORKER_PAGE, Remote, Remotes
from policyd.controller.patches import as_json, merge_patch
from policyd.controller.watch.keys import ReconcileKey
from policyd.errors import PolicydError
from policyd.jobs.kinds.registry import parent_of_owner
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.jobs.parents import COMPONENT_INDEX, Parent, ParentKind
from policyd.jobs.pods import QueuedPod
from policyd.kube.changes import Change, Deleted
from policyd.kube.client import Client, DeleteOptions, PartialObject
from policyd.kube.errors import ApiError, NotFoundError, UndecodableError, UnreachableError
from policyd.kube.pages import pages
from policyd.kube.resources import PODS, WORKLOADS, Resource
from policyd.multikueue.copies import (
    NOT_OURS,
    StatusBack,
    copied_job,
    copied_workload,
    is_ours,
    status_back,
    unsendable,
    without_report,
)
from policyd.multikueue.dispatch import (
    DEFERRED_SECONDS,
    EVICTED_ON_MANAGER,
    ROUND_SECONDS,
    Action,
    Create,
    Deactivate,
    DispatchPlan,
    FinishWorkload,
    Group,
    Nominate,
    OpenGate,
    Push,
    Remove,
    SetCheck,
    SyncJob,
    Withdraw,
    next_round,
    plan,
    waits_for_worker,
)
from policyd.multikueue.settings import FORECAST, INCREMENTAL, ORIGIN
from policyd.patch.merge_patch import merge_difference
from policyd.workload.transitions import finish

log = structlog.get_logger()

MOST_GONE = 10_000
"""Deleted workloads that are remembered until their copies are; the collection finds the rest."""
AT_ONCE = 8
"""Pods that are looked up at a time."""
AGAIN_SECONDS = 5.0
"""Until a workload is tried again of which something is not as it should be."""
LATEST_SECONDS = 300.0
"""Until that at most, if it lasts."""


class ForeignObjectError(ApiError):
    """An object of the same name exists on a worker that was made by someone else."""


class Dispatches:
    """Reconciles workloads with their copies."""

    def __init__(
        self,
        context: ManagerContext,
        remotes: Remotes,
        clusters_of: Callable[[str], tuple[str, ...] | None],
    ) -> None:
        self._cache = context.cache
        self._mirror = context.cache.mirrors.workloads
        self._writes = context.writes
        self._settings = context.settings
        self._metrics = context.metrics
        self._remotes = remotes
        self._clusters_of = clusters_of
        self._gone: OrderedDict[str, Workload] = OrderedDict()
        self._jobs = HandedJobs(context)
        self._rounds: dict[str, float] = {}
        self._failing: dict[str, Mapping[str, float]] = {}
        """Since when clusters do not show their copy of a workload, by its key."""
        self._forecasts = WorkerForecasts(context.settings, context.writes.pace)

    def changed(self, change: Change[Workload]) -> None:
        """Take in a change of a workload, if its check sends it away."""
        workload = change.object
        if self._cache.check_away(workload) is None:
            return
        key = workload.metadata.key
        if isinstance(change, Deleted):
            self._rounds.pop(key, None)
            self._forecasts.forget(key)
            self._gone[key] = workload
            if len(self._gone) > MOST_GONE:
                self._gone.popitem(last=False)
        self._cache.hooks.reconcile(self.key_of(workload))

    def pod_changed(self, change: Change[QueuedPod]) -> None:
        """Take in that a pod goes, which does not change its workload."""
        pod = change.object
        if not isinstance(change, Deleted) and pod.metadata.deletion_timestamp is None:
            return
        for workload in self._cache.workloads_of(pod.metadata.uid):
            if self._cache.check_away(workload) is not None:
                self._cache.hooks.reconcile(self.key_of(workload))

    def key_of(self, workload: Workload) -> ReconcileKey:
        """Return the key by which a workload is reconciled here."""
        return ReconcileKey("MultiKueue", workload.metadata.namespace, workload.metadata.name)

    async def reconcile(self, key: ReconcileKey) -> float | None:
        """Take the next steps of a workload. Returns the seconds until it is looked at again.

        Raises:
            ApiError: If a cluster refused a step, or does not answer.
        """
        stored = self._mirror.get(key.path)
        workload = stored or self._gone.get(key.path)
        if workload is None:
            self._forget(key.path)
            return None
        deleted = stored is None or workload.metadata.deletion_timestamp is not None
        state = self._cache.check_away(workload)
        if state is None or state.state == "Rejected":
            self._forget(key.path)
            return None
        handed = await self._handed(workload, state, deleted=deleted)
        if handed is None:
            self._forget(key.path)
            return None
        group = await self._group(workload, state, handed)
        if deleted or not handed.owner.uid:
            everywhere = DispatchPlan(tuple(Remove(cluster) for cluster in group.copies))
            await self.perform(group, handed, everywhere)
            self._forget(key.path)
            return None
        group, left = await self._next_round(group)
        steps = plan(group, self._settings, now=self._writes.now)
        again = await self.perform(group, handed, steps)
        waits = [each for each in (again, left, self._tries_again(key)) if each is not None]
        return min(waits) if waits else None

    def _tries_again(self, key: ReconcileKey) -> float | None:
        """Return in how many seconds clusters that do not show a copy are asked again, if any."""
        since = min(self._failing.get(key.path, {}).values(), default=None)
        if since is None:
            return None
        return min(max(self._writes.now - since, AGAIN_SECONDS), LATEST_SECONDS)

    def _forget(self, path: str) -> None:
        """Forget a workload of which there is nothing more to do."""
        self._gone.pop(path, None)
        self._failing.pop(path, None)

    # The job.

    async def _handed(
        self, workload: Workload, state: AdmissionCheckState, *, deleted: bool
    ) -> HandedJob | None:
        """Return the job of a workload; without one that can be sent, the check is rejected."""
        found = await self._jobs.find(workload, deleted=deleted)
        if isinstance(found, HandedJob):
            return found
        if not deleted:
            message = f'{found}, Previously: "{state.state}"'
            await self._write_state(workload, replace(state, state="Rejected", message=message))
        return None

    # The copies.

    async def _group(
        self, workload: Workload, state: AdmissionCheckState, handed: HandedJob
    ) -> Group:
        names = self._clusters_of(state.name)
        if names is None:
            raise NotFoundError(f'admission check "{state.name}" has no config')
        clients = {name: self._remotes.connected(name) for name in names}
        reachable = {name: client for name, client in clients.items() if client is not None}
        for name in reachable:
            remote = self._remotes.by_name[name]
            remote.follow(handed.resource)
        found = await asyncio.gather(
            *(self._read_copy(workload, name, client) for name, client in reachable.items())
        )
        answers = dict(zip(reachable, found, strict=True))
        copies = {n: each for n, each in answers.items() if not isinstance(each, PolicydError)}
        lost_at = self._remotes.lost_at(name for name in names if name not in reachable)
        failing = self._note_failing(workload, [name for name in answers if name not in copies])
        return Group(
            local=workload,
            check=state.name,
            copies=copies,
            unreachable=[name for name in names if name not in copies],
            lost_at={**lost_at, **failing},
            follows=self._follows(workload, handed.owner),
        )

    def _follows(self, workload: Workload, owner: OwnerReference) -> str | None:
        """Return the worker that a workload has to go to, as another of its object runs there.

        Empty if that is not known yet, None if the workload may go anywhere. The first of several
        workloads is sent first, once all exist, and the others follow.
        """
        parent = self._parent(owner, workload.metadata.namespace)
        if COMPONENT_INDEX not in workload.metadata.annotations or parent is None:
            return None
        kind, found = parent
        there = sorted(self._siblings(workload, owner), key=_component)
        known = (w.status.cluster_name for w in there if w is not workload)
        chosen = next(filter(None, known), None)
        if chosen is not None or workload.status.cluster_name is not None:
            return chosen
        complete = kind.groups is not None and len(there) >= len(kind.groups(found))
        first = there[0].metadata.name == workload.metadata.name
        return None if complete and first else ""

    def _parent(
        self, owner: OwnerReference, namespace: str
    ) -> tuple[ParentKind[Any], Parent] | None:
        kind = parent_of_owner(owner)
        if kind is None:
            return None
        found = self._cache.mirrors.jobs[kind.key].get(f"{namespace}/{owner.name}")
        if not isinstance(found, Parent) or found.metadata.uid != owner.uid:
            return None
        return kind, found

    def _siblings(self, workload: Workload, owner: OwnerReference) -> list[Workload]:
        """Return the workloads of one object that have not ended; this one is among them."""
        others = (w for w in self._cache.workloads_of(owner.uid) if not is_finished(w))
        return [w for w in others if w.metadata.key != workload.metadata.key] + [workload]

    def _is_needed(self, group: Group, handed: HandedJob, cluster: str) -> bool:
        """Tell whether other workloads of a job on a worker run on."""
        owner, local = handed.owner, group.local
        if parent_of_owner(owner) is None:
            return False
        if self._parent(owner, local.metadata.namespace) is None:
            return False
        others = (w for w in self._siblings(local, owner) if w is not local)
        return any(has_quota(w) and w.status.cluster_name == cluster for w in others)

    def _note_failing(self, workload: Workload, clusters: Sequence[str]) -> Mapping[str, float]:
        """Note which clusters do not show their copy of a workload; return since when."""
        key = workload.metadata.key
        before, now = self._failing.pop(key, {}), self._writes.now
        if clusters:
            self._failing[key] = {name: before.get(name, now) for name in clusters}
        return self._failing.get(key, {})

    async def _read_copy(
        self, workload: Workload, cluster: str, client: Client
    ) -> Workload | PolicydError | None:
        """Return the copy on a cluster; an error if that cluster does not show it.

        The error is returned, as the workload may run, or begin to, on another cluster.
        """
        metadata = workload.metadata
        try:
            copy = await client.get(
                WORKLOADS, metadata.name, namespace=metadata.namespace, into=Workload
            )
        except NotFoundError:
            return None
        except PolicydError as error:
            if isinstance(error, UnreachableError):
                self._remotes.lose(cluster)
            log.warning("copy_not_read", workload=metadata.key, cluster=cluster, error=str(error))
            return error
        ours = copy.metadata.labels.get(ORIGIN) == self._settings.origin
        return copy if ours else None

    async def _next_round(self, group: Group) -> tuple[Group, float | None]:
        """Nominate more workers, if it is time to and this is the dispatcher that does."""
        local, key = group.local, group.local.metadata.key
        if self._settings.dispatcher == FORECAST:
            return await self._forecast_round(group)
        if self._settings.dispatcher != INCREMENTAL:
            return group, None
        if is_finished(local) or not has_quota(local):
            self._rounds.pop(key, None)
            return group, None
        known = local.status.nominated_cluster_names
        clusters = (self._clusters_of(group.check) or ()) if waits_for_worker(group) else ()
        names = next_round(known, clusters, self._settings)
        if names == known:
            return group, None
        begun = self._rounds.get(key)
        if begun is not None and self._writes.now - begun <= ROUND_SECONDS:
            return group, ROUND_SECONDS - (self._writes.now - begun)
        stored = await self._write(local, replace(local.status, nominated_cluster_names=names))
        self._rounds[key] = self._writes.now
        return group._replace(local=stored), ROUND_SECONDS

    async def _forecast_round(self, group: Group) -> tuple[Group, float | None]:
        """Nominate the worker where a workload starts first, if it is time to look for one."""
        local = group.local
        if is_finished(local) or not has_quota(local) or not waits_for_worker(group):
            self._forecasts.forget(local.metadata.key)
            return group, None
        if group.follows is not None:
            return group, None
        clients = {name: self._remotes.connected(name) for name in group.copies}
        found = await self._forecasts.next_choice(
            local, {name: client for name, client in clients.items() if client is not None}
        )
        if found.names == local.status.nominated_cluster_names:
            return group, found.again
        status = replace(local.status, nominated_cluster_names=found.names)
        return group._replace(local=await self._write(local, status)), found.again

    # The steps.

    async def perform(self, group: Group, handed: HandedJob, steps: DispatchPlan) -> float | None:
        """Take steps. Returns the seconds until the workload is looked at again.

        A cluster that creates or removes nothing keeps no other from its part.

        Raises:
            ApiError: If a cluster refused a step; of several errors, the first.
        """
        failed: ApiError | PolicydError | None = None
        deferred = False
        for action in steps.actions:
            try:
                deferred |= await self._take(group, handed, action)
            except PolicydError as error:
                if not isinstance(action, Create | Remove):
                    raise
                failed = failed or error
                log.warning(
                    "cluster_refused",
                    workload=group.local.metadata.key,
                    cluster=action.cluster,
                    error=str(error),
                )
        if failed is not None:
            raise failed
        if steps.error:
            log.warning(
                "workload_not_dispatched", workload=group.local.metadata.key, error=steps.error
            )
            return AGAIN_SECONDS
        return DEFERRED_SECONDS if deferred else steps.again

    async def _take(self, group: Group, handed: HandedJob, action: Action) -> bool:
        """Take one step; tell whether the status of the job has to wait."""
        match action:
            case Remove(cluster=cluster):
                await self._remove(group, handed, cluster)
            case SyncJob():
                return await self._sync(group.local, handed, action)
            case Withdraw():
                await self._withdraw(group.local, handed)
            case Push():
                await self._push(group, action)
            case OpenGate(cluster=cluster, gates=gates):
                status = replace(self._copy(group, cluster).status, preemption_gates=gates)
                await self._patch_copy(group, cluster, status)
            case Deactivate():
                await self._deactivate(group, action)
            case Create():
                await self._create(group.local, action)
            case _:
                await self._take_here(group, action)
        return False

    async def _take_here(self, group: Group, action: SetCheck | FinishWorkload | Nominate) -> None:
        """Take a step that changes the workload itself."""
        local = group.local
        match action:
            case SetCheck():
                await self._set_check(group, action)
            case FinishWorkload(reason=reason, message=message):
                now = self._writes.now
                await self._write(local, finish(local, reason=reason, message=message, now=now))
            case Nominate(clusters=clusters):
                status = replace(local.status, nominated_cluster_names=clusters)
                await self._write(local, status)

    async def _remove(self, group: Group, handed: HandedJob, cluster: str) -> None:
        """Delete the job on a worker first: without its workload it would run on."""
        client, namespace = self._client(cluster), group.local.metadata.namespace
        if not self._is_needed(group, handed, cluster):
            for name in handed.names:
                await self._delete_job(client, handed.resource, namespace, name)
        copy = group.copies.get(cluster)
        if copy is not None:
            await self._delete_copy(client, copy.metadata)

    async def _delete_job(
        self, client: Client, resource: Resource, namespace: str, name: str
    ) -> None:
        try:
            job = await client.get(resource, name, namespace=namespace, into=PartialObject)
        except NotFoundError:
            return
        if is_ours({"labels": job.metadata.labels}, self._settings.origin):
            await _delete(client, resource, namespace, name, job.metadata.uid)

    async def _delete_copy(self, client: Client, metadata: ObjectMeta) -> None:
        if RESOURCE_IN_USE_FINALIZER in metadata.finalizers:
            kept = [f for f in metadata.finalizers if f != RESOURCE_IN_USE_FINALIZER]
            patch = {"metadata": {"finalizers": kept}}
            try:
                await client.patch(
                    WORKLOADS,
                    metadata.name,
                    patch,
                    into=PartialObject,
                    namespace=metadata.namespace,
                )
            except NotFoundError:
                return
        await _delete(client, WORKLOADS, metadata.namespace, metadata.name, metadata.uid)

    async def _sync(self, local: Workload, handed: HandedJob, action: SyncJob) -> bool:
        """Create the job on a worker, or copy its status back; tell whether that has to wait."""
        if not handed.pods:
            return await self._sync_object(local, handed, action, handed.owner.name)
        client, namespace = self._client(action.cluster), local.metadata.namespace
        for start in range(0, len(handed.pods), AT_ONCE):
            some = handed.pods[start : start + AT_ONCE]
            jobs = await asyncio.gather(*(self._find_pod(name, namespace) for name in some))
            for name, pod in zip(some, jobs, strict=True):
                if pod is None:
                    await self._delete_job(client, PODS, namespace, name)
                else:
                    await self._sync_object(local, handed, action, name)
        return False

    async def _find_pod(self, name: str, namespace: str) -> QueuedPod | None:
        """Return a pod here; None if it is gone, or to be."""
        pod = self._cache.mirrors.pods.get(f"{namespace}/{name}")
        if pod is None:
            try:
                pod = await self._writes.client.get(PODS, name, namespace=namespace, into=QueuedPod)
            except NotFoundError:
                return None
        return pod if pod.metadata.deletion_timestamp is None else None

    async def _sync_object(
        self, local: Workload, handed: HandedJob, action: SyncJob, name: str
    ) -> bool:
        client, namespace = self._client(action.cluster), local.metadata.namespace
        resource, workload = handed.resource, local.metadata.name
        job = await self._writes.client.get(
            resource, name, namespace=namespace, into=dict[str, Any]
        )
        job = {"apiVersion": resource.api_version, "kind": resource.kind, **job}
        try:
            copy = await client.get(resource, name, namespace=namespace, into=dict[str, Any])
        except NotFoundError:
            copy = None
        if copy is None:
            if not action.only_back:
                await self._send(local, handed, job, action.cluster)
            return False
        back = self._status_back(job, copy, workload, action.cluster)
        if back.deferred:
            return True
        if back.status is not None:
            await self._write_job(resource, job, back.status)
        if back.forwarded is not None:
            await client.patch(
                resource, name, back.forwarded, into=PartialObject, namespace=namespace
            )
        return False

    def _status_back(
        self, job: dict[str, Any], copy: dict[str, Any], workload: str, cluster: str
    ) -> StatusBack:
        """Return what a job gets from its copy, which may be anything.

        Raises:
            ApiError: If the copy is another's, or cannot be read.
        """
        try:
            if not is_ours(copy["metadata"], self._settings.origin):
                raise ForeignObjectError(NOT_OURS)
            return status_back(job, copy, workload, self._settings)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            what = f"the copy of `{job['metadata']['name']}` on cluster `{cluster}`"
            raise UndecodableError(f"{what} has values of wrong types") from error

    async def _send(
        self, local: Workload, handed: HandedJob, job: dict[str, Any], cluster: str
    ) -> None:
        """Create the copy of a job on a worker."""
        resource, name = handed.resource, job["metadata"]["name"]
        if reason := unsendable(handed.manager, job, local):
            self._jobs.forget(handed.owner)
            raise ForeignObjectError(f"no copy of {resource.kind} `{name}` is made: {reason}")
        body = copied_job(job, handed.manager, local.metadata.name, self._settings)
        namespace = local.metadata.namespace
        await self._client(cluster).create(resource, body, into=PartialObject, namespace=namespace)
        log.info("job_sent", workload=local.metadata.key, cluster=cluster)

    async def _withdraw(self, local: Workload, handed: HandedJob) -> None:
        if handed.manager.holds:
            return  # pods that have gates here are replaced, and run nowhere in the meantime
        resource = handed.resource
        job = await self._writes.client.get(
            resource, handed.owner.name, namespace=local.metadata.namespace, into=dict[str, Any]
        )
        status = without_report({"kind": resource.kind, **job})
        if status != job.get("status"):
            await self._write_job(resource, job, status)

    async def _write_job(self, resource: Resource, job: dict[str, Any], status: Json) -> None:
        self._writes.must_lead()
        metadata = job["metadata"]
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": status
            if status is None
            else merge_difference(job.get("status") or {}, status),
        }
        await self._writes.client.patch(
            resource,
            metadata["name"],
            patch,
            into=PartialObject,
            namespace=metadata["namespace"],
            subresource="status",
        )

    async def _push(self, group: Group, action: Push) -> None:
        local = await self._whole(group.local)
        spec = {k: v for k, v in local["spec"].items() if k != "preemptionGates"}
        if action.spec == "priority":
            names = ("priorityClassRef", "priority")
            spec = {name: spec.get(name) for name in names}
        metadata = self._copy(group, action.cluster).metadata
        await self._client(action.cluster).patch(
            WORKLOADS,
            metadata.name,
            merge_patch(metadata, spec=spec),
            into=PartialObject,
            namespace=metadata.namespace,
        )

    async def _deactivate(self, group: Group, action: Deactivate) -> None:
        copy = self._copy(group, action.cluster)
        known = find_condition(copy.status.conditions, DEACTIVATION_TARGET)
        if known is not None and known.status == "True":
            return
        condition = Condition(
            type=DEACTIVATION_TARGET,
            status="True",
            reason=EVICTED_ON_MANAGER,
            message=action.message,
            last_transition_time=timestamp(self._writes.now),
            observed_generation=copy.metadata.generation,
        )
        conditions = with_condition(copy.status.conditions, condition)
        status = replace(copy.status, conditions=conditions)
        await self._patch_copy(group, action.cluster, status)

    async def _patch_copy(self, group: Group, cluster: str, status: WorkloadStatus) -> None:
        copy = self._copy(group, cluster)
        names = ("conditions", "preemptionGates")
        new = {name: part for name, part in as_json(status).items() if name in names}
        await self._client(cluster).patch(
            WORKLOADS,
            copy.metadata.name,
            merge_patch(copy.metadata, status=new),
            into=PartialObject,
            namespace=copy.metadata.namespace,
            subresource="status",
        )

    async def _set_check(self, group: Group, action: SetCheck) -> None:
        local = group.local
        state = replace(
            group.state,
            state=action.state,
            message=action.message,
            last_transition_time=timestamp(self._writes.now),
        )
        status = _with_state(local.status, state)
        if action.cluster:
            copy = group.copies.get(action.cluster)
            status = replace(
                status,
                cluster_name=action.cluster,
                nominated_cluster_names=(),
                admission=_placed(local, copy),
            )
        await self._write(local, status)
        if action.cluster and local.status.cluster_name is None:
            self._count("multikueue_workloads_admitted_total", local, action.cluster)
        if action.event:
            warning = action.event == "Warning"
            self._writes.record(
                WORKLOADS, local.metadata, "MultiKueue", action.message, warning=warning
            )

    async def _create(self, local: Workload, action: Create) -> None:
        body = copied_workload(await self._whole(local), self._settings, gated=action.gated)
        await self._client(action.cluster).create(
            WORKLOADS, body, into=PartialObject, namespace=local.metadata.namespace
        )
        self._count("multikueue_workloads_dispatched_total", local, action.cluster)
        log.info("workload_sent", workload=local.metadata.key, cluster=action.cluster)

    # Orphans.

    async def collect(self, remote: Remote) -> None:
        """Delete what this manager made on a worker, and whose workload is no more.

        Raises:
            ApiError: If the worker does not answer.
        """
        client = remote.client
        if client is None or not remote.state.connected:
            return
        selector = f"{ORIGIN}={self._settings.origin}"
        async for page in pages(
            client, WORKLOADS, into=PartialObject, limit=WORKER_PAGE, label_selector=selector
        ):
            for each in page.items:
                if self._is_orphan(each):
                    await self._remove_orphan(remote.name, client, each.metadata)

    async def _remove_orphan(self, cluster: str, client: Client, orphan: ObjectMeta) -> None:
        self._writes.must_lead()
        owner, namespace = job_of(orphan), orphan.namespace
        resource = None if owner is None else await self._jobs.resource_of(owner)
        if owner is not None and resource is not None and not self._is_here(owner, namespace):
            for name in pods_of(orphan, owner) or (owner.name,):
                await self._delete_job(client, resource, namespace, name)
        await self._delete_copy(client, orphan)
        log.info("orphan_removed", workload=orphan.key, cluster=cluster)

    def _is_orphan(self, copy: PartialObject) -> bool:
        local = self._mirror.get(copy.metadata.key)
        return local is None or local.metadata.deletion_timestamp is not None

    def _is_here(self, owner: OwnerReference, namespace: str) -> bool:
        """Tell whether the object of several workloads is here, so that it is needed there."""
        kind = parent_of_owner(owner)
        if kind is None:
            return False
        return self._cache.mirrors.jobs[kind.key].get(f"{namespace}/{owner.name}") is not None

    # Parts.

    def _client(self, cluster: str) -> Client:
        """Return the client of a worker, for a write.

        Raises:
            UnreachableError: If it was lost meanwhile.
        """
        self._writes.must_lead()
        client = self._remotes.connected(cluster)
        if client is None:
            raise UnreachableError(f"cluster `{cluster}` is not connected")
        return client

    def _copy(self, group: Group, cluster: str) -> Workload:
        copy = group.copies[cluster]
        assert copy is not None, "a step about a copy is taken where there is one"
        return copy

    async def _whole(self, local: Workload) -> dict[str, Any]:
        """Read a workload with all of its templates, of which only a part is kept."""
        metadata = local.metadata
        return await self._writes.client.get(
            WORKLOADS, metadata.name, namespace=metadata.namespace, into=dict[str, Any]
        )

    async def _write(self, local: Workload, status: WorkloadStatus) -> Workload:
        return await self._writes.status(self._mirror, local, status)

    async def _write_state(self, workload: Workload, state: AdmissionCheckState) -> None:
        state = replace(state, last_transition_time=timestamp(self._writes.now))
        await self._write(workload, _with_state(workload.status, state))

    def _count(self, name: str, local: Workload, cluster: str) -> None:
        admission = local.status.admission
        self._metrics.count(name, "" if admission is None else admission.cluster_queue, cluster)


def _component(workload: Workload) -> tuple[int, str]:
    index = workload.metadata.annotations.get(COMPONENT_INDEX, "")
    number = int(index) if index.isdecimal() and len(index) < 10 else 0
    return number, workload.metadata.name


def _with_state(status: WorkloadStatus, state: AdmissionCheckState) -> WorkloadStatus:
    checks = tuple(state if s.name == state.name else s for s in status.admission_checks)
    return replace(status, admission_checks=checks)


def _placed(local: Workload, copy: Workload | None) -> Admission | None:
    """Return the admission of a workload whose pods the worker has placed."""
    admission = local.status.admission
    theirs = None if copy is None else copy.status.admission
    if admission is None or theirs is None:
        return admission
    placed = {a.name for a in theirs.pod_set_assignments if a.topology_assignment is not None}
    assignments = tuple(
        replace(each, delayed_topology_request="Ready")
        if each.name in placed and each.delayed_topology_request == "Pending"
        else each
        for each in admission.pod_set_assignments
    )
    return replace(admission, pod_set_assignments=assignments)


async def _delete(client: Client, resource: Resource, namespace: str, name: str, uid: str) -> None:
    """Delete an object; one that is gone is not an error."""
    options = DeleteOptions(namespace=namespace, propagation="Background")
    if uid:
        options["uid"] = uid
    try:
        await client.delete(resource, name, **options)
    except NotFoundError:
        return
