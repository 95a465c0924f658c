"""`make what-ifs`: what `policyd what-if` says, compared with what the embedded cluster then does.

Each trial is a random cluster in virtual time: ClusterQueues and Cohorts with quotas, priorities,
preemption, borrowing, fair sharing and reservations; up to three flavors, some with nodes in racks
or with a taint; Jobs, gangs, JobSets and groups of pods, of which some run when the question is
asked. Then the change is made, and time passes until everything has ended. A trial is deterministic
if all run times are declared and no two events are less than a second apart.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import structlog
from rich.console import Console
from rich.progress import track

from tests.what_ifs.plan import trial_of
from tests.what_ifs.trial import run

DETERMINISTIC = 0.9
"""The goal: so many trials are to be deterministic, and equal."""


def attempt(seed: int):
    """Run a trial; return its number, the kind of its change, and what came of it."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    trial = trial_of(seed)
    return seed, trial.kind, asyncio.run(run(trial))


def main() -> int:
    parser = argparse.ArgumentParser(prog="what-ifs", description=__doc__)
    parser.add_argument("-n", "--count", type=int, default=500, help="how many trials")
    parser.add_argument("--seed", type=int, default=0, help="number of the first")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.count)
    deterministic = differ = undetermined = starts = unknown = 0
    kinds = Counter()
    with ProcessPoolExecutor(arguments.processes) as pool:
        outcomes = pool.map(attempt, seeds, chunksize=5)
        console = Console(stderr=True)
        for seed, kind, outcome in track(outcomes, "trials", total=len(seeds), console=console):
            kinds[kind] += 1
            deterministic += outcome.deterministic
            starts += sum(
                len(predicted[0])
                for predicted in outcome.predicted.values()
                if predicted is not None
            )
            unknown += outcome.unknown
            if outcome.differences and outcome.deterministic:
                differ += 1
                print(f"trial {seed} ({kind}) differs: {outcome.differences}", flush=True)
            elif outcome.differences:
                undetermined += 1
    print(f"{arguments.count} trials: {deterministic} deterministic, {differ} of them differ")
    print(f"{undetermined} of the others differ; {starts} starts told, {unknown} stays unknown")
    print("; ".join(f"{name} {count}" for name, count in sorted(kinds.items())))
    return int(differ > 0 or deterministic < DETERMINISTIC * arguments.count)


if __name__ == "__main__":
    sys.exit(main())
