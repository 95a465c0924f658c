"""Short ways to say what is remembered, and what is there now."""

from policyd.alloc.workload import QueuedWorkload
from policyd.forecast.arrivals import ArrivalHistory, PastArrival
from policyd.forecast.coarse import CoarseQueues
from policyd.forecast.correction import Correction
from policyd.forecast.run_times import JobTraits, RunTimeHistory
from policyd.forecast.starts import Forecaster, ForecastSettings, KnownJob, QueuesNow
from tests.alloc.builders import admission, state, workload

TRAITS = JobTraits(queue="q", owner="ana", stem="train", shape="gpu=1")


def forecaster(*runs, arrivals=(), **settings):
    """What is made of runs, in seconds, and of workloads that came: (time, workload)."""
    new = Forecaster(
        run_times=RunTimeHistory(),
        arrivals=ArrivalHistory(),
        correction=Correction(),
        settings=ForecastSettings(**settings),
    )
    for ran_seconds in runs:
        new.run_times.observe(TRAITS, ran_seconds, at=0.0)
    for at, each in arrivals:
        new.arrivals.observe(PastArrival(at=at, workload=each, traits=TRAITS))
    return new


def job(key, *, gpu=1, at=0.0, runs=None, since=None, queue_name="q", **fields) -> KnownJob:
    """A job with a declared run time or without; it runs if it does so since some time."""
    if since is not None:
        fields |= {"admission": admission(queue_name, gpu=gpu), "reserved_at": float(since)}
    of: QueuedWorkload = workload(key, queue_name, at=at, gpu=gpu, run_seconds=runs, **fields)
    return KnownJob(workload=of, traits=TRAITS, size_class="1")


def present(specs, *jobs, now=0.0, core=True):
    return QueuesNow(
        now=now,
        jobs=jobs,
        queues=CoarseQueues(specs),
        make_state=(lambda: state(*specs)) if core else None,
    )
