"""What a search for flavors found: for each group of resources, of pod sets, for the workload."""

from collections.abc import Iterator
from enum import IntEnum

from policyd.alloc.offers import GroupRequests, Offer
from policyd.alloc.quota import QuotaTree
from policyd.alloc.reasons import (
    MissingQuota,
    NoFitReason,
    Obstacle,
    OverCapacity,
    PodSetRefusal,
    Refusal,
    Unsuitable,
    least_severe,
    most_severe,
    obstacle_reason,
)
from policyd.alloc.value import Value
from policyd.alloc.workload import Admission


class Mode(IntEnum):
    """How a flavor would be had; ordered, the best last."""

    NO_FIT = 0
    """Not at all, as things are."""
    BLOCKED = 1
    """By preemption, but nobody may be preempted."""
    PREEMPT = 2
    """By preemption in the workload's own queue."""
    RECLAIM = 3
    """By preemption in other queues only."""
    FIT = 4
    """At once."""


class Attempt:
    """A flavor that was tried, and did not simply fit.

    Attributes:
        offer: The flavor's offer.
        mode: As the worst of its resources.
        level: How far up the tree that one would borrow.
        borrowing: How far up the one would that borrows most.
        notes: What is not there: the place of the resource in the offer, how much is needed, how
            much is available, and whether it could ever be more.
    """

    __slots__ = ("borrowing", "level", "mode", "notes", "offer")

    def __init__(self, offer: Offer, mode: Mode) -> None:
        self.offer = offer
        self.mode = mode
        self.level = 0
        self.borrowing = 0
        self.notes: list[tuple[int, int, int, bool]] = []

    @property
    def obstacles(self) -> tuple[Obstacle, ...]:
        """What is in the way; made when it is asked for, since most is never read."""
        offer = self.offer
        return offer.obstacles or tuple(_obstacle(offer, *note) for note in self.notes)

    @property
    def short(self) -> tuple[int, ...]:
        """The cells that do not have what is needed, though they could."""
        cells = tuple(self.offer.charges)
        return tuple(cells[place] for place, _, _, possible in self.notes if possible)


def _obstacle(offer: Offer, place: int, needed: int, available: int, possible: bool) -> Obstacle:  # noqa: FBT001
    if possible:
        return missing_quota(offer, place, needed, available)
    requested = tuple(offer.charges.values())[place]
    return OverCapacity(
        flavor=offer.name,
        resource=offer.resources[place],
        assumed=needed - requested,
        requested=requested,
        capacity=available,
    )


class SearchResult:
    """What was found for one group of resources.

    Attributes:
        offer: The best flavor's, None if none will do.
        attempt: How it would be had; None if it simply fits.
        mode: The best mode.
        level: Its borrowing level.
        attempts: What was tried and did not simply fit.
        barred: Obstacles that kept flavors from being tried.
        tried: The place of the flavor to start after the next time; -1 to start over.
    """

    __slots__ = ("attempt", "attempts", "barred", "level", "mode", "offer", "tried")

    def __init__(self) -> None:
        self.offer: Offer | None = None
        self.attempt: Attempt | None = None
        self.mode = Mode.NO_FIT
        self.level = 0
        self.attempts: list[Attempt] = []
        self.barred: list[Obstacle] = []
        self.tried = -1

    def obstacles(self) -> list[Obstacle]:
        """Return what stands in the way, if anything does."""
        if self.mode is Mode.FIT:
            return []
        return self.barred + [each for attempt in self.attempts for each in attempt.obstacles]


class GroupResult:
    """What was found for pod sets that must have the same flavors.

    Attributes:
        requests: What was searched for.
        searches: Results by group of resources; the search ends with the first that has none.
        mode: As the worst of them, NO_FIT too if a resource is not covered.
    """

    __slots__ = ("mode", "requests", "searches")

    def __init__(self, requests: GroupRequests) -> None:
        self.requests = requests
        self.searches: list[SearchResult] = []
        self.mode = Mode.FIT

    @property
    def offers(self) -> tuple[Offer, ...]:
        """The best offer of every group of resources that has one."""
        return tuple([each.offer for each in self.searches if each.offer is not None])

    def obstacles(self) -> tuple[Obstacle, ...]:
        """Return what stands in the way: of what does not fit, only the last search counts."""
        if self.mode is not Mode.NO_FIT:
            return tuple([each for search in self.searches for each in search.obstacles()])
        if self.searches and self.searches[-1].offer is None:
            return tuple(self.searches[-1].obstacles())
        return (Unsuitable(kind="NotCovered", name=self.requests.uncovered),)

    def reason(self) -> NoFitReason:
        """Say in one word why no flavor fits, if none does."""
        by_search = [
            [most_severe([obstacle_reason(o) for o in attempt.obstacles]) for attempt in tried]
            for search in self.searches
            if (tried := [attempt for attempt in search.attempts if attempt.mode is Mode.NO_FIT])
        ]
        return most_severe([least_severe(reasons) for reasons in by_search])


class Progress(Value, frozen=True):
    """How far the search came, so that the next one can go on.

    Attributes:
        tried: By group of pod sets and of resources, the place of the last flavor tried; -1 if the
            search is to start over.
        demand: What was searched for; the search of something else starts over.
        generation: Of what the queue may have, when it was searched.
        cycle: In which cycle.
    """

    tried: tuple[tuple[int, ...], ...]
    demand: object
    generation: int
    cycle: int

    @property
    def unfinished(self) -> bool:
        """Whether there are flavors that have not been tried."""
        return any(place != -1 for places in self.tried for place in places)


