"""Budgets of GPU-hours: so many in a calendar month of a time zone, for a queue.

A budget counts from the begin of a month; hours that are left are not carried over. One that holds
keeps new workloads from quota once it is used up, until the next month begins. It stops none.
"""

from calendar import month_name
from collections.abc import Iterable, Mapping
from datetime import datetime, tzinfo
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from policyd.alloc.value import Value
from policyd.errors import PolicydError, did_you_mean
from policyd.usage.months import Month, begin_of, month_of
from policyd.usage.record import PARTS, HoursRecord, UseKey

HOURS: Final = "policyd.io/budget-gpu-hours"
TIME_ZONE: Final = "policyd.io/budget-time-zone"
HOLD: Final = "policyd.io/budget-hold"
"""Annotations of a ClusterQueue or LocalQueue: how many hours a month, of which time zone, and
whether new workloads are held once they are used up."""

PART_SECONDS: Final = PARTS * 3_600
"""Parts and seconds of a GPU-hour."""
MOST_HOURS: Final = 10**12
WARN_PERCENT: Final = 80
_LONGEST: Final = 64
"""Characters of a time zone's name, and of a number."""


class BudgetError(PolicydError):
    """An annotation of a budget is invalid."""


class HoursBudget(Value, frozen=True):
    """A budget.

    Attributes:
        part_seconds: How much a month, in parts of GPUs and seconds.
        zone: The name of the time zone whose months count.
        holds: Whether new workloads get no quota once it is used up.
    """

    part_seconds: int
    zone: str
    holds: bool = False

    @property
    def hours(self) -> Fraction:
        """How many GPU-hours it is."""
        return Fraction(self.part_seconds, PART_SECONDS)


class BudgetUse(Value, frozen=True, rename="camel"):
    """How far a budget is used up.

    Attributes:
        queue: The ClusterQueue, or the LocalQueue as `namespace/name`.
        month: Which month, such as `2026-11`.
        time_zone: Of which time zone.
        hours: The budget.
        used: What was used of it, so far.
        unknown: What may have been used besides, at most.
        renews_at: When the next month begins, in seconds since the epoch.
        holds: Whether new workloads are held once it is used up.
        used_up: Whether it is.
        message: That in a sentence, the same until it is used up; "" while less than four fifths
            are used.
    """

    queue: str
    month: str
    time_zone: str
    hours: Fraction
    used: Fraction
    unknown: Fraction
    renews_at: float
    holds: bool
    used_up: bool
    message: str = ""

    @property
    def held(self) -> bool:
        """Whether new workloads get no quota now."""
        return self.holds and self.used_up


def budget_of(annotations: Mapping[str, str]) -> HoursBudget | None:
    """Read the annotations of a queue; None if it has no budget.

    Raises:
        BudgetError: If one of them is invalid.
    """
    text, zone = annotations.get(HOURS), annotations.get(TIME_ZONE)
    hold = annotations.get(HOLD, "false")
    if text is None:
        for name in (TIME_ZONE, HOLD):
            if name in annotations:
                raise BudgetError(f"{name}: there is no budget", hint=f"set {HOURS} as well")
        return None
    if hold not in {"true", "false"}:
        raise BudgetError(f"{HOLD}: `{_cut(hold)}` is neither `true` nor `false`")
    if zone is None:
        raise BudgetError(
            f"{HOURS}: the time zone in which months begin is missing",
            hint=f"set {TIME_ZONE} as well, such as Europe/Berlin or UTC",
        )
    return HoursBudget(
        part_seconds=_part_seconds(text), zone=str(zone_of(zone)), holds=hold == "true"
    )


def _part_seconds(text: str) -> int:
    try:
        hours = Decimal(text) if len(text) <= _LONGEST else Decimal("NaN")
    except InvalidOperation:
        hours = Decimal("NaN")
    if not hours.is_finite() or not 0 <= hours <= MOST_HOURS:
        raise BudgetError(
            f"{HOURS}: `{_cut(text)}` is not a number of GPU-hours", hint="write `1000` or `0.5`"
        )
    return int(hours * PART_SECONDS)


