"""GPU-hours of a month as people and accounts read them: by team, queue, user and flavor."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from decimal import ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from typing import Final, Literal

from policyd.alloc.value import Value
from policyd.usage.budgets import PART_SECONDS, bounds
from policyd.usage.months import Month
from policyd.usage.prices import Prices
from policyd.usage.record import HoursRecord, QuotaTotals, UseKey

Group = Literal["team", "queue", "user", "flavor"]
GROUPS: Final[tuple[Group, ...]] = ("team", "queue", "user", "flavor")
COHORT: Final = "cohort "
"""How the names begin under which Cohorts with quota of their own are recorded."""
_CENT: Final = Decimal("0.01")
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""How texts begin that spreadsheets compute."""


class HoursLine(Value, frozen=True, rename="camel"):
    """GPU-hours of a group.

    Attributes:
        hours: For which quota was held.
        cost: In the currency of the prices; None if a flavor has no price, or there are none.
        unpriced: Hours in flavors without a price.
    """

    team: str
    queue: str
    local_queue: str
    user: str
    flavor: str
    capacity: str
    hours: Fraction
    cost: Decimal | None
    unpriced: Fraction


class QuotaHours(Value, frozen=True, rename="camel"):
    """GPU-hours of the quota of a ClusterQueue in a flavor.

    Attributes:
        own: Held of its nominal quota.
        borrowed: Held beyond that.
        lent: Of its nominal quota, held by others.
        idle: Of its nominal quota, held by no workload.
        unknown: What may have been held besides, at most, in all flavors of the queue.
    """

    queue: str
    flavor: str
    own: Fraction
    borrowed: Fraction
    lent: Fraction
    idle: Fraction
    unknown: Fraction


class MonthHours(Value, frozen=True, rename="camel"):
    """The hours of a month.

    Attributes:
        month: Such as `2026-11`.
        begin: In seconds since the epoch.
        end: The same.
        recorded_from: From when on all is known; later than `begin` if the record is younger.
        recorded_to: Up to when; before `end` if the month is not over.
        currency: Of costs; "" without prices.
    """

    month: str
    time_zone: str
    begin: float
    end: float
    recorded_from: float
    recorded_to: float
    currency: str
    lines: tuple[HoursLine, ...]
    quotas: tuple[QuotaHours, ...]


def month_hours(
    record: HoursRecord, month: Month, zone: tzinfo, *, prices: Prices | None = None
) -> MonthHours:
    """Return all hours of a month, by the keys of the record.

    Args:
        record: Charged up to now.
        month: The month.
        zone: The time zone in which it begins and ends.
        prices: Of GPU-hours.

    Raises:
        TimeZoneError: If months of the zone cannot be counted.
    """
    begin, end = bounds(month, zone)
    used: dict[tuple[str, str], int] = {}
    lines = []
    for key, total in record.sums(month, begin, end):
        used[key.queue, key.flavor] = used.get((key.queue, key.flavor), 0) + total
        lines.append(_line(key, Fraction(total, PART_SECONDS), prices))
    quotas = dict(record.quota_sums(month, begin, end))
    return MonthHours(
        month=str(month),
        time_zone=str(zone),
        begin=begin,
        end=end,
        recorded_from=max(begin, record.since),
        recorded_to=min(end, record.at),
        currency="" if prices is None else prices.currency,
        lines=tuple(lines),
        quotas=tuple(
            _quota(place, used.get(place, 0), quotas.get(place, QuotaTotals()), unknown)
            for place in sorted(used.keys() | quotas.keys())
            for unknown in [record.unknown_sum(place[0], month, begin, end)]
        ),
    )


def grouped(lines: Iterable[HoursLine], by: Sequence[Group]) -> list[HoursLine]:
    """Return the sums of groups, the largest first; what is not in `by` is "" in them."""
    found: dict[tuple[str, ...], list[HoursLine]] = {}
    for each in lines:
        found.setdefault(tuple(getattr(each, name) for name in by), []).append(each)
    sums = [_summed(dict(zip(by, names, strict=True)), own) for names, own in found.items()]
    return sorted(
        sums, key=lambda each: (-each.hours, each.team, each.queue, each.user, each.flavor)
    )


CSV_HEAD: Final = (
    "month", "time_zone", "begin", "end", "team", "queue", "local_queue", "user", "flavor",
    "capacity", "gpu_hours", "currency", "cost",
)  # fmt: skip


def csv_rows(hours: MonthHours) -> Iterator[tuple[str, ...]]:
    """Yield the hours for accounts, under `CSV_HEAD`: for each team, queue, user and flavor."""
    begin, end = (
        datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for moment in (hours.recorded_from, hours.recorded_to)
    )
    for each in hours.lines:
        names = map(_plain, (each.team, each.queue, each.local_queue, each.user, each.flavor))
        cost = "" if each.cost is None else str(each.cost.quantize(_CENT, ROUND_HALF_EVEN))
        amount = f"{float(each.hours):.6f}"
        yield (
            *(hours.month, hours.time_zone, begin, end, *names),
            *(each.capacity, amount, hours.currency, cost),
        )


def _line(key: UseKey, hours: Fraction, prices: Prices | None) -> HoursLine:
    price = None if prices is None else prices.flavors.get(key.flavor)
    cost = None
    if price is not None:
        cost = price.amount * hours.numerator / hours.denominator
    return HoursLine(
        team=key.team,
        queue=key.queue,
        local_queue=key.local_queue,
        user=key.user,
        flavor=key.flavor,
        capacity="" if price is None else price.capacity,
        hours=hours,
        cost=cost,
        unpriced=hours if prices is not None and price is None else Fraction(0),
    )


def _summed(names: Mapping[str, str], own: Sequence[HoursLine]) -> HoursLine:
    costs = [each.cost for each in own if each.cost is not None]
    capacities = {each.capacity for each in own}
    return HoursLine(
        team=names.get("team", ""),
        queue=names.get("queue", ""),
        local_queue="",
        user=names.get("user", ""),
        flavor=names.get("flavor", ""),
        capacity=capacities.pop() if len(capacities) == 1 else "",
        hours=sum((each.hours for each in own), Fraction(0)),
        cost=sum(costs, Decimal(0)) if len(costs) == len(own) else None,
        unpriced=sum((each.unpriced for each in own), Fraction(0)),
    )


def _quota(place: tuple[str, str], used: int, totals: QuotaTotals, unknown: int) -> QuotaHours:
    own = max(0, used - totals.borrowed)
    idle = max(0, totals.nominal - own - totals.lent)
    parts = (own, totals.borrowed, totals.lent, idle, unknown)
    hours = [Fraction(each, PART_SECONDS) for each in parts]
    return QuotaHours(
        queue=place[0],
        flavor=place[1],
        own=hours[0],
        borrowed=hours[1],
        lent=hours[2],
        idle=hours[3],
        unknown=hours[4],
    )


def _plain(text: str) -> str:
    """Return a text that no spreadsheet computes: users name themselves."""
    return f"'{text}" if text.startswith(_FORMULA) else text
