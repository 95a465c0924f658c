"""ClusterQueues as they are: pending workloads, nominated ones, and those that hold quota."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from policyd.alloc.amount import total_of
from policyd.alloc.flavors.assignment import Assignment, Requests
from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.hierarchy import QuotaNode
from policyd.alloc.ledger import Holding, Ledger, Victim
from policyd.alloc.pending import PendingQueue, Ticket
from policyd.alloc.plan import Admit
from policyd.alloc.queue import QueueSpec
from policyd.alloc.reasons import FIT
from policyd.alloc.usage_history import UsageHistory, nanos
from policyd.alloc.workload import QueuedWorkload, ReservedQuota


@dataclass(slots=True, eq=False)
class QueueState:
    """A ClusterQueue as it is: what waits in it, and what holds its quota.

    It exists as soon as a workload names it; without `spec` it is inactive.
    """

    name: str
    spec: QueueSpec | None = None
    node: QuotaNode | None = None
    options: QueueOptions | None = None
    pending: PendingQueue = field(default_factory=PendingQueue)
    holdings: dict[str, Holding] = field(default_factory=dict)
    _least: QueuedWorkload | None = None
    _version: int = -1

    @property
    def least(self) -> QueuedWorkload | None:
        """Who of those that hold its quota has the lowest priority, of these the newest."""
        if self.node is not None and self._version != self.node.root.version:
            self._version = self.node.root.version
            holders = (holding.workload for holding in self.holdings.values())
            self._least = min(holders, key=lambda w: (w.priority, -w.queued_at), default=None)
        return self._least

    @property
    def active(self) -> bool:
        """Whether it gives out quota, and others may take theirs back; right after a settle."""
        open_, node = self.options is not None and self.options.open, self.node
        return open_ and node is not None and not node.cyclic


@dataclass(slots=True, eq=False)
class NominatedWorkload:
    """A nominated workload: what it asks, what it would get, and whom it would preempt for that."""

    ticket: Ticket
    options: QueueOptions
    requests: Requests
    assignment: Assignment
    targets: tuple[Victim, ...] = ()

    @property
    def queue(self) -> str:
        """The name of its queue."""
        return self.ticket.workload.cluster_queue

    @property
    def served(self) -> bool:
        """Whether it fits, or will once its targets are gone."""
        return self.assignment.mode is FIT or bool(self.targets)


class Register:
    """Workloads by ClusterQueue, known or not; what they hold is charged to the tree."""

    def __init__(
        self,
        ledger: Ledger,
        history: UsageHistory | None,
        left: Callable[[str, QuotaNode | None, bool], None],
    ) -> None:
        """Begin; `left` is told who leaves which queue, and whether quota became free by it."""
        self.queues: dict[str, QueueState] = {}
        self._ledger = ledger
        self._tree = ledger.tree
        self._history = history
        self._left = left
        self._queue_of: dict[str, str] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._queue_of

    def holding(self, key: str) -> Holding | None:
        """Return the quota a workload holds; None if it holds none."""
        name = self._queue_of.get(key)
        return None if name is None else self.queues[name].holdings.get(key)

    def waiting(self, key: str) -> QueuedWorkload | None:
        """Return a workload that waits for quota, as it is known; None if it does not."""
        name = self._queue_of.get(key)
        return None if name is None else self.queues[name].pending.get(key)

    def queue(self, name: str) -> QueueState:
        """Return a ClusterQueue; one that nobody knew of is made."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = QueueState(name)
        return queue

    def drop_if_idle(self, queue: QueueState) -> None:
        """Forget a ClusterQueue that is no more, and of which no workload knows."""
        if queue.spec is None and not queue.pending and not queue.holdings:
            del self.queues[queue.name]

    def assume(self, action: Admit, *, now: float) -> None:
        """Let a workload that waited hold what a plan gives it."""
        workload = action.workload
        queue = self.queues[workload.cluster_queue]
        queue.pending.remove(workload.key)
        before = queue.holdings.get(workload.key)
        holding = Holding(workload, action.admission, assumed=True)
        queue.holdings[workload.key] = holding
        self._ledger.occupy(holding)
        if before is not None:  # it has got places for the quota that it had
            holding.charges = before.charges
            return
        if self._history is not None and queue.spec is not None and queue.spec.by_usage:
            used = nanos(action.admission.totals())
            self._history.push(workload.local_queue, workload.key, used, now)
        if workload.replaces and self.holding(workload.replaces) and queue.node is not None:
            self.leave(workload.replaces)
            self.charge(queue.node, holding)
            return
        holding.charges = action.charges
        self._tree.charge(action.charges)

    def put_pending(self, workload: QueuedWorkload, *, carries: bool) -> None:
        """Let a workload wait, unless what it holds is only assumed, and this an older view."""
        key, name = workload.key, workload.cluster_queue
        known, holding = self._queue_of.get(key), self.holding(key)
        if holding is not None and holding.assumed:
            return
        if known is not None and (holding is not None or known != name):
            self.leave(key)
        self._queue_of[key] = name
        self.queue(name).pending.put(workload, carries=carries)

    def put_holding(
        self, workload: QueuedWorkload, admission: ReservedQuota, *, now: float
    ) -> None:
        """Let a workload hold quota."""
        key, name = workload.key, admission.cluster_queue
        old = self.holding(key)
        if old is not None and old.admission == admission:
            self._hold_on(old, workload, now=now)
            return
        if key in self._queue_of:
            self.leave(key)
        queue = self.queue(name)
        self._queue_of[key] = name
        holding = queue.holdings[key] = Holding(workload, admission, assumed=False)
        self._ledger.occupy(holding)
        if queue.node is not None:
            self.charge(queue.node, holding)

    def _hold_on(self, holding: Holding, workload: QueuedWorkload, *, now: float) -> None:
        """Take notice that somebody changed who holds what it held."""
        other_priority = workload.priority != holding.workload.priority
        holding.workload, holding.assumed, holding.preempted = workload, False, False
        node = self.queues[holding.admission.cluster_queue].node
        if node is not None:
            self._tree.touch(node)
            node.generation += 1  # Kueue forgets it and learns of it again
        self._settle_usage(workload, now)
        self._left(workload.key, node, other_priority)

    def leave(self, key: str) -> None:
        """Forget a workload that is known."""
        queue = self.queues[self._queue_of.pop(key)]
        queue.pending.remove(key)
        holding, node = queue.holdings.pop(key, None), queue.node
        self._ledger.vacate(key)
        if holding is not None and self._history is not None:
            self._history.drop(holding.workload.local_queue, key)
        if holding is not None and node is not None:
            self._tree.refresh()
            self._tree.release(holding.charges)
            node.generation += 1
        self._left(key, node, holding is not None)
        self.drop_if_idle(queue)

    def charge(self, node: QuotaNode, holding: Holding) -> None:
        """Charge to a queue's node what somebody holds there."""
        tree, usage = self._tree, holding.admission.usage()
        tree.refresh()
        holding.charges = {tree.cell(node, names): amount for names, amount in usage.items()}
        tree.charge(holding.charges)

    def settle_flavor(self, name: str) -> None:
        """Take notice that a flavor may place pods now by another topology, or by none."""
        for holding in self._holdings():
            if any(name in each.flavors.values() for each in holding.admission.pod_sets):
                self._ledger.occupy(holding)

    def awaits_pods(self) -> bool:
        """Tell whether somebody holds quota whose pods are not ready."""
        return any(not holding.workload.ready for holding in self._holdings())

    def usage_of(self, local_queue: str) -> dict[str, int]:
        """Return what a LocalQueue's admitted workloads use, in 10⁻⁹ units by resource."""
        theirs = (h for h in self._holdings() if h.workload.local_queue == local_queue)
        return nanos(total_of(*(h.admission.totals() for h in theirs if h.workload.admitted)))

    def _settle_usage(self, workload: QueuedWorkload, now: float) -> None:
        history, local_queue = self._history, workload.local_queue
        if history is not None and workload.admitted and history.awaits(local_queue, workload.key):
            history.settle(local_queue, workload.key, self.usage_of(local_queue), now)

    def _holdings(self) -> Iterator[Holding]:
        return (each for queue in self.queues.values() for each in queue.holdings.values())
