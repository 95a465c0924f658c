"""Whether a node has failed a workload that was placed there, and the response: pure decisions.

A node that is gone has failed at once. One that is not ready, or keeps the workload's pods away,
may come back: it has failed once none of the pods on it goes on, or after a time, as the gates say.
A workload with one failed node gets another place for the pods on it; with two, it starts over.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

import msgspec

from policyd.alloc.settings import Gates
from policyd.api.kueue import PodSet, PodSetAssignment, ResourceFlavor, Workload, WorkloadStatus
from policyd.api.kueue.names import SAFE_TO_DELETE
from policyd.api.kueue.topology_assignment import HOSTNAME, nodes_of
from policyd.api.kueue.workload import UnhealthyNode
from policyd.api.meta import Condition, find_condition, timestamp
from policyd.api.nodes import Node
from policyd.api.pods import Toleration
from policyd.jobs.pods import QueuedPod, has_ended
from policyd.node_rules import NodeTaint
from policyd.status.ages import duration
from policyd.workload.conversion import tolerations
from policyd.workload.transitions import evict

DELAY_SECONDS = 30.0
"""How long a node may be not ready, where that is a matter of time."""

NODE_FAILURES = "NodeFailures"

FORCED_SECONDS = 60.0
"""How long after its grace period a pod on an unreachable node is ended by force."""


class NodeHealth(Enum):
    """The health of a node for the pods of one workload."""

    FINE = "fine"
    WAITS = "waits"
    """Not fine, and nothing follows from it yet."""
    FAILED = "failed"


class Accepts(Enum):
    """How long pods stay on a node with a taint."""

    ALWAYS = "always"
    FOR_A_TIME = "for a time"
    NEVER = "never"


def seconds_left(node: Node | None, gates: Gates, *, now: float) -> float:
    """Return for how long a node may still be not ready; 0 if that does not count."""
    by_time = (
        gates.tas_replace_node_due_to_not_ready_over_fixed_time
        or not gates.tas_replace_node_on_pod_termination
    )
    since = None if node is None else node.not_ready_since
    if not by_time or since is None:
        return 0.0
    return max(0.0, since.timestamp() + DELAY_SECONDS - now)


def health(
    node: Node | None, taints: Accepts, pods: Sequence[QueuedPod], gates: Gates, *, left: float
) -> NodeHealth:
    """Tell how a node is to the pods of one workload.

    Args:
        node: The node; None if it is gone.
        taints: How the workload's pods take its taints.
        pods: Those of them that are on the node.
        gates: When a node has failed.
        left: For how many seconds it may still be not ready.
    """
    if node is None or find_condition(node.status.conditions, "Ready") is None:
        return NodeHealth.FAILED
    gone = not any(goes_on(pod) for pod in pods)
    if not node.ready:
        return _not_ready(gates, gone=gone, left=left)
    if not gates.tas_replace_node_on_node_taints or taints is Accepts.ALWAYS:
        return NodeHealth.FINE
    at_once = taints is Accepts.NEVER and not gates.tas_replace_node_on_pod_termination
    return NodeHealth.FAILED if gone or at_once else NodeHealth.WAITS


def _not_ready(gates: Gates, *, gone: bool, left: float) -> NodeHealth:
    if gone and gates.tas_replace_node_on_pod_termination:
        return NodeHealth.FAILED
    by_pods_alone = (
        gates.tas_replace_node_on_pod_termination
        and not gates.tas_replace_node_due_to_not_ready_over_fixed_time
    )
    return NodeHealth.WAITS if by_pods_alone or left > 0 else NodeHealth.FAILED


def goes_on(pod: QueuedPod) -> bool:
    """Tell whether a pod runs or may soon: it has not ended, and is not being deleted."""
    return pod.metadata.deletion_timestamp is None and not has_ended(pod)


def may_be_forced(pod: QueuedPod) -> bool:
    """Tell whether a pod is being deleted, and its owner lets it be ended by force then."""
    metadata = pod.metadata
    safe = metadata.annotations.get(SAFE_TO_DELETE) == "true"
    return safe and metadata.deletion_timestamp is not None


def forced_in(pod: QueuedPod, *, now: float) -> float:
    """Return the seconds until a pod on an unreachable node is ended by force; 0 if it is now."""
    deleted = pod.metadata.deletion_timestamp
    assert deleted is not None, "only what is being deleted is ended by force"
    return max(0.0, deleted.timestamp() + FORCED_SECONDS - now)


def forced_end(pod: QueuedPod, *, now: float) -> Condition:
    """Return the condition of a pod that is ended by force, in Kueue's words."""
    grace = (pod.metadata.deletion_grace_period_seconds or 0) + FORCED_SECONDS
    message = (
        f"Pod forcefully terminated after {duration(grace)} grace period due to unreachable node"
        f" `{pod.spec.node_name}` (triggered by `{SAFE_TO_DELETE}` annotation)"
    )
    return Condition(
        "KueueFailureRecovery", "True", "KueueForcefullyDeleted", message, timestamp(now)
    )


