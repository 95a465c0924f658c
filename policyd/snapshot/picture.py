"""The picture of the queues that snapshots are written from, taken without stopping the queue.

What must belong together (quota, usage, the workloads of each queue) is copied at once, which takes
milliseconds. What costs time for each workload is done in steps: `Pictures.take` is a generator,
and between two of its steps others have their turn.
"""

from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, field
from heapq import merge, nsmallest
from operator import attrgetter
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from policyd.alloc.amount import total_of
from policyd.alloc.cluster_queue import QueueState
from policyd.alloc.ledger import Holding
from policyd.alloc.pending import PendingQueue, Ticket
from policyd.alloc.quota import QuotaNode, QuotaTree, descendants
from policyd.alloc.state import CoreState
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.values import HOSTNAME
from policyd.snapshot.explaining import PendingExplanation, explain
from policyd.snapshot.rules import QueueRules
from policyd.snapshot.values import (
    NONE,
    ClusterQueueUse,
    CohortUse,
    HeldAmount,
    HoldingRow,
    LocalQueueName,
    NodeUse,
    PendingLine,
    PendingRow,
    QuotaUse,
    SnapshotReason,
)
from policyd.status.queues import queue_status

STEP = 500
"""Workloads that are looked at in one step."""
LOOKS = 50
"""Explanations that are worked out anew for one picture, at most."""
MOST_REASONS = 1_000
"""Reasons that a picture has for one queue, those of the first in line: the rest would be as many
as workloads where each is parked by itself."""

Steps = Generator[None, None, None]


class Jobs(Protocol):
    """What is known of workloads beyond the state, by their keys."""

    def job(self, key: str) -> str:
        """Return `Kind/name` of the job that a workload stands for; "" if it stands for itself."""
        ...

    def condition(self, key: str) -> SnapshotReason:
        """Return why a workload is pending, as its condition says it."""
        ...


class QueueOfNamespace(NamedTuple):
    """A LocalQueue: its namespace, and the ClusterQueue behind it."""

    namespace: str
    cluster_queue: str


@dataclass(slots=True)
class QueuePicture:
    """A ClusterQueue in a picture: all its rows, with all names.

    Attributes:
        use: What it has, without rows and tables.
        tree: The top of its tree, which tells apart what shares quota.
        reasons: By their index in rows: an explanation, or what a workload's condition says, with
            the key of that workload.
    """

    use: ClusterQueueUse
    tree: str
    local_queues: dict[str, int] = field(default_factory=dict)
    requests: list[Mapping[str, int]] = field(default_factory=list)
    usages: dict[tuple[HeldAmount, ...], int] = field(default_factory=dict)
    reasons: list[tuple[str, PendingExplanation | SnapshotReason]] = field(default_factory=list)
    lines: list[PendingLine] = field(default_factory=list)
    unlisted: int = 0
    pending: list[PendingRow] = field(default_factory=list)
    holding: list[HoldingRow] = field(default_factory=list)

    def local_queue(self, name: str) -> int:
        """Return the index of a LocalQueue, given as `namespace/name`."""
        return self.local_queues.setdefault(name, len(self.local_queues)) if name else NONE

    @property
    def local_queue_names(self) -> tuple[LocalQueueName, ...]:
        """The table of LocalQueues."""
        return tuple(LocalQueueName(*name.split("/", 1)) for name in self.local_queues)


@dataclass(slots=True)
class Picture:
    """All queues at one moment.

    Attributes:
        taken_at: The moment, in seconds since the epoch.
        generation: The state's revision.
        resource_version: Up to which version of Workloads all was known.
        version: Identifies the picture.
        rules: By which a new job would be judged; None if readers need not know.
        trees: The trees in which each namespace has a LocalQueue.
        cohorts: Each with the top of its tree.
    """

    taken_at: float
    generation: int
    resource_version: str = ""
    version: str = ""
    rules: QueueRules | None = None
    queues: list[QueuePicture] = field(default_factory=list)
    cohorts: list[tuple[str, CohortUse]] = field(default_factory=list)
    nodes: tuple[NodeUse, ...] = ()
    trees: dict[str, set[str]] = field(default_factory=dict)


