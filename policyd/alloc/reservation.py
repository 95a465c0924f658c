"""Reservation and backfill: what the first in a queue has waited for long is held for it.

Theory (EASY backfilling; Lifka 1995). Whoever holds quota and says how long it runs ends at a known
time. The first of a queue, once it has waited long enough, has the earliest time reserved at which
it fits then. Others may go before it if that does not make it later: they end by that time, or
there is room for both. If somebody must end of whom it is not known when, nobody may take any
of what is reserved.

One reservation stands in a tree of cohorts at a time, worked out anew in every cycle: that of the
most important, then the oldest. It binds nobody who is before the first in its own queue, and no
other queue in what that one has of its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from math import inf
from operator import itemgetter

from policyd.alloc.cluster_queue import Holding
from policyd.alloc.entry import Entry
from policyd.alloc.hierarchy import Node, descendants
from policyd.alloc.options import QueueOptions
from policyd.alloc.pending import Ticket
from policyd.alloc.reasons import Held, Mode, PodSetRefusal, Refusal
from policyd.alloc.state import State

End = tuple[float, Mapping[int, int]]
"""When something ends at the latest, and what it gives back, by cell."""

_WHEN = itemgetter(0)


@dataclass(slots=True, eq=False)
class Reservation:
    """What is held for the first of a queue.

    Attributes:
        ticket: Whose it is.
        node: Its queue.
        start: From when on it will fit, in seconds since the epoch; infinite if nobody knows.
        charges: What it takes then, by cell.
        ends: Who ends when, those included that this cycle lets begin.
    """

    ticket: Ticket
    node: Node
    start: float
    charges: Mapping[int, int]
    ends: list[End] = field(default_factory=list)

    def held(self, *, own: bool) -> Held:
        """Return the reservation as it stands in the way of others, or of whom it is for."""
        start = None if self.start == inf else self.start
        return Held(workload=self.ticket.workload.key, start=start, own=own)

    def binds(self, entry: Entry) -> bool:
        """Tell whether it concerns a nominated workload at all."""
        if entry.options.node is self.node:
            return entry.ticket.rank > self.ticket.rank
        return bool(entry.assignment.level)

    def delayed_by(self, entry: Entry, state: State) -> bool:
        """Tell whether it could start later if a nominated workload got its assignment now."""
        tree, charges, runs = (
            state.tree,
            entry.assignment.charges,
            entry.ticket.workload.run_seconds,
        )
        if self.start == inf:
            taken = {tree.names[cell] for cell, amount in self.charges.items() if amount}
            return any(amount and tree.names[cell] in taken for cell, amount in charges.items())
        if runs is not None and state.now + runs <= self.start:
            return False
        with tree.trial():
            for end, given_back in self.ends:
                if end <= self.start:
                    tree.release(given_back)
            for victim in entry.targets:
                if end_of(victim.holding, state.now) > self.start:
                    tree.release(victim.holding.charges)
            tree.charge(self.charges)
            return not tree.fits(charges)


class Reservations:
    """The reservations that stand in a cycle, by the root of the tree.

    They are worked out from the state, and change with what the cycle decides.
    """

    def __init__(self, state: State) -> None:
        """Find who is first in each tree and has waited for long, and reserve for them."""
        self._state = state
        first: dict[Node, tuple[Ticket, QueueOptions]] = {}
        for queue in state.opted.values():
            ticket, options = queue.pending.first(), queue.options
            if ticket is None or options is None or not queue.active(options):
                continue
            root, due = options.node.root, ticket.workload.queued_at + reserve_after(options)
            if due <= state.now and (root not in first or ticket.rank < first[root][0].rank):
                first[root] = ticket, options
        found = {root: _reserve(state, *each) for root, each in first.items()}
        self._by_root = {root: each for root, each in found.items() if each is not None}

    @property
    def holders(self) -> dict[str, str]:
        """Whose they are: keys of workloads, and the names of their ClusterQueues."""
        return {r.ticket.workload.key: r.node.name for r in self._by_root.values()}

    def refusal(self, entry: Entry) -> Refusal | None:
        """Return why somebody who fits must not start now; None if it may."""
        found = self._by_root.get(entry.options.node.root)
        if found is None or not found.binds(entry) or not found.delayed_by(entry, self._state):
            return None
        return Refusal("WaitingForQuota", explain=partial(_obstacles, entry, found.held(own=False)))

    def told(self, entry: Entry, refusal: Refusal) -> Refusal:
        """Return a refusal that also says what is reserved, if it is for the one it is for."""
        found = self._by_root.get(entry.options.node.root)
        if found is None or found.ticket is not entry.ticket:
            return refusal
        held = partial(_obstacles, entry, found.held(own=True), refusal.pod_sets)
        return Refusal(refusal.reason, cause=refusal.cause, explain=held, pending=refusal.pending)

    def passes(self, node: Node) -> bool:
        """Tell whether others of a queue may go before its first: one that has a reservation."""
        found = self._by_root.get(node.root)
        return found is not None and found.node is node

    def holds_for(self, entry: Entry) -> bool:
        """Tell whether there is one for a workload."""
        found = self._by_root.get(entry.options.node.root)
        return found is not None and found.ticket is entry.ticket

    def note(self, entry: Entry) -> None:
        """Take notice that a workload was given its assignment, or that it is kept for it."""
        root = entry.options.node.root
        if self.holds_for(entry):
            del self._by_root[root]
        elif root in self._by_root:
            runs = entry.ticket.workload.run_seconds
            end = inf if runs is None else self._state.now + runs
            self._by_root[root].ends.append((end, entry.assignment.charges))


def _obstacles(
    entry: Entry, held: Held, found: Iterable[PodSetRefusal] = ()
) -> tuple[PodSetRefusal, ...]:
    known = {each.name: each.obstacles for each in found}
    names = [pod_set.name for pod_set in entry.ticket.workload.pod_sets]
    return tuple(PodSetRefusal(name=n, obstacles=(*known.get(n, ()), held)) for n in names)


def reserve_after(options: QueueOptions) -> float:
    """Return how long the first of a queue waits for a reservation; for ever if it gets none."""
    seconds = options.spec.opt_ins.reserve_seconds
    return inf if seconds is None else seconds


def _reserve(state: State, ticket: Ticket, options: QueueOptions) -> Reservation | None:
    """Reserve the earliest time; None if there is none, whoever ends."""
    tree, requests = state.tree, ticket.requests(options)
    ends = sorted(_ends(state, options.node.root), key=_WHEN)
    with tree.trial():
        for end, group in groupby([(state.now, {}), *ends], key=_WHEN):
            for _, given_back in group:
                tree.release(given_back)
            assignment = options.search.assign(requests)
            if assignment.mode is Mode.FIT:
                return Reservation(ticket, options.node, end, assignment.charges, ends)
    return None


def _ends(state: State, root: Node) -> Iterable[End]:
    for node in descendants(root):
        if node.queue:
            for holding in state.queues[node.name].holdings.values():
                yield max(state.now, end_of(holding, state.now)), holding.charges


def end_of(holding: Holding, now: float) -> float:
    """Return when somebody ends at the latest; infinite if it does not say how long it runs."""
    workload = holding.workload
    if workload.evicted or holding.preempted:
        return now
    since = now if workload.reserved_at is None else workload.reserved_at
    return inf if workload.run_seconds is None else since + workload.run_seconds
