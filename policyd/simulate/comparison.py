"""What a change would change: two courses of a queue, compared workload by workload.

A course is a simulation of what happens from a moment on. It is certain as far as run times are
declared: a workload that runs and declares none may end at any time, and what is decided after that
in queues that share quota or nodes with its own is unknown. A course has only what is certain, and
a comparison claims no more than both courses do.
"""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Literal

from policyd.alloc.plan import Admit, Evict, Preempt
from policyd.alloc.state import CoreState
from policyd.alloc.value import Value
from policyd.simulate.scenario import Arrival, SimulatedCycle, Simulation

Change = Literal[
    "Starts", "Never", "Earlier", "Later", "New", "Gone", "Preempted", "Spared", "Unknown", "Same"
]
"""What differs for a workload, the first of these that holds.

It is only in the changed course, or only in the first one. It starts though it would not, or does
not though it would; it starts earlier or later. It starts as it would, and is preempted otherwise
than it would be, or no more. Its start is unknown in a course. Nothing differs.
"""


class Interruption(Value, frozen=True):
    """A run that is stopped before its end.

    Attributes:
        at: When, in seconds.
        by: Key of the workload that it is preempted for; empty if it is for none.
        reason: Why, as a Workload's condition has it.
    """

    at: float
    by: str
    reason: str


class SimulatedWorkload(Value, frozen=True):
    """What happens to one workload in a course.

    Attributes:
        key: Its key.
        cluster_queue: Its queue.
        runs: Whether it has quota at the beginning.
        starts: When it gets quota, in seconds; more than once if it is stopped in between.
        interruptions: What stops it.
        known_until: Up to when this is all, in seconds; infinite if nothing else is possible.
    """

    key: str
    cluster_queue: str
    runs: bool = False
    starts: tuple[float, ...] = ()
    interruptions: tuple[Interruption, ...] = ()
    known_until: float = inf

    @property
    def start(self) -> float | None:
        """When it first gets quota, in seconds; infinite for never, None if that is unknown."""
        if self.starts:
            return self.starts[0]
        return inf if self.known_until == inf else None


class SimulatedCourse(Value, frozen=True):
    """What happens to all workloads from a moment on.

    Attributes:
        stays: What happens to each, by key.
        doubts: Keys of workloads that declare no run time, and from whose start on a part of the
            course is unknown, in alphabetical order.
        unordered: ClusterQueues whose order depends on past usage. Nothing is known of them, nor of
            queues that share quota or nodes with them.
    """

    stays: Mapping[str, SimulatedWorkload]
    doubts: tuple[str, ...] = ()
    unordered: tuple[str, ...] = ()


class WorkloadDifference(Value, frozen=True):
    """A workload in both courses.

    Attributes:
        key: Its key.
        change: What differs.
        before: What happens to it as things are; None if it is not there.
        after: What happens to it after the change; None if it is not there.
        seconds: How much later it starts, negative for earlier; None if it does not start in both.
    """

    key: str
    change: Change
    before: SimulatedWorkload | None
    after: SimulatedWorkload | None
    seconds: float | None = None


def course(state: CoreState, arrivals: Iterable[Arrival], *, until: float = inf) -> SimulatedCourse:
    """Return what happens, as far as it is certain.

    Args:
        state: Queues and flavors, without workloads, which are put into it.
        arrivals: All workloads; those that run, and those that are pending, come first.
        until: When to stop, in seconds; what happens later is unknown.
    """
    return _Recorder(state, list(arrivals)).record(until)


def compare(before: SimulatedCourse, after: SimulatedCourse) -> tuple[WorkloadDifference, ...]:
    """Return the difference for each workload of two courses.

    Those that differ come first, by the time of their changed start, then by key; those that are
    gone come after them.
    """
    keys = before.stays.keys() | after.stays.keys()
    found = (_difference(key, before.stays.get(key), after.stays.get(key)) for key in keys)
    return tuple(sorted(found, key=_in_order))


def _in_order(found: WorkloadDifference) -> tuple[bool, float, str]:
    start = None if found.after is None else found.after.start
    return found.change in {"Same", "Unknown"}, inf if start is None else start, found.key


def _difference(
    key: str, before: SimulatedWorkload | None, after: SimulatedWorkload | None
) -> WorkloadDifference:
    if before is None or after is None:
        return WorkloadDifference(key, "New" if before is None else "Gone", before, after)
    one, other = before.start, after.start
    moved = _moved(before, after)
    if moved != "Same":
        both = one is not None and other is not None and inf not in (one, other)
        seconds = other - one if both and one is not None and other is not None else None
        return WorkloadDifference(key, moved, before, after, seconds)
    return WorkloadDifference(key, _interrupted(before, after), before, after)


