"""Writes of one Workload: decisions of cycles, and other changes of its status."""

from contextlib import suppress
from typing import Final, NamedTuple

import msgspec
import structlog

from policyd.alloc.plan import Action, Admit, Evict, Preempt, Requeue
from policyd.alloc.settings import Gates
from policyd.alloc.workload import ConditionReason, Objection
from policyd.api.kueue import Admission, Workload, WorkloadStatus
from policyd.api.kueue.names import EVICTED
from policyd.api.meta import condition_true, cut
from policyd.controller.jobs.owners import Owners
from policyd.controller.jobs.readiness import AwaitedPods, stale_message
from policyd.controller.jobs.workload_events import WorkloadEvents
from policyd.controller.metrics.counters import ControllerMetrics
from policyd.controller.patches import merge_patch
from policyd.controller.reasons.shortage import naming_for
from policyd.controller.reasons.workload_reasons import PendingReasons
from policyd.controller.retention import TimeLimits, drop_finalizer, finish_slice, keep
from policyd.controller.topology.second_pass import SecondPassWrites, no_replacement_message
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import ReconcileKey
from policyd.controller.watch.mirror import Mirror
from policyd.controller.watch.preemptions import (
    preempt,
    preempted_message,
    priorities_text,
)
from policyd.controller.watch.priorities import class_change
from policyd.controller.writes import CARRIED_OUT_SECONDS, NotLeadingError, Writes
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.jobs.slices import replacement_message
from policyd.kube.errors import ApiError, ConflictError, ForbiddenError, InvalidError
from policyd.kube.events import MESSAGE_BYTES
from policyd.kube.pace import Backoff, Pace
from policyd.kube.resources import WORKLOADS
from policyd.optimize.opt_ins import wants
from policyd.status.messages import considered_text
from policyd.status.naming import Naming
from policyd.status.queues import queue_status
from policyd.workload.conversion import admission_object
from policyd.workload.lifecycle import (
    next_status,
    required_checks,
    sync_checks,
    time_left,
    to_be_deactivated,
)
from policyd.workload.obstacles import StatusContext
from policyd.workload.time_limits import stop_left
from policyd.workload.transitions import (
    after_eviction,
    evict,
    finish,
    holding_queue,
    reserve,
    with_status,
)

log = structlog.get_logger()

FIRST_RETRY_SECONDS = 0.05
LONGEST_RETRY_SECONDS = 300.0
"""Between tries of a workload whose admission is refused again and again."""
OWNERS_SECONDS = 5.0
"""How often the owners of a deleted workload are looked for: those without a queue are not watched,
and the workload keeps its quota until they are gone."""
OWNER_NOT_FOUND = "The workload's owner no longer exists"


MIGRATED: Final = "Migrated to a more favorable flavor"
"""Message of the eviction of a variant in whose place another one is admitted."""


class _Unanswered(NamedTuple):
    """An admission whose write was not answered.

    Attributes:
        action: The admission.
        version: The version of the workload that the write is based on.
        until: When the server has carried it out or never will, in seconds of the monotonic clock.
    """

    action: Admit
    version: str
    until: float


