"""The fewest moves that let one more workload in: who gives up what it has for something else.

It is tried out that the one fits, and all that are moved fit too, at once and together: quota
first, then places. Sets of workloads are tried by their number. As long as that is not too much,
all of a number are, so that fewer would not do; beyond that, those that crowd one domain most.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from math import comb
from typing import NamedTuple

from policyd.alloc.flavors.assignment import Assignment
from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.ledger import Holding, Victim
from policyd.alloc.plan import Move
from policyd.alloc.preemption.search import candidate_rank
from policyd.alloc.reasons import Mode
from policyd.alloc.state import CoreState
from policyd.alloc.topology.placing import Placer
from policyd.alloc.topology.values import PlacementRequest
from policyd.alloc.workload import QueuedWorkload
from policyd.optimize.crowding import crowds
from policyd.optimize.devices import device_of, gpus_asked
from policyd.optimize.together import Patience, place_together

MOST_STEPS = 20_000
"""How many ways to spread pods are tried: a second or so."""

HOLD_SECONDS = 600.0
"""How long new places are held at most: longer than jobs take to stop."""


class Moves(NamedTuple):
    """How one more fits.

    Attributes:
        assignment: What it gets.
        victims: Who is moved for it.
        moves: What it, and then each of them, will have.
        fewest: Whether it is certain that fewer would not do, with the flavors that each gets in
            the order of its queue.
    """

    assignment: Assignment
    victims: tuple[Victim, ...]
    moves: tuple[Move, ...]
    fewest: bool


@dataclass(slots=True)
class Asker:
    """For whom others may be moved.

    Attributes:
        state: Where; left as it was.
        workload: Who does not fit.
        options: What its queue can give.
        patience: How long places are looked for.
    """

    state: CoreState
    workload: QueuedWorkload
    options: QueueOptions
    patience: Patience = field(default_factory=lambda: Patience(MOST_STEPS))


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


def lost_seconds(workload: QueuedWorkload, now: float) -> float:
    """Return how much of its run a workload loses if it is stopped now."""
    ran = 0.0 if workload.reserved_at is None else max(0.0, now - workload.reserved_at)
    return ran if workload.saves_seconds is None else min(ran, workload.saves_seconds)


def may_move(holding: Holding, asker: QueuedWorkload) -> bool:
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

    left = asker.patience.sets
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
    with _without(asker.state, ranked):
        found = _assigned(asker.state, asker.workload, asker.options)
    requests = {} if found is None else found[1].requests
    for keys in crowds(asker.state.ledger.nodes, requests, by_key):
        some = [by_key[key] for key in keys[:most]]
        number = next((n for n in range(1, len(some) + 1) if _fits(asker, some[:n])), 0)
        some = some[:number]
        for each in tuple(some):
            others = [one for one in some if one is not each]
            some = others if _fits(asker, others) else some
        if some:
            yield tuple(some)


@contextmanager
def _without(state: CoreState, gone: Iterable[Holding]) -> Iterator[None]:
    with state.ledger.trial():
        for holding in gone:
            state.ledger.release(holding)
        yield


def _fits(asker: Asker, gone: Iterable[Holding]) -> bool:
    """Tell whether a workload fits once some are gone, wherever these are."""
    with _without(asker.state, gone):
        found = _assigned(asker.state, asker.workload, asker.options)
        return found is not None and found[1].fits()


def _assigned(
    state: CoreState, workload: QueuedWorkload, options: QueueOptions
) -> tuple[Assignment, Placer] | None:
    """Return the flavors that a workload gets now, and who places it; None if it gets none."""
    assignment = options.search.assign(options.requests(workload))
    if assignment.mode is not Mode.FIT:
        return None
    placer = Placer(state, options, workload, assignment)
    return (assignment, placer) if placer.placeable else None


def _moved(asker: Asker, some: Sequence[Holding]) -> Moves | None:
    """Return the moves if a workload and all of some fit together, once these have let go."""
    queues = asker.state.queues
    asking = [(asker.workload, asker.options)]
    for holding in some:
        options = queues[holding.admission.cluster_queue].options
        assert options is not None, "only who is in a queue that is there is moved"
        asking.append((holding.workload, options))
    got = _together(asker, asking, some) if _fits(asker, some) else None
    if got is None:
        return None
    moves = tuple(
        move_to(asker.state, workload.key, assignment, options.spec.name)
        for (workload, options), assignment in zip(asking, got, strict=True)
    )
    victims = tuple(Victim(holding, "Consolidation") for holding in some)
    return Moves(got[0], victims, moves, fewest=True)


def _together(
    asker: Asker, asking: Sequence[tuple[QueuedWorkload, QueueOptions]], gone: Iterable[Holding]
) -> list[Assignment] | None:
    """Return what each gets if all get something, flavors first and then places."""
    state, got = asker.state, list[Assignment]()
    asked: dict[str, Mapping[str, Sequence[PlacementRequest]]] = {}
    with _without(state, gone):
        for workload, options in asking:
            found = _assigned(state, workload, options)
            if found is None:
                return None
            got.append(found[0])
            asked[workload.key] = found[1].requests
            state.tree.charge(found[0].charges)
        gates, patience = state.settings.gates, asker.patience
        places = place_together(state.ledger.nodes, asked, gates=gates, patience=patience)
    if places is None:
        return None
    return [replace(a, placements=places[k]) for k, a in zip(asked, got, strict=True)]


def move_to(state: CoreState, key: str, assignment: Assignment, queue: str) -> Move:
    """Return the move of a workload to what it is assigned in a queue."""
    admission, until = assignment.admission(queue), state.now + HOLD_SECONDS
    return Move(key=key, admission=admission, pins=assignment.flavors, until=until)
