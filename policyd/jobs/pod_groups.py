"""Pods that start together as a job: they share a name and say how many they are."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from policyd.api.gpus import part_of
from policyd.api.kueue import PodSet, ReclaimablePod, Workload
from policyd.api.kueue.names import (
    DEFAULT_POD_SET,
    IS_GROUP_WORKLOAD,
    POD_GROUP_TOTAL_COUNT,
    RESOURCE_IN_USE_FINALIZER,
    RETRIABLE_IN_GROUP,
)
from policyd.api.meta import ObjectMeta
from policyd.api.pods import PodTemplate
from policyd.jobs.base import JobOutcome, prebuilt_name, queue_name
from policyd.jobs.gangs.gang import start_order
from policyd.jobs.lifecycle import has_quota, is_finished
from policyd.jobs.pods import (
    POD_INDEX_LABEL,
    SERVING,
    SUSPENDING_PARENT,
    QueuedPod,
    counts,
    has_ended,
    is_deleted,
    is_gated,
    is_kept,
    is_ready,
    last_active,
    owner_reference,
    pod_set_of,
    role_of,
    total_count,
    uses_quota,
    was_stopped,
)
from policyd.jobs.topology import topology_request
from policyd.jobs.workload import Priority, equivalent, keeps_time, new_spec

FAST_ADMISSION: Final = "kueue.x-k8s.io/pod-group-fast-admission"
RESIZED: Final = "what makes them is to be scaled to 0 before it gets another size"
MOST_ROLES: Final = 18


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """All pods of a group, or one pod that is in none.

    Attributes:
        name: The group's name; empty for a pod that is in none.
        pods: Its pods, the oldest first; at least one.
    """

    name: str
    pods: tuple[QueuedPod, ...]

    @property
    def first(self) -> QueuedPod:
        """The oldest pod: it speaks for the group."""
        return self.pods[0]

    @property
    def prebuilt(self) -> bool:
        """Whether the group names a prebuilt workload."""
        return bool(prebuilt_name(self.first.metadata))

    @property
    def fast(self) -> bool:
        """Whether the group queues as soon as one of its pods exists: all are like that one."""
        return self.first.metadata.annotations.get(FAST_ADMISSION) == "true"

    @property
    def workload_name(self) -> str:
        """Name of the workload of a group: the prebuilt one, or its own."""
        return prebuilt_name(self.first.metadata) or self.name

    @property
    def total(self) -> int:
        """How many pods the group must have."""
        return total_count(self.first.metadata) if self.name else 1

    @property
    def serving(self) -> bool:
        """Whether the group runs for ever."""
        return self.first.metadata.annotations.get(SERVING) == "true"

    def running_or_able_to(self) -> list[QueuedPod]:
        """Return the pods that count for the group."""
        return [pod for pod in self.pods if counts(pod)]

    def by_size(self) -> "tuple[PodGroup, list[QueuedPod]]":
        """Return the group without the pods that wait and name another size, and those."""
        own: list[QueuedPod] = []
        others: list[QueuedPod] = []
        for pod in self.pods:
            same = not self.name or not is_gated(pod) or total_count(pod.metadata) == self.total
            (own if same else others).append(pod)
        return replace(self, pods=tuple(own)), others

    def within(self, workload: Workload) -> "PodGroup":
        """Return the group without the pods for which its workload has no place."""
        kept, _ = self._by_place(workload)
        return replace(self, pods=tuple(pod for pod in self.pods if pod.metadata.name in kept))

    def beyond(self, workload: Workload) -> tuple[QueuedPod, ...]:
        """Return the pods for which its workload has no place, and that have not ended."""
        _, excess = self._by_place(workload)
        return tuple(pod for pod in self.pods if pod.metadata.name in excess)

    def let_out(self, workload: Workload | None) -> tuple[QueuedPod, ...]:
        """Return the pods that need not stay any longer, deleted or to be deleted.

        While the group goes on, those stay that have failed, or are being deleted, and are not
        replaced yet.
        """
        kept = tuple(pod for pod in self.pods if is_kept(pod))
        if not self.name:
            over = workload is None or is_finished(workload)
            return tuple(p for p in kept if is_deleted(p) or (over and has_ended(p)))
        if workload is None:
            return tuple(p for p in kept if not counts(p) or (is_deleted(p) and has_ended(p)))
        if is_finished(workload):
            return kept
        if workload.metadata.deletion_timestamp is not None:
            return tuple(pod for pod in kept if is_deleted(pod))
        placed, excess = self._by_place(workload)
        return tuple(
            pod
            for pod in kept
            if pod.metadata.name in excess
            or (pod.metadata.name not in placed and (is_deleted(pod) or not counts(pod)))
        )

    def called_off(self) -> bool:
        """Tell whether all pods have been deleted, and none of them by the queue."""
        return all(is_deleted(pod) and not was_stopped(pod) for pod in self.pods)

    def fits(self, workload: Workload) -> bool:
        """Tell whether a workload stands for the group as it is.

        Once it has quota pods may come and go, as long as some are of its pod sets.
        """
        if is_finished(workload) and not self.prebuilt:
            return True
        same_time = keeps_time(self.first.metadata, workload)
        if not self.name:
            return same_time and equivalent(self.pod_sets(), workload)
        if not (same_time or self.prebuilt or has_quota(workload)):
            return False
        placed = self.within(workload)
        complete = len(self.running_or_able_to()) >= self.total
        # The template of a parent defines its pods, and the API server adds to them; a pod that
        # was ungated has been changed for it.
        if (
            has_quota(workload)
            or not complete
            or SUSPENDING_PARENT in self.first.metadata.annotations
            or not all(is_gated(pod) for pod in placed.pods)
        ):
            return bool(placed.pods)
        return bool(placed.pods) and equivalent(placed.pod_sets(), workload)

    def _by_place(self, workload: Workload) -> tuple[set[str], set[str]]:
        """Return the names of the pods that have a place in a workload, and of those too many.

        Those that were not let out come first, then those that were let go, then the older ones.
        Failed pods have no place once all are replaced: those that failed first lose theirs first.
        """
        kept: set[str] = set()
        excess: set[str] = set()
        for pod_set in workload.spec.pod_sets:
            own = [pod for pod in self.pods if pod_set_of(pod, workload) == pod_set.name]
            active = sorted((p for p in own if counts(p)), key=_rank)
            lost = sorted((p for p in own if not counts(p)), key=last_active, reverse=True)
            lost.sort(key=is_kept, reverse=True)
            missing = max(0, pod_set.count - len(active))
            kept.update(_names((*active[: pod_set.count], *lost[:missing])))
            excess.update(_names(active[pod_set.count :]))
        return kept, excess

    def gated(self) -> list[QueuedPod]:
        """Return the pods that still wait for the queue."""
        return [p for p in self.pods if is_gated(p) and p.metadata.deletion_timestamp is None]

    def to_let_go(self) -> list[QueuedPod]:
        """Return the pods that wait and whose turn it is: all of a lower number are ready."""
        able = self.running_or_able_to()
        turn = min((start_order(p.metadata) for p in able if not is_ready(p)), default=0)
        return [pod for pod in self.gated() if start_order(pod.metadata) <= turn]

    def metadata_by_pod_set(self, workload: Workload) -> dict[str, ObjectMeta]:
        """Return the metadata of the oldest pod of each pod set of its workload."""
        return {pod_set_of(pod, workload): pod.metadata for pod in reversed(self.pods)}

    def active(self, *, now: float, fast: bool = False) -> bool:
        """Tell whether a pod runs; the arguments as in `uses_quota`."""
        return any(uses_quota(pod, now=now, fast=fast) for pod in self.pods)

    def ready(self) -> bool:
        """Tell whether all pods of the group are ready or have succeeded."""
        return 0 < self.total <= sum(is_ready(pod) for pod in self.pods)

    def contradiction(self) -> str:
        """Return the difference between the group's pods, as a sentence; empty if there is none."""
        if not self.name:
            return ""
        if self.total < 1:
            return f"'{self.name}' group has no valid {POD_GROUP_TOTAL_COUNT}"
        for pod in self.pods[1:]:
            if total_count(pod.metadata) != self.total:
                text = f"'{self.name}' group has pods with different {POD_GROUP_TOTAL_COUNT}"
                made = SUSPENDING_PARENT in self.first.metadata.annotations
                return f"{text}: {RESIZED}" if made else text
            elsewhere = queue_name(pod.metadata) != queue_name(self.first.metadata)
            if elsewhere and not self.prebuilt:
                return f"'{self.name}' group has pods with different queue names"
        if len({role_of(pod) for pod in self.pods}) > MOST_ROLES:
            return f"pod group can't include more than {MOST_ROLES} roles"
        return next(filter(None, (self._wrong_index(pod) for pod in self.pods)), "")

    def _wrong_index(self, pod: QueuedPod) -> str:
        index = pod.metadata.labels.get(POD_INDEX_LABEL)
        if index is None or (index.isdecimal() and int(index) < self.total):
            return ""
        return (
            f"{POD_INDEX_LABEL} `{index}` of {pod.metadata.name} is not from 0 to {self.total - 1}"
        )

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return the pod sets of the group: one for each role, sorted by name."""
        if not self.name:
            return (_pod_set(DEFAULT_POD_SET, self.first, 1),)
        roles: dict[str, list[QueuedPod]] = {}
        able = self.running_or_able_to()
        if self.fast and able:
            return (_pod_set(role_of(able[0]), able[0], self.total),)
        for pod in able:
            roles.setdefault(role_of(pod), []).append(pod)
        return tuple(_pod_set(role, pods[0], len(pods)) for role, pods in sorted(roles.items()))

    def examples(self) -> tuple[str, ...]:
        """Return the name of one pod for each pod set: its template is the pod set's."""
        if not self.name:
            return (self.first.metadata.name,)
        named: dict[str, str] = {}
        for pod in self.running_or_able_to()[: 1 if self.fast else None]:
            named.setdefault(role_of(pod), pod.metadata.name)
        return tuple(name for _, name in sorted(named.items()))

    def needs_more_pods(self, workload: Workload, succeeded: Iterable[ReclaimablePod]) -> bool:
        """Tell whether pods of a group are to be replaced, or made, before it may queue.

        One that queues as soon as one of its pods exists need not have more of a pod set.
        """
        there = Counter({each.name: each.count for each in succeeded})
        able = (pod for pod in self.running_or_able_to() if not has_ended(pod))
        there.update(pod_set_of(pod, workload) for pod in able)
        sets = workload.spec.pod_sets
        return any(there[p.name] < (min(p.count, 1) if self.fast else p.count) for p in sets)

    def succeeded(self) -> dict[str, set[str]]:
        """Return the uids of the pods that have succeeded, by pod set."""
        found: dict[str, set[str]] = {}
        for pod in self.pods:
            if pod.status.phase == "Succeeded":
                found.setdefault(self._role(pod), set()).add(pod.metadata.uid)
        return found

    def outcome(self, succeeded: Sequence[ReclaimablePod]) -> JobOutcome | None:
        """Return how the group ended; None while it has not.

        Args:
            succeeded: How many pods have succeeded, those included that are gone since.
        """
        if not self.name:
            return _single_outcome(self.first)
        if self.serving:
            return None
        count = sum(each.count for each in succeeded)
        message = f"Pods succeeded: {count}/{self.total}."
        if count >= self.total or self._given_up():
            return JobOutcome(succeeded=True, message=message)
        return None

    def _given_up(self) -> bool:
        last = any(p.metadata.annotations.get(RETRIABLE_IN_GROUP) == "false" for p in self.pods)
        return last and all(has_ended(pod) for pod in self.pods)

    def _role(self, pod: QueuedPod) -> str:
        return role_of(pod) if self.name else DEFAULT_POD_SET

    def excess(self) -> tuple[QueuedPod, ...]:
        """Return the pods beyond the group's total: those that wait, the youngest first."""
        counted = self.running_or_able_to()
        over = len(counted) - self.total
        if over <= 0:
            return ()
        ranked = sorted(counted, key=_rank)
        return tuple(pod for pod in ranked[self.total :] if not has_ended(pod))


