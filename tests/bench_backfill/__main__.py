"""`make bench-backfill`: reservation with backfill on a trace, judged by how long jobs wait.

A part of the trace runs on a cluster of such a size that the part needs the given share of it on
average: at 1.1, a tenth more than there is. All policies run the same jobs by the allocation core:

* StrictFIFO: no job passes the first one.
* BestEffortFIFO: each that fits may pass, so that large jobs wait for small ones.
* fair sharing: a BestEffortFIFO queue for each tenant, with quota by its part of the work, in one
  cohort with preemption for fair shares.
* reservation: BestEffortFIFO with `policyd.io/reserve-after`; and the same with
  `policyd.io/queue-order: ShortestFirst`.

Declared run times are the true ones; where they are wrong, they differ by a factor between a tenth
and ten, and all policies stop jobs when they have run for as long as they declared.
A gang is delayed if it starts later than any cycle had promised.
"""

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from time import perf_counter

from msgspec.structs import replace as with_fields
from rich.console import Console
from rich.table import Table

from policyd.alloc.plan import Admit
from policyd.alloc.queue import (
    CohortQuotas,
    FlavorAmounts,
    FlavorGroup,
    FlavorSpec,
    PreemptionPolicy,
    QueueSpec,
    Quota,
)
from policyd.alloc.settings import DEFAULTS, FairSharingRules
from policyd.alloc.state import CoreState
from policyd.optimize.opt_ins import OptIns
from policyd.optimize.optimizer import Optimizer
from policyd.simulate.draws import DrawnNumbers
from policyd.simulate.scenario import Arrival, Simulation
from tests.bench_backfill.judge import Waits, note_promises, waits_of
from tests.bench_forecast.trace import GPU, QUEUE, mean_gpus, queue_of, read, workload_of

LOADS = (0.9, 1.1)
FACTOR = 10.0
"""By how much declared run times are wrong, at most."""


def main() -> int:
    arguments = parse()
    first, last = (int(word) for word in arguments.jobs.split(":"))
    jobs = read(arguments.trace)[first:last]
    jobs = [replace(job, at=job.at - jobs[0].at) for job in jobs]
    wrong = list(misjudged(jobs))
    console, results = Console(width=150), {}
    for load in arguments.load:
        results[load] = {
            "declared": run(jobs, dict.fromkeys(j.key for j in jobs), load, arguments, console),
            "wrong": run([job for job, _ in wrong], {j.key: d for j, d in wrong}, load,
                         arguments, console),
        }  # fmt: skip
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2))
    return 0


def parse():
    parser = argparse.ArgumentParser(prog="bench-backfill", description=__doc__)
    default = Path("../shared/traces/philly_82k.csv")
    parser.add_argument("--trace", type=Path, default=default, help="CSV of jobs")
    parser.add_argument("--jobs", default="66000:70000", help="the first and the last job")
    parser.add_argument("--load", type=float, nargs="+", default=LOADS, help="parts of the cluster")
    parser.add_argument("--after", type=float, nargs="+", default=(0.5,), help="hours")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    arguments = parser.parse_args()
    if not arguments.trace.exists():
        parser.error(f"`{arguments.trace}` is not there: name the trace by TRACE=")
    return arguments


def misjudged(jobs):
    """Yield jobs with what they declare; each runs for as long as it declares, at most."""
    numbers = DrawnNumbers("declared run times")
    for job in jobs:
        declared = job.seconds * FACTOR ** (2 * numbers.next() - 1)
        yield replace(job, seconds=min(job.seconds, declared)), declared


