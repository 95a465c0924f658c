"""Pods of a group that come and go while its workload waits or runs."""

import msgspec

from policyd.api.kueue import ReclaimablePod, Workload
from policyd.api.meta import Condition, condition_true
from policyd.controller.cache import WAITING_FOR_REPLACEMENT, Cache
from policyd.controller.transitions import set_condition
from policyd.controller.writes import Writes
from policyd.jobs.lifecycle import is_finished
from policyd.jobs.pods import PodGroup, has_ended, owner_reference
from policyd.kube.resources import PODS


class Membership:
    """Keeps the workload of a group in step with who is in the group."""

    def __init__(self, cache: Cache, writes: Writes) -> None:
        self._cache = cache
        self._writes = writes

    async def tend(
        self, group: PodGroup, workload: Workload, succeeded: tuple[ReclaimablePod, ...]
    ) -> bool:
        """Take notice of pods that came or went; tell whether something was written."""
        if is_finished(workload):
            return False
        if await self._own(group, workload):
            return True
        if group.outcome(succeeded) is None and await self._note_missing(
            group, workload, sum(each.count for each in succeeded)
        ):
            return True
        return await self._delete_excess(group)

    async def _own(self, group: PodGroup, workload: Workload) -> bool:
        """Have all pods of a group own its workload, so that it lives as long as any of them."""
        if not group.name:
            return False
        owners = workload.metadata.owner_references
        known = {owner.uid for owner in owners}
        new = [pod for pod in group.pods if pod.metadata.uid not in known]
        if not new:
            return False
        added = (owner_reference(pod, controller=False) for pod in new)
        references = msgspec.to_builtins((*owners, *added))
        version = workload.metadata.resource_version
        patch = {"metadata": {"resourceVersion": version, "ownerReferences": references}}
        await self._writes.patch(self._cache.mirrors.workloads, workload, patch)
        self._writes.tell(
            PODS,
            group.first.metadata,
            "OwnerReferencesAdded",
            f"Added {len(new)} owner reference(s)",
        )
        return True

    async def _note_missing(self, group: PodGroup, workload: Workload, succeeded: int) -> bool:
        """Say that pods must be replaced: until they are, the group does not queue."""
        able = sum(not has_ended(pod) for pod in group.running_or_able_to())
        missing = able + succeeded < group.total
        noted = condition_true(workload.status.conditions, WAITING_FOR_REPLACEMENT)
        if missing == noted or not group.name:
            return False
        text = "Some Failed pods need replacement" if missing else "No pods need replacement"
        reason = "PodsFailed" if missing else "PodsReady"
        condition = Condition(WAITING_FOR_REPLACEMENT, "True" if missing else "False", reason, text)
        new = set_condition(workload, condition, now=self._writes.now)
        await self._writes.status(self._cache.mirrors.workloads, workload, new)
        return True

    async def _delete_excess(self, group: PodGroup) -> bool:
        excess = [pod for pod in group.excess() if pod.metadata.deletion_timestamp is None]
        for pod in excess:
            await self._writes.delete(self._cache.mirrors.pods, pod)
            self._writes.tell(PODS, pod.metadata, "ExcessPodDeleted", "Excess pod deleted")
        return bool(excess)
