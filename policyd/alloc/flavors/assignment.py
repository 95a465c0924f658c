"""What a workload would get: flavors for all its pod sets, and how they would be had."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from policyd.alloc.amount import total_of
from policyd.alloc.flavors.offers import GroupRequests, GroupResult, SearchResult, missing_quota
from policyd.alloc.quota import QuotaTree
from policyd.alloc.reasons import (
    Considered,
    MissingQuota,
    Mode,
    NoFitReason,
    Obstacle,
    PodSetRefusal,
    Refusal,
    Unplaced,
    most_severe,
)
from policyd.alloc.topology.values import Placement
from policyd.alloc.value import Value
from policyd.alloc.workload import Delay, PodSetFlavors, ReservedQuota


class Progress(Value, frozen=True):
    """How far the search came, so that the next one can go on.

    Attributes:
        tried: By group of pod sets and of resources, the place of the last flavor tried; -1 if the
            search is to start over.
        demand: What was searched for; the search of something else starts over.
        generation: Of what the queue may have, when it was searched, in which cycle.
        version: Of the tree, when it was searched.
        stops: How far searches came before, since the tree changed.
    """

    tried: tuple[tuple[int, ...], ...]
    demand: object
    generation: int
    cycle: int
    version: int = 0
    stops: frozenset[tuple[tuple[int, ...], ...]] = frozenset()

    @property
    def goes_on(self) -> bool:
        """Whether there are flavors to try that were not tried since the tree changed.

        Each pod set starts over by itself: searches could go round and round for ever, as no one of
        them ends with the last flavors of all.
        """
        left = any(place != -1 for places in self.tried for place in places)
        return left and self.tried not in self.stops

    def after(self, last: "Progress | None") -> "Progress":
        """Remember how far searches came before, unless something changed since the last one."""
        if last is None or (last.version, last.demand) != (self.version, self.demand):
            return self
        return replace(self, stops=last.stops | {last.tried})


@dataclass(slots=True, eq=False)
class Assignment:
    """What the search found for a workload.

    Attributes:
        groups: Results in order; the search ends with the first that cannot fit.
        charges: What it would use, by cell. Not to be changed: it may be shared.
        mode: How it would get it: as the worst of its groups.
        level: How far up the tree it borrows, 0 without borrowing.
        hindered: Whether something that was tried did not simply fit.
        unfinished: Whether there are flavors that have not been tried.
        placements: Where pods go, by pod set.
        delayed: Pod sets that get their place once there is quota.
        unplaced: Why pods cannot be placed, by pod set.
        crowded: Cells of flavors on whose nodes others must make room.
        held: What the workload has already, if it has quota and only needs places.
    """

    groups: list[GroupResult] = field(default_factory=list)
    charges: dict[int, int] = field(default_factory=dict)
    mode: Mode = Mode.FIT
    level: int = 0
    hindered: bool = False
    unfinished: bool = False
    placements: Mapping[str, Placement] = field(default_factory=dict)
    delayed: frozenset[str] = frozenset()
    unplaced: Mapping[str, tuple[Unplaced, ...]] = field(default_factory=dict)
    crowded: frozenset[int] = frozenset()
    held: ReservedQuota | None = None
    _refusal: Refusal | None = field(default=None, init=False)
    _admission: ReservedQuota | None = field(default=None, init=False)

    def add(self, result: GroupResult) -> None:
        """Take in the result for the next group; one that does not fit charges nothing."""
        self.groups.append(result)
        self.mode = min(self.mode, result.mode)
        if result.mode is Mode.NO_FIT:
            return
        for search in result.searches:
            if search.attempts:
                self.hindered = True
            if search.tried != -1:
                self.unfinished = True
            if search.attempt is not None:
                self.level = max(self.level, search.attempt.borrowing)
            if search.offer is not None:
                more = search.offer.charges
                self.charges = total_of(self.charges, more) if self.charges else more

    @property
    def refusal(self) -> Refusal:
        """Why the workload gets nothing; the same value each time."""
        if self._refusal is None:
            self._refusal = Refusal(self.reason(), explain=self.refusals)
        return self._refusal

    @property
    def preempts(self) -> bool:
        """Whether it is to be had by preemption only, if at all."""
        return Mode.NO_FIT < self.mode < Mode.FIT

    @property
    def short(self) -> frozenset[int]:
        """The cells that must become free."""
        attempts = (search.attempt for group in self.groups for search in group.searches)
        short = (cell for attempt in attempts if attempt for cell in attempt.short)
        return self.crowded.union(short)

    @property
    def tried(self) -> tuple[tuple[int, ...], ...]:
        """How far the searches came, by group of pod sets and of resources."""
        return tuple(
            () if group.mode is Mode.NO_FIT else tuple(search.tried for search in group.searches)
            for group in self.groups
        )

    @property
    def flavors(self) -> tuple[tuple[str, ...], ...]:
        """The flavors chosen, by group of pod sets and of resources."""
        return tuple(tuple(offer.name for offer in group.offers) for group in self.groups)

    def admission(self, cluster_queue: str) -> ReservedQuota:
        """Return what the workload gets; only if it fits."""
        if self._admission is None:
            given = (p.assignment(g.offers) for g in self.groups for p in g.requests.pod_sets)
            pod_sets = tuple(given) if self.held is None else self.held.pod_sets
            if self.placements or self.delayed:
                pod_sets = tuple([self._with_place(each) for each in pod_sets])
            self._admission = ReservedQuota(cluster_queue=cluster_queue, pod_sets=pod_sets)
        return self._admission

    def _with_place(self, pod_set: PodSetFlavors) -> PodSetFlavors:
        if pod_set.name in self.delayed:
            return replace(pod_set, delay="Pending")
        placement = self.placements.get(pod_set.name)
        if placement is None:
            return pod_set
        place, requests = placement.assignment, placement.requests
        delay: Delay = "Ready" if pod_set.delay else ""
        return replace(pod_set, placement=place, pod_requests=requests, delay=delay)

    def shortfall(self, tree: QuotaTree) -> tuple[PodSetRefusal, ...]:
        """Say what is missing now, though it was there when the flavors were chosen."""
        missing: dict[int, MissingQuota] = {}
        refusals: list[PodSetRefusal] = []
        for group in self.groups:
            for offer in group.offers:
                for cell in offer.charges:
                    needed, available = self.charges[cell], tree.available(cell)
                    if needed > max(0, available) and cell not in missing:
                        missing[cell] = missing_quota(offer, cell, needed, available)
            obstacles = tuple(missing[c] for o in group.offers for c in o.charges if c in missing)
            refusals += _refusals(group, obstacles)
        return tuple(refusals)

    def reason(self) -> NoFitReason:
        """Say in one word why the workload does not fit."""
        if self.mode is not Mode.NO_FIT:
            return "WaitingForQuota"
        if self.unplaced:
            return "TopologyPlacementFailed"
        return most_severe([r.reason() for r in self.groups if r.mode is Mode.NO_FIT])

    def refusals(self) -> tuple[PodSetRefusal, ...]:
        """Say what stands in the way of which pod set."""
        hindered = [group for group in self.groups if group.mode is not Mode.FIT]
        refusals = (each for group in hindered for each in _refusals(group, group.obstacles()))
        found = {each.name: each for each in refusals}
        for name, obstacles in self.unplaced.items():
            before = found[name].obstacles if name in found else ()
            found[name] = PodSetRefusal(name=name, obstacles=(*before, *obstacles))
        return tuple(found.values())

    def considered(self) -> tuple[Considered, ...]:
        """Return which flavors did not simply fit, pod set by pod set."""
        return tuple(
            Considered(pod_set=pod_set.name, tries=tries)
            for group in self.groups
            if (tries := tuple(attempt.value for s in group.searches for attempt in s.attempts))
            for pod_set in group.requests.pod_sets
        )


def _refusals(group: GroupResult, obstacles: tuple[Obstacle, ...]) -> Iterator[PodSetRefusal]:
    for pod_set in group.requests.pod_sets:
        yield PodSetRefusal(name=pod_set.name, obstacles=obstacles)


@dataclass(slots=True, eq=False)
class Requests:
    """What a workload asks of a queue, worked out once: which cells, and how much of each.

    Attributes:
        groups: What its pod sets ask, those together that must have the same flavors.
        demand: What it was worked out from; equal demands ask the same.
        plain: What the workload gets if there is room for all of it in the first flavors without
            borrowing; None if these are unsuitable.
        totals: What the pods of each pod set need together, by name and resource.
        known: What was found for them, whoever asked, in a version of the tree.
    """

    groups: tuple[GroupRequests, ...]
    demand: object
    plain: Assignment | None = field(init=False)
    totals: Mapping[str, Mapping[str, int]] = field(init=False)
    known: Assignment | None = None
    version: int = -1

    def __post_init__(self) -> None:
        self.plain = _plain(self.groups)
        self.totals = {each.name: each.totals for group in self.groups for each in group.pod_sets}


def _plain(groups: tuple[GroupRequests, ...]) -> Assignment | None:
    """Return what is had of the first flavors: with room there, they are chosen in any queue."""
    assignment = Assignment()
    for group in groups:
        if group.uncovered or any(not found or found[0].obstacles for found in group.searches):
            return None
        searches = [
            SearchResult(found[0], tried=0 if len(found) > 1 else -1) for found in group.searches
        ]
        assignment.add(GroupResult(group, searches))
    return assignment
