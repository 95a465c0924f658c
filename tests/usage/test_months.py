"""Months of time zones, at the borders of months, years and changes of summer time."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.usage.months import (
    QUARTER,
    Month,
    TimeZoneError,
    begin_of,
    bucket_in,
    buckets,
    ended_before,
    month_of,
)

ZONES = [
    "UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Asia/Kathmandu",
    "Pacific/Kiritimati", "Etc/GMT+12", "Australia/Lord_Howe", "America/St_Johns",
]  # fmt: skip


def at(text):
    return datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize(
    ("month", "zone", "begin"),
    [
        pytest.param((2026, 12), "Europe/Berlin", "2026-11-30T23:00:00Z", id="winter"),
        pytest.param((2026, 7), "Europe/Berlin", "2026-06-30T22:00:00Z", id="summer"),
        pytest.param((2027, 1), "America/New_York", "2027-01-01T05:00:00Z", id="year"),
        pytest.param((2028, 3), "UTC", "2028-03-01T00:00:00Z", id="leap-year"),
        pytest.param((2026, 5), "Asia/Kathmandu", "2026-04-30T18:15:00Z", id="quarter"),
        pytest.param((2026, 5), "Pacific/Kiritimati", "2026-04-30T10:00:00Z", id="first"),
        pytest.param((2026, 5), "Etc/GMT+12", "2026-05-01T12:00:00Z", id="last"),
        # Clocks went from 24:00 to 01:00 there: the month began at 01:00.
        pytest.param((2022, 5), "Africa/Cairo", "2022-04-30T22:00:00Z", id="no-change"),
        pytest.param((2010, 10), "America/Asuncion", "2010-10-01T04:00:00Z", id="day-before"),
        pytest.param((2005, 4), "Asia/Amman", "2005-03-31T22:00:00Z", id="midnight-skipped"),
    ],
)
def test_months_begin_at_local_midnight(month, zone, begin):
    found = begin_of(Month(*month), ZoneInfo(zone))

    assert found == at(begin)
    assert month_of(found, ZoneInfo(zone)) == month
    assert month_of(found - 1, ZoneInfo(zone)).next == month


def test_a_month_with_a_change_of_summer_time_has_an_hour_less_or_more():
    berlin = ZoneInfo("Europe/Berlin")
    lengths = {
        month: begin_of(Month(2026, month).next, berlin) - begin_of(Month(2026, month), berlin)
        for month in (3, 10, 12)
    }

    assert lengths == {3: 31 * 86_400 - 3_600, 10: 31 * 86_400 + 3_600, 12: 31 * 86_400}


def test_a_zone_that_differs_by_an_odd_time_is_refused():
    with pytest.raises(TimeZoneError, match="differs from UTC by an odd time"):
        begin_of(Month(1890, 5), ZoneInfo("Europe/Amsterdam"))


moments = st.integers(int(at("2026-01-01T00:00:00Z")), int(at("2029-01-01T00:00:00Z")))


@given(begin=moments, length=st.integers(0, 100 * 86_400), zone=st.sampled_from(ZONES))
def test_buckets_of_a_time_sum_up_to_its_part_of_each_month(begin, length, zone):
    end = begin + length
    found = list(buckets(begin, end))
    assert sum(seconds for _, seconds in found) == length
    month = month_of(begin, ZoneInfo(zone))

    while begin_of(month, ZoneInfo(zone)) < end:
        first, after = begin_of(month, ZoneInfo(zone)), begin_of(month.next, ZoneInfo(zone))
        part = sum(n for bucket, n in found if bucket_in(bucket, month, first, after))
        assert part == max(0, min(end, after) - max(begin, first))
        month = month.next


@given(moment=moments)
def test_a_bucket_ends_before_a_month_if_no_zone_is_in_that_month_then(moment):
    ((bucket, _),) = buckets(moment, moment + 1)
    first = month_of(moment, UTC)
    begin = moment - moment % QUARTER if bucket >= 0 else moment

    assert not ended_before(bucket, first)
    if all(month_of(begin, ZoneInfo(zone)) <= first for zone in ZONES):
        assert ended_before(bucket, first.next)
