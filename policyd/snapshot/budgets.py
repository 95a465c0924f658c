"""Budgets of GPU-hours in snapshots."""

from collections.abc import Iterator

from policyd.snapshot.values import BudgetState, QueueSnapshot
from policyd.usage.budgets import BudgetUse


def state_of(use: BudgetUse) -> BudgetState:
    """Return how far a budget is used up, as a snapshot has it."""
    return BudgetState(
        queue=use.queue,
        month=use.month,
        time_zone=use.time_zone,
        hours=float(use.hours),
        used=float(use.used),
        unknown=float(use.unknown),
        renews_at=use.renews_at,
        used_up=use.used_up,
        held=use.held,
    )


def budgets_of(snapshot: QueueSnapshot) -> Iterator[BudgetState]:
    """Yield all budgets that the reader of a snapshot may see."""
    for queue in snapshot.cluster_queues:
        yield from queue.budgets
