"""Three clusters in virtual time, and the dispatchers that send jobs to them.

The forecast dispatcher decides by `choose`, as the controller does, from forecasts by the limits
that jobs declare. The choice in hindsight has the true run times, and sends each job where it
starts first; a second one also moves jobs, as the forecast dispatcher does.
"""

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import NamedTuple

from policyd.alloc.queue import FlavorAmounts, FlavorGroup, QueueSpec, Quota
from policyd.alloc.workload import QueuedPodSet, QueuedWorkload
from policyd.forecast.coarse import CoarseQueues, CoarseRun, ForecastWorkload
from policyd.multikueue.forecasts import NEVER, PATIENCE_SECONDS, ExpectedStart, Waiting, choose
from policyd.multikueue.settings import DEFAULTS

GPU = "nvidia.com/gpu"
ROOMS = {"east": 32, "north": 48, "west": 64}
SIZES, WEIGHTS = (1, 2, 4, 8, 16, 32, 48), (30, 15, 15, 20, 12, 6, 2)


class Job(NamedTuple):
    """A job: when it comes, how many GPUs it needs, its limit and how long it runs, in seconds."""

    key: str
    at: float
    gpus: int
    limit: float
    run: float


def generate(seed: int, count: int) -> list[Job]:
    """Return the jobs of a load, which needs 0.7 to 1.1 of all GPUs, with bursts."""
    numbers = random.Random(seed)
    load = 0.7 + 0.4 * numbers.random()
    jobs, at, room = [], 0.0, sum(ROOMS.values())
    for index in range(count):
        gpus = numbers.choices(SIZES, WEIGHTS)[0]
        run = min(8 * 3600.0, max(300.0, numbers.lognormvariate(8.2, 1.0)))
        limit = run / numbers.uniform(0.3, 1.0)
        jobs.append(Job(f"job-{index}", at, gpus, limit, run))
        if numbers.random() < 0.5:  # the others come in the same burst
            at += 2 * numbers.expovariate(1.0) * gpus * run / (load * room)
    return jobs


