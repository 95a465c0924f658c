"""Queues by their quotas alone: fast, and right where nothing but quota and order decides.

Every cohort is one sum of quotas for each resource, whatever the flavor. As in a cycle of the core,
the first workload of each queue has its turn, those that need not borrow first, then by priority
and time; one that waits for quota of its own queue keeps it from the others in the same round. And
so on, until nothing fits. No workload is preempted, and nodes, shares and checks are ignored.

Workloads of a queue that request the same are one *kind*: if one does not fit, none does. So each
event looks at the first of each kind only.
"""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import takewhile
from math import inf
from typing import NamedTuple

from policyd.alloc.amount import total_of
from policyd.alloc.queue import CohortQuotas, FlavorGroup, QueueSpec
from policyd.alloc.workload import QueuedWorkload

Needs = tuple[tuple[int, int], ...]
"""Limits that a workload counts against, and how much of each it takes."""

Rank = tuple[int, float, int]
"""The order in a queue, the lowest first: priority, negative; time; kind."""

Turn = tuple[bool, Rank]
"""The order in a round of queues that share: whether it borrows, and the rank."""

_UNLIMITED = 2**62
_LAST = 2**62
"""In a rank: after all kinds."""


class Kind(NamedTuple):
    """Workloads that fit or do not fit together.

    Attributes:
        root: The cohort above all others, which shares its quota; the queue, if it is alone.
        queue: Where they queue.
        priority: The same for all.
        needs: What each of them takes.
        own: The queue's own limits, that of the cohort beside each or -1, and the amount.
        strict: Whether they hold up those behind them in their queue.
        stopped: Whether their queue gives out nothing.
    """

    root: str
    queue: str
    priority: int
    needs: Needs
    own: tuple[tuple[int, int, int], ...]
    strict: bool
    stopped: bool


class ForecastWorkload(NamedTuple):
    """A workload that comes later, or is pending already.

    Attributes:
        at: When it is queued, in seconds.
        kind: Its kind, as an index.
        run_seconds: How long it will run.
        key: Its name; "" if its start is not asked for.
    """

    at: float
    kind: int
    run_seconds: float
    key: str


class StartProbe(NamedTuple):
    """A workload that could be submitted now.

    Attributes:
        key: Its name.
        kind: Its kind, as an index.
        rank: Its turn among others of its queue.
    """

    key: str
    kind: int
    rank: Rank


Waiting = dict[int, deque[ForecastWorkload]]
"""Workloads that wait, by kind, each kind in the order of time."""


