"""Whom to preempt so that a workload fits: the smallest, least important set of victims.

`find_targets` answers for a workload with flavors chosen; `possible` for one flavor and resource,
while flavors are still being chosen. Both try things out in the tree and leave it as it was.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Literal, NamedTuple

from policyd.alloc.plan import Target
from policyd.alloc.state import Holding, State
from policyd.alloc.workload import Workload

Possibility = Literal["none", "preempt", "reclaim"]
"""How a flavor could be had: by no preemption; by one in the queue itself; in others only."""


class Claim(NamedTuple):
    """What somebody is to be preempted for.

    Attributes:
        workload: Who wants it; its ClusterQueue is in the state, and has a specification.
        charges: How much it needs, by cell of its queue; all pod sets together.
        short: The cells of `charges` of which there is not enough: a victim holds some of these.
        places: Whether the pods could be placed, with the usage the tree has when it is called.
    """

    workload: Workload
    charges: Mapping[int, int]
    short: Collection[int]
    places: Callable[[], bool] = lambda: True


def find_targets(state: State, claim: Claim) -> tuple[Target, ...]:
    """Choose whom to preempt so that a claim fits.

    By the queue's policies, and by the state's settings with or without fair sharing.

    Args:
        state: Left as it was. Usage is as it is when this is called, inside of a trial too.
        claim: What is needed.

    Returns:
        Targets, in the order in which they were chosen; empty if nobody may be preempted, or if
        that would not be enough.
    """
    raise NotImplementedError


def possible(state: State, workload: Workload, cell: int, amount: int) -> tuple[Possibility, int]:
    """Tell how `amount` of one cell could be had by preemption, whatever else is needed.

    Args:
        state: Left as it was.
        workload: Who wants it.
        cell: The flavor and resource, at the workload's ClusterQueue.
        amount: How much it needs in all, that of its other pod sets included.

    Returns:
        The possibility, and the borrowing level that would be left then.
    """
    raise NotImplementedError


def holdings_of(state: State, targets: Collection[Target]) -> list[Holding]:
    """Return what targets hold; `state.tree.release(holding.charges)` in a trial frees it."""
    raise NotImplementedError
