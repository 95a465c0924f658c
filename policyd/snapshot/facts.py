"""The facts that policies read of a snapshot: totals, made once, and rows only of those in front.

Nothing that a review reads walks over workloads: `prepared` does, step by step, when the snapshot
comes.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from policyd.alloc.amount import UNLIMITED, add, subtract, total_of
from policyd.cel.values import Timestamp
from policyd.engine.model.queue_facts import FactStruct, QueueFacts, UnknownFacts
from policyd.snapshot.picture import STEP
from policyd.snapshot.values import (
    NONE,
    ClusterQueueUse,
    CohortUse,
    PendingRow,
    QueueSnapshot,
    QuotaUse,
)
from policyd.status.naming import Naming

MOST_WAITING: Final = 50
"""Workloads in front of a ClusterQueue that policies see one by one."""

LocalQueueKey = tuple[str, str]
"""Namespace and name."""

_Amounts = dict[str, int]
_Fields = dict[str, Callable[[], object]]


@dataclass(slots=True)
class _Line:
    """Totals of the workloads in a queue; `oldest` is in seconds since the epoch."""

    pending: int = 0
    holding: int = 0
    requested: _Amounts = field(default_factory=dict)
    used: _Amounts = field(default_factory=dict)
    oldest: int = UNLIMITED

    def fields(self) -> _Fields:
        """Return what policies see of it."""
        found: _Fields = {
            "pending": lambda: self.pending,
            "holding": lambda: self.holding,
            "requested": lambda: self.requested,
        }
        if self.pending:
            found["oldestPending"] = lambda: _moment(self.oldest)
        return found


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
            nothing = FactStruct({}, lacking="the object names no queue")
            return nothing, nothing
        behind = self._totals.behind.get((namespace, name))
        if behind is None and not self._whole:
            unknown = UnknownFacts(
                f"of LocalQueue {namespace}/{name}, which has no workloads, the snapshot says"
                " nothing"
            ).variables(namespace, name)
            return unknown["queue"], unknown["clusterQueue"]
        if behind is None:
            nothing = FactStruct({}, lacking=f"there is no LocalQueue {namespace}/{name}")
            return nothing, nothing
        line = self._totals.of_local_queues.get((namespace, name)) or _Line()
        local = FactStruct(
            {
                **line.fields(),
                "used": lambda: line.used,
                "name": lambda: name,
                "namespace": lambda: namespace,
                "clusterQueue": lambda: behind,
            },
            lacking=f"nothing waits in LocalQueue {namespace}/{name}",
        )
        gone = FactStruct({}, lacking=f"there is no ClusterQueue {behind}")
        return local, self._cluster_queues.get(behind, gone)

    @cached_property
    def _cluster_queues(self) -> dict[str, FactStruct]:
        return {each.name: self._cluster_queue(each) for each in self._snapshot.cluster_queues}

    def _cluster_queue(self, queue: ClusterQueueUse) -> FactStruct:
        line = self._totals.of_cluster_queues[queue.name]
        return FactStruct(
            {
                **line.fields(),
                **_quotas(queue.quotas),
                "name": lambda: queue.name,
                "cohort": lambda: queue.cohort,
                "active": lambda: queue.active,
                "strict": lambda: queue.strict,
                "borrowed": lambda: _sum(queue.quotas, lambda each: each.borrowed),
                "flavors": lambda: _flavors(queue.quotas),
                "waiting": lambda: [
                    self._waiting(queue, row) for row in queue.pending[:MOST_WAITING]
                ],
            },
            lacking=f"nothing waits in ClusterQueue {queue.name}",
        )

    def _waiting(self, queue: ClusterQueueUse, row: PendingRow) -> FactStruct:
        fields: _Fields = {
            "priority": lambda: row.priority,
            "since": lambda: _moment(row.since),
            "requests": lambda: dict(queue.requests[row.requests]),
        }
        named = self._naming.names(row.key)
        team, _, workload = row.key.partition("/")
        if team and (named or self._naming.others == "team"):
            fields["namespace"] = lambda: team
        known = named and bool(workload)
        if known and row.job:
            fields["job"] = lambda: row.job
        lacking = "" if known else "`visibility.otherTeams` hides the jobs of other teams"
        return FactStruct(fields, lacking=lacking, unknown=not known)

    @cached_property
    def _cluster(self) -> FactStruct:
        every = self._snapshot
        quotas = [quota for each in every.cluster_queues for quota in each.quotas]
        quotas += [quota for each in every.cohorts for quota in each.quotas]
        return FactStruct(
            {
                **self._sums(every.cluster_queues, quotas),
                "known": lambda: True,
                "takenAt": lambda: _moment(every.taken_at),
                "clusterQueues": lambda: self._cluster_queues,
                "cohorts": lambda: self._cohorts,
            }
        )

    @cached_property
    def _cohorts(self) -> dict[str, FactStruct]:
        below = _below(self._snapshot)
        return {each.name: self._cohort(each, below[each.name]) for each in self._snapshot.cohorts}

    def _cohort(self, cohort: CohortUse, below: "_Below") -> FactStruct:
        return FactStruct(
            {
                **self._sums(below.queues, below.quotas),
                "name": lambda: cohort.name,
                "parent": lambda: cohort.parent,
            }
        )

    def _sums(self, queues: Iterable[ClusterQueueUse], quotas: list[QuotaUse]) -> _Fields:
        """Return the totals over ClusterQueues, whose quotas and those above them are given."""
        lines = [self._totals.of_cluster_queues[each.name] for each in queues]
        own = [quota for each in queues for quota in each.quotas]

        def nominal() -> _Amounts:
            return _sum(quotas, lambda each: each.nominal)

        def used() -> _Amounts:
            return _sum(own, lambda each: each.used)

        def idle() -> _Amounts:
            taken = used()
            return {
                name: max(0, subtract(amount, taken.get(name, 0)))
                for name, amount in nominal().items()
            }

        return {
            "nominal": nominal,
            "used": used,
            "idle": idle,
            "pending": lambda: sum(line.pending for line in lines),
            "requested": lambda: total_of(*(line.requested for line in lines)),
        }


@dataclass(slots=True)
class _Below:
    """What is below a Cohort: its ClusterQueues, and all quotas, its own included."""

    queues: list[ClusterQueueUse] = field(default_factory=list)
    quotas: list[QuotaUse] = field(default_factory=list)


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


def _quotas(quotas: Iterable[QuotaUse]) -> _Fields:
    quotas = tuple(quotas)
    return {
        "nominal": lambda: _sum(quotas, lambda each: each.nominal),
        "used": lambda: _sum(quotas, lambda each: each.used),
        "available": lambda: _sum(quotas, lambda each: each.available),
    }


def _flavors(quotas: Iterable[QuotaUse]) -> dict[str, FactStruct]:
    by_flavor: dict[str, list[QuotaUse]] = {}
    for each in quotas:
        by_flavor.setdefault(each.flavor, []).append(each)
    return {name: FactStruct(_quotas(each)) for name, each in by_flavor.items()}


def _sum(quotas: Iterable[QuotaUse], amount: Callable[[QuotaUse], int]) -> _Amounts:
    """Add up by resource; what has no limit stays without one."""
    found: _Amounts = {}
    for each in quotas:
        found[each.resource] = add(found.get(each.resource, 0), amount(each))
    return found


def _moment(seconds: float) -> Timestamp:
    return Timestamp(int(seconds) * 10**9)
