"""Carries out what was decided about a workload, and keeps its status true to its surroundings."""

from collections.abc import Callable
from contextlib import suppress

import msgspec
import structlog

from policyd.alloc.plan import Action, Admit, Evict, Preempt, Requeue
from policyd.alloc.settings import Gates
from policyd.api.kueue import Admission, Workload, WorkloadStatus
from policyd.api.kueue.names import (
    EVICTED,
)
from policyd.api.meta import condition_true
from policyd.controller.jobs.announcements import Announcements
from policyd.controller.jobs.owners import Owners
from policyd.controller.jobs.readiness import AwaitedPods, stale_message
from policyd.controller.jobs.slices import finish_slice
from policyd.controller.metrics.counters import ControllerMetrics
from policyd.controller.patches import merge_patch
from policyd.controller.protection_timer import ProtectionTimer
from policyd.controller.reasons.held_back import HeldBack
from policyd.controller.reasons.shortage import naming_for
from policyd.controller.reasons.workload_reasons import Waiting
from policyd.controller.retention import NO_LIMITS, TimeLimits, drop_finalizer, keep
from policyd.controller.topology.placing_again import PlacingAgain, no_replacement_message
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.watch.mirror import Mirror
from policyd.controller.watch.preemptions import (
    preempt,
    preempted_message,
    priorities_text,
)
from policyd.controller.watch.priorities import class_change
from policyd.controller.writes import Writes
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.jobs.slices import replacement_message
from policyd.kube.errors import ApiError, ConflictError
from policyd.kube.resources import WORKLOADS
from policyd.status.naming import Naming
from policyd.status.queues import queue_status
from policyd.status.words import considered_text
from policyd.workload.conversion import admission_object
from policyd.workload.lifecycle import (
    next_status,
    required_checks,
    sync_checks,
    time_left,
    to_be_deactivated,
)
from policyd.workload.obstacles import StatusContext
from policyd.workload.transitions import (
    evict,
    finish,
    reserve,
    with_status,
)

log = structlog.get_logger()

AT_ONCE = 0.0
OWNER_NOT_FOUND = "The workload's owner no longer exists"
HTTP_BAD_REQUEST = 400
HTTP_SERVER_ERROR = 500


