"""The best of a tree: in each cohort the children in order, so that few are compared again."""

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from policyd.alloc.hierarchy import QuotaNode

Key = tuple[Any, ...]
"""How good a child is in its cohort; the lowest is the best. Equals have as many parts."""

_Rung = tuple[Any, ...]
"""The key, what tells equals apart, and the child: flat, since it is compared often."""


class Ladder:
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
        self._heaps: dict[QuotaNode, list[_Rung]] = {}
        below: dict[QuotaNode, dict[QuotaNode, None]] = {}
        depths: dict[QuotaNode, int] = {}
        for queue in queues:
            child = queue
            for depth, cohort in enumerate(above(queue)):
                below.setdefault(cohort, {})[child] = None
                depths[cohort] = max(depth, depths.get(cohort, 0))
                child = cohort
        for cohort in sorted(depths, key=depths.__getitem__):
            rungs = (self._rung(child) for child in below[cohort])
            self._heaps[cohort] = [rung for rung in rungs if rung is not None]
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
        """Take notice that the keys changed of the queue found last, and of all above it."""
        child, cohort = queue, queue.parent
        while cohort is not None:
            heap, rung = self._heaps[cohort], self._rung(child)
            if rung is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, rung)
            child, cohort = cohort, cohort.parent

    def _rung(self, child: QuotaNode) -> _Rung | None:
        best = child if child.queue else self.best(child)
        key = None if best is None else self._key(child, best)
        return None if key is None else (*key, child.queue, child.name, child)


def above(node: QuotaNode) -> Iterator[QuotaNode]:
    """Yield the cohorts above a node, from the nearest to the top."""
    while node.parent is not None:
        node = node.parent
        yield node
