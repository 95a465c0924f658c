"""A ClusterQueue as it is: what waits in it, and who holds its quota."""

from collections.abc import Mapping

from policyd.alloc.hierarchy import Node
from policyd.alloc.options import QueueOptions
from policyd.alloc.pending import PendingQueue
from policyd.alloc.queue import QueueSpec
from policyd.alloc.workload import Admission, Workload


class Holding:
    """Quota that a workload holds.

    Attributes:
        workload: Who holds it.
        admission: What it is.
        charges: How much, by cell; empty while its queue is not there.
        assumed: Whether a plan gave it, and nobody has yet reported that it was written down.
        preempted: Whether a plan took it, and nobody has yet reported what became of that.
    """

    __slots__ = ("admission", "assumed", "charges", "preempted", "workload")

    def __init__(self, workload: Workload, admission: Admission, *, assumed: bool) -> None:
        self.workload = workload
        self.admission = admission
        self.charges: Mapping[int, int] = {}
        self.assumed = assumed
        self.preempted = False


class ClusterQueue:
    """A ClusterQueue as it is: what waits in it, and what holds its quota.

    It exists as soon as a workload names it; without `spec` it is inactive.
    """

    __slots__ = ("_least", "_version", "holdings", "name", "node", "options", "pending", "spec")

    def __init__(self, name: str) -> None:
        self.name = name
        self.spec: QueueSpec | None = None
        self.node: Node | None = None
        self.options: QueueOptions | None = None
        self.pending = PendingQueue()
        self.holdings: dict[str, Holding] = {}
        self._least: Workload | None = None
        self._version = -1

    @property
    def least(self) -> Workload | None:
        """Who of those that hold its quota has the lowest priority, of these the newest."""
        if self.node is not None and self._version != self.node.root.version:
            self._version = self.node.root.version
            holders = (holding.workload for holding in self.holdings.values())
            self._least = min(holders, key=_importance, default=None)
        return self._least

    def active(self, options: QueueOptions) -> bool:
        """Tell whether it gives out quota, given what it has to offer after a settle."""
        return options.open and self.node is not None and not self.node.cyclic


def _importance(workload: Workload) -> tuple[int, float]:
    return workload.priority, -workload.queued_at
