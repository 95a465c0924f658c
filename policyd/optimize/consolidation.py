"""Consolidation: move the fewest workloads to other flavors and places, so that one more fits.

What is free may be in pieces. Nobody is stopped before it is certain that the one fits, and all
that are moved. Until they are there, what they will have is held.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from policyd.alloc.cluster_queue import NominatedWorkload, QueueState
from policyd.alloc.flavors.assignment import Assignment
from policyd.alloc.ledger import Holding, Victim
from policyd.alloc.plan import Move
from policyd.alloc.quota import descendants
from policyd.alloc.reasons import Mode
from policyd.alloc.state import CoreState
from policyd.optimize.moves import Asker, fewest_moves, may_move, move_to
from policyd.optimize.opt_ins import wants
from policyd.optimize.together import Patience

MOST_STEPS = 2_000
"""How many ways to spread pods are tried in a cycle: a tenth of a second."""

_MOVED = "\0moved"
"""What ends the key by which the new place of somebody is held who still has another."""


def consolidate(
    state: CoreState, entry: NominatedWorkload, opted: Mapping[str, QueueState]
) -> tuple[Assignment, tuple[Victim, ...], tuple[Move, ...]] | None:
    """Find the fewest to move so that a nominated workload fits; None if that does not help.

    Of those `opted`, in queues that take part; who is more important, or protected, stays.
    """
    # Then there would be no place even if nobody had one.
    never = entry.assignment.mode is Mode.NO_FIT and entry.assignment.unplaced
    if never or entry.assignment.held is not None:
        return None
    workload, most = entry.ticket.workload, wants(entry.options.spec).moves
    asker = Asker(state, workload, entry.options, Patience(MOST_STEPS))
    found = fewest_moves(asker, _movable(state, entry, opted), most=most)
    return None if found is None else found[:3]


def claim_of(state: CoreState, entry: NominatedWorkload) -> Move:
    """Return the place to hold for a workload for which others are preempted."""
    return move_to(state, entry.ticket.workload.key, entry.assignment, entry.queue)


@contextmanager
def places_held(state: CoreState, moving: Iterable[Move]) -> Iterator[None]:
    """Hold, in the block, the places of those that are moved against everybody else.

    Of who still runs, they are held beside those that it has.
    """
    held = [(move.key, state.ledger.placements(move.admission)) for move in moving]
    if not any(places for _, places in held):
        yield
        return
    with state.ledger.trial():
        for key, places in held:
            state.ledger.nodes.hold(_place_key(state, key), places)
        yield


def hold_places(state: CoreState, moves: Iterable[Move]) -> None:
    """Hold what moves say from now on, as far as a trial goes."""
    for move in moves:
        places = state.ledger.placements(move.admission)
        if places:
            state.ledger.nodes.hold(_place_key(state, move.key), places)


def _place_key(state: CoreState, key: str) -> str:
    return key if state.holding(key) is None else key + _MOVED


def _movable(
    state: CoreState, entry: NominatedWorkload, opted: Mapping[str, QueueState]
) -> Iterator[Holding]:
    for node in descendants(entry.options.node.root):
        queue = opted.get(node.name) if node.queue else None
        options = None if queue is None else queue.options
        if queue is None or options is None or not (queue.active and wants(options.spec).moves):
            continue
        protection = wants(options.spec).protection
        until = state.now - max(protection.preemption, protection.reclaim)
        for holding in queue.holdings.values():
            ran = holding.workload.reserved_at
            if may_move(holding, entry.ticket.workload) and ran is not None and ran <= until:
                yield holding
