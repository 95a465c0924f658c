"""Budgets: what they say, when they are used up, and when they renew."""

from datetime import datetime
from fractions import Fraction

import pytest

from policyd.usage.budgets import (
    HOLD,
    HOURS,
    PART_SECONDS,
    TIME_ZONE,
    BudgetError,
    HoursBudget,
    budget_of,
    budget_use,
    budget_uses,
)
from policyd.usage.record import HeldQuota, HoursRecord

BERLIN = {TIME_ZONE: "Europe/Berlin"}


def at(text):
    return datetime.fromisoformat(text).timestamp()


def budget(hours=1_000, zone="Europe/Berlin", *, holds=True):
    return HoursBudget(part_seconds=hours * PART_SECONDS, zone=zone, holds=holds)


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({HOURS: "1000", **BERLIN}, budget(holds=False), id="shown"),
        pytest.param({HOURS: "1000", **BERLIN, HOLD: "true"}, budget(), id="holds"),
        pytest.param(
            {HOURS: "0.5", TIME_ZONE: "UTC"},
            HoursBudget(part_seconds=PART_SECONDS // 2, zone="UTC"), id="half",
        ),
        pytest.param(
            {HOURS: "0", TIME_ZONE: "UTC"}, HoursBudget(part_seconds=0, zone="UTC"), id="0",
        ),
    ],
)  # fmt: skip
def test_annotations_say_a_budget(annotations, expected):
    assert budget_of(annotations) == expected


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        pytest.param({HOURS: "much", **BERLIN}, "`much` is not a number", id="text"),
        pytest.param({HOURS: "-1", **BERLIN}, "`-1` is not a number of GPU-hours", id="negative"),
        pytest.param({HOURS: "NaN", **BERLIN}, "`NaN` is not a number", id="nan"),
        pytest.param({HOURS: "1e99", **BERLIN}, "`1e99` is not a number", id="huge"),
        pytest.param({HOURS: "1" * 999, **BERLIN}, "is not a number of GPU-hours", id="long"),
        pytest.param({HOURS: "1"}, "the time zone in which months begin is missing", id="no-zone"),
        pytest.param({HOURS: "1", TIME_ZONE: "Europe/Berln"}, "is not a time zone", id="zone"),
        pytest.param({HOURS: "1", TIME_ZONE: "../../etc/passwd"}, "is not a time", id="path"),
        pytest.param({HOURS: "1", TIME_ZONE: ""}, "`` is not a time zone", id="empty"),
        pytest.param({HOURS: "1", TIME_ZONE: "Europe"}, "is not a time zone", id="folder"),
        pytest.param({HOURS: "1", **BERLIN, HOLD: "yes"}, "`yes` is neither", id="hold"),
        pytest.param(BERLIN, "there is no budget", id="zone-alone"),
        pytest.param({HOLD: "true"}, "there is no budget", id="hold-alone"),
    ],
)
def test_annotations_that_cannot_be_meant_are_a_sentence(annotations, message):
    with pytest.raises(BudgetError) as caught:
        budget_of(annotations)

    assert message in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_mistyped_zone_gets_the_right_one():
    with pytest.raises(BudgetError) as caught:
        budget_of({HOURS: "1", TIME_ZONE: "Europe/Berln"})

    assert caught.value.hint == "did you mean `Europe/Berlin`?"


@pytest.mark.parametrize(
    ("hours", "used_up", "message"),
    [
        pytest.param(799, False, "", id="under"),
        pytest.param(
            800, False,
            "more than 80 % of the budget of team-a for November, 1000 GPU-hours, are used; it"
            " renews on"
            " 2026-12-01 00:00 Europe/Berlin", id="warned",
        ),
        pytest.param(
            1_000, True,
            "the budget of team-a for November, 1000 GPU-hours, is used up; it renews on"
            " 2026-12-01 00:00 Europe/Berlin", id="used-up",
        ),
    ],
)  # fmt: skip
def test_a_budget_says_how_far_it_is_used_up(hours, used_up, message):
    now = at("2026-11-26T12:00:00Z")

    found = budget_use("team-a", budget(), hours * PART_SECONDS, now=now)

    assert (found.used_up, found.held, found.message) == (used_up, used_up, message)


@pytest.mark.parametrize(
    ("now", "zone", "month", "renews"),
    [
        pytest.param("2026-11-30T22:59:59Z", "Europe/Berlin", "2026-11", "2026-11-30T23:00:00Z",
                     id="last-second"),
        pytest.param("2026-11-30T23:00:00Z", "Europe/Berlin", "2026-12", "2026-12-31T23:00:00Z",
                     id="first-second-and-year"),
        pytest.param("2026-10-15T00:00:00Z", "Europe/Berlin", "2026-10", "2026-10-31T23:00:00Z",
                     id="end-of-summer-time"),
        pytest.param("2028-02-29T23:30:00Z", "UTC", "2028-02", "2028-03-01T00:00:00Z", id="leap"),
        pytest.param("2026-02-28T23:30:00Z", "UTC", "2026-02", "2026-03-01T00:00:00Z", id="plain"),
        pytest.param("2026-11-30T16:00:00Z", "Asia/Tokyo", "2026-12", "2026-12-31T15:00:00Z",
                     id="east"),
    ],
)  # fmt: skip
def test_a_budget_renews_with_the_month_of_its_zone(now, zone, month, renews):
    found = budget_use("q", budget(zone=zone), 0, now=at(now))

    assert (found.month, found.renews_at) == (month, at(renews))


def test_a_budget_counts_the_hours_of_its_own_month_and_queue():
    begin = int(at("2026-11-30T20:00:00Z"))
    record = HoursRecord(begin)
    held = HeldQuota(queue="q", local_queue="team/l", user="", amounts={"f": 28})
    other = HeldQuota(queue="q", local_queue="team/other", user="", amounts={"f": 28})
    record.hold("1", held, begin)
    record.hold("2", other, begin)
    budgets = {"q": budget(6), "team/l": budget(3), "team/other": budget(9)}

    def judged(text):
        record.advance(at(text))
        return {
            each.queue: (each.used, each.held)
            for each in budget_uses(budgets, record, now=at(text))
        }

    assert judged("2026-11-30T22:59:59Z") == {
        "q": (Fraction(2 * 10_799, 3_600), False),
        "team/l": (Fraction(10_799, 3_600), False),
        "team/other": (Fraction(10_799, 3_600), False),
    }
    # With the month, all begins anew.
    assert judged("2026-12-01T02:00:00Z") == {
        "q": (6, True), "team/l": (3, True), "team/other": (3, False)
    }  # fmt: skip
    # A clock that is put back into November finds November's hours.
    assert judged("2026-11-30T22:00:00Z")["q"] == (6, True)
