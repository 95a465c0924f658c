"""Pods of a group that come and go while its workload waits or runs."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

import msgspec

from policyd.api.kueue import ReclaimablePod, Workload
from policyd.api.kueue.names import EVICTED, MANAGED, WAITING_FOR_REPLACEMENT
from policyd.api.meta import (
    Condition,
    condition_true,
    find_condition,
    timestamp,
    with_condition,
)
from policyd.api.pods import PodTemplate
from policyd.controller.patches import merge_patch, without_finalizer
from policyd.controller.watch.cache import Cache
from policyd.controller.writes import Writes
from policyd.jobs.kinds.registry import parent_of_pod
from policyd.jobs.lifecycle import WORKLOAD_DELETED, is_finished
from policyd.jobs.pod_groups import PodGroup
from policyd.jobs.pods import (
    TERMINATION_TARGET,
    QueuedPod,
    has_ended,
    is_kept,
    is_let_go,
    owner_reference,
    pod_set_of,
    was_stopped,
)
from policyd.jobs.requests import InvalidRequestsError, claims_within
from policyd.kube.errors import NotFoundError
from policyd.kube.resources import PODS, WORKLOADS
from policyd.workload.admitted_claims import Hold
from policyd.workload.transitions import set_condition
from policyd.workload.usage_book import AdmittedUsage

AT_ONCE = 8
"""Pods let out at a time."""
CALLED_OFF_SECONDS = 10.0
"""How long a group is kept whose pods were all deleted: they may be being replaced."""


class Membership:
    """Keeps the workload of a group in step with the pods of the group."""

    def __init__(self, cache: Cache, writes: Writes) -> None:
        self._cache = cache
        self._writes = writes
        self._called_off: dict[str, float] = {}

    async def tend(self, group: PodGroup, workload: Workload | None) -> bool:
        """Note pods that came, or came too many; tell whether something was written."""
        if not group.name:
            await self.let_out(group.let_out(workload))
            return False
        if workload is None:
            over = group.excess()
        elif is_finished(workload) or await self._own(group.within(workload), workload):
            over = ()
        else:
            over = group.beyond(workload)
        await self.let_out(group.let_out(workload))
        return await self._delete_excess(over)

    async def let_out(self, pods: Iterable[QueuedPod]) -> None:
        """Let pods go that stayed for the queue's sake: those that are deleted vanish.

        Raises:
            ApiError: If a pod could not be written.
        """
        leaving = tuple(pods)
        for start in range(0, len(leaving), AT_ONCE):
            calls = (self._let_out(pod) for pod in leaving[start : start + AT_ONCE])
            await asyncio.gather(*calls)

    async def _let_out(self, pod: QueuedPod) -> None:
        with suppress(NotFoundError):
            patch = without_finalizer(pod.metadata, MANAGED)
            await self._writes.patch(self._cache.mirrors.pods, pod, patch)

    async def call_off(self, group: PodGroup, workload: Workload | None) -> float | None:
        """Release a group whose pods were all deleted, and are not to be replaced.

        Returns:
            The seconds until that is so; None if it is not, or is done.
        """
        key = f"{group.first.metadata.namespace}/{group.name}"
        evicted = workload is not None and condition_true(workload.status.conditions, EVICTED)
        if not group.name or evicted or not group.called_off():
            self._called_off.pop(key, None)
            return None
        since = self._called_off.setdefault(key, self._writes.now)
        left = since + CALLED_OFF_SECONDS - self._writes.now
        if left > 0:
            return left
        del self._called_off[key]
        await self.let_out(pod for pod in group.pods if is_kept(pod))
        return None

    async def _own(self, group: PodGroup, workload: Workload) -> bool:
        """Have all pods of a group own its workload, so that it lives as long as any of them."""
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
        message = f"Added {len(new)} owner reference(s)"
        self._writes.record(WORKLOADS, workload.metadata, "OwnerReferencesAdded", message)
        return True

    def admit_members(
        self, pods: Iterable[QueuedPod], workload: Workload
    ) -> tuple[list[QueuedPod], float | None]:
        """Return those of the pods that ask for no more than their pod set was admitted with.

        A pod names its pod set. A pod that requests more stays gated, and gets an event.

        Returns:
            The pods, and the seconds until the others are looked at again; None if that is once
            they change.
        """
        kept: list[QueuedPod] = []
        waits: list[float] = []
        for pod in pods:
            hold = self._cache.hold_for_claims(pod, pod_set_of(pod, workload), workload)
            if hold is None and not self._is_alike(pod, workload):
                hold = Hold("asks for more than its pod set was admitted with")
            if hold is None:
                kept.append(pod)
                continue
            self._writes.record_held(pod.metadata, hold.why)
            if hold.seconds is not None:
                waits.append(hold.seconds)
        return kept, min(waits, default=None)

    def _is_alike(self, pod: QueuedPod, workload: Workload) -> bool:
        name = pod_set_of(pod, workload)
        pod_set = next((each for each in workload.spec.pod_sets if each.name == name), None)
        if pod_set is None or not claims_within(pod.spec, pod_set.template.spec):
            return False
        namespace = pod.metadata.namespace
        try:
            asked = self._cache.requests_of(PodTemplate(pod.metadata, pod.spec), namespace)
            given = self._cache.requests_of(pod_set.template, namespace)
        except InvalidRequestsError:
            return False
        if parent_of_pod(pod.metadata) is not None:
            return AdmittedUsage(count=1, amounts=given).holds(1, asked)
        # The template is a pod that other webhooks have changed already: there is nothing to spare.
        return all(amount <= given.get(name, 0) for name, amount in asked.items())

    async def note_missing(
        self, group: PodGroup, workload: Workload, succeeded: Iterable[ReclaimablePod]
    ) -> bool:
        """Say that pods must be replaced: until they are, the group does not queue.

        Returns:
            Whether the condition changed.
        """
        over = is_finished(workload) or group.outcome(tuple(succeeded)) is not None
        if over:
            return False
        if group.serving or not group.name:
            return False
        condition = _replacement(workload, missing=group.needs_more_pods(workload, succeeded))
        if condition is None:
            return False
        new = set_condition(workload, condition, now=self._writes.now)
        await self._writes.status(self._cache.mirrors.workloads, workload, new)
        return new != workload.status

    async def _delete_excess(self, pods: Iterable[QueuedPod]) -> bool:
        excess = [
            pod for pod in pods if pod.metadata.deletion_timestamp is None and not has_ended(pod)
        ]
        for pod in excess:
            await self._writes.delete(self._cache.mirrors.pods, pod)
            self._writes.record(PODS, pod.metadata, "ExcessPodDeleted", "Excess pod deleted")
        return bool(excess)

    async def dismiss(self, group: PodGroup, reason: str, message: str) -> None:
        """Delete the pods that were let go; those that still wait go on waiting.

        Without their workload they would wait for nothing, so then all are deleted.
        """
        everyone = reason == WORKLOAD_DELETED
        for pod in group.pods:
            is_there = pod.metadata.deletion_timestamp is None
            if is_let_go(pod) or (everyone and is_there):
                await self._announce(pod, reason, message)
                await self._writes.delete(self._cache.mirrors.pods, pod)
                self._writes.record(PODS, pod.metadata, "Stopped", message)

    async def _announce(self, pod: QueuedPod, reason: str, message: str) -> None:
        if was_stopped(pod):
            return
        condition = Condition(
            TERMINATION_TARGET, "True", reason, message, timestamp(self._writes.now)
        )
        conditions = msgspec.to_builtins(with_condition(pod.status.conditions, condition))
        patch = merge_patch(pod.metadata, status={"conditions": conditions})
        await self._writes.patch(self._cache.mirrors.pods, pod, patch, subresource="status")


def _replacement(workload: Workload, *, missing: bool) -> Condition | None:
    """Return the condition that says whether pods must be replaced, and why they are missing.

    None if there is nothing new to say: a group that was never short of pods, or still is, says so.
    """
    conditions = workload.status.conditions
    noted = condition_true(conditions, WAITING_FOR_REPLACEMENT)
    if not missing:
        text = "No pods need replacement"
        return Condition(WAITING_FOR_REPLACEMENT, "False", "PodsReady", text) if noted else None
    evicted = find_condition(conditions, EVICTED)
    if evicted is not None and evicted.status == "True":
        return Condition(WAITING_FOR_REPLACEMENT, "True", evicted.reason, evicted.message)
    text = "Some Failed pods need replacement"
    return None if noted else Condition(WAITING_FOR_REPLACEMENT, "True", "PodsFailed", text)
