"""Who belongs to whom: workloads by LocalQueue and by owner, pods by group."""

from collections import defaultdict
from typing import TypeVar

from policyd.api.kueue import Workload
from policyd.controller.keys import Key, pod_key
from policyd.jobs.pods import Pod

K = TypeVar("K")


class Index:
    """Keys of objects, by what they belong to."""

    def __init__(self) -> None:
        self._by_local_queue: dict[str, set[str]] = defaultdict(set)
        self._by_owner: dict[str, set[str]] = defaultdict(set)
        self._by_group: dict[Key, set[str]] = defaultdict(set)

    def add(self, workload: Workload) -> None:
        """Take in a workload."""
        key = workload.metadata.key
        self._by_local_queue[local_queue_key(workload)].add(key)
        for owner in workload.metadata.owner_references:
            self._by_owner[owner.uid].add(key)

    def remove(self, workload: Workload) -> None:
        """Forget a workload, as it was when it was added."""
        key = workload.metadata.key
        discard(self._by_local_queue, local_queue_key(workload), key)
        for owner in workload.metadata.owner_references:
            discard(self._by_owner, owner.uid, key)

    def add_pod(self, pod: Pod) -> None:
        """Take in a pod."""
        self._by_group[pod_key(pod)].add(pod.metadata.key)

    def remove_pod(self, pod: Pod) -> None:
        """Forget a pod, as it was when it was added."""
        discard(self._by_group, pod_key(pod), pod.metadata.key)

    def owned(self, uid: str) -> list[str]:
        """Return the keys of the workloads that an object owns, sorted."""
        return sorted(self._by_owner.get(uid, ()))

    def submitted(self, local_queue: str) -> list[str]:
        """Return the keys of the workloads that name a LocalQueue, sorted."""
        return sorted(self._by_local_queue.get(local_queue, ()))

    def local_queues(self, namespace: str) -> list[str]:
        """Return the keys of the LocalQueues of a namespace that workloads name, sorted."""
        prefix = f"{namespace}/"
        return sorted(key for key in self._by_local_queue if key.startswith(prefix))

    def group(self, key: Key) -> list[str]:
        """Return the keys of the pods of a group, sorted; or of the one pod that `key` names."""
        return sorted(self._by_group.get(key, ()))


def local_queue_key(workload: Workload) -> str:
    """Return `namespace/name` of the LocalQueue that a workload is submitted to."""
    return f"{workload.metadata.namespace}/{workload.spec.queue_name}"


def discard(index: dict[K, set[str]], key: K, member: str) -> None:
    """Take a member out of an index, and its key with the last one."""
    members = index.get(key)
    if members is not None:
        members.discard(member)
        if not members:
            del index[key]
