"""Plain pods as jobs: one pod, or a group of pods that start together.

A pod is held by a scheduling gate and started by removing it. It cannot be suspended again: to stop
it is to delete it. Pods of a group share a name and say how many they are; what they demand is
known once all are there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from policyd.api.kueue import PodSet, ReclaimablePod, Workload
from policyd.api.kueue.names import (
    ADMISSION_GATE,
    DEFAULT_POD_SET,
    IS_GROUP_WORKLOAD,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    POD_SET,
    RESOURCE_IN_USE_FINALIZER,
    RETRIABLE_IN_GROUP,
    ROLE_HASH,
    TOPOLOGY_GATE,
)
from policyd.api.meta import Condition, ObjectMeta, OwnerReference, Wire
from policyd.api.pods import PodSpec, PodTemplate
from policyd.jobs.base import Outcome, queue_name
from policyd.jobs.injection import Injection, inject
from policyd.jobs.topology import topology_request
from policyd.jobs.workload import Priority, copied_annotations, new_spec
from policyd.patch.draft import Draft

POD_INDEX_LABEL = "kueue.x-k8s.io/pod-group-pod-index"
SUSPENDING_PARENT = "kueue.x-k8s.io/pod-suspending-parent"
SERVING = "kueue.x-k8s.io/pod-group-serving"
LONGEST_AGO = datetime(1, 1, 1, tzinfo=UTC)


class PodStatus(Wire, frozen=True):
    """How far a pod has come."""

    phase: str = "Pending"
    conditions: tuple[Condition, ...] = ()


class Pod(Wire, frozen=True):
    """A pod, trimmed to what the queue reads."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def is_gated(pod: Pod) -> bool:
    """Tell whether a pod still waits for the queue."""
    return any(gate.name == ADMISSION_GATE for gate in pod.spec.scheduling_gates)


def has_ended(pod: Pod) -> bool:
    """Tell whether a pod has run to its end, well or badly."""
    return pod.status.phase in {"Succeeded", "Failed"}


def is_ready(pod: Pod) -> bool:
    """Tell whether a pod is ready, or has succeeded."""
    return pod.status.phase == "Succeeded" or any(
        condition.type == "Ready" and condition.status == "True"
        for condition in pod.status.conditions
    )


def group_name(metadata: ObjectMeta) -> str:
    """Return the group that a pod belongs to; the annotation wins over the label."""
    return metadata.annotations.get(POD_GROUP_NAME) or metadata.labels.get(POD_GROUP_NAME, "")


def total_count(metadata: ObjectMeta) -> int:
    """Return how many pods the group of a pod has; 0 if it does not say."""
    text = metadata.annotations.get(POD_GROUP_TOTAL_COUNT, "")
    return int(text) if text.isdecimal() else 0


def role_of(pod: Pod) -> str:
    """Return which pods of its group a pod is like."""
    return pod.metadata.annotations.get(ROLE_HASH, DEFAULT_POD_SET)


