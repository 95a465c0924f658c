"""Statuses of queues: whether they are active, their pending workloads, and their usage."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from policyd.alloc.amount import total_of
from policyd.alloc.cluster_queue import QueueState
from policyd.alloc.ledger import Holding
from policyd.alloc.queue import ClashReason, FlavorResource
from policyd.alloc.state import CoreState
from policyd.alloc.value import Value
from policyd.alloc.workload import QueuedWorkload
from policyd.api.kueue import ClusterQueue, LocalQueue
from policyd.api.kueue.names import ACTIVE
from policyd.api.meta import find_condition, rfc3339
from policyd.status.pending_order import order_of

ActiveReason = (
    Literal[
        "Ready",
        "Stopped",
        "Terminating",
        "FlavorNotFound",
        "AdmissionCheckNotFound",
        "AdmissionCheckInactive",
        "TopologyNotFound",
        "CohortCycle",
        "NotFound",
    ]
    | ClashReason
)

READY = "Can admit new workloads"
"""Kueue's message for an active ClusterQueue."""


class QueueStatus(Value, frozen=True):
    """Whether a ClusterQueue gives out quota, and why not: its condition `Active`."""

    active: bool
    reason: ActiveReason
    message: str


class Use(Value, frozen=True):
    """How much of one flavor and resource is reserved, and how much of that may run.

    Attributes:
        flavor: The flavor.
        resource: The resource.
        reserved: Held by all workloads with quota.
        admitted: Held by those admitted.
        nominal: The queue's own quota.
        shared: Whether the queue is in a cohort, so that more than nominal is borrowed.
    """

    flavor: str
    resource: str
    reserved: int = 0
    admitted: int = 0
    nominal: int = 0
    shared: bool = False

    @property
    def reserved_borrowed(self) -> int:
        """How much of `reserved` is borrowed."""
        return max(0, self.reserved - self.nominal) if self.shared else 0

    @property
    def admitted_borrowed(self) -> int:
        """How much of `admitted` is borrowed."""
        return max(0, self.admitted - self.nominal) if self.shared else 0


class Figures(Value, frozen=True):
    """How many workloads wait in a queue and hold its quota, and how much they hold.

    Attributes:
        pending: Workloads without quota.
        reserving: Workloads with quota, admitted or not.
        admitted: Workloads that may run.
        uses: By flavor in the queue's order, then by resource in alphabetical order.
    """

    pending: int
    reserving: int
    admitted: int
    uses: tuple[Use, ...]


def queue_status(state: CoreState, name: str) -> QueueStatus:
    """Say whether ClusterQueue `name` is active, in Kueue's words where Kueue has them."""
    state.settle()
    queue = state.queues.get(name)
    if queue is None or queue.spec is None:
        return QueueStatus(active=False, reason="NotFound", message="ClusterQueue not found")
    troubles = list(_troubles(state, queue))
    if not troubles:
        return QueueStatus(active=True, reason="Ready", message=READY)
    texts = ", ".join(text for _, text in troubles)
    message = f"Can't admit new workloads: {texts}."
    return QueueStatus(active=False, reason=troubles[0][0], message=message)


def queue_figures(state: CoreState, name: str, *, local_queue: str | None = None) -> Figures:
    """Count the pending workloads and the usage of ClusterQueue `name`.

    Args:
        state: The state to report on.
        name: The ClusterQueue; with nothing known of it, all figures are 0.
        local_queue: `namespace/name` of a LocalQueue, to count its workloads only.
    """
    queue = state.queues.get(name, QueueState(name))
    tickets = [t for t in queue.pending if local_queue in {None, t.workload.local_queue}]
    holdings = [h for h in queue.holdings.values() if local_queue in {None, h.workload.local_queue}]
    return Figures(
        pending=len(tickets),
        reserving=len(holdings),
        admitted=sum(holding.workload.admitted for holding in holdings),
        uses=_uses(queue, holdings),
    )


