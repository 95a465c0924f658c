"""The record of GPU-hours, against sums that are made the slow way."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.usage.budgets import bounds
from policyd.usage.months import Month, month_of
from policyd.usage.packing import HoursDamagedError, pack, unpack
from policyd.usage.record import (
    MOST_KEYS,
    MOST_USERS,
    OTHERS,
    HeldQuota,
    HoursRecord,
    QuotaGiven,
    QuotaTotals,
    UseKey,
)

BEGIN = int(datetime(2026, 11, 30, 20, tzinfo=UTC).timestamp())
BERLIN, TOKYO = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Tokyo")
HOUR = 3_600
GPU = 28


def quota(gpus=1, *, queue="q", local="team/l", user="ann", flavor="a100"):
    return HeldQuota(queue=queue, local_queue=local, user=user, amounts={flavor: gpus * GPU})


def hours(record, year, month, zone=UTC):
    found = record.sums(Month(year, month), *bounds(Month(year, month), zone))
    return {key: total / GPU / HOUR for key, total in found}


def total(record, year, month, zone=UTC):
    return sum(hours(record, year, month, zone).values())


def test_hours_are_split_at_the_border_of_the_month_of_each_zone():
    record = HoursRecord(BEGIN)

    record.hold("1", quota(2), BEGIN)  # from 20:00 to 06:00 of UTC
    record.release("1", BEGIN + 10 * HOUR)

    assert (total(record, 2026, 11), total(record, 2026, 12)) == (8, 12)
    assert (total(record, 2026, 11, BERLIN), total(record, 2026, 12, BERLIN)) == (6, 14)
    assert (total(record, 2026, 11, TOKYO), total(record, 2026, 12, TOKYO)) == (0, 20)


def test_events_that_come_late_are_counted_from_when_they_were():
    record = HoursRecord(BEGIN)
    record.hold("1", quota(), BEGIN)
    record.advance(BEGIN + 2 * HOUR)

    record.hold("2", quota(), BEGIN + HOUR)
    record.release("1", BEGIN + HOUR)
    record.advance(BEGIN + 3 * HOUR)

    assert total(record, 2026, 11) == 3


def test_a_clock_that_is_put_back_counts_no_time_twice():
    record = HoursRecord(BEGIN)
    record.hold("1", quota(), BEGIN)
    record.advance(BEGIN + 2 * HOUR)

    record.advance(BEGIN + HOUR)
    record.advance(BEGIN + 2 * HOUR)

    assert total(record, 2026, 11) == 2


def test_a_clock_that_jumps_ahead_counts_until_the_end_that_a_workload_says():
    record = HoursRecord(BEGIN)
    record.hold("1", quota(), BEGIN)
    record.advance(BEGIN + 1_000 * HOUR)

    record.release("1", BEGIN + HOUR)
    record.advance(BEGIN + HOUR)

    assert (total(record, 2026, 11), total(record, 2026, 12), total(record, 2027, 1)) == (1, 0, 0)


def test_nothing_before_the_record_is_counted():
    record = HoursRecord(BEGIN)

    record.hold("1", quota(), BEGIN - 100 * HOUR)
    record.release("1", BEGIN + HOUR)

    assert total(record, 2026, 11) == 1


def test_a_workload_whose_quota_changes_is_counted_by_what_it_has():
    record = HoursRecord(BEGIN)
    record.hold("1", quota(4), BEGIN)
    record.hold("1", quota(1), BEGIN + HOUR)

    record.advance(BEGIN + 2 * HOUR)

    assert total(record, 2026, 11) == 5


intervals = st.lists(
    st.tuples(
        st.integers(0, 60 * 86_400), st.integers(0, 40 * 86_400), st.integers(1, 8),
        st.sampled_from(["team/a", "team/b", "other/a"]), st.sampled_from(["", "ann", "bob"]),
    ),
    max_size=8,
)  # fmt: skip


@given(intervals=intervals, stops=st.lists(st.integers(0, 100 * 86_400), max_size=3))
def test_sums_are_those_of_the_intervals_in_any_order_and_over_restarts(intervals, stops):
    record = recorded(intervals, stops)
    for zone in (UTC, BERLIN, TOKYO):
        for month in MONTHS:
            first, after = bounds(month, zone)
            assert dict(record.sums(month, first, after)) == expected(intervals, first, after)


MONTHS = [Month(2026, 11), Month(2026, 12), Month(2027, 1), Month(2027, 2), Month(2027, 3)]


def recorded(intervals, stops):
    """Record intervals, with restarts."""
    events = [(BEGIN + at, 2, "", None) for at in stops]
    for number, (start, length, gpus, local, user) in enumerate(intervals):
        events.append((BEGIN + start, 1, str(number), quota(gpus, local=local, user=user)))
        events.append((BEGIN + start + length, 3, str(number), None))
    record = HoursRecord(BEGIN)
    for at, kind, uid, held in sorted(events, key=lambda each: each[:3]):
        if kind == 1:
            record.hold(uid, held, at)
        elif kind == 3:
            record.release(uid, at)
        else:
            record.advance(at)
            record = unpack(pack(record)).record
    return record


def expected(intervals, first, after):
    """Sum up intervals the slow way."""
    sums = {}
    for start, length, gpus, local, user in intervals:
        seconds = min(BEGIN + start + length, after) - max(BEGIN + start, first)
        if seconds > 0:
            key = UseKey("q", local, user, "a100")
            sums[key] = sums.get(key, 0) + seconds * gpus * GPU
    return sums


def test_borrowed_and_lent_quota_is_that_of_the_tree():
    record = HoursRecord(BEGIN)
    given = {
        "a": ("cohort c", {"a100": QuotaGiven(4 * GPU)}),
        "b": ("cohort c", {"a100": QuotaGiven(6 * GPU, 3 * GPU)}),
        "d": ("cohort c", {"a100": QuotaGiven(1 * GPU)}),
        "x": ("queue x", {"a100": QuotaGiven(2 * GPU)}),
    }
    record.put_quotas(given, BEGIN)
    record.hold("1", quota(6, queue="a"), BEGIN)  # borrows 2 of b's 3 and d's 1, as 3 to 1

    record.advance(BEGIN + 2 * HOUR)

    month = Month(2026, 11)
    found = dict(record.quota_sums(month, *bounds(month, UTC)))
    unit = GPU * 2 * HOUR
    assert found == {
        ("a", "a100"): QuotaTotals(4 * unit, 2 * unit, 0),
        ("b", "a100"): QuotaTotals(6 * unit, 0, unit * 3 // 2),
        ("d", "a100"): QuotaTotals(1 * unit, 0, unit // 2),
        ("x", "a100"): QuotaTotals(2 * unit, 0, 0),
    }


def test_a_quota_that_changes_counts_from_then():
    record = HoursRecord(BEGIN)
    record.put_quotas({"q": ("queue q", {"a100": QuotaGiven(2 * GPU)})}, BEGIN)
    record.hold("1", quota(2), BEGIN)

    record.put_quotas({"q": ("queue q", {"a100": QuotaGiven(GPU)})}, BEGIN + HOUR)
    record.advance(BEGIN + 2 * HOUR)

    month = Month(2026, 11)
    ((_, found),) = record.quota_sums(month, *bounds(month, UTC))
    assert found == QuotaTotals(3 * GPU * HOUR, GPU * HOUR, 0)


def test_workloads_with_an_unknown_end_are_listed_and_not_counted():
    record = HoursRecord(BEGIN)
    record.hold("1", quota(2), BEGIN)
    record.advance(BEGIN + HOUR)

    record.miss("1", BEGIN + 3 * HOUR)
    record.advance(BEGIN + 4 * HOUR)

    month = Month(2026, 11)
    assert total(record, 2026, 11) == 2
    assert record.unknown_sum("q", month, *bounds(month, UTC)) == 2 * 2 * GPU * HOUR


def test_users_who_name_themselves_do_not_fill_the_record():
    record = HoursRecord(BEGIN)
    for number in range(3 * MOST_USERS):
        record.hold(str(number), quota(user=f"u{number}"), BEGIN)
    record.hold("x", quota(local="team/other", user="ann"), BEGIN)
    record.advance(BEGIN + HOUR)

    found = hours(record, 2026, 11)
    assert len(found) == MOST_USERS + 2
    assert found["q", "team/l", OTHERS, "a100"] == 2 * MOST_USERS
    assert found["q", "team/other", "ann", "a100"] == 1
    assert sum(found.values()) == 3 * MOST_USERS + 1


def test_queues_that_are_too_many_are_put_together():
    record = HoursRecord(BEGIN)
    for number in range(3 * MOST_KEYS):
        record.hold(str(number), quota(local=f"team/l{number}"), BEGIN)
    record.advance(BEGIN + HOUR)

    assert len(record.used) <= 2 * MOST_KEYS + 1
    assert total(record, 2026, 11) == 3 * MOST_KEYS


def test_old_months_are_forgotten():
    record = HoursRecord(BEGIN)
    record.hold("1", quota(), BEGIN)
    record.release("1", BEGIN + HOUR)

    record.forget(Month(2027, 1))

    assert (record.used, record.quotas) == ({}, {})


def test_a_record_that_is_too_large_loses_its_oldest_month_alone():
    record = HoursRecord(BEGIN)
    for number in range(50):
        record.hold(str(number), quota(user=f"u{number}"), BEGIN + number)
    record.advance(BEGIN + 50 * 86_400)

    body = pack(record, most_bytes=len(pack(record)) - 1)

    found = unpack(body).record
    assert total(found, 2026, 11) == 0
    assert total(found, 2027, 1) == total(record, 2027, 1) > 0


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"nothing", id="garbage"),
        pytest.param(pack(HoursRecord(0))[:-3], id="cut"),
    ],
)
def test_a_record_that_is_damaged_is_a_sentence(body):
    with pytest.raises(HoursDamagedError, match="it is damaged"):
        unpack(body)


def test_many_workloads_take_little_time_and_room():
    record, now = HoursRecord(BEGIN), BEGIN
    given = {f"q{n}": ("cohort c", {"a100": QuotaGiven(GPU)}) for n in range(100)}
    record.put_quotas(given, now)
    for number in range(5_000):
        held = quota(queue=f"q{number % 100}", local=f"team/{number % 100}", user=f"u{number % 7}")
        record.hold(str(number), held, now + number // 10)
    record.advance(now + 40 * 86_400)

    assert len(pack(record)) < 300_000
    assert month_of(record.at, UTC) == (2027, 1)
