"""Flavors for pod sets: the options of a queue, and the results of the search."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from policyd.alloc.amount import total_of
from policyd.alloc.quota import QuotaTree
from policyd.alloc.reasons import (
    FIT,
    NO_FIT,
    Considered,
    MissingQuota,
    Mode,
    NoFitReason,
    Obstacle,
    OverCapacity,
    PodSetRefusal,
    Refusal,
    TriedFlavor,
    Unplaced,
    Unsuitable,
    least_severe,
    most_severe,
)
from policyd.alloc.topology.values import Placement
from policyd.alloc.value import Value
from policyd.alloc.workload import Delay, PodSetFlavors, ReservedQuota

_MOST_ASSIGNMENTS = 64

Note = tuple[int, int, int, bool]
"""A cell with too little: its need, what is available, and whether that could ever be more."""


@dataclass(slots=True, eq=False)
class FlavorOption:
    """The amounts that one flavor would give of a group of resources.

    Attributes:
        name: The flavor.
        resources: Which resources it would give.
        charges: How much of each, by cell, in the same order.
        obstacles: Why it is unsuitable, however much is free; empty if it is suitable.
        barred: Whether it is not even tried because of them.
    """

    name: str
    resources: tuple[str, ...]
    charges: dict[int, int]
    obstacles: tuple[Obstacle, ...] = ()
    barred: bool = False

    def resource(self, cell: int) -> str:
        """Return which resource a cell gives."""
        return self.resources[list(self.charges).index(cell)]


@dataclass(slots=True, eq=False)
class PodSetRequests:
    """The requests of a pod set to a queue; without `totals`, it `follows` flavors of its group."""

    name: str
    count: int
    totals: Mapping[str, int]
    follows: frozenset[str] = frozenset()
    _assignments: dict[tuple[FlavorOption, ...], PodSetFlavors] = field(default_factory=dict)

    def assignment(self, options: tuple[FlavorOption, ...]) -> PodSetFlavors:
        """Return the pod set's flavors by one option of each group; the same value each time."""
        found = self._assignments.get(options)
        if found is None:
            taken = {
                r: option.name
                for option in options
                for r in option.resources
                if r in self.totals or option.name in self.follows
            }
            used = {r: self.totals[r] for r in taken if r in self.totals}
            found = PodSetFlavors(name=self.name, count=self.count, flavors=taken, usage=used)
            if len(self._assignments) >= _MOST_ASSIGNMENTS:
                self._assignments.clear()
            self._assignments[options] = found
        return found


@dataclass(slots=True, eq=False)
class GroupRequests:
    """The requests of pod sets that must have the same flavors; most often it is one pod set.

    There is a search for each group of resources; then, unless "", one is `uncovered`.
    """

    pod_sets: tuple[PodSetRequests, ...]
    searches: tuple[tuple[FlavorOption, ...], ...]
    uncovered: str


@dataclass(slots=True, eq=False)
class Attempt:
    """A flavor that was tried, and did not simply fit.

    Attributes:
        mode: As the worst of its resources, by the preference of the queue.
        level: How far up the tree that one would borrow.
        hardest: The mode of the resource that is hardest to get: only if all fit it fits.
        borrowing: How far up the tree any of them would borrow at most.
        notes: The missing amounts.
    """

    option: FlavorOption
    mode: Mode
    level: int = 0
    hardest: Mode = FIT
    borrowing: int = 0
    notes: list[Note] = field(default_factory=list)

    @property
    def obstacles(self) -> tuple[Obstacle, ...]:
        """The obstacles, made when they are read, since most never are."""
        option = self.option
        return option.obstacles or tuple([_obstacle(option, note) for note in self.notes])


def _obstacle(option: FlavorOption, note: Note) -> Obstacle:
    cell, needed, available, possible = note
    if possible:
        return missing_quota(option, cell, needed, available)
    requested = option.charges[cell]
    return OverCapacity(
        flavor=option.name,
        resource=option.resource(cell),
        assumed=needed - requested,
        requested=requested,
        capacity=available,
    )


@dataclass(slots=True, eq=False)
class SearchResult:
    """The result of the search for one group of resources.

    Attributes:
        option: The best flavor's, None if none will do.
        attempt: How the request would be met; None if it simply fits.
        attempts: The attempts that did not simply fit.
        barred: Obstacles that kept flavors from being tried.
        tried: The place of the flavor to start after the next time; -1 to start over.
    """

    option: FlavorOption | None = None
    attempt: Attempt | None = None
    attempts: list[Attempt] = field(default_factory=list)
    barred: list[Obstacle] = field(default_factory=list)
    tried: int = -1

    @property
    def mode(self) -> Mode:
        """How the best flavor would be had."""
        if self.option is None:
            return NO_FIT
        return FIT if self.attempt is None else self.attempt.hardest

    def obstacles(self) -> list[Obstacle]:
        """Return the obstacles of all flavors."""
        return self.barred + [each for attempt in self.attempts for each in attempt.obstacles]