class WorkloadWrites:
    """Writes the statuses of workloads, one at a time."""

    def __init__(
        self, cache: Cache, writes: Writes, *, metrics: ControllerMetrics, limits: TimeLimits
    ) -> None:
        self._cache = cache
        self._writes = writes
        self._metrics = metrics
        self._protection = ProtectionTimer(cache)
        self._limits = limits
        self._readiness = AwaitedPods(cache, every=limits.ready is not None)
        self._events = WorkloadEvents(writes)
        self.reasons = PendingReasons(cache, writes, self._readiness)
        self._second_pass = SecondPassWrites(
            self._mirror,
            writes,
            changed=self._events.changes,
            try_again=cache.put,
            naming=self._naming,
        )
        self._unanswered: dict[str, _Unanswered] = {}
        """Admissions that were not answered, as long as the server may carry them out."""
        self._refused = RefusedAdmissions(cache, writes.pace)
        self._owners = Owners(cache.mirrors, writes)

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

    # Decisions of a cycle.

    async def admit(self, workload: Workload, action: Admit) -> None:
        """Write an admission: the quota, the flavors and the places that were assigned.

        Raises:
            ApiError: If it was refused, or it is not known whether it was written.
        """
        self._cache.begin(workload)
        try:
            by_prefix = self._gates.tas_assignments_encoding_by_hostname_prefix
            admission = admission_object(action.admission, by_prefix=by_prefix)
            if has_quota(workload) and action.workload.admission is not None:
                await self._second_pass.place(workload, admission, detailed=self._detailed)
            else:
                workload = await self._without_leftover(workload)
                await self._reserve(workload, action, admission)
        except NotLeadingError:
            self._settle(action)
            raise
        except ApiError as error:
            self._failed(workload, action, error)
            raise
        except BaseException:
            self._await_outcome(workload, action)
            raise
        self._settle(action)
        self.reasons.forget(workload.metadata.key)
        await self._replace(workload, action.workload.replaces)

    async def _reserve(self, workload: Workload, action: Admit, admission: Admission) -> None:
        now = self._writes.now
        queue = self._cache.mirrors.cluster_queues.get(admission.cluster_queue)
        pending = workload
        if queue is not None:
            probe = with_status(workload, reserve(workload, admission, now=now))
            # Checks that are no longer required are dropped at the next reconciliation, not here.
            had = {check.name for check in workload.status.admission_checks}
            names = sorted(had.union(required_checks(probe, queue)))
            pending = with_status(workload, sync_checks(workload.status, names, now=now))
        status = reserve(pending, admission, now=now, detailed=self._detailed)
        status = self._readiness.begun(with_status(workload, status), now=now)
        await self._writes.status(self._mirror, workload, status)
        self._refused.forget(workload.metadata.key)
        stored = self._mirror.get(workload.metadata.key) or workload
        considered = considered_text(action.considered, self._naming(stored))
        self._events.reserved(workload, stored, now=now, considered=considered)

    async def _without_leftover(self, workload: Workload) -> Workload:
        """Clear an admission without quota that another client has left: it cannot be replaced."""
        if workload.status.admission is None:
            return workload
        cleared = msgspec.structs.replace(workload.status, admission=None)
        workload = await self._writes.status(self._mirror, workload, cleared)
        self._cache.begin(workload)
        return workload

    async def _replace(self, workload: Workload, key: str) -> None:
        """Finish the slice of a job that a bigger one replaces, now that this one has its quota.

        The job does it as well, so that nothing is left undone if this is the last write.
        """
        old = self._mirror.get(key) if key else None
        if old is not None and not is_finished(old):
            with suppress(ConflictError):
                await finish_slice(self._mirror, self._writes, old, replacement_message(workload))

    async def preempt(self, workload: Workload, action: Preempt) -> None:
        """Begin to stop a workload for another one.

        Raises:
            ApiError: If it is not known whether that was written; the next cycle may ask again.
        """
        key, now = workload.metadata.key, self._writes.now
        if not has_quota(workload):  # its quota was only assumed, and nothing runs
            self._cache.retract(key)
            return
        if condition_true(workload.status.conditions, EVICTED):
            return
        preemptor = self._mirror.get(action.preemptor.key)
        message = preempted_message(action, preemptor)
        status = preempt(workload, reason=action.reason, message=message, now=now)
        try:
            stored = await self._writes.status(self._mirror, workload, status)
        except BaseException:
            self._cache.state.forget_preemption(key)
            self._cache.hooks.schedule()
            raise
        queue = action.preemptor.cluster_queue
        self._metrics.preempted(queue, action.reason)
        self._cache.hooks.preempted(action)
        self._events.changes(workload, stored)
        if preemptor is not None:
            important = priorities_text(preemptor, stored, self._gates)
            self._events.preempted(stored, f"{message}; {important}")
            self._events.preempting(preemptor, stored, important, naming=self._naming(preemptor))

    async def evict(self, workload: Workload, action: Evict) -> None:
        """Begin to stop a workload that cannot go on.

        Raises:
            ApiError: As for a preemption.
        """
        if not has_quota(workload) or condition_true(workload.status.conditions, EVICTED):
            return
        now = self._writes.now
        match action.reason:
            case "StaleGang":
                message = stale_message(now - action.since)
            case "NodeFailures":
                message = no_replacement_message(workload)
            case _:
                message = MIGRATED
        status = evict(workload, reason=action.reason, message=message, now=now)
        try:
            stored = await self._writes.status(self._mirror, workload, status)
        except BaseException:  # as for a preemption
            self._second_pass.refused(workload, action.refusal)
            self._cache.state.forget_preemption(workload.metadata.key)
            self._cache.hooks.schedule()
            raise
        self._events.changes(workload, stored)

    async def requeue(self, workload: Workload, action: Requeue) -> None:
        """Say why a workload was not admitted, or not placed again.

        Raises:
            ApiError: If a write did not succeed.
        """
        if action.reason == "SecondPassFailed":
            self._second_pass.refused(workload, action.refusal)
        else:
            await self.reasons.report(workload, action)

    def _failed(self, workload: Workload, action: Admit, error: ApiError) -> None:
        """Take an admission back that was refused; one that was not answered may still happen.

        That holds of an earlier try, too, whatever became of this one.
        """
        metadata = workload.metadata
        if not error.refused:
            self._await_outcome(workload, action)
            return
        if not has_quota(workload):
            found = self._refused.put(metadata.key, error)
            if found is not None:
                self._writes.record(
                    WORKLOADS, metadata, "AdmissionRefused", found.message, warning=True
                )
        earlier = self._unanswered.get(metadata.key)
        if earlier is None or not self._may_happen(earlier) or self._monotonic() >= earlier.until:
            self._settle(action)

    def _await_outcome(self, workload: Workload, action: Admit) -> None:
        metadata, until = workload.metadata, self._monotonic() + CARRIED_OUT_SECONDS
        self._unanswered[metadata.key] = _Unanswered(action, metadata.resource_version, until)

    def _may_happen(self, unanswered: "_Unanswered") -> bool:
        """Tell whether the workload is known in no later version than the one it is based on."""
        found = self._mirror.get(unanswered.action.workload.key)
        return found is not None and found.metadata.resource_version == unanswered.version

    def _settle(self, action: Admit) -> None:
        """Let an admission count no longer, unless it was written: nothing is unknown of it."""
        self._unanswered.pop(action.workload.key, None)
        self._cache.settle(action)

    def _monotonic(self) -> float:
        return self._writes.pace.clock.monotonic()

    async def find_out(self, key: str) -> float | None:
        """Find out what became of an admission that was not answered: its quota is not free.

        As long as the workload has the version that the write is based on, the server may still
        carry it out. So it is made again: no more than one of both succeeds. If that is refused,
        the first may still succeed, and it is tried until the server has had its time.

        Returns the seconds until a workload may be tried whose admission was refused.

        Raises:
            ApiError: If that is not known yet.
        """
        earlier = self._unanswered.get(key)
        if earlier is not None:
            found = await self._writes.look(self._mirror, key)
            if found is not None and self._may_happen(earlier):
                await self.admit(found, earlier.action)
            else:
                self._settle(earlier.action)
        return self._refused.look(key)

    def drop(self) -> None:
        """Drop admissions that were not answered: another process leads, which knows of none."""
        for unanswered in list(self._unanswered.values()):
            self._settle(unanswered.action)
        self.reasons.drop()

    def forget(self, key: str, action: Action | None) -> None:
        """Remove a deleted workload, and undo the decision about it."""
        self.reasons.forget(key)
        self._refused.forget(key)
        self._owners.forget(key)
        if isinstance(action, Admit):
            self._cache.retract(key)

    # Other changes of its status.

    async def follow(self, workload: Workload) -> float | None:
        """Write a workload's due status, if no cycle decided about it.

        Returns the seconds until it may be something else.

        Raises:
            ApiError: If a write did not succeed.
        """
        await self.reasons.write_due(workload)
        workload = self._mirror.get(workload.metadata.key) or workload
        return None if await self._let_go_if_over(workload) else await self._live(workload)

    async def _let_go_if_over(self, workload: Workload) -> bool:
        """Let a workload go whose owners are gone; tell whether they are."""
        orphans = self._gates.finish_orphaned_workloads
        over = await self._owners.are_deleted(workload, orphans=orphans)
        if over:
            await self._let_go(workload)
        return over

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
        context = self._surroundings(workload)
        status = next_status(workload, context, now=now)
        if status != workload.status:
            if not has_quota(workload):
                status = self._readiness.begun(with_status(workload, status), now=now)
            stored = await self._writes.status(self._mirror, workload, status)
            self._events.changes(workload, stored)
            workload = stored
        deleted = workload.metadata.deletion_timestamp is not None
        if deleted or stop_left(workload, now=now) is not None:
            self._cache.hooks.reconcile(_ownerless(workload))
        left = (
            time_left(workload, context, now=now),
            self._protection.left(workload, now),
            OWNERS_SECONDS if self._owners.are_unread(workload.metadata.key) else None,
        )
        return min((seconds for seconds in left if seconds is not None), default=None)

    async def release_ownerless(self, key: ReconcileKey) -> float | None:
        """Return the quota of an evicted workload without an owner, if no job did so in time.

        A deleted workload is looked at again until its owners are gone. Returns the seconds until
        the next look.

        Raises:
            ApiError: If the write did not succeed.
        """
        workload = self._mirror.get(key.path)
        if workload is None:
            return None
        if workload.metadata.deletion_timestamp is not None:
            return None if await self._let_go_if_over(workload) else OWNERS_SECONDS
        left = stop_left(workload, now=self._writes.now)
        if left is None or left > 0:
            return left
        status = after_eviction(workload, now=self._writes.now, detailed=self._detailed)
        stored = await self._writes.status(self._mirror, workload, status)
        self._events.changes(workload, stored)
        return None

    def _surroundings(self, workload: Workload) -> StatusContext:
        local_queue = self._cache.local_queue_of(workload)
        cluster_queue = self._cache.cluster_queue_of(workload)
        name = "" if local_queue is None else local_queue.spec.cluster_queue
        inactive = cluster_queue is not None and not queue_status(self._cache.state, name).active
        return StatusContext(
            local_queue=local_queue,
            cluster_queue=cluster_queue,
            inactive=inactive,
            objection=self._refused.objection(workload.metadata.key)
            or self._cache.objection(workload),
            shared=self._cache.shared_refusal(name, workload.metadata.key),
            ready_rules=self._limits.ready,
            jitter=self._writes.jitter,
            gates=self._gates,
            role=self._cache.role_of(workload),
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


def _ownerless(workload: Workload) -> ReconcileKey:
    return ReconcileKey("Ownerless", workload.metadata.namespace, workload.metadata.name)


class RefusedAdmissions:
    """Keeps workloads whose admission was refused from being tried again too soon."""

    def __init__(self, cache: Cache, pace: Pace) -> None:
        self._cache = cache
        self._pace = pace
        self._backoffs: dict[str, Backoff] = {}
        self._until: dict[str, float] = {}
        self._objections: dict[str, Objection] = {}

    def put(self, key: str, error: ApiError) -> Objection | None:
        """Keep a workload from being tried whose admission was refused.

        The first time it goes back to its queue at once, as in Kueue. Returns the objection to
        record, unless another client was only faster.
        """
        lasts = isinstance(error, ForbiddenError | InvalidError)
        backoff = self._backoffs.get(key)
        if backoff is None:
            jitter = self._pace.jitter
            self._backoffs[key] = Backoff(FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS, jitter=jitter)
        else:
            self._until[key] = self._pace.clock.monotonic() + backoff.next()
            self._cache.hold_back(key)
        message = cut(f"the admission is refused: {error}", MESSAGE_BYTES, end="...")
        reason: ConditionReason = "Misconfigured" if lasts else "PendingEvaluation"
        objection = Objection(reason=reason, message=message)
        if lasts or backoff is not None:
            self._objections[key] = objection
        return objection if lasts else None

    def objection(self, key: str) -> Objection | None:
        """Return why a workload is held back."""
        return self._objections.get(key)

    def look(self, key: str) -> float | None:
        """Let a workload be tried whose time has come; return the seconds to wait otherwise."""
        left = self._until.get(key, 0.0) - self._pace.clock.monotonic()
        if key in self._until and left > 0:
            return left
        self._until.pop(key, None)
        self._objections.pop(key, None)
        self._cache.let_try_again(key)
        return None

    def forget(self, key: str) -> None:
        """Begin with the first wait again: it was admitted, or is gone."""
        for each in (self._backoffs, self._until, self._objections):
            each.pop(key, None)


class ProtectionTimer:
    """Has pending workloads tried again when the protection of an admitted one ends."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._ahead: dict[str, int] = {}

    def left(self, workload: Workload, now: float) -> float | None:
        """Return the seconds until more workloads may preempt this one; None if none will."""
        key, name = workload.metadata.key, holding_queue(workload)
        queue, holding = self._cache.state.queues.get(name), self._cache.state.holding(key)
        ends: list[float] = []
        if queue is not None and holding is not None:
            given, since = wants(queue.spec).protection, holding.workload.reserved_at
            lengths = {given.preemption, given.reclaim, given.repetition}
            ends = [end for length in lengths if (end := (since or now) + length) > now]
        if len(ends) < self._ahead.pop(key, 0):
            self._cache.state.wake(name)
            self._cache.hooks.schedule()
        if not ends:
            return None
        self._ahead[key] = len(ends)
        return min(ends) - now
