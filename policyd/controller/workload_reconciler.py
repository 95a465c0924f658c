"""Carries out what was decided about a workload, and keeps its status true to its surroundings."""

from collections.abc import Callable

import structlog

from policyd.alloc.plan import Action, Admit, Evict, Preempt, Requeue
from policyd.api.kueue import Workload, WorkloadStatus
from policyd.api.kueue.names import (
    ADMITTED,
    EVICTED,
    QUOTA_RESERVED,
    RESOURCE_IN_USE_FINALIZER,
)
from policyd.api.meta import condition_true, find_condition
from policyd.controller.cache import Cache
from policyd.controller.conversion import admission_object
from policyd.controller.gangs import Gangs, stale_message
from policyd.controller.keys import Key
from policyd.controller.lifecycle import (
    Surroundings,
    next_status,
    required_checks,
    sync_checks,
    to_be_deactivated,
)
from policyd.controller.metrics import Metrics
from policyd.controller.mirror import Mirror
from policyd.controller.owners import Owners
from policyd.controller.patches import merge_patch
from policyd.controller.preemptions import (
    blocked_on_gates,
    preempt,
    preempted_message,
    replacement_message,
    tell_preempted,
)
from policyd.controller.protection_timer import ProtectionTimer
from policyd.controller.shortage import held_by
from policyd.controller.transitions import (
    evict,
    finish,
    holding_queue,
    is_admitted,
    queued_since,
    release,
    reserve,
    told_reason,
    with_requests,
    with_status,
)
from policyd.controller.writes import Writes
from policyd.jobs.lifecycle import has_finalizer, has_quota, is_finished
from policyd.kube.errors import ApiError
from policyd.kube.resources import WORKLOADS
from policyd.status.queues import queue_status
from policyd.status.shortages import shortages
from policyd.status.words import considered_text, message_of

log = structlog.get_logger()

SLICE_REPLACED = "WorkloadSliceReplaced"
OWNER_NOT_FOUND = "The workload's owner no longer exists"
HTTP_BAD_REQUEST = 400
HTTP_SERVER_ERROR = 500
HOLDERS_SECONDS = 10.0
"""A message in which only the holders of what is missing are new is written this often at most."""


