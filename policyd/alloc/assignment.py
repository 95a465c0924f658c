"""What a search for flavors found: for each group of resources, each pod set, the workload."""

from enum import IntEnum

from policyd.alloc.offers import Offer, PodSetRequests
from policyd.alloc.quota import QuotaTree
from policyd.alloc.reasons import (
    MissingQuota,
    NoFitReason,
    NotCovered,
    Obstacle,
    PodSetRefusal,
    least_severe,
    most_severe,
    obstacle_reason,
)
from policyd.alloc.workload import Admission, PodSetAssignment


class Mode(IntEnum):
    """How a flavor would be had; ordered, the best last."""

    NO_FIT = 0
    """Not at all, as things are."""
    BLOCKED = 1
    """By preemption, but nobody may be preempted."""
    FIT = 4
    """At once."""


class Attempt:
    """A flavor that was tried for a pod set, and did not simply fit."""

    __slots__ = ("flavor", "level", "mode", "obstacles")

    def __init__(self, flavor: str, mode: Mode, level: int, obstacles: list[Obstacle]) -> None:
        self.flavor = flavor
        self.mode = mode
        self.level = level
        self.obstacles = obstacles


class GroupResult:
    """What the search found for one group of resources.

    Attributes:
        offer: The best flavor's, None if none will do.
        mode: How it would be had.
        level: How far up the tree it would borrow.
        attempts: What was tried and did not simply fit.
    """

    __slots__ = ("attempts", "level", "mode", "offer")

    def __init__(self) -> None:
        self.offer: Offer | None = None
        self.mode = Mode.NO_FIT
        self.level = 0
        self.attempts: list[Attempt] = []

    def obstacles(self) -> list[Obstacle]:
        """Return what stands in the way, if anything does."""
        if self.mode is Mode.FIT:
            return []
        return [obstacle for attempt in self.attempts for obstacle in attempt.obstacles]


class PodSetResult:
    """What the search found for one pod set.

    Attributes:
        requests: What was searched for.
        groups: Results by group; the search ends with the first that has none.
        mode: As the worst of its groups, NO_FIT too if a resource is not covered.
        level: As the highest of its groups.
    """

    __slots__ = ("groups", "level", "mode", "requests")

    def __init__(self, requests: PodSetRequests) -> None:
        self.requests = requests
        self.groups: list[GroupResult] = []
        self.mode = Mode.NO_FIT if requests.uncovered else Mode.FIT
        self.level = 0

    def add(self, group: GroupResult) -> None:
        """Take in the result for the next group."""
        self.groups.append(group)
        self.mode = min(self.mode, group.mode)
        self.level = max(self.level, group.level)

    @property
    def offers(self) -> tuple[Offer, ...]:
        """The best offer of every group that has one."""
        return tuple([group.offer for group in self.groups if group.offer is not None])

    def refusal(self) -> PodSetRefusal:
        """Say what stands in the way; only if it does not fit."""
        obstacles: list[Obstacle]
        if self.mode is not Mode.NO_FIT:
            obstacles = [obstacle for group in self.groups for obstacle in group.obstacles()]
        elif self.groups and self.groups[-1].offer is None:
            obstacles = self.groups[-1].obstacles()
        else:
            obstacles = [NotCovered(resource=self.requests.uncovered)]
        return PodSetRefusal(name=self.requests.name, obstacles=tuple(obstacles))

    def reason(self) -> NoFitReason:
        """Say in one word why no flavor fits, if none does."""
        by_group = [
            [most_severe([obstacle_reason(o) for o in attempt.obstacles]) for attempt in tried]
            for group in self.groups
            if (tried := [attempt for attempt in group.attempts if attempt.mode is Mode.NO_FIT])
        ]
        return most_severe([least_severe(reasons) for reasons in by_group])

    def assignment(self) -> PodSetAssignment:
        """Return what the pod set gets."""
        return self.requests.assignment(self.offers)


class Assignment:
    """What the search found for a workload.

    Attributes:
        pod_sets: Results in order; the search ends with the first that cannot fit.
        charges: What it would use, by cell. Not to be changed: it may be shared.
        mode: How it would get it: as the worst of its pod sets.
        level: How far up the tree it borrows, 0 without borrowing.
    """

    __slots__ = ("_admission", "charges", "level", "mode", "pod_sets")

    def __init__(self) -> None:
        self.pod_sets: list[PodSetResult] = []
        self.charges: dict[int, int] = {}
        self.mode = Mode.FIT
        self.level = 0
        self._admission: Admission | None = None

    def add(self, result: PodSetResult) -> None:
        """Take in the result for the next pod set; one that does not fit charges nothing."""
        self.pod_sets.append(result)
        self.mode = min(self.mode, result.mode)
        if result.mode is Mode.NO_FIT:
            return
        self.level = max(self.level, result.level)
        for offer in result.offers:
            self.charges = _sum(self.charges, offer.charges)

    def admission(self, cluster_queue: str) -> Admission:
        """Return what the workload gets; only if it fits."""
        if self._admission is None:
            pod_sets = tuple([result.assignment() for result in self.pod_sets])
            self._admission = Admission(cluster_queue=cluster_queue, pod_sets=pod_sets)
        return self._admission

    def shortfall(self, tree: QuotaTree) -> tuple[PodSetRefusal, ...]:
        """Say what is missing now, though it was there when the flavors were chosen."""
        missing: dict[int, MissingQuota] = {}
        refusals = []
        for result in self.pod_sets:
            for offer in result.offers:
                for index, cell in enumerate(offer.charges):
                    needed, available = self.charges[cell], tree.available(cell)
                    if needed > max(0, available) and cell not in missing:
                        missing[cell] = missing_quota(offer, index, needed, available)
            obstacles = tuple(missing[c] for o in result.offers for c in o.charges if c in missing)
            refusals.append(PodSetRefusal(name=result.requests.name, obstacles=obstacles))
        return tuple(refusals)

    def reason(self) -> NoFitReason:
        """Say in one word why the workload does not fit."""
        if self.mode is not Mode.NO_FIT:
            return "WaitingForQuota"
        return most_severe([r.reason() for r in self.pod_sets if r.mode is Mode.NO_FIT])

    def refusals(self) -> tuple[PodSetRefusal, ...]:
        """Say what stands in the way of which pod set."""
        return tuple([r.refusal() for r in self.pod_sets if r.mode is not Mode.FIT])


def plain_assignment(requests: tuple[PodSetRequests, ...]) -> Assignment | None:
    """Return what a workload gets if the first flavors have room without borrowing.

    They are chosen then, whatever the queue's fungibility. None if a first flavor may be
    unsuitable, or a resource is not covered.
    """
    assignment = Assignment()
    for pod_set in requests:
        result = PodSetResult(pod_set)
        for offers in pod_set.groups:
            if offers[0].restricts:
                return None
            group = GroupResult()
            group.offer, group.mode = offers[0], Mode.FIT
            result.add(group)
        assignment.add(result)
    return assignment if assignment.mode is Mode.FIT else None


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
