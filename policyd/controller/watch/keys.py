"""Keys of the work queue: an object by its kind, namespace and name."""

from typing import Literal, NamedTuple

from policyd.api.kueue import Workload
from policyd.api.kueue.names import IS_GROUP_WORKLOAD
from policyd.api.meta import ObjectMeta
from policyd.jobs.base import controller_of, is_pod
from policyd.jobs.kinds.registry import kind_of_owner, parent_of_owner, parent_of_pod
from policyd.jobs.pods import QueuedPod, group_name

Subject = Literal[
    "Workload",
    "Family",
    "Job",
    "Pod",
    "PodGroup",
    "ClusterQueue",
    "ResourceFlavor",
    "Topology",
    "Places",
    "Node",
    "Gang",
    "Provisioning",
    "AdmissionCheck",
    "MultiKueue",
    "MultiKueueCheck",
    "MultiKueueCluster",
    "MultiKueueQuota",
    "CheckInUse",
    "Usage",
    "Ownerless",
]


class ReconcileKey(NamedTuple):
    """One thing to reconcile."""

    subject: Subject
    namespace: str
    name: str
    kind: str = ""
    """Of a job, its kind."""

    @property
    def path(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


def workload_key(workload: Workload) -> ReconcileKey:
    """Return the key of a workload."""
    return ReconcileKey("Workload", workload.metadata.namespace, workload.metadata.name)


def family_key(parent: Workload) -> ReconcileKey:
    """Return the key of a workload and its variants."""
    return ReconcileKey("Family", parent.metadata.namespace, parent.metadata.name)


def job_key(job: ObjectMeta, kind: str) -> ReconcileKey:
    """Return the key of a job of a kind."""
    return ReconcileKey("Job", job.namespace, job.name, kind)


def pod_key(pod: QueuedPod) -> ReconcileKey:
    """Return the key of a pod's group, or of the parent that is to put it into one.

    A pod that is in none, and will be in none, has a key of its own.
    """
    group = group_name(pod.metadata)
    if group:
        return ReconcileKey("PodGroup", pod.metadata.namespace, group)
    parent = parent_of_pod(pod.metadata)
    if parent is not None and parent.name_of(pod):
        return ReconcileKey("Job", pod.metadata.namespace, parent.name_of(pod), parent.key)
    return ReconcileKey("Pod", pod.metadata.namespace, pod.metadata.name)


def controlling_job(workload: Workload) -> ReconcileKey | None:
    """Return the key of the job that controls a workload; None if none of a known kind does."""
    owner = controller_of(workload.metadata)
    kind = None if owner is None else kind_of_owner(owner)
    if owner is None or kind is None:
        return None
    return ReconcileKey("Job", workload.metadata.namespace, owner.name, kind.key)


def owner_keys(workload: Workload) -> set[ReconcileKey]:
    """Return the keys of the jobs or pods that a workload stands for."""
    metadata = workload.metadata
    keys = set()
    for owner in metadata.owner_references:
        kind = kind_of_owner(owner) or parent_of_owner(owner)
        if kind is not None:
            keys.add(ReconcileKey("Job", metadata.namespace, owner.name, kind.key))
        elif is_pod(owner):
            if metadata.annotations.get(IS_GROUP_WORKLOAD) == "true":
                keys.add(ReconcileKey("PodGroup", metadata.namespace, metadata.name))
            else:
                keys.add(ReconcileKey("Pod", metadata.namespace, owner.name))
    return keys