class WorkloadReconciler:
    """Reconciles one workload at a time."""

    def __init__(
        self,
        cache: Cache,
        writes: Writes,
        *,
        take: Callable[[str], Action | None],
        metrics: Metrics,
    ) -> None:
        self._cache = cache
        self._writes = writes
        self._take = take
        self._metrics = metrics
        self._protection = ProtectionTimer(cache)
        self._gangs = Gangs(cache)
        self._told_at: dict[str, tuple[str, float]] = {}
        self._untold: dict[str, Requeue] = {}
        self._unanswered: set[str] = set()

    @property
    def _mirror(self) -> Mirror[Workload]:
        return self._cache.mirrors.workloads

    @property
    def _detailed(self) -> bool:
        return self._cache.state.settings.gates.unadmitted_workloads_observability

    async def reconcile(self, key: Key) -> float | None:
        """Do what is to be done next. Returns the seconds until something else will be.

        Raises:
            ApiError: If a write did not succeed, or nobody knows whether it did.
        """
        await self._find_out(key.path)
        workload = self._mirror.get(key.path)
        action = self._take(key.path)
        if workload is None:
            self._told_at.pop(key.path, None)
            self._untold.pop(key.path, None)
            if isinstance(action, Admit):
                self._cache.retract(key.path)
            return None
        if action is not None and workload.metadata.uid == action.workload.uid:
            return await self._carry_out(workload, action)
        left = await self._tell_late(workload)
        if await Owners(self._cache.mirrors, self._writes.client).are_gone(workload):
            await self._let_go(workload)
            return None
        waits = (left, await self._live(workload))
        return min((seconds for seconds in waits if seconds is not None), default=None)

    # What a cycle decided.

    async def _carry_out(self, workload: Workload, action: Action) -> float | None:
        self._untold.pop(workload.metadata.key, None)
        match action:
            case Admit():
                await self._admit(workload, action)
                return None
            case Preempt():
                await self._preempt(workload, action)
                return None
            case Evict():
                await self._evict(workload, action)
                return None
            case Requeue():
                return await self._wait(workload, action)

    async def _tell_late(self, workload: Workload) -> float | None:
        """Write who holds what is missing, if that was put off; return the seconds until then."""
        action = self._untold.pop(workload.metadata.key, None)
        if action is None or action.workload.uid != workload.metadata.uid:
            return None
        return await self._wait(workload, action)

    async def _admit(self, workload: Workload, action: Admit) -> None:
        now, admission = self._writes.now, admission_object(action.admission)
        queue = self._cache.mirrors.cluster_queues.get(admission.cluster_queue)
        pending = workload
        if queue is not None:
            probe = with_status(workload, reserve(workload, admission, now=now))
            # What need not be passed any more is dropped when it is looked at next, not here.
            had = {check.name for check in workload.status.admission_checks}
            names = sorted(had.union(required_checks(probe, queue)))
            pending = with_status(workload, sync_checks(workload.status, names, now=now))
        status = reserve(pending, admission, now=now, detailed=self._detailed)
        try:
            await self._replace(workload, action.workload.replaces)
            await self._writes.status(self._mirror, workload, status)
        except ApiError as error:
            self._failed(workload.metadata.key, error)
            raise
        except BaseException:  # stopped or broken: the reservation must not outlive it
            self._cache.retract(workload.metadata.key)
            raise
        self._tell_reserved(workload, now, considered=considered_text(action.considered))

    async def _replace(self, workload: Workload, key: str) -> None:
        """Finish the slice of a job that a bigger one replaces, before that one gets its quota."""
        old = self._mirror.get(key) if key else None
        if old is None or is_finished(old):
            return
        message = replacement_message(workload)
        status = finish(old, reason=SLICE_REPLACED, message=message, now=self._writes.now)
        stored = await self._writes.status(self._mirror, old, status)
        self._writes.tell(WORKLOADS, stored.metadata, SLICE_REPLACED, message)

    async def _preempt(self, workload: Workload, action: Preempt) -> None:
        key, now = workload.metadata.key, self._writes.now
        if not has_quota(workload):  # what it has was only assumed, and nothing runs
            self._cache.retract(key)
            return
        if condition_true(workload.status.conditions, EVICTED):
            return
        preemptor = self._mirror.get(action.preemptor.key)
        message = preempted_message(action, preemptor)
        status = preempt(workload, reason=action.reason, message=message, now=now)
        try:
            stored = await self._writes.status(self._mirror, workload, status)
        except BaseException:  # nobody knows whether it happened: the next cycle may ask again
            self._cache.state.spare(key)
            self._cache.ears.schedule()
            raise
        queue = action.preemptor.cluster_queue
        self._metrics.preempted(queue, action.reason)
        self._tell_changes(workload, stored)
        if preemptor is not None:
            gates = self._cache.state.settings.gates
            tell_preempted(self._writes, stored, preemptor, message=message, gates=gates)

    async def _evict(self, workload: Workload, action: Evict) -> None:
        if not has_quota(workload) or condition_true(workload.status.conditions, EVICTED):
            return
        now = self._writes.now
        message = stale_message(now - action.since)
        status = evict(workload, reason=action.reason, message=message, now=now)
        try:
            stored = await self._writes.status(self._mirror, workload, status)
        except BaseException:  # as for a preemption
            self._cache.state.spare(workload.metadata.key)
            self._cache.ears.schedule()
            raise
        self._tell_changes(workload, stored)

    def _failed(self, key: str, error: ApiError) -> None:
        """Take an admission back that was refused; one that was not answered may have happened.

        Whoever was refused is not tried again before the next reconciliation, which backs off.
        """
        if HTTP_BAD_REQUEST <= error.code < HTTP_SERVER_ERROR:
            self._cache.hold_back(key)
            self._cache.retract(key)
        else:
            self._unanswered.add(key)

    async def _find_out(self, key: str) -> None:
        """Learn what became of a write that was not answered: until then its quota is not free."""
        if key in self._unanswered:
            await self._writes.look(self._mirror, key)
            self._unanswered.discard(key)
            self._cache.retract(key)
        self._cache.let_try_again(key)

    def _tell_reserved(self, before: Workload, now: float, *, considered: str) -> None:
        workload = self._mirror.get(before.metadata.key) or before
        admission = workload.status.admission
        if admission is None:
            return
        waited, queue = max(0, int(now - queued_since(before))), admission.cluster_queue
        self._metrics.quota_reserved(queue, waited=waited)
        log.info("quota_reserved", workload=workload.metadata.key, cluster_queue=queue)
        message = f"Quota reserved in ClusterQueue {queue}, wait time since queued was {waited}s"
        if considered:
            message += f"; Flavors considered: {considered}"
        self._writes.tell(WORKLOADS, workload.metadata, "QuotaReserved", message)
        if is_admitted(workload):
            self._tell_admitted(workload)

    def _tell_admitted(self, workload: Workload) -> None:
        admission = workload.status.admission
        reserved = find_condition(workload.status.conditions, QUOTA_RESERVED)
        admitted = find_condition(workload.status.conditions, ADMITTED)
        if admission is None or reserved is None or admitted is None:
            return
        queue, waited = admission.cluster_queue, 0
        if reserved.last_transition_time and admitted.last_transition_time:
            passed = admitted.last_transition_time - reserved.last_transition_time
            waited = max(0, int(passed.total_seconds()))
        self._metrics.admitted(queue)
        log.info("workload_admitted", workload=workload.metadata.key, cluster_queue=queue)
        self._writes.tell(
            WORKLOADS,
            workload.metadata,
            "Admitted",
            f"Admitted by ClusterQueue {queue}, wait time since reservation was {waited}s",
        )

    async def _wait(self, workload: Workload, action: Requeue) -> float | None:
        if has_quota(workload) or not workload.spec.active or is_finished(workload):
            return None
        refusal, now, key = action.refusal, self._writes.now, workload.metadata.key
        found = shortages(self._cache.state, refusal, action.workload.cluster_queue)
        text = message_of(refusal)
        message = text + held_by(found, self._cache.mirrors.workloads)
        gated = action.reason == "PreemptionGated"
        status = with_requests(
            release(
                blocked_on_gates(workload, now=now) if gated else workload,
                reason=refusal.reason,
                message=message,
                now=now,
                detailed=self._detailed,
            ),
            action.requests,
        )
        told, at = self._told_at.get(key, ("", 0.0))
        if status == workload.status:
            return None
        if (
            told == refusal.reason + text
            and now - at < HOLDERS_SECONDS
            and not condition_true(workload.status.conditions, QUOTA_RESERVED)
        ):
            self._untold[key] = action
            return HOLDERS_SECONDS - (now - at)
        await self._writes.status(self._mirror, workload, status)
        self._told_at[key] = (refusal.reason + text, now)
        reason = told_reason(refusal.reason, detailed=self._detailed)
        self._writes.tell(WORKLOADS, workload.metadata, reason, message, bad=True)
        return None

    # What its life is like otherwise.

    async def _live(self, workload: Workload) -> float | None:
        if to_be_deactivated(workload):
            patch = merge_patch(workload.metadata, spec={"active": False})
            await self._writes.patch(self._mirror, workload, patch)
            return None
        now = self._writes.now
        status = next_status(workload, self._surroundings(workload), now=now)
        status = self._gangs.watched_status(workload, status, now=now)
        if status != workload.status:
            stored = await self._writes.status(self._mirror, workload, status)
            self._tell_changes(workload, stored)
        left = (self._backoff_left(workload, now), self._protection.left(workload, now))
        return min((seconds for seconds in left if seconds is not None), default=None)

    def _surroundings(self, workload: Workload) -> Surroundings:
        local_queue = self._cache.local_queue_of(workload)
        cluster_queue = self._cache.cluster_queue_of(workload)
        name = "" if local_queue is None else local_queue.spec.cluster_queue
        inactive = cluster_queue is not None and not queue_status(self._cache.state, name).active
        return Surroundings(
            local_queue=local_queue,
            cluster_queue=cluster_queue,
            inactive=inactive,
            objection=self._cache.objection(workload),
        )

    def _tell_changes(self, before: Workload, after: Workload) -> None:
        if is_admitted(after) and not is_admitted(before):
            self._tell_admitted(after)
        eviction = find_condition(after.status.conditions, EVICTED)
        if eviction is None or eviction.status != "True":
            return
        if not condition_true(before.status.conditions, EVICTED):
            self._tell_evicted(after, eviction.reason, eviction.message)

    def _tell_evicted(self, workload: Workload, reason: str, message: str) -> None:
        self._metrics.evicted(holding_queue(workload), reason)
        log.info("workload_evicted", workload=workload.metadata.key, reason=reason)
        self._writes.tell(WORKLOADS, workload.metadata, f"EvictedDueTo{reason}", message)

    def _backoff_left(self, workload: Workload, now: float) -> float | None:
        state = workload.status.requeue_state
        if state is None or state.requeue_at is None:
            return None
        left = state.requeue_at.timestamp() - now
        if left <= 0:
            self._cache.put(workload)
            return None
        return left

    async def _let_go(self, workload: Workload) -> None:
        if workload.metadata.deletion_timestamp is None and not is_finished(workload):
            status: WorkloadStatus = finish(
                workload, reason="OwnerNotFound", message=OWNER_NOT_FOUND, now=self._writes.now
            )
            workload = await self._writes.status(self._mirror, workload, status)
            log.info("workload_finished", workload=workload.metadata.key, reason="OwnerNotFound")
        await drop_finalizer(self._writes, self._mirror, workload)


async def drop_finalizer(writes: Writes, mirror: Mirror[Workload], workload: Workload) -> None:
    """Let a workload vanish when it is deleted."""
    if not has_finalizer(workload):
        return
    metadata = workload.metadata
    kept = [name for name in metadata.finalizers if name != RESOURCE_IN_USE_FINALIZER]
    patch = {"metadata": {"resourceVersion": metadata.resource_version, "finalizers": kept}}
    await writes.patch(mirror, workload, patch)
