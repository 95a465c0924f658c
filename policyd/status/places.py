"""Who waits in a queue, and at which place."""

from collections import defaultdict

from policyd.alloc.state import CoreState
from policyd.alloc.value import Value
from policyd.alloc.workload import QueuedWorkload


class QueuePosition(Value, frozen=True):
    """Where a workload stands among those that wait; 0 is first.

    Attributes:
        workload: Who waits.
        in_cluster_queue: Its place among all of its ClusterQueue.
        in_local_queue: Its place among those of its LocalQueue.
    """

    workload: QueuedWorkload
    in_cluster_queue: int
    in_local_queue: int


def places(state: CoreState, cluster_queue: str) -> list[QueuePosition]:
    """Return the pending workloads of a ClusterQueue, in the order in which they are tried.

    Whoever waits aside counts too: it has its turn again when something changes.
    """
    state.settle()
    queue = state.queues.get(cluster_queue)
    if queue is None:
        return []
    lengths: dict[str, int] = defaultdict(int)
    found = []
    for index, ticket in enumerate(queue.pending.in_order()):
        name = ticket.workload.local_queue
        found.append(QueuePosition(ticket.workload, index, lengths[name]))
        lengths[name] += 1
    return found
