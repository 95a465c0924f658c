"""How much waits and is held, of all queues in one pass: what is measured of them."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from policyd.alloc.cluster_queue import QueueState
from policyd.alloc.queue import FlavorResource
from policyd.alloc.state import CoreState

K = TypeVar("K")


@dataclass(slots=True)
class QueueCounts:
    """What waits in a ClusterQueue or a LocalQueue, and what it holds.

    Attributes:
        active: Workloads that are to be tried.
        parked: Those that wait aside; all of a queue that gives out no quota.
        reserving: Workloads with quota.
        admitted: Those of them that may run.
        request_keys: What those ask for that are to be tried: each once that is the same.
        parked_request_keys: The same of those that wait aside.
        asked: What waits for quota asks for, by resource.
        reserved: Held by all with quota, by flavor and resource.
        used: Held by those that may run.
    """

    active: int = 0
    parked: int = 0
    reserving: int = 0
    admitted: int = 0
    request_keys: set[object] = field(default_factory=set)
    parked_request_keys: set[object] = field(default_factory=set)
    asked: dict[str, int] = field(default_factory=dict)
    reserved: dict[FlavorResource, int] = field(default_factory=dict)
    used: dict[FlavorResource, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CountsOfQueues:
    """Of all queues: by ClusterQueue, and by `namespace/name` of LocalQueues."""

    cluster_queues: dict[str, QueueCounts]
    local_queues: dict[str, QueueCounts]


def count_queues(state: CoreState) -> CountsOfQueues:
    """Count what waits and what is held, everywhere."""
    state.settle()
    found = CountsOfQueues({}, defaultdict(QueueCounts))
    for queue in state.queues.values():
        own = found.cluster_queues[queue.name] = QueueCounts()
        _count_pending(queue, own, found.local_queues)
        for holding in queue.holdings.values():
            usage, admitted = holding.admission.usage(), holding.workload.admitted
            for counts in (own, found.local_queues[holding.workload.local_queue]):
                counts.reserving += 1
                _add(counts.reserved, usage)
                if admitted:
                    counts.admitted += 1
                    _add(counts.used, usage)
    return found


def _count_pending(
    queue: QueueState, own: QueueCounts, local_queues: dict[str, QueueCounts]
) -> None:
    for ticket in queue.pending:
        local_queues[ticket.workload.local_queue].parked += 1
        for pod_set in ticket.workload.pod_sets:
            _add(own.asked, pod_set.totals())
    active = queue.pending.active if queue.active else []
    own.active, own.parked = len(active), len(queue.pending) - len(active)
    tried = set(active)
    own.request_keys = {ticket.request_key for ticket in active}
    own.parked_request_keys = {
        ticket.request_key for ticket in queue.pending if ticket not in tried
    }
    for ticket in active:
        counts = local_queues[ticket.workload.local_queue]
        counts.active, counts.parked = counts.active + 1, counts.parked - 1


def _add(total: dict[K, int], more: Mapping[K, int]) -> None:
    for key, amount in more.items():  # a Counter takes four times as long
        total[key] = total.get(key, 0) + amount
