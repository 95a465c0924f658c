"""What a queue can offer pod sets, flavor by flavor, and what the search found of that."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from policyd.alloc.reasons import (
    FIT,
    NO_FIT,
    MissingQuota,
    Mode,
    NoFitReason,
    Obstacle,
    OverCapacity,
    Try,
    Unsuitable,
    least_severe,
    most_severe,
)
from policyd.alloc.workload import PodSetFlavors


@dataclass(slots=True, eq=False)
class FlavorOffer:
    """What one flavor would have to give, of one group of resources.

    Attributes:
        name: The flavor.
        resources: Which resources it would give.
        charges: How much of each, by cell, in the same order.
        obstacles: Why it is unsuitable, whatever is free; none if it is not.
        barred: Whether it is not even to be tried, for that.
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
    """What a pod set asks of a queue: `totals` for all its pods.

    Without any, it `follows` flavors that its group gets, beside whose pods its own are placed.
    """

    name: str
    count: int
    totals: Mapping[str, int]
    follows: frozenset[str] = frozenset()
    _assignments: dict[tuple[FlavorOffer, ...], PodSetFlavors] = field(default_factory=dict)

    def assignment(self, offers: tuple[FlavorOffer, ...]) -> PodSetFlavors:
        """Return what the pod set gets with one offer of each group; the same value each time."""
        found = self._assignments.get(offers)
        if found is None:
            taken = {
                r: offer.name
                for offer in offers
                for r in offer.resources
                if r in self.totals or offer.name in self.follows
            }
            used = {r: self.totals[r] for r in taken if r in self.totals}
            found = PodSetFlavors(name=self.name, count=self.count, flavors=taken, usage=used)
            self._assignments[offers] = found
        return found


@dataclass(slots=True, eq=False)
class GroupRequests:
    """What pod sets that must have the same flavors ask of a queue; most often it is one.

    What is offered to all of them is in the order of the `searches`, by group of resources; after
    these a resource was met that is `uncovered`, if that is not "".
    """

    pod_sets: tuple[PodSetRequests, ...]
    searches: tuple[tuple[FlavorOffer, ...], ...]
    uncovered: str


@dataclass(slots=True, eq=False)
class Attempt:
    """A flavor that was tried, and did not simply fit.

    Attributes:
        offer: The flavor's offer.
        mode: As the worst of its resources, by the preference of the queue.
        level: How far up the tree that one would borrow.
        hardest: The mode of the resource that is hardest to get: only if all fit it fits.
        borrowing: How far up the one would that borrows most.
        notes: What is not there: the cell, how much of it is needed, how much is available, and
            whether it could ever be more.
    """

    offer: FlavorOffer
    mode: Mode
    level: int = 0
    hardest: Mode = FIT
    borrowing: int = 0
    notes: list[tuple[int, int, int, bool]] = field(default_factory=list)

    @property
    def obstacles(self) -> tuple[Obstacle, ...]:
        """What is in the way; made when it is asked for, since most is never read."""
        offer = self.offer
        return offer.obstacles or tuple(_obstacle(offer, *note) for note in self.notes)

    @property
    def value(self) -> Try:
        """What is to be told of it."""
        flavor, obstacles = self.offer.name, self.obstacles
        return Try(flavor=flavor, mode=self.mode, level=self.level, obstacles=obstacles)

    @property
    def short(self) -> tuple[int, ...]:
        """The cells that do not have what is needed, though they could."""
        return tuple(cell for cell, _, _, possible in self.notes if possible)


def _obstacle(
    offer: FlavorOffer,
    cell: int,
    needed: int,
    available: int,
    possible: bool,  # noqa: FBT001
) -> Obstacle:
    if possible:
        return missing_quota(offer, cell, needed, available)
    requested = offer.charges[cell]
    return OverCapacity(
        flavor=offer.name,
        resource=offer.resource(cell),
        assumed=needed - requested,
        requested=requested,
        capacity=available,
    )


@dataclass(slots=True, eq=False)
class SearchResult:
    """What was found for one group of resources.

    Attributes:
        offer: The best flavor's, None if none will do.
        attempt: How it would be had; None if it simply fits.
        attempts: What was tried and did not simply fit.
        barred: Obstacles that kept flavors from being tried.
        tried: The place of the flavor to start after the next time; -1 to start over.
    """

    offer: FlavorOffer | None = None
    attempt: Attempt | None = None
    attempts: list[Attempt] = field(default_factory=list)
    barred: list[Obstacle] = field(default_factory=list)
    tried: int = -1

    @property
    def mode(self) -> Mode:
        """How the best flavor would be had."""
        if self.offer is None:
            return NO_FIT
        return FIT if self.attempt is None else self.attempt.hardest

    def obstacles(self) -> list[Obstacle]:
        """Return what stands in the way of flavors."""
        return self.barred + [each for attempt in self.attempts for each in attempt.obstacles]


@dataclass(slots=True, eq=False)
class GroupResult:
    """What was found for pod sets that must have the same flavors, by group of resources.

    The search ends with the first that has none. The mode is the worst of them, NO_FIT too if a
    resource is not covered.
    """

    requests: GroupRequests
    searches: list[SearchResult]
    mode: Mode = field(init=False)

    def __post_init__(self) -> None:
        modes = [search.mode for search in self.searches]
        self.mode = NO_FIT if self.requests.uncovered else min(modes, default=FIT)

    @property
    def offers(self) -> tuple[FlavorOffer, ...]:
        """The best offer of every group of resources that has one."""
        return tuple([each.offer for each in self.searches if each.offer is not None])

    def obstacles(self) -> tuple[Obstacle, ...]:
        """Return what stands in the way: of what does not fit, only the last search counts."""
        last = self.searches[-1:]
        if self.mode is NO_FIT and not (last and last[0].offer is None):
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


def missing_quota(offer: FlavorOffer, cell: int, needed: int, available: int) -> MissingQuota:
    """Say how much of a cell of an offer must become free for `needed` to fit."""
    available = max(available, 0)
    return MissingQuota(
        flavor=offer.name,
        resource=offer.resource(cell),
        missing=needed - available,
        requested=needed,
        available=available,
    )
