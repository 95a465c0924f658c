"""What a search for flavors found: for each group of resources, each pod set, the workload."""

from collections.abc import Iterator
from enum import IntEnum

from policyd.alloc.queue import FlavorResource
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
from policyd.alloc.requests import FlavorOption, GroupRequests, PodSetRequests
from policyd.alloc.workload import PodSetAssignment


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
        requests: What was searched for.
        option: The best flavor, None if none will do.
        mode: How it would be had.
        level: How far up the tree it would borrow.
        attempts: What was tried and did not simply fit.
    """

    __slots__ = ("attempts", "level", "mode", "option", "requests")

    def __init__(self, requests: GroupRequests) -> None:
        self.requests = requests
        self.option: FlavorOption | None = None
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
        self.mode = Mode.FIT
        self.level = 0

    def refusal(self) -> PodSetRefusal:
        """Say what stands in the way; only if it does not fit."""
        obstacles: list[Obstacle]
        if self.mode is not Mode.NO_FIT:
            obstacles = [obstacle for group in self.groups for obstacle in group.obstacles()]
        elif self.groups and self.groups[-1].option is None:
            obstacles = self.groups[-1].obstacles()
        else:
            obstacles = [NotCovered(resource=self.requests.uncovered)]
        return PodSetRefusal(name=self.requests.pod_set.name, obstacles=tuple(obstacles))

    def reason(self) -> NoFitReason:
        """Say in one word why no flavor fits, if none does."""
        by_group = [
            [most_severe([obstacle_reason(o) for o in attempt.obstacles]) for attempt in tried]
            for group in self.groups
            if (tried := [attempt for attempt in group.attempts if attempt.mode is Mode.NO_FIT])
        ]
        return most_severe([least_severe(reasons) for reasons in by_group])

    def charges(self) -> Iterator[tuple[FlavorResource, int, int]]:
        """Yield what it would be charged: flavor and resource, their cell, amount."""
        for group in self.groups:
            assert group.option is not None, "what does not fit is not charged"
            name, cells = group.option.name, group.option.cells
            resources = group.requests.group.resources
            for position, amount in group.requests.wants:
                yield (name, resources[position]), cells[position], amount

    def assignment(self) -> PodSetAssignment:
        """Return what the pod set gets."""
        flavors: dict[str, str] = {}
        usage: dict[str, int] = {}
        for (flavor, resource), _, amount in self.charges():
            flavors[resource] = flavor
            usage[resource] = amount
        pod_set = self.requests.pod_set
        return PodSetAssignment(
            name=pod_set.name, count=pod_set.count, flavors=flavors, usage=usage
        )


class Assignment:
    """What the search found for a workload.

    Attributes:
        pod_sets: Results in order; the search ends with the first that cannot fit.
        usage: What it would charge, by cell.
        mode: How it would get it: as the worst of its pod sets.
        level: How far up the tree it borrows, 0 without borrowing.
    """

    __slots__ = ("level", "mode", "pod_sets", "usage")

    def __init__(self) -> None:
        self.pod_sets: list[PodSetResult] = []
        self.usage: dict[int, int] = {}
        self.mode = Mode.FIT
        self.level = 0

    def shortfall(self, tree: QuotaTree) -> tuple[PodSetRefusal, ...]:
        """Say what is missing now, though it was there when the flavors were chosen."""
        refusals = []
        for result in self.pod_sets:
            missing = [
                missing_quota(tree, cell, amount, names)
                for names, cell, amount in result.charges()
                if amount > tree.available(cell)
            ]
            if missing:
                name = result.requests.pod_set.name
                refusals.append(PodSetRefusal(name=name, obstacles=tuple(missing)))
        return tuple(refusals)

    def reason(self) -> NoFitReason:
        """Say in one word why the workload does not fit."""
        if self.mode is not Mode.NO_FIT:
            return "WaitingForQuota"
        return most_severe([r.reason() for r in self.pod_sets if r.mode is Mode.NO_FIT])

    def refusals(self) -> tuple[PodSetRefusal, ...]:
        """Say what stands in the way of which pod set."""
        return tuple(r.refusal() for r in self.pod_sets if r.mode is not Mode.FIT)


def missing_quota(tree: QuotaTree, cell: int, needed: int, names: FlavorResource) -> MissingQuota:
    """Say how much of a flavor and resource would have to become free for `needed` to fit."""
    available = max(0, tree.available(cell))
    return MissingQuota(
        flavor=names[0],
        resource=names[1],
        missing=needed - available,
        requested=needed,
        available=available,
    )
