"""`make soak`: random jobs on a real control plane, and what came of them.

Every job ends or waits with a reason that is true, nothing that policyd writes is refused, no more
quota is held than there is, all of it is returned, and memory does not grow.
"""

import argparse
import json
import logging
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import structlog

from tests.scenarios.clusters import SCHEMAS, Schemas
from tests.soak.judge import lines_about
from tests.soak.soak import Soak
from tests.soak.stage import opened

SHOWN = 12
"""Of each judgement, so many findings are printed; the JSON has all."""

OPEN = "open"
NAME = re.compile(r"[a-z]+-\d+")


def main() -> int:
    """Soak, print what was found, and return 1 if anything was."""
    options = _options()
    print(f"seed {options.seed}", flush=True)
    # Fresh controllers run in this process; what they log is nobody's decision.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with tempfile.TemporaryDirectory(prefix="policyd-soak-") as name:
        folder = Path(options.logs or name).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        with opened(folder, options.schemas) as stage:
            soak = Soak(options.seed)
            soak.run(stage, options.minutes)
        report = reported(soak, options.minutes)
        show(report, sorted(folder.glob("*er.log")) + sorted(folder.glob("webhooks.log")))
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=2))
    return 1 if any(report["found"].values()) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long jobs come")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument(
        "--schemas", choices=get_args(Schemas), default=SCHEMAS, help="of Kueue's kinds"
    )
    parser.add_argument("--json", default="", help="where to write what was found")
    parser.add_argument("--logs", default="", help="a folder where all logs stay")
    return parser.parse_args()


def reported(soak: Soak, minutes: float) -> dict[str, Any]:
    """Return what there is to say of a soak."""
    watch, jobs = soak.watch, soak.load.jobs
    return {
        "seed": soak.seed,
        "minutes": minutes,
        "jobs": dict(Counter(made.kind for made in jobs)),
        "features": dict(Counter(each for made in jobs for each in made.features)),
        "acts": dict(soak.load.done),
        "ended": dict(soak.ended),
        "admissions": watch.quotas.admissions,
        "evictions": dict(watch.quotas.evictions),
        "most": {" ".join(k): v / 1000 for k, v in watch.quotas.most.items() if "gpu" in k[2]},
        "looks": watch.replays.count,
        "longest_without_reason": max(watch.reasons.longest.values(), default=0.0),
        "memory_mb": {
            name: [memory.samples[0][1], memory.samples[-1][1], memory.growth()]
            for name, memory in watch.memory.items()
        },
        "other_acts_refused": {act: dict(refusals) for act, refusals in soak.load.refusals.items()},
        "found": soak.found,
    }


def show(report: dict[str, Any], logs: Sequence[Path]) -> None:
    """Print a report as a table, and what to look at."""
    for name in ("jobs", "features", "acts", "ended", "evictions", "most"):
        counted = sorted(report[name].items(), key=lambda item: -item[1])
        print(f"{name:<12}{', '.join(f'{what or OPEN} {count:g}' for what, count in counted)}")
    print(f"{'admissions':<12}{report['admissions']}")
    for name, (first, last, growth) in report["memory_mb"].items():
        grown = f"{growth:+.1f} MB over the second half"
        print(f"{'memory':<12}{name}: {first:.0f} MB, at the end {last:.0f} MB; {grown}")
    print(f"{'compared':<12}{report['looks']} times with what a fresh controller would do")
    longest = report["longest_without_reason"]
    print(f"{'reasons':<12}{longest:.0f} s at most without one")
    for act, refusals in report["other_acts_refused"].items():
        for text, count in refusals.items():
            print(f"  refused to users: {act}: {count} x {text[:300]}")
    print()
    for what, found in report["found"].items():
        print(f"{what:<60}{len(found) or 'none':>6}")
        for line in found[:SHOWN]:
            print(f"  {line}")
        _print_findings(found[:SHOWN], logs)


def _print_findings(found: Sequence[str], logs: Sequence[Path]) -> None:
    """Print the last lines of the logs about the first objects that something is wrong with."""
    names = dict.fromkeys(name for line in found for name in NAME.findall(line))
    for name in list(names)[:3]:
        for line in lines_about([name], logs, most=4):
            print(f"    {line}")


if __name__ == "__main__":
    sys.exit(main())
