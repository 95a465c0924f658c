"""Schedules are read as cron does, and found by sets, so that none is searched for long."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.engine.background.schedule import ScheduleError, parse_schedule


def seconds(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("schedule", "after", "due"),
    [
        pytest.param("* * * * *", "2026-11-27T03:04:05", "2026-11-27T03:05", id="every-minute"),
        pytest.param("*/15 * * * *", "2026-11-27T03:15", "2026-11-27T03:30", id="not-at-once"),
        pytest.param("0 3 * * *", "2026-11-27T03:00", "2026-11-28T03:00", id="every-night"),
        pytest.param("30 22 * * *", "2026-11-27T22:45", "2026-11-28T22:30", id="later-hour"),
        pytest.param("0 0 1 1 *", "2026-11-27T03:00", "2027-01-01T00:00", id="every-year"),
        pytest.param("@monthly", "2026-11-27T03:00", "2026-12-01T00:00", id="by-name"),
        pytest.param("0 0 29 2 *", "2096-03-01T00:00", "2104-02-29T00:00", id="no-leap-year-2100"),
        pytest.param("0 0 * * 7", "2026-11-27T03:00", "2026-11-29T00:00", id="sunday-is-7"),
        pytest.param("0 0 * * Mon-wed", "2026-11-27T03:00", "2026-11-30T00:00", id="weekday-names"),
        pytest.param("0 0 13 * fri", "2026-11-27T03:00", "2026-12-04T00:00", id="either-day"),
        pytest.param("0 0 */10 * mon", "2026-11-27T03:00", "2026-12-21T00:00", id="both-with-star"),
        pytest.param("5/20 1,3 * DEC ?", "2026-11-27T03:00", "2026-12-01T01:05", id="from-step"),
        pytest.param("0 0 31 * *", "2026-11-27T03:00", "2026-12-31T00:00", id="skips-short-months"),
    ],
)
def test_a_schedule_is_next_due(schedule, after, due):
    assert parse_schedule(schedule).after(seconds(after)) == seconds(due)


def test_a_day_that_no_month_has_is_never_due():
    assert parse_schedule("0 0 30 feb *").after(seconds("2026-11-27T00:00")) is None


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        pytest.param("* * * *", "it has 4 fields, not 5", id="too-few"),
        pytest.param("0 * * * * *", "it has 6 fields, not 5", id="seconds"),
        pytest.param("@reboot", "it has 1 fields, not 5", id="unknown-name"),
        pytest.param("60 * * * *", "`60` is not a minute", id="out-of-range"),
        pytest.param("* 25 * * *", "`25` is not a hour", id="hour"),
        pytest.param("* * 0 * *", "`0` is not a day of the month", id="day-0"),
        pytest.param("*/0 * * * *", "it stands for no time", id="step-0"),
        pytest.param("9-3 * * * *", "it stands for no time", id="backwards"),
        pytest.param("* * L * *", "`L` is not a day of the month", id="last-day"),
        pytest.param("1,,2 * * * *", "`` is not a minute", id="empty-part"),
        pytest.param("*" * 400, "more than 300 letters", id="huge"),
        pytest.param("٣ * * * *", "`٣` is not a minute", id="other-digits"),
    ],
)
def test_what_is_not_a_schedule_is_refused(schedule, message):
    with pytest.raises(ScheduleError, match="schedule") as error:
        parse_schedule(schedule)

    assert message in str(error.value)


FIELDS = st.tuples(
    st.sampled_from(["*", "*/7", "0", "59", "10-20/3"]),
    st.sampled_from(["*", "*/5", "23", "0,12"]),
    st.sampled_from(["*", "1", "31", "*/9"]),
    st.sampled_from(["*", "2", "11-12"]),
    st.sampled_from(["*", "0", "1-5"]),
)


@given(FIELDS, st.integers(0, 4 * 365 * 1440))
def test_no_minute_before_it_is_due_either(fields, minute):
    start = seconds("2024-01-01T00:00") + minute * 60
    schedule = parse_schedule(" ".join(fields))

    due = schedule.after(start)

    assert due is None or due > start
    again = None if due is None else schedule.after(due - 60)
    assert again == due
    if due is not None and due - start > 120:
        assert schedule.after((start + due) // 120 * 60) == due
