"""A forecast of the bench uses what was known at its time, and nothing that came later."""

from dataclasses import replace

import pytest

from policyd.forecast.starts import ForecastSettings
from policyd.simulate.draws import DrawnNumbers
from tests.bench_forecast.trace import Replay, TraceJob, queue_of, starts_of

GPUS, HALF = 8, 300


def trace():
    """Jobs of two owners that are too many for eight GPUs."""
    rng, at, jobs = DrawnNumbers("trace"), 0.0, []
    for number in range(2 * HALF):
        at += 120 * rng.next()
        owner = "ana" if rng.next() < 0.5 else "ben"
        seconds = 60 * 60 ** rng.next()
        gpus = (1, 1, 1, 2, 4, 8)[int(6 * rng.next())]
        jobs.append(TraceJob(f"{owner}/{number}", at, seconds, gpus, owner))
    return jobs


def forecast(jobs, key, at, *, declared=False):
    spec = queue_of(GPUS)
    settings = ForecastSettings(draws=19, horizon_seconds=1e7)
    replay = Replay(jobs, spec, starts_of(jobs, spec), settings=settings, declared=declared)
    replay.until(at)
    return replay.forecast(key, now=at)


def pending_job(jobs):
    """The last job of the first half that waits, and when it came."""
    starts = starts_of(jobs, queue_of(GPUS))
    return next(job for job in reversed(jobs[:HALF]) if starts[job.key] > job.at)


def other_future(jobs, now):
    """The same trace up to a time: what ends or comes later is different."""
    starts = starts_of(jobs, queue_of(GPUS))
    changed = [
        replace(job, seconds=10 * job.seconds) if starts[job.key] + job.seconds > now else job
        for job in jobs
        if job.at <= now
    ]
    return [*changed, TraceJob("cem/new", now + 1, 5.0, 8, "cem")]


def test_another_future_changes_no_forecast():
    jobs = trace()
    job = pending_job(jobs)
    before, after = jobs, other_future(jobs, job.at)
    starts = [starts_of(each, queue_of(GPUS))[job.key] for each in (before, after)]
    assert starts[0] != starts[1], "the future must matter for the test to say anything"

    forecasted = forecast(before, job.key, job.at)

    assert forecasted.interval is not None
    assert forecasted == forecast(after, job.key, job.at)


def test_the_oracle_knows_the_future():
    jobs = trace()
    job = pending_job(jobs)

    forecasted = forecast(jobs, job.key, job.at, declared=True)

    assert forecasted != forecast(other_future(jobs, job.at), job.key, job.at, declared=True)


@pytest.mark.parametrize("gpus", [8, 64])
def test_the_trace_runs_on_no_more_gpus_than_there_are(gpus):
    jobs = trace()
    starts = starts_of(jobs, queue_of(gpus))
    moments = sorted(starts.values())
    used = [
        sum(j.gpus for j in jobs if starts[j.key] <= at < starts[j.key] + j.seconds)
        for at in moments
    ]

    assert len(starts) == len(jobs)
    assert max(used) <= gpus
    assert all(starts[job.key] >= job.at for job in jobs)
