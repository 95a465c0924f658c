"""The ledger: the quota in the tree and the places on nodes that workloads hold."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from policyd.alloc.plan import PreemptionReason
from policyd.alloc.queue import FlavorSpec
from policyd.alloc.quota import QuotaTree
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.values import Placement
from policyd.alloc.workload import QueuedWorkload, ReservedQuota


@dataclass(slots=True, eq=False)
class Holding:
    """Quota that a workload holds.

    Attributes:
        charges: How much, by cell; empty while its queue is not there.
        placements: Where its pods are, as far as topologies placed them.
        assumed: Whether a plan gave it, and it is not yet known to be written down.
        preempted: Whether a plan took it, and the outcome is not yet known.
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
        # An assumed admission has the pending workload, which may have been evicted before.
        return self.preempted or (self.workload.evicted and not self.assumed)


class Victim(NamedTuple):
    """A workload to preempt: its holding, and the reason."""

    holding: Holding
    reason: PreemptionReason

    @property
    def workload(self) -> QueuedWorkload:
        """The workload."""
        return self.holding.workload


class Ledger:
    """The usage of workloads: quota in the tree, and places on nodes.

    Attributes:
        tree: Quota and usage.
        nodes: Nodes and topologies; none where no flavor has one.
    """

    def __init__(
        self, tree: QuotaTree, flavors: Mapping[str, FlavorSpec], *, overlapping: bool = True
    ) -> None:
        """Begin without nodes; `flavors` tell by which topology pods are placed."""
        self.tree = tree
        self.nodes = Nodes(overlapping=overlapping)
        self._flavors = flavors

    def placements(self, admission: ReservedQuota) -> tuple[Placement, ...]:
        """Return where an admission sends pods; all places stay until no pod of a set is left."""
        return tuple(
            Placement(
                flavor=self._flavor(each.flavors),
                assignment=each.placement,
                requests=each.pod_requests,
            )
            for each in admission.pod_sets
            if each.placement is not None and each.count
        )

    def occupy(self, holding: Holding) -> None:
        """Hold the places that an admission names."""
        holding.placements = self.placements(holding.admission)
        self.nodes.hold(holding.workload.key, holding.placements)

    def vacate(self, key: str) -> None:
        """Release the places of a workload, if it has any."""
        if key in self.nodes.held:
            self.nodes.drop(key)

    def release(self, holding: Holding) -> None:
        """Release, for a trial, all that a workload holds."""
        self.tree.release(holding.charges)
        if holding.placements:
            self.nodes.drop(holding.workload.key)

    def restore(self, holding: Holding) -> None:
        """Give it back: the reverse of `release`."""
        self.tree.charge(holding.charges)
        if holding.placements:
            self.nodes.hold(holding.workload.key, holding.placements)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Undo, at the end of the block, all changes that are made in it."""
        with self.tree.trial():
            if self.nodes.trees:
                with self.nodes.trial():
                    yield
            else:
                yield

    def _flavor(self, flavors: Mapping[str, str]) -> str:
        """Return the flavor by whose topology a pod set is placed."""
        names = list(dict.fromkeys(flavors.values()))
        known = (name for name in names if name in self._flavors)
        return next((n for n in known if self._flavors[n].topology), names[0] if names else "")
