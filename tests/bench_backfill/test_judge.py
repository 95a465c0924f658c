"""Waits and promises are counted as they are."""

import pytest
from msgspec.structs import replace

from policyd.optimize.opt_ins import OptIns
from tests.bench_backfill.__main__ import misjudged, simulate
from tests.bench_backfill.judge import waits_of
from tests.bench_forecast.trace import TraceJob, queue_of


def jobs():
    """Four GPUs run until 100; a gang of 8 waits for them, and small jobs come all the time."""
    first = TraceJob("a/000", 0.0, 100.0, 4, "a")
    gang = TraceJob("a/001", 1.0, 50.0, 8, "a")
    return [first, gang, *(TraceJob(f"a/{n:03}", 2.0 * n, 90.0, 1, "a") for n in range(2, 80))]


def test_a_gang_waits_less_with_a_reservation_and_starts_as_promised():
    coming, declared = jobs(), dict.fromkeys(job.key for job in jobs())
    without = simulate(coming, declared, [queue_of(8)])
    reserving = replace(queue_of(8), opt_ins=OptIns(reserve_seconds=0.0))
    with_one = simulate(coming, declared, [reserving])

    waits = [
        waits_of(coming, starts, reserved=reserved, late=late, seconds=0.0)
        for starts, reserved, late in (without, with_one)
    ]

    assert waits[1].large == pytest.approx(99 / 3600)
    assert waits[1].large < waits[0].large / 2
    assert (waits[0].reserved, waits[1].late) == (0, 0)
    assert waits[1].reserved > 1


def test_jobs_that_declare_too_little_are_stopped():
    for job, (stopped, declared) in zip(jobs(), misjudged(jobs()), strict=True):
        assert job.seconds / 10 <= declared <= job.seconds * 10
        assert stopped.seconds == min(job.seconds, declared)