@lru_cache(maxsize=64)
def zone_of(name: str) -> ZoneInfo:
    """Return a time zone by its name in the IANA's database.

    Raises:
        BudgetError: If there is none.
    """
    try:
        if name and len(name) <= _LONGEST and name.isascii() and name.isprintable():
            return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    near = did_you_mean(name, _ZONES)
    raise BudgetError(
        f"`{_cut(name)}` is not a time zone", hint=near or "write it as Europe/Berlin or UTC"
    )


_ZONES: Final = (
    "UTC", "Europe/Berlin", "Europe/London", "Europe/Paris", "Europe/Zurich", "America/New_York",
    "America/Chicago", "America/Los_Angeles", "Asia/Tokyo", "Asia/Kolkata", "Asia/Shanghai",
    "Australia/Sydney",
)  # fmt: skip
"""Names that a mistyped one may stand for."""


def budget_uses(
    budgets: Mapping[str, HoursBudget], record: HoursRecord, *, now: float
) -> list[BudgetUse]:
    """Return how far budgets are used up.

    Args:
        budgets: By ClusterQueue, or LocalQueue as `namespace/name`.
        record: What was used; charged up to now.
        now: Seconds since the epoch.
    """
    sums: dict[tuple[str, Month], dict[str, int]] = {}
    found = []
    for name, budget in sorted(budgets.items()):
        zone = zone_of(budget.zone)
        month = month_of(now, zone)
        if (budget.zone, month) not in sums:
            sums[budget.zone, month] = _by_queue(record.sums(month, *bounds(month, zone)))
        used = sums[budget.zone, month].get(name, 0)
        unknown = 0 if "/" in name else record.unknown_sum(name, month, *bounds(month, zone))
        found.append(budget_use(name, budget, used, now=now, unknown=unknown))
    return found


def budget_use(
    name: str, budget: HoursBudget, used: int, *, now: float, unknown: int = 0
) -> BudgetUse:
    """Return how far one budget is used up.

    Args:
        name: Of its queue.
        budget: The budget.
        used: What was used in the month that it is now, in parts and seconds.
        now: Seconds since the epoch.
        unknown: What may have been used besides.
    """
    zone = zone_of(budget.zone)
    month = month_of(now, zone)
    renews_at = begin_of(month.next, zone)
    used_up = used >= budget.part_seconds
    return BudgetUse(
        queue=name,
        month=str(month),
        time_zone=budget.zone,
        hours=budget.hours,
        used=Fraction(used, PART_SECONDS),
        unknown=Fraction(unknown, PART_SECONDS),
        renews_at=renews_at,
        holds=budget.holds,
        used_up=used_up,
        message=_message(name, budget, used, month, renews_at)
        if _is_reported(budget, used)
        else "",
    )


def bounds(month: Month, zone: tzinfo) -> tuple[int, int]:
    """Return begin and end of a month in a time zone, in seconds since the epoch."""
    return begin_of(month, zone), begin_of(month.next, zone)


def _is_reported(budget: HoursBudget, used: int) -> bool:
    return 100 * used >= WARN_PERCENT * budget.part_seconds


def _message(name: str, budget: HoursBudget, used: int, month: Month, renews_at: float) -> str:
    zone = zone_of(budget.zone)
    renewal = datetime.fromtimestamp(renews_at, zone).strftime("%Y-%m-%d %H:%M")
    size = f"{hours_text(budget.hours)} GPU-hours"
    of = f"the budget of {name} for {month_name[month.month]}, {size},"
    then = f"it renews on {renewal} {budget.zone}"
    if used >= budget.part_seconds:
        return f"{of} is used up; {then}"
    return f"more than {WARN_PERCENT} % of {of} are used; {then}"


def hours_text(hours: Fraction) -> str:
    """Write a number of hours, with two digits behind the point at most."""
    return f"{float(hours):.2f}".rstrip("0").rstrip(".")


def _by_queue(sums: Iterable[tuple[UseKey, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, total in sums:
        for name in (key.queue, key.local_queue):
            found[name] = found.get(name, 0) + total
    return found


def _cut(text: str) -> str:
    shown = "".join(each for each in text if each.isprintable())
    return shown if len(shown) <= _LONGEST else f"{shown[:_LONGEST]}…"
