"""`make histories`: lives through many histories, two at a time, and prints what took part."""

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from resource import RUSAGE_SELF, getrusage
from statistics import median

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.histories.apart import apart
from tests.histories.history import live_through, outcome_of, warm_up
from tests.histories.judges import JUDGES
from tests.histories.plan import FAULTS, HASH_SEED, Plan, Size, begin_with_hash_seed, plan_of
from tests.histories.shrink import shrink, story


def main():
    """Run histories, and end with 1 if a judge objects to one of them."""
    options = _options()
    begin_with_hash_seed("tests.histories")
    if options.replay:
        plan = Plan.of(json.loads(Path(options.replay).read_text()))
        outcome = live_through(plan)
        print(story(outcome))
        return bool(outcome.faults)
    if options.size:
        return _live_through_a_day(options)
    began = time.monotonic()
    plans = map(plan_of, range(options.seed, options.seed + options.n))
    warm_up()
    each = apart(outcome_of, plans, at_once=options.processes)
    found = track(each, "histories", total=options.n, console=Console(stderr=True))
    outcomes = sorted(found, key=lambda outcome: outcome.plan.seed)
    figures = _figures(outcomes, time.monotonic() - began)
    _print(figures)
    failed = [outcome for outcome in outcomes if outcome.faults]
    for outcome in failed[: options.stories]:
        _report(outcome, options)
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2))
    return bool(failed)


def _options():
    parser = argparse.ArgumentParser(prog="python -m tests.histories")
    parser.add_argument("-n", type=int, default=1000, help="histories")
    parser.add_argument("--seed", type=int, default=0, help="of the first; the next have the next")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at a time")
    parser.add_argument("--stories", type=int, default=3, help="failures that are shrunk and told")
    parser.add_argument("--json", help="a file for the figures")
    parser.add_argument("--replay", metavar="FILE", help="a history that was written before")
    parser.add_argument("--size", metavar="QUEUES,NODES,WORKLOADS", type=_size,
                        help="live through one day of a large cluster")  # fmt: skip
    return parser.parse_args()


def _size(text):
    return Size(*map(int, text.split(",")))


def _live_through_a_day(options):
    """Live through a day of a large cluster; print what it takes, and what is wrong at its end.

    The other judges look at all writes for each queue: they would take longer than the day.
    """
    judges = {name: JUDGES[name] for name in ("the end", "lost", "errors", "rights", "leader")}
    warm_up()
    before = getrusage(RUSAGE_SELF).ru_maxrss
    outcome = live_through(plan_of(options.seed, options.size), judges=judges, collects=False)
    figures = {
        "CPU seconds": round(outcome.seconds),
        "simulated hours": round(outcome.simulated / 3600, 1),
        "peak load": round(outcome.peak_load, 2),
        "workloads": outcome.workloads,
        "writes": outcome.writes,
        "MiB": (getrusage(RUSAGE_SELF).ru_maxrss - before) // 1024,
    }
    print(", ".join(f"{name} {value}" for name, value in figures.items()))
    for name, text in outcome.faults[:10]:
        print(f"{name}: {text}")
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2))
    return bool(outcome.faults)


def _report(outcome, options):
    """Shrink a failure, print it, and write it to a file that `--replay` reads."""
    small = shrink(outcome)
    folder = Path("build")
    folder.mkdir(exist_ok=True)
    file = folder / f"history-{outcome.plan.seed}.json"
    file.write_text(json.dumps(small.plan.as_json(), indent=1))
    print(f"\n{story(small)}\n\n{HASH_SEED}=0 python -m tests.histories --replay {file}")


def _figures(outcomes, seconds):
    """Return what there was, in total and by the median history."""
    done, struck, objections = Counter(), Counter(), Counter()
    for outcome in outcomes:
        done.update(outcome.done)
        struck.update(outcome.struck)
        objections.update({name for name, _ in outcome.faults})
    middle = {
        "hours": median(outcome.simulated / 3600 for outcome in outcomes),
        "peak load": median(outcome.peak_load for outcome in outcomes),
        "workloads": median(outcome.workloads for outcome in outcomes),
        "faults": median(sum(n for act, n in o.done.items() if act in FAULTS) for o in outcomes),
        "writes": median(outcome.writes for outcome in outcomes),
        "CPU seconds": median(outcome.seconds for outcome in outcomes),
    }
    return {
        "histories": len(outcomes),
        "seconds": seconds,
        "failed": sum(bool(outcome.faults) for outcome in outcomes),
        "failed seeds": [outcome.plan.seed for outcome in outcomes if outcome.faults],
        "objections": dict(objections),
        "median": middle,
        "took part": dict(done.most_common()),
        "requests and watches that were struck": dict(struck.most_common()),
    }


def _print(figures):
    table = Table("", "", show_header=False)
    table.add_row("histories", f"{figures['histories']} in {figures['seconds']:.0f} s")
    table.add_row("failed", f"{figures['failed']} {figures['objections'] or ''}")
    for name, value in figures["median"].items():
        table.add_row(f"{name}, median", f"{value:.2f}".rstrip("0").rstrip("."))
    for part in ("took part", "requests and watches that were struck"):
        for name, count in figures[part].items():
            table.add_row(name if part == "took part" else f"{name}, struck", str(count))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
