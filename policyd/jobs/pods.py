"""Plain pods as jobs: one pod, or a group of pods that start together.

A pod is held by a scheduling gate and started by removing it. It cannot be suspended again: to stop
it is to delete it. Pods of a group share a name and state their number; their requests are
known once all exist.
"""

from collections.abc import (
    Iterable,
    Mapping,
)
from dataclasses import (
    replace,
)
from datetime import (
    UTC,
    datetime,
)
from hashlib import (
    sha256,
)

import msgspec

from policyd.api.gpus import PARTS, part_of
from policyd.api.integers import (
    whole_number,
)
from policyd.api.kueue import (
    Workload,
)
from policyd.api.kueue.names import (
    ADMISSION_GATE,
    DEFAULT_POD_SET,
    MANAGED,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    POD_SET,
    ROLE_HASH,
    TOPOLOGY_GATE,
)
from policyd.api.meta import (
    Condition,
    Json,
    ObjectMeta,
    OwnerReference,
    Wire,
    condition_true,
    find_condition,
)
from policyd.api.pods import (
    PodSpec,
)
from policyd.jobs.injection import (
    PodInjection,
    inject,
)
from policyd.patch.draft import (
    Draft,
)

POD_INDEX_LABEL = "kueue.x-k8s.io/pod-group-pod-index"
SUSPENDING_PARENT = "kueue.x-k8s.io/pod-suspending-parent"
SERVING = "kueue.x-k8s.io/pod-group-serving"
LONGEST_AGO = datetime(1, 1, 1, tzinfo=UTC)
NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
"""Selects pods that may still run."""
LATEST = datetime(9999, 1, 1, tzinfo=UTC)
TERMINATION_TARGET = "TerminationTarget"
"""Condition of a pod that was stopped, and why."""


class PodClaimStatus(Wire, frozen=True):
    """The claim that was made from a template for one of a pod's `resourceClaims`."""

    name: str = ""
    resource_claim_name: str = ""


class QueuedPodStatus(Wire, frozen=True):
    """How far a pod has come."""

    phase: str = "Pending"
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    resource_claim_statuses: tuple[PodClaimStatus, ...] = ()


class QueuedPod(Wire, frozen=True):
    """A pod, trimmed to the fields that the queue reads."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: QueuedPodStatus = QueuedPodStatus()


def is_gated(pod: QueuedPod) -> bool:
    """Tell whether a pod still waits for the queue."""
    return any(gate.name == ADMISSION_GATE for gate in pod.spec.scheduling_gates)


def is_kept(pod: QueuedPod) -> bool:
    """Tell whether a pod that is deleted stays until the queue lets it go."""
    return MANAGED in pod.metadata.finalizers


def is_deleted(pod: QueuedPod) -> bool:
    """Tell whether a pod was deleted, though it may still be there."""
    return pod.metadata.deletion_timestamp is not None


def is_over(pod: QueuedPod) -> bool:
    """Tell whether a pod has ended, or is to."""
    return has_ended(pod) or is_deleted(pod)


def was_stopped(pod: QueuedPod) -> bool:
    """Tell whether it was the queue that stopped a pod."""
    return condition_true(pod.status.conditions, TERMINATION_TARGET)


def last_active(pod: QueuedPod) -> datetime:
    """Return when a pod failed, or was deleted; a time to come if neither is known."""
    failed = find_condition(pod.status.conditions, "ContainersReady")
    since = (
        failed.last_transition_time
        if failed is not None and (failed.status, failed.reason) == ("False", "Failed")
        else None
    )
    moments = (since, pod.metadata.deletion_timestamp)
    return min((each for each in moments if each is not None), default=LATEST)


def has_ended(pod: QueuedPod) -> bool:
    """Tell whether a pod has run to its end, well or badly."""
    return pod.status.phase in {"Succeeded", "Failed"}


def is_let_go(pod: QueuedPod) -> bool:
    """Tell whether a pod runs, or may soon, and was not deleted."""
    return not (is_gated(pod) or has_ended(pod)) and pod.metadata.deletion_timestamp is None


def counts(pod: QueuedPod) -> bool:
    """Tell whether a pod is one of its group: it has not failed, nor gone before it had a node."""
    gone = pod.metadata.deletion_timestamp is not None and not pod.spec.node_name
    return pod.status.phase != "Failed" and not gone


def uses_quota(pod: QueuedPod, *, now: float, fast: bool = False) -> bool:
    """Tell whether a pod runs.

    Args:
        pod: The pod.
        now: Seconds since the epoch; a pod that is to be gone by then does not run.
        fast: Whether one that is to stop does not run either (FastQuotaReleaseInPodIntegration).
    """
    deleted = pod.metadata.deletion_timestamp
    if is_gated(pod):
        return False  # what its status says is of its copy on another cluster
    if pod.status.phase != "Running" or deleted is None:
        return pod.status.phase == "Running"
    grace = pod.metadata.deletion_grace_period_seconds or 0
    return not fast and deleted.timestamp() + grace >= now


def is_ready(pod: QueuedPod) -> bool:
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
    return whole_number(metadata.annotations.get(POD_GROUP_TOTAL_COUNT, "")) or 0


def role_of(pod: QueuedPod) -> str:
    """Return which pods of its group a pod is like."""
    return pod.metadata.annotations.get(ROLE_HASH, DEFAULT_POD_SET)


def by_age(pods: Iterable[QueuedPod]) -> list[QueuedPod]:
    """Sort pods by age, the oldest first; ties go by name."""
    return sorted(
        pods, key=lambda pod: (pod.metadata.creation_timestamp or LONGEST_AGO, pod.metadata.name)
    )


def owner_reference(pod: QueuedPod, *, controller: bool) -> OwnerReference:
    """Return the reference by which a pod owns its workload, alone or as one of a group."""
    return OwnerReference(
        api_version="v1",
        kind="Pod",
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        controller=controller,
        block_owner_deletion=controller,
    )


def ungate(draft: Draft, injection: PodInjection) -> None:
    """Let a pod go, to where its pod set was assigned.

    Args:
        draft: The pod.
        injection: The assignment of its pod set; gates of the queue that are not in it are removed,
            those that are have been there since the pod was made, if at all.

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


