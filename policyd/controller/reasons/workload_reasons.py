"""Writes why workloads are pending: in their condition and as an event, not too often.

The refusal of a cycle is written immediately if the API server is idle. The rest is found by
`Reasons`, which queues the workloads; it is written here, by the reconciler of the workload, so
that no other worker writes to it meanwhile.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from policyd.alloc.plan import Requeue, RequeueReason
from policyd.alloc.reasons import Refusal
from policyd.alloc.workload import QueuedWorkload as Value
from policyd.api.kueue import Workload, WorkloadStatus
from policyd.api.kueue.names import QUOTA_RESERVED
from policyd.api.meta import find_condition
from policyd.controller.jobs.readiness import AwaitedPods
from policyd.controller.reasons.shortage import held_by, naming_for
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.preemptions import GATED_MESSAGE, blocked_on_gates
from policyd.controller.writes import Writes
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.kube.errors import ConflictError
from policyd.kube.resources import WORKLOADS
from policyd.optimize.opt_ins import NO_OPT_INS
from policyd.status.excluded_nodes import nodes_missed
from policyd.status.messages import message_of
from policyd.status.pending_reasons import ahead_of
from policyd.status.remedies import Wait, remedy_text
from policyd.status.remedy_search import Ahead, cheapest
from policyd.status.shortages import shortages
from policyd.workload.obstacles import GATED
from policyd.workload.transitions import release, with_requests, with_status, written_reason

AGAIN_SECONDS = 10.0
"""A message that says nothing new but names and numbers is written this often at most."""
LONGEST_REST_SECONDS = 1.0
"""Between two immediate writes, on a server so slow that decisions should be written first."""
_FROM_STATE: frozenset[RequeueReason] = frozenset({"NoFit", "PreemptionNoCandidates"})
"""Failures that can be found again in the state."""


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Why a workload is pending, as it is written.

    Attributes:
        reason: Of its condition.
        message: All of it.
        core: The part of the message whose change is written at once: without the holders.
        requests: Its requests; None to leave them unchanged.
    """

    reason: str
    message: str
    core: str = ""
    requests: Mapping[str, Mapping[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class WrittenReason:
    """The reason that a workload has, and when it was written."""

    reason: PendingReason
    at: float


class PendingReasons:
    """Writes why workloads wait.

    Attributes:
        due: Reasons by key that are not written yet.
        decided: Refusals of cycles that cannot be found from the state, by key.
        limited: Whether so many workloads are pending that only these are written at once.
    """

    def __init__(self, cache: Cache, writes: Writes, readiness: AwaitedPods) -> None:
        self._cache = cache
        self._writes = writes
        self._readiness = readiness
        self._pace = writes.pace
        self._written_reasons: dict[str, WrittenReason] = {}
        self.due: dict[str, PendingReason] = {}
        self.decided: dict[str, Requeue] = {}
        self.limited = False
        self._busy = False
        self._free_at = 0.0

    def forget(self, key: str) -> None:
        """Drop a workload that was deleted or admitted."""
        self._written_reasons.pop(key, None)
        self.overtaken(key)

    def overtaken(self, key: str) -> None:
        """Drop a reason that is not written yet: something newer was decided."""
        self.due.pop(key, None)
        self.decided.pop(key, None)

    def drop(self) -> None:
        """Drop unwritten and written reasons: another process leads from now on."""
        for each in (self._written_reasons, self.due, self.decided):
            each.clear()

    def written(self, workload: Workload) -> WrittenReason | None:
        """Return the written reason of a workload; None if its condition has another one."""
        last = self._written_reasons.get(workload.metadata.key)
        present = find_condition(workload.status.conditions, QUOTA_RESERVED)
        same = last is not None and present is not None and present.message == last.reason.message
        return last if same else None

    async def report(self, workload: Workload, action: Requeue) -> None:
        """Write why a workload waits, or leave that for later."""
        key = workload.metadata.key
        opt_ins = self._cache.opt_ins(action.workload.cluster_queue)
        if action.reason not in _FROM_STATE or opt_ins is not NO_OPT_INS:
            self.decided[key] = action
        elif self.limited:
            return
        if self._busy or self._pace.clock.monotonic() < self._free_at or not _waits(workload):
            return
        ahead = ahead_of(self._cache.state, action.workload)
        pending_reason = self.own(action.workload, action.refusal, action.requests, ahead, action)
        written = self.written(workload)
        if written is not None and written.reason.core == pending_reason.core:
            return  # the next sweep corrects which workloads hold it now
        began = self._pace.clock.monotonic()
        self._busy = True
        try:
            await self._write(workload, pending_reason)
        finally:
            rest = self._pace.rest_after(began, most=LONGEST_REST_SECONDS)
            self._free_at = self._pace.clock.monotonic() + rest
            self._busy = False

    async def write_due(self, workload: Workload) -> None:
        """Write the due reason of a workload, if it is still pending."""
        pending_reason = self.due.pop(workload.metadata.key, None)
        if pending_reason is None or not _waits(workload):
            return
        if self._cache.state.waiting(workload.metadata.key) is not None:
            await self._write(workload, pending_reason)

    def own(
        self,
        value: Value,
        refusal: Refusal,
        requests: Mapping[str, Mapping[str, int]],
        ahead: Ahead | None,
        action: Requeue | None = None,
    ) -> PendingReason:
        """Return the reason for a workload that a cycle refused, or would refuse.

        Args:
            value: The workload.
            refusal: Why.
            requests: Its requests.
            ahead: What those before it request, who take first what others give back.
            action: What the cycle decided; None if none did.
        """
        if action is not None and action.reason == "PreemptionGated":
            # Without detail, only the gates of an annotation have a reason of their own.
            reason = GATED if self._detailed else "PendingEvaluation"
            return PendingReason(reason, GATED_MESSAGE, GATED, requests)
        state, naming = self._cache.state, naming_for(self._cache, value.key)
        core = message_of(refusal, naming) + nodes_missed(state, refusal, value.cluster_queue)
        message = core + held_by(shortages(state, refusal, value), naming)
        remedy = cheapest(state, value, refusal, ahead)
        if remedy is not None and not isinstance(remedy, Wait):  # those to wait for are named
            message += f"; to help it: {remedy_text(remedy, naming)}"
        return PendingReason(refusal.reason, message, refusal.reason + core, requests)

    async def _write(self, workload: Workload, pending_reason: PendingReason) -> None:
        key, status = workload.metadata.key, self._status(workload, pending_reason)
        if status != workload.status:
            before = find_condition(workload.status.conditions, QUOTA_RESERVED)
            try:
                await self._writes.status(self._cache.mirrors.workloads, workload, status)
            except ConflictError:
                self.due.setdefault(key, pending_reason)  # the next try is based on what is there
                raise
            reason = written_reason(pending_reason.reason, detailed=self._detailed)
            new = before is None or before.reason != reason
            if pending_reason.requests is not None and (new or key not in self._written_reasons):
                metadata = workload.metadata
                self._writes.record(
                    WORKLOADS, metadata, reason, pending_reason.message, warning=True
                )
        self._written_reasons[key] = WrittenReason(pending_reason, self._writes.now)

    @property
    def _detailed(self) -> bool:
        return self._cache.state.settings.gates.unadmitted_workloads_observability

    def _status(self, workload: Workload, pending_reason: PendingReason) -> WorkloadStatus:
        now, detailed = self._writes.now, self._detailed
        if pending_reason.message == GATED_MESSAGE:
            workload = blocked_on_gates(workload, now=now)
        status = release(
            workload,
            reason=pending_reason.reason,
            message=pending_reason.message,
            now=now,
            detailed=detailed,
        )
        if pending_reason.requests is not None:
            status = with_requests(status, pending_reason.requests)
        return self._readiness.begun(with_status(workload, status), now=now)


def _waits(workload: Workload) -> bool:
    return workload.spec.active and not (has_quota(workload) or is_finished(workload))
