"""Consolidation: move the fewest workloads to other flavors, so that one more fits.

What is free may be in pieces. Before anybody is stopped it is tried out that the one fits, and all
that are moved fit too, at once and together. Until they are there, their new places are held.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, islice

from policyd.alloc.assignment import Assignment
from policyd.alloc.cluster_queue import Holding, Victim
from policyd.alloc.entry import Entry
from policyd.alloc.hierarchy import descendants
from policyd.alloc.plan import Move
from policyd.alloc.preemption_search import candidate_rank
from policyd.alloc.reasons import Mode
from policyd.alloc.state import State

MOST_TRIES = 500
"""How many sets of workloads are tried: more than all pairs of thirty."""

HOLD_SECONDS = 600.0
"""How long new places are held at most: longer than jobs take to stop."""

Moves = tuple[Assignment, tuple[Victim, ...], tuple[Move, ...]]
"""What a workload gets, who is moved for it, and the places of them all."""


def consolidate(state: State, entry: Entry) -> Moves | None:
    """Find the fewest to move so that a nominated workload fits; None if that does not help.

    Of queues that take part, those that are not more important than it and are not protected.
    """
    movable = sorted(_movable(state, entry), key=lambda each: candidate_rank(each, own=True))
    numbers = range(1, entry.options.spec.opt_ins.moves + 1)
    sets = (some for number in numbers for some in combinations(movable, number))
    tried = (_moved(state, entry, some) for some in islice(sets, MOST_TRIES))
    return next((each for each in tried if each is not None), None)


def claim_of(state: State, entry: Entry) -> Move:
    """Return the place to hold for a workload for which others are preempted."""
    admission, until = entry.assignment.admission(entry.queue), state.now + HOLD_SECONDS
    pins = entry.assignment.flavors
    return Move(key=entry.ticket.workload.key, admission=admission, pins=pins, until=until)


def _movable(state: State, entry: Entry) -> Iterator[Holding]:
    for node in descendants(entry.options.node.root):
        queue = state.opted.get(node.name) if node.queue else None
        options = None if queue is None else queue.options
        if queue is None or options is None or options.topologies or not options.spec.opt_ins.moves:
            continue
        until = state.now - max(options.spec.protection.preemption, options.spec.protection.reclaim)
        for holding in queue.holdings.values():
            who = holding.workload
            known = who.pod_sets and not (holding.assumed or holding.stopping)
            ran = who.reserved_at is not None and who.reserved_at <= until
            if known and ran and who.priority <= entry.ticket.workload.priority:
                yield holding


def _moved(state: State, entry: Entry, some: Sequence[Holding]) -> Moves | None:
    asking = [(entry.ticket.workload, entry.options)]
    for holding in some:
        options = state.queues[holding.admission.cluster_queue].options
        assert options is not None, "only who is in a queue that takes part is moved"
        asking.append((holding.workload, options))
    got, until = [], state.now + HOLD_SECONDS
    with state.tree.trial():
        for holding in some:
            state.tree.release(holding.charges)
        for workload, options in asking:
            found = options.search.assign(options.requests(workload))
            if found.mode is not Mode.FIT:
                return None
            state.tree.charge(found.charges)
            got.append((workload.key, found, options.spec.name))
    victims = tuple(Victim(holding, "Consolidation") for holding in some)
    moves = (Move(key=k, admission=a.admission(q), pins=a.flavors, until=until) for k, a, q in got)
    return got[0][1], victims, tuple(moves)