def by_age(pods: Iterable[Pod]) -> list[Pod]:
    """Sort pods by age, the oldest first; ties go by name."""
    return sorted(
        pods, key=lambda pod: (pod.metadata.creation_timestamp or LONGEST_AGO, pod.metadata.name)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodGroup:
    """All pods of a group, or one pod that is in none.

    Attributes:
        name: The group's name; empty for a pod that is in none.
        pods: Its pods, the oldest first; at least one.
    """

    name: str
    pods: tuple[Pod, ...]

    @property
    def first(self) -> Pod:
        """The oldest pod: it speaks for the group."""
        return self.pods[0]

    @property
    def total(self) -> int:
        """How many pods the group must have."""
        return total_count(self.first.metadata) if self.name else 1

    @property
    def serving(self) -> bool:
        """Whether the group runs for ever."""
        return self.first.metadata.annotations.get(SERVING) == "true"

    def running_or_able_to(self) -> list[Pod]:
        """Return the pods that count for the group: not failed, not deleted before they began."""
        return [
            pod
            for pod in self.pods
            if pod.status.phase != "Failed"
            and not (pod.metadata.deletion_timestamp and pod.spec.scheduling_gates)
        ]

    def gated(self) -> list[Pod]:
        """Return the pods that still wait for the queue."""
        return [p for p in self.pods if is_gated(p) and p.metadata.deletion_timestamp is None]

    def active(self) -> bool:
        """Tell whether a pod runs or may soon run: it was let go and has not ended."""
        return any(not is_gated(pod) and not has_ended(pod) for pod in self.pods)

    def ready(self) -> bool:
        """Tell whether all pods of the group are ready or have succeeded."""
        return sum(is_ready(pod) for pod in self.pods) >= self.total

    def contradiction(self) -> str:
        """Return in what the pods of the group disagree, as a sentence; empty if in nothing."""
        if not self.name:
            return ""
        if self.total < 1:
            return f"'{self.name}' group has no valid {POD_GROUP_TOTAL_COUNT}"
        for pod in self.pods[1:]:
            if total_count(pod.metadata) != self.total:
                return f"'{self.name}' group has pods with different {POD_GROUP_TOTAL_COUNT}"
            if queue_name(pod.metadata) != queue_name(self.first.metadata):
                return f"'{self.name}' group has pods with different queue names"
        return ""

    def pod_sets(self) -> tuple[PodSet, ...]:
        """Return what the group demands: a pod set for each role, sorted by name."""
        if not self.name:
            return (_pod_set(DEFAULT_POD_SET, self.first, 1),)
        roles: dict[str, list[Pod]] = {}
        for pod in self.running_or_able_to():
            roles.setdefault(role_of(pod), []).append(pod)
        return tuple(_pod_set(role, pods[0], len(pods)) for role, pods in sorted(roles.items()))

    def examples(self) -> tuple[str, ...]:
        """Return the name of one pod for each pod set: its template is the pod set's."""
        if not self.name:
            return (self.first.metadata.name,)
        named: dict[str, str] = {}
        for pod in self.running_or_able_to():
            named.setdefault(role_of(pod), pod.metadata.name)
        return tuple(name for _, name in sorted(named.items()))

    def succeeded(self) -> dict[str, set[str]]:
        """Return the uids of the pods that have succeeded, by pod set."""
        found: dict[str, set[str]] = {}
        for pod in self.pods:
            if pod.status.phase == "Succeeded":
                found.setdefault(self._role(pod), set()).add(pod.metadata.uid)
        return found

    def outcome(self, succeeded: Sequence[ReclaimablePod]) -> Outcome | None:
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
        if count >= self.total or (self._given_up() and not self.active()):
            return Outcome(succeeded=True, message=message)
        return None

    def _given_up(self) -> bool:
        return any(
            pod.metadata.annotations.get(RETRIABLE_IN_GROUP) == "false" and has_ended(pod)
            for pod in self.pods
        )

    def _role(self, pod: Pod) -> str:
        return role_of(pod) if self.name else DEFAULT_POD_SET

    def excess(self) -> tuple[Pod, ...]:
        """Return the pods beyond the group's total: those that wait, the youngest first."""
        counted = self.running_or_able_to()
        over = len(counted) - self.total
        if over <= 0:
            return ()
        ranked = sorted(counted, key=is_gated)
        return tuple(pod for pod in ranked[self.total :] if not has_ended(pod))


def _pod_set(name: str, pod: Pod, count: int) -> PodSet:
    return PodSet(
        name=name,
        count=count,
        template=PodTemplate(spec=pod.spec),
        topology_request=topology_request(
            pod.metadata.annotations, pod_index_label=POD_INDEX_LABEL
        ),
    )


def _single_outcome(pod: Pod) -> Outcome | None:
    if not has_ended(pod):
        return None
    succeeded = pod.status.phase == "Succeeded"
    return Outcome(succeeded=succeeded, message="" if succeeded else "Pod failed")


def owner_reference(pod: Pod, *, controller: bool) -> OwnerReference:
    """Return the reference by which a pod owns its workload, alone or as one of a group."""
    return OwnerReference(
        api_version="v1",
        kind="Pod",
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        controller=controller,
        block_owner_deletion=controller,
    )


def new_group_workload(group: PodGroup, *, priority: Priority) -> Workload:
    """Return the workload to create for a group of pods: it has the group's name."""
    first = group.first.metadata
    metadata = ObjectMeta(
        name=group.name,
        namespace=first.namespace,
        annotations={**copied_annotations(first), IS_GROUP_WORKLOAD: "true"},
        finalizers=(RESOURCE_IN_USE_FINALIZER,),
        owner_references=tuple(owner_reference(pod, controller=False) for pod in group.pods),
    )
    spec = new_spec(first, pod_sets=group.pod_sets(), priority=priority)
    return Workload(metadata=metadata, spec=spec)


def ungate(draft: Draft, injection: Injection) -> None:
    """Let a pod go, to where its pod set was assigned.

    Args:
        draft: The pod.
        injection: What its pod set got; gates of the queue that are not in it are removed, those
            that are have been there since the pod was made, if at all.

    Raises:
        StartError: If the pod says something else already.
    """
    inject(draft, (), replace(injection, gates=[]))
    without_gates(draft, frozenset({ADMISSION_GATE, TOPOLOGY_GATE}).difference(injection.gates))


def without_gates(draft: Draft, names: frozenset[str]) -> None:
    """Remove scheduling gates from a pod."""
    gates = draft.get(("spec", "schedulingGates")) or []
    for index in reversed(range(len(gates))):
        if gates[index].get("name") in names:
            draft.remove(("spec", "schedulingGates", index))


def pod_set_of(pod: Pod, workload: Workload) -> str:
    """Return the pod set of its workload that a pod belongs to; empty if to none."""
    names = [pod_set.name for pod_set in workload.spec.pod_sets]
    if workload.metadata.annotations.get(IS_GROUP_WORKLOAD) != "true":
        return names[0] if names else ""
    role = pod.metadata.labels.get(POD_SET) or role_of(pod)
    return role if role in names else ""