class Assignment:
    """What the search found for a workload.

    Attributes:
        groups: Results in order; the search ends with the first that cannot fit.
        charges: What it would use, by cell. Not to be changed: it may be shared.
        mode: How it would get it: as the worst of its groups.
        level: How far up the tree it borrows, 0 without borrowing.
        hindered: Whether something that was tried did not simply fit.
        unfinished: Whether there are flavors that have not been tried.
    """

    __slots__ = (
        "_admission",
        "_refusal",
        "charges",
        "groups",
        "hindered",
        "level",
        "mode",
        "unfinished",
    )

    def __init__(self) -> None:
        self.groups: list[GroupResult] = []
        self.charges: dict[int, int] = {}
        self.mode = Mode.FIT
        self.level = 0
        self.hindered = False
        self.unfinished = False
        self._refusal: Refusal | None = None
        self._admission: Admission | None = None

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
                self.charges = _sum(self.charges, search.offer.charges)

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
        return frozenset(cell for attempt in attempts if attempt for cell in attempt.short)

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

    def admission(self, cluster_queue: str) -> Admission:
        """Return what the workload gets; only if it fits."""
        if self._admission is None:
            pod_sets = tuple(
                [
                    pod_set.assignment(group.offers)
                    for group in self.groups
                    for pod_set in group.requests.pod_sets
                ]
            )
            self._admission = Admission(cluster_queue=cluster_queue, pod_sets=pod_sets)
        return self._admission

    def shortfall(self, tree: QuotaTree) -> tuple[PodSetRefusal, ...]:
        """Say what is missing now, though it was there when the flavors were chosen."""
        missing: dict[int, MissingQuota] = {}
        refusals: list[PodSetRefusal] = []
        for group in self.groups:
            for offer in group.offers:
                for index, cell in enumerate(offer.charges):
                    needed, available = self.charges[cell], tree.available(cell)
                    if needed > max(0, available) and cell not in missing:
                        missing[cell] = missing_quota(offer, index, needed, available)
            obstacles = tuple(missing[c] for o in group.offers for c in o.charges if c in missing)
            refusals.extend(_refusals(group, obstacles))
        return tuple(refusals)

    def reason(self) -> NoFitReason:
        """Say in one word why the workload does not fit."""
        if self.mode is not Mode.NO_FIT:
            return "WaitingForQuota"
        return most_severe([r.reason() for r in self.groups if r.mode is Mode.NO_FIT])

    def refusals(self) -> tuple[PodSetRefusal, ...]:
        """Say what stands in the way of which pod set."""
        hindered = [group for group in self.groups if group.mode is not Mode.FIT]
        return tuple([each for group in hindered for each in _refusals(group, group.obstacles())])

    def considered(self) -> str:
        """Say which flavors did not simply fit, pod set by pod set; "" if all that were tried did.

        The mode, how victims would be had, how far it would borrow, and the reasons, as Kueue has
        them in its event.
        """
        texts: list[str] = []
        for group in self.groups:
            attempts = [attempt for search in group.searches for attempt in search.attempts]
            told = ", ".join(_told(each) for each in sorted(attempts, key=_flavor_name))
            texts.extend(f"{p.name}: {told}" for p in group.requests.pod_sets if told)
        return " | ".join(texts)


def _flavor_name(attempt: Attempt) -> str:
    return attempt.offer.name


def _told(attempt: Attempt) -> str:
    mode = attempt.mode
    words = [_PUBLIC_MODES[mode]]
    if mode in _POSSIBILITIES:
        words[0] = f"preemptionMode={_POSSIBILITIES[mode]}"
    if attempt.level:
        words.append(f"borrow={attempt.level}")
    words.extend(obstacle.text for obstacle in attempt.obstacles)
    return f"{attempt.offer.name}({';'.join(words)})"


_PUBLIC_MODES = {Mode.NO_FIT: "NoFit", Mode.FIT: "Fit"} | dict.fromkeys(
    (Mode.BLOCKED, Mode.PREEMPT, Mode.RECLAIM), "Preempt"
)
_POSSIBILITIES = {Mode.BLOCKED: "NoCandidates", Mode.PREEMPT: "Preempt", Mode.RECLAIM: "Reclaim"}


def _refusals(group: GroupResult, obstacles: tuple[Obstacle, ...]) -> Iterator[PodSetRefusal]:
    for pod_set in group.requests.pod_sets:
        yield PodSetRefusal(name=pod_set.name, obstacles=obstacles)


def plain_assignment(requests: tuple[GroupRequests, ...]) -> Assignment | None:
    """Return what a workload gets if the first flavors have room without borrowing.

    They are chosen then, whatever the queue's fungibility. None if a first flavor is unsuitable, or
    a resource is not covered.
    """
    assignment = Assignment()
    for group in requests:
        result = GroupResult(group)
        for offers in group.searches:
            if not offers or offers[0].obstacles:
                return None
            search = SearchResult()
            search.offer, search.mode = offers[0], Mode.FIT
            search.tried = 0 if len(offers) > 1 else -1
            result.searches.append(search)
        if group.uncovered:
            return None
        assignment.add(result)
    return assignment


def _sum(left: dict[int, int], right: dict[int, int]) -> dict[int, int]:
    if not left:
        return right
    total = dict(left)
    for cell, amount in right.items():
        total[cell] = total.get(cell, 0) + amount
    return total


def missing_quota(offer: Offer, index: int, needed: int, available: int) -> MissingQuota:
    """Say how much of resource number `index` of an offer must become free for `needed` to fit."""
    available = max(available, 0)
    return MissingQuota(
        flavor=offer.name,
        resource=offer.resources[index],
        missing=needed - available,
        requested=needed,
        available=available,
    )
