"""When pending workloads start: the queue, simulated many times.

1. Every running and pending workload gets a run time for each draw: as declared, or from history,
   given how long it has run already. What came lately comes again, from another moment of the past
   in each draw.
2. All draws are simulated by quotas alone. A few of them are simulated by the allocation core, too,
   for the first workloads in line: how far the two differ moves the results of all draws.
3. The interval leaves out a twentieth of the draws at each end. Then it is corrected by what
   happened after earlier forecasts of workloads of the same size.

What cannot be known is not guessed: the forecast has a reason in place of an interval.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Set
from itertools import takewhile
from math import inf
from statistics import median
from typing import Literal, TypeVar

from msgspec.structs import replace

from policyd.alloc.state import CoreState
from policyd.alloc.value import Value
from policyd.alloc.workload import QueuedWorkload
from policyd.forecast.arrivals import ArrivalHistory, PastArrival
from policyd.forecast.batches import Batches, ForecastBatches, RecentRuns
from policyd.forecast.coarse import (
    CoarseQueues,
    CoarseRun,
    ForecastWorkload,
    StartProbe,
    first_starts,
)
from policyd.forecast.correction import GRACE_SECONDS, Correction, Interval, Shift
from policyd.forecast.exact import ExactStarts, exact_starts
from policyd.forecast.run_times import JobTraits, RunTimeCurve, RunTimeHistory
from policyd.simulate.draws import DrawnNumbers, spread
from policyd.simulate.scenario import Arrival

UnknownReason = Literal["", "BacksOff", "Misconfigured", "NeverFits", "NoHistory", "TooFar"]
"""Why there is no forecast.

