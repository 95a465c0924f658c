"""`make bench-preemption`: what preemption costs by the rules alone.

The load of the cluster benchmark in simulated time: the core decides, and there is no API server.
Each write takes some time, drawn from a seed. The columns differ in when cycles run and when
inadmissible workloads are tried again, and in nothing else: Kueue's own timing beside policyd's.
"""

import argparse
import heapq
import json
import random
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.extension import Extension
from policyd.alloc.plan import Action, Admit, Preempt
from policyd.alloc.queue import (
    FlavorAmounts,
    FlavorGroup,
    FlavorSpec,
    PreemptionPolicy,
    QueueSpec,
    Quota,
)
from policyd.alloc.quota import QuotaNode
from policyd.alloc.settings import DEFAULTS
from policyd.alloc.state import CoreState
from policyd.alloc.workload import QueuedPodSet, QueuedWorkload
from policyd.controller.cycle_loop import BURST_CYCLES, GATHER_SECONDS
from policyd.optimize.optimizer import Optimizer
from tests.bench_cluster.loads import BORROWING, FLAVOR, LOADS, NOMINAL, Load, queue_names
from tests.bench_cluster.measures import Losses, ledger_of

PREEMPTION = PreemptionPolicy(within_cluster_queue="LowerPriority", reclaim_within_cohort="Any")
WRITE_SECONDS = 0.015
"""Until a write is stored and noticed, in the mean: a quiet API server."""

KUEUE_WAKES_AFTER = 1.0
"""Kueue tries inadmissible workloads again so many seconds after the first release of quota."""


@dataclass(frozen=True)
class Timing:
    """When a controller decides and writes.

    Attributes:
        cycle_seconds: From the start of one cycle, or burst of cycles, to that of the next.
        burst: Whether cycles run until they decide nothing more before anything is written.
        extend: Makes the extension of the state.
        gather_seconds: As the extension has it.
        writes_per_second: How many writes the controller's client makes at most.
        preempts: Whether queues preempt at all.
    """

    cycle_seconds: float
    burst: bool = False
    extend: Callable[[CoreState], Extension] = Optimizer
    gather_seconds: float = 0.0
    writes_per_second: float = inf
    preempts: bool = True


class KueuesWaking(Extension):
    """Tries inadmissible workloads again as Kueue does: in batches, after each release."""

    def __init__(self, state: CoreState) -> None:
        self._state = state
        self._due: dict[QuotaNode, float] = {}

    def due(self, changed: Collection[QuotaNode]) -> Collection[QuotaNode]:
        """Return the roots of trees whose batch is due."""
        for node in changed:
            self._due.setdefault(node.root, self._state.now + KUEUE_WAKES_AFTER)
        roots = {root for root, at in self._due.items() if at <= self._state.now}
        for root in roots:
            del self._due[root]
        return roots

    def next_due(self) -> float | None:
        """Return when the next batch is due."""
        return min(self._due.values(), default=None)


TIMINGS = {
    "policyd": Timing(0.03, burst=True, gather_seconds=GATHER_SECONDS),
    "policyd, without gathering": Timing(0.03, burst=True),
    "policyd, each cycle written": Timing(0.005),
    "policyd, no preemption": Timing(0.03, burst=True, preempts=False),
    "Kueue's timing": Timing(0.005, extend=KueuesWaking),
    "Kueue's timing, 50 writes/s": Timing(0.005, extend=KueuesWaking, writes_per_second=50),
}


