"""The interface for decisions beyond Kueue's rules, which does nothing by itself.

A state makes its `Extension` once, and asks it at a few points; a cycle asks the `CycleExtension`
that it gets from there. A subclass decides by the `opt_ins` of queues, which only it looks at.
"""
# ruff: noqa: ARG002 - methods that do nothing need no arguments

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from policyd.alloc.cluster_queue import NominatedWorkload, QueueState
from policyd.alloc.flavors.search import FlavorSearch, Pins
from policyd.alloc.ledger import Holding
from policyd.alloc.plan import Evict, Move, Plan
from policyd.alloc.queue import QueueSpec
from policyd.alloc.quota import QuotaNode, QuotaTree
from policyd.alloc.reasons import Refusal
from policyd.alloc.settings import QueueingSettings
from policyd.alloc.topology.values import PlacementRequest
from policyd.alloc.workload import QueuedWorkload


class CycleExtension:
    """The decisions of an extension in one cycle.

    Attributes:
        active: Whether `make_room`, `delay`, `kept` and `requeued` are called at all.
        moves: Places to hold from now on, as a plan has them.
    """

    active: bool = False
    moves: Sequence[Move] = ()

    @property
    def reserved(self) -> Mapping[str, str]:
        """Keys of workloads for which quota is held, and their ClusterQueues."""
        return {}

    def evictions(self) -> Iterable[Evict]:
        """Return the workloads to stop for their own sake."""
        return ()

    def make_room(self, entry: NominatedWorkload, victims: Collection[str]) -> bool:
        """Give a workload that does not fit an assignment and targets by which it does.

        Tell whether that was possible, given the keys of this cycle's victims so far.
        """
        return False

    def delay(self, entry: NominatedWorkload) -> Refusal | None:
        """Return why a workload must wait although it fits; None if it need not."""
        return None

    def holds_for(self, entry: NominatedWorkload) -> bool:
        """Tell whether quota is held for a workload already."""
        return False

    def kept(self, entry: NominatedWorkload) -> None:
        """Note that a workload has its assignment, or that it is kept for it."""

    def preempted(self, entry: NominatedWorkload) -> None:
        """Note that a workload's targets are preempted."""

    def requeued(
        self, entry: NominatedWorkload, refusal: Refusal, *, strict: bool
    ) -> tuple[Refusal, bool]:
        """Return the refusal of a waiting workload, and whether it holds up those behind it."""
        return refusal, strict


_NOTHING = CycleExtension()


class Extension:
    """The decisions of an extension in one state, and its memory from cycle to cycle.

    Attributes:
        reserved: The same of the last cycle as `reserved` of a cycle.
        gather_seconds: How long changes are gathered after a preemption, before inadmissible
            workloads are tried again; 0 for not at all.
    """

    reserved: Mapping[str, str] = {}
    gather_seconds: float = 0.0

    @property
    def held_up(self) -> Collection[QuotaNode]:
        """The roots of trees whose inadmissible workloads are tried again later."""
        return ()

    def due(self, changed: Collection[QuotaNode]) -> Collection[QuotaNode]:
        """Return the roots of trees to try again, given the nodes that changed lately."""
        return {node.root for node in changed}

    def preempting(self, preemptor: QueuedWorkload) -> None:
        """Note that a preemption for a workload is carried out."""

    def put_queue(self, queue: QueueState) -> None:
        """Note that a ClusterQueue has another specification, or none."""

    def search(self, tree: QuotaTree, queue: QueueSpec, settings: QueueingSettings) -> FlavorSearch:
        """Return the search for flavors by the rules of a queue."""
        return FlavorSearch(tree, queue, settings)

    def request(
        self, queue: QueueSpec, workload: QueuedWorkload, request: PlacementRequest
    ) -> PlacementRequest:
        """Return a pod set's request for places in a topology, by the rules of its queue."""
        return request

    def protects(self, queue: QueueState) -> bool:
        """Tell whether the workloads of a queue are protected from preemption for some time."""
        return False

    def protected_until(self, holding: Holding, preemptor: QueuedWorkload) -> float:
        """Return when a workload may be preempted, in seconds since the epoch; infinity: never."""
        return 0.0

    def settle(self) -> None:
        """Put the pending workloads of queues in another order, before heads are taken."""

    def forget(self, key: str) -> None:
        """Drop a workload that was removed."""

    def holds_for(self, key: str) -> bool:
        """Tell whether quota is held for a workload, so that its leaving helps others."""
        return False

    def committed(self, plan: Plan) -> Iterable[str]:
        """Note a plan that is carried out; return the ClusterQueues to wake up."""
        return ()

    def pins(self) -> Mapping[str, Pins]:
        """Return the only flavors of some workloads, by key; these have no targets."""
        return {}

    def next_due(self) -> float | None:
        """Return when another cycle may differ though nothing changes; None if it will not."""
        return None

    def cycle(self) -> AbstractContextManager[CycleExtension]:
        """Return the extension of the cycle in a block; the state is settled."""
        return nullcontext(_NOTHING)
