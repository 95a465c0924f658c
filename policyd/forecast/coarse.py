"""Queues by their quotas alone: fast, and right where nothing but quota and order decides.

Every cohort is one sum of quotas for each resource, whatever the flavor. As in a cycle of the core,
the first workload of each queue has its turn, those that need not borrow first, then by priority
and time; one that waits for quota of its own queue keeps it from the others in the same round. And
so on, until nothing fits. Nobody is preempted, and places on nodes, shares and checks play no part.

Workloads of a queue that request the same are one *kind*: if one does not fit, none does. So each
event looks at the first of each kind only.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import NamedTuple

from policyd.alloc.amount import total_of
from policyd.alloc.queue import CohortQuotas, FlavorGroup, QueueSpec
from policyd.alloc.workload import QueuedWorkload

Needs = tuple[tuple[int, int], ...]
"""Limits that a workload counts against, and how much of each it takes."""

Rank = tuple[int, float, int]
"""The order in a queue, the lowest first: priority, negative; time; kind."""

_UNLIMITED = 2**62


class Kind(NamedTuple):
    """Workloads that fit or do not fit together.

    Attributes:
        queue: Where they queue.
        priority: The same for all.
        needs: What each of them takes.
        own: The queue's own limits, that of the cohort beside each or -1, and the amount.
        strict: Whether they hold up those behind them in their queue.
        stopped: Whether their queue gives out nothing.
    """

    queue: str
    priority: int
    needs: Needs
    own: tuple[tuple[int, int, int], ...]
    strict: bool
    stopped: bool


class Coming(NamedTuple):
    """A workload that comes later, or is pending already.

    Attributes:
        at: When it is queued, in seconds.
        kind: Its kind, as an index.
        run_seconds: How long it will run.
        key: Its name; "" if nobody asks when it starts.
    """

    at: float
    kind: int
    run_seconds: float
    key: str


class CoarseQueues:
    """Queues and cohorts, reduced to limits.

    Attributes:
        limits: How much may be in use at once, by index.
        borrowed: How much of a queue's limit is not its own, by index.
        kinds: Kinds of workloads, by index.
    """

    def __init__(self, queues: Iterable[QueueSpec], cohorts: Iterable[CohortQuotas] = ()) -> None:
        self.limits: list[int] = []
        self.borrowed: dict[int, int] = {}
        self.kinds: list[Kind] = []
        self._specs = {spec.name: spec for spec in queues}
        self._parents = {each.name: each.parent for each in cohorts}
        self._cells: dict[tuple[str, str], list[int]] = {}
        self._sums: dict[tuple[str, str], int] = {}
        self._index: dict[Kind, int] = {}
        for each in cohorts:
            self._lend(self._root(each.name), each.groups)
        for spec in self._specs.values():
            self._add(spec)

    def _add(self, spec: QueueSpec) -> None:
        root = self._root(spec.cohort)
        if root:
            self._lend(root, spec.groups)
        for resource, (nominal, most) in _quotas(spec.groups).items():
            cells = self._cells[spec.name, resource] = [len(self.limits)]
            limit = nominal if not root else _UNLIMITED if most is None else most
            self.borrowed[len(self.limits)] = limit - nominal
            self.limits.append(limit)
            if root:
                cells.append(self._sum(root, resource))

    def _root(self, cohort: str) -> str:
        seen = {cohort}
        while (parent := self._parents.get(cohort, "")) and parent not in seen:
            seen.add(parent)
            cohort = parent
        return cohort

    def _sum(self, root: str, resource: str) -> int:
        if (root, resource) not in self._sums:
            self._sums[root, resource] = len(self.limits)
            self.limits.append(0)
        return self._sums[root, resource]

    def _lend(self, root: str, groups: tuple[FlavorGroup, ...]) -> None:
        for resource, (nominal, _) in _quotas(groups).items():
            self.limits[self._sum(root, resource)] += nominal

    def kind_of(self, workload: QueuedWorkload) -> int | None:
        """Return the index of a workload's kind; None if its queue will never hold it."""
        spec = self._specs.get(workload.cluster_queue)
        if spec is None:
            return None
        totals = total_of(*(pod_set.totals() for pod_set in workload.pod_sets))
        own = []
        for resource, amount in sorted(totals.items()):
            cells = self._cells.get((spec.name, resource))
            if amount and (cells is None or any(self.limits[cell] < amount for cell in cells)):
                return None
            if amount and cells:
                own.append((cells[0], cells[1] if len(cells) > 1 else -1, amount))
        needs = tuple((cell, amount) for *cells, amount in own for cell in cells if cell >= 0)
        priority, strict = workload.priority, spec.strict
        kind = Kind(spec.name, priority, needs, tuple(own), strict, spec.stopped)
        if kind not in self._index:
            self._index[kind] = len(self.kinds)
            self.kinds.append(kind)
        return self._index[kind]


