"""The scenarios of the bench: forecasts, or the oracle's, at one load each."""

from collections import Counter
from dataclasses import dataclass
from time import process_time

from policyd.forecast.starts import ForecastSettings
from tests.bench_forecast.judge import Figures, Judged, figures, nearest
from tests.bench_forecast.trace import Replay, TraceJob, mean_gpus, queue_of, starts_of

LOADS = {0.7: 40, 0.9: 40, 1.1: 40}
"""Loads, and how many forecasts of each class are judged, in less than a quarter of an hour."""
CLASSES = ("1", "2-7", "8+")
FORECAST, ORACLE = ForecastSettings(), ForecastSettings(draws=7)
"""The oracle has fewer draws: they differ by what comes later, and by nothing else."""

ORACLES = 4
"""One in so many of the judged forecasts is made by the oracle, too: it is nearly always right."""

CALIBRATION = 0.25
"""How much of the trace, before the judged part, forecasts are corrected by."""


@dataclass(frozen=True)
class Run:
    """What came of one scenario: forecasts, or the oracle's, at one load."""

    gpus: int
    counts: Counter
    figures: dict[str, Figures]
    made: int
    seconds: float


def run(shared, number) -> Run:
    """Judge the forecasts of one scenario."""
    jobs, arguments, points = shared
    load, who = points[number]
    gpus = round(mean_gpus(jobs) / load)
    spec = queue_of(gpus, strict=arguments.strict)
    starts = starts_of(jobs, spec)
    begin, end = (int(part * len(jobs)) for part in arguments.judge)
    first = int((arguments.judge[0] - CALIBRATION) * len(jobs))
    waiting = [job for job in jobs[first:end] if starts[job.key] > job.at]
    judged_from = jobs[begin].at
    count = arguments.samples or LOADS.get(load, min(LOADS.values()))
    oracle = who == "oracle"
    after = [job for job in waiting if job.at >= judged_from]
    if oracle:
        made = sample(after, max(1, count // ORACLES))
    else:
        made = sample([job for job in waiting if job.at < judged_from], count)
        made += sample(after, count)
    counts = Counter(job.size_class for job in after)
    settings = ORACLE if oracle else FORECAST
    began = process_time()
    replay = Replay(jobs, spec, starts, settings=settings, declared=oracle)
    judged = judge(replay, made, starts, judged_from, jobs[end - 1].at)
    return Run(gpus, counts, rates(judged, counts), len(made), process_time() - began)


def sample(jobs: list[TraceJob], count: int) -> list[TraceJob]:
    """Return as many jobs of each class, evenly over time."""
    chosen = []
    for name in CLASSES:
        of = [job for job in jobs if job.size_class == name]
        step = max(1.0, len(of) / count)
        chosen += [of[int(n * step)] for n in range(min(count, len(of)))]
    return sorted(chosen, key=lambda job: job.at)


def judge(replay: Replay, chosen, starts, judged_from: float, last: float) -> list[Judged]:
    """Make the forecasts, in the order of time, and return those of the judged part."""
    judged = []
    for job in chosen:
        replay.until(job.at)
        average = sum(replay.recent) / max(1, len(replay.recent))
        forecast = replay.forecast(job.key, now=job.at)
        start = starts[job.key]
        if job.at >= judged_from:
            waited = start - job.at if start <= last else None
            interval = forecast.interval
            best = nearest(replay.waits.get(job.key, ()))
            judged.append(Judged(job.size_class, interval, average, waited, last - job.at, best))
    return judged


def rates(judged: list[Judged], counts: Counter) -> dict[str, Figures]:
    """Return the figures of all, and of each class."""
    made = Counter(each.size_class for each in judged)
    weights = {name: counts[name] / made[name] for name in made}
    found = {"all": figures(judged, weights)}
    for name in CLASSES:
        found[name] = figures([each for each in judged if each.size_class == name], weights)
    return found