class CoarseQueues:
    """Queues and cohorts, reduced to limits.

    Attributes:
        limits: How much may be in use at once, by index.
        borrowed: How much of a queue's limit is not its own, by index.
        kinds: Kinds of workloads, by index.
        shared: Roots that are cohorts.
    """

    def __init__(self, queues: Iterable[QueueSpec], cohorts: Iterable[CohortQuotas] = ()) -> None:
        self.limits: list[int] = []
        self.borrowed: dict[int, int] = {}
        self.shared: set[str] = set()
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
        self.shared.add(f"cohort/{root}")
        if (root, resource) not in self._sums:
            self._sums[root, resource] = len(self.limits)
            self.limits.append(0)
        return self._sums[root, resource]

    def _lend(self, root: str, groups: tuple[FlavorGroup, ...]) -> None:
        for resource, (nominal, _) in _quotas(groups).items():
            self.limits[self._sum(root, resource)] += nominal

    def kind_of(self, workload: QueuedWorkload) -> int | None:
        """Return the index of a workload's kind; None if its queue will never hold it.

        A workload that has quota is held, whatever its queue's limits are by now.
        """
        spec = self._specs.get(workload.cluster_queue)
        if spec is None:
            return None
        totals = total_of(*(pod_set.totals() for pod_set in workload.pod_sets))
        own, pends = [], workload.admission is None
        for resource, amount in sorted(totals.items()):
            cells = self._cells.get((spec.name, resource))
            few = cells is None or any(self.limits[cell] < amount for cell in cells)
            if pends and amount and few:
                return None
            if amount and cells:
                own.append((cells[0], cells[1] if len(cells) > 1 else -1, amount))
        needs = tuple((cell, amount) for *cells, amount in own for cell in cells if cell >= 0)
        priority, strict = workload.priority, spec.strict
        root = f"cohort/{self._root(spec.cohort)}" if spec.cohort else spec.name
        kind = Kind(root, spec.name, priority, needs, tuple(own), strict, spec.stopped)
        if kind not in self._index:
            self._index[kind] = len(self.kinds)
            self.kinds.append(kind)
        return self._index[kind]

    def is_shared(self, queue: str) -> bool:
        """Tell whether a queue is in a cohort."""
        return bool(self._specs[queue].cohort)

    def is_strict(self, queue: str) -> bool:
        """Tell whether the first workload of a queue holds up the others; not if it is unknown."""
        spec = self._specs.get(queue)
        return spec is not None and spec.strict

    def probe_of(self, workload: QueuedWorkload, *, now: float) -> StartProbe | None:
        """Return a workload as a probe; None if its queue will never hold it."""
        kind = self.kind_of(workload)
        if kind is None:
            return None
        return StartProbe(workload.key, kind, (-workload.priority, now, _LAST))


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
    """One way that things may go from now on.

    Attributes:
        now: The time, in seconds.
        probed: When probes would have started, by key.
    """

    def __init__(
        self,
        queues: CoarseQueues,
        running: Iterable[tuple[int, float]],
        pending: Iterable[ForecastWorkload],
        *,
        now: float,
        probes: Iterable[StartProbe] = (),
    ) -> None:
        """Begin with the present.

        Args:
            queues: The limits.
            running: Kind and end, in seconds, of each workload that holds quota.
            pending: Workloads that wait, in any order.
            now: The time, in seconds.
            probes: Workloads that could be submitted.
        """
        self.now = now
        self.probed: dict[str, float] = {}
        self._probes: dict[str, list[StartProbe]] = {}
        for probe in sorted(probes, key=lambda each: each.rank):
            if not queues.kinds[probe.kind].stopped:
                self._probes.setdefault(queues.kinds[probe.kind].root, []).append(probe)
        self._kinds, self._borrowed = queues.kinds, queues.borrowed
        self._limits = queues.limits
        self._free = list(queues.limits)
        self._ends = [(max(now, ends), kind) for kind, ends in running]
        heapify(self._ends)
        for _, kind in self._ends:
            self._take(kind)
        self._shared = queues.shared
        self._waiting: dict[str, Waiting] = {}
        self._inadmissible: set[int] = set()
        for each in sorted(pending, key=lambda coming: coming.at):
            self._queue(each)

    def starts(
        self, arrivals: Iterator[ForecastWorkload], *, until: float
    ) -> Iterator[tuple[float, ForecastWorkload]]:
        """Yield each start with its time, as it comes.

        Args:
            arrivals: Workloads that come later, in the order of time; consumed as time passes.
            until: When to stop, in seconds.
        """
        following = next(arrivals, None)
        touched = dict.fromkeys((*self._waiting, *self._probes))
        while True:
            for root in touched:
                for coming in self._fill(root):
                    yield self.now, coming
            at = min(self._ends[0][0] if self._ends else inf, following.at if following else inf)
            if at > until or at == inf:
                return
            self.now = at
            touched = self._end()
            while following is not None and following.at <= at:
                kind = self._kinds[following.kind]
                self._queue(following)
                # Where nothing has ended, what waited before does not fit.
                if kind.root in self._shared or self._fits(kind):
                    touched[kind.root] = None
                following = next(arrivals, None)

    def _end(self) -> dict[str, None]:
        """Let workloads end whose time is up; return the roots of their queues."""
        ends, kinds, free = self._ends, self._kinds, self._free
        touched: dict[str, None] = {}
        while ends and ends[0][0] <= self.now:
            kind = kinds[heappop(ends)[1]]
            touched[kind.root] = None
            for cell, amount in kind.needs:
                free[cell] += amount
        if touched and self._inadmissible:
            self._inadmissible = {i for i in self._inadmissible if kinds[i].root not in touched}
        return touched

    def _queue(self, coming: ForecastWorkload) -> None:
        kind = self._kinds[coming.kind]
        waiting = self._waiting.setdefault(kind.root, {})
        if coming.kind in waiting:
            waiting[coming.kind].append(coming)
        elif not kind.stopped:
            waiting[coming.kind] = deque((coming,))

    def _take(self, kind: int) -> None:
        for cell, amount in self._kinds[kind].needs:
            self._free[cell] -= amount

    def _fill(self, root: str) -> Iterator[ForecastWorkload]:
        """Start what fits now, in order; yield it."""
        waiting, probes = self._waiting.get(root), self._probes.get(root, [])
        if waiting or probes:
            found = self._rounds if root in self._shared else self._by_rank
            yield from found(waiting or {}, probes)

    @property
    def probing(self) -> bool:
        """Whether a probe would not have started yet."""
        return any(self._probes.values())

    def _note(self, probes: list[StartProbe], tried: Iterable[StartProbe]) -> None:
        """Note that probes start now, as far as they fit."""
        for probe in [each for each in tried if self._fits(self._kinds[each.kind])]:
            self.probed[probe.key] = self.now
            probes.remove(probe)

    def _by_rank(self, waiting: Waiting, probes: list[StartProbe]) -> Iterator[ForecastWorkload]:
        """Start what fits in a queue that shares nothing: always the first that does."""
        kinds, free = self._kinds, self._free
        while True:
            best: Rank | None = None
            for index, queued in waiting.items():
                kind = kinds[index]
                for cell, amount in kind.needs:
                    if free[cell] < amount and not kind.strict:
                        break
                else:
                    rank = -kind.priority, queued[0].at, index
                    if best is None or rank < best:
                        best = rank
            if probes:
                self._note(probes, probes if best is None else _before(best, probes))
            if best is None or not self._fits(kinds[best[2]]):
                return
            yield self._start(waiting, best[2])

    def _rounds(self, waiting: Waiting, probes: list[StartProbe]) -> Iterator[ForecastWorkload]:
        """Start what fits in queues that share: the first of each has its turn, again and again."""
        # What does not fit now does not fit later in these rounds.
        untried = [each for each in probes if self._fits(self._kinds[each.kind])]
        heads = self._heads(waiting, anyway=bool(untried))
        while heads or untried:
            turns = [(self._borrows(self._kinds[ranks[0][2]]), ranks) for ranks in heads.values()]
            turns.sort(key=_turn)
            due = self._due(untried, heads) if untried else {}
            untried = [each for each in untried if each not in due]
            missing = [not self._fits(self._kinds[ranks[0][2]]) for _, ranks in turns]
            kept: list[tuple[int, int]] = []
            for (borrows, ranks), misses in zip(turns, missing, strict=True):
                kind = self._kinds[ranks[0][2]]
                due = due and self._note_before((borrows, ranks[0]), probes, due)
                if misses:
                    kept += self._keep(kind, borrows=borrows)
                    self._pass_over(ranks, strict=kind.strict)
                    untried = self._passing(untried, kind)
                elif self._fits(kind):
                    priority, _, index = heappop(ranks)
                    yield self._start(waiting, index)
                    if index in waiting:
                        heappush(ranks, (priority, waiting[index][0].at, index))
            self._note_before(None, probes, due)
            for cell, amount in kept:
                self._free[cell] += amount
            heads = {queue: ranks for queue, ranks in heads.items() if ranks}

    def _note_before(
        self, turn: Turn | None, probes: list[StartProbe], due: dict[StartProbe, Turn]
    ) -> dict[StartProbe, Turn]:
        """Note which probes start before a turn; return those whose turn comes after it."""
        self._note(probes, [each for each, its in due.items() if turn is None or its < turn])
        return {} if turn is None else {each: its for each, its in due.items() if its >= turn}

    def _passing(self, untried: list[StartProbe], kind: Kind) -> list[StartProbe]:
        """Return the probes that are not held up by a workload that does not fit."""
        if not kind.strict:
            return untried
        return [each for each in untried if self._kinds[each.kind].queue != kind.queue]

    def _due(
        self, untried: list[StartProbe], heads: Mapping[str, list[Rank]]
    ) -> dict[StartProbe, Turn]:
        """Return the probes that are before all that wait in their queue, with their turns."""
        found = {}
        for probe in untried:
            kind = self._kinds[probe.kind]
            ranks = heads.get(kind.queue)
            if not ranks or probe.rank < ranks[0]:
                found[probe] = self._borrows(kind), probe.rank
        return found

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

    def _heads(self, waiting: Waiting, *, anyway: bool) -> dict[str, list[Rank]]:
        """Return the ranks of the first workload of each kind, as a heap for each queue.

        Nothing where none of them fits, unless they are wanted `anyway`.
        """
        if not anyway and not any(self._fits(self._kinds[index]) for index in waiting):
            self._inadmissible.update(i for i in waiting if not self._kinds[i].strict)
            return {}
        heads: dict[str, list[Rank]] = {}
        for index, queued in waiting.items():
            if index not in self._inadmissible:
                kind = self._kinds[index]
                heads.setdefault(kind.queue, []).append((-kind.priority, queued[0].at, index))
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

    def _start(self, waiting: Waiting, index: int) -> ForecastWorkload:
        """Start the first workload of a kind."""
        queued = waiting[index]
        coming = queued.popleft()
        if not queued:
            del waiting[index]
        self._take(index)
        heappush(self._ends, (self.now + coming.run_seconds, index))
        return coming


def _before(rank: Rank, probes: list[StartProbe]) -> Iterator[StartProbe]:
    return takewhile(lambda each: each.rank < rank, probes)


def _turn(turn: tuple[bool, list[Rank]]) -> tuple[bool, Rank]:
    return turn[0], turn[1][0]


PATIENCE, PATIENCE_SECONDS = 1.25, 6 * 3_600.0
"""How long probes are followed: so much of the time until the last wanted start, and so long."""


def first_starts(
    run: CoarseRun, arrivals: Iterator[ForecastWorkload], *, wanted: Sequence[str], until: float
) -> Generator[None, None, Mapping[str, float]]:
    """Return when each wanted workload, and each probe, starts; some do not by then.

    Yields:
        Nothing, after each start.
    """
    left, found, began = set(wanted), {}, run.now
    last = began
    for at, coming in run.starts(arrivals, until=until):
        yield
        if coming.key in left:
            found[coming.key] = last = at
            left.discard(coming.key)
        if not left and (
            not run.probing or at > began + PATIENCE * (last - began) + PATIENCE_SECONDS
        ):
            break
    return found | run.probed
