"""When pending workloads start, with what is known, and "unknown" where it is not."""

import pytest
from msgspec.structs import replace

from policyd.alloc.queue import PreemptionPolicy
from policyd.alloc.workload import Objection
from policyd.forecast.correction import Interval
from policyd.forecast.starts import KnownJob, StartForecast, interval_of, size_class_of
from tests.alloc.builders import group, pod_set, queue, quota, workload
from tests.forecast.builders import TRAITS, forecaster, job, present

HOUR = 3_600.0


def certain(seconds, *, coarse=False):
    interval = Interval(low=seconds, median=seconds, high=seconds)
    return StartForecast(interval=interval, coarse=coarse)


@pytest.mark.parametrize("core", [True, False])
def test_declared_run_times_give_exact_starts(core):
    now = present(
        [queue("q", gpu=8)],
        job("first", gpu=4, runs=100, since=940),
        job("second", gpu=4, runs=300, since=980),
        job("a", gpu=8, runs=50, at=990),
        job("b", gpu=4, runs=500, at=991),
        now=1_000.0,
        core=core,
    )

    # b passes a, which needs all eight, until b has ended as well.
    assert forecaster().forecast(now) == {
        "a": certain(540, coarse=not core),
        "b": certain(40, coarse=not core),
    }


def test_the_core_decides_where_quotas_alone_would_not_do():
    preempts = PreemptionPolicy(within_cluster_queue="LowerPriority")
    now = present(
        [queue("q", gpu=4, preemption=preempts)],
        job("low", gpu=4, runs=600, since=0),
        job("high", gpu=4, runs=60, at=5, priority=1),
        now=10.0,
    )

    assert forecaster().forecast(now)["high"] == certain(0)


def test_workloads_beyond_the_first_in_line_are_labelled():
    jobs = [job(f"w{n}", gpu=4, runs=10, at=n) for n in range(3)]
    now = present([queue("q", gpu=4)], job("r", gpu=4, runs=10, since=0), *jobs, now=5.0)

    found = forecaster(exact_first=2).forecast(now)

    assert found == {"w0": certain(5), "w1": certain(15), "w2": certain(25, coarse=True)}


def test_only_wanted_workloads_are_reported():
    jobs = [job(f"w{n}", gpu=4, runs=10, at=n) for n in range(3)]

    assert list(forecaster().forecast(present([queue("q", gpu=4)], *jobs), wanted=["w1"])) == ["w1"]


def test_history_gives_an_interval():
    runs = [100.0] * 50 + [1_000.0] * 50
    now = present([queue("q", gpu=1)], job("r", since=0), job("a", at=1), now=10.0)

    interval = forecaster(*runs).forecast(now)["a"].interval

    assert interval.low == pytest.approx(90, rel=0.3)
    assert interval.low < interval.median < interval.high
    assert interval.high == pytest.approx(990, rel=0.3)


def test_a_job_that_runs_long_has_those_behind_it_wait_longer():
    runs = [100.0] * 50 + [1_000.0] * 50
    now = present([queue("q", gpu=1)], job("r", since=0), job("a", at=1), now=400.0)

    interval = forecaster(*runs).forecast(now)["a"].interval

    assert interval.low == pytest.approx(400, rel=0.5)


def test_what_comes_with_a_higher_priority_delays():
    spec = queue("q", gpu=1)
    urgent = [
        (100.0 * n, workload("u", "q", gpu=1, priority=1, run_seconds=95.0)) for n in range(9)
    ]
    now = present([spec], job("r", runs=50, since=900), job("a", at=890, runs=1), now=900.0)

    calm = forecaster().forecast(now)["a"].interval
    busy = forecaster(arrivals=urgent).forecast(now)["a"].interval

    assert calm.median == 50
    assert busy.high > 100


def test_without_history_the_start_is_unknown():
    now = present([queue("q", gpu=1)], job("r", since=0), job("a", at=1), now=10.0)

    assert forecaster().forecast(now)["a"] == StartForecast(interval=None, unknown="NoHistory")


def test_a_start_that_needs_no_unknown_end_is_known():
    now = present(
        [queue("q", gpu=2)],
        job("r", since=0),
        job("s", runs=30, since=0),
        job("a", at=1),
        job("b", at=2),
        now=10.0,
    )

    found = forecaster().forecast(now)

    assert found["a"] == certain(20)
    assert found["b"].unknown == "NoHistory"


def test_beyond_the_horizon_the_start_is_unknown():
    now = present([queue("q", gpu=1)], job("r", runs=9 * HOUR, since=0), job("a", at=1, runs=1))

    found = forecaster(horizon_seconds=8 * HOUR).forecast(now)

    assert found["a"].unknown == "TooFar"


def test_what_never_fits_and_what_cannot_be_considered_have_a_reason():
    refused = Objection(reason="Misconfigured", message="no such queue")
    now = present([queue("q", gpu=2)], job("big", gpu=3, runs=1), job("bad", objection=refused))

    found = forecaster().forecast(now)

    assert found["big"].unknown == "NeverFits"
    assert found["bad"].unknown == "Misconfigured"


