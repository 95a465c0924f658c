"""The search for flavors: which one each pod set gets for each resource, if any.

For every resource group a pod set needs, the flavors are tried in the queue's order. A flavor is as
good as its worst resource. The queue's fungibility says when to stop looking; if none simply fits,
the best one seen is kept, because quota may be waited for in it.
"""

from collections.abc import Iterable

from policyd.alloc.assignment import (
    Assignment,
    Attempt,
    GroupResult,
    Mode,
    PodSetResult,
    missing_quota,
)
from policyd.alloc.flavor import matches_affinity, untolerated_taint
from policyd.alloc.offers import Offer, PodSetRequests
from policyd.alloc.queue import Fungibility, QueueSpec
from policyd.alloc.quota import QuotaTree
from policyd.alloc.reasons import (
    AffinityMismatch,
    NotProvided,
    Obstacle,
    OverCapacity,
    UnknownFlavor,
    Untolerated,
)
from policyd.alloc.requests import Requests
from policyd.alloc.workload import PodSet, Workload

_FITS = (Mode.FIT, 0)
_NO_FIT = (Mode.NO_FIT, 0)
_VIABLE = 2


def assign_flavors(
    tree: QuotaTree, queue: QueueSpec, workload: Workload, requests: Requests
) -> Assignment:
    """Choose flavors for a workload, given what the queue's tree uses now.

    Args:
        tree: Quota and usage; left as it was.
        queue: The workload's queue.
        workload: Who asks; decides which flavors are suitable.
        requests: What it asks of that queue.
    """
    plain = requests.plain
    if plain is not None and tree.fits(plain.charges, borrowing=False):
        return plain
    search = _Search(tree, queue)
    for pod_set, asked in zip(workload.pod_sets, requests.pod_sets, strict=True):
        result = search.assign(pod_set, asked)
        search.assignment.add(result)
        if result.mode is Mode.NO_FIT:
            break
    return search.assignment


class _Search:
    """The search for one workload; `assignment` is what the pod sets so far would get."""

    __slots__ = ("assignment", "preempts_borrowing", "queue", "tree")

    def __init__(self, tree: QuotaTree, queue: QueueSpec) -> None:
        self.tree = tree
        self.queue = queue
        self.preempts_borrowing = queue.preemption.borrow_within_cohort != "Never"
        self.assignment = Assignment()

    def assign(self, pod_set: PodSet, requests: PodSetRequests) -> PodSetResult:
        """Find flavors for a pod set; the search ends with the first group without one."""
        result = PodSetResult(requests)
        for offers in requests.groups:
            group = self.search(offers, pod_set)
            result.add(group)
            if group.offer is None:
                break
        return result

    def search(self, offers: Iterable[Offer], pod_set: PodSet) -> GroupResult:
        """Find the best flavor for a group."""
        result = GroupResult()
        fungibility = self.queue.fungibility
        for offer in offers:
            found = self.attempt(offer, pod_set, result.attempts)
            stop = not _tries_next(fungibility, found)
            if stop or _better(fungibility, found, (result.mode, result.level)):
                result.offer = offer
                result.mode, result.level = found
            if stop:
                break
        return result

    def attempt(self, offer: Offer, pod_set: PodSet, attempts: list[Attempt]) -> tuple[Mode, int]:
        """Try one flavor: how it would be had, and with what borrowing level."""
        unsuitable = _unsuitable(offer, pod_set) if offer.restricts else None
        if unsuitable is not None:
            attempts.append(Attempt(offer.name, Mode.NO_FIT, 0, [unsuitable]))
            return _NO_FIT
        obstacles: list[Obstacle] = []
        found = self.worst(offer, obstacles)
        if found != _FITS:
            attempts.append(Attempt(offer.name, *found, obstacles))
        return found

    def worst(self, offer: Offer, obstacles: list[Obstacle]) -> tuple[Mode, int]:
        """Return how the hardest to get of the requested resources would be had."""
        worst, tree = _FITS, self.tree
        standings = tree.standings(offer.charges, self.assignment.charges)
        for index, (cell, needed, available, level, reclaimable) in enumerate(standings):
            if needed <= available or not needed:
                if not level:
                    continue
                found = (Mode.FIT, level)
            elif needed > tree.potential[cell]:
                obstacles.append(self.over_capacity(offer, index, cell))
                return _NO_FIT
            else:
                obstacles.append(missing_quota(offer, index, needed, available))
                waits = reclaimable or tree.nominal[cell] >= needed or self.preempts_borrowing
                found = (Mode.BLOCKED if waits else Mode.NO_FIT), level
            if found != worst and _better(self.queue.fungibility, worst, found):
                worst = found
            if found[0] is Mode.NO_FIT:
                break
        return worst

    def over_capacity(self, offer: Offer, index: int, cell: int) -> OverCapacity:
        """Say how far resource number `index` of an offer is beyond what could ever be had."""
        return OverCapacity(
            flavor=offer.name,
            resource=offer.resources[index],
            assumed=self.assignment.charges.get(cell, 0),
            requested=offer.charges[cell],
            capacity=self.tree.potential[cell],
        )


def _unsuitable(offer: Offer, pod_set: PodSet) -> Obstacle | None:
    flavor = offer.spec
    if flavor is None:
        return UnknownFlavor(flavor=offer.name)
    taint = untolerated_taint(flavor, pod_set.tolerations)
    if taint is not None:
        return Untolerated(flavor=flavor.name, taint=taint)
    if not matches_affinity(flavor, pod_set.node_selector, pod_set.affinity):
        return AffinityMismatch(flavor=flavor.name)
    if offer.lacks:
        return NotProvided(flavor=flavor.name, resource=offer.lacks)
    return None


def _tries_next(fungibility: Fungibility, found: tuple[Mode, int]) -> bool:
    mode, level = found
    if mode is not Mode.FIT:
        return True
    return level > 0 and fungibility.when_can_borrow == "TryNextFlavor"


def _better(fungibility: Fungibility, a: tuple[Mode, int], b: tuple[Mode, int]) -> bool:
    if a[0] is b[0]:
        return a[1] < b[1]
    return _rank(fungibility, a) > _rank(fungibility, b)


def _rank(fungibility: Fungibility, found: tuple[Mode, int]) -> tuple[int, int, int]:
    mode, level = found
    viable = min(mode, _VIABLE)
    if fungibility.preference == "PreemptionOverBorrowing":
        return viable, -level, mode
    return viable, mode, -level
