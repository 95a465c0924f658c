"""Writes why workloads are pending: in their condition and as an event, not too often.

What a cycle decided is written immediately where the API server is idle. The rest is found out by
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
from policyd.kube.resources import WORKLOADS
from policyd.optimize.opt_ins import NO_OPT_INS
from policyd.status.left_out import nodes_missed
from policyd.status.remedies import Wait, remedy_text
from policyd.status.shortages import shortages
from policyd.status.what_helps import cheapest
from policyd.status.words import message_of
from policyd.workload.obstacles import GATED
from policyd.workload.transitions import release, told_reason, with_requests, with_status

AGAIN_SECONDS = 10.0
"""A message that says nothing new but names and numbers is written this often at most."""
LONGEST_REST_SECONDS = 1.0
"""Between two that are told at once, on a server so slow that what was decided should go first."""
_FROM_STATE: frozenset[RequeueReason] = frozenset({"NoFit", "PreemptionNoCandidates"})
"""Failures that can be found again in the state."""


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Why a workload is pending, as it is written.

    Attributes:
        reason: Of its condition.
        message: All of it.
        core: The part of the message that is written at once when it changes: without the holders.
        requests: What it would need; None to leave that as it is.
    """

    reason: str
    message: str
    core: str = ""
    requests: Mapping[str, Mapping[str, int]] | None = None


@dataclass(frozen=True, slots=True)
class WrittenReason:
    """The reason that a workload has, and when it was written."""

    said: PendingReason
    at: float


class PendingReasons:
    """Writes why workloads wait.

    Attributes:
        due: What is to be told, by key, and is not written yet.
        decided: What cycles decided that cannot be found in the state, by key.
        limited: Whether so much is pending that only these are written at once.
    """

    def __init__(self, cache: Cache, writes: Writes, readiness: AwaitedPods) -> None:
        self._cache = cache
        self._writes = writes
        self._readiness = readiness
        self._pace = writes.pace
        self._told: dict[str, WrittenReason] = {}
        self.due: dict[str, PendingReason] = {}
        self.decided: dict[str, Requeue] = {}
        self.limited = False
        self._busy = False
        self._free_at = 0.0

    def forget(self, key: str) -> None:
        """Forget a workload that is gone, or was admitted."""
        self._told.pop(key, None)
        self.overtaken(key)

    def overtaken(self, key: str) -> None:
        """Drop a reason that is not written yet: something newer was decided."""
        self.due.pop(key, None)
        self.decided.pop(key, None)

    def drop(self) -> None:
        """Forget what is to be written and what was: another process leads from now on."""
        for each in (self._told, self.due, self.decided):
            each.clear()

    def told(self, workload: Workload) -> WrittenReason | None:
        """Return what a workload was told; None if its condition says something else."""
        told = self._told.get(workload.metadata.key)
        present = find_condition(workload.status.conditions, QUOTA_RESERVED)
        same = told is not None and present is not None and present.message == told.said.message
        return told if same else None

    async def tell(self, workload: Workload, action: Requeue) -> None:
        """Write why a workload waits, or leave that for later."""
        key = workload.metadata.key
        opt_ins = self._cache.opt_ins(action.workload.cluster_queue)
        if action.reason not in _FROM_STATE or opt_ins is not NO_OPT_INS:
            self.decided[key] = action
        elif self.limited:
            return
        if self._busy or self._pace.clock.monotonic() < self._free_at or not _waits(workload):
            return
        said = self.own(action.workload, action.refusal, action.requests, action)
        told = self.told(workload)
        if told is not None and told.said.core == said.core:
            return  # the next sweep corrects which workloads hold it now
        began = self._pace.clock.monotonic()
        self._busy = True
        try:
            await self._write(workload, said)
        finally:
            rest = self._pace.rest_after(began, most=LONGEST_REST_SECONDS)
            self._free_at = self._pace.clock.monotonic() + rest
            self._busy = False

    async def tell_due(self, workload: Workload) -> None:
        """Write what is to be told to a workload, if it still waits."""
        said = self.due.pop(workload.metadata.key, None)
        if said is None or not _waits(workload):
            return
        if self._cache.state.waiting(workload.metadata.key) is not None:
            await self._write(workload, said)

    def own(
        self,
        value: Value,
        refusal: Refusal,
        requests: Mapping[str, Mapping[str, int]],
        action: Requeue | None = None,
    ) -> PendingReason:
        """Return what to tell a workload that was refused, by an action of a cycle, or would be."""
        if action is not None and action.reason == "PreemptionGated":
            return PendingReason(GATED, GATED_MESSAGE, GATED, requests)
        state, naming = self._cache.state, naming_for(self._cache, value.key)
        core = message_of(refusal, naming) + nodes_missed(state, refusal, value.cluster_queue)
        message = core + held_by(
            shortages(state, refusal, value.cluster_queue, replaces=value.replaces), naming
        )
        remedy = cheapest(state, value, refusal)
        if remedy is not None and not isinstance(remedy, Wait):  # those to wait for are named
            message += f"; to help it: {remedy_text(remedy, naming)}"
        return PendingReason(refusal.reason, message, refusal.reason + core, requests)

    async def _write(self, workload: Workload, said: PendingReason) -> None:
        key, status = workload.metadata.key, self._status(workload, said)
        if status != workload.status:
            before = find_condition(workload.status.conditions, QUOTA_RESERVED)
            await self._writes.status(self._cache.mirrors.workloads, workload, status)
            reason = told_reason(said.reason, detailed=self._detailed)
            new = before is None or before.reason != reason
            if said.requests is not None and (new or key not in self._told):
                metadata = workload.metadata
                self._writes.record(WORKLOADS, metadata, reason, said.message, warning=True)
        self._told[key] = WrittenReason(said, self._writes.now)

    @property
    def _detailed(self) -> bool:
        return self._cache.state.settings.gates.unadmitted_workloads_observability

    def _status(self, workload: Workload, said: PendingReason) -> WorkloadStatus:
        now, detailed = self._writes.now, self._detailed
        if said.message == GATED_MESSAGE:
            workload = blocked_on_gates(workload, now=now)
        status = release(
            workload, reason=said.reason, message=said.message, now=now, detailed=detailed
        )
        if said.requests is not None:
            status = with_requests(status, said.requests)
        return self._readiness.begun(with_status(workload, status), now=now)


def _waits(workload: Workload) -> bool:
    return workload.spec.active and not (has_quota(workload) or is_finished(workload))
