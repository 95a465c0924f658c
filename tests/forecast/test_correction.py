"""How much an interval must grow to hold what it promises."""

from math import exp, inf

import pytest

from policyd.forecast.correction import STEP, Correction, Interval
from policyd.simulate.draws import DrawnNumbers

TOO_SURE = Interval(low=900, median=1_000, high=1_100)


def waits(name, count):
    """Waits from 100 s to 10,000 s, their logarithms evenly spread."""
    rng = DrawnNumbers(name)
    return [100 * 100 ** rng.next() for _ in range(count)]


def learnt(actual, *, size_class="1", interval=TOO_SURE, **options):
    of = Correction(**options)
    for number, wait in enumerate(actual):
        of.promise(f"{size_class}-{number}", size_class, interval, at=0.0)
        of.started(f"{size_class}-{number}", at=wait)
    return of


@pytest.mark.parametrize("change", [1, 10], ids=["as-before", "ten-times-as-long"])
def test_nine_of_ten_starts_are_within_a_corrected_interval(change):
    of, held, medians = Correction(), [], []
    for number, wait in enumerate([*waits("before", 300), *(change * w for w in waits("n", 300))]):
        interval = of.corrected("1", TOO_SURE, now=0.0)
        held.append(interval.low <= wait <= interval.high)
        medians.append(interval.median)
        of.promise(f"{number}", "1", TOO_SURE, at=0.0)
        of.started(f"{number}", at=wait)

    assert sum(held[50:300]) / 250 == pytest.approx(0.9, abs=0.04)
    assert sum(held[300:]) / 300 == pytest.approx(0.9, abs=0.04)
    assert medians[299] == pytest.approx(1_000, rel=0.3)


def test_an_interval_that_is_too_wide_shrinks():
    wide = Interval(low=10, median=1_000, high=1e6)

    corrected = learnt([1_000.0] * 100, interval=wide).corrected("1", wide, now=0.0)

    assert corrected.low > 2 * wide.low
    assert corrected.high < wide.high / 2


def test_an_end_is_moved_no_further_than_starts_are_beyond_it():
    corrected = learnt([9_000.0] * 300).corrected("1", TOO_SURE, now=0.0)

    assert 6_000 < corrected.high < 9_000 * exp(STEP)


def test_a_class_is_corrected_by_its_own_outcomes():
    of = learnt([1_000.0] * 50)
    for number in range(50):
        of.promise(f"big-{number}", "8+", TOO_SURE, at=0.0)
        of.started(f"big-{number}", at=9_000.0)

    assert of.corrected("1", TOO_SURE, now=0.0).high < 1_100 * exp(STEP)
    assert of.corrected("8+", TOO_SURE, now=0.0).high > 6_000
    assert of.corrected("2-7", TOO_SURE, now=0.0) == TOO_SURE


def test_old_outcomes_are_forgotten():
    of = learnt([*([9_000.0] * 50), *([1_000.0] * 30)], most=30)

    assert of.corrected("1", TOO_SURE, now=0.0).high < 1_100 * exp(STEP)


def test_of_workloads_that_come_together_one_teaches():
    of = Correction(apart_seconds=3_600)
    for number in range(30):
        of.promise(f"w{number}", "1", TOO_SURE, at=number)
    of.promise("other", "8+", TOO_SURE, at=5.0)
    of.promise("w1", "1", TOO_SURE, at=9_000.0)  # not its first forecast
    of.promise("later", "1", TOO_SURE, at=9_000.0)
    for number in range(30):
        of.started(f"w{number}", at=9_100.0)
    of.started("later", at=10_000.0)
    of.started("other", at=10_000.0)

    assert {name: len(each) for name, each in of.records().items()} == {"1": 2, "8+": 1}


def test_a_workload_that_should_have_started_counts_before_it_does():
    of = Correction()
    for number in range(10):
        of.promise(f"late-{number}", "1", TOO_SURE, at=0.0)

    assert of.corrected("1", TOO_SURE, now=1_000.0).high == TOO_SURE.high
    assert 5_000 < of.corrected("1", TOO_SURE, now=7_000.0).high < 7_000 * exp(STEP)


def test_a_deleted_workload_teaches_nothing():
    of = Correction()
    for number in range(10):
        of.promise(f"late-{number}", "1", TOO_SURE, at=0.0)
        of.forget(f"late-{number}")

    assert of.corrected("1", TOO_SURE, now=7_000.0) == TOO_SURE


def test_the_first_forecast_of_a_workload_counts():
    of = Correction()
    for number in range(30):
        of.promise(f"w-{number}", "1", TOO_SURE, at=0.0)
        of.promise(f"w-{number}", "1", TOO_SURE, at=4_000.0)
        of.started(f"w-{number}", at=5_000.0)

    assert of.corrected("1", TOO_SURE, now=0.0).high > 4_000


def test_memory_is_bounded():
    of = learnt([], most_open=10)
    for number in range(30):
        of.promise(f"w-{number}", "1", TOO_SURE, at=0.0)
        of.started(f"w-{number - 20}", at=9_000.0)

    assert of.corrected("1", TOO_SURE, now=0.0) == TOO_SURE


def test_what_has_no_end_keeps_none():
    endless = Interval(low=0, median=inf, high=inf)

    assert learnt([1_000.0] * 50).corrected("1", endless, now=0.0).high == inf


def test_few_outcomes_move_the_median_by_less():
    few, many = (
        learnt([500.0, 2_000.0, 2_000.0, 2_000.0, 4_000.0] * count)
        .corrected("1", TOO_SURE, now=0.0)
        .median
        for count in (4, 60)
    )

    assert few == pytest.approx(1_430, abs=20)
    assert many == pytest.approx(1_916, abs=10)