def _moved(before: SimulatedWorkload, after: SimulatedWorkload) -> Change:
    """Compare when two stays begin; an unknown start is later than all that is known."""
    if before.runs and after.runs:
        return "Same"
    one, other = before.start, after.start
    if one == other and one is not None:
        return "Same"
    if one is None or other is None:
        if other is not None and other <= before.known_until:
            return "Earlier"
        return "Later" if one is not None and one <= after.known_until else "Unknown"
    if inf in (one, other):
        return "Starts" if one == inf else "Never"
    return "Earlier" if other < one else "Later"


def _interrupted(before: SimulatedWorkload, after: SimulatedWorkload) -> Change:
    """Compare what stops a workload, as far as both stays are known."""
    until = min(before.known_until, after.known_until)
    one, other = (
        [each for each in stay.interruptions if each.at <= until] for stay in (before, after)
    )
    if one == other:
        return "Same"
    return "Preempted" if other else "Spared"


class _Recorder:
    """A simulation, and what is certain of it."""

    def __init__(self, state: CoreState, arrivals: list[Arrival]) -> None:
        self._state, self._arrivals = state, arrivals
        self._endless = {
            each.workload.key
            for each in arrivals
            if each.run_seconds is None and each.most_seconds is None
        }
        self._group_of = _groups(state)
        self._unordered = _by_usage(state)
        self._doubtful = {self._group(queue): -inf for queue in self._unordered}
        self._causes: set[str] = set()
        self._starts: dict[str, list[float]] = {each.workload.key: [] for each in arrivals}
        self._stops: dict[str, list[Interruption]] = {each.workload.key: [] for each in arrivals}

    def record(self, until: float) -> SimulatedCourse:
        """Run the simulation to its end."""
        for each in self._arrivals:
            if each.workload.admission is not None:
                self._run(each.workload.key, _queue_of(each), each.at)
        for step in Simulation(self._state, self._arrivals).steps(until=until):
            self._note(step)
        stays = {each.workload.key: self._stay(each, until) for each in self._arrivals}
        return SimulatedCourse(stays, tuple(sorted(self._causes)), self._unordered)

    def _note(self, step: SimulatedCycle) -> None:
        for action in step.plan.actions:
            key, queue = action.workload.key, action.workload.cluster_queue
            known = step.at <= self._doubtful.get(self._group(queue), inf)
            match action:
                case Admit() if known:
                    self._starts[key].append(step.at)
                    self._run(key, queue, step.at)
                case Preempt() if known:
                    self._stop(key, Interruption(step.at, action.preemptor.key, action.reason))
                case Evict() if known:
                    self._stop(key, Interruption(step.at, "", action.reason))
                case _:
                    pass

    def _stop(self, key: str, stop: Interruption) -> None:
        """Note that a run is stopped; one that had only just begun was none."""
        if self._starts[key][-1:] == [stop.at]:
            self._starts[key].pop()
        else:
            self._stops[key].append(stop)

    def _run(self, key: str, queue: str, at: float) -> None:
        """Note that a workload runs, and that nothing is certain later if it has no known end."""
        if key in self._endless and self._doubtful.setdefault(self._group(queue), at) == at:
            self._causes.add(key)

    def _stay(self, arrival: Arrival, until: float) -> SimulatedWorkload:
        key, queue = arrival.workload.key, _queue_of(arrival)
        return SimulatedWorkload(
            key=key,
            cluster_queue=queue,
            runs=arrival.workload.admission is not None,
            starts=tuple(self._starts[key]),
            interruptions=tuple(self._stops[key]),
            known_until=min(until, self._doubtful.get(self._group(queue), inf)),
        )

    def _group(self, queue: str) -> str:
        return self._group_of.get(queue, queue)


def _queue_of(arrival: Arrival) -> str:
    admission = arrival.workload.admission
    return arrival.workload.cluster_queue if admission is None else admission.cluster_queue


def _by_usage(state: CoreState) -> tuple[str, ...]:
    """Return the names of queues in which past usage, which a simulation has not got, decides."""
    if state.history is None:
        return ()
    queues = state.queues.items()
    return tuple(sorted(name for name, each in queues if each.spec and each.spec.by_usage))


def _groups(state: CoreState) -> Mapping[str, str]:
    """Return a name for each queue that those share which share its quota or its nodes."""
    state.settle()  # only then does a queue know the root of its tree
    roots: dict[str, str] = {}
    placed: set[str] = set()
    for name, queue in state.queues.items():
        if queue.node is not None and queue.spec is not None:
            root = queue.node.root
            roots[name] = f"{'queue' if root.queue else 'cohort'} {root.name}"
            if any(flavor in state.ledger.nodes.trees for flavor in queue.spec.flavors):
                placed.add(roots[name])
    return {name: "nodes" if root in placed else root for name, root in roots.items()}
