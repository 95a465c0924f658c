"""Windows, loads and seeds of traces, and the figures of their runs."""

from itertools import pairwise

import pytest

from policyd.alloc.topology.values import TopologyNode
from policyd.simulate.failures import FailureRates, failures
from policyd.simulate.scenario import Simulation
from policyd.simulate.trace_runs import TraceRuns, bars, figures, used_over_time, waits
from policyd.simulate.traces import (
    GPU,
    TracedJob,
    TraceError,
    arrival_of,
    at_load,
    in_window,
    load_of,
    pods_of,
    quotas_of,
    shuffled,
)
from tests.alloc.builders import group, queue, state

DAY = 86_400


def job(key, at=0.0, seconds=60.0, gpus=1, team="t", **fields):
    pod_sets = (pods_of(gpus, most=8),)
    return TracedJob(
        key=key, at=at, seconds=seconds, gpus=gpus, team=team, pod_sets=pod_sets, **fields
    )


def run(jobs, gpus, until=float("inf")):
    of = state(queue("q", groups=(group(default={GPU: gpus}),)))
    runs = TraceRuns(jobs)
    arrivals = [arrival_of(each, "q") for each in jobs]
    ended = list(runs.follow(Simulation(of, arrivals).steps(until=until)))
    return runs, ended


def test_a_window_counts_time_from_its_beginning():
    jobs = [job("b", at=30), job("a", at=10), job("c", at=40)]

    assert [(each.key, each.at) for each in in_window(jobs, 10, 30)] == [("a", 0), ("b", 20)]


@pytest.mark.parametrize("load", [0.5, 0.9, 1.1])
def test_jobs_come_as_close_together_as_the_load_says(load):
    jobs = [job(f"j{n}", at=10 * n, gpus=1 + n % 3) for n in range(50)]

    assert load_of(at_load(jobs, load, 7), 7) == pytest.approx(load)


