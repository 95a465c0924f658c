"""Pending workloads: why they wait, where in the queue, until when, and what would help."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from policyd.dashboard.views.wording import coarse, devices_apart, start
from policyd.snapshot.answers import WhyAnswer, local_queue_of, origin_of, why_pending
from policyd.snapshot.reading import FoundPending
from policyd.snapshot.values import ClusterQueueUse, PendingRow, QueueSnapshot, QuotaShortfall
from policyd.status.naming import team_of
from policyd.status.quantities import format_amount

ROWS: Final = 50
"""Workloads of a page."""
MOST_CHOICES: Final = 500
"""Teams, queues and kinds that a filter suggests."""
SIZES: Final[Mapping[str, tuple[int, int]]] = {
    "none": (0, 0),
    "1": (1, 1),
    "2-7": (2, 7),
    "8": (8, 8),
    "9-63": (9, 63),
    "64-": (64, 1 << 62),
}
"""Ranges of devices, by what a filter calls them."""
ORDERS: Final = ("place", "start")


class PendingFilters(NamedTuple):
    """What is to be shown; "" for all."""

    team: str = ""
    queue: str = ""
    kind: str = ""
    size: str = ""
    order: str = ""


@dataclass(frozen=True, slots=True)
class ShortfallView:
    """Quota that a workload lacks.

    Attributes:
        text: How much of what is missing.
        holders: Who holds it, and how much each; the largest first.
        others: How many more hold some.
    """

    text: str
    holders: tuple[tuple[str, str], ...]
    others: int


@dataclass(frozen=True, slots=True)
class PendingJobLine:
    """A pending workload; "" for what the reader may not know.

    Attributes:
        id: Unique in the page, and the same while the workload waits.
        kind: Of the job.
        name: Of the job; "" if it is not named.
        called: What it is called in the table.
        ahead: How many are before it in its ClusterQueue.
        requests: Devices that it requests, or all, if it requests no devices.
        beside: What it requests besides devices.
        start: The median of the forecast.
        interval: The interval that holds nine starts of ten, or why there is none.
        reason: A word.
        message: A sentence.
        user: What its user can do.
        administrator: What an administrator can do.
    """

    id: str
    namespace: str
    kind: str
    name: str
    called: str
    cluster_queue: str
    local_queue: str
    ahead: int
    priority: int
    owner: str
    requests: str
    beside: str
    waits: str
    start: str
    interval: str
    reason: str
    message: str
    behind: str
    missing: tuple[ShortfallView, ...]
    user: str
    administrator: str


@dataclass(frozen=True, slots=True)
class PendingJobs:
    """What the view shows.

    Attributes:
        filters: What is shown.
        total: All pending workloads of the scope.
        matching: Those that the filters let through.
        page: The number of the page, from 1.
        pages: How many there are, at least 1.
    """

    filters: PendingFilters
    teams: tuple[str, ...]
    queues: tuple[str, ...]
    kinds: tuple[str, ...]
    sizes: tuple[str, ...]
    total: int
    matching: int
    first: int
    page: int
    pages: int
    lines: tuple[PendingJobLine, ...]


def pending(snapshot: QueueSnapshot, query: Mapping[str, str], now: float) -> PendingJobs:
    """Return what the view shows.

    Args:
        snapshot: The queues.
        query: What `PendingFilters` has, and `page`, the number of the page.
        now: Seconds since the epoch.
    """
    filters = PendingFilters(*(query.get(name, "").strip() for name in PendingFilters._fields))
    places = [(queue, _matching(queue, filters)) for queue in snapshot.cluster_queues]
    matching = sum(len(each) for _, each in places)
    found: Iterator[FoundPending] = (
        FoundPending(queue, place) for queue, each in places for place in each
    )
    if filters.order == "start":
        found = iter(sorted(found, key=_start_of))
    pages = max(1, -(-matching // ROWS))
    given = query.get("page", "1")
    page = min(pages, max(1, int(given[:6]) if given.isascii() and given.isdecimal() else 1))
    first = (page - 1) * ROWS
    teams, queues, kinds = _choices(snapshot)
    return PendingJobs(
        filters=filters,
        teams=teams,
        queues=queues,
        kinds=kinds,
        sizes=tuple(SIZES),
        total=sum(len(queue.pending) for queue in snapshot.cluster_queues),
        matching=matching,
        first=first,
        page=page,
        pages=pages,
        lines=tuple(_line(each, now) for each in islice(found, first, first + ROWS)),
    )


def _choices(snapshot: QueueSnapshot) -> tuple[tuple[str, ...], ...]:
    teams: set[str] = set()
    kinds: set[str] = set()
    queues: set[str] = set()
    for queue in snapshot.cluster_queues:
        queues.add(queue.name)
        queues.update(each.name for each in queue.local_queues)
        teams.update([team_of(row.key) for row in queue.pending])
        kinds.update(map(_kind, queue.pending))
    found = teams, queues, kinds
    return tuple(tuple(sorted(each - {""})[:MOST_CHOICES]) for each in found)


def _matching(queue: ClusterQueueUse, filters: PendingFilters) -> Sequence[int]:
    """Return the places of the workloads in a queue that the filters let through."""
    places: Sequence[int] = range(len(queue.pending))
    rows = queue.pending
    if filters.size in SIZES:
        least, most = SIZES[filters.size]
        fits = [least <= _devices(each) <= most for each in queue.requests]
        places = [each for each in places if fits[rows[each].requests]]
    if filters.queue not in {"", queue.name}:
        local = filters.queue
        places = [each for each in places if local_queue_of(queue, rows[each]).name == local]
    if filters.team:
        places = [each for each in places if team_of(rows[each].key) == filters.team]
    if filters.kind:
        places = [each for each in places if _kind(rows[each]) == filters.kind]
    return places


def _devices(requests: Mapping[str, int]) -> int:
    return sum(amount for name, amount in requests.items() if "/" in name)


def _kind(row: PendingRow) -> str:
    """Return the kind of a job; "" if it is not named."""
    if row.job:
        return row.job.partition("/")[0]
    return "Workload" if row.key.partition("/")[2] else ""


def _start_of(found: FoundPending) -> tuple[bool, int]:
    start_ = found.start
    return start_ is None or not start_.median, 0 if start_ is None else start_.median


def _line(found: FoundPending, now: float) -> PendingJobLine:
    row, queue = found.row, found.queue
    namespace, _, workload = row.key.partition("/")
    kind, _, name = (row.job or (f"Workload/{workload}" if workload else "")).partition("/")
    answer = why_pending(found, kind, namespace, name)
    median, interval = start(answer.forecast, now)
    devices, beside = devices_apart(answer.requests)
    return PendingJobLine(
        id=_id(queue, found, workload),
        namespace=namespace,
        kind=kind,
        name=name,
        called=name or (f"a job of {namespace}" if namespace else "a job of another team"),
        cluster_queue=queue.name,
        local_queue=answer.local_queue,
        ahead=found.place,
        priority=row.priority,
        owner=origin_of(queue, row).owner,
        requests=devices or beside,
        beside=beside if devices else "",
        waits=coarse(now - row.since) if row.since else "-",
        start=median,
        interval=interval,
        reason=answer.reason or "not tried yet",
        message=answer.message,
        behind=answer.behind,
        missing=tuple(_held(answer)),
        user=answer.user,
        administrator=answer.administrator,
    )


def _id(queue: ClusterQueueUse, found: FoundPending, workload: str) -> str:
    key = found.row.key if workload else f"{queue.name}-{found.place}"
    return f"w-{key.replace('/', '.')}"


def _held(answer: WhyAnswer) -> Iterator[ShortfallView]:
    for each in answer.missing:
        holders = tuple(
            (holder.name, format_amount(each.resource, holder.amount)) for holder in each.holders
        )
        yield ShortfallView(_shortfall_text(each), holders, each.others)


def _shortfall_text(lacking: QuotaShortfall) -> str:
    def text(amount: int) -> str:
        return format_amount(lacking.resource, amount)

    what = f"{lacking.resource} of {lacking.flavor}"
    if lacking.never:
        return (
            f"it requests {text(lacking.requested)} {what}; its queue can get"
            f" {text(lacking.available)} at most"
        )
    return f"{text(lacking.missing)} more {what}: {text(lacking.requested)} requested," + (
        f" {text(lacking.available)} available"
    )
