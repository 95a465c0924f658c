"""Fair sharing: how much queues and cohorts borrow.

The *dominant* resource of a queue or cohort is the one of which it borrows most, as a fraction of
the amount that its parent could lend; that fraction, in thousandths and divided by the node's
weight, is its *share*. Lower shares go first in a cycle, and higher ones are preempted first. A
`CohortHeap` finds the best queue of a tree.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from policyd.alloc.amount import add
from policyd.alloc.queue import FlavorResource
from policyd.alloc.quota import QuotaNode, QuotaTree, Shared

_PER_MILLE = 1_000


@dataclass(slots=True, eq=False)
class BorrowedShare:
    """How much a node borrows, against its siblings.

    Attributes:
        borrowed: Borrowed amounts by flavor and resource.
        ratio: Borrowed part of the dominant resource, in thousandths of the lendable amount.
        dominant: That resource; "" if there is no ratio.
    """

    borrowed: Mapping[FlavorResource, int]
    ratio: float = 0.0
    dominant: str = ""
    weight: float = 1.0

    @property
    def rank(self) -> tuple[bool, float]:
        """For comparison: borrowing with weight 0 is above all others, and there by ratio."""
        weightless = self.weight == 0 and self.ratio > 0
        return weightless, self.ratio if weightless or not self.ratio else self.ratio / self.weight


def share_of(tree: QuotaTree, node: QuotaNode) -> BorrowedShare:
    """Work out the share of a node; the top of a tree has none to speak of."""
    usage, borrowed, ratio, dominant = tree.usage, {}, 0.0, ""
    for resource, lendable, cells in tree.shared.get(node) or _shared(tree, node):
        total = 0
        for names, cell, quota in cells:
            amount = usage[cell] - quota
            if amount > 0:
                borrowed[names] = amount
                total += amount
        if total and lendable > 0 and total * _PER_MILLE / lendable > ratio:
            ratio, dominant = total * _PER_MILLE / lendable, resource
    return BorrowedShare(borrowed, ratio, dominant, node.weight)


def _shared(tree: QuotaTree, node: QuotaNode) -> tuple[Shared, ...]:
    """Return the resources that a node may borrow, in alphabetical order."""
    if node.parent is None:
        return ()
    lendable = tree.lendable.get(node.parent) or _lendable(tree, node.parent)
    cells: dict[str, list[tuple[FlavorResource, int, int]]] = {}
    for names, cell in node.cells.items():
        if tree.subtree[cell] or _has_quota(node, names):
            cells.setdefault(names[1], []).append((names, cell, tree.subtree[cell]))
    found = tree.shared[node] = tuple((r, lendable.get(r, 0), cells[r]) for r in sorted(cells))
    return found


def _has_quota(node: QuotaNode, names: FlavorResource) -> bool:
    """Tell whether a node, or one below it, has quota of a flavor and resource, if only of 0."""
    return names in node.quotas or any(
        names in child.cells and _has_quota(child, names) for child in node.children.values()
    )


def _lendable(tree: QuotaTree, cohort: QuotaNode) -> Mapping[str, int]:
    """Return the most that the children of a cohort could have of each resource, its own included.

    A flavor that is only elsewhere in the tree counts too, by the amount in the next cohort above.
    """
    known = tree.lendable[cohort] = {}
    for names in cohort.root.cells:
        node = cohort
        while names not in node.cells and node.parent is not None:
            node = node.parent
        known[names[1]] = add(known.get(names[1], 0), tree.potential[node.cells[names]])
    return known


Key = tuple[Any, ...]
"""How good a child is in its cohort; the lowest is the best. Equals have as many parts."""

_HeapItem = tuple[Any, ...]
"""The key, a number that breaks ties, and the child: flat, since it is compared often."""


class CohortHeap:
    """Finds the best queue below a cohort: the best child's best child, and so on.

    INVARIANT: keys may change between two calls only for the queue that was found last, and for
    the cohorts above it. So each of them is the first of a heap when its key is asked for again.
    """

    def __init__(
        self, queues: Iterable[QuotaNode], key: Callable[[QuotaNode, QuotaNode], Key | None]
    ) -> None:
        """Take in queues and the cohorts above them.

        `key` tells how good a queue or a cohort is against its siblings, given the best queue at or
        below it; None takes it out for good.
        """
        self._key = key
        self._heaps: dict[QuotaNode, list[_HeapItem]] = {}
        below: dict[QuotaNode, dict[QuotaNode, None]] = {}
        depths: dict[QuotaNode, int] = {}
        for queue in queues:
            child = queue
            for depth, cohort in enumerate(above(queue)):
                below.setdefault(cohort, {})[child] = None
                depths[cohort] = max(depth, depths.get(cohort, 0))
                child = cohort
        for cohort in sorted(depths, key=depths.__getitem__):
            items = (self._item(child) for child in below[cohort])
            self._heaps[cohort] = [item for item in items if item is not None]
            heapq.heapify(self._heaps[cohort])

    def best(self, node: QuotaNode) -> QuotaNode | None:
        """Return the best queue at or below a node; None if there is none left."""
        while not node.queue:
            heap = self._heaps.get(node)
            if not heap:
                return None
            node = heap[0][-1]
        return node

    def changed(self, queue: QuotaNode) -> None:
        """Note new keys of the queue found last, and of all above it."""
        child, cohort = queue, queue.parent
        while cohort is not None:
            heap, item = self._heaps[cohort], self._item(child)
            if item is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, item)
            child, cohort = cohort, cohort.parent

    def _item(self, child: QuotaNode) -> _HeapItem | None:
        best = child if child.queue else self.best(child)
        key = None if best is None else self._key(child, best)
        return None if key is None else (*key, child.queue, child.name, child)


def above(node: QuotaNode) -> Iterator[QuotaNode]:
    """Yield the cohorts above a node, from the nearest to the top."""
    while node.parent is not None:
        node = node.parent
        yield node
