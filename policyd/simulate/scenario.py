"""A scenario in virtual time: workloads come, get quota, run for as long as they say, and go.

Time jumps from one event to the next: an arrival, or an end. After each, cycles are run as long as
they decide something, as the controller does. What is admitted runs at once; what is preempted
stops at once, queues again at its old place, and runs from the beginning when its turn comes.
"""

import heapq
from collections.abc import Iterable, Iterator
from itertools import count

import msgspec

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Admit, Plan, Preempt, Requeue
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
    """

    workload: Workload
    at: float = 0.0
    run_seconds: float | None = None


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
        self._run_seconds: dict[str, float | None] = {}
        self._ends: dict[str, int] = {}
        self._events: list[tuple[float, int, Arrival | str]] = []
        for arrival in arrivals:
            self._at(arrival.at, arrival)

    def steps(self, *, until: float = float("inf")) -> Iterator[Step]:
        """Yield cycle after cycle, up to a time; those that decide nothing new are left out."""
        while self._events and self._events[0][0] <= until:
            self.now = self.state.now = self._events[0][0]
            ended = []
            while self._events and self._events[0][0] == self.now:
                _, token, event = heapq.heappop(self._events)
                if isinstance(event, Arrival):
                    self._arrive(event)
                elif self._ends.get(event) == token:
                    self.state.remove_workload(event)
                    ended.append(event)
            yield from self._cycle(tuple(sorted(ended)))

    def _cycle(self, ended: tuple[str, ...]) -> Iterator[Step]:
        """Run cycles until nobody is admitted, preempted or put aside any more."""
        for _ in range(MOST_CYCLES):
            plan = plan_cycle(self.state)
            self.state.commit(plan)
            for action in plan.actions:
                match action:
                    case Admit():
                        self._start(action)
                    case Preempt():
                        self._stop(action)
                    case Requeue():
                        pass
            if plan.actions or ended:
                yield Step(at=self.now, number=next(self._cycles), ended=ended, plan=plan)
            ended = ()
            if not plan.goes_on and not any(isinstance(a, Preempt) for a in plan.actions):
                return

    def _arrive(self, arrival: Arrival) -> None:
        workload = msgspec.structs.replace(arrival.workload, queued_at=arrival.at)
        self._run_seconds[workload.key] = arrival.run_seconds
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
        seconds = self._run_seconds[running.key]
        if seconds is not None:
            self._ends[running.key] = self._at(self.now + seconds, running.key)

    def _stop(self, action: Preempt) -> None:
        self._ends.pop(action.workload.key, None)
        pending = msgspec.structs.replace(
            action.workload,
            admission=None,
            admitted=False,
            ready=False,
            reserved_at=None,
            preempted_by=action.preemptor.uid,
        )
        self.state.put_workload(pending)

    def _at(self, when: float, event: Arrival | str) -> int:
        token = next(self._sequence)
        heapq.heappush(self._events, (when, token, event))
        return token