def pod_set_of(pod: QueuedPod, workload: Workload) -> str:
    """Return the pod set of its workload that a pod belongs to; empty if to none."""
    names = [pod_set.name for pod_set in workload.spec.pod_sets]
    if not group_name(pod.metadata):
        return names[0] if names else ""
    role = pod.metadata.labels.get(POD_SET) or role_of(pod)
    return role if role in names else ""


DIGITS = 8
SHAPE = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimeClassName",
    "priority",
    "topologySpreadConstraints",
    "overhead",
    "resourceClaims",
)
"""The fields of a pod's specification that decide where it can run, besides containers."""

_ESCAPED = tuple(
    (character.encode(), f"\\u{ord(character):04x}".encode()) for character in "<>&\u2028\u2029"
)
_ENCODER = msgspec.json.Encoder()


def role_hash(spec: Mapping[str, Json], annotations: Mapping[str, str]) -> str:
    """Return the hash that Kueue gives a pod; another for each part of a GPU.

    Args:
        spec: The pod's `spec` as decoded JSON, fields in the API server's order.
        annotations: Of the pod.
    """
    shape: dict[str, Json] = {name: spec.get(name) or None for name in SHAPE}
    shape["priority"] = spec.get("priority")
    shape["initContainers"] = _containers(spec.get("initContainers"))
    shape["containers"] = _containers(spec.get("containers"))
    if spec.get("resources"):
        shape["resources"] = spec["resources"].get("requests")
    # Few pods request a part of a GPU.
    part = {} if annotations.keys().isdisjoint(PARTS) else part_of(annotations)
    text = _ENCODER.encode({"spec": dict(sorted(shape.items())), **part})
    return sha256(_as_go(text)).hexdigest()[:DIGITS]


def _containers(containers: Json) -> Json:
    if not containers:
        return None
    return [
        {
            "ports": container.get("ports") or None,
            "resources": {"requests": (container.get("resources") or {}).get("requests")},
        }
        for container in containers
    ]


def _as_go(text: bytes) -> bytes:
    """Escape characters that Go's encoder escapes in strings for HTML and JavaScript."""
    for character, escaped in _ESCAPED:
        text = text.replace(character, escaped)
    return text
