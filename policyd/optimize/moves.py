"""Moves: the fewest workloads that get other flavors or places, so that one more fits.

Free quota and places may be in pieces. It is tried out that the preemptor fits, and all that are
moved fit too, at once and together: quota first, then places. Sets of workloads are tried by their
number. As long as that is not too much, all of a number are, so that fewer would not do; beyond
that, those that occupy one domain most.

In a cycle this is consolidation: no workload is stopped before it is certain that all fit, and the
new places of those that are moved are held until they start.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from heapq import nlargest
from itertools import combinations, islice
from math import comb
from typing import NamedTuple

from policyd.alloc.cluster_queue import NominatedWorkload, QueueState
from policyd.alloc.flavors.assignment import Assignment
from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.ledger import Holding, Victim
from policyd.alloc.plan import Move
from policyd.alloc.preemption.search import candidate_rank
from policyd.alloc.quota import descendants
from policyd.alloc.reasons import Mode
from policyd.alloc.state import CoreState
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.placing import Placer
from policyd.alloc.topology.tree import TopologyTree
from policyd.alloc.topology.values import PODS, PlacementRequest
from policyd.alloc.workload import QueuedWorkload
from policyd.optimize.devices import device_of, gpus_asked
from policyd.optimize.fragmentation import free_of
from policyd.optimize.joint_placement import SearchBudget, place_jointly
from policyd.optimize.opt_ins import wants

MOST_STEPS = 20_000
"""How many ways to spread pods are tried: a second or so."""

CYCLE_STEPS = 2_000
"""The same in a cycle: a tenth of a second."""

MOST_DOMAINS = 64
"""How many domains are looked at for occupants, those with most room first."""

_EVERYWHERE, _NOWHERE = -1, -2
"""Stand for several domains, and for a node that is gone."""

_MOVED = "\0moved"
"""Ends the key by which the new place of a workload is held that still has another."""

HOLD_SECONDS = 600.0
"""How long new places are held at most: longer than jobs take to stop."""


class Moves(NamedTuple):
    """How one more fits.

    Attributes:
        assignment: The assignment of the preemptor.
        victims: The workloads that are moved for it.
        moves: The new assignments of it, and then of each of them.
        fewest: Whether it is certain that fewer would not do, with the flavors that each gets in
            the order of its queue.
    """

    assignment: Assignment
    victims: tuple[Victim, ...]
    moves: tuple[Move, ...]
    fewest: bool


@dataclass(slots=True)
class Preemptor:
    """A workload for which others may be moved.

    Attributes:
        state: The state; left as it was.
        workload: The workload, which does not fit.
        options: The options of its queue.
        budget: The budget of the search for places.
    """

    state: CoreState
    workload: QueuedWorkload
    options: QueueOptions
    budget: SearchBudget = field(default_factory=lambda: SearchBudget(MOST_STEPS))


def fewest_moves(preemptor: Preemptor, movable: Iterable[Holding], *, most: int) -> Moves | None:
    """Find the fewest to move so that a workload fits; of as many, those that lose least by it.

    The least important go first, then those whose moving costs least.

    Args:
        preemptor: The workload that does not fit.
        movable: The workloads that may be moved.
        most: The most moves.
    """
    ranked = sorted(movable, key=lambda each: candidate_rank(each, own=True))
    if not ranked or not most or not _fits(preemptor, ranked):
        return None
    for some, fewest in _sets(preemptor, ranked, most):
        found = _moved(preemptor, some)
        if found is not None:
            return found._replace(fewest=fewest and not preemptor.budget.exhausted)
    return None


def cost_of(holding: Holding, now: float) -> float:
    """Return the cost to stop a workload: devices, times the seconds of its run that are lost.

    Without devices it is counted by its pods. One that saves its state loses no more than it does
    between two times.
    """
    workload, totals = holding.workload, holding.admission.totals()
    pods = sum(each.count for each in holding.admission.pod_sets)
    units = float(gpus_asked(totals)) or totals.get(device_of(totals), pods)
    return units * lost_seconds(workload, now)


def lost_seconds(workload: QueuedWorkload, now: float) -> float:
    """Return how much of its run a workload loses if it is stopped now."""
    ran = 0.0 if workload.reserved_at is None else max(0.0, now - workload.reserved_at)
    return ran if workload.saves_seconds is None else min(ran, workload.saves_seconds)


def may_move(holding: Holding, preemptor: QueuedWorkload) -> bool:
    """Tell whether a workload may be moved for another at all."""
    workload = holding.workload
    known = workload.pod_sets and not (holding.assumed or holding.stopping)
    delayed = any(each.delay for each in holding.admission.pod_sets)
    settled = not (workload.failed_node or (workload.elastic and holding.placements) or delayed)
    return bool(known) and settled and workload.priority <= preemptor.priority


def _sets(
    preemptor: Preemptor, ranked: Sequence[Holding], most: int
) -> Iterator[tuple[tuple[Holding, ...], bool]]:
    """Yield sets to try, and whether it is certain by then that no smaller one would do."""
    cost = {id(each): cost_of(each, preemptor.state.now) for each in ranked}

    def loss(some: tuple[Holding, ...]) -> tuple[int, float]:
        return max(h.workload.priority for h in some), sum(cost[id(each)] for each in some)

    left = preemptor.budget.sets
    for number in range(1, min(most, len(ranked)) + 1):
        tries = comb(len(ranked), number)
        if tries > left:
            occupied = _occupying(preemptor, ranked, most)
            for some in sorted(occupied, key=lambda each: (len(each), loss(each))):
                yield some, len(some) <= number
            for some in islice(combinations(ranked, number), left):
                yield some, True
            return
        left -= tries
        for some in sorted(combinations(ranked, number), key=loss):
            yield some, True


def _occupying(
    preemptor: Preemptor, ranked: Sequence[Holding], most: int
) -> Iterator[tuple[Holding, ...]]:
    """Yield sets that hold the wanted room of one domain, without those that need not move."""
    by_key = {each.workload.key: each for each in ranked}
    with _without(preemptor.state, ranked):
        found = _assigned(preemptor.state, preemptor.workload, preemptor.options)
    requests = {} if found is None else found[1].requests
    for keys in occupants(preemptor.state.ledger.nodes, requests, by_key):
        some = [by_key[key] for key in keys[:most]]
        number = next((n for n in range(1, len(some) + 1) if _fits(preemptor, some[:n])), 0)
        some = some[:number]
        for each in tuple(some):
            others = [one for one in some if one is not each]
            some = others if _fits(preemptor, others) else some
        if some:
            yield tuple(some)


@contextmanager
def _without(state: CoreState, gone: Iterable[Holding]) -> Iterator[None]:
    with state.ledger.trial():
        for holding in gone:
            state.ledger.release(holding)
        yield


def _fits(preemptor: Preemptor, gone: Iterable[Holding]) -> bool:
    """Tell whether the preemptor fits once some are gone, wherever these are."""
    with _without(preemptor.state, gone):
        found = _assigned(preemptor.state, preemptor.workload, preemptor.options)
        return found is not None and found[1].fits()


def _assigned(
    state: CoreState, workload: QueuedWorkload, options: QueueOptions
) -> tuple[Assignment, Placer] | None:
    """Return the flavors that a workload gets now, and its placer; None if it gets none."""
    assignment = options.search.assign(options.requests(workload))
    if assignment.mode is not Mode.FIT:
        return None
    placer = Placer(state, options, workload, assignment)
    return (assignment, placer) if placer.placeable else None


def _moved(preemptor: Preemptor, some: Sequence[Holding]) -> Moves | None:
    """Return the moves if a workload and all of some fit together, once these have let go."""
    queues = preemptor.state.queues
    asking = [(preemptor.workload, preemptor.options)]
    for holding in some:
        options = queues[holding.admission.cluster_queue].options
        assert options is not None, "only workloads of known queues are moved"
        asking.append((holding.workload, options))
    got = _together(preemptor, asking, some) if _fits(preemptor, some) else None
    if got is None:
        return None
    moves = tuple(
        move_to(preemptor.state, workload.key, assignment, options.spec.name)
        for (workload, options), assignment in zip(asking, got, strict=True)
    )
    victims = tuple(Victim(holding, "Consolidation") for holding in some)
    return Moves(got[0], victims, moves, fewest=True)


def _together(
    preemptor: Preemptor,
    asking: Sequence[tuple[QueuedWorkload, QueueOptions]],
    gone: Iterable[Holding],
) -> list[Assignment] | None:
    """Return the assignment of each if all get one, flavors first and then places."""
    state, got = preemptor.state, list[Assignment]()
    asked: dict[str, Mapping[str, Sequence[PlacementRequest]]] = {}
    with _without(state, gone):
        for workload, options in asking:
            found = _assigned(state, workload, options)
            if found is None:
                return None
            got.append(found[0])
            asked[workload.key] = found[1].requests
            state.tree.charge(found[0].charges)
        gates, budget = state.settings.gates, preemptor.budget
        places = place_jointly(state.ledger.nodes, asked, gates=gates, budget=budget)
    if places is None:
        return None
    return [replace(a, placements=places[k]) for k, a in zip(asked, got, strict=True)]


def move_to(state: CoreState, key: str, assignment: Assignment, queue: str) -> Move:
    """Return the move of a workload to its assignment in a queue."""
    admission, until = assignment.admission(queue), state.now + HOLD_SECONDS
    return Move(key=key, admission=admission, pins=assignment.flavors, until=until)


def occupants(
    nodes: Nodes, requests: Mapping[str, Sequence[PlacementRequest]], keys: Iterable[str]
) -> Iterator[list[str]]:
    """Yield, for each domain that a request might be in, the workloads that occupy it.

    Args:
        nodes: The nodes with the holdings of workloads.
        requests: The requests, by flavor.
        keys: The workloads to look at.

    Yields:
        Keys, first those that have most devices there; of equals, in the order of `keys`.
    """
    known = list(keys)
    for flavor, (request, *_) in requests.items():
        tree, device = nodes.trees[flavor], device_of(request.requests) or PODS
        there: dict[int, Counter[str]] = {}
        for key in known:
            for placement in nodes.held.get(key, ()):
                each = placement.requests.get(device, 1 if device == PODS else 0)
                for name, count in placement.assignment.domains:
                    domain = _domain(tree, request, tree.leaves.get(name))
                    there.setdefault(domain, Counter())[key] += each * count
        there.pop(_NOWHERE, None)
        free = [*free_of(tree, device), 0]
        for domain in nlargest(MOST_DOMAINS, there, key=free.__getitem__):
            yield [key for key, amount in there[domain].most_common() if amount]


def _domain(tree: TopologyTree, request: PlacementRequest, leaf: int | None) -> int:
    """Return the domain, of those that a request might be in, that a leaf is in."""
    if leaf is None:
        return _NOWHERE
    if request.mode != "Required" or request.level not in tree.levels:
        return _EVERYWHERE
    return tree.ancestor(leaf, tree.levels.index(request.level))


def consolidate(
    state: CoreState, entry: NominatedWorkload, opted: Mapping[str, QueueState]
) -> tuple[Assignment, tuple[Victim, ...], tuple[Move, ...]] | None:
    """Find the fewest to move so that a nominated workload fits; None if that does not help.

    Only workloads of queues that `opted` in are moved, none that is more important or protected.
    """
    # Then there would be no place even on empty nodes.
    never = entry.assignment.mode is Mode.NO_FIT and entry.assignment.unplaced
    if never or entry.assignment.held is not None:
        return None
    workload, most = entry.ticket.workload, wants(entry.options.spec).moves
    preemptor = Preemptor(state, workload, entry.options, SearchBudget(CYCLE_STEPS))
    found = fewest_moves(preemptor, _movable(state, entry, opted), most=most)
    return None if found is None else found[:3]


def claim_of(state: CoreState, entry: NominatedWorkload) -> Move:
    """Return the place to hold for a workload for which others are preempted."""
    return move_to(state, entry.ticket.workload.key, entry.assignment, entry.queue)


@contextmanager
def places_held(state: CoreState, moving: Iterable[Move]) -> Iterator[None]:
    """Hold the new places of moved workloads in the block, beside those they still have."""
    held = [(move.key, state.ledger.placements(move.admission)) for move in moving]
    if not any(places for _, places in held):
        yield
        return
    with state.ledger.trial():
        for key, places in held:
            state.ledger.nodes.hold(_place_key(state, key), places)
        yield


def hold_places(state: CoreState, moves: Iterable[Move]) -> None:
    """Hold the new places of moves from now on, within a trial."""
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