class Run:
    """One run of a load in simulated time."""

    def __init__(
        self,
        load: Load,
        timing: Timing,
        seed: int,
        *,
        write_seconds: float = WRITE_SECONDS,
        strict: bool = False,
    ) -> None:
        self.losses = Losses(ledger_of(load).sizes)
        self.waited: dict[str, list[float]] = defaultdict(list)
        self.now = 0.0
        self._load, self._timing, self._strict = load, timing, strict
        self._random, self._write_seconds = random.Random(seed), write_seconds
        self._number = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._runs: dict[str, int] = {}
        """The number of the run of each workload that runs."""
        self._ended: set[str] = set()
        self._kinds: dict[str, str] = {}
        self._began_cycle = -inf
        self._cycle_at = inf
        self._free_at = 0.0
        self._unwritten: dict[str, Action] = {}
        self._state = self._queues()
        for queue, _ in queue_names(load):
            for kind in load.classes:
                for number in range(kind.count):
                    due = (number + 1) * kind.every_ms / 1e3
                    self._at(due + self._latency(), partial(self._come, queue, kind.name, number))

    def run(self) -> dict[str, Any]:
        """Let all workloads come and end; return what it took and what was lost."""
        while self._events:
            self.now, _, act = heapq.heappop(self._events)
            self._state.now = self.now
            act()
        assert len(self._ended) == self._load.workloads, "all workloads end"
        waits = {name: statistics.fmean(each) for name, each in sorted(self.waited.items())}
        return {"wall": self.now, "waits": waits, **self.losses.figures()}

    def _queues(self) -> CoreState:
        state = CoreState(DEFAULTS, self._timing.extend)
        state.extension.gather_seconds = self._timing.gather_seconds
        state.put_flavor(FlavorSpec(name=FLAVOR))
        quota = Quota(nominal=NOMINAL, borrowing_limit=BORROWING)
        offered = (FlavorAmounts(name=FLAVOR, quotas={"cpu": quota}),)
        group = FlavorGroup(resources=("cpu",), flavors=offered)
        spec = QueueSpec(
            name="",
            groups=(group,),
            preemption=PREEMPTION if self._timing.preempts else PreemptionPolicy(),
        )
        for index, (name, cohort) in enumerate(queue_names(self._load)):
            strict = self._strict and index % 2 == 1
            state.put_queue(replace(spec, name=name, cohort=cohort, strict=strict))
        return state

    def _come(self, queue: str, kind: str, number: int) -> None:
        key = f"{queue}/{kind}-{number}"
        self._kinds[key] = kind
        self.losses.comes(key, self.now)
        (size,) = (each for each in self._load.classes if each.name == kind)
        cpus = self.losses.sizes[kind]
        pods = QueuedPodSet(name="main", count=1, requests={"cpu": cpus})
        workload = QueuedWorkload(
            key=key,
            uid=key,
            cluster_queue=queue,
            queued_at=self.now,
            priority=size.priority,
            pod_sets=(pods,),
        )
        self._state.put_workload(workload)
        self._wake()

    # Cycles.

    def _wake(self, at: float = -inf) -> None:
        """Ask for a cycle, not before a moment."""
        due = max(at, self.now, self._began_cycle + self._timing.cycle_seconds)
        if due < self._cycle_at:
            self._cycle_at = due
            self._at(due, partial(self._cycle, due))

    def _cycle(self, due: float) -> None:
        if due != self._cycle_at:
            return
        self._cycle_at, self._began_cycle = inf, self.now
        more = self._decide()
        for _ in range(BURST_CYCLES if self._timing.burst else 0):
            if not more:
                break
            more = self._decide()
        unwritten, self._unwritten = self._unwritten, {}
        for action in unwritten.values():
            self._written(partial(self._carry_out, action))
        again = self._state.extension.next_due()
        if more or again is not None:
            self._wake(-inf if more or again is None else again)

    def _decide(self) -> bool:
        """Run one cycle; tell whether another may decide more."""
        plan, spared = plan_cycle(self._state), False
        if not plan.actions:
            return False
        self._state.commit(plan)
        for action in plan.actions:
            key = action.workload.key
            if isinstance(action, Preempt) and isinstance(self._unwritten.get(key), Admit):
                del self._unwritten[key]  # it has not started, and stays pending
                self._state.retract(key)
                spared = True
            elif isinstance(action, Admit | Preempt):
                self._unwritten[key] = action
                if isinstance(action, Preempt):
                    self._state.extension.preempting(action.preemptor)
        return plan.goes_on or spared

    # What is written, and what comes of it.

    def _carry_out(self, action: Action) -> None:
        if isinstance(action, Preempt):
            self._evict(action)
            return
        assert isinstance(action, Admit)
        workload = replace(
            action.workload,
            admission=action.admission,
            admitted=True,
            ready=True,
            reserved_at=self.now,
            preempted_by="",
        )
        key, kind = workload.key, self._kinds[workload.key]
        self._state.put_workload(workload)
        self.losses.admitted(key, self.now)
        (size,) = (each for each in self._load.classes if each.name == kind)
        run = self._runs[key] = next(self._number)
        ends = self.now + size.runtime_ms / 1e3 + self._latency()
        self._at(ends, partial(self._finish, key, run))
        self._wake()

    def _evict(self, action: Preempt) -> None:
        key = action.workload.key
        if key in self._ended:
            return
        if self._runs.pop(key, None) is None:  # its admission is on its way
            self._at(self.now + self._latency(), partial(self._evict, action))
            return
        by = [(action.reason, action.preemptor.uid)]
        self.losses.evicted(key, self._kinds[key], self.now, by=by)
        self._at(self.now + self._latency(), partial(self._release, action))

    def _release(self, action: Preempt) -> None:
        waits = replace(
            action.workload, admission=None, admitted=False, ready=False, reserved_at=None
        )
        self._state.put_workload(waits)
        self._wake()

    def _finish(self, key: str, run: int) -> None:
        if self._runs.get(key) != run:
            return
        del self._runs[key]
        self._ended.add(key)
        kind, began = self._kinds[key], self.losses.began[key]
        self.waited[kind].append(began - self.losses.came[key])
        self.losses.finished(key, kind, self.now)
        self._at(self.now + self._latency(), partial(self._forget, key))

    def _forget(self, key: str) -> None:
        self._state.remove_workload(key)
        self._wake()

    def _written(self, then: Callable[[], None]) -> None:
        """Do something once the controller has written it."""
        self._free_at = max(self._free_at, self.now) + 1 / self._timing.writes_per_second
        self._at(self._free_at + self._latency(), then)

    def _latency(self) -> float:
        return self._random.expovariate(1 / self._write_seconds)

    def _at(self, when: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._number), act))


