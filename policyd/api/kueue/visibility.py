"""The pending workloads of a queue as reported: Kueue's group `visibility.kueue.x-k8s.io`."""

from typing import Final

from policyd.api.meta import ObjectMeta, Wire

GROUP: Final = "visibility.kueue.x-k8s.io"
VERSIONS: Final = ("v1beta2", "v1beta1")
"""The preferred one first; they differ only in their name."""
KIND: Final = "PendingWorkloadsSummary"

DEFAULT_LIMIT: Final = 1_000
LARGEST_LIMIT: Final = 100_000


class PendingWorkload(Wire, frozen=True):
    """A workload that waits; places begin at 0.

    Attributes:
        metadata: Its name, namespace and owners, and when it was created.
        priority: By which it has its place.
        local_queue_name: Where it was submitted to.
        position_in_cluster_queue: Its place among all that wait for the same quota.
        position_in_local_queue: Its place among those of its LocalQueue.
    """

    metadata: ObjectMeta
    priority: int
    local_queue_name: str
    position_in_cluster_queue: int
    position_in_local_queue: int


class PendingWorkloadsSummary(Wire, frozen=True):
    """The pending workloads of a queue."""

    api_version: str
    kind: str
    items: tuple[PendingWorkload, ...]