def run(jobs, declared, load, arguments, console):
    """Run all policies at one load, print a table, and return the figures."""
    gpus = round(mean_gpus(jobs) / load)
    policies = {
        "StrictFIFO": [queue_of(gpus, strict=True)],
        "BestEffortFIFO": [queue_of(gpus)],
        "fair sharing": tenants_of(jobs, gpus),
        **{
            f"reserve after {hours:g} h{', shortest' if order == 'ShortestFirst' else ''}": [
                with_fields(
                    queue_of(gpus), opt_ins=OptIns(reserve_seconds=3600 * hours, order=order)
                )
            ]
            for order in ("Priority", "ShortestFirst")
            for hours in arguments.after
        },
    }
    found = {}
    for name, specs in policies.items():
        began = perf_counter()
        starts, reserved, late = simulate(jobs, declared, specs)
        taken = perf_counter() - began
        found[name] = waits_of(jobs, starts, reserved=reserved, late=late, seconds=taken)
        print(f"{name} at load {load}: {taken:.0f} s", file=sys.stderr)
    wrong = "declared run times wrong" if any(declared.values()) else "declared run times right"
    console.print(table(f"load {load}: {gpus} GPUs, {len(jobs)} jobs, {wrong}", found))
    return {name: asdict(each) for name, each in found.items()}


def tenants_of(jobs, gpus):
    """Return a queue for each tenant, with quota by its part of the work, in one cohort."""
    work = {}
    for job in jobs:
        work[job.owner] = work.get(job.owner, 0.0) + job.gpus * job.seconds
    total, left, specs = sum(work.values()), gpus, []
    reclaims = PreemptionPolicy(reclaim_within_cohort="Any")
    for owner, done in sorted(work.items()):
        own = min(left, int(gpus * done / total))
        left -= own
        flavor = FlavorAmounts(name="default", quotas={GPU: Quota(nominal=own)})
        groups = (FlavorGroup((GPU,), (flavor,)),)
        specs.append(QueueSpec(name=owner, cohort="all", groups=groups, preemption=reclaims))
    flavor = FlavorAmounts(name="default", quotas={GPU: Quota(nominal=left)})
    return [CohortQuotas(name="all", groups=(FlavorGroup((GPU,), (flavor,)),)), *specs]


def simulate(jobs, declared, specs):
    """Return the last start of each job, how many had a reservation, and how many were late."""
    shared = len(specs) > 1
    rules = with_fields(DEFAULTS, fair_sharing=FairSharingRules()) if shared else DEFAULTS
    state = CoreState(rules, Optimizer)
    state.put_flavor(FlavorSpec(name="default"))
    for spec in specs:
        (state.put_cohort if isinstance(spec, CohortQuotas) else state.put_queue)(spec)
    arrivals = []
    for job in jobs:
        limit = declared[job.key] or job.seconds
        workload = with_fields(
            workload_of(job), cluster_queue=job.owner if shared else QUEUE, run_seconds=limit
        )
        arrivals.append(
            Arrival(workload=workload, at=job.at, run_seconds=job.seconds, most_seconds=limit)
        )
    starts, promised, late = {}, {}, set()
    simulation = Simulation(state, arrivals)
    for step in simulation.steps():
        for action in step.plan.actions:
            if isinstance(action, Admit):
                key = action.workload.key
                starts[key] = step.at
                if step.at > promised.get(key, step.at) + 1e-6:
                    late.add(key)
        note_promises(state, promised)
    return starts, len(promised), len(late)


def table(title, found: dict[str, Waits]) -> Table:
    shown = Table(title=title, title_justify="left")
    for name in ("", "1 GPU", "2-7", "8 or more", "all", "8 or more, to BestEffort",
                 "all, to BestEffort", "reserved", "late"):  # fmt: skip
        shown.add_column(name, justify="right" if name else "left")
    base = found["BestEffortFIFO"]
    for name, each in found.items():
        shown.add_row(
            name, *(f"{x:.2f} h" for x in (each.one, each.few, each.large, each.all)),
            compared(each.large, base.large), compared(each.all, base.all),
            str(each.reserved), str(each.late),
        )  # fmt: skip
    return shown


def compared(wait, base):
    return "" if not base else f"{100 * (wait / base - 1):+.0f} %"


if __name__ == "__main__":
    sys.exit(main())
