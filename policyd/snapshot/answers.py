"""Answers to users' questions out of a snapshot: why a job waits, the queue, the quotas.

Amounts are in the units of the snapshot: milli-CPU, bytes, whole devices.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from policyd.alloc.amount import UNLIMITED
from policyd.alloc.reasons import MissingQuota, OverCapacity
from policyd.alloc.value import Value
from policyd.api.meta import rfc3339
from policyd.snapshot.reading import FoundHolding, FoundPending
from policyd.snapshot.starting import StartAnswer, start_answer
from policyd.snapshot.values import (
    NONE,
    BudgetState,
    ClusterQueueUse,
    CohortUse,
    HeldAmount,
    HoldingRow,
    LocalQueueName,
    Origin,
    PendingRow,
    QueueSnapshot,
    QuotaShortfall,
    QuotaUse,
    SnapshotReason,
)
from policyd.status.naming import team_of
from policyd.status.pending_reasons import needs_text
from policyd.status.quantities import format_amount

State = Literal[
    "Pending",
    "QuotaReserved",
    "Admitted",
    "Stopping",
    "Finished",
    "Inactive",
    "NotQueued",
]


ObstacleType = Literal[
    "Checked", "Refused", "Missing", "Gated", "Unschedulable", "ContainerWaiting"
]


class PodObstacle(Value, frozen=True, rename="camel"):
    """What keeps pods of a job from running.

    Attributes:
        type: Whether they cannot be created, or what they wait for.
        message: That in a sentence.
        what: The policy that refuses them, the admission check or scheduling gate that holds
            them, or the state of a container.
        pods: How many of them there are; 0 if there are none.
        example: The name of one.
        last: When they were last refused.
    """

    type: ObstacleType
    message: str
    what: str = ""
    pods: int = 0
    example: str = ""
    last: str | None = None


class WhyAnswer(Value, frozen=True, rename="camel"):
    """Why a job waits, or what it does instead.

    Attributes:
        kind: Of the job, as `namespace` and `name` are its.
        state: How far it has come.
        message: That in a sentence.
        workload: The name of its Workload.
        ahead: How many workloads are before it in the ClusterQueue.
        ahead_in_local_queue: How many of them are of its LocalQueue.
        behind: The workload that must get quota, or be refused, first.
        since: Since when it is in that state.
        requests: What it requests in total, or holds, by resource.
        held: What other Workloads of the job hold while this one is pending, by resource.
        reason: Word for programs.
        missing: Quota of which it, or the one that it is behind, has too little.
        user: What its user can do to start it sooner.
        administrator: What an administrator can do.
        parts: How it came to be asked about: a pod of a job, a job of another one.
        forecast: When it starts; None if it does not wait, or there is no forecast yet.
        obstacles: Why its pods do not run, if it is not for quota.
        left_out: What could not be found out of its pods, and why.
    """

    kind: str
    namespace: str
    name: str
    state: State
    message: str
    workload: str = ""
    cluster_queue: str = ""
    local_queue: str = ""
    ahead: int | None = None
    ahead_in_local_queue: int | None = None
    behind: str = ""
    priority: int | None = None
    since: str | None = None
    requests: Mapping[str, int] = {}
    held: Mapping[str, int] = {}
    reason: str = ""
    missing: tuple[QuotaShortfall, ...] = ()
    user: str = ""
    administrator: str = ""
    parts: tuple[str, ...] = ()
    forecast: StartAnswer | None = None
    obstacles: tuple[PodObstacle, ...] = ()
    left_out: tuple[str, ...] = ()


class QueueLine(Value, frozen=True, rename="camel"):
    """A pending workload in the list of a queue; "" for what the reader may not know."""

    cluster_queue: str
    ahead: int
    namespace: str
    job: str
    workload: str
    local_queue: str
    priority: int
    since: str
    requests: Mapping[str, int]
    reason: str
    message: str
    owner: str = ""
    forecast: StartAnswer | None = None


class QuotaLine(Value, frozen=True, rename="camel"):
    """The quota of a queue for one flavor and resource; None for no limit.

    Attributes:
        depth: How many Cohorts are above it.
        pending: What workloads that wait in it request of the resource, of whatever flavor.
        budgets: Those of a ClusterQueue and its LocalQueues, on each of its lines.
    """

    depth: int
    kind: Literal["Cohort", "ClusterQueue"]
    name: str
    parent: str
    flavor: str
    resource: str
    nominal: int
    used: int
    borrowed: int
    lent: int
    available: int | None
    pending: int
    borrowing_limit: int | None
    lending_limit: int | None
    active: bool = True
    message: str = ""
    budgets: tuple[BudgetState, ...] = ()


def why_pending(found: FoundPending, kind: str, namespace: str, name: str) -> WhyAnswer:
    """Say why a workload is pending that a snapshot has."""
    row, queue, ahead = found.row, found.queue, found.ahead
    reason, message = _stated_reason(found)
    next_ = ahead is None or not queue.active
    return WhyAnswer(
        kind=kind,
        namespace=namespace,
        name=name,
        state="Pending",
        message=message,
        workload=row.key.partition("/")[2],
        cluster_queue=queue.name,
        local_queue=local_queue_of(queue, row).name,
        ahead=found.place,
        ahead_in_local_queue=found.place_in_local_queue,
        behind="" if ahead is None else called(ahead.row),
        priority=row.priority,
        since=rfc3339(row.since),
        requests=queue.requests[row.requests],
        held=summed((e.resource, e.amount) for other in found.held for e in held(queue, other)),
        reason=reason.type,
        missing=reason.lacking,
        user=reason.user if next_ else "",
        administrator=reason.administrator if next_ else "",
        forecast=start_answer(found.start),
    )


def why_holding(found: FoundHolding, kind: str, namespace: str, name: str) -> WhyAnswer:
    """Say what a workload does that has quota."""
    row, queue = found.row, found.queue
    amounts = [
        f"{_of_flavor(each.flavor, each.resource, each.amount)}" for each in held(queue, row)
    ]
    holds = ", ".join(amounts) or "nothing"
    state: State
    if row.stopping:
        state, message = "Stopping", f"it is being stopped, and still holds {holds}"
    elif row.admitted:
        state, message = "Admitted", f"it is not waiting for quota: it holds {holds}"
    else:
        state, message = "QuotaReserved", f"it holds {holds}, and waits for its admission checks"
    return WhyAnswer(
        kind=kind,
        namespace=namespace,
        name=name,
        state=state,
        message=message,
        workload=row.key.partition("/")[2],
        cluster_queue=queue.name,
        local_queue=local_queue_of(queue, row).name,
        priority=row.priority,
        since=rfc3339(row.since) if row.since else None,
        requests=summed((each.resource, each.amount) for each in held(queue, row)),
    )


def queue_lines(
    snapshot: QueueSnapshot, *, queue: str = "", team: str = "", owner: str = ""
) -> Iterator[QueueLine]:
    """Yield the pending workloads, queue by queue and in order.

    Args:
        snapshot: The queues.
        queue: A ClusterQueue or LocalQueue, to yield its workloads only; "" for all.
        team: A namespace, likewise.
        owner: A person that workloads name as their owner, likewise.
    """
    for found in snapshot.cluster_queues:
        known: dict[tuple[int, int], tuple[SnapshotReason, str]] = {}
        for place, row in enumerate(found.pending):
            if queue and queue not in {found.name, local_queue_of(found, row).name}:
                continue
            if team and team_of(row.key) != team:
                continue
            if owner and origin_of(found, row).owner != owner:
                continue
            pending, shared = FoundPending(found, place), (row.ahead, row.reason)
            if shared not in known:
                known[shared] = _stated_reason(pending)
            yield _line(pending, *known[shared])


def quota_lines(
    snapshot: QueueSnapshot, *, queue: str = "", resource: str = ""
) -> Iterator[QuotaLine]:
    """Yield quotas as a tree: each Cohort before what is below it.

    Args:
        snapshot: The queues.
        queue: A ClusterQueue or Cohort, to yield its quotas only; "" for all.
        resource: A resource, likewise.
    """
    for depth, each in tree_of(snapshot):
        if queue and each.name != queue:
            continue
        pending = pending_requests(each) if isinstance(each, ClusterQueueUse) else {}
        for quota in each.quotas:
            if not resource or quota.resource == resource:
                yield _quota_line(depth, each, quota, pending.get(quota.resource, 0))


def called(row: PendingRow | HoldingRow) -> str:
    """Return what a workload is called, as messages call it."""
    namespace, _, name = row.key.partition("/")
    if name:
        return f"{namespace}/{row.job.partition('/')[2] or name}"
    return f"a job of {namespace}" if namespace else "a job of another team"


def kinds_of(snapshot: QueueSnapshot, namespace: str, name: str) -> set[str]:
    """Return the kinds of the jobs in the queues that have a name."""
    found = set()
    for queue in snapshot.cluster_queues:
        rows: tuple[PendingRow | HoldingRow, ...] = (*queue.pending, *queue.holding)
        for row in rows:
            kind, _, own_name = row.job.partition("/")
            if own_name == name and team_of(row.key) == namespace:
                found.add(kind)
    return found


def job_name(found: FoundPending) -> str:
    """Return `Kind/name` of a job, or of the Workload that stands for itself; "" if not named."""
    row = found.row
    name = row.key.partition("/")[2]
    return row.job or (f"Workload/{name}" if name else "")


def local_queue_of(queue: ClusterQueueUse, row: PendingRow | HoldingRow) -> LocalQueueName:
    """Return the LocalQueue of a workload; empty if it has none, or is not shown."""
    if row.local_queue == NONE:
        return LocalQueueName("", "")
    return queue.local_queues[row.local_queue]


def origin_of(queue: ClusterQueueUse, row: PendingRow) -> Origin:
    """Return where a workload and its priority are from; empty if that is not shown."""
    return Origin() if row.origin == NONE else queue.origins[row.origin]


def held(queue: ClusterQueueUse, row: HoldingRow) -> tuple[HeldAmount, ...]:
    """Return what a workload holds."""
    return queue.usages[row.usage]


def summed(amounts: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return amounts by name, those of the same name together."""
    found: dict[str, int] = {}
    for resource, amount in amounts:
        found[resource] = found.get(resource, 0) + amount
    return found