@dataclass(slots=True, eq=False)
class GroupResult:
    """The results for pod sets that must have the same flavors, by group of resources.

    The search ends with the first that has none. The mode is the worst; NO_FIT without coverage.
    """

    requests: GroupRequests
    searches: list[SearchResult]
    mode: Mode = field(init=False)

    def __post_init__(self) -> None:
        modes = [search.mode for search in self.searches]
        self.mode = NO_FIT if self.requests.uncovered else min(modes, default=FIT)

    @property
    def options(self) -> tuple[FlavorOption, ...]:
        """The best option of every group of resources that has one."""
        return tuple([each.option for each in self.searches if each.option is not None])

    def obstacles(self) -> tuple[Obstacle, ...]:
        """Return the obstacles: if it does not fit, only the last search counts."""
        last = self.searches[-1:]
        if self.mode is NO_FIT and not (last and last[0].option is None):
            return (Unsuitable(kind="NotCovered", name=self.requests.uncovered),)
        counted = last if self.mode is NO_FIT else [s for s in self.searches if s.mode is not FIT]
        return tuple([each for search in counted for each in search.obstacles()])

    def reason(self) -> NoFitReason:
        """Say in one word why no flavor fits, if none does."""
        by_search = [
            [most_severe([o.reason for o in attempt.obstacles]) for attempt in tried]
            for search in self.searches
            if (tried := [attempt for attempt in search.attempts if attempt.mode is NO_FIT])
        ]
        return most_severe([least_severe(reasons) for reasons in by_search])


def missing_quota(option: FlavorOption, cell: int, needed: int, available: int) -> MissingQuota:
    """Say how much of a cell of an option must become free for `needed` to fit."""
    available = max(available, 0)
    return MissingQuota(
        flavor=option.name,
        resource=option.resource(cell),
        missing=needed - available,
        requested=needed,
        available=available,
    )


class Progress(Value, frozen=True):
    """How far the search came, so that the next one can go on.

    Attributes:
        tried: By group of pod sets and of resources, the place of the last flavor tried; -1 if the
            search is to start over.
        request_key: The requests that were searched for; a search for others starts over.
        generation: Of the queue's quota at the search, and of the cycle.
        version: Of the tree at the search.
        stops: How far searches came before, since the tree changed.
    """

    tried: tuple[tuple[int, ...], ...]
    request_key: object
    generation: int
    cycle: int
    version: int = 0
    stops: frozenset[tuple[tuple[int, ...], ...]] = frozenset()

    @property
    def goes_on(self) -> bool:
        """Whether there are flavors to try that were not tried since the tree changed.

        Each pod set starts over by itself, so that searches could go round for ever.
        """
        left = any(place != -1 for places in self.tried for place in places)
        return left and self.tried not in self.stops

    def after(self, last: "Progress | None") -> "Progress":
        """Remember how far searches came before, unless something changed since the last one."""
        if last is None or (last.version, last.request_key) != (self.version, self.request_key):
            return self
        return replace(self, stops=last.stops | {last.tried})


