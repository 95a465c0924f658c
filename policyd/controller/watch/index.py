"""Indexes: workloads by LocalQueue and by owner, pods by group."""

from collections import defaultdict
from collections.abc import Iterator
from typing import TypeVar

from policyd.api.kueue import Workload
from policyd.api.kueue.names import SLICE_REPLACEMENT_FOR
from policyd.api.meta import ObjectMeta
from policyd.controller.watch.keys import ReconcileKey, controlling_job, job_key, pod_key
from policyd.jobs.base import controller_of
from policyd.jobs.pods import QueuedPod
from policyd.jobs.workload import slice_name

K = TypeVar("K")
M = TypeVar("M")


class OwnerIndex:
    """Keys of objects, by owner, queue and group."""

    def __init__(self) -> None:
        self._by_local_queue: dict[str, set[str]] = defaultdict(set)
        self._by_owner: dict[str, set[str]] = defaultdict(set)
        self._by_job: dict[ReconcileKey, set[str]] = defaultdict(set)
        self._by_group: dict[ReconcileKey, set[str]] = defaultdict(set)
        self._by_parent: dict[str, set[ReconcileKey]] = defaultdict(set)
        self._by_chain: dict[str, set[str]] = defaultdict(set)
        self._by_replaced: dict[str, set[str]] = defaultdict(set)

    def add(self, workload: Workload) -> None:
        """Take in a workload."""
        key = workload.metadata.key
        self._by_local_queue[local_queue_key(workload)].add(key)
        for owner in workload.metadata.owner_references:
            self._by_owner[owner.uid].add(key)
        job = controlling_job(workload)
        if job is not None:
            self._by_job[job].add(key)
        for index, name in self._slices(workload):
            index[name].add(key)

    def remove(self, workload: Workload) -> None:
        """Remove a workload, as it was when it was added."""
        key = workload.metadata.key
        discard(self._by_local_queue, local_queue_key(workload), key)
        for owner in workload.metadata.owner_references:
            discard(self._by_owner, owner.uid, key)
        job = controlling_job(workload)
        if job is not None:
            discard(self._by_job, job, key)
        for index, name in self._slices(workload):
            discard(index, name, key)

    def _slices(self, workload: Workload) -> Iterator[tuple[dict[str, set[str]], str]]:
        chain, replaced = chain_key(workload), replaced_key(workload)
        if chain != workload.metadata.key:
            yield self._by_chain, chain
        if replaced:
            yield self._by_replaced, replaced

    def add_pod(self, pod: QueuedPod) -> None:
        """Take in a pod."""
        self._by_group[pod_key(pod)].add(pod.metadata.key)

    def remove_pod(self, pod: QueuedPod) -> None:
        """Remove a pod, as it was when it was added."""
        discard(self._by_group, pod_key(pod), pod.metadata.key)

    def add_child(self, child: ObjectMeta, kind: str) -> None:
        """Take in a job that names no queue, if it belongs to another one."""
        owner = controller_of(child)
        if owner is not None:
            self._by_parent[owner.uid].add(job_key(child, kind))

    def remove_child(self, child: ObjectMeta, kind: str) -> None:
        """Remove such a job, as it was when it was added."""
        owner = controller_of(child)
        if owner is not None:
            discard(self._by_parent, owner.uid, job_key(child, kind))

    def children(self, uid: str) -> list[ReconcileKey]:
        """Return the keys of the jobs without a queue that belong to a job, sorted."""
        return sorted(self._by_parent.get(uid, ()))

    def owned(self, uid: str) -> list[str]:
        """Return the keys of the workloads that an object owns, sorted."""
        return sorted(self._by_owner.get(uid, ()))

    def controlled(self, job: ReconcileKey) -> list[str]:
        """Return the keys of the workloads that a job of this name controls, sorted."""
        return sorted(self._by_job.get(job, ()))

    def chain(self, key: str) -> list[str]:
        """Return the keys of all slices of a chain, by that of the first, sorted; or just `key`."""
        return sorted({key} | self._by_chain.get(key, set()))

    def successors(self, key: str) -> list[str]:
        """Return the keys of the slices that are to replace a workload, sorted."""
        return sorted(self._by_replaced.get(key, ()))

    def submitted(self, local_queue: str) -> list[str]:
        """Return the keys of the workloads that name a LocalQueue, sorted."""
        return sorted(self._by_local_queue.get(local_queue, ()))

    def local_queues(self, namespace: str) -> list[str]:
        """Return the keys of the LocalQueues of a namespace that workloads name, sorted."""
        prefix = f"{namespace}/"
        return sorted(key for key in self._by_local_queue if key.startswith(prefix))

    def group(self, key: ReconcileKey) -> list[str]:
        """Return the keys of the pods of a group, sorted; or of the one pod that `key` names."""
        return sorted(self._by_group.get(key, ()))


def chain_key(workload: Workload) -> str:
    """Return the key of the first slice of the chain that a workload is in; or its own."""
    return f"{workload.metadata.namespace}/{slice_name(workload)}"


def replaced_key(workload: Workload) -> str:
    """Return the key of the slice that a workload replaces; empty if it replaces none.

    A workload cannot take the quota of one in another namespace.
    """
    key = workload.metadata.annotations.get(SLICE_REPLACEMENT_FOR, "")
    return key if key.rpartition("/")[0] == workload.metadata.namespace else ""


def local_queue_key(workload: Workload) -> str:
    """Return `namespace/name` of the LocalQueue that a workload is submitted to."""
    return f"{workload.metadata.namespace}/{workload.spec.queue_name}"


def discard(index: dict[K, set[M]], key: K, member: M) -> None:
    """Take a member out of an index, and its key with the last one."""
    members = index.get(key)
    if members is not None:
        members.discard(member)
        if not members:
            del index[key]