def test_a_seed_shuffles_the_jobs_of_a_team_and_day():
    jobs = [
        job(f"{team}{day}{n}", at=day * DAY + n, team=team)
        for day in range(2)
        for team in "ab"
        for n in range(20)
    ]
    jobs.sort(key=lambda each: (each.at, each.key))

    once, again, other = (shuffled(jobs, seed) for seed in (1, 1, 2))

    assert shuffled(jobs, 0) == jobs
    assert once == again != other
    assert sorted(each.key for each in once) == sorted(each.key for each in jobs)
    assert [(e.at, e.team) for e in once] == [(e.at, e.team) for e in jobs]
    assert all(each.key[1] == str(int(each.at // DAY)) for each in once)


@pytest.mark.parametrize(
    ("seconds", "gpus", "expected"),
    [
        pytest.param({"a": 30, "b": 10}, 8, {"a": 6, "b": 2}, id="by-gpu-time"),
        pytest.param({"a": 999, "b": 1}, 8, {"a": 7, "b": 1}, id="at-least-one"),
        pytest.param({"a": 1, "b": 1, "c": 1}, 8, {"a": 3, "b": 3, "c": 2}, id="all-of-them"),
    ],
)
def test_gpus_are_divided_by_what_the_jobs_of_a_queue_used(seconds, gpus, expected):
    jobs = [job(name, seconds=of, queue=name) for name, of in seconds.items()]

    assert quotas_of(jobs, gpus) == expected


def test_more_queues_than_gpus_have_no_quotas():
    with pytest.raises(TraceError, match="2 queues cannot divide 1 GPUs"):
        quotas_of([job("a", queue="a"), job("b", queue="b")], 1)


def test_figures_of_a_small_trace():
    jobs = [job("t/a", seconds=100, gpus=8), job("t/b", at=10, seconds=50, gpus=4)]

    runs, ended = run(jobs, 8)
    found = figures(runs, gpus=8, load=1.0, until=200)

    assert ended == ["t/a", "t/b"]
    assert runs.runs["t/b"].runs == [(100, 150)]
    assert found.seconds == 150
    assert found.utilization == pytest.approx((8 * 100 + 4 * 50) / (8 * 150))
    assert (found.waits.mean, found.waits.longest) == (45, 90)
    assert (found.by_size["2-7"].mean, found.by_size["8+"].mean) == (90, 0)
    assert (found.ended, found.lost_gpu_hours) == (2, 0)


def test_a_job_that_has_not_started_counts_in_no_wait():
    runs, _ = run([job("t/a", seconds=100, gpus=8), job("t/b", at=10, gpus=4)], 8, until=20)
    runs.now = 60.0

    found = waits(list(runs.runs.values()), runs)

    assert (found.jobs, found.started, found.never, found.waiting) == (2, 1, 0, 50)
    assert (found.mean, found.median, found.p90, found.longest) == (0, 0, 0, 0)


def test_jobs_of_which_none_has_started_have_no_mean_wait():
    runs, _ = run([job("t/a", gpus=9)], 8)
    runs.over = True

    found = waits(list(runs.runs.values()), runs)

    assert (found.started, found.never) == (0, 1)
    assert (found.mean, found.median, found.p90, found.longest) == (None, None, None, None)
    assert runs.runs["t/a"].refusal is not None


def test_work_before_a_failure_is_lost_and_done_again():
    runs, _ = run([job("t/a", seconds=3600, gpus=2, fails_after=1800)], 8)
    found = figures(runs, gpus=8, load=1.0, until=9_999)

    assert runs.runs["t/a"].runs == [(0, 1800), (1800, 5400)]
    assert (found.failed, found.lost_gpu_hours, found.ended) == (1, 1.0, 1)


def test_a_time_limit_ends_a_job():
    runs, ended = run([job("t/a", seconds=100, limit=30)], 8)

    assert ended == ["t/a"]
    assert runs.runs["t/a"].runs == [(0, 30)]


def test_quantiles_are_those_of_the_waits():
    runs, _ = run([job(f"t/{n}", seconds=1) for n in range(10)], 1)

    found = waits(list(runs.runs.values()), runs)

    assert (found.median, found.p90, found.longest) == (4, 8, 9)


def test_use_over_time_adds_up_to_the_gpu_time():
    runs, _ = run([job("t/a", seconds=90, gpus=4), job("t/b", at=25, seconds=50, gpus=2)], 8)

    used = used_over_time(runs.runs.values(), until=100, parts=10)

    assert used[:3] == [4, 4, 5]
    assert sum(used) * 10 == pytest.approx(90 * 4 + 50 * 2)


def test_bars_show_each_run_on_the_lowest_free_rows():
    jobs = [
        job("t/a", seconds=10, gpus=2),
        job("t/b", seconds=30, gpus=1, team="u"),
        job("t/c", at=10, seconds=10, gpus=3),
    ]
    runs, _ = run(jobs, 8)

    found = [(bar.row, bar.rows, bar.begin, bar.end, bar.team) for bar in bars(runs)]

    assert found == [
        (0, 2, 0, 10, "t"),
        (2, 1, 0, 30, "u"),
        (0, 2, 10, 20, "t"),
        (3, 1, 10, 20, "t"),
    ]


def test_bars_cover_the_gpu_time_and_no_row_twice():
    jobs = [job(f"t/{n}", at=3 * n, seconds=5 + n * 7 % 40, gpus=1 + n % 5) for n in range(60)]
    runs, _ = run(jobs, 8)

    found = list(bars(runs))

    assert sum(bar.rows * (bar.end - bar.begin) for bar in found) == sum(
        each.gpus * each.seconds for each in jobs
    )
    by_row = {}
    for bar in found:
        for row in range(bar.row, bar.row + bar.rows):
            by_row.setdefault(row, []).append((bar.begin, bar.end))
    assert max(by_row) < 8
    for spans in by_row.values():
        spans.sort()
        assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


NODES = [TopologyNode(name=f"n{number}") for number in range(200)]


def test_failures_are_the_same_for_a_seed_and_as_often_as_configured():
    rates = FailureRates(between_seconds=90.0, repair_seconds=10.0)

    once, again, other = (
        list(failures(NODES, rates, seed=seed, until=1_000)) for seed in (1, 1, 2)
    )

    assert once == again != other
    failed = sum(not change.node.ready for change in once)
    assert len(once) == 2 * failed
    assert failed == pytest.approx(200 * 1_000 / 100, rel=0.1)
