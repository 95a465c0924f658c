"""How much an interval must grow to hold what it promises."""

from math import inf

import pytest

from policyd.forecast.correction import FEWEST, Correction, Interval
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


def test_nine_of_ten_starts_are_within_a_corrected_interval():
    corrected = learnt(waits("before", 300)).corrected("1", TOO_SURE, now=0.0)
    after = waits("after", 4_000)
    covered = sum(corrected.low <= each <= corrected.high for each in after) / len(after)

    assert covered == pytest.approx(0.9, abs=0.04)
    assert corrected.median == pytest.approx(1_000, rel=0.3)


def test_an_interval_that_is_too_wide_shrinks():
    wide = Interval(low=0, median=1_000, high=1e6)

    corrected = learnt([1_000.0] * 50, interval=wide).corrected("1", wide, now=0.0)

    assert corrected.low == pytest.approx(1_000)
    assert corrected.high == pytest.approx(1_000)


def test_a_class_is_corrected_by_its_own_outcomes():
    of = learnt([1_000.0] * 50)
    for number in range(50):
        of.promise(f"big-{number}", "8+", TOO_SURE, at=0.0)
        of.started(f"big-{number}", at=9_000.0)

    assert of.corrected("1", TOO_SURE, now=0.0).high == pytest.approx(1_000)
    assert of.corrected("8+", TOO_SURE, now=0.0).high == pytest.approx(9_000)


def test_a_class_with_few_outcomes_is_corrected_by_those_of_all():
    assert learnt([9_000.0] * 50).corrected("8+", TOO_SURE, now=0.0).high == pytest.approx(9_000)


def test_few_outcomes_correct_nothing():
    assert learnt([9_000.0] * (FEWEST - 1)).corrected("1", TOO_SURE, now=0.0) == TOO_SURE


def test_old_outcomes_are_forgotten():
    of = learnt([*([9_000.0] * 50), *([1_000.0] * 30)], most=30)

    assert of.corrected("1", TOO_SURE, now=0.0).high == pytest.approx(1_000)


def test_a_workload_that_should_have_started_counts_before_it_does():
    of = learnt([1_000.0] * 30)
    for number in range(10):
        of.promise(f"late-{number}", "1", TOO_SURE, at=0.0)

    assert of.corrected("1", TOO_SURE, now=1_000.0).high == pytest.approx(1_000)
    assert of.corrected("1", TOO_SURE, now=7_000.0).high == pytest.approx(7_000)


def test_a_deleted_workload_teaches_nothing():
    of = learnt([1_000.0] * 30)
    for number in range(10):
        of.promise(f"late-{number}", "1", TOO_SURE, at=0.0)
        of.forget(f"late-{number}")

    assert of.corrected("1", TOO_SURE, now=7_000.0).high == pytest.approx(1_000)


def test_the_first_forecast_of_a_workload_counts():
    of = learnt([1_000.0] * 30)
    for number in range(30):
        of.promise(f"w-{number}", "1", TOO_SURE, at=0.0)
        of.promise(f"w-{number}", "1", TOO_SURE, at=4_000.0)
        of.started(f"w-{number}", at=5_000.0)

    assert of.corrected("1", TOO_SURE, now=0.0).high == pytest.approx(5_000)


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
