"""A scenario in virtual time: workloads come, get quota, run for as long as they say, and go.

Time jumps from one event to the next: an arrival, an end, a lost pod, or a moment from which on
cycles decide otherwise. After each, cycles are run as long as they decide something, as the
controller does. What is admitted runs at once; what is preempted or evicted stops at once, queues
again at its old place, and runs from the beginning when its turn comes. A gang that lost a pod
comes to no end.
"""

import heapq
from collections.abc import Iterable, Iterator
from itertools import count
from math import inf
from typing import NamedTuple

import msgspec

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Action, Admit, Evict, Plan, Preempt, Requeue
from policyd.alloc.reservation import next_due
from policyd.alloc.state import State
from policyd.alloc.value import Value
from policyd.alloc.workload import Workload

MOST_CYCLES = 1_000
"""Cycles between two events at most.

Policies may let two workloads preempt each other for ever, without time going by. A queue protects
those who were preempted from the same preemptor if it is told to.
"""


class Arrival(Value, frozen=True):
    """A workload that comes.

    Attributes:
        workload: Who, pending; since when it waits is made to agree with `at`.
        at: When, in seconds since the beginning.
        run_seconds: How long it runs once it has quota; None for ever.
        loses_pod_seconds: How long it runs, the first time, until it loses a pod; None if it never
            does.
    """

    workload: Workload
    at: float = 0.0
    run_seconds: float | None = None
    loses_pod_seconds: float | None = None


class _Loss(NamedTuple):
    """A pod is lost: of whom, and which of its runs it is."""

    key: str
    run: int


class Step(Value, frozen=True):
    """One cycle.

    Attributes:
        at: When, in seconds since the beginning.
        number: Of the cycle, from 1.
        ended: Keys of the workloads that came to their end just before, in alphabetical order.
        plan: What was decided.
    """

    at: float
    number: int
    ended: tuple[str, ...]
    plan: Plan


class Simulation:
    """A scenario on its way.

    Attributes:
        state: Queues, and who waits and holds quota now.
        now: Seconds since the beginning.
    """

    def __init__(self, state: State, arrivals: Iterable[Arrival]) -> None:
        """Begin with a state that has no workloads yet."""
        self.state = state
        self.now = 0.0
        self._sequence = count()
        self._cycles = count(1)
        self._arrivals: dict[str, Arrival] = {}
        self._due: float | None = None
        self._ends: dict[str, int] = {}
        self._events: list[tuple[float, int, Arrival | str | _Loss | None]] = []
        for arrival in arrivals:
            self._at(arrival.at, arrival)

    def steps(self, *, until: float = float("inf")) -> Iterator[Step]:
        """Yield cycle after cycle, up to a time; those that decide nothing new are left out."""
        while self._events and self._events[0][0] <= until and self._events[0][0] < inf:
            self.now = self.state.now = self._events[0][0]
            ended: list[str] = []
            while self._events and self._events[0][0] == self.now:
                ended.extend(self._happen(*heapq.heappop(self._events)[1:]))
            yield from self._cycle(tuple(sorted(ended)))
            due = next_due(self.state)
            if due is not None and due != self._due:
                self._due = due
                self._at(due, None)

    def _happen(self, token: int, event: Arrival | str | _Loss | None) -> Iterator[str]:
        """Let an event happen; yield whose end it is."""
        match event:
            case Arrival():
                self._arrive(event)
            case _Loss(key=key, run=run) if self._ends.get(key) == run:
                self._lose_pod(key)
            case str() if self._ends.get(event) == token:
                del self._ends[event]
                self.state.remove_workload(event)
                yield event
            case _:
                pass

    def _cycle(self, ended: tuple[str, ...]) -> Iterator[Step]:
        """Run cycles until nobody is admitted, preempted or put aside any more."""
        for _ in range(MOST_CYCLES):
            plan = plan_cycle(self.state)
            reserves = plan.reserved != self.state.reserved
            self.state.commit(plan)
            for action in plan.actions:
                self._carry_out(action)
            if plan.actions or ended:
                yield Step(at=self.now, number=next(self._cycles), ended=ended, plan=plan)
            ended = ()
            stopped = any(isinstance(action, Preempt | Evict) for action in plan.actions)
            if not (plan.goes_on or reserves or stopped):
                return

    def _carry_out(self, action: Action) -> None:
        match action:
            case Admit():
                self._start(action)
            case Preempt():
                self._stop(action.workload, preempted_by=action.preemptor.uid)
            case Evict():
                self._stop(action.workload, preempted_by=action.workload.preempted_by)
            case Requeue():
                pass

    def _arrive(self, arrival: Arrival) -> None:
        workload = msgspec.structs.replace(arrival.workload, queued_at=arrival.at)
        self._arrivals[workload.key] = arrival
        self.state.put_workload(workload)

    def _start(self, action: Admit) -> None:
        running = msgspec.structs.replace(
            action.workload,
            admission=action.admission,
            admitted=True,
            ready=True,
            reserved_at=self.now,
        )
        self.state.put_workload(running)
        arrival = self._arrivals[running.key]
        ends = inf if arrival.run_seconds is None else self.now + arrival.run_seconds
        run = self._ends[running.key] = self._at(ends, running.key)
        if arrival.loses_pod_seconds is not None:
            self._at(self.now + arrival.loses_pod_seconds, _Loss(running.key, run))

    def _lose_pod(self, key: str) -> None:
        holding = self.state.holding(key)
        assert holding is not None, "who runs holds quota"
        del self._ends[key]
        arrival = self._arrivals[key]
        self._arrivals[key] = msgspec.structs.replace(arrival, loses_pod_seconds=None)
        short = msgspec.structs.replace(holding.workload, ready=False, short_since=self.now)
        self.state.put_workload(short)

    def _stop(self, workload: Workload, *, preempted_by: str) -> None:
        self._ends.pop(workload.key, None)
        pending = msgspec.structs.replace(
            workload,
            admission=None,
            admitted=False,
            ready=False,
            reserved_at=None,
            short_since=None,
            preempted_by=preempted_by,
        )
        self.state.put_workload(pending)

    def _at(self, when: float, event: Arrival | str | _Loss | None) -> int:
        token = next(self._sequence)
        heapq.heappush(self._events, (when, token, event))
        return token