@dataclass
class Cluster:
    """A worker with one queue."""

    room: int
    strict: bool
    free: int = 0
    now: float = 0.0
    version: int = 0
    running: list[tuple[float, Job, float]] = field(default_factory=list)
    """End, job and start."""
    waiting: list[Job] = field(default_factory=list)
    known: dict[tuple[int, bool], tuple[int, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free = self.room
        amounts = FlavorAmounts(name="h100", quotas={GPU: Quota(nominal=self.room)})
        groups = (FlavorGroup((GPU,), (amounts,)),)
        self.queues = CoarseQueues([QueueSpec(name="q", strict=self.strict, groups=groups)])

    def put(self, job: Job) -> None:
        if job.gpus <= self.room:
            self.waiting.append(job)
            self.version += 1

    def drop(self, job: Job) -> None:
        if job in self.waiting:
            self.waiting.remove(job)
            self.version += 1

    def next_start(self) -> Job | None:
        """Start the first job that fits."""
        for job in self.waiting[:1] if self.strict else self.waiting:
            if job.gpus <= self.free:
                self.drop(job)
                self.free -= job.gpus
                heappush(self.running, (self.now + job.run, job, self.now))
                return job
        return None

    def end(self) -> None:
        while self.running and self.running[0][0] <= self.now:
            self.free += heappop(self.running)[1].gpus
            self.version += 1

    def start_of(self, job: Job, *, truly: bool) -> float:
        """Return when a job would start that comes now: by its limits, or truly."""
        if job.gpus > self.room:
            return inf
        version, start = self.known.get((job.gpus, truly), (-1, 0.0))
        if version != self.version:
            start = self._simulate(job, truly=truly)
            self.known[job.gpus, truly] = self.version, start
        return max(start, self.now)

    def _simulate(self, job: Job, *, truly: bool) -> float:
        def seconds(each: Job) -> float:
            return each.run if truly else each.limit

        running = [(self._kind(each), since + seconds(each)) for _, each, since in self.running]
        pending = [
            ForecastWorkload(each.at, self._kind(each), seconds(each), each.key)
            for each in self.waiting
        ]
        probe = self.queues.probe_of(_queued(job), now=self.now)
        assert probe is not None, "it fits into the empty cluster"
        run = CoarseRun(self.queues, running, pending, now=self.now, probes=[probe])
        for _ in run.starts(iter(()), until=inf):
            if not run.probing:
                break
        return run.probed[job.key]

    def _kind(self, job: Job) -> int:
        kind = self.queues.kind_of(_queued(job))
        assert kind is not None, "it fits into the empty cluster"
        return kind


def _queued(job: Job) -> QueuedWorkload:
    pods = QueuedPodSet(name="main", count=job.gpus, requests={GPU: 1})
    return QueuedWorkload(
        key=job.key, uid=job.key, cluster_queue="q", queued_at=job.at, pod_sets=(pods,)
    )


class Run:
    """One load under one dispatcher.

    Attributes:
        waits: How long each job waited, in seconds.
        copies: How many copies were made.
    """

    def __init__(self, jobs: Iterable[Job], *, strict: bool) -> None:
        self.jobs = sorted(jobs, key=lambda each: each.at)
        self.clusters = {name: Cluster(room, strict) for name, room in ROOMS.items()}
        self.waits: dict[str, float] = {}
        self.copies = 0

    def live(self, dispatch: "Dispatch") -> "Run":
        """Let all jobs come, start and end."""
        coming = iter(self.jobs)
        following = next(coming, None)
        while following is not None or any(each.waiting for each in self.clusters.values()):
            now = min(
                following.at if following else inf,
                dispatch.next_at(),
                *(each.running[0][0] for each in self.clusters.values() if each.running),
            )
            for cluster in self.clusters.values():
                cluster.now = now
                cluster.end()
            self._fill(dispatch)
            while following is not None and following.at <= now:
                dispatch.send(self, following, now)
                self._fill(dispatch)
                following = next(coming, None)
            dispatch.look(self, now)
            self._fill(dispatch)
        return self

    def _fill(self, dispatch: "Dispatch") -> None:
        while started := [job for each in self.clusters.values() if (job := self._start(each))]:
            for job in started:
                dispatch.started(job)

    def _start(self, cluster: Cluster) -> Job | None:
        job = cluster.next_start()
        if job is not None:
            self.waits[job.key] = cluster.now - job.at
            for each in self.clusters.values():
                each.drop(job)
        return job

    def put(self, job: Job, names: Iterable[str]) -> None:
        for name in names:
            self.clusters[name].put(job)
            self.copies += 1

    @property
    def mean(self) -> float:
        return sum(self.waits.values()) / len(self.waits)


class Dispatch:
    """Sends jobs: here to all workers at once."""

    def next_at(self) -> float:
        return inf

    def send(self, run: Run, job: Job, _now: float) -> None:
        run.put(job, run.clusters)

    def look(self, run: Run, now: float) -> None:
        """Send jobs that wait elsewhere."""

    def started(self, job: Job) -> None:
        """Note that a job does not wait any more."""


class Hindsight(Dispatch):
    """Sends each job where it starts first, with all run times known."""

    def send(self, run: Run, job: Job, _now: float) -> None:
        starts = {n: c.start_of(job, truly=True) for n, c in run.clusters.items()}
        run.put(job, [min(starts, key=starts.__getitem__)])


class Forecast(Dispatch):
    """Sends each job where it is forecast to start first, and looks again every round.

    Args of the constructor:
        truly: Whether forecasts have the true run times, in place of limits.
    """

    def __init__(self, *, truly: bool = False) -> None:
        self._truly = truly
        self._waiting: dict[str, tuple[float, Job, Waiting]] = {}

    def next_at(self) -> float:
        return min((at for at, _, _ in self._waiting.values()), default=inf)

    def send(self, run: Run, job: Job, now: float) -> None:
        self._decide(run, job, Waiting(seconds=PATIENCE_SECONDS), now)

    def look(self, run: Run, now: float) -> None:
        for at, job, waiting in list(self._waiting.values()):
            if at <= now:
                self._decide(run, job, waiting, now)

    def started(self, job: Job) -> None:
        self._waiting.pop(job.key, None)

    def _decide(self, run: Run, job: Job, waiting: Waiting, now: float) -> None:
        starts = {
            name: _expected(each, job, truly=self._truly) for name, each in run.clusters.items()
        }
        found = choose(waiting, starts, DEFAULTS, now=now)
        for name in waiting.nominated:
            if name not in found.names:
                run.clusters[name].drop(job)
        run.put(job, [name for name in found.names if name not in waiting.nominated])
        kept = Waiting(found.names, PATIENCE_SECONDS, found.promised)
        self._waiting[job.key] = now + found.again, job, kept


def _expected(cluster: Cluster, job: Job, *, truly: bool) -> ExpectedStart:
    start = cluster.start_of(job, truly=truly)
    return NEVER if start == inf else ExpectedStart(start, start)


DISPATCHERS: dict[str, Callable[[], Dispatch]] = {
    "all at once": Dispatch,
    "forecast": Forecast,
    "in hindsight": Hindsight,
    "in hindsight, with moves": lambda: Forecast(truly=True),
}


def runs(seed: int, count: int, *, strict: bool) -> Iterator[tuple[str, Run]]:
    """Yield a load under each dispatcher."""
    for name, make in DISPATCHERS.items():
        yield name, Run(generate(seed, count), strict=strict).live(make())
