"""`make bench-forecast`: forecasts of starts on a trace, judged by what then happens.

The whole trace runs on a cluster of one queue (BestEffortFIFO). Its size is such that the trace
needs the given part of it on average: at 0.9, nine tenths. Forecasts learn from all that has
happened before they are made, are corrected from the middle of the trace on, and are judged on the
last fifth: for jobs that wait, when they are submitted, as many of each class of size; the total
weighs each class by its number of jobs.

`--judge 0.6 0.8` judges another part; what is chosen by looking at figures is chosen there.

A second table has the goals, how far the forecasts are from them, and two limits: the oracle, which
knows all run times, and how many starts could be near at best if the simulations are right: the
largest part of the draws that is near one start.
"""

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from time import process_time

from rich.console import Console
from rich.table import Table

from policyd.forecast.starts import ForecastSettings
from tests.bench_forecast.judge import Figures, Judged, figures, nearest
from tests.bench_forecast.trace import (
    Replay,
    TraceJob,
    mean_gpus,
    queue_of,
    read,
    starts_of,
)

LOADS = {0.7: 40, 0.9: 16, 1.1: 12}
"""Loads, and how many forecasts of each class are judged: as many as take a quarter of an hour."""
CLASSES = ("1", "2-7", "8+")
COVERAGE, CLASS_COVERAGE, LOSS, NEAR = (0.88, 0.92), (0.85, 0.95), 1 / 3, 0.5
"""The goals."""

FORECAST, ORACLE = ForecastSettings(), ForecastSettings(draws=7)
"""The oracle has fewer draws: they differ by what comes later, and by nothing else."""

ORACLES = 4
"""One in so many of the judged forecasts is made by the oracle, too: it is nearly always right."""

CALIBRATION = 0.25
"""How much of the trace, before the judged part, forecasts are corrected by."""


def main() -> int:
    arguments = parse()
    jobs = read(arguments.trace)
    console, results = Console(width=150), {}
    for load in arguments.load:
        gpus = round(mean_gpus(jobs) / load)
        results[load] = run(jobs, gpus, arguments, console, load)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))
    return 0


def parse():
    parser = argparse.ArgumentParser(prog="bench-forecast", description=__doc__)
    default = Path("../shared/traces/philly_82k.csv")
    parser.add_argument("--trace", type=Path, default=default, help="CSV of jobs")
    parser.add_argument(
        "--load", type=float, nargs="+", default=list(LOADS), help="parts of the cluster"
    )
    parser.add_argument("--judge", type=float, nargs=2, default=(0.8, 1.0), help="part of the jobs")
    parser.add_argument("--samples", type=int, help="forecasts of each class of size")
    parser.add_argument("--no-oracle", action="store_true", help="leave out the oracle")
    parser.add_argument("--strict", action="store_true", help="StrictFIFO")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    if not arguments.trace.exists():
        parser.error(f"`{arguments.trace}` is not there: name the trace by TRACE=")
    return arguments


def run(jobs, gpus, arguments, console, load):
    """Judge forecasts at one load, print a table, and return the figures."""
    spec = queue_of(gpus, strict=arguments.strict)
    starts = starts_of(jobs, spec)
    begin, end = (int(part * len(jobs)) for part in arguments.judge)
    first = int((arguments.judge[0] - CALIBRATION) * len(jobs))
    waiting = [job for job in jobs[first:end] if starts[job.key] > job.at]
    judged_from = jobs[begin].at
    count = arguments.samples or LOADS.get(load, min(LOADS.values()))
    before = sample([job for job in waiting if job.at < judged_from], count)
    chosen = sample([job for job in waiting if job.at >= judged_from], count)
    counts = Counter(job.size_class for job in waiting if job.at >= judged_from)
    found, rows = {}, {}
    for who, jobs_of in (("forecast", [*before, *chosen]), ("oracle", chosen[::ORACLES])):
        if who == "oracle" and arguments.no_oracle:
            continue
        settings = FORECAST if who == "forecast" else ORACLE
        replay = Replay(jobs, spec, starts, settings=settings, declared=who == "oracle")
        began = process_time()
        judged = judge(replay, jobs_of, starts, judged_from, jobs[end - 1].at)
        found[who] = rates(judged, counts)
        rows[who] = process_time() - began, len(jobs_of)
    console.print(table(load, gpus, counts, found))
    console.print(goals(found))
    for who, (seconds, made) in rows.items():
        console.print(
            f"{who}: {made} forecasts, {seconds / made:.2f} s of CPU each, {seconds:.0f} s"
        )
    console.print()
    return {who: {name: asdict(each) for name, each in of.items()} for who, of in found.items()}


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


