"""Checks of what administrators configure: policies, flavors and queues."""

from collections.abc import AsyncIterator, Iterable, Mapping

from policyd.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor
from policyd.api.kueue.names import ACTIVE
from policyd.api.meta import Condition, ObjectMeta, find_condition
from policyd.api.policy import BindingObject, PolicyObject, PolicyStatus
from policyd.cli.doctor.installation import PODS as SHOW_PODS
from policyd.cli.doctor.report import (
    GRACE_SECONDS,
    CheckedCluster,
    Checks,
    InstallationProblem,
    Severity,
)
from policyd.controller.policies.policy_statuses import READY
from policyd.errors import did_you_mean
from policyd.kube.client import PartialObject
from policyd.kube.resources import (
    CLUSTER_QUEUES,
    LOCAL_QUEUES,
    NODES,
    POLICIES,
    POLICY_BINDINGS,
    RESOURCE_FLAVORS,
)


async def policies(cluster: CheckedCluster) -> AsyncIterator[InstallationProblem]:
    """Find policies and bindings that are not loaded."""
    async for policy in cluster.all(POLICIES, PolicyObject):
        for found in not_loaded("Policy", policy.metadata, policy.status, cluster.now):
            yield found
    async for binding in cluster.all(POLICY_BINDINGS, BindingObject):
        for found in not_loaded("PolicyBinding", binding.metadata, binding.status, cluster.now):
            yield found


def not_loaded(
    kind: str, metadata: ObjectMeta, status: PolicyStatus | None, now: float
) -> Iterable[InstallationProblem]:
    """Yield why a policy or binding is not loaded."""
    conditions = () if status is None else status.conditions
    ready = find_condition(conditions, READY)
    if ready is None and is_old(metadata, now):
        message = "no controller has looked at it: it is not known whether it can be loaded"
        yield InstallationProblem(
            "policies", "warning", f"{kind} {metadata.name}", message, SHOW_PODS
        )
    elif ready is not None and ready.status == "False":
        yield InstallationProblem(
            "policies",
            "error",
            f"{kind} {metadata.name}",
            f"it has no effect ({ready.reason}): {ready.message}",
            f"kubectl edit {kind.lower()} {metadata.name}",
        )


async def flavors(cluster: CheckedCluster) -> AsyncIterator[InstallationProblem]:
    """Find flavors whose labels no node has."""
    wanted = {
        each.metadata.name: dict(each.spec.node_labels)
        async for each in cluster.all(RESOURCE_FLAVORS, ResourceFlavor)
        if each.spec.node_labels
    }
    if not wanted:
        return
    nearest = dict.fromkeys(wanted, "")
    async for node in cluster.all(NODES, PartialObject):
        labels = node.metadata.labels
        wanted = {name: each for name, each in wanted.items() if not each.items() <= labels.items()}
        for name, each in wanted.items():
            if set(each) <= set(labels) and not nearest[name]:
                nearest[name] = ", ".join(f"{key}={labels[key]}" for key in each)
    for name, each in wanted.items():
        yield without_nodes(name, each, nearest[name])


def without_nodes(name: str, labels: Mapping[str, str], near: str) -> InstallationProblem:
    """Return the finding that no node has the labels of a flavor.

    Args:
        name: The flavor.
        labels: Its labels.
        near: Other values of them that a node has; "" if none has the labels at all.
    """
    wanted = ", ".join(f"{key}={value}" for key, value in labels.items())
    message = f"no node has its labels {wanted}, unless an autoscaler adds some"
    return InstallationProblem(
        "flavors",
        "warning",
        f"ResourceFlavor {name}",
        f"{message}; there are nodes with {near}" if near else message,
        f"kubectl edit resourceflavor {name}",
    )


async def queues(cluster: CheckedCluster) -> AsyncIterator[InstallationProblem]:
    """Find ClusterQueues that admit nothing, and LocalQueues that lead nowhere."""
    known: set[str] = set()
    async for queue in cluster.all(CLUSTER_QUEUES, ClusterQueue):
        known.add(queue.metadata.name)
        for found in admits_nothing(queue, cluster.now):
            yield found
    async for local in cluster.all(LOCAL_QUEUES, LocalQueue):
        if local.spec.cluster_queue not in known:
            yield leads_nowhere(local, known)
        elif local.spec.stop_policy != "None":
            yield _stopped("LocalQueue", local.metadata, local.spec.stop_policy)


def admits_nothing(queue: ClusterQueue, now: float) -> Iterable[InstallationProblem]:
    """Yield why a ClusterQueue admits nothing."""
    name = queue.metadata.name
    if queue.spec.stop_policy != "None":
        yield _stopped("ClusterQueue", queue.metadata, queue.spec.stop_policy)
    if not queue.spec.resource_groups:
        yield _queue(name, "it has no flavors, so that nothing can be admitted")
        return
    if queue.spec.namespace_selector is None:
        message = "it has no namespaceSelector, so that it takes workloads of no namespace"
        yield _queue(name, message, "warning")
    active = find_condition(queue.status.conditions, ACTIVE)
    if active is None:
        if is_old(queue.metadata, now):
            yield _queue(name, "no controller has looked at it", "error", SHOW_PODS)
    elif active.status == "False" and not _is_stopped(active):
        yield _queue(name, f"it is not active ({active.reason}): {active.message}")


def _is_stopped(active: Condition) -> bool:
    return active.reason == "Stopped"


def _queue(
    name: str, message: str, severity: Severity = "error", fix: str = ""
) -> InstallationProblem:
    fix = fix or f"kubectl edit clusterqueue {name}"
    return InstallationProblem("queues", severity, f"ClusterQueue {name}", message, fix)


def _stopped(kind: str, metadata: ObjectMeta, policy: str) -> InstallationProblem:
    where = f" -n {metadata.namespace}" if metadata.namespace else ""
    return InstallationProblem(
        "queues",
        "warning",
        f"{kind} {metadata.key}",
        f"it is stopped (stopPolicy {policy})",
        f"policyd resume {kind.lower()}/{metadata.name}{where}",
    )


def leads_nowhere(local: LocalQueue, known: set[str]) -> InstallationProblem:
    """Return the finding that the ClusterQueue of a LocalQueue does not exist."""
    metadata, wanted = local.metadata, local.spec.cluster_queue
    near = did_you_mean(wanted, known)
    return InstallationProblem(
        "queues",
        "error",
        f"LocalQueue {metadata.key}",
        f"its ClusterQueue `{wanted}` doesn't exist{f': {near}' if near else ''}",
        f"kubectl delete localqueue {metadata.name} -n {metadata.namespace}; then create it with"
        " another clusterQueue, which cannot be changed",
    )


def is_old(metadata: ObjectMeta, now: float) -> bool:
    """Tell whether an object has been there for so long that a controller must have seen it."""
    made = metadata.creation_timestamp
    return made is not None and now - made.timestamp() > GRACE_SECONDS


CHECKS: Checks = {"policies": policies, "flavors": flavors, "queues": queues}
