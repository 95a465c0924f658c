"""`make histories`: lives through many histories, two at a time, and prints what took part."""

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tests.histories.apart import apart
from tests.histories.history import live_through, outcome_of, warm_up
from tests.histories.plan import FAULTS, HASH_SEED, Plan, plan_of
from tests.histories.shrink import shrink, story


def main():
    """Run histories, and end with 1 if a judge objects to one of them."""
    options = _options()
    if os.environ.get(HASH_SEED) != "0":
        os.execve(sys.executable, [sys.executable, "-m", "tests.histories", *sys.argv[1:]],
                  {**os.environ, HASH_SEED: "0"})  # fmt: skip
    if options.replay:
        plan = Plan.of(json.loads(Path(options.replay).read_text()))
        outcome = live_through(plan)
        print(story(outcome))
        return bool(outcome.faults)
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
    return parser.parse_args()


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
