"""Scheduling cycles: one after the other, as long as they decide something.

The decisions of a cycle are assumed at once, so that the next one builds on it, and are written
later by the reconciler of the workload.

A cycle sees one workload of each queue. So a later one may preempt a workload that the one before
admitted, because it borrowed quota from a queue whose workload had no turn yet. That costs a run,
if it was written. Therefore cycles run in a *burst*, until they decide nothing more, and only then
is anything handed over to be written: a workload that is preempted before that has not started, and
stays pending. It then gives way: it is not admitted until cycles have rested, or run for a second.
Else it could be admitted and preempted in turn without end, while its preemptor waits for other
victims to stop: by shares of now it comes first, and by those that its preemptor finds without them
it is a victim.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice

import structlog

from policyd.alloc.cycle import plan_cycle
from policyd.alloc.plan import Action, Admit, Evict, Plan, Preempt, Requeue
from policyd.clock import Clock
from policyd.controller.metrics.counters import ControllerMetrics
from policyd.controller.watch.cache import Cache
from policyd.controller.watch.keys import ReconcileKey
from policyd.kube.pace import Pace
from policyd.tracing import MOST_EVENTS, Tracer

log = structlog.get_logger()

FIRST_WAIT_SECONDS = 0.001
LONGEST_WAIT_SECONDS = 0.01
"""Between cycles that admit nothing, doubling: Kueue's figures."""
LONGEST_REST_SECONDS = 0.5
BURST_SECONDS = 0.1
BURST_CYCLES = 100
"""How long cycles run without anything being written, at most."""
GIVES_WAY_SECONDS = 1.0
"""How long cycles rest, or run on without a rest, at most while a workload gives way."""
GATHER_SECONDS = 0.25
"""How long released quota is gathered before inadmissible workloads are tried for it, where one was
preempted lately. Kueue always takes a second. Without it, each moment between the end of one
workload and the creation of the next would admit a less important one, to be preempted at once."""