def _rank(pod: QueuedPod) -> tuple[bool, bool]:
    """Order pods by their right to a place if there are too many; older ones are first anyway."""
    return not is_kept(pod), is_gated(pod)


def _names(pods: Iterable[QueuedPod]) -> set[str]:
    return {pod.metadata.name for pod in pods}


def pod_template(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template that a Workload has of a pod, as it is sent.

    Kueue leaves its metadata out; the part of a GPU that it requests decides about quota.
    """
    part = part_of(pod["metadata"].get("annotations") or {})
    metadata = {"metadata": {"annotations": part}} if part else {}
    return {**metadata, "spec": pod["spec"]}


def _pod_set(name: str, pod: QueuedPod, count: int) -> PodSet:
    return PodSet(
        name=name,
        count=count,
        template=PodTemplate(ObjectMeta(annotations=part_of(pod.metadata.annotations)), pod.spec),
        topology_request=topology_request(
            pod.metadata.annotations, pod_index_label=POD_INDEX_LABEL
        ),
    )


def _single_outcome(pod: QueuedPod) -> JobOutcome | None:
    if not has_ended(pod):
        return None
    succeeded = pod.status.phase == "Succeeded"
    text = pod.status.message or ("" if succeeded else "Pod failed")
    return JobOutcome(succeeded=succeeded, message=text)


def new_group_workload(
    group: PodGroup, *, pod_sets: tuple[PodSet, ...], priority: Priority
) -> Workload:
    """Return the workload to create for a group of pods: it has the group's name."""
    first = group.first.metadata
    metadata = ObjectMeta(
        name=group.workload_name,
        namespace=first.namespace,
        annotations={IS_GROUP_WORKLOAD: "true"},
        finalizers=(RESOURCE_IN_USE_FINALIZER,),
        owner_references=tuple(owner_reference(pod, controller=False) for pod in group.pods),
    )
    spec = new_spec(first, pod_sets=pod_sets, priority=priority)
    return Workload(metadata=metadata, spec=spec)


class Successes:
    """How many pods of a group have succeeded, though some may have been deleted since.

    A workload records the number in each pod set. Those of them that did not exist when the
    counting began were deleted; from then on every pod is known by its uid.
    """

    def __init__(self, group: PodGroup, before: Sequence[ReclaimablePod]) -> None:
        self._seen = group.succeeded()
        self._gone = {
            each.name: max(0, each.count - len(self._seen.get(each.name, ()))) for each in before
        }

    def count(self, group: PodGroup) -> tuple[ReclaimablePod, ...]:
        """Take in the group as it is now, and return the numbers by pod set."""
        for role, uids in group.succeeded().items():
            self._seen.setdefault(role, set()).update(uids)
        counts = {
            role: self._gone.get(role, 0) + len(self._seen.get(role, ()))
            for role in {**self._gone, **self._seen}
        }
        return tuple(ReclaimablePod(name=r, count=c) for r, c in sorted(counts.items()) if c)