@dataclass(slots=True, eq=False)
class Assignment:
    """The result of the search for a workload.

    Attributes:
        groups: Results in order; the search ends with the first that cannot fit.
        charges: Amounts to use, by cell. Not to be changed: it may be shared.
        mode: How it would be met: the worst mode of its groups.
        level: How far up the tree it borrows, 0 without borrowing.
        hindered: Whether a flavor was tried that did not simply fit.
        unfinished: Whether there are flavors that have not been tried.
        placements: Where pods go, by pod set.
        delayed: Pod sets that get their place once there is quota.
        unplaced: Why pods cannot be placed, by pod set.
        occupied: Cells of flavors on whose nodes other workloads must make room.
        held: The quota that the workload has already, if it only needs places.
    """

    groups: list[GroupResult] = field(default_factory=list)
    charges: dict[int, int] = field(default_factory=dict)
    mode: Mode = FIT
    level: int = 0
    hindered: bool = False
    unfinished: bool = False
    placements: Mapping[str, Placement] = field(default_factory=dict)
    delayed: frozenset[str] = frozenset()
    unplaced: Mapping[str, tuple[Unplaced, ...]] = field(default_factory=dict)
    occupied: frozenset[int] = frozenset()
    held: ReservedQuota | None = None
    _refusal: Refusal | None = field(default=None, init=False)
    _admission: ReservedQuota | None = field(default=None, init=False)

    def add(self, result: GroupResult) -> None:
        """Take in the result for the next group; one that does not fit charges nothing."""
        self.groups.append(result)
        self.mode = min(self.mode, result.mode)
        if result.mode is NO_FIT:
            return
        for search in result.searches:
            if search.attempts:
                self.hindered = True
            if search.tried != -1:
                self.unfinished = True
            if search.attempt is not None:
                self.level = max(self.level, search.attempt.borrowing)
            if search.option is not None:
                more = search.option.charges
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
        return NO_FIT < self.mode < FIT

    @property
    def short(self) -> frozenset[int]:
        """The cells that must become free."""
        attempts = (search.attempt for group in self.groups for search in group.searches)
        notes = (note for attempt in attempts if attempt for note in attempt.notes)
        return self.occupied.union([cell for cell, _, _, possible in notes if possible])

    @property
    def tried(self) -> tuple[tuple[int, ...], ...]:
        """How far the searches came, by group of pod sets and of resources."""
        return tuple(
            () if group.mode is NO_FIT else tuple(search.tried for search in group.searches)
            for group in self.groups
        )

    @property
    def flavors(self) -> tuple[tuple[str, ...], ...]:
        """The flavors chosen, by group of pod sets and of resources."""
        return tuple(tuple(option.name for option in group.options) for group in self.groups)

    @property
    def pod_sets(self) -> tuple[PodSetFlavors, ...]:
        """The flavors that its pod sets get, or have already, without places."""
        if self.held is not None:
            return self.held.pod_sets
        return tuple([p.assignment(g.options) for g in self.groups for p in g.requests.pod_sets])

    def admission(self, cluster_queue: str) -> ReservedQuota:
        """Return the quota to reserve; only if the workload fits."""
        if self._admission is None:
            pod_sets = self.pod_sets
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
        """Return the quota that is missing now, but was available when the flavors were chosen."""
        missing: dict[int, MissingQuota] = {}
        refusals: list[PodSetRefusal] = []
        for group in self.groups:
            for option in group.options:
                for cell in option.charges:
                    needed, available = self.charges[cell], tree.available(cell)
                    if needed > max(0, available) and cell not in missing:
                        missing[cell] = missing_quota(option, cell, needed, available)
            obstacles = tuple(missing[c] for o in group.options for c in o.charges if c in missing)
            refusals += _refusals(group, obstacles)
        return tuple(refusals)

    def reason(self) -> NoFitReason:
        """Say in one word why the workload does not fit."""
        if self.mode is not NO_FIT:
            return "WaitingForQuota"
        if self.unplaced:
            return "TopologyPlacementFailed"
        return most_severe([r.reason() for r in self.groups if r.mode is NO_FIT])

    def refusals(self) -> tuple[PodSetRefusal, ...]:
        """Return the obstacles of each pod set."""
        hindered = [group for group in self.groups if group.mode is not FIT]
        refusals = (each for group in hindered for each in _refusals(group, group.obstacles()))
        found = {each.name: each for each in refusals}
        for name, obstacles in self.unplaced.items():
            before = found[name].obstacles if name in found else ()
            found[name] = PodSetRefusal(name=name, obstacles=(*before, *obstacles))
        return tuple(found.values())

    def considered(self) -> tuple[Considered, ...]:
        """Return which flavors did not simply fit, pod set by pod set."""
        found = []
        for group in self.groups:
            tries = tuple(
                TriedFlavor(flavor=a.option.name, mode=a.mode, level=a.level, obstacles=a.obstacles)
                for search in group.searches
                for a in search.attempts
            )
            names = [pod_set.name for pod_set in group.requests.pod_sets if tries]
            found += [Considered(pod_set=name, tries=tries) for name in names]
        return tuple(found)


def _refusals(group: GroupResult, obstacles: tuple[Obstacle, ...]) -> Iterator[PodSetRefusal]:
    for pod_set in group.requests.pod_sets:
        yield PodSetRefusal(name=pod_set.name, obstacles=obstacles)


@dataclass(slots=True, eq=False)
class Requests:
    """The requests of a workload to a queue, computed once: cells, and the amount of each.

    Attributes:
        groups: The requests of its pod sets, those together that must have the same flavors.
        request_key: The value that it was computed from; equal keys mean equal requests.
        plain: The assignment if the first flavors have room without borrowing; None if they are
            unsuitable.
        totals: The need of all pods of each pod set, by name and resource.
        known: The results for these requests in a `version` of the tree.
    """

    groups: tuple[GroupRequests, ...]
    request_key: object
    plain: Assignment | None = field(init=False)
    totals: Mapping[str, Mapping[str, int]] = field(init=False)
    known: Assignment | None = None
    version: int = -1

    def __post_init__(self) -> None:
        self.plain = _plain(self.groups)
        self.totals = {each.name: each.totals for group in self.groups for each in group.pod_sets}


def _plain(groups: tuple[GroupRequests, ...]) -> Assignment | None:
    """Return the assignment of the first flavors: with room there, any queue chooses them."""
    assignment = Assignment()
    for group in groups:
        if group.uncovered or any(not found or found[0].obstacles for found in group.searches):
            return None
        searches = [
            SearchResult(found[0], tried=0 if len(found) > 1 else -1) for found in group.searches
        ]
        assignment.add(GroupResult(group, searches))
    return assignment