def acceptance(
    node: Node | None, workload: Workload, flavors: Mapping[str, ResourceFlavor]
) -> Accepts:
    """Tell how the pods that a workload sends to a node take the node's taints."""
    admission = workload.status.admission
    if node is None or admission is None:
        return Accepts.ALWAYS
    pod_sets = {pod_set.name: pod_set for pod_set in workload.spec.pod_sets}
    answers = [
        _acceptance(node, _tolerations(workload, pod_sets[each.name], each, flavors))
        for each in admission.pod_set_assignments
        if node.metadata.name in nodes_of(each) and each.name in pod_sets
    ]
    for worst in (Accepts.NEVER, Accepts.FOR_A_TIME):
        if worst in answers:
            return worst
    return Accepts.ALWAYS


def _tolerations(
    workload: Workload,
    pod_set: PodSet,
    assigned: PodSetAssignment,
    flavors: Mapping[str, ResourceFlavor],
) -> list[Toleration]:
    found = [*pod_set.template.spec.tolerations]
    for name in dict.fromkeys(assigned.flavors.values()):
        if name in flavors:
            found += flavors[name].spec.tolerations
    for check in workload.status.admission_checks:
        for update in check.pod_set_updates:
            if check.state == "Ready" and update.name == pod_set.name:
                found += update.tolerations
    return found


def _acceptance(node: Node, given: Iterable[Toleration]) -> Accepts:
    given = tuple(given)
    lasting = tolerations(each for each in given if each.toleration_seconds is None)
    all_ = tolerations(given)
    answer = Accepts.ALWAYS
    for each in node.spec.taints:
        taint = NodeTaint(key=each.key, value=each.value, effect=each.effect)
        if taint.effect == "PreferNoSchedule" or any(t.tolerates(taint) for t in lasting):
            continue
        if not any(t.tolerates(taint) for t in all_):
            return Accepts.NEVER
        answer = Accepts.FOR_A_TIME
    return answer


def hopeless(pods: Iterable[QueuedPod], node: str) -> list[QueuedPod]:
    """Return the pods that may go to no other node than `node`, and are on none yet."""
    return [
        pod
        for pod in pods
        if not pod.spec.node_name
        and pod.status.phase == "Pending"
        and pod.spec.node_selector.get(HOSTNAME) == node
        and not pod.spec.scheduling_gates
        and goes_on(pod)
    ]


def after_failure(workload: Workload, node: str, *, now: float) -> WorkloadStatus:
    """Return the status of a workload that a node has failed."""
    names = [each.name for each in workload.status.unhealthy_nodes]
    if node in names:
        return workload.status
    names.append(node)
    if len(names) > 1:
        listed = ", ".join(sorted(names))
        message = (
            "Workload eviction triggered due to multiple TAS assigned node failures, "
            f"including: {listed}"
        )
        return evict(workload, reason=NODE_FAILURES, message=message, now=now)
    return msgspec.structs.replace(
        workload.status, unhealthy_nodes=tuple(UnhealthyNode(name=name) for name in names)
    )


def after_recovery(workload: Workload, node: str) -> WorkloadStatus:
    """Return the status of a workload for which a node is healthy, or no longer used."""
    kept = tuple(each for each in workload.status.unhealthy_nodes if each.name != node)
    if len(kept) == len(workload.status.unhealthy_nodes):
        return workload.status
    return msgspec.structs.replace(workload.status, unhealthy_nodes=kept)


def sends_pods_to(workload: Workload, node: str) -> bool:
    """Tell whether pods of a workload are to be on a node; those that gave quota back need none."""
    admission, status = workload.status.admission, workload.status
    given_back = {each.name: each.count for each in status.reclaimable_pods}
    left = {p.name for p in workload.spec.pod_sets if p.count > given_back.get(p.name, 0)}
    assigned = () if admission is None else admission.pod_set_assignments
    return any(node in nodes_of(each) for each in assigned if each.name in left)
