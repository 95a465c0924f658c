"""GPU-hours of a month in lines, sums, costs and CSV."""

from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pytest
import yaml

from policyd.usage.hours import CSV_HEAD, csv_rows, grouped, month_hours
from policyd.usage.months import Month
from policyd.usage.prices import PricesError, prices_of
from policyd.usage.record import HeldQuota, HoursRecord, QuotaGiven

BEGIN = int(datetime(2026, 11, 10, tzinfo=UTC).timestamp())
HOUR, GPU = 3_600, 28
NOVEMBER = Month(2026, 11)
PRICES = prices_of(
    yaml.safe_load("{currency: EUR, flavors: {a100: {onDemand: 2.10}, t4: {spot: '0.35'}}}")
)


@pytest.fixture
def record():
    """10 hours of three workloads: 4 A100 and a seventh of one for ann, 1 T4 for bob."""
    record = HoursRecord(BEGIN)
    quotas = {"a": {"a100": QuotaGiven(3 * GPU)}, "b": {"a100": QuotaGiven(4 * GPU)}}
    record.put_quotas({name: ("cohort c", given) for name, given in quotas.items()}, BEGIN)
    for uid, queue, user, amounts in (
        ("1", "a", "ann", {"a100": 4 * GPU}),
        ("2", "a", "ann", {"a100": 4}),
        ("3", "b", "=bob", {"t4": GPU}),
    ):
        local = f"team-{queue}/main"
        record.hold(
            uid, HeldQuota(queue=queue, local_queue=local, user=user, amounts=amounts), BEGIN
        )
    record.advance(BEGIN + 10 * HOUR)
    return record


def test_hours_have_the_cost_of_their_flavor(record):
    hours = month_hours(record, NOVEMBER, UTC, prices=PRICES)

    found = {(each.team, each.user, each.flavor): each for each in hours.lines}
    ann = found["team-a", "ann", "a100"]
    assert ann.hours == Fraction(290, 7)
    assert ann.cost == pytest.approx(Decimal(87))
    assert (ann.capacity, found["team-b", "=bob", "t4"].capacity) == ("on-demand", "spot")
    assert found["team-b", "=bob", "t4"].cost == Decimal("3.5")


def test_quota_is_own_borrowed_lent_or_idle(record):
    hours = month_hours(record, NOVEMBER, UTC)

    found = {(each.queue, each.flavor): each for each in hours.quotas}
    a, b = found["a", "a100"], found["b", "a100"]
    borrowed = Fraction(10) + Fraction(10, 7)
    assert (a.own, a.borrowed, a.lent, a.idle) == (30, borrowed, 0, 0)
    assert (b.own, b.borrowed, b.lent, b.idle) == (0, 0, borrowed, 40 - borrowed)


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        pytest.param(("team",), [("team-a", Fraction(290, 7)), ("team-b", 10)], id="team"),
        pytest.param(("queue",), [("", Fraction(290, 7)), ("", 10)], id="queue"),
        pytest.param((), [("", Fraction(360, 7))], id="all"),
    ],
)
def test_sums_are_those_of_their_lines(record, by, expected):
    lines = month_hours(record, NOVEMBER, UTC).lines

    assert [(each.team, each.hours) for each in grouped(lines, by)] == expected


def test_a_flavor_without_a_price_has_no_cost_and_spoils_that_of_its_sum(record):
    prices = prices_of({"currency": "EUR", "flavors": {"a100": {"onDemand": 1}}})

    lines = month_hours(record, NOVEMBER, UTC, prices=prices).lines
    (whole,) = grouped(lines, ())

    assert (whole.cost, whole.unpriced) == (None, 10)


def test_accounts_get_a_row_for_each_line_and_no_formula(record):
    rows = [dict(zip(CSV_HEAD, row, strict=True)) for row in csv_rows(
        month_hours(record, NOVEMBER, ZoneInfo("Europe/Berlin"), prices=PRICES)
    )]  # fmt: skip

    assert rows[1] == {
        "month": "2026-11", "time_zone": "Europe/Berlin", "begin": "2026-11-10T00:00:00Z",
        "end": "2026-11-10T10:00:00Z", "team": "team-b", "queue": "b", "local_queue": "team-b/main",
        "user": "'=bob", "flavor": "t4", "capacity": "spot", "gpu_hours": "10.000000",
        "currency": "EUR", "cost": "3.50",
    }  # fmt: skip
    assert rows[0]["cost"] == "87.00"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("[]", "prices are a mapping", id="list"),
        pytest.param("{currency: EUR}", "prices have no flavors", id="no-flavors"),
        pytest.param("{currency: EUR, flavor: {}}", "have no field `flavor`", id="field"),
        pytest.param("{currency: euros, flavors: {a: {spot: 1}}}", "`euros` is not a", id="word"),
        pytest.param("{currency: €, flavors: {a: {spot: 1}}}", "`€` is not a currency", id="sign"),
        pytest.param("{flavors: {a: {spot: 1}}}", "`None` is not a currency", id="no-currency"),
        pytest.param("{currency: EUR, flavors: {a: 1}}", "is neither `onDemand` nor", id="number"),
        pytest.param("{currency: EUR, flavors: {a: {spot: 1, onDemand: 2}}}", "neither", id="both"),
        pytest.param("{currency: EUR, flavors: {a: {spot: -1}}}", "price `-1` of", id="negative"),
        pytest.param("{currency: EUR, flavors: {a: {spot: .nan}}}", "price `nan` of", id="nan"),
        pytest.param("{currency: EUR, flavors: {a: {spot: 2 EUR}}}", "`2 EUR` of", id="text"),
        pytest.param("{currency: EUR, flavors: {a: {spot: true}}}", "price `True`", id="boolean"),
    ],
)
def test_prices_that_cannot_be_meant_are_a_sentence(text, message):
    with pytest.raises(PricesError) as caught:
        prices_of(yaml.safe_load(text))

    assert message in str(caught.value)