class _Copied(NamedTuple):
    """The workloads of a queue, copied at once."""

    queue: QueueState
    tickets: list[Ticket]
    head: Ticket | None
    holdings: list[Holding]
    picture: QueuePicture


class _Looked(NamedTuple):
    """An explanation, and what the state was that it is true for."""

    stamp: object
    explanation: PendingExplanation | None


class Pictures:
    """Takes pictures of a state; explanations that are still true are kept from one to the next."""

    def __init__(self, state: CoreState, jobs: Jobs, *, most: int | None = None) -> None:
        """Begin; the state is left as it is.

        Args:
            state: The queues.
            jobs: What else is known of workloads.
            most: How many pending workloads of each queue are listed, without reasons, while all
                are counted; None to list all with reasons, and count none.
        """
        self._state = state
        self._jobs = jobs
        self._most = most
        self._looked: dict[str, _Looked] = {}

    def take(
        self, picture: Picture, local_queues: Iterable[QueueOfNamespace]
    ) -> Generator[None, None, Picture]:
        """Take a picture step by step.

        Args:
            picture: An empty one, with its moment and version.
            local_queues: All LocalQueues.

        Yields:
            Nothing, after each step.

        Returns:
            The picture.
        """
        copied = self._copy(picture)
        tops = {each.picture.use.name: each.picture.tree for each in copied}
        for namespace, cluster_queue in local_queues:
            if cluster_queue in tops:
                picture.trees.setdefault(namespace, set()).add(tops[cluster_queue])
        yield
        leaders: list[tuple[QueueState, Ticket]] = []
        for each in copied:
            yield from self._fill_pending(each, leaders)
            yield from self._fill_holding(each)
        if self._most is not None:
            return picture
        yield from self._explain(leaders)
        for each in copied:
            yield from self._fill_reasons(each)
        return picture

    def _copy(self, picture: Picture) -> list[_Copied]:
        """Copy all that must belong together, and put the quotas into the picture."""
        state = self._state
        state.settle()
        tree, copied = state.tree, []
        for name, queue in sorted(state.queues.items()):
            if queue.spec is None or queue.node is None:
                continue
            status = queue_status(state, name)
            use = ClusterQueueUse(
                name=name,
                cohort=queue.spec.cohort,
                strict=queue.spec.strict,
                active=status.active,
                reason=status.reason,
                message=status.message,
                quotas=_quotas(tree, queue.node),
            )
            page = QueuePicture(use, _top(queue.node))
            picture.queues.append(page)
            tickets = list(queue.pending) if self._most is None else self._first(page, queue)
            holdings = list(queue.holdings.values())
            copied.append(_Copied(queue, tickets, queue.pending.head(), holdings, page))
        for name, node in sorted(tree.hierarchy.cohorts.items()):
            parent = "" if node.parent is None else node.parent.name
            cohort = CohortUse(name=name, parent=parent, quotas=_quotas(tree, node))
            picture.cohorts.append((_top(node), cohort))
        picture.nodes = tuple(_nodes(state.ledger.nodes))
        return copied

    def _first(self, page: QueuePicture, queue: QueueState) -> list[Ticket]:
        """Return the tickets of a queue that are listed, and count all."""
        found = queue.pending.places("", 0, self._most or 0)
        page.unlisted = len(queue.pending) - len(found)
        page.lines = _lines(queue.pending, page)
        return [each.ticket for each in found]

    def _fill_pending(self, copied: _Copied, leaders: list[tuple[QueueState, Ticket]]) -> Steps:
        """Put the pending workloads of a queue into its picture, in order, without reasons."""
        queue, page = copied.queue, copied.picture
        order: list[Ticket] = []
        if self._most is None:
            yield from _in_order(queue.pending, copied.tickets, order)
        else:
            order = copied.tickets
        places = _Places(queue.pending, order, copied.head, strict=page.use.strict)
        requests: dict[object, int] = {}
        for place, ticket in enumerate(order):
            workload, asks = ticket.workload, ticket.request_key
            if asks not in requests:
                requests[asks] = len(page.requests)
                page.requests.append(total_of(*(each.totals() for each in workload.pod_sets)))
            ahead = places.ahead(place, ticket)
            if ahead == NONE and len(leaders) < MOST_REASONS:
                leaders.append((queue, ticket))
            page.pending.append(
                PendingRow(
                    workload.key,
                    self._jobs.job(workload.key),
                    workload.priority,
                    int(workload.queued_at),
                    requests[asks],
                    page.local_queue(workload.local_queue),
                    ahead,
                )
            )
            if not (place + 1) % STEP:
                yield

    def _fill_holding(self, copied: _Copied) -> Steps:
        page = copied.picture
        for number, holding in enumerate(copied.holdings, start=1):
            workload = holding.workload
            usage = tuple(
                HeldAmount(flavor, resource, amount)
                for (flavor, resource), amount in sorted(holding.admission.usage().items())
            )
            page.holding.append(
                HoldingRow(
                    workload.key,
                    self._jobs.job(workload.key),
                    workload.priority,
                    int(workload.reserved_at or 0),
                    page.usages.setdefault(usage, len(page.usages)),
                    page.local_queue(workload.local_queue),
                    workload.admitted,
                    holding.stopping,
                )
            )
            if not number % STEP:
                yield
        page.holding.sort(key=attrgetter("key"))

    def _explain(self, leaders: list[tuple[QueueState, Ticket]]) -> Steps:
        """Work explanations out that are missing or no longer true, as many as there is time for.

        Those that were never worked out come first, and then the first in line.
        """
        stamps = {ticket.workload.key: self._stamp(queue) for queue, ticket in leaders}
        kept = {key: each for key, each in self._looked.items() if key in stamps}
        self._looked = kept
        due = [
            (ticket.workload.key in kept, number, queue, ticket)
            for number, (queue, ticket) in enumerate(leaders)
            if not _is_current(kept.get(ticket.workload.key), stamps[ticket.workload.key])
        ]
        for _, _, queue, ticket in nsmallest(LOOKS, due, key=lambda each: each[:2]):
            key = ticket.workload.key
            if not ticket.gone and queue.options is not None and queue.active:
                found = explain(self._state, ticket, queue.options)
                kept[key] = _Looked(self._stamp(queue), found)
            yield

    def _fill_reasons(self, copied: _Copied) -> Steps:
        """Give each workload that is behind no other its reason."""
        queue, page = copied.queue, copied.picture
        stamp = self._stamp(queue)
        known: dict[SnapshotReason, int] = {}
        for place, row in enumerate(page.pending):
            if row.ahead == NONE and len(page.reasons) < MOST_REASONS:
                reason = self._reason(row.key, stamp)
                if isinstance(reason, PendingExplanation):
                    page.reasons.append((row.key, reason))
                    index = len(page.reasons) - 1
                elif reason not in known:
                    page.reasons.append((row.key, reason))
                    index = known[reason] = len(page.reasons) - 1
                else:
                    index = known[reason]
                page.pending[place] = replace(row, reason=index)
            if not (place + 1) % STEP:
                yield

    def _reason(self, key: str, stamp: object) -> PendingExplanation | SnapshotReason:
        """Return the explanation of a workload if it is still true, else what its condition says.

        That may be some seconds old, as everywhere.
        """
        looked = self._looked.get(key)
        if looked is not None and looked.explanation is not None and looked.stamp == stamp:
            return looked.explanation
        return self._jobs.condition(key)

    def _stamp(self, queue: QueueState) -> object:
        """Return what is another where a workload might be refused for another reason."""
        if queue.node is None or queue.options is None:
            return None
        revision = self._state.revision if queue.options.topologies else 0
        return queue.options, queue.node.root.version, revision


