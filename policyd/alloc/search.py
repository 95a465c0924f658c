"""The search for flavors: which one each pod set gets for each resource, if any.

For every resource group a pod set needs, the flavors are tried in the queue's order. A flavor is as
good as its worst resource. The queue's fungibility says when to stop looking; if none simply fits,
the best one seen is kept, because quota may be waited for in it.
"""

from policyd.alloc.assignment import (
    Assignment,
    Attempt,
    GroupResult,
    Mode,
    PodSetResult,
    missing_quota,
)
from policyd.alloc.flavor import matches_affinity, untolerated_taint
from policyd.alloc.queue import Fungibility, QueueSpec
from policyd.alloc.quota import NOWHERE, QuotaTree
from policyd.alloc.reasons import (
    AffinityMismatch,
    NotProvided,
    Obstacle,
    OverCapacity,
    UnknownFlavor,
    Untolerated,
)
from policyd.alloc.requests import FlavorOption, GroupRequests, PodSetRequests
from policyd.alloc.workload import PodSet

_VIABLE = 2


def assign_flavors(
    tree: QuotaTree, queue: QueueSpec, requests: tuple[PodSetRequests, ...]
) -> Assignment:
    """Choose flavors for a workload, given what the queue's tree uses now.

    Args:
        tree: Quota and usage; left as it was.
        queue: The workload's queue.
        requests: What the workload asks of that queue.
    """
    assignment = Assignment()
    search = _Search(tree, queue, assignment.usage)
    for pod_set in requests:
        result = search.assign(pod_set)
        assignment.pod_sets.append(result)
        assignment.mode = min(assignment.mode, result.mode)
        assignment.level = max(assignment.level, result.level)
        if result.mode is Mode.NO_FIT:
            break
    return assignment


class _Search:
    """The search for one workload; `assumed` grows by what its pod sets would charge."""

    __slots__ = ("assumed", "queue", "tree")

    def __init__(self, tree: QuotaTree, queue: QueueSpec, assumed: dict[int, int]) -> None:
        self.tree = tree
        self.queue = queue
        self.assumed = assumed

    def assign(self, requests: PodSetRequests) -> PodSetResult:
        """Find flavors for a pod set."""
        result = PodSetResult(requests)
        for group_requests in requests.groups:
            group = self.search(group_requests, requests.pod_set)
            result.groups.append(group)
            result.mode = min(result.mode, group.mode)
            result.level = max(result.level, group.level)
            if group.option is None:
                return result
        if requests.uncovered:
            result.mode = Mode.NO_FIT
        for group in result.groups:
            self.assume(group)
        return result

    def assume(self, group: GroupResult) -> None:
        """Count what the group would charge, for the pod sets after this one."""
        assert group.option is not None, "a pod set is assumed when all its groups have a flavor"
        for position, amount in group.requests.wants:
            cell = group.option.cells[position]
            self.assumed[cell] = self.assumed.get(cell, 0) + amount

    def search(self, requests: GroupRequests, pod_set: PodSet) -> GroupResult:
        """Find the best flavor for a group."""
        result = GroupResult(requests)
        fungibility = self.queue.fungibility
        for option in requests.group.flavors:
            found = self.attempt(option, requests, pod_set, result.attempts)
            stop = not _tries_next(fungibility, found)
            if stop or _better(fungibility, found, (result.mode, result.level)):
                result.option = option
                result.mode, result.level = found
            if stop:
                break
        return result

    def attempt(
        self,
        option: FlavorOption,
        requests: GroupRequests,
        pod_set: PodSet,
        attempts: list[Attempt],
    ) -> tuple[Mode, int]:
        """Try one flavor: how it would be had, and with what borrowing level."""
        unsuitable = _unsuitable(option, pod_set) if option.restricts else None
        if unsuitable is not None:
            attempts.append(Attempt(option.name, Mode.NO_FIT, 0, [unsuitable]))
            return Mode.NO_FIT, 0
        obstacles: list[Obstacle] = []
        mode, level = found = self.worst(option, requests, obstacles)
        if mode is not Mode.FIT or level:
            attempts.append(Attempt(option.name, mode, level, obstacles))
        return found

    def worst(
        self, option: FlavorOption, requests: GroupRequests, obstacles: list[Obstacle]
    ) -> tuple[Mode, int]:
        """Return how the hardest to get of the requested resources would be had."""
        worst: tuple[Mode, int] = (Mode.FIT, 0)
        for position, amount in requests.wants:
            cell = option.cells[position]
            resource = requests.group.resources[position]
            if cell == NOWHERE:
                obstacles.append(NotProvided(flavor=option.name, resource=resource))
                return Mode.NO_FIT, 0
            found = self.fits(cell, amount)
            if found[0] is not Mode.FIT:
                obstacles.append(self.obstacle(cell, amount, (option.name, resource)))
            if found != worst and _better(self.queue.fungibility, worst, found):
                worst = found
            if found[0] is Mode.NO_FIT:
                break
        return worst

    def fits(self, cell: int, amount: int) -> tuple[Mode, int]:
        """Return how `amount` of one flavor and resource would be had."""
        tree = self.tree
        needed = self.assumed.get(cell, 0) + amount
        if needed > tree.potential[cell]:
            return Mode.NO_FIT, 0
        level, reclaimable = tree.borrowing_level(cell, needed)
        if needed <= tree.available(cell) or needed == 0:
            return Mode.FIT, level
        borrows = self.queue.preemption.borrow_within_cohort != "Never"
        waits = reclaimable or tree.nominal[cell] >= needed or borrows
        return (Mode.BLOCKED if waits else Mode.NO_FIT), level

    def obstacle(self, cell: int, amount: int, names: tuple[str, str]) -> Obstacle:
        """Say why `amount` of the flavor and resource `names` cannot be had at once."""
        tree = self.tree
        flavor, resource = names
        assumed = self.assumed.get(cell, 0)
        if assumed + amount > tree.potential[cell]:
            return OverCapacity(
                flavor=flavor,
                resource=resource,
                assumed=assumed,
                requested=amount,
                capacity=tree.potential[cell],
            )
        return missing_quota(tree, cell, assumed + amount, names)


def _unsuitable(option: FlavorOption, pod_set: PodSet) -> Obstacle | None:
    flavor = option.spec
    if flavor is None:
        return UnknownFlavor(flavor=option.name)
    taint = untolerated_taint(flavor, pod_set.tolerations)
    if taint is not None:
        return Untolerated(flavor=flavor.name, taint=taint)
    if not matches_affinity(flavor, pod_set.node_selector, pod_set.affinity):
        return AffinityMismatch(flavor=flavor.name)
    return None


def _tries_next(fungibility: Fungibility, found: tuple[Mode, int]) -> bool:
    mode, level = found
    if mode is not Mode.FIT:
        return True
    return level > 0 and fungibility.when_can_borrow == "TryNextFlavor"


def _better(fungibility: Fungibility, a: tuple[Mode, int], b: tuple[Mode, int]) -> bool:
    return _rank(fungibility, a) > _rank(fungibility, b)


def _rank(fungibility: Fungibility, found: tuple[Mode, int]) -> tuple[int, int, int]:
    mode, level = found
    viable = min(mode, _VIABLE)
    if fungibility.preference == "PreemptionOverBorrowing":
        return viable, -level, mode
    return viable, mode, -level
