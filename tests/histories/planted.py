"""Plants bugs to see whether a judge finds them: `python -m tests.histories.planted`."""

import argparse
import json
import os
import sys
from pathlib import Path

from tests.histories.apart import apart
from tests.histories.bugs import PLANTED
from tests.histories.history import live_through, outcome_of, warm_up
from tests.histories.plan import Plan, begin_with_hash_seed, plan_of
from tests.histories.shrink import story

MOST = 200
"""Histories, within which each is to be found."""


def found_in(plant, seeds, at_once):
    """Return how many histories were lived through with a bug until a judge objected to one.

    Returns:
        The number, and the outcome of the last; None if no judge objected.
    """
    with plant():
        each = apart(outcome_of, map(plan_of, seeds), at_once=at_once)
        for number, outcome in enumerate(each, start=1):
            if outcome.faults:
                return number, outcome
    return len(seeds), None


def main():
    """Plant each bug, print where it is found, and end with 1 if one is not."""
    options = _options()
    begin_with_hash_seed("tests.histories.planted")
    chosen = {name: plant for name, plant in PLANTED.items() if options.only in name}
    if not chosen:
        print(f"no bug has the words {options.only!r} in its name: {', '.join(PLANTED)}")
        return True
    if options.replay:
        plan = Plan.of(json.loads(Path(options.replay).read_text()))
        return sum(_missed(name, plant, plan) for name, plant in chosen.items()) > 0
    warm_up()
    figures = {}
    for name, plant in chosen.items():
        seeds = range(options.seed, options.seed + options.n)
        number, outcome = found_in(plant, seeds, options.processes)
        figures[name] = {"histories": number, "seed": None, "judges": []}
        if outcome is not None:
            judges = list(dict.fromkeys(judge for judge, _ in outcome.faults))
            figures[name] |= {"seed": outcome.plan.seed, "judges": judges}
        print(f"{name}: {_where(**figures[name])}", flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=2))
    return any(each["seed"] is None for each in figures.values())


def _options():
    parser = argparse.ArgumentParser(prog="python -m tests.histories.planted")
    parser.add_argument("-n", type=int, default=MOST, help="histories of each, at most")
    parser.add_argument("--seed", type=int, default=0, help="of the first; the next have the next")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="at a time")
    parser.add_argument("--only", default="", help="bugs with these words")
    parser.add_argument("--json", help="a file for the figures")
    parser.add_argument("--replay", metavar="FILE", help="a history that was written before")
    return parser.parse_args()


def _where(histories, seed, judges):
    if seed is None:
        return f"not found in {histories} histories"
    return f"history {histories}, seed {seed}, by {', '.join(f'`{judge}`' for judge in judges)}"


def _missed(name, plant, plan):
    """Live through a history with a bug, and print it; tell whether no judge objects."""
    with plant():
        outcome = live_through(plan)
        print(f"{name}\n{story(outcome)}", flush=True)
    return not outcome.faults


if __name__ == "__main__":
    sys.exit(main())
