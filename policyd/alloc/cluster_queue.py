"""ClusterQueues as they are: pending workloads, nominated ones, and those that hold quota."""

from dataclasses import dataclass, field

from policyd.alloc.flavors.assignment import Assignment, Requests
from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.ledger import Holding, Victim
from policyd.alloc.pending import PendingQueue, Ticket
from policyd.alloc.queue import QueueSpec
from policyd.alloc.quota import QuotaNode
from policyd.alloc.reasons import FIT
from policyd.alloc.workload import QueuedWorkload


@dataclass(slots=True, eq=False)
class QueueState:
    """The state of a ClusterQueue: its pending workloads, and the holders of its quota.

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
        """The workload of lowest priority that holds its quota, of several the newest."""
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
    """A nominated workload: its requests, its assignment, and the targets to preempt for that."""

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
    def key(self) -> str:
        """The key of the workload."""
        return self.ticket.workload.key

    @property
    def root(self) -> QuotaNode:
        """The top of its queue's tree."""
        return self.options.node.root

    @property
    def served(self) -> bool:
        """Whether it fits, or will once its targets are gone."""
        return self.assignment.mode is FIT or bool(self.targets)
