"""How much waits and is held, of all queues in one pass: what is measured of them."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field

from policyd.alloc.cluster_queue import ClusterQueue
from policyd.alloc.queue import FlavorResource
from policyd.alloc.state import State


@dataclass(slots=True)
class Tally:
    """What waits in a ClusterQueue or a LocalQueue, and what it holds.

    Attributes:
        active: Workloads that are to be tried.
        parked: Those that wait aside; all of a queue that gives out no quota.
        reserving: Workloads with quota.
        admitted: Those of them that may run.
        asked: What waits for quota asks for, by resource.
        reserved: Held by all with quota, by flavor and resource.
        used: Held by those that may run.
    """

    active: int = 0
    parked: int = 0
    reserving: int = 0
    admitted: int = 0
    asked: Counter[str] = field(default_factory=Counter)
    reserved: Counter[FlavorResource] = field(default_factory=Counter)
    used: Counter[FlavorResource] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Tallies:
    """Of all queues: by ClusterQueue, and by `namespace/name` of LocalQueues."""

    cluster_queues: dict[str, Tally]
    local_queues: dict[str, Tally]


def tallies(state: State) -> Tallies:
    """Count what waits and what is held, everywhere."""
    state.settle()
    found = Tallies({}, defaultdict(Tally))
    for queue in state.queues.values():
        own = found.cluster_queues[queue.name] = Tally()
        _count_pending(queue, own, found.local_queues)
        for holding in queue.holdings.values():
            usage, admitted = holding.admission.usage(), holding.workload.admitted
            for tally in (own, found.local_queues[holding.workload.local_queue]):
                tally.reserving += 1
                tally.reserved.update(usage)
                if admitted:
                    tally.admitted += 1
                    tally.used.update(usage)
    return found


def _count_pending(queue: ClusterQueue, own: Tally, local_queues: dict[str, Tally]) -> None:
    for ticket in queue.pending:
        for tally in (own, local_queues[ticket.workload.local_queue]):
            tally.parked += 1
        for pod_set in ticket.workload.pod_sets:
            own.asked.update(pod_set.totals())
    if queue.options is None or not queue.active(queue.options):
        return
    for ticket in queue.pending.active:
        for tally in (own, local_queues[ticket.workload.local_queue]):
            tally.active += 1
            tally.parked -= 1
