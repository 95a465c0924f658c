"""A scenario in virtual time: workloads come, get quota, run for as long as they say, and go.

Time jumps from one event to the next: an arrival, an end, a lost pod, or a moment from which on
cycles decide otherwise. After each, cycles are run as long as they decide something, as the
controller does. An admitted workload runs at once; a preempted or evicted one stops at once, queues
again at its old place, and runs from the beginning when its turn comes. A gang that lost a pod
comes to no end.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count
from math import inf
from typing import NamedTuple

import msgspec

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.flavors.options import request_key_of
from policyd.alloc.plan import Action, Admit, Evict, Plan, Preempt, Requeue
from policyd.alloc.reasons import Refusal
from policyd.alloc.state import CoreState
from policyd.alloc.topology.values import HOSTNAME, Placement, TopologyNode
from policyd.alloc.value import Value
from policyd.alloc.workload import QueuedWorkload

MOST_STOPS = 20
"""Stops of one workload at one moment, until nothing more is decided before time goes by.

Policies may let two workloads preempt each other for ever. A queue protects workloads from being
preempted by the same one again if it is set to.
"""


class Arrival(Value, frozen=True):
    """A workload that comes.

    Attributes:
        workload: The workload; it is pending unless it has an admission.
        at: When, in seconds since the beginning.
        run_seconds: How long it runs once it has quota; None for ever.
        loses_pod_seconds: How long it runs, the first time, until it loses a pod; None if it never
            does.
        most_seconds: How long it may run, all its runs together; None for ever.
        stops_after_seconds: How long it runs, the first time, until it is stopped and queues again;
            None if it never is.
        ran_seconds: How long it has run already when it comes, if it comes with quota.
        queued_at: Since when it is queued, in the same seconds as `at`; None for since it comes.
        ends_when_stopped: Whether it does not queue again once it is stopped, as pods do not: they
            are gone.
    """

    workload: QueuedWorkload
    at: float = 0.0
    run_seconds: float | None = None
    loses_pod_seconds: float | None = None
    most_seconds: float | None = None
    stops_after_seconds: float | None = None
    ran_seconds: float = 0.0
    queued_at: float | None = None
    ends_when_stopped: bool = False


class Waits(Value, frozen=True):
    """A workload that was not looked at in a cycle, because another one was.

    Attributes:
        workload: The pending workload.
        like: One with the same requests that was looked at; None if none was.
        refusal: Why that one waits.
        before: Key of the one that is to go first; empty if there is none.
    """

    workload: QueuedWorkload
    like: QueuedWorkload | None = None
    refusal: Refusal | None = None
    before: str = ""


class _Loss(NamedTuple):
    """A lost pod: the key of its workload, and the number of the run."""

    key: str
    run: int


class _Failure(NamedTuple):
    """A run that is stopped: the key of its workload, and the number of the run."""

    key: str
    run: int


class NodeChange(Value, frozen=True):
    """A node that fails, or is repaired: its workloads stop, and queue again.

    Attributes:
        at: When, in seconds since the beginning.
        node: As it is from then on.
    """

    at: float
    node: TopologyNode


_Event = Arrival | str | _Loss | _Failure | NodeChange | None


class SimulatedCycle(Value, frozen=True):
    """One cycle.

    Attributes:
        at: When, in seconds since the beginning.
        number: Of the cycle, from 1.
        ended: Keys of the workloads that came to their end just before, in alphabetical order.
        plan: The decisions.
        stopped: Keys of those among the ended that have run for as long as they may.
        failed: Keys of workloads that a failure stopped just before, in alphabetical order.
        waiting: Workloads not looked at, once nothing else is decided any more.
    """

    at: float
    number: int
    ended: tuple[str, ...]
    plan: Plan
    stopped: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    waiting: tuple[Waits, ...] = ()


class Simulation:
    """A scenario on its way.

    Attributes:
        state: Queues, pending workloads, and holders of quota now.
        now: Seconds since the beginning.
        unsettled: Whether workloads preempted each other at some moment without an end.
    """

    def __init__(
        self,
        state: CoreState,
        arrivals: Iterable[Arrival],
        changes: Iterable[NodeChange] = (),
    ) -> None:
        """Begin with a state that has no workloads yet.

        Args:
            state: Queues, flavors and nodes.
            arrivals: Workloads that come.
            changes: Nodes that fail or are repaired.
        """
        self.state = state
        self.now = 0.0
        self.unsettled = False
        self._stops = Counter[str]()
        self._sequence = count()
        self._number = 0
        self._began: dict[str, float] = {}
        self._unseen: dict[str, None] = {}
        self._refused: dict[object, tuple[QueuedWorkload, Refusal]] = {}
        self._stopped: list[str] = []
        self._failed: list[str] = []
        self._arrivals: dict[str, Arrival] = {}
        self._due: float | None = None
        self._ends: dict[str, int] = {}
        self._events: list[tuple[float, int, _Event]] = []
        for arrival in arrivals:
            self._at(arrival.at, arrival)
        for change in changes:
            self._at(change.at, change)

    @property
    def over(self) -> bool:
        """Whether nothing can happen any more."""
        return not self._events or self._events[0][0] == inf

    def steps(self, *, until: float = float("inf")) -> Iterator[SimulatedCycle]:
        """Yield cycle after cycle, up to a time; those that decide nothing new are left out."""
        while not self.over and self._events[0][0] <= until:
            if self._events[0][0] > self.now:
                self._stops.clear()
            self.now = self.state.now = self._events[0][0]
            ended: list[str] = []
            while self._events and self._events[0][0] == self.now:
                ended.extend(self._happen(*heapq.heappop(self._events)[1:]))
            yield from self._cycle(tuple(sorted(ended)))
            due = self.state.extension.next_due()
            if due is not None and due != self._due:
                self._due = due
                self._at(due, None)

    def _happen(self, token: int, event: _Event) -> Iterator[str]:
        """Let an event happen; yield whose end it is."""
        match event:
            case Arrival():
                self._arrive(event)
            case _Loss(key=key, run=run) if self._ends.get(key) == run:
                self._lose_pod(key)
            case _Failure(key=key, run=run) if self._ends.get(key) == run:
                arrival = self._arrivals[key]
                self._arrivals[key] = msgspec.structs.replace(arrival, stops_after_seconds=None)
                self._fail(key)
            case NodeChange():
                self._change(event.node)
            case str() if self._ends.get(event) == token:
                self._end(event)
                yield event
            case _:
                pass

    def _cycle(self, ended: tuple[str, ...]) -> Iterator[SimulatedCycle]:
        """Run cycles until none is admitted, preempted or made inadmissible any more.

        Where that has no end, nothing more is decided at this moment. A run may end at the moment
        at which it begins, so the stops of all its events count.
        """
        nothing = Plan(actions=(), revision=self.state.revision)
        while max(self._stops.values(), default=0) <= MOST_STOPS:
            plan = plan_cycle(self.state)
            reserves = plan.reserved != self.state.extension.reserved
            self.state.commit(plan)
            for action in plan.actions:
                self._carry_out(action)
            if plan.actions or ended or self._failed:
                yield self._describe(ended, plan)
            ended = ()
            stopped = any(isinstance(action, Preempt | Evict) for action in plan.actions)
            if not (plan.goes_on or reserves or stopped):
                break
        else:
            self.unsettled = True
            if ended or self._failed:
                yield self._describe(ended, nothing)
        waiting = tuple(self._overlooked())
        if waiting:
            yield SimulatedCycle(
                at=self.now, number=self._number, ended=(), plan=nothing, waiting=waiting
            )

    def _describe(self, ended: tuple[str, ...], plan: Plan) -> SimulatedCycle:
        self._number += 1
        out_of_time, self._stopped = tuple(sorted(self._stopped)), []
        failed, self._failed = tuple(sorted(self._failed)), []
        return SimulatedCycle(
            at=self.now,
            number=self._number,
            ended=ended,
            plan=plan,
            stopped=out_of_time,
            failed=failed,
        )

    def _overlooked(self) -> Iterator[Waits]:
        """Yield pending workloads that were not looked at since they became pending."""
        unseen, self._unseen = self._unseen, {}
        for key in unseen:
            workload = self._arrivals[key].workload
            pending = self.state.queues[workload.cluster_queue].pending
            waits = pending.get(key)
            if waits is None:
                continue
            like, refusal = self._refused.get(_asked(waits), (None, None))
            head = pending.head() if like is None else None
            before = "" if head is None or head.workload.key == key else head.workload.key
            yield Waits(workload=waits, like=like, refusal=refusal, before=before)

    def _carry_out(self, action: Action) -> None:
        match action:
            case Admit():
                self._start(action)
            case Preempt():
                self._stop(action.workload, preempted_by=action.preemptor.uid)
            case Evict():
                self._stop(action.workload, preempted_by=action.workload.preempted_by)
            case Requeue():
                self._unseen.pop(action.workload.key, None)
                self._refused[_asked(action.workload)] = action.workload, action.refusal

    def _arrive(self, arrival: Arrival) -> None:
        queued_at = arrival.at if arrival.queued_at is None else arrival.queued_at
        workload = msgspec.structs.replace(arrival.workload, queued_at=queued_at)
        self._arrivals[workload.key] = arrival
        self.state.put_workload(workload)
        if workload.admission is None:
            self._unseen[workload.key] = None
        else:
            self._run(workload.key, ran=arrival.ran_seconds)

    def _start(self, action: Admit) -> None:
        running = msgspec.structs.replace(
            action.workload,
            admission=action.admission,
            admitted=True,
            ready=True,
            evicted=False,
            reserved_at=self.now,
        )
        self.state.put_workload(running)
        self._unseen.pop(running.key, None)
        self._run(running.key)

    def _run(self, key: str, *, ran: float = 0.0) -> None:
        """Let a workload run until its end, or for as long as it may; some of that it has run."""
        arrival = self._arrivals[key]
        self._began[key] = began = self.now - ran
        lasts = [each for each in (arrival.run_seconds, arrival.most_seconds) if each is not None]
        ends = max(self.now, began + min(lasts)) if lasts else inf
        run = self._ends[key] = self._at(ends, key)
        if arrival.loses_pod_seconds is not None:
            self._at(max(self.now, began + arrival.loses_pod_seconds), _Loss(key, run))
        if arrival.stops_after_seconds is not None:
            self._at(max(self.now, began + arrival.stops_after_seconds), _Failure(key, run))

    def _end(self, key: str) -> None:
        arrival, began = self._arrivals[key], self._began.pop(key)
        del self._ends[key]
        self.state.remove_workload(key)
        if arrival.run_seconds is None or began + arrival.run_seconds > self.now:
            self._stopped.append(key)

    def _lose_pod(self, key: str) -> None:
        holding = self.state.holding(key)
        assert holding is not None, "a running workload holds quota"
        del self._ends[key]
        arrival = self._arrivals[key]
        self._arrivals[key] = msgspec.structs.replace(arrival, loses_pod_seconds=None)
        short = msgspec.structs.replace(holding.workload, ready=False, short_since=self.now)
        self.state.put_workload(short)

    def _change(self, node: TopologyNode) -> None:
        """Change a node; stop the workloads that have pods there if it cannot be used."""
        nodes = self.state.ledger.nodes
        if not node.usable:
            for key in [key for key, held in nodes.held.items() if _is_on(node, held)]:
                self._fail(key)
        nodes.put(node)
        self.state.wake_placed()

    def _fail(self, key: str) -> None:
        """Stop a running workload, which queues again."""
        holding = self.state.holding(key)
        assert holding is not None, "a running workload holds quota"
        self._stop(holding.workload, preempted_by=holding.workload.preempted_by)
        self._failed.append(key)

    def _stop(self, workload: QueuedWorkload, *, preempted_by: str) -> None:
        self._stops[workload.key] += 1
        self._ends.pop(workload.key, None)
        self._take_off(workload.key)
        if self._arrivals[workload.key].ends_when_stopped:
            self.state.remove_workload(workload.key)
            return
        self._unseen[workload.key] = None
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

    def _take_off(self, key: str) -> None:
        """Subtract a stopped run from the time that a workload may run."""
        arrival = self._arrivals[key]
        ran = self.now - self._began.pop(key, self.now)
        if arrival.most_seconds is not None:
            left = max(0.0, arrival.most_seconds - ran)
            self._arrivals[key] = msgspec.structs.replace(arrival, most_seconds=left)

    def _at(self, when: float, event: _Event) -> int:
        token = next(self._sequence)
        heapq.heappush(self._events, (when, token, event))
        return token


def _is_on(node: TopologyNode, placements: Iterable[Placement]) -> bool:
    """Tell whether a workload has a pod on a node; the last label of its places is the host."""
    host = node.labels.get(HOSTNAME, node.name)
    return any(
        values[-1] == host
        for each in placements
        if each.assignment.levels[-1:] == (HOSTNAME,)
        for values, _ in each.assignment.domains
    )


def _asked(workload: QueuedWorkload) -> object:
    """Return a key that is equal for workloads of a queue of which none fits if one does not."""
    return workload.cluster_queue, workload.priority, request_key_of(workload)
