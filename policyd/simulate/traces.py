"""Traces: jobs that came to a cluster, with how long each ran; and other loads made of them.

A trace is a list of jobs in the order in which they came. `in_window` takes a part of it,
`at_load` lets jobs come closer together or further apart, and `shuffled` lets the jobs of a day
come in another order, as a seed says.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from policyd.alloc.topology.values import PlacementRequest
from policyd.alloc.value import Value
from policyd.alloc.workload import QueuedPodSet, QueuedWorkload
from policyd.errors import PolicydError
from policyd.simulate.draws import DrawnNumbers
from policyd.simulate.scenario import Arrival

GPU: Final = "nvidia.com/gpu"
"""The resource that jobs of a table request."""

DAY: Final = 86_400.0


class TraceError(PolicydError):
    """A trace cannot be read, or says nothing."""


class TracedJob(Value, frozen=True):
    """One job of a trace.

    Attributes:
        key: `team/name`, unique in the trace.
        at: When it came, in seconds since the epoch or since the trace began.
        seconds: How long it ran.
        gpus: How many GPUs all its pods requested together.
        team: Whose it is.
        queue: Where it queued; "" if the trace does not say.
        pod_sets: What it requested.
        priority: Higher goes first.
        limit: How long it may run, in seconds, as it was submitted; None if it did not say.
        fails_after: How long it runs, the first time, until a failure stops it; None for never.
    """

    key: str
    at: float
    seconds: float
    gpus: int
    team: str
    queue: str = ""
    pod_sets: tuple[QueuedPodSet, ...] = ()
    priority: int = 0
    limit: float | None = None
    fails_after: float | None = None


def pods_of(gpus: int, *, pods: int = 0, most: int) -> QueuedPodSet:
    """Return identical pods that request some GPUs together.

    Args:
        gpus: At least 1.
        pods: How many pods; 0 for as few as possible. Taken as 0 if they cannot share evenly.
        most: GPUs of one pod at most, which is what a node has.
    """
    if not pods or gpus % pods or gpus // pods > most:
        pods = next(n for n in range(1, gpus + 1) if not gpus % n and gpus // n <= most)
    requests = {GPU: gpus // pods}
    place = PlacementRequest(pod_set="main", count=pods, requests=requests)
    return QueuedPodSet(name="main", count=pods, requests=requests, place=place)


def in_window(jobs: Iterable[TracedJob], begin: float, seconds: float) -> list[TracedJob]:
    """Return the jobs that came in a part of the trace, the times counted from its beginning.

    Args:
        jobs: In any order.
        begin: Of the part, in the seconds of the jobs.
        seconds: How long the part is; infinite for the rest.
    """
    inside = [job for job in jobs if begin <= job.at < begin + seconds]
    inside.sort(key=lambda job: (job.at, job.key))
    return [replace(job, at=job.at - begin) for job in inside]


def span_of(jobs: Sequence[TracedJob]) -> float:
    """Return the seconds between the first and the last arrival, at least one."""
    return max(1.0, jobs[-1].at - jobs[0].at) if jobs else 1.0


def load_of(jobs: Sequence[TracedJob], gpus: float) -> float:
    """Return the GPU time that jobs ask for, as a part of all GPU time while they come."""
    return sum(job.seconds * job.gpus for job in jobs) / (span_of(jobs) * gpus)


def at_load(jobs: Sequence[TracedJob], load: float, gpus: float) -> list[TracedJob]:
    """Let jobs come closer together or further apart, so that they request a given load.

    Args:
        jobs: In the order in which they come.
        load: The part of all GPU time that they are to ask for, more than 0.
        gpus: How many GPUs there are.
    """
    factor = load_of(jobs, gpus) / load
    return [replace(job, at=job.at * factor) for job in jobs]


def shuffled(jobs: Sequence[TracedJob], seed: int) -> list[TracedJob]:
    """Let the jobs of each team and day come in another order; as they came if the seed is 0.

    The times of arrivals stay as they were, and so do all jobs.
    """
    if not seed:
        return list(jobs)
    days: dict[tuple[str, int], list[TracedJob]] = {}
    for job in jobs:
        days.setdefault((job.team, int(job.at // DAY)), []).append(job)
    found: list[TracedJob] = []
    for (team, day), came in days.items():
        numbers = DrawnNumbers(f"{seed}/{day}/{team}")
        order = sorted(range(len(came)), key=[numbers.next() for _ in came].__getitem__)
        found += [replace(came[i], at=job.at) for i, job in zip(order, came, strict=True)]
    return sorted(found, key=lambda job: (job.at, job.key))


def arrival_of(job: TracedJob, queue: str, local_queue: str = "") -> Arrival:
    """Return a job as it comes to a ClusterQueue; its time limit is enforced."""
    workload = QueuedWorkload(
        key=job.key,
        uid=job.key,
        cluster_queue=queue,
        local_queue=local_queue,
        priority=job.priority,
        queued_at=job.at,
        pod_sets=job.pod_sets,
        run_seconds=job.limit,
    )
    return Arrival(
        workload=workload,
        at=job.at,
        run_seconds=job.seconds,
        most_seconds=job.limit,
        stops_after_seconds=job.fails_after,
    )


def quotas_of(jobs: Iterable[TracedJob], gpus: int) -> Mapping[str, int]:
    """Divide GPUs among queues by the GPU time of their jobs; each has one at least.

    Args:
        jobs: With the queues they are in.
        gpus: At least as many as there are queues.

    Raises:
        TraceError: If there are more queues than GPUs.
    """
    asked: dict[str, float] = {}
    for job in jobs:
        asked[job.queue] = asked.get(job.queue, 0.0) + job.seconds * job.gpus
    if len(asked) > gpus:
        raise TraceError(f"{len(asked)} queues cannot divide {gpus} GPUs among them")
    left, total = gpus - len(asked), sum(asked.values()) or 1.0
    exact = {name: left * used / total for name, used in sorted(asked.items())}
    quotas = {name: 1 + int(part) for name, part in exact.items()}
    rest = gpus - sum(quotas.values())
    for name in sorted(exact, key=lambda name: (int(exact[name]) - exact[name], name))[:rest]:
        quotas[name] += 1
    return quotas
