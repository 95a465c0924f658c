"""Tells workloads why they wait: in their condition and by an event, no more often than of use."""

from policyd.alloc.plan import Requeue
from policyd.api.kueue import Workload
from policyd.api.kueue.names import QUOTA_RESERVED
from policyd.api.meta import condition_true
from policyd.controller.cache import Cache
from policyd.controller.preemptions import blocked_on_gates
from policyd.controller.shortage import held_by
from policyd.controller.transitions import release, told_reason, with_requests
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


class Waiting:
    """Writes why workloads wait."""

    def __init__(self, cache: Cache, writes: Writes) -> None:
        self._cache = cache
        self._writes = writes
        self._told_at: dict[str, tuple[str, float]] = {}
        self._untold: dict[str, Requeue] = {}

    def forget(self, key: str) -> None:
        """Take notice that a workload is gone."""
        self._told_at.pop(key, None)
        self._untold.pop(key, None)

    def overtaken(self, key: str) -> None:
        """Take notice that something newer was decided than what was put off."""
        self._untold.pop(key, None)

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
        refusal, now, key = action.refusal, self._writes.now, workload.metadata.key
        found = shortages(self._cache.state, refusal, action.workload.cluster_queue)
        text = message_of(refusal)
        text += nodes_missed(self._cache.state, refusal, action.workload.cluster_queue)
        message = text + held_by(found, self._cache.mirrors.workloads) + self._help(action)
        detailed = self._cache.state.settings.gates.unadmitted_workloads_observability
        gated = action.reason == "PreemptionGated"
        status = with_requests(
            release(
                blocked_on_gates(workload, now=now) if gated else workload,
                reason=refusal.reason,
                message=message,
                now=now,
                detailed=detailed,
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
        await self._writes.status(self._cache.mirrors.workloads, workload, status)
        self._told_at[key] = (refusal.reason + text, now)
        reason = told_reason(refusal.reason, detailed=detailed)
        self._writes.tell(WORKLOADS, workload.metadata, reason, message, bad=True)
        return None

    def _help(self, action: Requeue) -> str:
        """Say what would help, if it is more than to wait for those who are named already."""
        remedy = cheapest(self._cache.state, action.workload, action.refusal)
        if remedy is None or isinstance(remedy, Wait):
            return ""
        return f"; to help it: {remedy_text(remedy)}"
