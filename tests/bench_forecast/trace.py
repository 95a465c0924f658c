"""A trace of jobs, run on a cluster of a given size, and what is known at each moment of it."""

import csv
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from policyd.alloc.queue import FlavorAmounts, FlavorGroup, QueueSpec, Quota
from policyd.alloc.workload import PodSetFlavors, QueuedPodSet, QueuedWorkload, ReservedQuota
from policyd.forecast.arrivals import ArrivalHistory, PastArrival
from policyd.forecast.coarse import CoarseQueues, CoarseRun, ForecastWorkload
from policyd.forecast.correction import Correction
from policyd.forecast.run_times import JobTraits, RunTimeHistory
from policyd.forecast.starts import Forecaster, ForecastSettings, KnownJob, QueuesNow, size_class_of

GPU, QUEUE = "nvidia.com/gpu", "all"
RECENT = 100
"""Starts whose waits the moving average is taken of."""


@dataclass(frozen=True)
class TraceJob:
    """One job: when it came, in seconds since the first, how long it ran, on how many GPUs."""

    key: str
    at: float
    seconds: float
    gpus: int
    owner: str

    @property
    def size_class(self):
        return size_class_of(self.gpus)


def read(path: Path) -> list[TraceJob]:
    """Read the jobs of a trace, in the order in which they came."""
    with path.open() as file:
        rows = [
            (
                datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC).timestamp(),
                float(row["duration"]),
                int(row["num_gpus"]),
                row["cluster"],
            )
            for row in csv.DictReader(file)
        ]
    rows.sort()
    begin = rows[0][0]
    return [
        TraceJob(f"{owner}/job-{n:06}", at - begin, seconds, gpus, owner)
        for n, (at, seconds, gpus, owner) in enumerate(rows)
    ]


def mean_gpus(jobs: list[TraceJob]) -> float:
    """Return how many GPUs the jobs need on average, from the first that comes to the last."""
    return sum(job.seconds * job.gpus for job in jobs) / (jobs[-1].at - jobs[0].at)


def queue_of(gpus: int, *, strict: bool = False) -> QueueSpec:
    """Return a queue that has all GPUs of the cluster."""
    flavor = FlavorAmounts(name="default", quotas={GPU: Quota(nominal=gpus)})
    return QueueSpec(name=QUEUE, groups=(FlavorGroup((GPU,), (flavor,)),), strict=strict)


def workload_of(job: TraceJob, *, since: float | None = None, declared: bool = False):
    """Return a job as a workload: running since some time, or pending."""
    held = PodSetFlavors(name="main", count=1, flavors={GPU: "default"}, usage={GPU: job.gpus})
    return QueuedWorkload(
        key=job.key,
        uid=job.key.rpartition("-")[2],  # jobs of the same second keep their order
        cluster_queue=QUEUE,
        queued_at=job.at,
        pod_sets=(QueuedPodSet(name="main", requests={GPU: job.gpus}),),
        admission=None if since is None else ReservedQuota(QUEUE, (held,)),
        reserved_at=since,
        run_seconds=job.seconds if declared else None,
    )


def starts_of(jobs: list[TraceJob], spec: QueueSpec) -> dict[str, float]:
    """Return when each job starts on the cluster, by key."""
    queues = CoarseQueues([spec])
    coming = [
        ForecastWorkload(job.at, queues.kind_of(workload_of(job)), job.seconds, job.key)
        for job in jobs
    ]
    run = CoarseRun(queues, [], [], now=0.0)
    return {each.key: at for at, each in run.starts(iter(coming), until=float("inf"))}


class Recorder(Forecaster):
    """A forecaster that keeps what was drawn."""

    waits: dict[str, list[float]]

    def _forecast(self, draws, key, waits, shift):
        self.waits[key] = waits
        return super()._forecast(draws, key, waits, shift)


class Replay:
    """A trace on its way: a forecaster that learns from it, and what runs and waits.

    With `declared`, run times are known from the beginning: the oracle.
    """

    def __init__(
        self,
        jobs: list[TraceJob],
        spec: QueueSpec,
        starts: dict[str, float],
        *,
        settings: ForecastSettings,
        declared: bool = False,
    ) -> None:
        self.waits: dict[str, list[float]] = {}
        self.forecaster = Recorder(
            run_times=RunTimeHistory(),
            arrivals=ArrivalHistory(),
            correction=Correction(),
            settings=settings,
        )
        self.forecaster.waits = self.waits
        self.running: dict[str, tuple[TraceJob, float]] = {}
        self.pending: dict[str, TraceJob] = {}
        self.recent: deque[float] = deque(maxlen=RECENT)
        self._queues, self._declared = CoarseQueues([spec]), declared
        self._events = self._merged(jobs, starts)
        self._next = next(self._events, None)

    def _merged(self, jobs, starts) -> Iterator[tuple[float, int, TraceJob]]:
        """Yield ends, arrivals and starts, in this order at the same time."""
        events = [(job.at, 1, job) for job in jobs]
        for job in jobs:
            if (at := starts.get(job.key)) is not None:
                events += [(at, 2, job), (at + job.seconds, 0, job)]
        return iter(sorted(events, key=lambda event: (event[0], event[1], event[2].at)))

    def until(self, now: float) -> None:
        """Let time pass, and learn from what happens."""
        while self._next is not None and self._next[0] <= now:
            at, what, job = self._next
            (self._end, self._come, self._start)[what](job, at)
            self._next = next(self._events, None)

    def _end(self, job: TraceJob, at: float) -> None:
        del self.running[job.key]
        self.forecaster.run_times.observe(traits_of(job), job.seconds, at=at)
        self.forecaster.recent.observe(traits_of(job), job.seconds, queued_at=job.at)

    def _come(self, job: TraceJob, at: float) -> None:
        self.pending[job.key] = job
        past = PastArrival(
            at=at, workload=workload_of(job, declared=self._declared), traits=traits_of(job)
        )
        self.forecaster.arrivals.observe(past)

    def _start(self, job: TraceJob, at: float) -> None:
        del self.pending[job.key]
        self.running[job.key] = job, at
        self.recent.append(at - job.at)
        self.forecaster.correction.started(job.key, at=at)

    def forecast(self, key: str, *, now: float):
        """Return the forecast of a pending job, from what is known now."""
        jobs = [self._known(job, since) for job, since in self.running.values()]
        jobs += [self._known(job, None) for job in self.pending.values()]
        present = QueuesNow(now=now, jobs=jobs, queues=self._queues)
        return self.forecaster.forecast(present, wanted=[key])[key]

    def _known(self, job: TraceJob, since: float | None) -> KnownJob:
        return KnownJob(
            workload=workload_of(job, since=since, declared=self._declared),
            traits=traits_of(job),
            size_class=job.size_class,
        )


def traits_of(job: TraceJob) -> JobTraits:
    """Return what a job of the trace tells about itself: no names, but tenants and sizes."""
    return JobTraits(queue=QUEUE, owner=job.owner, shape=f"gpu={job.gpus}")
