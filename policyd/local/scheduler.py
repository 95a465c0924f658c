"""A small scheduler: binds pods without gates to nodes that fit, and says why others wait."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import msgspec

from policyd.api.meta import Json, find_condition, timestamp
from policyd.api.nodes import Node
from policyd.api.pod_requests import amount, pod_requests
from policyd.kube.changes import Change, Deleted
from policyd.kube.client import PartialObject, Writer
from policyd.kube.errors import ApiError, ConflictError, NotFoundError
from policyd.kube.events import EventRecorder
from policyd.kube.resources import PODS
from policyd.local.objects import LocalPod
from policyd.local.placing import Amounts, NodeCandidate, Unschedulable, choose_node


def requests(pod: LocalPod) -> Amounts:
    """Return the requests of a pod, `pods: 1` included."""
    return {**pod_requests(pod.spec), "pods": 1}


class Scheduler:
    """Places pending pods whenever one comes, or there is more room for them."""

    def __init__(self, writer: Writer, recorder: EventRecorder) -> None:
        self._writer = writer
        self._recorder = recorder
        self._changed = False
        self._nodes: dict[str, Node] = {}
        self._waiting: dict[str, LocalPod] = {}  # by key
        self._bound: dict[str, str] = {}  # uids of pods bound a moment ago to the names of nodes
        self._placed: dict[str, tuple[str, Amounts]] = {}  # uid to node and requests
        self._used: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._room: dict[str, NodeCandidate] = {}
        """Nodes with their free resources, by name; those that changed are left out."""

    def take_node(self, change: Change[Node]) -> None:
        """Take a change of a node."""
        name = change.object.metadata.name
        self._nodes.pop(name, None)
        self._room.pop(name, None)
        if not isinstance(change, Deleted):
            self._nodes[name] = change.object
        self._changed = True

    def take_pod(self, change: Change[LocalPod]) -> None:
        """Take a change of a pod."""
        pod, uid = change.object, change.object.metadata.uid
        before = self._waiting.pop(pod.metadata.key, None)
        gone = isinstance(change, Deleted) or pod.over
        if gone or pod.spec.node_name:
            self._bound.pop(uid, None)
        node = pod.spec.node_name or self._bound.get(uid, "")
        placed = (node, requests(pod)) if node and not gone else None
        if placed != self._placed.get(uid):
            self._place(uid, placed)
        if not (gone or node or pod.spec.scheduling_gates or pod.metadata.deletion_timestamp):
            self._waiting[pod.metadata.key] = pod
            self._changed = self._changed or before is None or before.spec != pod.spec

    def _place(self, uid: str, placed: tuple[str, Amounts] | None) -> None:
        """Note where a pod is; nowhere if it is None."""
        if uid in self._placed:
            node, amounts = self._placed.pop(uid)
            self._used[node].subtract(amounts)
            self._room.pop(node, None)
            self._changed = True
        if placed is not None:
            node, amounts = self._placed[uid] = placed
            self._used[node].update(amounts)
            self._room.pop(node, None)

    async def step(self, now: float) -> float | None:
        """Place every pod that fits now; return None, as only a change brings more to do."""
        if not self._changed:
            return None
        self._changed = False
        try:
            for pod in sorted(self._waiting.values(), key=_most_urgent_first):
                chosen = choose_node(pod, requests(pod), self._candidates())
                if isinstance(chosen, Unschedulable):
                    await self._report_reason(pod, chosen, now)
                else:
                    await self._bind(pod, chosen)
        except ApiError:
            self._changed = True
            raise
        return None

    def _candidates(self) -> Iterator[NodeCandidate]:
        """Yield every node with its free resources."""
        for name, node in self._nodes.items():
            if name not in self._room:
                free = _free(node, self._used[name])
                self._room[name] = NodeCandidate(node=node, free=free)
            yield self._room[name]

    async def _bind(self, pod: LocalPod, node: str) -> None:
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
            return  # its change brings us back
        if self._waiting.pop(pod.metadata.key, None) is not None:  # else its change came first
            self._bound[pod.metadata.uid] = node
            self._place(pod.metadata.uid, (node, requests(pod)))
        message = f"Successfully assigned {pod.metadata.key} to {node}"
        about = PODS.reference(pod.metadata)
        self._recorder.record(about, reason="Scheduled", message=message)

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


def _most_urgent_first(pod: LocalPod) -> tuple[int, float, str]:
    created = pod.metadata.creation_timestamp
    return -(pod.spec.priority or 0), created.timestamp() if created else 0.0, pod.metadata.key
