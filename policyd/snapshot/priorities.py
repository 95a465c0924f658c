"""What makes up the place of each pending workload: usage, preemption, priority, time.

The order within a ClusterQueue: where past usage orders LocalQueues, the least usage first; then
the workload for which others were preempted; then the highest priority; then the longest wait.
Which ClusterQueue of a Cohort has its turn first is decided in each cycle, by fair shares where
there are some.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Literal

from policyd.alloc.value import Value
from policyd.api.meta import rfc3339
from policyd.snapshot.answers import job_name, local_queue_of, origin_of, tree_of
from policyd.snapshot.reading import FoundPending
from policyd.snapshot.values import (
    NONE,
    ClusterQueueUse,
    CohortUse,
    PastUsage,
    PendingRow,
    QueueSnapshot,
)
from policyd.status.naming import team_of

Decides = Literal["first", "usage", "preemption", "priority", "time", "uid", ""]
"""By what a workload is behind the one before it; "" if its LocalQueue is not shown."""


class PriorityLine(Value, frozen=True, rename="camel"):
    """What makes up the place of a pending workload; "" for what the reader may not know.

    Attributes:
        ahead: How many workloads are before it in its ClusterQueue.
        decided_by: By what it is behind the one before it.
        usage: Of its LocalQueue, by weight; None where usage orders none, or is infinite.
        priority: With `boost`, as it counts.
        priority_class: `Kind/name` of the class that the priority is from.
        since: By which it has its place among equals.
        share: Of its ClusterQueue, in thousandths; None without fair sharing, or if infinite.
        backs_off: Whether it is not tried yet after an eviction.
    """

    cluster_queue: str
    ahead: int
    namespace: str
    job: str
    workload: str
    local_queue: str
    decided_by: Decides
    usage: float | None
    priority: int
    boost: int
    priority_class: str
    since: str
    share: float | None
    backs_off: bool = False


class ShareLine(Value, frozen=True, rename="camel"):
    """How a ClusterQueue or Cohort stands against its siblings.

    Attributes:
        share: In thousandths, by weight; None for a borrower of weight 0, which is last.
        dominant: The resource of which it borrows most.
    """

    kind: Literal["ClusterQueue", "Cohort"]
    name: str
    parent: str
    share: float | None
    weight: float
    dominant: str


class UsageLine(Value, frozen=True, rename="camel"):
    """What a LocalQueue used, which orders it among those of its ClusterQueue.

    Attributes:
        usage: By weight, the lowest first; None for weight 0, which is last.
        consumed: Units (cores, bytes, devices) by resource, decayed until `updated`.
        penalty: What is counted of workloads that are not admitted yet.
    """

    cluster_queue: str
    namespace: str
    local_queue: str
    usage: float | None
    weight: float
    consumed: Mapping[str, float]
    penalty: Mapping[str, float]
    updated: str


class PriorityAnswer(Value, frozen=True, rename="camel"):
    """Places, and the shares and usages behind them.

    Attributes:
        half_life_seconds: After which usage counts half; None if usage orders nothing.
        resource_weights: By which resources count in usage, 1 where it does not say.
    """

    workloads: tuple[PriorityLine, ...]
    shares: tuple[ShareLine, ...] = ()
    usages: tuple[UsageLine, ...] = ()
    half_life_seconds: float | None = None
    resource_weights: Mapping[str, float] = {}


def priorities(snapshot: QueueSnapshot, *, queue: str = "", team: str = "") -> PriorityAnswer:
    """Return what makes up the places of pending workloads.

    Args:
        snapshot: The queues.
        queue: A ClusterQueue or LocalQueue, to return its workloads only; "" for all.
        team: A namespace, likewise.
    """
    lines = [
        line
        for each in snapshot.cluster_queues
        for line in _lines(each)
        if queue in {"", line.cluster_queue, line.local_queue} and team in {"", line.namespace}
    ]
    shown = {line.cluster_queue for line in lines} | {queue}
    usages = [usage for each in snapshot.cluster_queues for usage in _usages(each)]
    order = snapshot.usage_order
    return PriorityAnswer(
        workloads=tuple(lines),
        shares=tuple(_shares(snapshot)),
        usages=tuple(each for each in usages if each.cluster_queue in shown),
        half_life_seconds=None if order is None else order.half_life_seconds,
        resource_weights={} if order is None else order.weights,
    )


def _lines(queue: ClusterQueueUse) -> Iterator[PriorityLine]:
    by = ["first", *(_decides(queue, *pair) for pair in pairwise(range(len(queue.pending))))]
    backing_off = frozenset(queue.backing_off)
    share = None if queue.fair_share is None else queue.fair_share.share
    for place, row in enumerate(queue.pending):
        found = FoundPending(queue, place)
        past, origin = _past(queue, row), origin_of(queue, row)
        yield PriorityLine(
            cluster_queue=queue.name,
            ahead=place,
            namespace=team_of(row.key),
            job=job_name(found),
            workload=row.key.partition("/")[2],
            local_queue=local_queue_of(queue, row).name,
            decided_by=by[place],
            usage=None if past is None else past.usage,
            priority=row.priority,
            boost=origin.boost,
            priority_class=origin.priority_class,
            since=rfc3339(row.since),
            share=share,
            backs_off=place in backing_off,
        )


def _past(queue: ClusterQueueUse, row: PendingRow) -> PastUsage | None:
    """Return what the LocalQueue of a workload used; None if that is not shown."""
    known = row.local_queue != NONE and row.local_queue < len(queue.past)
    return queue.past[row.local_queue] if known else None


def _decides(queue: ClusterQueueUse, place: int, behind: int) -> Decides:
    """Return by what one workload is before the next."""
    first, second = queue.pending[place], queue.pending[behind]
    if queue.past:
        mine, other = _past(queue, first), _past(queue, second)
        if mine is None or other is None:
            return ""
        if mine.usage != other.usage:
            return "usage"
    if queue.preemptor == place:
        return "preemption"
    if first.priority != second.priority:
        return "priority"
    return "time" if first.since != second.since else "uid"


def _shares(snapshot: QueueSnapshot) -> Iterator[ShareLine]:
    for _, each in tree_of(snapshot):
        if each.fair_share is not None:
            cohort = isinstance(each, CohortUse)
            yield ShareLine(
                kind="Cohort" if cohort else "ClusterQueue",
                name=each.name,
                parent=each.parent if isinstance(each, CohortUse) else each.cohort,
                share=each.fair_share.share,
                weight=each.fair_share.weight,
                dominant=each.fair_share.dominant,
            )


def _usages(queue: ClusterQueueUse) -> Iterator[UsageLine]:
    for local, past in zip(queue.local_queues, queue.past, strict=False):
        if local.name:
            yield UsageLine(
                cluster_queue=queue.name,
                namespace=local.namespace,
                local_queue=local.name,
                usage=past.usage,
                weight=past.weight,
                consumed=past.consumed,
                penalty=past.penalty,
                updated=rfc3339(past.updated_at),
            )