It is not to be tried for now; it cannot be considered; its queue never holds it; too few jobs have
ended to tell how long others run; in some draws it has not started by the horizon.
"""

DAY = 86_400.0

T = TypeVar("T")


class ForecastSettings(Value, frozen=True):
    """How much work a forecast is.

    Attributes:
        draws: How often the queue is simulated; a prime number.
        exact_draws: How many of these are simulated by the allocation core, too.
        exact_first: For how many pending workloads, the first in line.
        coarse_first: For how many it is simulated at all, the first of each queue.
        horizon_seconds: How far to look ahead.
    """

    draws: int = 19
    exact_draws: int = 1
    exact_first: int = 1_000
    coarse_first: int = 5_000
    horizon_seconds: float = 45 * DAY


DEFAULTS = ForecastSettings()

ALONE = 20_000
"""How much is simulated for probes that are submitted alone: workloads."""


class KnownJob(Value, frozen=True):
    """A workload that is pending or runs, and what it has in common with others.

    Attributes:
        workload: It runs if it has an admission, since its `reserved_at`; its `run_seconds` is its
            declared limit.
        traits: Where its run time is looked up if it declares none.
        size_class: Whose forecasts correct its own; see `size_class_of`.
    """

    workload: QueuedWorkload
    traits: JobTraits
    size_class: str = ""


Steps = Generator[None, None, None]


class QueuesNow(Value, frozen=True):
    """The present.

    Attributes:
        now: The time, in seconds.
        jobs: All that are pending or run, in any order.
        queues: ClusterQueues and Cohorts, by their limits.
        make_state: Makes a state of the core with these and no workloads; None to do without.
        behind: Pending workloads that are not simulated, in the order of their turns: all of them
            come after those of their queue in `jobs`.
        probes: Workloads that are not submitted, whose starts are forecast, too.
        plain: Queues in which nothing but quota and order decides: of the others, fewer probes
            get a forecast.
    """

    now: float
    jobs: Sequence[KnownJob]
    queues: CoarseQueues
    make_state: Callable[[], CoreState] | None = None
    behind: Sequence[QueuedWorkload] = ()
    probes: Sequence[KnownJob] = ()
    plain: Set[str] = frozenset()


class StartForecast(Value, frozen=True):
    """When a workload starts.

    Attributes:
        interval: How long from now, in seconds: median, and an interval that holds nine starts of
            ten; None if that is unknown.
        unknown: Why, if so.
        coarse: Whether quotas alone were simulated, and not the allocation core.
    """

    interval: Interval | None
    unknown: UnknownReason = ""
    coarse: bool = False


def size_class_of(devices: int) -> str:
    """Return the class of a workload by its devices: `0`, `1`, `2-7` or `8+`."""
    return str(devices) if devices < 2 else "2-7" if devices < 8 else "8+"


class Forecaster:
    """What is remembered, and forecasts made of it.

    Attributes:
        run_times: How long jobs ran.
        recent: Jobs that ended lately, one by one.
        arrivals: What came lately.
        correction: How earlier forecasts turned out.
        settings: How much work the next forecast is.
    """

    def __init__(
        self,
        *,
        run_times: RunTimeHistory,
        arrivals: ArrivalHistory,
        correction: Correction,
        settings: ForecastSettings = DEFAULTS,
    ) -> None:
        self.recent = RecentRuns()
        self.run_times, self.arrivals, self.correction = run_times, arrivals, correction
        self.settings = settings

    def forecast(
        self, present: QueuesNow, *, wanted: Iterable[str] | None = None
    ) -> dict[str, StartForecast]:
        """Return when pending workloads start, by key.

        Args:
            present: Queues and jobs now.
            wanted: Keys of pending workloads; None for all, and for probes.
        """
        return _finished(self.steps(present, wanted=wanted))

    def steps(
        self, present: QueuesNow, *, wanted: Iterable[str] | None = None
    ) -> Generator[None, None, dict[str, StartForecast]]:
        """Return the same as `forecast`, step by step.

        Yields:
            Nothing, after each step of some milliseconds at most.
        """
        draws = _Draws(self, present, self.settings)
        yield from draws.prepare()
        keys = draws.pending.keys() if wanted is None else set(wanted)
        found = yield from draws.waits([key for key in draws.pending if key in keys])
        classes = {job.size_class for job in (*draws.pending.values(), *present.probes)}
        shifts = {each: self.correction.shift(each, now=present.now) for each in classes}
        forecasts: dict[str, StartForecast] = {}
        for key, waits in found.items():
            forecasts[key] = self._forecast(
                draws, key, waits, shifts[draws.pending[key].size_class]
            )
            yield
        if wanted is None:
            yield from self._extrapolate(draws, forecasts)
            yield from draws.submit_alone()
            for probe in present.probes:
                key = probe.workload.key
                forecasts[key] = draws.of_probe(probe, shifts[probe.size_class])
                yield
        return forecasts

    def _extrapolate(self, draws: "_Draws", forecasts: dict[str, StartForecast]) -> Steps:
        """Tell of those behind: their queue goes on as fast as up to its last simulated workload.

        Those that never fit take no turn.
        """
        last: dict[str, tuple[int, StartForecast]] = {}
        for key, job in draws.pending.items():
            if key in forecasts and draws.kinds[key] is not None:
                name = job.workload.cluster_queue
                place = last[name][0] + 1 if name in last else 1
                last[name] = place, forecasts[key]
            yield
        turns = {name: place for name, (place, _) in last.items()}
        for workload in draws.present.behind:
            name = workload.cluster_queue
            forecasts[workload.key] = not_simulated = draws.objection_to(workload) or TOO_FAR
            if not_simulated is TOO_FAR and name in last:
                place, forecast = last[name]
                turns[name] += 1
                forecasts[workload.key] = _later(forecast, turns[name] / place, self.settings)
            yield

    def _forecast(
        self, draws: "_Draws", key: str, waits: list[float], shift: Shift
    ) -> StartForecast:
        job, coarse = draws.pending[key], key not in draws.exact
        if key in draws.objections:
            return draws.objections[key]
        raw = interval_of(waits)
        if raw.high == inf:
            unknown: UnknownReason = "TooFar" if draws.complete else "NoHistory"
            return StartForecast(interval=None, unknown=unknown, coarse=coarse)
        now = draws.present.now
        certain = raw.low == raw.high
        self.correction.promise(key, job.size_class, raw, at=now)
        return StartForecast(interval=raw if certain else shift.applied(raw), coarse=coarse)


TOO_FAR = StartForecast(interval=None, unknown="TooFar", coarse=True)
_OBJECTIONS: Mapping[UnknownReason, StartForecast] = {
    reason: StartForecast(interval=None, unknown=reason)
    for reason in ("BacksOff", "Misconfigured", "NeverFits")
}


def _later(forecast: StartForecast, times: float, settings: ForecastSettings) -> StartForecast:
    """Return the forecast of a workload whose place is so many times as far as another's."""
    interval = forecast.interval
    if interval is None or interval.high * times > settings.horizon_seconds:
        return TOO_FAR if interval is not None else replace(forecast, coarse=True)
    ends = (each * times for each in (interval.low, interval.median, interval.high))
    return StartForecast(interval=Interval(*ends), coarse=True)


