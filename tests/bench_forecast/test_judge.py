"""The figures of the bench, on forecasts whose figures are known."""

import pytest

from policyd.forecast.correction import Interval
from tests.bench_forecast.judge import Judged, figures, nearest, pinball

HOURS = 3_600.0


def judged(low, median, high, waited, *, average=0.0, size_class="1", open_for=1e9):
    interval = None if low is None else Interval(low=low, median=median, high=high)
    return Judged(size_class, interval, average, waited, open_for)


def test_coverage_counts_both_ends():
    of = [judged(10, 20, 30, waited) for waited in (5, 9.5, 30, 32)]

    found = figures(of, {"1": 1.0})

    assert (found.coverage, found.early, found.late) == (0.5, 0.25, 0.25)


def test_a_class_with_more_jobs_weighs_more():
    of = [judged(10, 20, 30, 20), judged(10, 20, 30, 90, size_class="8+")]

    assert figures(of, {"1": 3.0, "8+": 1.0}).coverage == 0.75


def test_unknown_is_counted_and_not_covered():
    found = figures([judged(None, 0, 0, 5), judged(0, 1, 9, 5)], {"1": 1.0})

    assert (found.unknown, found.coverage) == (0.5, 1.0)


def test_a_job_that_has_not_started_is_a_miss_once_its_interval_is_over():
    found = figures([judged(0, 1, 9, None, open_for=10), judged(0, 1, 9, 5)], {"1": 1.0})
    open_ones = figures([judged(0, 1, 9, None, open_for=8), judged(0, 1, 9, 5)], {"1": 1.0})

    assert (found.coverage, found.undecided) == (0.5, 0.0)
    assert (open_ones.coverage, open_ones.undecided) == (1.0, 0.5)


@pytest.mark.parametrize(
    ("waited", "near"),
    [
        pytest.param(1_600, 1.0, id="within-ten-minutes"),
        pytest.param(1_601 + 400, 0.0, id="too-far"),
        pytest.param(10 * HOURS, 0.0, id="far-too-far"),
    ],
)
def test_near_is_within_ten_minutes_or_a_fifth(waited, near):
    assert figures([judged(0, 1_000, 9e9, waited)], {"1": 1.0}).near == near


def test_a_fifth_of_a_long_wait_is_near():
    assert figures([judged(0, 8 * HOURS, 9e9, 10 * HOURS)], {"1": 1.0}).near == 1.0


def test_the_best_start_is_near_most_draws():
    waits = [HOURS, 1.2 * HOURS, 1.4 * HOURS, 9 * HOURS, float("inf")]

    assert nearest(waits) == 3 / 5
    assert nearest([]) is None
    assert nearest([float("inf")]) == 0.0


def test_pinball_loss_is_least_at_the_quantile():
    outcomes = [float(n) for n in range(1, 101)]
    losses = {q: sum(pinball(0.95, q, each) for each in outcomes) for q in range(0, 101, 5)}

    assert min(losses, key=losses.get) == 95


def test_the_loss_is_compared_with_that_of_the_average():
    found = figures([judged(90, 100, 110, 100, average=400)], {"1": 1.0})

    assert found.loss_ratio == pytest.approx((0.5 + 0 + 0.5) / (285 + 150 + 15))
    assert found.median_loss_ratio == 0.0