def table(load, gpus, counts, found) -> Table:
    title = f"load {load}: {gpus} GPUs; {sum(counts.values())} jobs of the judged part wait"
    table = Table(title=title, title_justify="left")
    for name in ("", "class", "forecasts", "coverage", "early", "late", "width", "width / wait",
                 "loss / average's", "median's loss / average's", "near", "average near",
                 "unknown", "undecided"):  # fmt: skip
        table.add_column(name, justify="right" if name else "left")
    for who, of in found.items():
        for name, each in of.items():
            covered = within(*(COVERAGE if name == "all" else CLASS_COVERAGE))
            loss, near = (LOSS, NEAR) if name == "all" else (None, None)
            table.add_row(
                who, name, str(each.forecasts),
                marked(each.coverage, covered),
                percent(each.early), percent(each.late),
                "" if each.width is None else f"{each.width / 3600:.1f} h",
                "" if each.relative_width is None else f"{each.relative_width:.2f}",
                ratio(each.loss_ratio, loss), ratio(each.median_loss_ratio),
                marked(each.near, None if near is None else lambda x: x >= NEAR),
                percent(each.near_average), percent(each.unknown), percent(each.undecided),
            )  # fmt: skip
        table.add_section()
    return table


def goals(found) -> Table:
    """Return the goals, with what is reached, what is possible, and the distances to both."""
    table = Table(title="goals", title_justify="left")
    for name in ("", "goal", "reached", "missing", "oracle", "from the oracle", "at best"):
        table.add_column(name, justify="right" if name else "left")
    of, oracle = found["forecast"], found.get("oracle", {})
    for name, each in of.items():
        least, most = COVERAGE if name == "all" else CLASS_COVERAGE
        reached = each.coverage
        missing = None if reached is None else max(0.0, least - reached, reached - most)
        limit = oracle[name].coverage if name in oracle else None
        goal = f"{percent(least)} to {percent(most)}"
        table.add_row(f"coverage, {name}", goal, *cells(percent, reached, missing, limit), "")
    every, limits = of["all"], oracle.get("all")
    reached, limit = every.loss_ratio, limits and limits.loss_ratio
    missing = None if reached is None else max(0.0, reached - LOSS)
    table.add_row("loss", f"{LOSS:.2f}", *cells(ratio, reached, missing, limit), "")
    reached, limit = every.near, limits and limits.near
    missing = None if reached is None else max(0.0, NEAR - reached)
    shown = cells(percent, reached, missing, limit)
    table.add_row("near", percent(NEAR), *shown, percent(every.best))
    return table


def cells(written, reached, missing, limit):
    """Return what is reached and missing, the limit, and how far that is away, as text."""
    distance = None if None in (reached, limit) else abs(limit - reached)
    return [written(each) for each in (reached, missing, limit, distance)]


def within(least, most):
    return lambda part: least <= part <= most


def percent(part):
    return "" if part is None else f"{100 * part:.0f} %"


def marked(part, met):
    if part is None or met is None:
        return percent(part)
    return f"{100 * part:.1f} % {'✓' if met(part) else '✗'}"


def ratio(value, goal=None):
    if value is None:
        return ""
    return f"{value:.2f}" + ("" if goal is None else " ✓" if value <= goal else " ✗")


if __name__ == "__main__":
    sys.exit(main())
