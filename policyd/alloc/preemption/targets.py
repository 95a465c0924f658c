"""Targets: the smallest, least important set of workloads to preempt so that another fits.

`find_targets` answers for a workload with flavors chosen; `PreemptionOracle` for one flavor and
resource too, while flavors are still being chosen. Both leave the tree as it was.
`TargetFeasibility` finds without a search that there are no targets, as most often: the workload of
the lowest priority in a queue stands for all that hold its quota.
"""

from collections.abc import Callable, Collection

from policyd.alloc.cluster_queue import QueueState
from policyd.alloc.flavors.assignment import Assignment
from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.flavors.search import Found
from policyd.alloc.ledger import Victim
from policyd.alloc.preemption.classical import classical_victims
from policyd.alloc.preemption.fair import fair_victims
from policyd.alloc.preemption.search import Claim, Search, may_preempt
from policyd.alloc.quota import QuotaNode, descendants
from policyd.alloc.reasons import Mode
from policyd.alloc.state import CoreState
from policyd.alloc.workload import QueuedWorkload


def find_targets(state: CoreState, claim: Claim) -> tuple[Victim, ...]:
    """Return the victims by whose preemption a claim fits, as chosen; none if that is impossible.

    Usage is as it is when this is called, inside of a trial too.
    """
    return tuple(_victims(Search(state, claim)))


class PreemptionOracle:
    """Finds the quota that preemption could free, while nothing changes; searches once."""

    def __init__(
        self, state: CoreState, workload: QueuedWorkload, removed: Collection[str] = ()
    ) -> None:
        self._state, self._workload, self._removed = state, workload, removed
        self._known: dict[tuple[int, int], list[Victim]] = {}

    def possible(self, cell: int, amount: int) -> Found:
        """Tell how an amount of a cell of its queue could be had by preemption.

        That is the mode, BLOCKED if there are no victims, and the borrowing level left then.
        """
        claim = Claim(self._workload, {cell: amount}, (cell,), self._removed)
        search = Search(self._state, claim)
        victims = self._known[cell, amount] = _victims(search)
        with search.ledger.trial():
            for victim in victims:
                search.ledger.release(victim.holding)
            level, _ = search.tree.borrowing_level(cell, amount)
        if not victims:
            return Mode.BLOCKED, level
        own = any(victim.reason == "InClusterQueue" for victim in victims)
        return (Mode.PREEMPT if own else Mode.RECLAIM), level

    def targets(
        self, assignment: Assignment, places: Callable[[], bool] | None = None
    ) -> tuple[Victim, ...]:
        """Choose targets for an assignment whose pods could be placed if `places` says so."""
        charges, short = assignment.charges, assignment.short
        needed = [(cell, amount) for cell, amount in charges.items() if amount]
        alone = places is None and len(needed) == 1 and {*short} == {needed[0][0]}
        if alone and needed[0] in self._known:
            return tuple(self._known[needed[0]])
        return find_targets(
            self._state, Claim(self._workload, charges, short, self._removed, places)
        )


def _victims(search: Search) -> list[Victim]:
    sharing = search.state.settings.fair_sharing
    if sharing is None:
        return classical_victims(search)
    return fair_victims(search, sharing.strategies)


class TargetFeasibility:
    """Tells whether workloads may have targets, while the state stays as it is."""

    def __init__(self, state: CoreState) -> None:
        self._state = state
        self._borrowers: dict[QuotaNode, list[QueueState]] = {}

    def possible(self, options: QueueOptions, workload: QueuedWorkload) -> bool:
        """Tell whether a workload might find victims; if not, it certainly finds none."""
        policy, node = options.spec.preemption, options.node
        least = self._state.queues[node.name].least
        if least is not None and may_preempt(policy.within_cluster_queue, workload, least):
            return True
        reclaim = policy.reclaim_within_cohort
        if reclaim == "Never" or node.parent is None:
            return False
        others = (queue.least for queue in self._borrowing(node.root))
        return any(each is not None and may_preempt(reclaim, workload, each) for each in others)

    def _borrowing(self, root: QuotaNode) -> list[QueueState]:
        """Return the queues of a tree that use more than they have of anything."""
        found = self._borrowers.get(root)
        if found is None:
            usage, subtree = self._state.tree.usage, self._state.tree.subtree
            found = self._borrowers[root] = [
                self._state.queues[node.name]
                for node in descendants(root)
                if node.queue and any(usage[cell] > subtree[cell] for cell in node.cells.values())
            ]
        return found
