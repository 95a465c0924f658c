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
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from policyd.cli.planning.executors import Scenarios, cores, run_here, run_on_ray
from tests.bench_forecast.runs import LOADS, Run, run
from tests.bench_forecast.trace import read

COVERAGE, CLASS_COVERAGE, LOSS, NEAR = (0.88, 0.92), (0.85, 0.95), 1 / 3, 0.5
"""The goals."""


def main() -> int:
    arguments = parse()
    who = ("forecast",) if arguments.no_oracle else ("forecast", "oracle")
    points = [(load, each) for load in arguments.load for each in who]
    scenarios = Scenarios((read(arguments.trace), arguments, points), len(points), run)
    if arguments.ray:
        found = run_on_ray(scenarios, arguments.ray)
    else:
        found = run_here(scenarios, arguments.workers or cores())
    console, results = Console(width=150), {}
    for load in arguments.load:
        of = {each: run for (at, each), run in zip(points, found, strict=True) if at == load}
        show(console, load, of)
        results[load] = {
            each: {name: asdict(figures) for name, figures in run.figures.items()}
            for each, run in of.items()
        }
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
    parser.add_argument("--workers", type=int, help="processes; one for each core by default")
    parser.add_argument("--ray", metavar="ADDRESS", help="a Ray cluster to make the forecasts on")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    if not arguments.trace.exists():
        parser.error(f"`{arguments.trace}` is not there: name the trace by TRACE=")
    return arguments


def show(console, load, of: dict[str, Run]) -> None:
    """Print the tables of one load."""
    found, first = {who: each.figures for who, each in of.items()}, of["forecast"]
    console.print(table(load, first.gpus, first.counts, found))
    console.print(goals(found))
    for who, each in of.items():
        one = each.seconds / each.made
        console.print(f"{who}: {each.made}, {one:.2f} s of CPU each, {each.seconds:.0f} s in all")
    console.print()


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
