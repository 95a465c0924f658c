"""A small scheduler: binds pods without gates to nodes that fit, and says why others wait."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import msgspec

from policyd.api.meta import Json, find_condition, timestamp
from policyd.api.nodes import Node
from policyd.api.pod_requests import amount, pod_requests
from policyd.kube.client import PartialObject, Writer
from policyd.kube.errors import ConflictError, NotFoundError
from policyd.kube.events import EventRecorder
from policyd.kube.informer import Informer
from policyd.kube.resources import PODS
from policyd.local.objects import LocalPod
from policyd.local.placing import Amounts, NodeCandidate, Unschedulable, choose_node


def waiting(pods: Iterable[LocalPod]) -> list[LocalPod]:
    """Return the pods to be placed: highest priority first, then the oldest."""
    unbound = [
        pod
        for pod in pods
        if not (pod.spec.node_name or pod.spec.scheduling_gates or pod.over)
        and pod.metadata.deletion_timestamp is None
    ]
    return sorted(unbound, key=_most_urgent_first)


def candidates(
    nodes: Iterable[Node], pods: Iterable[LocalPod], bound: Mapping[str, str]
) -> dict[str, NodeCandidate]:
    """Return every node with its free resources.

    Args:
        nodes: All nodes.
        pods: All pods.
        bound: Pods bound a moment ago, which the pods given may not show: uid to node name.
    """
    used: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for pod in pods:
        node = pod.spec.node_name or bound.get(pod.metadata.uid, "")
        if node and not pod.over:
            for resource, amount in requests(pod).items():
                used[node][resource] += amount
    return {
        node.metadata.name: NodeCandidate(node=node, free=_free(node, used[node.metadata.name]))
        for node in nodes
    }


def requests(pod: LocalPod) -> Amounts:
    """Return the requests of a pod, `pods: 1` included."""
    return {**pod_requests(pod.spec), "pods": 1}


class Scheduler:
    """Places pending pods whenever a pod or a node changes."""

    def __init__(
        self,
        writer: Writer,
        pods: Informer[LocalPod],
        nodes: Informer[Node],
        recorder: EventRecorder,
    ) -> None:
        self._writer = writer
        self._pods = pods
        self._nodes = nodes
        self._recorder = recorder
        self._bound: dict[str, str] = {}

    async def step(self, now: float) -> float | None:
        """Place every pod that fits now; return None, as only a change brings more to do."""
        pods = list(self._pods.store.values())
        self._drop_seen(pods)
        unplaced = [pod for pod in waiting(pods) if pod.metadata.uid not in self._bound]
        if not unplaced:
            return None
        room = candidates(self._nodes.store.values(), pods, self._bound)
        for pod in unplaced:
            chosen = choose_node(pod, requests(pod), room.values())
            if isinstance(chosen, Unschedulable):
                await self._report_reason(pod, chosen, now)
            elif await self._bind(pod, chosen):
                room[chosen] = _with(room[chosen], requests(pod))
        return None

    def _drop_seen(self, pods: Iterable[LocalPod]) -> None:
        unseen = {pod.metadata.uid for pod in pods if not pod.spec.node_name}
        self._bound = {uid: node for uid, node in self._bound.items() if uid in unseen}

    async def _bind(self, pod: LocalPod, node: str) -> bool:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.metadata.name, "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        try:
            await self._writer.create(
                PODS,
                binding,
                namespace=pod.metadata.namespace,
                subresource="binding",
                into=msgspec.Raw,
            )
        except (NotFoundError, ConflictError):
            return False
        self._bound[pod.metadata.uid] = node
        message = f"Successfully assigned {pod.metadata.key} to {node}"
        about = PODS.reference(pod.metadata)
        self._recorder.record(about, reason="Scheduled", message=message)
        return True

    async def _report_reason(self, pod: LocalPod, reason: Unschedulable, now: float) -> None:
        written = find_condition(pod.status.conditions, "PodScheduled")
        if written and written.message == reason.message:
            return
        about, message = PODS.reference(pod.metadata), reason.message
        self._recorder.record(about, kind="Warning", reason="FailedScheduling", message=message)
        condition: dict[str, Json] = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": reason.message,
            "lastTransitionTime": timestamp(now),
        }
        try:
            await self._writer.patch(
                PODS,
                pod.metadata.name,
                {"status": {"conditions": [condition]}},
                namespace=pod.metadata.namespace,
                subresource="status",
                kind="strategic",
                into=PartialObject,
            )
        except (NotFoundError, ConflictError):
            return


def _free(node: Node, used: Mapping[str, int]) -> dict[str, int]:
    return {
        resource: amount(resource, text) - used.get(resource, 0)
        for resource, text in node.status.allocatable.items()
    }


def _with(candidate: NodeCandidate, taken: Amounts) -> NodeCandidate:
    free = {name: amount - taken.get(name, 0) for name, amount in candidate.free.items()}
    return NodeCandidate(node=candidate.node, free=free)


def _most_urgent_first(pod: LocalPod) -> tuple[int, float, str]:
    created = pod.metadata.creation_timestamp
    return -(pod.spec.priority or 0), created.timestamp() if created else 0.0, pod.metadata.key
