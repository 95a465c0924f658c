"""Tells workloads why they wait: in their condition and by an event, no more often than of use."""

from policyd.alloc.plan import Requeue
from policyd.api.kueue import Workload, WorkloadStatus
from policyd.api.kueue.names import QUOTA_RESERVED
from policyd.api.meta import condition_true
from policyd.controller.cache import Cache
from policyd.controller.preemptions import blocked_on_gates
from policyd.controller.readiness import Readiness
from policyd.controller.shortage import held_by
from policyd.controller.transitions import release, told_reason, with_requests, with_status
from policyd.controller.writes import Writes
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.kube.resources import WORKLOADS
from policyd.status.left_out import nodes_missed
from policyd.status.remedies import Wait, remedy_text
from policyd.status.shortages import shortages
from policyd.status.what_helps import cheapest
from policyd.status.words import message_of

HOLDERS_SECONDS = 10.0
"""A message in which only the holders of what is missing are new is written this often at most."""

TURN_SECONDS = 0.1
"""About what one write takes: so long does each wait that is told after another."""
LONGEST_REST_SECONDS = 1.0
"""Between two that are told, on a server so slow that what was decided should go first."""


class Waiting:
    """Writes why workloads wait: one after the other, so that what was decided goes first.

    Who is admitted before his turn comes need not be told any more; on a busy server most are.
    """

    def __init__(self, cache: Cache, writes: Writes, readiness: Readiness) -> None:
        self._cache = cache
        self._writes = writes
        self._readiness = readiness
        self._pace = writes.pace
        self._told_at: dict[str, tuple[str, float]] = {}
        self._untold: dict[str, Requeue] = {}
        self._busy = False
        self._free_at = 0.0

    def forget(self, key: str) -> None:
        """Take notice that a workload is gone."""
        self._told_at.pop(key, None)
        self._untold.pop(key, None)

    def overtaken(self, key: str) -> None:
        """Take notice that something newer was decided than what was put off."""
        self._untold.pop(key, None)

    def drop(self) -> None:
        """Forget what was put off and what was told: somebody else tells it from now on."""
        self._told_at.clear()
        self._untold.clear()

    async def tell_late(self, workload: Workload) -> float | None:
        """Write who holds what is missing, if that was put off; return the seconds until then."""
        action = self._untold.pop(workload.metadata.key, None)
        if action is None or action.workload.uid != workload.metadata.uid:
            return None
        return await self.tell(workload, action)

    async def tell(self, workload: Workload, action: Requeue) -> float | None:
        """Write why a workload waits; return the seconds until that is due if it is put off."""
        if has_quota(workload) or not workload.spec.active or is_finished(workload):
            return None
        key, refusal = workload.metadata.key, action.refusal
        if self._busy or self._pace.clock.monotonic() < self._free_at:
            self._untold[key] = action
            return TURN_SECONDS * len(self._untold)
        text = message_of(refusal)
        text += nodes_missed(self._cache.state, refusal, action.workload.cluster_queue)
        found = shortages(self._cache.state, refusal, action.workload.cluster_queue)
        message = text + held_by(found, self._cache.mirrors.workloads) + self._help(action)
        status = self._status(workload, action, message)
        if status == workload.status:
            return None
        told = refusal.reason + text
        late = self._put_off(workload, told)
        if late is not None:
            self._untold[key] = action
            return late
        began = self._pace.clock.monotonic()
        self._busy, self._untold[key] = True, action
        try:
            await self._writes.status(self._cache.mirrors.workloads, workload, status)
        finally:
            rest = self._pace.rest_after(began, most=LONGEST_REST_SECONDS)
            self._free_at = self._pace.clock.monotonic() + rest
            self._busy = False
        self._untold.pop(key, None)  # until then it is not told: somebody may have been faster
        self._told_at[key] = (told, self._writes.now)
        reason = told_reason(refusal.reason, detailed=self._detailed)
        self._writes.tell(WORKLOADS, workload.metadata, reason, message, bad=True)
        return None

    @property
    def _detailed(self) -> bool:
        return self._cache.state.settings.gates.unadmitted_workloads_observability

    def _status(self, workload: Workload, action: Requeue, message: str) -> WorkloadStatus:
        now = self._writes.now
        if action.reason == "PreemptionGated":
            workload = blocked_on_gates(workload, now=now)
        reason, detailed = action.refusal.reason, self._detailed
        status = release(workload, reason=reason, message=message, now=now, detailed=detailed)
        status = with_requests(status, action.requests)
        return self._readiness.begun(with_status(workload, status), now=now)

    def _put_off(self, workload: Workload, told: str) -> float | None:
        """Return the seconds until a message is due that says nothing new but names."""
        before, at = self._told_at.get(workload.metadata.key, ("", 0.0))
        passed = self._writes.now - at
        if (
            told == before
            and passed < HOLDERS_SECONDS
            and not condition_true(workload.status.conditions, QUOTA_RESERVED)
        ):
            return HOLDERS_SECONDS - passed
        return None

    def _help(self, action: Requeue) -> str:
        """Say what would help, if it is more than to wait for those who are named already."""
        remedy = cheapest(self._cache.state, action.workload, action.refusal)
        if remedy is None or isinstance(remedy, Wait):
            return ""
        return f"; to help it: {remedy_text(remedy)}"
