"""Budgets of GPU-hours, as they are shown: how far each is used up, and which need attention."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from policyd.api.meta import rfc3339
from policyd.snapshot.budgets import budgets_of
from policyd.snapshot.values import BudgetState, QueueSnapshot

MOST_BUDGETS: Final = 100
"""Rows of the table: those that are used up furthest."""
NEARLY: Final = 0.8
"""The part of a budget from which on it needs attention."""

HINT: Final = "`policyd usage hours` shows who used it"


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """A budget.

    Attributes:
        queue: The ClusterQueue, or the LocalQueue as `namespace/name`.
        used: GPU-hours of this month, like `hours` and `left`.
        unknown: What may have been used besides, at most; "" for nothing.
        renews: When the next month begins, and in which time zone.
        state: That it is used up or holds new jobs; "" for neither.
        part: How much of it is used, in thousandths; at most all of it.
    """

    queue: str
    used: str
    hours: str
    left: str
    unknown: str
    renews: str
    state: str
    part: int


def budget_rows(snapshot: QueueSnapshot) -> Iterator[BudgetRow]:
    """Yield the budgets that are shown, those that are used up furthest first."""
    for each in sorted(budgets_of(snapshot), key=lambda each: (-_part(each), each.queue)):
        yield BudgetRow(
            queue=each.queue,
            used=hours_text(each.used),
            hours=hours_text(each.hours),
            left=hours_text(max(0.0, each.hours - each.used)),
            unknown=hours_text(each.unknown) if each.unknown else "",
            renews=f"{rfc3339(each.renews_at)} ({each.time_zone})",
            state="holds new jobs" if each.held else "used up" if each.used_up else "",
            part=round(1_000 * min(1.0, _part(each))),
        )


def budgets_near_their_end(snapshot: QueueSnapshot) -> Iterator[tuple[str, str, str]]:
    """Yield a sentence, a hint and the ClusterQueue of each budget that needs attention."""
    for queue in snapshot.cluster_queues:
        for each in queue.budgets:
            size = f"{hours_text(each.used)} of {hours_text(each.hours)} GPU-hours"
            of = f"the budget of {each.queue} for {each.month}"
            if each.held:
                yield f"{of} holds new jobs: {size} are used", HINT, queue.name
            elif each.used_up:
                yield f"{of} is used up: {size}", HINT, queue.name
            elif _part(each) >= NEARLY:
                yield f"{of} is nearly used up: {size}", HINT, queue.name


def hours_text(hours: float) -> str:
    """Write a number of hours with two digits behind the point."""
    return f"{hours:,.2f}"


def _part(budget: BudgetState) -> float:
    if budget.used_up:
        return max(1.0, budget.used / budget.hours if budget.hours else 1.0)
    return budget.used / budget.hours if budget.hours else 0.0