def _is_current(looked: _Looked | None, stamp: object) -> bool:
    return looked is not None and looked.stamp == stamp


@dataclass(slots=True)
class _Sum:
    """What is counted of the pending workloads of a LocalQueue that have the same priority."""

    count: int = 0
    trying: int = 0
    requests: dict[str, int] = field(default_factory=dict)


def _lines(pending: PendingQueue, page: QueuePicture) -> list[PendingLine]:
    """Count the pending workloads of a queue by priority and LocalQueue."""
    sums: dict[tuple[int, str], _Sum] = {}
    for example, count, trying in pending.groups():
        found = sums.setdefault((example.priority, example.local_queue), _Sum())
        found.count += count
        found.trying += trying
        for resource, amount in total_of(*(each.totals() for each in example.pod_sets)).items():
            found.requests[resource] = found.requests.get(resource, 0) + amount * count
    return [
        PendingLine(
            priority,
            page.local_queue(name),
            each.count,
            each.trying,
            int(pending.oldest(name, priority)),
            each.requests,
        )
        for (priority, name), each in sorted(sums.items())
    ]


class _Places:
    """Finds the workload that must get quota, or be refused, before another: as `turns` does."""

    def __init__(
        self, pending: PendingQueue, order: list[Ticket], head: Ticket | None, *, strict: bool
    ) -> None:
        """Begin; where it is `strict`, none passes the first that was not tried by itself."""
        self._pending = pending
        self._strict = strict
        self._firsts: dict[object, int] = {}
        firsts = (
            place
            for place, ticket in enumerate(order)
            if (not ticket.aside if strict else ticket is head)
        )
        self._head = next(firsts, NONE)

    def ahead(self, place: int, ticket: Ticket) -> int:
        """Return the place of that workload; NONE if there is none. Call this in order."""
        if ticket.workload.backing_off:
            return NONE
        key = ticket.request_key
        first = self._firsts.setdefault(key, place)
        shared = not self._strict and self._pending.shared_refusal(ticket.workload.key) is not None
        ahead = first if shared else self._head
        return NONE if ticket.aside or ahead >= place else ahead