def _finished(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found


def interval_of(waits: Sequence[float]) -> Interval:
    """Return the median of waits, and the range that leaves out a twentieth at each end."""
    ordered, aside = sorted(waits), _aside(len(waits))
    middle = ordered[len(ordered) // 2]
    return Interval(low=ordered[aside], median=middle, high=ordered[-1 - aside])


def _aside(draws: int) -> int:
    """Return how many draws are beyond each end of the interval."""
    return max(0, (draws + 1) // 20 - 1)


class _Draws:
    """What may happen from now on, several times.

    Attributes:
        present: Queues and jobs now.
        pending: Jobs that wait, by key, the first in line first.
        kinds: Their kind; None for those that are not simulated.
        objections: Why those are not.
        exact: Keys of those that the allocation core simulates, the first in line first.
        complete: Whether every run time is known.
    """

    def __init__(self, of: Forecaster, present: QueuesNow, settings: ForecastSettings) -> None:
        self.present, self._of, self._settings = present, of, settings
        self._until = present.now + settings.horizon_seconds
        jobs = present.jobs
        self._running = [each for each in jobs if each.workload.admission is not None]
        self.pending = {
            each.workload.key: each
            for each in sorted(
                (each for each in jobs if each.workload.admission is None), key=_in_line
            )
        }
        self.kinds: dict[str, int | None] = {}
        self.objections: dict[str, StartForecast] = {}
        self._held: list[tuple[int, float, str]] = []
        self._lasts: dict[str, list[float]] = {}
        self._curves = of.run_times.curves(
            (each.traits, present.now - _since(each.workload, present.now))
            for each in self._running
        )
        self._batches = Batches(of.recent, self._curves, settings.draws)
        declared = all(each.workload.run_seconds is not None for each in jobs)
        self.complete = declared or self._curves.known
        vary = not declared or of.arrivals.expects(present.now)
        self._count = settings.draws if vary else 1
        self._like: dict[int, tuple[int | None, RunTimeCurve | None]] = {}
        with_core = present.make_state is not None and settings.exact_draws
        self._exact_draws = settings.exact_draws if with_core else 0
        first = list(self.pending)[: settings.exact_first]
        self.exact = dict.fromkeys(first if with_core else ())
        self._simulated, self._behind = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        self._held_up: set[str] = set()
        self._probes: dict[str, StartProbe] = {}
        self._probed: dict[str, list[float]] = {}
        self._ratios: dict[tuple[str, str], float] = {}

    def prepare(self) -> Steps:
        """Find the kind of each job, and how long it runs in each draw."""
        now = self.present.now
        for each in (*self._running, *self.pending.values()):
            of, runs = each.workload, each.workload.admission is not None
            if of.run_seconds is None:
                ran = now - _since(of, now) if runs else None
                self._batches.add(of.key, each.traits, queued_at=of.queued_at, ran_seconds=ran)
        yield from self._batches.draw()
        for each in self._running:
            key, kind = each.workload.key, self.present.queues.kind_of(each.workload)
            if kind is not None:
                self._held.append((kind, _since(each.workload, now), key))
            self._lasts[key] = self._lasting(each)
            yield
        for key, job in self.pending.items():
            self.kinds[key], objection = self._kind(job.workload)
            if objection is not None:
                self.objections[key] = objection
            self._lasts[key] = self._lasting(job)
            self._simulated[job.workload.cluster_queue, job.workload.priority] += objection is None
            yield
        if self.present.probes:
            yield from self._prepare_probes()

    def _prepare_probes(self) -> Steps:
        """Find the probes that their queues can hold, and count what is not simulated."""
        stuck = (key for key, each in self.objections.items() if each.unknown == "NeverFits")
        names = {self.pending[key].workload.cluster_queue for key in stuck}
        self._held_up |= {name for name in names if self.present.queues.is_strict(name)}
        for workload in self.present.behind:
            self._behind[workload.cluster_queue, workload.priority] += 1
            yield
        for job in self.present.probes:
            probe = self.present.queues.probe_of(job.workload, now=self.present.now)
            if probe is not None:
                self._probes[probe.key], self._probed[probe.key] = probe, []
            yield

    def objection_to(self, workload: QueuedWorkload) -> StartForecast | None:
        """Return why nothing is simulated for a pending workload; None if it may start."""
        return self._kind(workload)[1]

    def _kind(self, workload: QueuedWorkload) -> tuple[int | None, StartForecast | None]:
        if workload.objection is not None:
            return None, _OBJECTIONS["Misconfigured"]
        if workload.backing_off:
            return None, _OBJECTIONS["BacksOff"]
        kind = self.present.queues.kind_of(workload)
        return kind, None if kind is not None else _OBJECTIONS["NeverFits"]

    def _lasting(self, job: KnownJob) -> list[float]:
        """Return how long a job runs in all, in seconds, for each draw."""
        workload = job.workload
        if workload.evicted and workload.admission is not None:  # it stops in a moment
            return [self.present.now - _since(workload, self.present.now)] * self._count
        if workload.run_seconds is not None:
            return [workload.run_seconds] * self._count
        curve = self._curves.of(job.traits)
        if curve is None:
            return [inf] * self._count
        ran = self.present.now - _since(workload, self.present.now)
        parts = self._batches.parts(workload.key)[: self._count]
        return [max(ran, curve.quantile(part)) for part in parts]

    def waits(self, wanted: Sequence[str]) -> Generator[None, None, dict[str, list[float]]]:
        """Return how long each waits from now on, in each draw.

        Yields:
            Nothing, after each step.
        """
        now = self.present.now
        found: dict[str, list[float]] = {key: [] for key in wanted}
        differ: dict[str, list[float]] = {key: [] for key in wanted if key in self.exact}
        left, every = list(wanted), found | self._probed
        for draw in range(self._count):
            probes = [key for key, waits in self._probed.items() if not self._endless(waits)]
            starts = yield from self._coarse(draw, left, probes)
            for key in (*left, *probes):
                every[key].append(starts.get(key, inf) - now)
            exact = [key for key in left if key in differ] if draw < self._exact_draws else []
            if exact:
                core = yield from self._exact(draw, exact, starts)
                for key in exact if core.complete else core.at:
                    ratio = _ratio(core.at.get(key, inf) - now, starts.get(key, inf) - now)
                    differ[key].append(ratio)
            left = [key for key in left if key in differ or not self._endless(found[key])]
            if not left and not probes:
                break
        self._correct(found, differ)
        return found

    def _correct(self, found: dict[str, list[float]], differ: Mapping[str, list[float]]) -> None:
        """Correct waits by how the core differs; without its answer they are by quotas alone."""
        for key, ratios in differ.items():
            if not ratios:
                del self.exact[key]
                continue
            job, ratio = self.pending[key], median(ratios)
            self._ratios[job.workload.cluster_queue, job.size_class] = ratio
            found[key] = [_scaled(wait, ratio) for wait in found[key]]

    def submit_alone(self) -> Steps:
        """Simulate probes by themselves that others would wait for, as far as there is time.

        In a strict queue they hold up those behind them. In a cohort they keep quota of their queue
        from others, which matters where all else is certain. Those without time get no forecast.
        """
        queues, now, left = self.present.queues, self.present.now, ALONE
        for key, probe in self._probes.items():
            kind = queues.kinds[probe.kind]
            shared = self._count == 1 and kind.root in queues.shared
            if not (kind.strict or shared) or max(self._probed[key]) == 0.0:
                continue
            left -= (len(self.present.jobs) + 1) * self._count
            self._probed[key] = waits = []
            coming = ForecastWorkload(now, probe.kind, inf, key)
            for draw in range(self._count if left >= 0 else 0):
                starts = yield from self._coarse(draw, [key], (), (coming,))
                waits.append(starts.get(key, inf) - now)

    def of_probe(self, job: KnownJob, shift: Shift) -> StartForecast:
        """Return when a probe would start; unknown where that could be wrong.

        What the core would say of it is not known. In queues that are not plain it is as far from
        what quotas alone say as that of the last workload in line of its size.
        """
        key, queue, priority = job.workload.key, job.workload.cluster_queue, job.workload.priority
        waits = self._probed.get(key, ())
        if len(waits) < self._count or self._endless(waits):
            return TOO_FAR
        certain, shared = min(waits) == max(waits), self.present.queues.is_shared(queue)
        plain = queue in self.present.plain and queue not in self._held_up
        if self.present.queues.is_strict(queue):
            plain = plain and not shared
        ratio = 1.0 if plain else self._ratios.get((queue, job.size_class))
        ahead, behind = (
            sum(n for (name, own), n in lines.items() if name == queue and own >= priority)
            for lines in (self._simulated, self._behind)
        )
        if ratio is None or (certain and (not plain or behind or (shared and self._count > 1))):
            return TOO_FAR
        raw = interval_of([_scaled(wait, ratio) for wait in waits])
        if raw.high == inf:  # those that it is compared with never start
            return TOO_FAR
        forecast = StartForecast(interval=raw if certain else shift.applied(raw))
        return _later(forecast, 1 + behind / (ahead + 1), self._settings) if behind else forecast

    def _endless(self, waits: Sequence[float]) -> bool:
        """Tell whether the interval has no end, whatever the other draws will say."""
        return waits.count(inf) > _aside(self._count)

    def _coarse(
        self,
        draw: int,
        wanted: Sequence[str],
        probes: Sequence[str] = (),
        submitted: Sequence[ForecastWorkload] = (),
    ) -> Generator[None, None, Mapping[str, float]]:
        running = [(kind, begun + self._lasts[key][draw]) for kind, begun, key in self._held]
        pending = [
            ForecastWorkload(job.workload.queued_at, kind, self._lasts[key][draw], key)
            for key, job in self.pending.items()
            if (kind := self.kinds[key]) is not None
        ]
        run = CoarseRun(
            self.present.queues,
            running,
            [*pending, *submitted],
            now=self.present.now,
            probes=[self._probes[key] for key in probes],
        )
        can = [key for key in wanted if self.kinds.get(key, 0) is not None]
        found = yield from first_starts(run, self._coming(draw), wanted=can, until=self._until)
        return found

    def _coming(self, draw: int) -> Iterator[ForecastWorkload]:
        for at, past, lasts in self._arriving(draw):
            kind = self._like[id(past)][0]
            if kind is not None:
                yield ForecastWorkload(at, kind, lasts, "")

    def _arriving(self, draw: int) -> Iterator[tuple[float, PastArrival, float]]:
        """Yield what comes in a draw: when, like what, and how long it runs."""
        coming, like = ForecastBatches(DrawnNumbers(f"arrivals {draw}")), self._like
        part = spread("arrivals", self._settings.draws)[draw]
        for at, past in self._of.arrivals.replay(part, now=self.present.now):
            if id(past) not in like:
                kind = self.present.queues.kind_of(past.workload)
                like[id(past)] = kind, self._curves.of(past.traits)
            curve = like[id(past)][1]
            if past.workload.run_seconds is not None:
                yield at, past, past.workload.run_seconds
            else:
                yield (
                    at,
                    past,
                    inf if curve is None else curve.quantile(coming.part(past.traits, at=at)),
                )

    def _exact(
        self, draw: int, wanted: Sequence[str], starts: Mapping[str, float]
    ) -> Generator[None, None, ExactStarts]:
        """Simulate a draw by the core, as far as its first workloads go."""
        make_state, now = self.present.make_state, self.present.now
        assert make_state is not None, "without a state nothing is simulated by the core"
        last = max((starts[key] for key in wanted if key in starts), default=now)
        until = min(self._until, now + 2 * (last - now) + DAY)
        present = [
            self._arrival(job, draw)
            for job in (*self._running, *(self.pending[key] for key in self.exact))
        ]
        later = [
            Arrival(workload=_again(past.workload, number), at=at, run_seconds=_finite(lasts))
            for number, (at, past, lasts) in enumerate(
                takewhile(lambda each: each[0] <= until, self._arriving(draw))
            )
        ]
        yield
        arrivals = [*present, *later]
        found = yield from exact_starts(make_state, arrivals, wanted=wanted, until=until)
        return found

    def _arrival(self, job: KnownJob, draw: int) -> Arrival:
        now, workload = self.present.now, job.workload
        return Arrival(
            workload=workload,
            at=now,
            run_seconds=_finite(self._lasts[workload.key][draw]),
            ran_seconds=now - _since(workload, now),
            queued_at=workload.queued_at,
        )


def _in_line(job: KnownJob) -> tuple[int, float, str]:
    return -job.workload.priority, job.workload.queued_at, job.workload.uid


def _since(workload: QueuedWorkload, now: float) -> float:
    """Return since when a workload runs; now, if it does not or that is not known."""
    running = workload.admission is not None and workload.reserved_at is not None
    return min(now, workload.reserved_at or 0.0) if running else now


def _again(workload: QueuedWorkload, number: int) -> QueuedWorkload:
    """Return a workload like one that came, under another name."""
    key = f"arrival/{number}"
    return replace(workload, key=key, uid=key, admission=None, objection=None)


def _finite(seconds: float) -> float | None:
    return None if seconds == inf else seconds


def _ratio(exact: float, coarse: float) -> float:
    """Return how much longer the core says that a workload waits than its quotas alone."""
    if inf in (exact, coarse):
        return 1.0 if exact == coarse else inf if exact == inf else 0.0
    return (exact + GRACE_SECONDS) / (coarse + GRACE_SECONDS)


def _scaled(wait: float, by: float) -> float:
    if by == 1.0 or wait == inf:
        return wait
    return max(0.0, (wait + GRACE_SECONDS) * by - GRACE_SECONDS)
