"""When parked workloads are tried again: all of a tree together.

Where somebody was preempted lately, that is some time after the first change. What comes free in
the meantime is given out in one go, in the order of all who wait for it.
"""

from collections.abc import Callable

from policyd.alloc.hierarchy import QuotaNode

LATELY_SECONDS = 30.0


class Wakes:
    """Trees in which something changed that may help parked workloads.

    Attributes:
        gather_seconds: How long changes are gathered after a preemption; 0 for not at all.
    """

    def __init__(self) -> None:
        """Begin with nothing changed."""
        self.gather_seconds = 0.0
        self._stirred: set[QuotaNode] = set()
        self._due: dict[QuotaNode, float] = {}
        self._gathers: dict[QuotaNode, float] = {}

    def preempted(self, node: QuotaNode, now: float) -> None:
        """Take notice that somebody is preempted for a workload of a queue."""
        self._gathers = {root: until for root, until in self._gathers.items() if until > now}
        self._gathers[node.root] = now + LATELY_SECONDS

    def stir(self, node: QuotaNode) -> None:
        """Take notice of a change at a node, which may belong to another tree from now on."""
        self._stirred.add(node)
        if node.parent is not None:
            self._stirred.add(node.parent)

    def take(self, now: float, *, parks: Callable[[QuotaNode], bool]) -> set[QuotaNode]:
        """Take out the roots of the trees whose time has come.

        Args:
            now: Seconds since the epoch.
            parks: Tells of a root whether anybody is parked in its tree.
        """
        waiting = {root for root in {node.root for node in self._stirred} if parks(root)}
        for node in self._stirred:
            if node.root in waiting:
                lately = self._gathers.get(node.root, now) > now
                self._due.setdefault(node, now + self.gather_seconds if lately else now)
        self._stirred.clear()
        roots = {node.root for node, at in self._due.items() if at <= now}
        if roots:
            self._due = {node: at for node, at in self._due.items() if node.root not in roots}
        return roots

    @property
    def gathering(self) -> set[QuotaNode]:
        """The roots of the trees whose time is to come."""
        return {node.root for node in self._due}

    @property
    def next_at(self) -> float | None:
        """When the first may be taken; None if there is none."""
        return min(self._due.values(), default=None)
