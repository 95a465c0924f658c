"""`make faults`: break everything that can break, and go through the whole history afterwards.

After each fault: every job is complete, no workload was admitted twice, no queue and no cohort held
more than it may at any revision, and nothing stays behind when the jobs are deleted.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.faults.faults import Jobs, faults
from tests.faults.stage import Stage, opened

KILLS = 200


def main() -> int:
    """Make the faults one after the other, print a line for each; return 1 if one does harm."""
    options = _options()
    random.seed(options.seed)
    print(f"seed {options.seed}", flush=True)
    chosen = {
        name: fault
        for name, fault in faults(options.kills).items()
        if options.only.lower() in name.lower()
    }
    if not chosen:
        print(f"no fault has `{options.only}` in its name: {', '.join(faults(0))}", file=sys.stderr)
        return 2
    print(f"{'':<20}{'jobs':>6}{'admissions':>12}{'evictions':>11}{'most GPUs':>11}{'seconds':>9}")
    harm = 0
    with (
        tempfile.TemporaryDirectory(prefix="policyd-faults-") as folder,
        opened(Path(folder)) as stage,
    ):
        for name, fault in chosen.items():
            harm += _tried(stage, name, fault)
    print("no harm was done" if not harm else f"{harm} faults did harm")
    return 1 if harm else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make faults")
    parser.add_argument("--only", default="", help="faults with this in their name")
    parser.add_argument("--kills", type=int, default=KILLS, help="how often to kill the controller")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    return parser.parse_args()


def _tried(stage: Stage, name: str, fault: Callable[[Stage], Jobs]) -> bool:
    began = time.monotonic()
    jobs: Jobs = []
    found: list[str] = []
    try:
        jobs = fault(stage)
        stage.await_complete(jobs)
        found += stage.clear(jobs)
    except AssertionError as error:
        found += [str(error), *stage.left(jobs)]
        found += [process.tail() for process in stage.running]
    judge, found = stage.judge, [*stage.judged(), *found]
    stage.sweep() if found else stage.stop_controllers()
    seconds = time.monotonic() - began
    print(
        f"{name:<20}{len(jobs):>6}{sum(judge.admissions.values()):>12}{judge.evictions:>11}"
        f"{judge.most['research']:>11}{seconds:>9.0f}{'  HARM' if found else ''}",
        flush=True,
    )
    for line in [*stage.notes, *found[:20]]:
        print(f"  {line}", flush=True)
    stage.notes.clear()
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