def test_the_same_arguments_give_the_same_forecast():
    runs = [100.0, 200.0, 400.0, 800.0, 1_600.0] * 20
    now = present([queue("q", gpu=1)], job("r", since=0), job("a", at=1), job("b", at=2), now=9.0)

    assert forecaster(*runs).forecast(now) == forecaster(*runs).forecast(now)


def test_what_happened_after_earlier_forecasts_corrects_later_ones():
    runs = [100.0] * 100
    now = present([queue("q", gpu=1)], job("r", since=0), job("a", at=1), now=0.0)
    of = forecaster(*runs)
    before = of.forecast(now)["a"].interval
    for number in range(40):
        of.correction.promise(f"past-{number}", "1", before, at=0.0)
        of.correction.started(f"past-{number}", at=1_000.0 if number % 4 else 100.0)

    after = of.forecast(now)["a"].interval

    assert before.high < 200
    assert after.high >= 900
    assert after.low <= 100


def test_the_interval_leaves_out_a_twentieth_at_each_end():
    waits = [float(n) for n in range(1, 42)]

    assert interval_of(waits) == Interval(low=2, median=21, high=40)
    assert interval_of([5.0]) == Interval(low=5, median=5, high=5)


@pytest.mark.parametrize(
    ("devices", "expected"), [(0, "0"), (1, "1"), (2, "2-7"), (7, "2-7"), (8, "8+"), (512, "8+")]
)
def test_classes_of_size(devices, expected):
    assert size_class_of(devices) == expected


def test_those_behind_go_on_as_fast_as_their_queue():
    jobs = [job(f"w{n}", gpu=4, runs=10, at=n) for n in range(2)]
    behind = [workload(f"b{n}", "q", gpu=4, at=2 + n) for n in range(3)]
    large = workload("large", "q", gpu=9, at=9)
    gated = workload("gated", "q", gpu=1, at=9, backing_off=True)
    alone = workload("alone", "other", gpu=1, at=9)
    queues = [queue("q", gpu=4), queue("other", gpu=1)]
    running = job("r", gpu=4, runs=10, since=0)
    now = present(queues, running, *jobs, now=0.0)
    now = replace(now, behind=[*behind, large, gated, alone])

    found = forecaster().forecast(now)

    assert [found[f"w{n}"] for n in range(2)] == [certain(10), certain(20)]
    assert [found[f"b{n}"] for n in range(3)] == [certain(n, coarse=True) for n in (30, 40, 50)]
    assert found["large"].unknown == "NeverFits"
    assert found["gated"].unknown == "BacksOff"
    assert found["alone"].unknown == "TooFar"


def test_those_behind_an_unknown_start_are_unknown():
    now = present([queue("q", gpu=4)], job("r", gpu=4, since=0), job("a", gpu=4, at=1))
    now = replace(now, behind=[workload("b", "q", gpu=4, at=2)])

    assert forecaster().forecast(now)["b"].unknown == "NoHistory"


def test_a_workload_that_backs_off_gets_a_message_and_holds_up_no_other():
    jobs = [job("off", gpu=4, runs=10, backing_off=True), job("a", gpu=4, runs=10, at=1)]
    now = present([queue("q", gpu=4)], job("r", gpu=4, runs=10, since=0), *jobs, now=5.0)

    found = forecaster().forecast(now)

    assert found["off"].unknown == "BacksOff"
    assert found["a"] == certain(5)


def test_a_workload_that_is_being_stopped_ends_now():
    stopping = job("r", gpu=4, runs=500, since=0, evicted=True)
    now = present([queue("q", gpu=4)], stopping, job("a", gpu=4, runs=10, at=1), now=5.0)

    assert forecaster().forecast(now)["a"] == certain(0)


def test_quota_that_was_lowered_is_held_all_the_same():
    now = present(
        [queue("q", gpu=4)],
        job("r", gpu=8, runs=100, since=0),
        job("a", gpu=1, runs=10, at=1),
        now=10.0,
    )

    assert forecaster().forecast(now)["a"] == certain(90)


def test_a_pending_workload_that_was_evicted_runs_as_long_as_another():
    now = present(
        [queue("q", gpu=4)],
        job("running", gpu=4, runs=100, since=0),
        job("evicted", gpu=4, runs=300, at=1, evicted=True),
        job("last", gpu=4, runs=300, at=2),
        now=10.0,
    )

    assert forecaster().forecast(now)["last"] == certain(390)


def test_starts_are_by_quotas_alone_where_the_core_comes_to_no_end():
    rivals = [
        queue("lends", "x", groups=[group(default={"gpu": quota(5, borrow=1)})]),
        queue("q", "x", gpu=1, preemption=PreemptionPolicy(reclaim_within_cohort="Any")),
    ]
    large = workload("large", "lends", pod_set(count=2, minimum=1, gpu=3), priority=2)
    small = workload("small", "q", pod_set(count=3, minimum=1, gpu=1))
    jobs = [
        KnownJob(workload=replace(each, run_seconds=60.0), traits=TRAITS, size_class="1")
        for each in (large, small, workload("later", "q", at=1, gpu=1))
    ]

    found = forecaster().forecast(present(rivals, *jobs, now=0.0))

    assert found["later"] == certain(60, coarse=True)