class CycleLoop:
    """Plans cycles, and keeps their actions until they are written."""

    def __init__(self, cache: Cache, *, metrics: ControllerMetrics, pace: Pace) -> None:
        self._cache = cache
        self._metrics = metrics
        self._pace = pace
        self._changed = asyncio.Event()
        self._actions: dict[str, tuple[Action, int | None]] = {}
        """Actions that are not written yet, each with the generation of its workload."""
        self._fresh: dict[ReconcileKey, float | None] = {}
        """Those of them that are not handed over, and how soon they are to be written."""
        self._wait = FIRST_WAIT_SECONDS
        self._began = 0.0
        self._none_gave_way = 0.0
        self.trace: Callable[[Plan, float], None] | None = None
        """Given the plan of each cycle that decides something, and its seconds, once it is set."""

    def wake(self) -> None:
        """Ask for another cycle: something changed."""
        self._changed.set()

    def take(self, key: str) -> Action | None:
        """Take over the decision about the workload `key` that is not written yet.

        A workload whose requests changed meanwhile is not admitted with its former ones; nor is one
        whose quota is no longer held for it, as it may not queue by now.
        """
        action, decided_of = self._actions.pop(key, (None, None))
        changed = self._generation(key) != decided_of
        if isinstance(action, Admit) and (changed or not self._cache.assumes(action)):
            self._cache.retract(key)
            return None
        return action

    def drop(self) -> None:
        """Drop unwritten decisions: this process no longer leads."""
        for key, (action, _) in list(self._actions.items()):
            match action:
                case Admit():
                    self._cache.retract(key)
                case Preempt() | Evict():
                    self._cache.state.forget_preemption(key)
                case Requeue():
                    pass
        self._actions.clear()
        self._fresh.clear()
        self._let_all_try()

    def burst(self) -> bool:
        """Run cycles for a while; tell whether another may decide more."""
        self._began = began = self._pace.clock.monotonic()
        if began >= self._none_gave_way + GIVES_WAY_SECONDS:
            self._let_all_try()
        more, cycles = True, 0
        while more and cycles < BURST_CYCLES:
            more, cycles = self.cycle(), cycles + 1
            if self._pace.clock.monotonic() > began + BURST_SECONDS:
                break
        self._changed.clear()  # what cycles take back themselves wakes them as well
        return more

    def hand_over(self) -> list[tuple[ReconcileKey, float | None]]:
        """Return the workloads that were decided about, and how soon that is to be written."""
        decided = list(self._fresh.items())
        self._fresh.clear()
        return decided

    async def rest(self, *, more: bool) -> None:
        """Wait after a burst: for a change, or a moment only if another cycle may decide more."""
        # Where much ends and comes, one cycle for many of these does the work of one for each.
        await self._pace.rest(self._began, most=LONGEST_REST_SECONDS)
        if more:
            await self._pace.sleep(self._pause())
        else:
            due = min((at for at in self._moments() if at is not None), default=None)
            wait = None if due is None else max(0.0, due - self._pace.clock.now())
            await self._pace.wait(self._changed, wait)
            self._let_all_try()

    def _await_again(self, keys: Iterable[str], plan: Plan) -> None:
        """Let those wait for another attempt that nothing was decided about."""
        decided = {action.workload.key for action in plan.actions}
        for key in keys:
            if key not in decided:
                self._cache.second_pass.put(key, now=self._pace.clock.now())

    def _moments(self) -> tuple[float | None, ...]:
        """Return when time alone may let a cycle decide otherwise."""
        state = self._cache.state
        again = self._pace.clock.now() + GIVES_WAY_SECONDS if state.giving_way else None
        return state.extension.next_due(), self._cache.second_pass.next_at, again

    def cycle(self) -> bool:
        """Run one cycle; tell whether another may decide more, though nothing else changes."""
        state, began = self._cache.state, self._pace.clock.monotonic()
        state.now = self._pace.clock.now()
        state.again = tuple(self._cache.second_pass.take_ready(state.now))
        state.deciding = ""
        try:
            plan = plan_cycle(state)
        except Exception:
            # An unforeseen error about one workload must not stop the queue for all the others.
            log.exception("cycle_error", workload=state.deciding)
            return self._set_aside(state.deciding)
        self._await_again(state.again, plan)
        reserves = plan.reserved != state.extension.reserved
        if not plan.actions and not reserves:
            return False
        state.commit(plan)
        spared = [self._note(action) for action in plan.actions]
        admitted = sum(isinstance(action, Admit) for action in plan.actions)
        took = self._pace.clock.monotonic() - began
        self._metrics.cycle(admitted=admitted, seconds=took)
        if self.trace is not None:
            self.trace(plan, took)
        self._metrics.rivals(plan)
        if admitted:
            self._wait = 0.0
        return plan.goes_on or reserves or any(spared)

    def _set_aside(self, key: str) -> bool:
        """Leave a workload out until it changes; tell whether others may be decided about.

        A workload with quota keeps it, and is not placed again.
        """
        state, now = self._cache.state, self._pace.clock.now()
        for other in state.again:
            if other != key:
                self._cache.second_pass.put(other, now=now)
        if key not in state.again:
            state.remove_workload(key)
        return bool(key)

    def _pause(self) -> float:
        pause = self._wait
        self._wait = min(max(2 * pause, FIRST_WAIT_SECONDS), LONGEST_WAIT_SECONDS)
        return pause

    def _generation(self, key: str) -> int | None:
        workload = self._cache.mirrors.workloads.get(key)
        return None if workload is None else workload.metadata.generation

    def _note(self, action: Action) -> bool:
        """Note an action to write; tell whether a preemption needs no write."""
        key = action.workload.key
        before, _ = self._actions.get(key, (None, None))
        if isinstance(action, Preempt) and isinstance(before, Admit):
            del self._actions[key]
            self._cache.retract(key)
            self._cache.state.giving_way.add(key)
            return True
        if isinstance(action, Preempt):
            self._cache.state.extension.preempting(action.preemptor)
        self._actions[key] = action, self._generation(key)
        namespace, _, name = key.partition("/")
        self._fresh[ReconcileKey("Workload", namespace, name)] = _rank(action)
        return False

    def _let_all_try(self) -> None:
        """Let workloads be admitted that gave way."""
        self._none_gave_way = self._pace.clock.monotonic()
        self._cache.state.giving_way.clear()


def _rank(action: Action) -> float | None:
    """Return how soon a decision is written; None if no workload gains by it.

    So a slow server first gets the writes for workloads of the highest priority.
    """
    match action:
        case Preempt():
            return -action.preemptor.priority
        case Requeue():
            return None
        case _:
            return -action.workload.priority


_NANOSECONDS = 1_000_000_000


def cycle_spans(tracer: Tracer, clock: Clock) -> Callable[[Plan, float], None]:
    """Return a function that makes the span of a cycle, given its plan and how long it took.

    Args:
        tracer: OpenTelemetry's tracer.
        clock: The time at which a cycle ends.
    """

    def note(plan: Plan, seconds: float) -> None:
        ended = clock.now()
        span = tracer.start_span("cycle", start_time=int((ended - seconds) * _NANOSECONDS))
        if span.is_recording():
            kinds = Counter(type(action).__name__.lower() for action in plan.actions)
            for kind, number in kinds.items():
                span.set_attribute(f"policyd.cycle.{kind}", number)
            for action in islice(plan.actions, MOST_EVENTS):
                about = {
                    "workload": action.workload.key,
                    "cluster_queue": action.workload.cluster_queue,
                }
                span.add_event(type(action).__name__.lower(), about)
        span.end(end_time=int(ended * _NANOSECONDS))

    return note