def _quotas(groups: tuple[FlavorGroup, ...]) -> dict[str, tuple[int, int | None]]:
    """Return nominal quota, and with what may be borrowed, by resource over all flavors."""
    found: dict[str, tuple[int, int | None]] = {}
    for group in groups:
        for flavor in group.flavors:
            for resource, quota in flavor.quotas.items():
                nominal, most = found.get(resource, (0, 0))
                limit = quota.borrowing_limit
                more = None if most is None or limit is None else most + quota.nominal + limit
                found[resource] = nominal + quota.nominal, more
    return found


class CoarseRun:
    """One way that things may go from now on."""

    def __init__(
        self,
        queues: CoarseQueues,
        running: Iterable[tuple[int, float]],
        pending: Iterable[Coming],
        *,
        now: float,
    ) -> None:
        """Begin with the present.

        Args:
            queues: The limits.
            running: Kind and end, in seconds, of each workload that holds quota.
            pending: Workloads that wait, in any order.
            now: The time, in seconds.
        """
        self.now = now
        self._kinds, self._borrowed = queues.kinds, queues.borrowed
        self._limits = queues.limits
        self._free = list(queues.limits)
        self._ends = [(max(now, ends), kind) for kind, ends in running]
        heapify(self._ends)
        for _, kind in self._ends:
            self._take(kind)
        self._waiting: dict[int, deque[Coming]] = {}
        self._inadmissible: set[int] = set()
        for each in sorted(pending, key=lambda coming: coming.at):
            self._queue(each)

    def starts(self, arrivals: Iterator[Coming], *, until: float) -> Iterator[tuple[float, Coming]]:
        """Yield each start with its time, as it comes.

        Args:
            arrivals: Workloads that come later, in the order of time; consumed as time passes.
            until: When to stop, in seconds.
        """
        following = next(arrivals, None)
        yield from self._fill()
        while True:
            at = self._ends[0][0] if self._ends else inf
            if following is not None and following.at < at:
                at = following.at
            if at > until or at == inf:
                return
            self.now = at
            if self._ends and self._ends[0][0] <= at:
                self._inadmissible.clear()
            while self._ends and self._ends[0][0] <= at:
                for cell, amount in self._kinds[heappop(self._ends)[1]].needs:
                    self._free[cell] += amount
            while following is not None and following.at <= at:
                self._queue(following)
                following = next(arrivals, None)
            yield from self._fill()

    def _queue(self, coming: Coming) -> None:
        waiting = self._waiting.get(coming.kind)
        if waiting is None:
            waiting = self._waiting[coming.kind] = deque()
        waiting.append(coming)

    def _take(self, kind: int) -> None:
        for cell, amount in self._kinds[kind].needs:
            self._free[cell] -= amount

    def _fill(self) -> Iterator[tuple[float, Coming]]:
        """Start what fits now, in order."""
        heads = self._heads()
        if len(heads) == 1:
            (ranks,) = heads.values()
            yield from self._fill_one(ranks)
            return
        while heads:
            turns = [(self._borrows(self._kinds[ranks[0][2]]), ranks) for ranks in heads.values()]
            turns.sort(key=_turn)
            missing = [not self._fits(self._kinds[ranks[0][2]]) for _, ranks in turns]
            kept: list[tuple[int, int]] = []
            for (borrows, ranks), misses in zip(turns, missing, strict=True):
                kind = self._kinds[ranks[0][2]]
                if misses:
                    kept += self._keep(kind, borrows=borrows)
                    self._pass_over(ranks, strict=kind.strict)
                elif self._fits(kind):
                    yield self._start(ranks)
            for cell, amount in kept:
                self._free[cell] += amount
            heads = {queue: ranks for queue, ranks in heads.items() if ranks}

    def _fill_one(self, ranks: list[Rank]) -> Iterator[tuple[float, Coming]]:
        """Start what fits now where only one queue has workloads to start."""
        while ranks:
            kind = self._kinds[ranks[0][2]]
            if self._fits(kind):
                yield self._start(ranks)
            else:
                self._pass_over(ranks, strict=kind.strict)

    def _keep(self, kind: Kind, *, borrows: bool) -> Iterator[tuple[int, int]]:
        """Keep quota of a queue for one that waits for it; yield what is kept."""
        borrowed, free = self._borrowed, self._free
        if all(amount <= self._limits[own] - borrowed[own] for own, _, amount in kind.own):
            for own, root, amount in kind.own:
                most = free[own] if borrows else free[own] - borrowed[own]
                for cell in (own, root):
                    if cell >= 0 and most > 0:
                        free[cell] -= min(amount, most)
                        yield cell, min(amount, most)

    def _pass_over(self, ranks: list[Rank], *, strict: bool) -> None:
        """Let the next of a queue have its turn, unless the first holds it up."""
        if strict:
            ranks.clear()
        else:
            self._inadmissible.add(heappop(ranks)[2])

    def _heads(self) -> dict[str, list[Rank]]:
        """Return the ranks of the first workload of each kind, as a heap for each queue."""
        if not any(self._fits(self._kinds[index]) for index in self._waiting):
            self._inadmissible.update(
                index for index in self._waiting if not self._kinds[index].strict
            )
            return {}
        heads: dict[str, list[Rank]] = {}
        for index, waiting in self._waiting.items():
            kind = self._kinds[index]
            if index not in self._inadmissible and not kind.stopped:
                heads.setdefault(kind.queue, []).append((-kind.priority, waiting[0].at, index))
        for ranks in heads.values():
            heapify(ranks)
        return heads

    def _fits(self, kind: Kind) -> bool:
        free = self._free
        for cell, amount in kind.needs:  # noqa: SIM110 - a generator takes three times as long
            if free[cell] < amount:
                return False
        return True

    def _borrows(self, kind: Kind) -> bool:
        free, borrowed = self._free, self._borrowed
        return any(free[own] - amount < borrowed[own] for own, _, amount in kind.own)

    def _start(self, ranks: list[Rank]) -> tuple[float, Coming]:
        """Start the first workload of a queue."""
        priority, _, index = heappop(ranks)
        waiting = self._waiting[index]
        coming = waiting.popleft()
        if waiting:
            heappush(ranks, (priority, waiting[0].at, index))
        else:
            del self._waiting[index]
        self._take(index)
        heappush(self._ends, (self.now + coming.run_seconds, index))
        return self.now, coming


def _turn(turn: tuple[bool, list[Rank]]) -> tuple[bool, Rank]:
    return turn[0], turn[1][0]


def first_starts(
    run: CoarseRun, arrivals: Iterator[Coming], *, wanted: Sequence[str], until: float
) -> Mapping[str, float]:
    """Return when each wanted workload starts; those that do not by then are left out."""
    left, found = set(wanted), {}
    for at, coming in run.starts(arrivals, until=until):
        if coming.key in left:
            found[coming.key] = at
            left.discard(coming.key)
            if not left:
                break
    return found
