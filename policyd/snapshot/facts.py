"""The facts that policies read of a snapshot: totals, made once, and rows only of those in front.

Nothing that a review reads walks over workloads: `prepared` does, step by step, when the snapshot
comes.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, NamedTuple

from policyd.alloc.amount import UNLIMITED, add, subtract
from policyd.cel.values import Timestamp
from policyd.engine.model.queue_facts import FactStruct, QueueFacts, UnknownFacts
from policyd.snapshot.taking import STEP
from policyd.snapshot.values import (
    NONE,
    ClusterQueueUse,
    CohortUse,
    PendingRow,
    QueueSnapshot,
    QuotaUse,
)
from policyd.status.naming import Naming, team_of

MOST_WAITING: Final = 50
"""Workloads in front of a ClusterQueue that policies see one by one."""

LocalQueueKey = tuple[str, str]
"""Namespace and name."""

_Amounts = dict[str, int]
_Fields = Mapping[str, Callable[[Any], object]]


@dataclass(slots=True)
class _Line:
    """Totals of the workloads in a queue; `oldest` is in seconds since the epoch."""

    pending: int = 0
    holding: int = 0
    requested: _Amounts = field(default_factory=dict)
    used: _Amounts = field(default_factory=dict)
    oldest: int = UNLIMITED

    @property
    def absent(self) -> frozenset[str]:
        """Which facts there are not."""
        return _NOTHING if self.pending else _NONE_PENDING


_NOTHING: Final[frozenset[str]] = frozenset()
_NONE_PENDING: Final = frozenset(("oldestPending",))


@dataclass(frozen=True, slots=True)
class _Totals:
    """Totals of a snapshot, by ClusterQueue and by LocalQueue."""

    of_cluster_queues: dict[str, _Line] = field(default_factory=dict)
    of_local_queues: dict[LocalQueueKey, _Line] = field(default_factory=dict)
    behind: dict[LocalQueueKey, str] = field(default_factory=dict)


def prepared(
    snapshot: QueueSnapshot, local_queues: Mapping[LocalQueueKey, str] | None = None
) -> Generator[None, None, "SnapshotFacts"]:
    """Add up what policies may ask for, step by step.

    Args:
        snapshot: The queues.
        local_queues: The ClusterQueue of each LocalQueue; None if the snapshot says it, or only
            those are known that have workloads.

    Yields:
        Nothing, after each step.

    Returns:
        The facts.
    """
    totals = _Totals()
    if local_queues is None and snapshot.rules is not None:
        rules = snapshot.rules.local_queues
        local_queues = {(each.namespace, each.name): each.cluster_queue for each in rules}
    for queue in snapshot.cluster_queues:
        yield from _add_up(queue, totals)
    totals.behind.update(local_queues or {})
    return SnapshotFacts(snapshot, totals, whole=local_queues is not None)


def facts_of(
    snapshot: QueueSnapshot, local_queues: Mapping[LocalQueueKey, str] | None = None
) -> "SnapshotFacts":
    """Return the facts of a snapshot at once, where nothing else has to run meanwhile."""
    steps = prepared(snapshot, local_queues)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: SnapshotFacts = end.value
            return found


_Counts = dict[tuple[int, int], int]
"""How many rows have a LocalQueue and an entry of another table, by their indexes."""


def _add_up(queue: ClusterQueueUse, totals: _Totals) -> Generator[None, None, None]:
    """Add up the workloads of a ClusterQueue."""
    whole = totals.of_cluster_queues[queue.name] = _Line()
    lines = [_Line() for _ in queue.local_queues]
    for place, each in enumerate(queue.local_queues):
        if each.name:
            totals.of_local_queues[each.namespace, each.name] = lines[place]
            totals.behind[each.namespace, each.name] = queue.name
    for counted in queue.lines:
        line = whole if counted.local_queue == NONE else lines[counted.local_queue]
        line.pending += counted.count
        line.oldest = min(line.oldest, counted.since)
        _take(line.requested, counted.requests.items(), 1)
    if not queue.lines:
        yield from _add_up_rows(queue, [*lines, whole])
    for line in lines:
        whole.pending += line.pending
        whole.oldest = min(whole.oldest, line.oldest)
        _take(whole.requested, line.requested.items(), 1)
    counts: _Counts = {}
    yield from _count_holding(queue, counts)
    for (at, index), number in counts.items():
        usage = [(each.resource, each.amount) for each in queue.usages[index]]
        for line in (whole, *(() if at == NONE else (lines[at],))):
            line.holding += number
            _take(line.used, usage, number)


def _add_up_rows(queue: ClusterQueueUse, lines: list[_Line]) -> Generator[None, None, None]:
    """Add up pending workloads one by one; those without a LocalQueue are of the last line."""
    counts: _Counts = {}
    for start in range(0, len(queue.pending), STEP):
        for row in queue.pending[start : start + STEP]:
            kind = row.local_queue, row.requests
            counts[kind] = counts.get(kind, 0) + 1
            line = lines[row.local_queue]
            if row.since < line.oldest:  # noqa: PLR1730 - a call for each row takes half of the time
                line.oldest = row.since
        yield
    for (at, index), number in counts.items():
        lines[at].pending += number
        _take(lines[at].requested, queue.requests[index].items(), number)


def _count_holding(queue: ClusterQueueUse, counts: _Counts) -> Generator[None, None, None]:
    for start in range(0, len(queue.holding), STEP):
        for row in queue.holding[start : start + STEP]:
            kind = row.local_queue, row.usage
            counts[kind] = counts.get(kind, 0) + 1
        yield


def _take(into: _Amounts, amounts: Iterable[tuple[str, int]], times: int) -> None:
    for resource, amount in amounts:
        into[resource] = add(into.get(resource, 0), amount * times)


class SnapshotFacts:
    """The facts of a snapshot, for policies of the cluster or of one namespace."""

    def __init__(
        self, snapshot: QueueSnapshot, totals: _Totals, *, whole: bool, reader: str = ""
    ) -> None:
        """Take them from a snapshot.

        Args:
            snapshot: The queues.
            totals: Of its workloads.
            whole: Whether all LocalQueues are known.
            reader: The namespace whose policies read; "" for the cluster's.
        """
        self._snapshot = snapshot
        self._totals = totals
        self._whole = whole
        self._naming = Naming(namespace=reader, others=snapshot.other_teams) if reader else Naming()
        self._within: dict[str, SnapshotFacts] = {}

    @property
    def taken_at(self) -> float:
        """The moment of the snapshot, in seconds since the epoch."""
        return self._snapshot.taken_at

    def variables(self, namespace: str, queue: str) -> Mapping[str, object]:
        """Return the values of `queue`, `clusterQueue` and `cluster`.

        Args:
            namespace: Of the request.
            queue: The LocalQueue that the object names; "" for none.
        """
        of_local, of_cluster = self._of(namespace, queue)
        return {"queue": of_local, "clusterQueue": of_cluster, "cluster": self._cluster}

    def within(self, namespace: str) -> QueueFacts:
        """Return the facts that policies of a namespace may know.

        These are the facts that a snapshot of the namespace would have: those of the trees of
        queues in which it has a LocalQueue, and names of other teams' jobs as far as
        `visibility.otherTeams` allows.
        """
        found = self._within.get(namespace)
        if found is None:
            made = SnapshotFacts(
                _of_namespace(self._snapshot, self._totals.behind, namespace),
                self._totals,
                whole=self._whole,
                reader=namespace,
            )
            found = self._within[namespace] = made
        return found

    def _of(self, namespace: str, name: str) -> tuple[object, object]:
        """Return the LocalQueue of a name, and the ClusterQueue behind it."""
        if not name:
            nothing = FactStruct({}, missing="the object names no queue")
            return nothing, nothing
        behind = self._totals.behind.get((namespace, name))
        if behind is None and not self._whole:
            unknown = UnknownFacts(
                f"of LocalQueue {namespace}/{name}, which has no workloads, the snapshot says"
                " nothing"
            ).variables(namespace, name)
            return unknown["queue"], unknown["clusterQueue"]
        if behind is None:
            nothing = FactStruct({}, missing=f"there is no LocalQueue {namespace}/{name}")
            return nothing, nothing
        line = self._totals.of_local_queues.get((namespace, name)) or _Line()
        local = FactStruct(
            _LOCAL_QUEUE,
            _LocalQueue(line, namespace, name, behind),
            absent=line.absent,
            missing=f"nothing waits in LocalQueue {namespace}/{name}",
        )
        gone = FactStruct({}, missing=f"there is no ClusterQueue {behind}")
        return local, self.cluster_queues.get(behind, gone)

    @cached_property
    def cluster_queues(self) -> dict[str, FactStruct]:
        """The ClusterQueues by name."""
        found = {}
        for queue in self._snapshot.cluster_queues:
            line = self._totals.of_cluster_queues[queue.name]
            found[queue.name] = FactStruct(
                _CLUSTER_QUEUE,
                _ClusterQueue(line, queue, self._naming),
                absent=line.absent,
                missing=f"nothing waits in ClusterQueue {queue.name}",
            )
        return found

    @cached_property
    def _cluster(self) -> FactStruct:
        every = self._snapshot
        whole = _Below(list(every.cluster_queues))
        whole.quotas += [quota for each in every.cluster_queues for quota in each.quotas]
        whole.quotas += [quota for each in every.cohorts for quota in each.quotas]
        return FactStruct(_CLUSTER, self._sums(whole))

    @cached_property
    def cohorts(self) -> dict[str, FactStruct]:
        """The Cohorts by name."""
        below = _below(self._snapshot)
        return {
            each.name: FactStruct(_COHORT, self._sums(below[each.name], each))
            for each in self._snapshot.cohorts
        }

    def _sums(self, below: "_Below", cohort: CohortUse | None = None) -> "_Sums":
        lines = [self._totals.of_cluster_queues[each.name] for each in below.queues]
        return _Sums(self, below, lines, cohort)


@dataclass(slots=True)
class _Below:
    """What is below a Cohort, or in the cluster.

    Attributes:
        queues: Its ClusterQueues.
        quotas: All quotas, those of Cohorts included.
    """

    queues: list[ClusterQueueUse] = field(default_factory=list)
    quotas: list[QuotaUse] = field(default_factory=list)


class _LocalQueue(NamedTuple):
    """What the facts of a LocalQueue are computed from."""

    line: _Line
    namespace: str
    name: str
    behind: str


class _ClusterQueue(NamedTuple):
    """What those of a ClusterQueue are computed from."""

    line: _Line
    use: ClusterQueueUse
    naming: Naming

    def waiting(self) -> list[FactStruct]:
        """Return the workloads in front."""
        requests, naming = self.use.requests, self.naming
        return [
            FactStruct(
                _WAITING,
                (row, requests[row.requests]),
                absent=_hidden(row, naming),
                missing="" if _is_known(row, naming) else _HIDDEN,
                unknown=not _is_known(row, naming),
            )
            for row in self.use.pending[:MOST_WAITING]
        ]


class _Sums(NamedTuple):
    """What those of a Cohort, or of the cluster, are computed from."""

    facts: SnapshotFacts
    below: _Below
    lines: list[_Line]
    cohort: CohortUse | None

    def nominal(self) -> _Amounts:
        """Return all quota."""
        return _sum(self.below.quotas, attrgetter("nominal"))

    def used(self) -> _Amounts:
        """Return what is used of it."""
        return _sum((q for each in self.below.queues for q in each.quotas), attrgetter("used"))

    def idle(self) -> _Amounts:
        """Return what is not."""
        used = self.used()
        return {n: max(0, subtract(all_, used.get(n, 0))) for n, all_ in self.nominal().items()}

    def requested(self) -> _Amounts:
        """Return what pending workloads request."""
        total: _Amounts = {}
        for line in self.lines:
            _take(total, line.requested.items(), 1)
        return total


_HIDDEN: Final = "`visibility.otherTeams` hides the jobs of other teams"


def _is_known(row: PendingRow, naming: Naming) -> bool:
    """Tell whether a workload is named both in the snapshot and to the reader."""
    return row.key[-1:] not in {"", "/"} and naming.names(row.key)


def _hidden(row: PendingRow, naming: Naming) -> frozenset[str]:
    """Return which facts of a workload there are not, or are not known to the reader."""
    if _is_known(row, naming):
        return _NOTHING if row.job else _NO_JOB
    named = naming.others == "team" or naming.names(row.key)
    return _NO_JOB if row.key and named else _NO_NAMES


_NO_JOB: Final = frozenset(("job",))
_NO_NAMES: Final = frozenset(("job", "namespace"))


_OF_LINE: Final[_Fields] = {
    "pending": lambda of: of.line.pending,
    "holding": lambda of: of.line.holding,
    "requested": lambda of: of.line.requested,
    "oldestPending": lambda of: _moment(of.line.oldest),
}
_LOCAL_QUEUE: Final[_Fields] = {
    **_OF_LINE,
    "used": lambda of: of.line.used,
    "name": lambda of: of.name,
    "namespace": lambda of: of.namespace,
    "clusterQueue": lambda of: of.behind,
}
_QUOTAS: Final[_Fields] = {
    "nominal": lambda of: _sum(of, attrgetter("nominal")),
    "used": lambda of: _sum(of, attrgetter("used")),
    "available": lambda of: _sum(of, attrgetter("available")),
}
_CLUSTER_QUEUE: Final[_Fields] = {
    **_OF_LINE,
    "nominal": lambda of: _sum(of.use.quotas, attrgetter("nominal")),
    "used": lambda of: _sum(of.use.quotas, attrgetter("used")),
    "available": lambda of: _sum(of.use.quotas, attrgetter("available")),
    "borrowed": lambda of: _sum(of.use.quotas, attrgetter("borrowed")),
    "name": lambda of: of.use.name,
    "cohort": lambda of: of.use.cohort,
    "active": lambda of: of.use.active,
    "strict": lambda of: of.use.strict,
    "flavors": lambda of: _flavors(of.use.quotas),
    "waiting": _ClusterQueue.waiting,
}
_WAITING: Final[_Fields] = {
    "namespace": lambda of: team_of(of[0].key),
    "job": lambda of: of[0].job,
    "priority": lambda of: of[0].priority,
    "since": lambda of: _moment(of[0].since),
    "requests": lambda of: dict(of[1]),
}
_SUMS: Final[_Fields] = {
    "nominal": _Sums.nominal,
    "used": _Sums.used,
    "idle": _Sums.idle,
    "requested": _Sums.requested,
    "pending": lambda of: sum(line.pending for line in of.lines),
}
_COHORT: Final[_Fields] = {
    **_SUMS,
    "name": lambda of: of.cohort.name,
    "parent": lambda of: of.cohort.parent,
}
_CLUSTER: Final[_Fields] = {
    **_SUMS,
    "known": lambda _: True,
    "takenAt": lambda of: _moment(of.facts.taken_at),
    "clusterQueues": lambda of: of.facts.cluster_queues,
    "cohorts": lambda of: of.facts.cohorts,
}


def _below(snapshot: QueueSnapshot) -> dict[str, _Below]:
    found = {each.name: _Below() for each in snapshot.cohorts}
    parents = {each.name: each.parent for each in snapshot.cohorts}
    for cohort in snapshot.cohorts:
        for name in _upwards(cohort.name, parents):
            found[name].quotas += cohort.quotas
    for queue in snapshot.cluster_queues:
        for name in _upwards(queue.cohort, parents):
            found[name].quotas += queue.quotas
            found[name].queues.append(queue)
    return found


def _upwards(cohort: str, parents: Mapping[str, str]) -> list[str]:
    """Return a Cohort and all above it, as far as they are in the snapshot; a cycle ends."""
    path: dict[str, None] = {}
    while cohort in parents and cohort not in path:
        path[cohort] = None
        cohort = parents[cohort]
    return list(path)


def _of_namespace(
    snapshot: QueueSnapshot, behind: Mapping[LocalQueueKey, str], namespace: str
) -> QueueSnapshot:
    """Return the trees of queues in which a namespace has a LocalQueue."""
    parents = {each.name: each.parent for each in snapshot.cohorts}

    def top(name: str, cohort: str) -> str:
        path = _upwards(cohort, parents)
        return f"cohort {path[-1]}" if path else f"queue {name}"

    own = {queue for (team, _), queue in behind.items() if team == namespace}
    tops = {top(each.name, each.cohort) for each in snapshot.cluster_queues if each.name in own}
    return QueueSnapshot(
        format=snapshot.format,
        taken_at=snapshot.taken_at,
        other_teams=snapshot.other_teams,
        cohorts=tuple(each for each in snapshot.cohorts if top("", each.name) in tops),
        cluster_queues=tuple(
            each for each in snapshot.cluster_queues if top(each.name, each.cohort) in tops
        ),
    )


def _flavors(quotas: Iterable[QuotaUse]) -> dict[str, FactStruct]:
    by_flavor: dict[str, list[QuotaUse]] = {}
    for each in quotas:
        by_flavor.setdefault(each.flavor, []).append(each)
    return {name: FactStruct(_QUOTAS, each) for name, each in by_flavor.items()}


def _sum(quotas: Iterable[QuotaUse], amount: Callable[[QuotaUse], int]) -> _Amounts:
    """Add up by resource; what has no limit stays without one."""
    found: _Amounts = {}
    for each in quotas:
        found[each.resource] = add(found.get(each.resource, 0), amount(each))
    return found


def _moment(seconds: float) -> Timestamp:
    return Timestamp(int(seconds) * 10**9)
