"""Whom to preempt so that a workload fits: the smallest, least important set of victims.

`find_targets` answers for a workload with flavors chosen; `possible` for one flavor and resource,
while flavors are still being chosen. Both try things out in the tree and leave it as it was.
"""

from collections.abc import Collection

from policyd.alloc.cluster_queue import Victim
from policyd.alloc.preemption_classical import classical_victims
from policyd.alloc.preemption_fair import fair_victims
from policyd.alloc.preemption_search import Claim, Search
from policyd.alloc.reasons import Mode
from policyd.alloc.search import Found
from policyd.alloc.state import State
from policyd.alloc.workload import Workload

__all__ = ["Claim", "find_targets", "possible"]


def find_targets(state: State, claim: Claim) -> tuple[Victim, ...]:
    """Choose whom to preempt so that a claim fits.

    By the queue's policies, and by the state's settings with or without fair sharing.

    Args:
        state: Left as it was. Usage is as it is when this is called, inside of a trial too.
        claim: What is needed.

    Returns:
        Victims, in the order in which they were chosen; empty if nobody may be preempted, or if
        that would not be enough.
    """
    return tuple(_victims(Search(state, claim)))


def possible(
    state: State, workload: Workload, cell: int, amount: int, *, removed: Collection[str] = ()
) -> Found:
    """Tell how `amount` of one cell could be had by preemption, whatever else is needed.

    Args:
        state: Left as it was.
        workload: Who wants it.
        cell: The flavor and resource, at the workload's ClusterQueue.
        amount: How much it needs in all, that of its other pod sets included.
        removed: Keys of workloads that are no candidates, since their usage is gone already.

    Returns:
        The mode, BLOCKED if nobody can be preempted, and the borrowing level left then.
    """
    search = Search(state, Claim(workload, {cell: amount}, (cell,), removed))
    victims = _victims(search)
    with state.ground.trial():
        for victim in victims:
            search.remove(victim.holding)
        level, _ = state.tree.borrowing_level(cell, amount)
    if not victims:
        return Mode.BLOCKED, level
    own = any(victim.reason == "InClusterQueue" for victim in victims)
    return (Mode.PREEMPT if own else Mode.RECLAIM), level


def _victims(search: Search) -> list[Victim]:
    if search.hopeless:
        return []
    sharing = search.state.settings.fair_sharing
    if sharing is None:
        return classical_victims(search)
    return fair_victims(search, sharing.strategies)
