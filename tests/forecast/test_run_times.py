"""How long jobs run, as learnt from jobs that ended."""

import pytest

from policyd.forecast.run_times import STEPS, JobTraits, RunTimeHistory, stem_of

ANA = JobTraits(queue="q", owner="ana", stem="train", shape="gpu=1")
BEN = JobTraits(queue="q", owner="ben", stem="train", shape="gpu=1")
DAY = 86_400.0
STEP = 2 ** (1 / 3)
"""A quantile is exact up to a step of the life table."""


def history(*runs, **options):
    new = RunTimeHistory(**options)
    for traits, ran_seconds, count in runs:
        for _ in range(count):
            new.observe(traits, ran_seconds, at=0.0)
    return new


def median(of, traits, *, ran=0.0, running=()):
    return of.curves(running).of(traits).quantile(0.5, ran=ran)


def near(seconds):
    return pytest.approx(seconds, rel=STEP - 1)


def test_nothing_is_reported_before_a_few_jobs_have_ended():
    assert RunTimeHistory().curves().of(ANA) is None
    assert history((ANA, 60, 4)).curves().of(ANA) is None
    assert history((ANA, 60, 5)).curves().of(ANA) is not None


def test_each_owner_has_run_times_of_their_own():
    of = history((ANA, 100, 200), (BEN, 10_000, 200))

    assert median(of, ANA) == near(100)
    assert median(of, BEN) == near(10_000)


def test_a_new_owner_gets_those_of_similar_jobs():
    new = JobTraits(queue="q", owner="cem", stem="evaluate", shape="gpu=1")

    assert median(history((ANA, 100, 200)), new) == near(100)


def test_the_shape_distinguishes_jobs_of_unknown_owners():
    small, large = JobTraits(shape="gpu=1"), JobTraits(shape="gpu=64")
    of = history((small, 100, 200), (large, 50_000, 200))

    assert median(of, JobTraits(queue="new", shape="gpu=64")) == near(50_000)


def test_a_job_that_has_run_long_is_one_of_the_long_ones():
    of = history((ANA, 100, 300), (ANA, 10_000, 100))

    assert median(of, ANA) == near(100)
    assert median(of, ANA, ran=1_000) == near(10_000)


def test_a_job_never_ends_before_now():
    of = history((ANA, 100, 50))

    for ran in (0.0, 0.5, 99.0, 5_000.0, 1e9):
        for part in (0.0, 0.01, 0.5, 0.99):
            assert of.curves().of(ANA).quantile(part, ran=ran) >= ran


@pytest.mark.parametrize("ran", [1e6, 1e9])
def test_beyond_what_was_seen_one_job_in_eight_doubles_its_time(ran):
    curve = history((ANA, 100, 20)).curves().of(ANA)

    assert curve.quantile(0.5, ran=ran) == pytest.approx(2 ** (1 / 3) * ran, rel=0.05)
    assert curve.quantile(7 / 8, ran=ran) == pytest.approx(2 * ran, rel=0.1)


def test_jobs_that_still_run_make_long_runs_more_likely():
    of = history((ANA, 100, 50))
    still = [(ANA, 50_000.0)] * 100

    assert median(of, ANA) == near(100)
    assert median(of, ANA, running=still) > 50_000


def test_jobs_that_were_stopped_did_not_end():
    of = history((ANA, 100, 50))
    for _ in range(100):
        of.observe(ANA, 50_000, at=0.0, ended=False)

    assert median(of, ANA) > 50_000


def test_old_runs_fade():
    of = history((ANA, 100, 100), half_life_seconds=86_400)
    for _ in range(20):
        of.observe(ANA, 5_000, at=20 * 86_400.0)

    assert median(of, ANA) == near(5_000)


def test_memory_is_bounded_and_the_group_not_heard_of_for_longest_goes():
    of = RunTimeHistory(most_groups=50)
    for number in range(1_000):
        of.observe(JobTraits(queue="q", owner=f"user-{number}", stem="job", shape="1"), 60, at=0.0)

    assert len(of) == 50
    kept = {record.names for record in of.records()}
    assert () in kept
    assert ("owner", "q", "user-999", "1") in kept
    assert ("owner", "q", "user-0", "1") not in kept


def test_what_is_stored_is_remembered():
    of = history((ANA, 100, 200), (BEN, 10_000, 200))
    again = RunTimeHistory()
    again.restore(of.records())

    assert median(again, BEN) == median(of, BEN)
    assert list(again.records()) == list(of.records())


def test_a_record_of_another_version_is_refused():
    (record, *_) = history((ANA, 100, 1)).records()
    other = type(record)(names=(), faded_at=0.0, ended=(1.0,), stopped=(0.0,))

    with pytest.raises(ValueError, match=f"has 1 steps, not {STEPS}"):
        RunTimeHistory().restore([other])


def test_no_owner_and_no_name_is_kept_where_traits_have_none():
    of = history((JobTraits(queue="q", shape="gpu=1"), 60, 10))

    assert {record.names for record in of.records()} == {
        (),
        ("shape", "gpu=1"),
        ("queue", "q", "gpu=1"),
    }


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        pytest.param("train", "train", id="nothing-to-remove"),
        pytest.param("train-17", "train", id="number"),
        pytest.param("train-2024-11-05", "train", id="date"),
        pytest.param("train-x7k2p", "train", id="generated-name"),
        pytest.param("train-9f86d081884c", "train", id="hash"),
        pytest.param("resnet50", "resnet50", id="number-that-belongs-to-the-name"),
        pytest.param("train-large", "train-large", id="word"),
        pytest.param("17", "17", id="nothing-but-a-number"),
    ],
)
def test_the_stem_is_the_name_without_its_numbers(name, stem):
    assert stem_of(name) == stem


@pytest.mark.parametrize("half_life", [10, 1_000])
def test_jobs_that_go_on_do_not_outweigh_those_that_fade(half_life):
    """Half of the jobs end after an hour, the others after twenty days."""
    history, hours, now = RunTimeHistory(half_life_seconds=half_life * DAY), 24 * 100, 100 * DAY
    short, long = 3_600.0, 20 * DAY
    ends = sorted((3_600.0 * n + ran, ran) for n in range(hours) for ran in (short, long))
    for at, ran in ends:
        if at <= now:
            history.observe(ANA, ran, at=at)
    running = [
        (ANA, now - 3_600.0 * n)
        for n in range(hours)
        for ran in (short, long)
        if 3_600.0 * n + ran > now
    ]

    curve = history.curves(running).of(ANA)

    assert 1 - curve.part(DAY) == pytest.approx(0.5, abs=0.03)
    assert 1 - curve.part(15 * DAY) == pytest.approx(0.5, abs=0.03)
    assert 1 - curve.part(26 * DAY) == pytest.approx(0, abs=0.03)
