"""Reservation and backfill: quota is held for the first in a queue after a long wait.

And other rules of time: gangs that run short for too long, and times to try workloads again.

Theory (EASY backfilling; Lifka 1995). A workload that says how long it runs ends at a known time.
The first of a queue that has waited long enough has the earliest time reserved at which it fits
then. Others may go before it if that does not delay it: they end by that time, or there is room for
both. If the end of a needed workload is not known, none may take the reservation.

One reservation exists in a tree of cohorts at a time, computed anew after each change: that of the
highest priority, then the oldest. It does not bind workloads before the first in its own queue, nor
other queues in their own quota. Workloads that are moved come before: their new places are held
against all others, for a short while.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from math import inf
from operator import attrgetter, itemgetter
from typing import NamedTuple

from policyd.alloc.amount import total_of
from policyd.alloc.cluster_queue import NominatedWorkload, QueueState
from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.ledger import Holding
from policyd.alloc.pending import Rank, Ticket
from policyd.alloc.plan import Evict, Move, Plan, Requeue
from policyd.alloc.quota import QuotaNode, descendants
from policyd.alloc.reasons import Held, Mode, PodSetRefusal, Refusal
from policyd.alloc.state import CoreState
from policyd.optimize.opt_ins import wants

LATELY_SECONDS = 30.0
"""For how long changes are gathered after each preemption in a tree."""

End = tuple[float, Mapping[int, int]]
"""The latest end of a holder, and the quota that it gives back, by cell."""


class Reservation:
    """Quota that is held.

    Attributes:
        claims: The quota to take then, by cell, by the key of the workload; the first is its name.
        node: The queue of the first.
        rank: Binds workloads behind this rank in that queue; empty to bind all.
        start: From when on it will fit, in seconds since the epoch; infinite if not known.
        ends: When workloads end, those included that this cycle lets begin.
    """

    def __init__(self, node: QuotaNode, rank: Rank | tuple[()], start: float) -> None:
        """Hold nothing yet."""
        self.node, self.rank, self.start = node, rank, start
        self.claims: dict[str, Mapping[int, int]] = {}
        self.ends: list[End] = []

    @classmethod
    def of(cls, given: "EarliestStart") -> "Reservation":
        """Hold what a workload takes at its earliest start."""
        made = cls(given.node, given.rank, given.start)
        made.claims[given.key], made.ends = given.charges, list(given.ends)
        return made

    @property
    def name(self) -> str:
        """The key of the workload that it is for, before all others."""
        return next(iter(self.claims))

    def held(self, *, own: bool) -> Held:
        """Return it as an obstacle to others, or to its `own` workload."""
        start = None if self.start == inf else self.start
        return Held(workload=self.name, start=start, own=own)

    def delayed_by(self, entry: NominatedWorkload, state: CoreState) -> bool:
        """Tell whether a nominated workload is bound by it, and could make it start later."""
        own, workload = entry.options.node is self.node, entry.ticket.workload
        passes = entry.ticket.rank < self.rank if own else self.rank and not entry.assignment.level
        if passes or workload.key in self.claims:
            return False
        tree, wanted, runs = state.tree, entry.assignment.charges, workload.run_seconds
        claimed = total_of(*self.claims.values())
        if self.start == inf:
            taken = {tree.names[cell] for cell, amount in claimed.items() if amount}
            return any(amount and tree.names[cell] in taken for cell, amount in wanted.items())
        if runs is not None and state.now + runs <= self.start:
            return False
        victims = (target.holding for target in entry.targets)
        later = (each.charges for each in victims if end_of(each, state.now) > self.start)
        with tree.trial():
            for charges in (*(given for end, given in self.ends if end <= self.start), *later):
                tree.release(charges)
            tree.charge(claimed)
            return not tree.fits(wanted)


class EarliestStart(NamedTuple):
    """What the first of a tree, after a long wait, has reserved before others are looked at.

    Attributes:
        node: Its queue.
        rank: Its rank there.
        key: Its key.
        start: From when on it will fit, in seconds since the epoch; infinite if not known.
        charges: The quota that it takes then, by cell.
        ends: When workloads end.
    """

    node: QuotaNode
    rank: Rank
    key: str
    start: float
    charges: Mapping[int, int]
    ends: Sequence[End]


class EarliestStarts:
    """The earliest starts of a state, worked out again only after a change.

    Most cycles of a busy queue only let workloads wait, which changes none of them.
    """

    def __init__(self, state: CoreState) -> None:
        """Begin with nothing worked out."""
        self._state = state
        self._known: tuple[int, float, list[EarliestStart]] = (-1, 0.0, [])

    def of(self, opted: Mapping[str, QueueState]) -> list[EarliestStart]:
        """Return the earliest start in each tree in which a workload has waited long enough."""
        state = self._state
        if self._known[:2] != (state.revision, state.now):
            self._known = state.revision, state.now, list(_earliest_starts(state, opted))
        return self._known[2]

    def committed(self, plan: Plan) -> None:
        """Note that a plan is carried out: what is known stays true if it only lets some wait."""
        revision, now, known = self._known
        if revision == plan.revision and all(isinstance(each, Requeue) for each in plan.actions):
            self._known = self._state.revision, now, known


class Reservations:
    """The reservations of a cycle, by the root of the tree."""

    def __init__(
        self, state: CoreState, starts: Iterable[EarliestStart], moving: Iterable[Move] = ()
    ) -> None:
        """Reserve for those that are moved, and for the first of queues that has waited long."""
        self._state = state
        self._by_root = {each.node.root: Reservation.of(each) for each in starts}
        self.hold(moving)

    @property
    def holders(self) -> dict[str, str]:
        """Whose they are: keys of workloads, and the names of their ClusterQueues."""
        return {each.name: each.node.name for each in self._by_root.values()}

    def of(self, entry: NominatedWorkload) -> Reservation | None:
        """Return the reservation in the tree of a nominated workload."""
        return self._by_root.get(entry.options.node.root)

    def refusal(self, entry: NominatedWorkload) -> Refusal | None:
        """Return why a workload must not start now, if it fits; None if it may."""
        found = self.of(entry)
        if found is None or not found.delayed_by(entry, self._state):
            return None
        held = found.held(own=False)
        return Refusal("WaitingForQuota", explain=partial(_obstacles, entry, held))

    def explained(self, entry: NominatedWorkload, refusal: Refusal) -> Refusal:
        """Return a refusal that also names the reservation, if the workload has it."""
        found = self.of(entry)
        if found is None or found.name != entry.ticket.workload.key:
            return refusal
        why = partial(_obstacles, entry, found.held(own=True), refusal.pod_sets)
        return Refusal(refusal.reason, cause=refusal.cause, explain=why, pending=refusal.pending)

    def note(self, entry: NominatedWorkload) -> None:
        """Note that a workload was given its assignment, or that it is kept for it."""
        key, found = entry.ticket.workload.key, self.of(entry)
        if found is not None and found.claims.pop(key, None) is None:
            runs = entry.ticket.workload.run_seconds
            end = inf if runs is None else self._state.now + runs
            found.ends.append((end, entry.assignment.charges))
        elif found is not None and not found.claims:
            del self._by_root[entry.options.node.root]

    def hold(self, moves: Iterable[Move]) -> None:
        """Hold the places of moved workloads, in place of the reservation in their tree."""
        for move in moves:
            node = self._state.tree.hierarchy.queues.get(move.admission.cluster_queue)
            if node is not None and move.until > self._state.now:
                found = self._by_root.get(node.root)
                if found is None or found.rank:
                    found = self._by_root[node.root] = Reservation(node, (), self._state.now)
                cells, usage = node.cells, move.admission.usage().items()
                found.claims[move.key] = {cells[names]: n for names, n in usage if names in cells}


class ChangedTrees:
    """Trees in which something changed that may help inadmissible workloads.

    After a preemption these are tried again some time after the first change: quota that becomes
    free meanwhile is given out at once, in the order of all workloads that wait for it.
    """

    def __init__(self) -> None:
        """Begin with nothing changed."""
        self._due: dict[QuotaNode, float] = {}
        self._gathers: dict[QuotaNode, float] = {}

    def preempted(self, node: QuotaNode, now: float) -> None:
        """Note a preemption for a workload of a queue."""
        self._gathers = {root: until for root, until in self._gathers.items() if until > now}
        self._gathers[node.root] = now + LATELY_SECONDS

    def take(
        self,
        changed: Collection[QuotaNode],
        now: float,
        seconds: float,
        waits: Callable[[QuotaNode], bool],
    ) -> set[QuotaNode]:
        """Take out the roots of the trees that are due.

        Args:
            changed: Nodes at which something changed.
            now: Seconds since the epoch.
            seconds: How long changes are gathered.
            waits: Tells whether the tree of a root has inadmissible workloads.
        """
        waiting = {root for root in {node.root for node in changed} if waits(root)}
        for node in changed:
            if node.root in waiting:
                lately = self._gathers.get(node.root, now) > now
                self._due.setdefault(node, now + seconds if lately else now)
        roots = {node.root for node, at in self._due.items() if at <= now}
        if roots:
            self._due = {node: at for node, at in self._due.items() if node.root not in roots}
        return roots

    @property
    def roots(self) -> set[QuotaNode]:
        """The roots of the trees that are due later."""
        return {node.root for node in self._due}

    @property
    def next_at(self) -> float | None:
        """When the first is due, in seconds since the epoch; None if none is."""
        return min(self._due.values(), default=None)


def _obstacles(
    entry: NominatedWorkload, held: Held, others: Iterable[PodSetRefusal] = ()
) -> tuple[PodSetRefusal, ...]:
    known = {each.name: each.obstacles for each in others}
    names = [pod_set.name for pod_set in entry.ticket.workload.pod_sets]
    return tuple(PodSetRefusal(name=n, obstacles=(*known.get(n, ()), held)) for n in names)


def _earliest_starts(state: CoreState, opted: Mapping[str, QueueState]) -> Iterator[EarliestStart]:
    first: dict[QuotaNode, tuple[Ticket, QueueOptions]] = {}
    for queue in opted.values():
        options, after = queue.options, wants(queue.spec).reserve_seconds
        ticket = None if after is None else _first(queue)
        if after is None or ticket is None or options is None or not queue.active:
            continue
        root, due = options.node.root, ticket.workload.queued_at + after
        if due <= state.now and (root not in first or ticket.rank < first[root][0].rank):
            first[root] = ticket, options
    for ticket, options in first.values():
        found = _earliest_start(state, ticket, options)
        if found is not None:
            yield found


def _earliest_start(
    state: CoreState, ticket: Ticket, options: QueueOptions
) -> EarliestStart | None:
    """Return the earliest time at which a workload fits; None if there is none."""
    tree, now, when = state.tree, state.now, itemgetter(0)
    queues = (state.queues[n.name] for n in descendants(options.node.root) if n.queue)
    held = (holding for queue in queues for holding in queue.holdings.values())
    ends = sorted(((max(now, end_of(each, now)), each.charges) for each in held), key=when)
    with tree.trial():
        for end, group in groupby([(now, {}), *ends], key=when):
            for _, given_back in group:
                tree.release(given_back)
            assignment = options.search.assign(ticket.requests(options))
            if assignment.mode is Mode.FIT:
                key, charges = ticket.workload.key, assignment.charges
                return EarliestStart(options.node, ticket.rank, key, end, charges, ends)
    return None


def end_of(holding: Holding, now: float) -> float:
    """Return when a workload ends at the latest; infinite if that is not known."""
    if holding.stopping:
        return now
    since, runs = holding.workload.reserved_at, holding.workload.run_seconds
    return inf if runs is None else (now if since is None else since) + runs


def stale_gangs(queues: Iterable[QueueState], now: float) -> list[Evict]:
    """Return the gangs to stop that have been short of pods for longer than allowed."""
    return [each for due, each in _short_gangs(queues) if due <= now]


def next_due(queues: Iterable[QueueState], now: float) -> float | None:
    """Return when time alone changes a decision here, later than `now`; None if it does not.

    Both in seconds since the epoch.
    """
    queues = list(queues)
    moments = [due for due, _ in _short_gangs(queues)]
    for queue in queues:
        after = wants(queue.spec).reserve_seconds
        ticket = None if after is None else _first(queue)
        if ticket is not None and after is not None:
            moments.append(ticket.workload.queued_at + after)
    return min((moment for moment in moments if moment > now), default=None)


def _short_gangs(queues: Iterable[QueueState]) -> Iterator[tuple[float, Evict]]:
    for queue in queues:
        grace = wants(queue.spec).stale_seconds
        for holding in queue.holdings.values() if grace is not None else ():
            workload, since = holding.workload, holding.workload.short_since
            if since is not None and grace is not None and not holding.stopping:
                yield since + grace, Evict(workload=workload, reason="StaleGang", since=since)


def _first(queue: QueueState) -> Ticket | None:
    """Return the first of all that may be tried, inadmissible or not; None if there is none."""
    tickets = (t for t in queue.pending if not (t.workload.backing_off or t.workload.objection))
    return min(tickets, key=attrgetter("rank"), default=None)