def _of_flavor(flavor: str, resource: str, amount: int) -> str:
    return f"{format_amount(resource, amount)} {resource} of {flavor}"


def _behind(ahead: FoundPending, reason: SnapshotReason) -> str:
    """Say which workload must have its turn before, and what that one waits for."""
    name = called(ahead.row)
    if reason.lacking:
        return f"behind {name}, which needs {needs_text(map(_shortfall, reason.lacking))}"
    pending = reason.message or reason.type
    return f"behind {name}, which is pending: {pending}" if pending else f"behind {name}"


def _shortfall(lacking: QuotaShortfall) -> MissingQuota | OverCapacity:
    if lacking.never:
        return OverCapacity(
            flavor=lacking.flavor,
            resource=lacking.resource,
            assumed=0,
            requested=lacking.requested,
            capacity=lacking.available,
        )
    return MissingQuota(
        flavor=lacking.flavor,
        resource=lacking.resource,
        missing=lacking.missing,
        requested=lacking.requested,
        available=lacking.available,
    )


def _stated_reason(found: FoundPending) -> tuple[SnapshotReason, str]:
    """Return why a workload is pending, and that in a sentence."""
    queue, ahead = found.queue, found.ahead
    reason = (ahead or found).reason or SnapshotReason(type="")
    if not queue.active:
        resume = f"`policyd resume clusterqueue/{queue.name}`"
        helps = resume if queue.reason == "Stopped" else ""
        return SnapshotReason(type=queue.reason, administrator=helps), queue.message
    if ahead is not None:
        return reason, _behind(ahead, reason)
    return reason, reason.message or "it has not been tried yet"