class WorkloadReconciler:
    """Reconciles one workload at a time."""

    def __init__(
        self,
        cache: Cache,
        writes: Writes,
        *,
        take: Callable[[str], Action | None],
        metrics: ControllerMetrics,
        limits: TimeLimits = NO_LIMITS,
    ) -> None:
        self._cache = cache
        self._writes = writes
        self._take = take
        self._metrics = metrics
        self._protection = ProtectionTimer(cache)
        self._limits = limits
        self._readiness = AwaitedPods(cache, every=limits.ready is not None)
        self._announcements = Announcements(writes)
        self.waiting = Waiting(cache, writes, self._readiness)
        self._placing = PlacingAgain(
            self._mirror,
            writes,
            changed=self._announcements.changes,
            try_again=cache.put,
            naming=self._naming,
        )
        self._unanswered: set[str] = set()
        self._held = HeldBack(cache, writes.pace)

    @property
    def _mirror(self) -> Mirror[Workload]:
        return self._cache.mirrors.workloads

    def _naming(self, workload: Workload) -> Naming:
        return naming_for(self._cache, workload.metadata.key)

    @property
    def _gates(self) -> Gates:
        return self._cache.state.settings.gates

    @property
    def _detailed(self) -> bool:
        return self._gates.unadmitted_workloads_observability

    def drop(self) -> None:
        """Forget what is still to be told: this process no longer leads."""
        self.waiting.drop()

    async def reconcile(self, key: ReconcileKey) -> float | None:
        """Do what is to be done next. Returns the seconds until something else will be.

        Raises:
            ApiError: If a write did not succeed, or nobody knows whether it did.
        """
        held = await self._find_out(key.path)
        left = await self._reconcile(key)
        return left if held is None else min(held, held if left is None else left)

    async def _reconcile(self, key: ReconcileKey) -> float | None:
        workload = self._mirror.get(key.path)
        action = self._take(key.path)
        if workload is None:
            self.waiting.forget(key.path)
            self._held.forget(key.path)
            if isinstance(action, Admit):
                self._cache.retract(key.path)
            return None
        if action is not None and workload.metadata.uid == action.workload.uid:
            left = await self._carry_out(workload, action)
            # Why it waits may be told already, and what else has changed is not told again.
            return AT_ONCE if isinstance(action, Requeue) else left
        await self.waiting.tell_due(workload)
        workload = self._mirror.get(key.path) or workload
        owners = Owners(self._cache.mirrors, self._writes.client)
        if await owners.are_gone(workload, orphans=self._gates.finish_orphaned_workloads):
            await self._let_go(workload)
            return None
        return await self._live(workload)

    # What a cycle decided.

    async def _carry_out(self, workload: Workload, action: Action) -> float | None:
        self.waiting.overtaken(workload.metadata.key)
        match action:
            case Admit():
                await self._admit(workload, action)
                self.waiting.forget(workload.metadata.key)
                return None
            case Preempt():
                await self._preempt(workload, action)
                return None
            case Evict():
                await self._evict(workload, action)
                return None
            case Requeue(reason="SecondPassFailed"):
                self._placing.refused(workload, action.refusal)
                return None
            case Requeue():
                await self.waiting.tell(workload, action)
                return None

    async def _admit(self, workload: Workload, action: Admit) -> None:
        by_prefix = self._gates.tas_assignments_encoding_by_hostname_prefix
        now, admission = self._writes.now, admission_object(action.admission, by_prefix=by_prefix)
        if has_quota(workload) and action.workload.admission is not None:
            await self._place(workload, admission)
            return
        workload = await self._without_leftover(workload)
        queue = self._cache.mirrors.cluster_queues.get(admission.cluster_queue)
        pending = workload
        if queue is not None:
            probe = with_status(workload, reserve(workload, admission, now=now))
            # What need not be passed any more is dropped when it is looked at next, not here.
            had = {check.name for check in workload.status.admission_checks}
            names = sorted(had.union(required_checks(probe, queue)))
            pending = with_status(workload, sync_checks(workload.status, names, now=now))
        status = reserve(pending, admission, now=now, detailed=self._detailed)
        status = self._readiness.begun(with_status(workload, status), now=now)
        try:
            await self._writes.status(self._mirror, workload, status)
        except ApiError as error:
            self._failed(workload, error)
            raise
        except BaseException:  # stopped or broken: the reservation must not outlive it
            self._cache.retract(workload.metadata.key)
            raise
        self._held.forget(workload.metadata.key)
        stored = self._mirror.get(workload.metadata.key) or workload
        considered = considered_text(action.considered, self._naming(stored))
        self._announcements.reserved(workload, stored, now=now, considered=considered)
        await self._replace(stored, action.workload.replaces)

    async def _without_leftover(self, workload: Workload) -> Workload:
        """Clear an admission without quota, which somebody else has left: none may replace it."""
        if workload.status.admission is None:
            return workload
        cleared = msgspec.structs.replace(workload.status, admission=None)
        try:
            return await self._writes.status(self._mirror, workload, cleared)
        except BaseException:
            self._cache.retract(workload.metadata.key)
            raise

    async def _place(self, workload: Workload, admission: Admission) -> None:
        try:
            await self._placing.place(workload, admission, detailed=self._detailed)
        except BaseException:
            self._cache.retract(workload.metadata.key)
            raise

    async def _replace(self, workload: Workload, key: str) -> None:
        """Finish the slice of a job that a bigger one replaces, now that this one has its quota.

        The job does it as well, so that nothing is left undone if this is the last write.
        """
        old = self._mirror.get(key) if key else None
        if old is not None and not is_finished(old):
            with suppress(ConflictError):
                await finish_slice(self._mirror, self._writes, old, replacement_message(workload))

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
            self._cache.state.forget_preemption(key)
            self._cache.ears.schedule()
            raise
        queue = action.preemptor.cluster_queue
        self._metrics.preempted(queue, action.reason)
        self._cache.ears.preempted(action)
        self._announcements.changes(workload, stored)
        if preemptor is not None:
            important = priorities_text(preemptor, stored, self._gates)
            self._announcements.preempted(stored, f"{message}; {important}")
            self._announcements.preempting(
                preemptor, stored, important, naming=self._naming(preemptor)
            )

    async def _evict(self, workload: Workload, action: Evict) -> None:
        if not has_quota(workload) or condition_true(workload.status.conditions, EVICTED):
            return
        now = self._writes.now
        stale = action.reason == "StaleGang"
        message = stale_message(now - action.since) if stale else no_replacement_message(workload)
        status = evict(workload, reason=action.reason, message=message, now=now)
        try:
            stored = await self._writes.status(self._mirror, workload, status)
        except BaseException:  # as for a preemption
            self._placing.refused(workload, action.refusal)
            self._cache.state.forget_preemption(workload.metadata.key)
            self._cache.ears.schedule()
            raise
        self._announcements.changes(workload, stored)

    def _failed(self, workload: Workload, error: ApiError) -> None:
        """Take an admission back that was refused; one that was not answered may have happened."""
        metadata = workload.metadata
        if HTTP_BAD_REQUEST <= error.code < HTTP_SERVER_ERROR:
            found = self._held.put(metadata.key, error)
            if found is not None:
                self._writes.tell(WORKLOADS, metadata, "AdmissionRefused", found.message, bad=True)
        else:
            self._unanswered.add(metadata.key)

    async def _find_out(self, key: str) -> float | None:
        """Learn what became of a write that was not answered: until then its quota is not free.

        Returns the seconds until a workload that was refused may be tried.
        """
        if key in self._unanswered:
            await self._writes.look(self._mirror, key)
            self._unanswered.discard(key)
            self._cache.retract(key)
        return self._held.look(key)

    # What its life is like otherwise.

    async def _live(self, workload: Workload) -> float | None:
        if is_finished(workload):
            return await keep(self._writes, self._mirror, workload, self._limits.retention)
        if to_be_deactivated(workload):
            patch = merge_patch(workload.metadata, spec={"active": False})
            await self._writes.patch(self._mirror, workload, patch)
            return None
        patch = class_change(workload, self._cache.mirrors)
        if patch is not None:
            workload = await self._writes.patch(self._mirror, workload, patch)
        now = self._writes.now
        around = self._surroundings(workload)
        status = next_status(workload, around, now=now)
        if status != workload.status:
            if not has_quota(workload):
                status = self._readiness.begun(with_status(workload, status), now=now)
            stored = await self._writes.status(self._mirror, workload, status)
            self._announcements.changes(workload, stored)
            workload = stored
        left = (time_left(workload, around, now=now), self._protection.left(workload, now))
        return min((seconds for seconds in left if seconds is not None), default=None)

    def _surroundings(self, workload: Workload) -> StatusContext:
        local_queue = self._cache.local_queue_of(workload)
        cluster_queue = self._cache.cluster_queue_of(workload)
        name = "" if local_queue is None else local_queue.spec.cluster_queue
        inactive = cluster_queue is not None and not queue_status(self._cache.state, name).active
        return StatusContext(
            local_queue=local_queue,
            cluster_queue=cluster_queue,
            inactive=inactive,
            objection=self._held.objection(workload.metadata.key)
            or self._cache.objection(workload),
            shared=self._cache.shared_refusal(name, workload.metadata.key),
            told=self.waiting.told(workload) is not None,
            ready_rules=self._limits.ready,
            chance=self._writes.chance,
            gates=self._gates,
        )

    async def _let_go(self, workload: Workload) -> None:
        deleted = workload.metadata.deletion_timestamp is not None
        if self._gates.finish_orphaned_workloads and not deleted and not is_finished(workload):
            status: WorkloadStatus = finish(
                workload, reason="OwnerNotFound", message=OWNER_NOT_FOUND, now=self._writes.now
            )
            workload = await self._writes.status(self._mirror, workload, status)
            log.info("workload_finished", workload=workload.metadata.key, reason="OwnerNotFound")
        await drop_finalizer(self._writes, self._mirror, workload)
