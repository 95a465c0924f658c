"""Queues and cohorts, what changed in the last hour, and what needs attention."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, Literal

from policyd.alloc.amount import UNLIMITED
from policyd.api.meta import rfc3339
from policyd.dashboard.views.wording import coarse, devices_first
from policyd.snapshot.answers import called, pending_requests, tree_of
from policyd.snapshot.budgets import budgets_of
from policyd.snapshot.reading import FoundPending
from policyd.snapshot.values import (
    NONE,
    BudgetState,
    ClusterQueueUse,
    CohortUse,
    QueueSnapshot,
    QuotaUse,
)

MOST_ROWS: Final = 400
"""Rows of the tree: more would be no overview."""
MOST_ATTENTION: Final = 12
MOST_OF_A_KIND: Final = 3
"""Queues that need attention for the same reason, of those that are named."""
MOST_CHANGES: Final = 40
HOUR: Final = 3_600.0
STARVES_SECONDS: Final = 3_600.0
"""From when on a job that others overtake is shown."""
LOOKED_AT: Final = 50
"""Pending workloads of a queue, its first ones, that may starve."""

MOST_BUDGETS: Final = 100
"""Rows of the table: those that are used up furthest."""
NEARLY_USED_UP: Final = 0.8
"""The part of a budget from which on it needs attention."""

BUDGET_HINT: Final = "`policyd usage hours` shows who used it"

ChangeKind = Literal["admitted", "preempted", "evicted", "finished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """A budget.

    Attributes:
        queue: The ClusterQueue, or the LocalQueue as `namespace/name`.
        used: GPU-hours of this month, like `hours` and `left`.
        unknown: What may have been used besides, at most; "" for nothing.
        renews: When the next month begins, and in which time zone.
        state: That it is used up or holds new jobs; "" for neither.
        part: How much of it is used, in thousandths; at most all of it.
    """

    queue: str
    used: str
    hours: str
    left: str
    unknown: str
    renews: str
    state: str
    part: int


@dataclass(frozen=True, slots=True)
class Change:
    """Something that happened to a job.

    Attributes:
        at: When, in seconds since the epoch.
        kind: What.
        namespace: Of the job.
        job: `Kind/name`.
        message: A sentence.
    """

    at: float
    kind: ChangeKind
    namespace: str
    job: str
    message: str


@dataclass(frozen=True, slots=True)
class Recent:
    """What happened of late.

    Attributes:
        changes: In any order.
        more: Whether there was more than was read.
        problem: Why nothing is known; "" if it is.
    """

    changes: Sequence[Change] = ()
    more: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class OverviewRead:
    """What the view is made of."""

    snapshot: QueueSnapshot
    recent: Recent


@dataclass(frozen=True, slots=True)
class QuotaBar:
    """A bar, in parts of a thousand of its width; its width is the quota, or the use if larger.

    Attributes:
        own: Used of its own quota.
        borrowed: Used beyond it.
        lent: Of its own quota, in use by others.
        nominal: Where its own quota ends.
    """

    own: int
    borrowed: int
    lent: int
    nominal: int


@dataclass(frozen=True, slots=True)
class TreeRow:
    """The quota of a Cohort or ClusterQueue for one flavor.

    Attributes:
        depth: How many Cohorts are above it.
        first: Whether it is the first row of the queue.
        pending: Requested by pending workloads, of whatever flavor; None on rows after the first.
        available: What it could still use; None for no limit.
        waiting: Pending workloads; None for a Cohort.
        oldest: How long the one that is pending longest has been; "" for none.
    """

    depth: int
    kind: str
    name: str
    first: bool
    active: bool
    message: str
    flavor: str
    nominal: int
    used: int
    borrowed: int
    lent: int
    available: int | None
    pending: int | None
    running: int | None
    waiting: int | None
    oldest: str
    bar: QuotaBar


@dataclass(frozen=True, slots=True)
class Attention:
    """Something that needs attention.

    Attributes:
        kind: A word for it.
        text: A sentence.
        hint: What to try; "" for nothing.
        queue: The ClusterQueue whose pending workloads show more; "" for none.
    """

    kind: str
    text: str
    hint: str = ""
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Overview:
    """What the view shows.

    Attributes:
        resource: The resource that the bars are of; "" if there is no quota.
        resources: Those that can be chosen.
        nominal: Quota of all queues, like `used` and `pending`.
        oldest: How long the job that waits longest has waited; "" for none.
        rows: The tree.
        rows_left_out: How many more rows there are.
        several_flavors: Whether there are flavors to tell apart.
        budgets: Those that are used up furthest.
        counts: How often what happened in the last hour.
        changes: The latest of that.
        changes_more: Whether more happened than is counted.
        changes_problem: Why it is not known what happened; "" if it is.
    """

    resource: str
    resources: tuple[str, ...]
    queue: str
    nominal: int
    used: int
    pending: int
    running: int
    waiting: int
    oldest: str
    rows: tuple[TreeRow, ...]
    rows_left_out: int
    several_flavors: bool
    budgets: tuple[BudgetRow, ...]
    attention: tuple[Attention, ...]
    attention_left_out: int
    counts: tuple[tuple[ChangeKind, int], ...]
    changes: tuple[Change, ...]
    changes_more: bool
    changes_problem: str


def overview(read: OverviewRead, query: Mapping[str, str], now: float) -> Overview:
    """Return what the view shows.

    Args:
        read: The queues, and what happened.
        query: `resource`, whose quotas are shown; `queue`, a part of the names of those shown.
        now: Seconds since the epoch.
    """
    snapshot = read.snapshot
    queues = snapshot.cluster_queues
    resources = _resources(snapshot)
    resource = query.get("resource", "")
    if resource not in resources:
        resource = resources[0] if resources else ""
    named = query.get("queue", "").lower()
    rows = [row for row in _rows(snapshot, resource, now) if named in row.name.lower()]
    quotas = [each for queue in queues for each in queue.quotas if each.resource == resource]
    since = [row.since for queue in queues for row in queue.pending if row.since]
    attention = list(_attention(snapshot, now))
    changes = sorted(
        (each for each in read.recent.changes if each.at > now - HOUR), key=lambda each: -each.at
    )
    kinds: tuple[ChangeKind, ...] = ("admitted", "preempted", "evicted", "finished")
    return Overview(
        resource=resource,
        resources=tuple(resources),
        queue=query.get("queue", ""),
        nominal=sum(each.nominal for each in quotas),
        used=sum(each.used for each in quotas),
        pending=sum(pending_requests(queue).get(resource, 0) for queue in queues),
        running=sum(len(queue.holding) for queue in queues),
        waiting=sum(len(queue.pending) for queue in queues),
        oldest=coarse(now - min(since)) if since else "",
        rows=tuple(rows[:MOST_ROWS]),
        rows_left_out=max(0, len(rows) - MOST_ROWS),
        several_flavors=len({row.flavor for row in rows}) > 1,
        budgets=tuple(islice(_budget_rows(snapshot), MOST_BUDGETS)),
        attention=tuple(attention[:MOST_ATTENTION]),
        attention_left_out=max(0, len(attention) - MOST_ATTENTION),
        counts=tuple((kind, sum(each.kind == kind for each in changes)) for kind in kinds),
        changes=tuple(changes[:MOST_CHANGES]),
        changes_more=read.recent.more,
        changes_problem=read.recent.problem,
    )


def _resources(snapshot: QueueSnapshot) -> list[str]:
    return devices_first({quota.resource for _, each in tree_of(snapshot) for quota in each.quotas})


def _rows(snapshot: QueueSnapshot, resource: str, now: float) -> Iterator[TreeRow]:
    within = _quota_within(snapshot, resource)
    for depth, each in tree_of(snapshot):
        quotas = [quota for quota in each.quotas if quota.resource == resource]
        for number, quota in enumerate(quotas or [QuotaUse("", resource, 0, 0)]):
            row = _row(depth, each, quota, first=not number, now=now)
            if isinstance(each, CohortUse):
                nominal = within[each.name][quota.flavor]
                beyond = max(0, quota.used - nominal) if each.parent else 0
                whole = QuotaUse(quota.flavor, resource, nominal, quota.used, beyond)
                row = replace(row, bar=bar_of(whole))
            yield row


def _quota_within(snapshot: QueueSnapshot, resource: str) -> dict[str, Counter[str]]:
    """Return the quota of each Cohort by flavor, with that of all Cohorts and queues below it."""
    within: dict[str, Counter[str]] = {each.name: Counter() for each in snapshot.cohorts}
    for _, each in reversed(list(tree_of(snapshot))):
        total = within[each.name] if isinstance(each, CohortUse) else Counter[str]()
        for quota in each.quotas:
            if quota.resource == resource:
                total[quota.flavor] += quota.nominal
        above = each.parent if isinstance(each, CohortUse) else each.cohort
        if above in within and within[above] is not total:
            within[above].update(total)
    return within


def _row(
    depth: int, each: CohortUse | ClusterQueueUse, quota: QuotaUse, *, first: bool, now: float
) -> TreeRow:
    queue = each if isinstance(each, ClusterQueueUse) else None
    since = [row.since for row in queue.pending if row.since] if queue and first else []
    pending = None
    if first and queue:
        pending = pending_requests(queue).get(quota.resource, 0)
    return TreeRow(
        depth=min(depth, 8),
        kind="Cohort" if queue is None else "ClusterQueue",
        name=each.name,
        first=first,
        active=queue is None or queue.active,
        message="" if queue is None or queue.active else queue.message or queue.reason,
        flavor=quota.flavor,
        nominal=quota.nominal,
        used=quota.used,
        borrowed=quota.borrowed,
        lent=quota.lent,
        available=None if quota.available >= UNLIMITED else quota.available,
        pending=pending,
        running=len(queue.holding) if queue and first else None,
        waiting=len(queue.pending) if queue and first else None,
        oldest=coarse(now - min(since)) if since else "",
        bar=bar_of(quota),
    )


def bar_of(quota: QuotaUse) -> QuotaBar:
    """Return the bar of a quota."""
    borrowed = max(0, min(quota.borrowed, quota.used))
    own = max(0, quota.used - borrowed)
    whole = max(quota.nominal, own) + borrowed
    if whole <= 0:
        return QuotaBar(0, 0, 0, 0)

    def part(amount: int) -> int:
        return round(1_000 * amount / whole)

    lent = max(0, min(quota.lent, quota.nominal - own))
    return QuotaBar(
        own=part(own), borrowed=part(borrowed), lent=part(lent), nominal=part(whole - borrowed)
    )


def _attention(snapshot: QueueSnapshot, now: float) -> Iterator[Attention]:
    queues = snapshot.cluster_queues
    yield from _first(_inactive(queue) for queue in queues if not queue.active)
    yield from _first(each for queue in queues for each in _overdrawn(queue))
    yield from _first(each for queue in queues for each in _never(queue))
    yield from _first(Attention("Budget", *each) for each in _budgets_near_their_end(snapshot))
    starving = [each for queue in queues if (each := _starving(queue, now)) is not None]
    longest = sorted(starving, key=lambda pair: pair[0])
    yield from _first(attention for _, attention in longest)


def _first(found: Iterable[Attention]) -> Iterator[Attention]:
    """Yield the first of a kind, and how many more there are."""
    whole = list(found)
    yield from whole[:MOST_OF_A_KIND]
    more = len(whole) - MOST_OF_A_KIND
    if more > 0:
        text = (
            f"{more} more queue is like that" if more == 1 else f"{more} more queues are like that"
        )
        yield Attention(whole[0].kind, text)


def _inactive(queue: ClusterQueueUse) -> Attention:
    waiting = f"; {_jobs(len(queue.pending))} wait" if queue.pending else ""
    if queue.reason == "Stopped":
        return Attention(
            "Stopped",
            f"ClusterQueue {queue.name} is stopped: it admits nothing{waiting}",
            f"`policyd resume clusterqueue/{queue.name}`",
            queue.name,
        )
    return Attention(
        "Inactive",
        f"ClusterQueue {queue.name} admits nothing{waiting}: {queue.message or queue.reason}",
        "`policyd doctor`",
        queue.name,
    )


def _overdrawn(queue: ClusterQueueUse) -> Iterator[Attention]:
    for quota in queue.quotas:
        if quota.available < 0:
            yield Attention(
                "Overdrawn",
                f"ClusterQueue {queue.name} holds more {quota.resource} of {quota.flavor} than it"
                " may have: its quota was lowered, or is used by workloads beside the queue",
                queue=queue.name,
            )


def _never(queue: ClusterQueueUse) -> Iterator[Attention]:
    never = [
        any(lacking.never for lacking in reason.lacking) or reason.type == "ExceedsMaxQuota"
        for reason in queue.reasons
    ]
    count = sum(row.reason != NONE and never[row.reason] for row in queue.pending)
    if count:
        ask = "requests" if count == 1 else "request"
        yield Attention(
            "Never fits",
            f"{_jobs(count)} in {queue.name} {ask} more than the queue can ever get",
            "their users have to request less, or its quota has to grow",
            queue.name,
        )


def _starving(queue: ClusterQueueUse, now: float) -> tuple[float, Attention] | None:
    """Return the job at the head of a queue that others overtook for longest, with its start."""
    for place, row in enumerate(islice(queue.pending, LOOKED_AT)):
        if not row.since or now - row.since < STARVES_SECONDS or row.ahead != NONE:
            continue
        overtook = sum(each.since > row.since for each in queue.holding)
        if not overtook:
            continue
        name = called(FoundPending(queue, place).row)
        text = (
            f"{name} has waited for {coarse(now - row.since)} in {queue.name};"
            f" {_jobs(overtook)} got quota there since"
        )
        hint = "strict order, or a reservation, would keep quota for it"
        return row.since, Attention("Starving", text, hint, queue.name)
    return None


def _jobs(count: int) -> str:
    return f"{count} job" if count == 1 else f"{count} jobs"


def changes_of(events: Iterable[Change]) -> tuple[Change, ...]:
    """Return changes, one for a job and a moment that are reported twice."""
    seen: dict[tuple[str, str, str, int], Change] = {}
    for each in events:
        seen.setdefault((each.namespace, each.job, each.kind, int(each.at // 5)), each)
    return tuple(seen.values())


# Budgets of GPU-hours.


def _budget_rows(snapshot: QueueSnapshot) -> Iterator[BudgetRow]:
    """Yield the budgets that are shown, those that are used up furthest first."""
    for each in sorted(budgets_of(snapshot), key=lambda each: (-_part_used(each), each.queue)):
        yield BudgetRow(
            queue=each.queue,
            used=_hours_text(each.used),
            hours=_hours_text(each.hours),
            left=_hours_text(max(0.0, each.hours - each.used)),
            unknown=_hours_text(each.unknown) if each.unknown else "",
            renews=f"{rfc3339(each.renews_at)} ({each.time_zone})",
            state="holds new jobs" if each.held else "used up" if each.used_up else "",
            part=round(1_000 * min(1.0, _part_used(each))),
        )


def _budgets_near_their_end(snapshot: QueueSnapshot) -> Iterator[tuple[str, str, str]]:
    """Yield a sentence, a hint and the ClusterQueue of each budget that needs attention."""
    for queue in snapshot.cluster_queues:
        for each in queue.budgets:
            size = f"{_hours_text(each.used)} of {_hours_text(each.hours)} GPU-hours"
            of = f"the budget of {each.queue} for {each.month}"
            if each.held:
                yield f"{of} holds new jobs: {size} are used", BUDGET_HINT, queue.name
            elif each.used_up:
                yield f"{of} is used up: {size}", BUDGET_HINT, queue.name
            elif _part_used(each) >= NEARLY_USED_UP:
                yield f"{of} is nearly used up: {size}", BUDGET_HINT, queue.name


def _hours_text(hours: float) -> str:
    """Write a number of hours with two digits behind the point."""
    return f"{hours:,.2f}"


def _part_used(budget: BudgetState) -> float:
    if budget.used_up:
        return max(1.0, budget.used / budget.hours if budget.hours else 1.0)
    return budget.used / budget.hours if budget.hours else 0.0
