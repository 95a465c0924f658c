"""The full snapshot of the queues, from which the snapshots of readers are written.

What must belong together (quota, usage, the workloads of each queue) is copied at once, which takes
milliseconds. What costs time for each workload is done in steps: `SnapshotTaker.take` is a
generator, and between two of its steps others have their turn.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from math import isinf
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from policyd.alloc.amount import total_of
from policyd.alloc.cluster_queue import QueueState
from policyd.alloc.fair_sharing import share_of
from policyd.alloc.ledger import Holding
from policyd.alloc.pending import PendingQueue, Ticket
from policyd.alloc.quota import QuotaNode, QuotaTree, descendants
from policyd.alloc.state import CoreState
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.values import HOSTNAME
from policyd.alloc.usage_history import ConsumedUsage
from policyd.alloc.workload import QueuedWorkload
from policyd.api.meta import Json
from policyd.snapshot.explaining import PendingExplanation, explain
from policyd.snapshot.rules import QueueRules
from policyd.snapshot.values import (
    NONE,
    BudgetState,
    ClusterQueueUse,
    CohortUse,
    FairShare,
    HeldAmount,
    HoldingRow,
    LocalQueueName,
    NewWorkloadStart,
    NodeUse,
    Origin,
    PastUsage,
    PendingLine,
    PendingRow,
    PodShape,
    QuotaUse,
    SnapshotReason,
    StartRow,
    UsageOrder,
)
from policyd.status.naming import team_of
from policyd.status.pending_order import order_of, sort_in_steps
from policyd.status.pending_reasons import find_ahead, requests_ahead
from policyd.status.queues import queue_status
from policyd.status.remedy_search import Ahead
from policyd.status.shares import weighted_share

if TYPE_CHECKING:
    from policyd.devices.on_nodes import ClaimedUse

MOST_LOCAL_QUEUES = 10_000
"""That are named where they have no workloads."""
STEP = 500
"""Workloads that are looked at in one step."""
MOST_SHAPES = 200
"""Requests of one queue of which the single pods are listed, from the first on."""
LOOKS = 50
"""Explanations that are worked out anew for one snapshot, at most."""
MOST_AHEAD = 10_000
"""Workloads before another one that its remedies take into account: with more, it has none that
depend on them."""
MOST_REASONS = 1_000
"""Reasons that a snapshot has for one queue, those of the first in line: the rest would be as many
as workloads where each is parked by itself."""

Steps = Generator[None, None, None]

_NO_ORIGIN = Origin()
_UNUSED = ConsumedUsage(0.0)


class Jobs(Protocol):
    """What is known of workloads beyond the state, by their keys."""

    def job(self, key: str) -> str:
        """Return `Kind/name` of the job that a workload stands for; "" if it stands for itself."""
        ...

    def condition(self, key: str) -> SnapshotReason:
        """Return why a workload is pending, as its condition says it."""
        ...

    def origin(self, key: str) -> Origin:
        """Return where a workload and its priority are from."""
        ...

    def start(self, key: str) -> StartRow | None:
        """Return when a workload is forecast to start; None if there is no forecast yet."""
        ...


class QueueOfNamespace(NamedTuple):
    """A LocalQueue: its namespace, the ClusterQueue behind it, and its name."""

    namespace: str
    cluster_queue: str
    name: str = ""


@dataclass(slots=True)
class FullQueue:
    """A ClusterQueue in a full snapshot: all its rows, with all names.

    Attributes:
        use: What it has, without rows and tables.
        tree: The top of its tree, which tells apart what shares quota.
        past: What LocalQueues used, by `namespace/name`.
        origins: Indexes of owners and sources of priorities, apart for each namespace.
        reasons: By their index in rows: an explanation, or what a workload's condition says, with
            the key of that workload.
    """

    use: ClusterQueueUse
    tree: str
    local_queues: dict[str, int] = field(default_factory=dict)
    past: dict[str, PastUsage] = field(default_factory=dict)
    origins: dict[tuple[str, Origin], int] = field(default_factory=dict)
    requests: list[Mapping[str, int]] = field(default_factory=list)
    shapes: list[tuple[PodShape, ...]] = field(default_factory=list)
    preemptor: int = NONE
    backing_off: list[int] = field(default_factory=list)
    usages: dict[tuple[HeldAmount, ...], int] = field(default_factory=dict)
    starts: dict[StartRow, int] = field(default_factory=dict)
    reasons: list[tuple[str, PendingExplanation | SnapshotReason]] = field(default_factory=list)
    lines: list[PendingLine] = field(default_factory=list)
    unlisted: int = 0
    pending: list[PendingRow] = field(default_factory=list)
    holding: list[HoldingRow] = field(default_factory=list)

    def origin(self, team: str, origin: Origin) -> int:
        """Return the index of an origin; NONE for one that tells nothing."""
        if origin == _NO_ORIGIN:
            return NONE
        return self.origins.setdefault((team, origin), len(self.origins))

    def local_queue(self, name: str) -> int:
        """Return the index of a LocalQueue, given as `namespace/name`."""
        return self.local_queues.setdefault(name, len(self.local_queues)) if name else NONE

    def start(self, row: StartRow | None) -> int:
        """Return the index of a forecast."""
        return NONE if row is None else self.starts.setdefault(row, len(self.starts))

    @property
    def local_queue_names(self) -> tuple[LocalQueueName, ...]:
        """The table of LocalQueues."""
        return tuple(LocalQueueName(*name.split("/", 1)) for name in self.local_queues)


@dataclass(slots=True)
class FullSnapshot:
    """All queues at one moment.

    Attributes:
        taken_at: The moment, in seconds since the epoch.
        generation: The state's revision.
        resource_version: Up to which version of Workloads all was known.
        version: Identifies the snapshot.
        rules: By which a new job would be judged; None if readers need not know.
        new_starts: When new workloads would start, by queue; empty if readers need not know.
        configuration: By which queues decide; None if readers need not know.
        budgets: By ClusterQueue: its own, and those of its LocalQueues.
        claimed: The devices of nodes that pods get by claims; None if they are not counted.
        trees: The trees in which each namespace has a LocalQueue.
        cohorts: Each with the top of its tree.
    """

    taken_at: float
    generation: int
    resource_version: str = ""
    version: str = ""
    rules: QueueRules | None = None
    new_starts: Mapping[str, tuple[NewWorkloadStart, ...]] = field(default_factory=dict)
    configuration: Mapping[str, Json] | None = None
    budgets: Mapping[str, Sequence[BudgetState]] = field(default_factory=dict)
    claimed: "ClaimedUse | None" = None
    usage_order: UsageOrder | None = None
    queues: list[FullQueue] = field(default_factory=list)
    local_queues: list[tuple[str, LocalQueueName]] = field(default_factory=list)
    cohorts: list[tuple[str, CohortUse]] = field(default_factory=list)
    nodes: tuple[NodeUse, ...] = ()
    trees: dict[str, set[str]] = field(default_factory=dict)


class _Copied(NamedTuple):
    """The workloads of a queue, copied at once."""

    queue: QueueState
    tickets: list[Ticket]
    head: Ticket | None
    holdings: list[Holding]
    full: FullQueue


class _Leader(NamedTuple):
    """A workload that is behind no other, with its place in the order of its queue.

    `before` is another where those before it are, or request, something else.
    """

    queue: QueueState
    ticket: Ticket
    order: Sequence[Ticket]
    place: int
    before: int

    def ahead(self) -> Ahead | None:
        """Return the workloads that would take quota before it; None if they are too many."""
        if self.place > MOST_AHEAD:
            return None
        return requests_ahead(islice(self.order, self.place))


class _Looked(NamedTuple):
    """An explanation, and what the state was that it is true for."""

    stamp: object
    explanation: PendingExplanation | None
    before: int


class SnapshotTaker:
    """Takes full snapshots of a state; explanations are kept from one to the next while true."""

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
        self, full: FullSnapshot, local_queues: Iterable[QueueOfNamespace]
    ) -> Generator[None, None, FullSnapshot]:
        """Take a full snapshot step by step.

        Args:
            full: An empty one, with its moment and version.
            local_queues: All LocalQueues.

        Yields:
            Nothing, after each step.

        Returns:
            The full snapshot.
        """
        copied = self._copy(full)
        tops = {each.full.use.name: each.full.tree for each in copied}
        for namespace, cluster_queue, name in local_queues:
            if cluster_queue not in tops:
                continue
            tree = tops[cluster_queue]
            full.trees.setdefault(namespace, set()).add(tree)
            if name and len(full.local_queues) < MOST_LOCAL_QUEUES:
                full.local_queues.append((tree, LocalQueueName(namespace, name)))
        yield
        if full.claimed is not None:
            yield from _add_claimed(full, full.claimed)
        leaders: list[_Leader] = []
        for each in copied:
            yield from self._fill_pending(each, leaders)
            yield from self._fill_holding(each)
        if self._most is not None:
            return full
        yield from self._explain(leaders)
        for each in copied:
            yield from self._fill_reasons(each)
        return full

    def _copy(self, full: FullSnapshot) -> list[_Copied]:
        """Copy all that must belong together, and put the quotas into the full snapshot."""
        state = self._state
        state.settle()
        tree, copied, past = state.tree, [], self._past()
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
                fair_share=self._share(queue.node),
                new_starts=full.new_starts.get(name, ()),
            )
            page = FullQueue(use, _top(queue.node))
            page.past = past if queue.spec.by_usage else {}
            full.queues.append(page)
            tickets = list(queue.pending) if self._most is None else self._first(page, queue)
            holdings = list(queue.holdings.values())
            copied.append(_Copied(queue, tickets, queue.pending.head(), holdings, page))
        for name, node in sorted(tree.hierarchy.cohorts.items()):
            parent = "" if node.parent is None else node.parent.name
            cohort = CohortUse(
                name=name,
                parent=parent,
                quotas=_quotas(tree, node),
                fair_share=self._share(node),
            )
            full.cohorts.append((_top(node), cohort))
        full.nodes = tuple(_nodes(state.ledger.nodes))
        rules = state.settings.admission_fair_sharing
        if rules is not None:
            full.usage_order = UsageOrder(rules.half_life_seconds, rules.weights)
        return copied

    def _share(self, node: QuotaNode) -> FairShare | None:
        """Return the share of a ClusterQueue or Cohort, where shares decide."""
        if self._state.settings.fair_sharing is None or node.cyclic:
            return None
        share = share_of(self._state.tree, node)
        weighted = weighted_share(share)
        return FairShare(None if isinf(weighted) else weighted, share.weight, share.dominant)

    def _past(self) -> dict[str, PastUsage]:
        """Return what LocalQueues used, by `namespace/name`; {} if that orders none."""
        state, found = self._state, {}
        history = state.history
        if history is None:
            return {}
        for name in {*history.entries, *history.usage}:
            entry = history.entries.get(name, _UNUSED)
            usage = history.usage.get(name, 0.0)
            found[name] = PastUsage(
                usage=None if isinf(usage) else usage,
                weight=state.local_weights.get(name, 1.0),
                consumed=_in_whole_units(entry.consumed),
                penalty=_in_whole_units(entry.penalty),
                updated_at=entry.updated_at,
            )
        return found

    def _first(self, page: FullQueue, queue: QueueState) -> list[Ticket]:
        """Return the tickets of a queue that are listed, and count all."""
        found = order_of(queue.pending).places("", 0, self._most or 0)
        page.unlisted = len(queue.pending) - len(found)
        page.lines = _lines(queue.pending, page)
        return [each.ticket for each in found]

    def _fill_pending(self, copied: _Copied, leaders: list[_Leader]) -> Steps:
        """Put the pending workloads of a queue into the snapshot, in order, without reasons."""
        queue, page = copied.queue, copied.full
        order: list[Ticket] = []
        if self._most is None:
            yield from sort_in_steps(queue.pending, copied.tickets, order, step=STEP)
        else:
            order = copied.tickets
        places = _Places(queue.pending, order, copied.head, strict=page.use.strict)
        requests: dict[object, tuple[int, int]] = {}
        before = 0
        for place, ticket in enumerate(order):
            workload, asks = ticket.workload, ticket.request_key
            if asks not in requests:
                requests[asks] = len(page.requests), hash(asks)
                page.requests.append(total_of(*(each.totals() for each in workload.pod_sets)))
                if len(page.shapes) < MOST_SHAPES:
                    page.shapes.append(_shapes(workload))
            ahead = places.ahead(place, ticket)
            if ahead == NONE and len(leaders) < MOST_REASONS:
                leaders.append(_Leader(queue, ticket, order, place, before))
            index, hashed = requests[asks]
            before = hash((before, hashed, workload.backing_off))
            self._add(page, queue, ticket, index, ahead)
            if not (place + 1) % STEP:
                yield

    def _add(
        self, page: FullQueue, queue: QueueState, ticket: Ticket, requests: int, ahead: int
    ) -> None:
        """Add the row of the next pending workload."""
        workload, place = ticket.workload, len(page.pending)
        if workload.backing_off:
            page.backing_off.append(place)
        if ticket.preemptor and not queue.pending.turn(ticket)[1]:
            page.preemptor = place
        page.pending.append(
            PendingRow(
                workload.key,
                self._jobs.job(workload.key),
                workload.priority,
                int(workload.queued_at),
                requests,
                page.local_queue(workload.local_queue),
                ahead,
                origin=page.origin(team_of(workload.key), self._jobs.origin(workload.key)),
                start=page.start(self._jobs.start(workload.key)),
            )
        )

    def _fill_holding(self, copied: _Copied) -> Steps:
        page = copied.full
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

    def _explain(self, leaders: list[_Leader]) -> Steps:
        """Work explanations out that are missing or no longer true, as many as there is time for.

        Those that were never worked out come first, and then the first in line.
        """
        stamps = {each.ticket.workload.key: self._stamp(each.queue) for each in leaders}
        kept = {key: each for key, each in self._looked.items() if key in stamps}
        self._looked = kept
        due = [
            (leader.ticket.workload.key in kept, number, leader)
            for number, leader in enumerate(leaders)
            if not _is_current(kept, leader, stamps[leader.ticket.workload.key])
        ]
        for _, _, leader in nsmallest(LOOKS, due, key=lambda each: each[:2]):
            queue, ticket = leader.queue, leader.ticket
            if not ticket.gone and queue.options is not None and queue.active:
                found = explain(self._state, ticket, queue.options, leader.ahead())
                stamp = self._stamp(queue)
                kept[ticket.workload.key] = _Looked(stamp, found, leader.before)
            yield

    def _fill_reasons(self, copied: _Copied) -> Steps:
        """Give each workload that is behind no other its reason."""
        queue, page = copied.queue, copied.full
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


def _is_current(looked: Mapping[str, _Looked], leader: _Leader, stamp: object) -> bool:
    found = looked.get(leader.ticket.workload.key)
    return found is not None and (found.stamp, found.before) == (stamp, leader.before)


@dataclass(slots=True)
class _Sum:
    """What is counted of the pending workloads of a LocalQueue that have the same priority."""

    count: int = 0
    trying: int = 0
    requests: dict[str, int] = field(default_factory=dict)


def _lines(pending: PendingQueue, page: FullQueue) -> list[PendingLine]:
    """Count the pending workloads of a queue by priority and LocalQueue."""
    sums: dict[tuple[int, str], _Sum] = {}
    for example, count, trying in order_of(pending).groups():
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
            int(order_of(pending).oldest(name, priority)),
            each.requests,
        )
        for (priority, name), each in sorted(sums.items())
    ]


def _in_whole_units(nanos: Mapping[str, int]) -> dict[str, float]:
    """Turn 10⁻⁹ units into units: cores, bytes, devices."""
    return {name: amount / 10**9 for name, amount in nanos.items()}


class _Places:
    """The places of workloads that others are behind, in an order that was copied."""

    def __init__(
        self, pending: PendingQueue, order: list[Ticket], head: Ticket | None, *, strict: bool
    ) -> None:
        """Begin with the head: with `strict`, the first that was not tried by itself."""
        self._pending = pending
        self._order = order
        self._strict = strict
        self._firsts: dict[object, int] = {}
        heads = (
            place
            for place, ticket in enumerate(order)
            if (not ticket.aside if strict else ticket is head)
        )
        self._head_place = next(heads, NONE)
        self._head = None if self._head_place == NONE else order[self._head_place]

    def ahead(self, place: int, ticket: Ticket) -> int:
        """Return the place of the one before a workload; NONE if there is none. Call in order."""
        if ticket.workload.backing_off:
            return NONE
        first_place = self._firsts.setdefault(ticket.request_key, place)
        first, strict = self._order[first_place], self._strict
        found = find_ahead(self._pending, ticket, first=first, head=self._head, strict=strict)
        if found is None:
            return NONE
        ahead = first_place if found is first else self._head_place
        return NONE if ahead >= place else ahead  # the head may have changed since the copy


def _shapes(workload: QueuedWorkload) -> tuple[PodShape, ...]:
    return tuple(
        PodShape(each.count, each.requests, each.node_selector) for each in workload.pod_sets
    )


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


def _add_claimed(full: FullSnapshot, claimed: "ClaimedUse") -> Steps:
    """Add the devices that pods get by claims to those of nodes."""
    nodes = list(full.nodes)
    for number, node in enumerate(nodes):
        total, free = claimed.of_node(node.name)
        if total:
            nodes[number] = replace(
                node,
                allocatable=total_of(node.allocatable, total),
                free=total_of(node.free, free),
            )
        if not (number + 1) % STEP:
            yield
    full.nodes = tuple(nodes)


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