def figures_of(
    load: Load,
    timing: Timing,
    seeds: Iterable[int],
    *,
    write_seconds: float = WRITE_SECONDS,
    strict: bool = False,
) -> list[dict[str, Any]]:
    """Return the figures of a load for each seed; `strict`: half of the queues are StrictFIFO."""
    runs = (Run(load, timing, s, write_seconds=write_seconds, strict=strict) for s in seeds)
    return [run.run() for run in runs]


def show(rows: dict[str, Sequence[dict[str, Any]]]) -> None:
    """Print the median of each figure, and the range of what is lost."""
    table = Table("", "wall", "evictions", "lost, %", "range", "undone", "twice", "in vain")
    for column in table.columns[1:]:
        column.justify = "right"
    classes = list(next(iter(rows.values()))[0]["waits"])
    for name in classes:
        table.add_column(f"{name} waits", justify="right")
    for name, runs in rows.items():
        lost = sorted(100 * run["share"] for run in runs)
        table.add_row(
            name,
            f"{_median(run['wall'] for run in runs):.0f} s",
            f"{_median(run['evictions'] for run in runs):.0f}",
            f"{_median(lost):.2f}",
            f"{lost[0]:.2f} to {lost[-1]:.2f}",
            f"{_median(run['undone']['count'] for run in runs):.0f}",
            f"{_median(run['repeated'] for run in runs):.0f}",
            f"{_median(run['in_vain'] for run in runs):.0f}",
            *(f"{_median(run['waits'][name] for run in runs):.2f} s" for name in classes),
        )
    Console(width=150).print(table)


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def main() -> None:
    """Run the baseline with each timing, and print what preemption cost."""
    parser = argparse.ArgumentParser(prog="make bench-preemption")
    parser.add_argument("--share", type=float, default=1.0, help="of the workloads")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each")
    parser.add_argument("--strict", action="store_true", help="half of the queues are StrictFIFO")
    parser.add_argument("--only", default="", help="words of the names of timings")
    parser.add_argument(
        "--write", type=float, default=WRITE_SECONDS, help="seconds of a write, in the mean"
    )
    parser.add_argument("--json", default="", help="where to write the figures")
    options = parser.parse_args()
    load = LOADS["baseline"].part(options.share)
    rows = {
        name: figures_of(
            load, timing, range(options.seeds), write_seconds=options.write, strict=options.strict
        )
        for name, timing in TIMINGS.items()
        if options.only in name
    }
    show(rows)
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
