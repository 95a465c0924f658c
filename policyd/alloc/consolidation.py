"""Consolidation: move the fewest workloads to other flavors and places, so that one more fits.

What is free may be in pieces. Before anybody is stopped it is tried out that the one fits, and all
that are moved fit too, at once and together: quota first, then places. Until they are there, what
they will have is held.

Sets of workloads are tried by their number. As long as that is not too much, all of a number are,
so that fewer would not do; beyond that, those that crowd one domain most.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from math import comb
from typing import NamedTuple

from policyd.alloc.assignment import Assignment
from policyd.alloc.cluster_queue import Holding, Victim
from policyd.alloc.entry import Entry
from policyd.alloc.hierarchy import descendants
from policyd.alloc.options import QueueOptions
from policyd.alloc.plan import Move
from policyd.alloc.preemption_search import candidate_rank
from policyd.alloc.reasons import Mode
from policyd.alloc.state import State
from policyd.alloc.topology.crowding import crowds
from policyd.alloc.topology.devices import device_of, gpus_asked
from policyd.alloc.topology.placing import Placer
from policyd.alloc.topology.together import Patience, place_together
from policyd.alloc.workload import Workload

MOST_TRIES = 500
"""How many sets of workloads are tried: more than all pairs of thirty."""

MOST_STEPS = 2_000
"""How many ways to spread pods are tried in a cycle: a tenth of a second."""

HOLD_SECONDS = 600.0
"""How long new places are held at most: longer than jobs take to stop."""

_MOVED = "\0moved"


class Moves(NamedTuple):
    """How one more fits.

    Attributes:
        assignment: What it gets.
        victims: Who is moved for it.
        moves: What it, and then each of them, will have.
        fewest: Whether it is certain that fewer would not do.
    """

    assignment: Assignment
    victims: tuple[Victim, ...]
    moves: tuple[Move, ...]
    fewest: bool


def consolidate(
    state: State, entry: Entry
) -> tuple[Assignment, tuple[Victim, ...], tuple[Move, ...]] | None:
    """Find the fewest to move so that a nominated workload fits; None if that does not help.

    Of queues that take part, those that are not more important than it and are not protected.
    """
    if entry.assignment.held is not None or _never(entry.assignment):
        return None
    workload, most = entry.ticket.workload, entry.options.spec.opt_ins.moves
    asker = Asker(state, workload, entry.options, Patience(MOST_STEPS))
    found = fewest_moves(asker, _movable(state, entry), most=most)
    return None if found is None else found[:3]


@dataclass(slots=True)
class Asker:
    """For whom others may be moved.

    Attributes:
        state: Where; left as it was.
        workload: Who does not fit.
        options: What its queue has to offer.
        patience: How long places are looked for.
    """

    state: State
    workload: Workload
    options: QueueOptions
    patience: Patience = field(default_factory=lambda: Patience(10 * MOST_STEPS))


def fewest_moves(asker: Asker, movable: Iterable[Holding], *, most: int) -> Moves | None:
    """Find the fewest to move so that a workload fits; of as many, those that lose least by it.

    The least important go first, then those whose moving costs least.

    Args:
        asker: Who does not fit.
        movable: Who may be moved.
        most: How many at most.
    """
    ranked = sorted(movable, key=lambda each: candidate_rank(each, own=True))
    if not ranked or not most or not _fits(asker, ranked):
        return None
    for some, fewest in _sets(asker, ranked, most):
        found = _moved(asker, some)
        if found is not None:
            return found._replace(fewest=fewest and not asker.patience.exhausted)
    return None


def cost_of(holding: Holding, now: float) -> float:
    """Return what it costs to stop somebody: devices, times the seconds of its run that are lost.

    Who asks for no devices is counted by its pods; who saves its state loses as much as it does
    between two times at most.
    """
    who, totals = holding.workload, holding.admission.totals()
    pods = sum(each.count for each in holding.admission.pod_sets)
    units = float(gpus_asked(totals)) or totals.get(device_of(totals), pods)
    return units * lost_seconds(who, now)


def lost_seconds(workload: Workload, now: float) -> float:
    """Return how much of its run a workload loses if it is stopped now."""
    ran = 0.0 if workload.reserved_at is None else max(0.0, now - workload.reserved_at)
    return ran if workload.saves_seconds is None else min(ran, workload.saves_seconds)


def claim_of(state: State, entry: Entry) -> Move:
    """Return the place to hold for a workload for which others are preempted."""
    return _move(state, entry.ticket.workload.key, entry.assignment, entry.queue)


@contextmanager
def places_held(state: State) -> Iterator[None]:
    """Hold, in the block, the places of those that are moved against everybody else.

    Of who still runs, they are held beside those that it has.
    """
    moving = [(k, m.admission) for k, m in state.moving.items() if m.until > state.now]
    held = [(key, state.ground.placements(admission)) for key, admission in moving]
    if not any(places for _, places in held):
        yield
        return
    state.settle()
    with state.ground.trial():
        for key, places in held:
            state.ground.nodes.hold(_place_key(state, key), places)
        yield


def hold_places(state: State, moves: Iterable[Move]) -> None:
    """Hold what moves say from now on, as far as a trial goes."""
    for move in moves:
        places = state.ground.placements(move.admission)
        if places:
            state.ground.nodes.hold(_place_key(state, move.key), places)


def _place_key(state: State, key: str) -> str:
    return key if state.holding(key) is None else key + _MOVED


def _never(assignment: Assignment) -> bool:
    """Tell whether there would be no place even if nobody had one."""
    return assignment.mode is Mode.NO_FIT and bool(assignment.unplaced)


def _movable(state: State, entry: Entry) -> Iterator[Holding]:
    for node in descendants(entry.options.node.root):
        queue = state.opted.get(node.name) if node.queue else None
        options = None if queue is None else queue.options
        if queue is None or options is None or not options.spec.opt_ins.moves:
            continue
        until = state.now - max(options.spec.protection.preemption, options.spec.protection.reclaim)
        for holding in queue.holdings.values():
            ran = holding.workload.reserved_at
            if may_move(holding, entry.ticket.workload) and ran is not None and ran <= until:
                yield holding


def may_move(holding: Holding, asker: Workload) -> bool:
    """Tell whether somebody may be moved for another at all."""
    who = holding.workload
    known = who.pod_sets and not (holding.assumed or holding.stopping)
    delayed = any(each.delay for each in holding.admission.pod_sets)
    settled = not (who.failed_node or (who.elastic and holding.placements) or delayed)
    return bool(known) and settled and who.priority <= asker.priority


def _sets(
    asker: Asker, ranked: Sequence[Holding], most: int
) -> Iterator[tuple[tuple[Holding, ...], bool]]:
    """Yield sets to try, and whether it is certain by then that no smaller one would do."""
    cost = {id(each): cost_of(each, asker.state.now) for each in ranked}

    def loss(some: tuple[Holding, ...]) -> tuple[int, float]:
        return max(h.workload.priority for h in some), sum(cost[id(each)] for each in some)

    left = MOST_TRIES
    for number in range(1, min(most, len(ranked)) + 1):
        tries = comb(len(ranked), number)
        if tries > left:
            crowded = _crowded(asker, ranked, most)
            for some in sorted(crowded, key=lambda each: (len(each), loss(each))):
                yield some, len(some) <= number
            for some in islice(combinations(ranked, number), left):
                yield some, True
            return
        left -= tries
        for some in sorted(combinations(ranked, number), key=loss):
            yield some, True


def _crowded(asker: Asker, ranked: Sequence[Holding], most: int) -> Iterator[tuple[Holding, ...]]:
    """Yield sets that have what is wanted of one domain, without anybody who need not go."""
    by_key = {each.workload.key: each for each in ranked}
    found = _tried(asker, ranked)
    requests = {} if found is None else found[1].requests
    for keys in crowds(asker.state.ground.nodes, requests, by_key):
        some = [by_key[key] for key in keys]
        enough = next((n for n in range(1, most + 1) if _fits(asker, some[:n])), None)
        if enough is None:
            continue
        for each in some[:enough]:
            others = [one for one in some[:enough] if one is not each]
            some, enough = (others, enough - 1) if _fits(asker, others) else (some, enough)
        yield tuple(some[:enough])


def _fits(asker: Asker, gone: Iterable[Holding]) -> bool:
    """Tell whether a workload fits once some are gone, wherever these are."""
    with asker.state.ground.trial():
        for holding in gone:
            asker.state.ground.release(holding)
        found = _assigned(asker.state, asker.workload, asker.options)
        return found is not None and found[1].fits()


def _tried(asker: Asker, gone: Iterable[Holding]) -> tuple[Assignment, Placer] | None:
    with asker.state.ground.trial():
        for holding in gone:
            asker.state.ground.release(holding)
        return _assigned(asker.state, asker.workload, asker.options)


def _assigned(
    state: State, workload: Workload, options: QueueOptions
) -> tuple[Assignment, Placer] | None:
    """Return the flavors that a workload gets now, and who places it; None if it gets none."""
    assignment = options.search.assign(options.requests(workload))
    if assignment.mode is not Mode.FIT:
        return None
    placer = Placer(state, options, workload, assignment)
    return (assignment, placer) if placer.placeable else None


def _moved(asker: Asker, some: Sequence[Holding]) -> Moves | None:
    """Return the moves if a workload and all of some fit together, once these have let go."""
    state = asker.state
    if not _fits(asker, some):
        return None
    asking = [(asker.workload, asker.options)]
    for holding in some:
        options = state.queues[holding.admission.cluster_queue].options
        assert options is not None, "only who is in a queue that is there is moved"
        asking.append((holding.workload, options))
    got: list[tuple[Assignment, Placer]] = []
    with state.ground.trial():
        for holding in some:
            state.ground.release(holding)
        for workload, options in asking:
            found = _assigned(state, workload, options)
            if found is None:
                return None
            state.tree.charge(found[0].charges)
            got.append(found)
        asked = {w.key: g[1].requests for (w, _), g in zip(asking, got, strict=True)}
        places = place_together(
            state.ground.nodes, asked, gates=state.settings.gates, patience=asker.patience
        )
    if places is None:
        return None
    moves, assignments = [], []
    for (workload, options), (assignment, _) in zip(asking, got, strict=True):
        assignments.append(replace(assignment, placements=places[workload.key]))
        moves.append(_move(state, workload.key, assignments[-1], options.spec.name))
    victims = tuple(Victim(holding, "Consolidation") for holding in some)
    return Moves(assignments[0], victims, tuple(moves), fewest=True)


def _move(state: State, key: str, assignment: Assignment, queue: str) -> Move:
    admission, until = assignment.admission(queue), state.now + HOLD_SECONDS
    return Move(key=key, admission=admission, pins=assignment.flavors, until=until)
