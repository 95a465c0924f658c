"""Pods by the workload they are of, and by the node they are on or must go to."""

from collections import defaultdict
from collections.abc import Callable, Iterator

from policyd.api.kueue import Workload
from policyd.api.kueue.names import SLICE_NAME, WORKLOAD
from policyd.api.kueue.topology_assignment import HOSTNAME
from policyd.controller.watch.index import discard
from policyd.controller.watch.mirror import Mirror
from policyd.jobs.pods import QueuedPod
from policyd.jobs.workload import slice_name
from policyd.kube.changes import Added, Change, Deleted, Modified


class PodPlaces:
    """Indexes of all pods; `notify` gets each changed pod, before and after."""

    def __init__(
        self, pods: Mirror[QueuedPod], *, notify: Callable[[Change[QueuedPod]], None]
    ) -> None:
        self._pods = pods
        self._notify = notify
        self._by_workload: dict[str, set[str]] = defaultdict(set)
        self._by_node: dict[str, set[str]] = defaultdict(set)
        pods.listen(self._changed)

    def of_workload(self, workload: Workload) -> list[QueuedPod]:
        """Return the pods of a workload, or of the chain of slices that it is in, by name."""
        namespace = workload.metadata.namespace
        names = {f"{namespace}/{name}" for name in (slice_name(workload), workload.metadata.name)}
        return self._sorted({key for name in names for key in self._by_workload.get(name, ())})

    def on_node(self, node: str) -> list[QueuedPod]:
        """Return the pods that are on a node, or may go to no other, by namespace and name."""
        return self._sorted(self._by_node.get(node, set()))

    def _sorted(self, keys: set[str]) -> list[QueuedPod]:
        found = (self._pods.get(key) for key in sorted(keys))
        return [pod for pod in found if pod is not None]

    def _changed(self, change: Change[QueuedPod]) -> None:
        match change:
            case Modified():
                self._remove(change.old)
                self._add(change.object)
            case Added():
                self._add(change.object)
            case Deleted():
                self._remove(change.object)
        self._notify(change)

    def _add(self, pod: QueuedPod) -> None:
        for index, name in self._places(pod):
            index[name].add(pod.metadata.key)

    def _remove(self, pod: QueuedPod) -> None:
        for index, name in self._places(pod):
            discard(index, name, pod.metadata.key)

    def _places(self, pod: QueuedPod) -> Iterator[tuple[dict[str, set[str]], str]]:
        for name in workload_keys(pod):
            yield self._by_workload, name
        node = node_of(pod)
        if node:
            yield self._by_node, node


def workload_keys(pod: QueuedPod) -> set[str]:
    """Return `namespace/name` of the workload and of the chain of slices that a pod names."""
    annotations, namespace = pod.metadata.annotations, pod.metadata.namespace
    names = (annotations.get(WORKLOAD), annotations.get(SLICE_NAME))
    return {f"{namespace}/{name}" for name in names if name}


def node_of(pod: QueuedPod) -> str:
    """Return the node that a pod is on, or the only one it may go to; empty if there is neither."""
    return pod.spec.node_name or pod.spec.node_selector.get(HOSTNAME, "")
