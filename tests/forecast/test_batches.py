"""Jobs that come together run alike, and tell about each other."""

from statistics import median

import pytest

from policyd.forecast.batches import AGAIN_SECONDS, GAP_SECONDS, Batches, RecentRuns
from policyd.forecast.run_times import RunTimeHistory
from tests.forecast.builders import TRAITS

DRAWS = 19


def curves():
    history = RunTimeHistory()
    for number in range(200):
        history.observe(TRAITS, 60.0 * 1.05**number, at=0.0)
    return history.curves()


def drawn(*jobs, ended=(), known=None):
    """Numbers of jobs, each given as (key, came, ran or None), after some that ended."""
    recent = RecentRuns()
    for came, ran in ended:
        recent.observe(TRAITS, ran, queued_at=came)
    batches = Batches(recent, known or curves(), DRAWS)
    for key, came, ran in jobs:
        batches.add(key, TRAITS, queued_at=came, ran_seconds=ran)
    list(batches.draw())
    return {key: batches.parts(key) for key, _, _ in jobs}


def apart(one, other):
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one)


def test_jobs_of_a_batch_differ_less_than_others():
    together = drawn(("a", 0.0, None), ("b", GAP_SECONDS, None))
    separate = drawn(("a", 0.0, None), ("b", GAP_SECONDS + 1, None))

    assert apart(together["a"], together["b"]) < 0.6 * apart(separate["a"], separate["b"])


def test_one_that_ended_informs_about_the_others():
    of = curves().of(TRAITS)
    after = {
        ran: median(of.quantile(part) for part in drawn(("a", 5.0, None), ended=[(0.0, ran)])["a"])
        for ran in (120.0, 30_000.0)
    }

    assert after[120.0] == pytest.approx(120.0, rel=0.5)
    assert after[30_000.0] == pytest.approx(30_000.0, rel=0.5)


def test_one_of_the_batch_before_informs_less_and_one_long_before_nothing():
    of = curves().of(TRAITS)
    medians = [
        median(map(of.quantile, drawn(("a", at, None), ended=[(0.0, 120.0)])["a"]))
        for at in (5.0, 5_000.0, 1.0 + AGAIN_SECONDS)
    ]

    assert 1.5 * medians[0] < medians[1] < 0.8 * medians[2]
    alone = drawn(("a", 1.0 + AGAIN_SECONDS, None))
    assert drawn(("a", 1.0 + AGAIN_SECONDS, None), ended=[(0.0, 120.0)]) == alone


def test_one_that_runs_long_shows_that_the_others_will():
    of = curves().of(TRAITS)
    sample = drawn(("a", 5.0, None), ("r", 0.0, 30_000.0))

    assert median(map(of.quantile, sample["a"])) > 25_000.0
    assert min(map(of.quantile, sample["r"])) >= 30_000.0 * 0.99


def test_the_numbers_of_a_job_alone_are_spread_over_all_run_times():
    parts = sorted(drawn(("a", 0.0, None))["a"])

    assert parts[0] < 0.2
    assert 0.35 < median(parts) < 0.65
    assert parts[-1] > 0.8


def test_the_same_jobs_get_the_same_numbers():
    jobs = [("a", 0.0, None), ("b", 10.0, 300.0)]

    assert drawn(*jobs, ended=[(1.0, 200.0)]) == drawn(*reversed(jobs), ended=[(1.0, 200.0)])


def test_what_is_remembered_is_bounded():
    recent = RecentRuns(most_streams=1, most_runs=3)
    for number in range(9):
        recent.observe(TRAITS, 1.0, queued_at=float(number))

    assert [each.at for each in recent.of(TRAITS)] == [6.0, 7.0, 8.0]