def _line(found: FoundPending, reason: SnapshotReason, message: str) -> QueueLine:
    row, queue = found.row, found.queue
    namespace, _, workload = row.key.partition("/")
    return QueueLine(
        cluster_queue=queue.name,
        ahead=found.place,
        namespace=namespace,
        job=job_name(found),
        workload=workload,
        local_queue=local_queue_of(queue, row).name,
        priority=row.priority,
        since=rfc3339(row.since),
        requests=queue.requests[row.requests],
        reason=reason.type,
        message=message,
        owner=origin_of(queue, row).owner,
        forecast=start_answer(found.start),
    )


def tree_of(snapshot: QueueSnapshot) -> Iterator[tuple[int, CohortUse | ClusterQueueUse]]:
    """Yield Cohorts and ClusterQueues with their depth; what is in a cycle comes last, at 0."""
    cohorts = {each.name: each for each in snapshot.cohorts}
    below: dict[str, list[CohortUse | ClusterQueueUse]] = {}
    for cohort in snapshot.cohorts:
        below.setdefault(cohort.parent if cohort.parent in cohorts else "", []).append(cohort)
    for queue in snapshot.cluster_queues:
        below.setdefault(queue.cohort if queue.cohort in cohorts else "", []).append(queue)
    open_ = [(0, each) for each in reversed(below.pop("", []))]
    while open_ or below:
        if not open_:
            open_ = [(0, each) for each in below.pop(next(iter(below)))]
        depth, each = open_.pop()
        yield depth, each
        if isinstance(each, CohortUse):
            open_ += [(depth + 1, child) for child in reversed(below.pop(each.name, []))]


def pending_requests(queue: ClusterQueueUse) -> dict[str, int]:
    """Return what pending workloads request, by resource."""
    counts = [0] * len(queue.requests)
    for row in queue.pending:
        counts[row.requests] += 1
    return summed(
        (resource, amount * count)
        for requests, count in zip(queue.requests, counts, strict=True)
        for resource, amount in requests.items()
    )


def _quota_line(
    depth: int, each: CohortUse | ClusterQueueUse, quota: QuotaUse, pending: int
) -> QuotaLine:
    queue = each if isinstance(each, ClusterQueueUse) else None
    return QuotaLine(
        depth=depth,
        kind="Cohort" if queue is None else "ClusterQueue",
        name=each.name,
        parent=each.parent if isinstance(each, CohortUse) else each.cohort,
        flavor=quota.flavor,
        resource=quota.resource,
        nominal=quota.nominal,
        used=quota.used,
        borrowed=quota.borrowed,
        lent=quota.lent,
        available=None if quota.available >= UNLIMITED else quota.available,
        pending=pending,
        borrowing_limit=quota.borrowing_limit,
        lending_limit=quota.lending_limit,
        active=queue is None or queue.active,
        message="" if queue is None or queue.active else queue.message,
        budgets=() if queue is None else queue.budgets,
    )