def _troubles(state: CoreState, queue: QueueState) -> Iterator[tuple[ActiveReason, str]]:
    spec, options, node = queue.spec, queue.options, queue.node
    assert spec is not None, "who has no specification does not exist"
    assert options is not None, "options are there after a settle"
    if spec.terminating:
        yield "Terminating", "is terminating"
    elif spec.stopped:
        yield "Stopped", "is stopped"
    if options.missing:
        names = ",".join(options.missing)
        yield "FlavorNotFound", f"references missing ResourceFlavor(s): {names}"
    if spec.missing_checks:
        names = ",".join(spec.missing_checks)
        yield "AdmissionCheckNotFound", f"references missing AdmissionCheck(s): {names}"
    if spec.inactive_checks:
        names = ",".join(spec.inactive_checks)
        yield "AdmissionCheckInactive", f"references inactive AdmissionCheck(s): {names}"
    yield from spec.clashes
    for name in options.without_topology:
        topology = state.flavors[name].topology
        yield "TopologyNotFound", f'there is no Topology "{topology}" for TAS flavor "{name}"'
    if node is not None and node.cyclic:
        yield "CohortCycle", f"cohort {spec.cohort} leads back to itself"


def _uses(queue: QueueState, holdings: Iterable[Holding]) -> tuple[Use, ...]:
    usages = [(holding.admission.usage(), holding.workload.admitted) for holding in holdings]
    reserved = total_of(*(usage for usage, _ in usages))
    admitted = total_of(*(usage for usage, runs in usages if runs))
    spec = queue.spec
    if spec is None:
        return ()
    return tuple(
        Use(
            flavor=flavor.name,
            resource=resource,
            reserved=reserved.get((flavor.name, resource), 0),
            admitted=admitted.get((flavor.name, resource), 0),
            nominal=flavor.quotas[resource].nominal,
            shared=bool(spec.cohort),
        )
        for group in spec.groups
        for flavor in group.flavors
        for resource in sorted(flavor.quotas)
    )


class QueuePosition(Value, frozen=True):
    """Where a workload stands among those that wait; 0 is first.

    Attributes:
        workload: The pending workload.
        in_cluster_queue: Its place among all of its ClusterQueue.
        in_local_queue: Its place among those of its LocalQueue.
    """

    workload: QueuedWorkload
    in_cluster_queue: int
    in_local_queue: int


def places(
    state: CoreState,
    cluster_queue: str,
    *,
    local_queue: str = "",
    start: int = 0,
    most: int | None = None,
) -> list[QueuePosition]:
    """Return pending workloads of a ClusterQueue, in the order in which they are tried.

    Parked workloads count too: they are tried again when something changes.

    Args:
        state: The state to report on.
        cluster_queue: The ClusterQueue.
        local_queue: `namespace/name` of a LocalQueue, to return its workloads only; "" for all.
        start: How many of those are left out that come first.
        most: How many are returned at most; None for all.
    """
    state.settle()
    queue = state.queues.get(cluster_queue)
    if queue is None:
        return []
    stop = len(queue.pending) if most is None else start + most
    found = order_of(queue.pending).places(local_queue, start, stop)
    return [QueuePosition(ticket.workload, place, own) for place, own, ticket in found]


K = TypeVar("K")


@dataclass(slots=True)
class QueueCounts:
    """The pending workloads of a ClusterQueue or a LocalQueue, and its usage.

    Attributes:
        active: Workloads that are to be tried.
        parked: Those that wait aside; all of a queue that gives out no quota.
        reserving: Workloads with quota.
        admitted: Those of them that may run.
        request_keys: The keys of the requests of workloads to try: equal ones once.
        parked_request_keys: The same of inadmissible workloads.
        asked: The requests of workloads without quota, by resource.
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
    """Count pending workloads and usage, everywhere."""
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


def inactive_queues(state: CoreState) -> Iterator[str]:
    """Say of each ClusterQueue that admits nothing why it does not."""
    for name in sorted(state.queues):
        status = queue_status(state, name)
        if not status.active:
            yield f"ClusterQueue {name}: {status.message}"


def stopped_text(queue: ClusterQueue | LocalQueue) -> str:
    """Return who stopped a queue, and since when if its status has that."""
    kind = "LocalQueue" if isinstance(queue, LocalQueue) else "ClusterQueue"
    named = f"{kind} {queue.metadata.name}{stopped_since(queue)}"
    return f"an administrator stopped {named}: its stopPolicy is {queue.spec.stop_policy}"


def stopped_since(queue: ClusterQueue | LocalQueue) -> str:
    """Return ` at` and when a queue was stopped; "" if its status does not say so yet."""
    active = find_condition(queue.status.conditions, ACTIVE)
    if active is None or active.status == "True" or active.last_transition_time is None:
        return ""
    return f" at {rfc3339(active.last_transition_time.timestamp())}"
