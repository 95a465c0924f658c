"""A ClusterQueue as it is: what waits in it, and who holds its quota."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.hierarchy import QuotaNode
from policyd.alloc.pending import PendingQueue
from policyd.alloc.plan import PreemptionReason
from policyd.alloc.queue import QueueSpec
from policyd.alloc.topology.values import Placement
from policyd.alloc.workload import QueuedWorkload, ReservedQuota


@dataclass(slots=True, eq=False)
class Holding:
    """Quota that a workload holds.

    Attributes:
        charges: How much, by cell; empty while its queue is not there.
        placements: Where its pods are, as far as topologies placed them.
        assumed: Whether a plan gave it, and nobody has yet reported that it was written down.
        preempted: Whether a plan took it, and nobody has yet reported what became of that.
    """

    workload: QueuedWorkload
    admission: ReservedQuota
    charges: Mapping[int, int] = field(default_factory=dict)
    placements: tuple[Placement, ...] = ()
    assumed: bool = field(kw_only=True)
    preempted: bool = False

    @property
    def stopping(self) -> bool:
        """Whether it is being stopped, or is to be by an earlier plan."""
        return self.preempted or self.workload.evicted


class Victim(NamedTuple):
    """Who is to be preempted, by what it holds, and by which right."""

    holding: Holding
    reason: PreemptionReason

    @property
    def workload(self) -> QueuedWorkload:
        """Who it is."""
        return self.holding.workload


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
