"""When the jobs of a trace ran, and the figures of it: utilization, waits, lost work."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import ceil
from typing import Final

from policyd.alloc.plan import Action, Admit, Evict, Preempt, Requeue
from policyd.alloc.reasons import Refusal
from policyd.alloc.value import Value
from policyd.simulate.scenario import SimulatedCycle
from policyd.simulate.traces import TracedJob

SIZES: Final = ("1", "2-7", "8+")
"""The classes of jobs by their GPUs."""


@dataclass(slots=True)
class JobRun:
    """What happened to one job.

    Attributes:
        job: The job.
        runs: When each of its runs began and ended; None if it still runs.
        preempted: How often it was stopped for another one, or evicted.
        failed: How often a failure stopped it.
        ended: Whether it came to its end.
        refusal: Why it had to wait, the last time that it was looked at.
    """

    job: TracedJob
    runs: list[tuple[float, float | None]] = field(default_factory=list)
    preempted: int = 0
    failed: int = 0
    ended: bool = False
    refusal: Refusal | None = None

    def stop(self, at: float) -> None:
        """End the present run."""
        self.runs[-1] = self.runs[-1][0], at

    def waited(self, now: float) -> float:
        """Return how long it waited for its first start, in seconds, or has so far."""
        return (self.runs[0][0] if self.runs else now) - self.job.at


class TraceRuns:
    """All jobs of a trace, as a simulation goes on.

    Attributes:
        runs: By key.
        now: How late it is, in seconds since the beginning.
        over: Whether nothing can happen any more.
    """

    def __init__(self, jobs: Iterable[TracedJob]) -> None:
        """Begin before the first arrival."""
        self.runs = {job.key: JobRun(job) for job in jobs}
        self.now = 0.0
        self.over = False

    @property
    def come(self) -> list[JobRun]:
        """The jobs that have come so far."""
        return [run for run in self.runs.values() if run.job.at <= self.now]

    def follow(self, steps: Iterable[SimulatedCycle]) -> Iterator[str]:
        """Note what happens, and yield the key of each job that ends."""
        for step in steps:
            self.now = step.at
            for key in step.failed:
                self.runs[key].failed += 1
                self.runs[key].stop(step.at)
            for key in step.ended:
                self.runs[key].ended = True
                self.runs[key].stop(step.at)
                yield key
            for action in step.plan.actions:
                self._note(action, step.at)
            for each in step.waiting:
                if each.refusal is not None:
                    self.runs[each.workload.key].refusal = each.refusal

    def _note(self, action: Action, at: float) -> None:
        """Note a decision."""
        run = self.runs[action.workload.key]
        match action:
            case Admit():
                run.runs.append((at, None))
                run.refusal = None
            case Preempt() | Evict():
                run.preempted += 1
                run.stop(at)
            case Requeue(refusal=refusal):
                run.refusal = refusal


class WaitFigures(Value, frozen=True):
    """How long jobs waited for their first start.

    Only the waits of those that have started are known: the mean and what follows are of them, and
    None if there are none.

    Attributes:
        jobs: How many there are.
        started: How many of them have started.
        never: How many of the others never start, since nothing can happen any more.
        waiting: How long the others have waited so far at most, in seconds; None if there are none.
        mean: In seconds.
        median: In seconds.
        p90: Nine in ten waited no longer, in seconds.
        longest: In seconds.
    """

    jobs: int
    started: int
    never: int
    waiting: float | None
    mean: float | None
    median: float | None
    p90: float | None
    longest: float | None


class TraceFigures(Value, frozen=True):
    """The figures of one simulation.

    Attributes:
        seconds: From the first arrival to the end of what is judged.
        gpus: How many GPUs the quotas have.
        load: The part of all GPU time that jobs ask for while they come.
        utilization: The part of all GPU time that jobs held.
        lost_gpu_hours: GPU time of runs that were stopped before their end.
        waits: Of all jobs, by `all`.
        by_size: Waits by class of size.
        by_team: Waits by team.
        ended: How many jobs came to their end.
        preempted: How often a job was stopped for another one.
        failed: How often a failure stopped a job.
    """

    seconds: float
    gpus: int
    load: float
    utilization: float
    lost_gpu_hours: float
    waits: WaitFigures
    by_size: Mapping[str, WaitFigures]
    by_team: Mapping[str, WaitFigures]
    ended: int
    preempted: int
    failed: int


def size_of(gpus: int) -> str:
    """Return the class of a job by its GPUs."""
    return SIZES[0] if gpus < 2 else SIZES[1] if gpus < 8 else SIZES[2]


def figures(runs: TraceRuns, *, gpus: int, load: float, until: float) -> TraceFigures:
    """Return the figures of a simulation.

    Args:
        runs: What happened.
        gpus: How many GPUs there are.
        load: What jobs ask for.
        until: The end of the time whose utilization is judged, in seconds: mostly the last arrival,
            since after it the cluster only empties.
    """
    each = runs.come
    begin = min((run.job.at for run in each), default=0.0)
    seconds = max(1.0, min(until, runs.now) - begin)
    held = sum(
        run.job.gpus * max(0.0, min(until, runs.now if end is None else end) - start)
        for run in each
        for start, end in run.runs
    )
    lost = sum(
        run.job.gpus * (end - start)
        for run in each
        for start, end in run.runs[: -1 if run.ended else None]
        if end is not None
    )
    teams = sorted({run.job.team for run in each})
    sizes = {name: [r for r in each if size_of(r.job.gpus) == name] for name in SIZES}
    return TraceFigures(
        seconds=seconds,
        gpus=gpus,
        load=load,
        utilization=held / (gpus * seconds),
        lost_gpu_hours=lost / 3_600,
        waits=waits(each, runs),
        by_size={name: waits(found, runs) for name, found in sizes.items() if found},
        by_team={t: waits([r for r in each if r.job.team == t], runs) for t in teams},
        ended=sum(run.ended for run in each),
        preempted=sum(run.preempted for run in each),
        failed=sum(run.failed for run in each),
    )


def waits(jobs: Sequence[JobRun], runs: TraceRuns) -> WaitFigures:
    """Return how long some of the jobs of a simulation waited."""
    found = sorted(run.waited(runs.now) for run in jobs if run.runs)
    others = [run.waited(runs.now) for run in jobs if not run.runs]
    return WaitFigures(
        jobs=len(jobs),
        started=len(found),
        never=len(others) if runs.over else 0,
        waiting=max(others, default=None),
        mean=sum(found) / len(found) if found else None,
        median=_quantile(found, 0.5),
        p90=_quantile(found, 0.9),
        longest=_quantile(found, 1.0),
    )


def _quantile(ordered: Sequence[float], part: float) -> float | None:
    """Return the least value that `part` of all do not exceed; None of none."""
    return ordered[max(0, ceil(part * len(ordered)) - 1)] if ordered else None


def used_over_time(
    runs: Iterable[JobRun], *, until: float, parts: int, begin: float = 0.0
) -> list[float]:
    """Return how many GPUs were held on average in each of as many equal parts of the time."""
    width = max(1e-9, (until - begin) / parts)
    held = [0.0] * parts
    for run in runs:
        for start, end in run.runs:
            first, last = start - begin, min(until, until if end is None else end) - begin
            for part in range(max(0, int(first / width)), min(parts, int(last / width) + 1)):
                inside = min(last, (part + 1) * width) - max(first, part * width)
                held[part] += run.job.gpus * max(0.0, inside)
    return [each / width for each in held]


class Bar(Value, frozen=True):
    """Adjacent GPUs that a run held, in a chart whose rows are GPUs.

    Attributes:
        row: The first.
        rows: How many.
        begin: In seconds.
        end: In seconds.
        team: Whose run it was.
    """

    row: int
    rows: int
    begin: float
    end: float
    team: str


def bars(runs: TraceRuns) -> Iterator[Bar]:
    """Yield the bars of a Gantt chart: each run holds the lowest rows that are free.

    The rows say how many GPUs are held, and not which.
    """
    spans = [
        (start, runs.now if end is None else end, run.job)
        for run in runs.runs.values()
        for start, end in run.runs
    ]
    spans.sort(key=lambda span: (span[0], span[2].key))
    held: list[tuple[float, list[int]]] = []
    free: list[int] = []
    rows = 0
    for start, end, job in spans:
        while held and held[0][0] <= start:
            for row in heappop(held)[1]:
                heappush(free, row)
        while len(free) < job.gpus:
            heappush(free, rows)
            rows += 1
        taken = [heappop(free) for _ in range(job.gpus)]
        if end > start:
            heappush(held, (end, taken))
            yield from (
                Bar(row=first, rows=length, begin=start, end=end, team=job.team)
                for first, length in _adjacent(taken)
            )
        else:
            for row in taken:
                heappush(free, row)


def _adjacent(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the number of each group of adjacent rows, of rows in order."""
    first = 0
    for number in range(1, len(rows) + 1):
        if number == len(rows) or rows[number] != rows[number - 1] + 1:
            yield rows[first], number - first
            first = number