def _in_order(pending: PendingQueue, tickets: list[Ticket], order: list[Ticket]) -> Steps:
    """Sort tickets in the order of their turns: in parts, which are then merged."""
    parts = []
    for start in range(0, len(tickets), STEP):
        part = [(pending.turn(ticket), ticket) for ticket in tickets[start : start + STEP]]
        parts.append(sorted(part, key=_first_of))
        yield
    for number, (_, ticket) in enumerate(merge(*parts, key=_first_of), start=1):
        order.append(ticket)
        if not number % STEP:
            yield


def _first_of(pair: tuple[tuple[object, ...], Ticket]) -> tuple[object, ...]:
    return pair[0]


def _top(node: QuotaNode) -> str:
    return f"{'queue' if node.root.queue else 'cohort'} {node.root.name}"


def _quotas(tree: QuotaTree, node: QuotaNode) -> tuple[QuotaUse, ...]:
    return tuple(_quota(tree, node, cell) for cell in node.cells.values())


def _quota(tree: QuotaTree, node: QuotaNode, cell: int) -> QuotaUse:
    flavor, resource = names = tree.names[cell]
    # The tree charges a Cohort only with what its members do not have room for themselves.
    below = [node] if node.queue else [each for each in descendants(node) if each.queue]
    used = sum(tree.usage[each.cells[names]] for each in below if names in each.cells)
    nominal, available = tree.nominal[cell], tree.available(cell)
    limits = node.quotas.get((flavor, resource))
    shares = node.parent is not None and node.queue
    return QuotaUse(
        flavor=flavor,
        resource=resource,
        nominal=nominal,
        used=used,
        borrowed=max(0, used - nominal) if shares else 0,
        lent=max(0, nominal - used - max(0, available)) if shares else 0,
        available=available,
        borrowing_limit=None if limits is None else limits.borrowing_limit,
        lending_limit=None if limits is None else limits.lending_limit,
    )


def _nodes(nodes: Nodes) -> Iterable[NodeUse]:
    for name, room in sorted(nodes.rooms.items()):
        node, host = room.node, (room.node.labels.get(HOSTNAME, ""),)
        trees = {
            flavor: tree.leaves[host]
            for flavor, tree in nodes.trees.items()
            if tree.to_nodes and host in tree.leaves
        }
        devices = [each for each in node.allocatable if "/" in each]
        free = {each: room.amounts.get(each, 0) for each in devices}
        for flavor, leaf in trees.items():
            left = nodes.trees[flavor].free
            free = {each: min(n, left.left(each, leaf)) for each, n in free.items()}
        yield NodeUse(
            name=name,
            flavors=tuple(sorted(trees)),
            usable=node.usable,
            allocatable={each: node.allocatable[each] for each in devices},
            free=free,
        )
