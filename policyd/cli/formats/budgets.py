"""The table of budgets of GPU-hours."""

from collections.abc import Iterable
from fractions import Fraction

from policyd.api.meta import rfc3339
from policyd.cli.formats.tables import table_lines
from policyd.snapshot.values import BudgetState


def budget_lines(budgets: Iterable[BudgetState]) -> list[str]:
    """Return the lines of the table."""
    head = ("BUDGET OF", "MONTH", "HOURS", "USED", "LEFT", "RENEWS", "USED UP")
    rows = [
        (
            each.queue,
            each.month,
            hours_number(each.hours),
            hours_number(each.used),
            hours_number(max(0.0, each.hours - each.used)),
            f"{rfc3339(each.renews_at)} ({each.time_zone})",
            "holds new jobs" if each.held else "yes" if each.used_up else "-",
        )
        for each in budgets
    ]
    return table_lines(head, rows, numbers=("HOURS", "USED", "LEFT"))


def hours_number(value: Fraction | float) -> str:
    """Write a number of hours with two digits behind the point."""
    return f"{float(value):.2f}"
