"""What would become of a job that is not in its queue yet: planned with the core of the controller.

A dry run has the state that a snapshot for the webhooks describes. It says nothing where the
snapshot does not tell enough.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from policyd.alloc.amount import total_of
from policyd.alloc.cluster_queue import NominatedWorkload, QueueState
from policyd.alloc.flavors.options import QueueOptions, RequestKey
from policyd.alloc.nominate import Nominator
from policyd.alloc.pending import Ticket
from policyd.alloc.quota import QuotaNode
from policyd.alloc.reasons import Refusal
from policyd.alloc.state import CoreState
from policyd.alloc.workload import PodSetFlavors, QueuedWorkload, ReservedQuota
from policyd.snapshot.new_workloads import start_of
from policyd.snapshot.rules import ClusterQueueRule, LocalQueueRule, QueueRules
from policyd.snapshot.values import (
    ClusterQueueUse,
    HeldAmount,
    HoldingRow,
    QueueSnapshot,
    StartRow,
)
from policyd.status.messages import message_of
from policyd.status.naming import Naming
from policyd.status.remedies import Shortfall, nearest_shortfalls

MOST_HOLDING: Final = 1_000
"""Workloads with quota in a tree that are looked at one by one, as candidates for preemption."""

MOST_CYCLES: Final = 20
"""Cycles in which flavors are looked for at most."""

NAMELESS: Final = Naming(others="hidden")
"""How results name workloads: not at all, since any user may get them."""

_NEVER: Final = frozenset({"NoMatchingFlavor", "ExceedsMaxQuota"})


class TakenQuota(NamedTuple):
    """Quota of a flavor's resource that a workload would get, and how much of it is borrowed."""

    flavor: str
    resource: str
    amount: int
    borrowed: int


class WouldStart(NamedTuple):
    """It would get quota now.

    Attributes:
        quota: Which.
        lender: The Cohort that lends the borrowed part; "" if none is borrowed.
        victims: How many workloads would be preempted for it.
        placed: Whether a topology has to have a place for its pods, which is not known here.
        checks: Names of admission checks that it would have to pass.
    """

    quota: tuple[TakenQuota, ...]
    lender: str
    victims: int
    placed: bool
    checks: tuple[str, ...]


class WouldWait(NamedTuple):
    """It would be pending.

    Attributes:
        ahead: How many workloads would be before it; None if that is not known.
        shortfalls: What it would have too little of; empty if it would only be behind others.
        message: Why, if not for that.
    """

    ahead: int | None
    shortfalls: tuple[Shortfall, ...] = ()
    message: str = ""


class NeverFits(NamedTuple):
    """It could not start however long it waits.

    Attributes:
        shortfalls: What it requests more of than its queue can ever get.
        message: Why else: no flavor is suitable.
    """

    shortfalls: tuple[Shortfall, ...]
    message: str


DryRunResult = WouldStart | WouldWait | NeverFits


class AdmissionDryRun:
    """Plans for workloads that do not exist yet.

    Not for several threads at a time: the state is changed while it plans, and changed back.
    """

    def __init__(self, snapshot: QueueSnapshot, rules: QueueRules) -> None:
        """Build the state.

        Args:
            snapshot: How the queues are.
            rules: Its rules.
        """
        self.rules = rules
        self._uses = {each.name: each for each in snapshot.cluster_queues}
        self._queues = {each.spec.name: each for each in rules.queues}
        self._local = {(each.namespace, each.name): each for each in rules.local_queues}
        self._topologies = {each.name for each in rules.flavors if each.topology}
        self._summed: set[QuotaNode] = set()
        self._expected: dict[str, tuple[QueuedWorkload, DryRunResult]] = {}
        self._state = state = CoreState(rules.settings)
        for flavor in rules.flavors:
            # Nodes are not known here: whether pods have a place is left open.
            state.put_flavor(replace(flavor, topology="", levels=()))
        for cohort in rules.cohorts:
            state.put_cohort(cohort)
        for queue in rules.queues:
            state.put_queue(queue.spec)
        state.settle()
        for root in {each.node.root for each in state.queues.values() if each.node is not None}:
            self._hold(root)
        state.settle()

    def local_queue(self, namespace: str, name: str) -> LocalQueueRule | None:
        """Return a LocalQueue; None if there is none."""
        return self._local.get((namespace, name))

    def local_queues(self, namespace: str) -> list[str]:
        """Return the names of the LocalQueues of a namespace."""
        return sorted(name for space, name in self._local if space == namespace)

    def queue(self, name: str) -> ClusterQueueRule | None:
        """Return a ClusterQueue; None if there is none."""
        return self._queues.get(name)

    def status(self, name: str) -> ClusterQueueUse | None:
        """Return how a ClusterQueue is; None if there is none."""
        return self._uses.get(name)

    def result(self, workload: QueuedWorkload) -> DryRunResult | None:
        """Say what would become of a workload that is submitted now; None if that is not known.

        Args:
            workload: It names an active ClusterQueue, and has no objection.
        """
        state = self._state
        queue, rule = state.queues[workload.cluster_queue], self._queues[workload.cluster_queue]
        options = queue.options
        if options is None or queue.node is None or self._mixes(options):
            return None
        if self._is_unclear(queue.node.root):
            return None
        pod_sets = tuple(replace(each, placed=False, place=None) for each in workload.pod_sets)
        ticket = Ticket(replace(workload, pod_sets=pod_sets), RequestKey())
        entry = self._nominated(ticket, options)
        if entry.targets and options.node.root in self._summed:
            return None
        if entry.served:
            return self._starts(entry, queue, rule)
        return self._refused(entry.assignment.refusal, queue, workload)

    def start_of(
        self, workload: QueuedWorkload, result: DryRunResult | None, *, now: float
    ) -> StartRow | None:
        """Return when a workload starts that waits; None if that is not known.

        Args:
            workload: It names an active ClusterQueue.
            result: What would become of it.
            now: The time, in seconds since the epoch.
        """
        use = self._uses.get(workload.cluster_queue)
        if use is None or not isinstance(result, WouldWait) or result.ahead is None:
            return None
        requests = total_of(*(each.totals() for each in workload.pod_sets))
        return start_of(
            use.new_starts,
            requests,
            priority=workload.priority,
            ahead=result.ahead,
            now=now,
        )

    def expect(self, found: Iterable[tuple[QueuedWorkload, DryRunResult]]) -> None:
        """Count workloads that are submitted in all results after this, until they are forgotten.

        Args:
            found: Each names an active ClusterQueue, and has what would become of it.
        """
        for workload, result in found:
            if isinstance(result, WouldStart) and not result.victims:
                self._put(workload, result)
            self._expected[workload.key] = workload, result
        self._state.settle()

    def forget(self, keys: Iterable[str]) -> None:
        """Count workloads no longer that were expected: they do not come, or come once more."""
        for key in keys:
            workload, _ = self._expected.pop(key)
            self._state.remove_workload(_key_of(workload))
        self._state.settle()

    def hold(self, workload: QueuedWorkload, start: WouldStart) -> None:
        """Count the quota that a workload would get as used, in all results after this.

        Args:
            workload: It names an active ClusterQueue.
            start: The result for it.
        """
        self._put(workload, start)
        self._state.settle()

    def _put(self, workload: QueuedWorkload, start: WouldStart) -> None:
        use = self._uses[workload.cluster_queue]
        amounts = tuple(HeldAmount(q.flavor, q.resource, q.amount) for q in start.quota)
        self._state.put_workload(_holder(use, _key_of(workload), amounts, None))

    def _nominated(self, ticket: Ticket, options: QueueOptions) -> NominatedWorkload:
        """Choose flavors as the cycles would: each goes on with the flavors after those before."""
        nominator = Nominator(self._state)
        entry = nominator.entry(ticket, options)
        for _ in range(MOST_CYCLES):
            ticket.progress = nominator.progress(entry)
            if entry.served or ticket.progress is None or not ticket.progress.goes_on:
                break
            entry = nominator.entry(ticket, options)
        return entry

    def _starts(
        self, entry: NominatedWorkload, queue: QueueState, rule: ClusterQueueRule
    ) -> DryRunResult | None:
        workload, node = entry.ticket.workload, entry.options.node
        if self._is_held_up(queue, workload):
            return WouldWait(self._ahead(queue, workload))
        quota, tree = [], self._state.tree
        for cell, amount in entry.assignment.charges.items():
            over = tree.usage[cell] + amount - tree.subtree[cell]
            borrowed = min(amount, max(0, over)) if node.parent is not None else 0
            if amount:
                quota.append(TakenQuota(*tree.names[cell], amount, borrowed))
        borrows = any(each.borrowed for each in quota)
        if not self._is_certain(queue, workload, borrows=borrows or bool(entry.targets)):
            return None
        return WouldStart(
            tuple(quota),
            node.parent.name if borrows and node.parent is not None else "",
            len(entry.targets),
            any(each.flavor in self._topologies for each in quota),
            rule.checks,
        )

    def _refused(
        self, refusal: Refusal, queue: QueueState, workload: QueuedWorkload
    ) -> DryRunResult | None:
        shortfalls = tuple(nearest_shortfalls(refusal))
        if refusal.reason in _NEVER:
            return NeverFits(shortfalls, message_of(refusal, NAMELESS))
        options = queue.options
        assert options is not None, "it was planned with them"
        if options.preempts and options.node.root in self._summed:
            return None
        if self._queues[queue.name].beyond:
            return None
        return WouldWait(
            self._ahead(queue, workload),
            shortfalls,
            "" if shortfalls else message_of(refusal, NAMELESS),
        )

    def _is_certain(self, queue: QueueState, workload: QueuedWorkload, *, borrows: bool) -> bool:
        """Tell whether a workload for which there is quota would surely get it.

        Not where others that were not refused yet may come first, pods are awaited, or queues of
        the tree decide by more than Kueue's rules.
        """
        assert queue.node is not None, "it was planned for"
        if self._state.settings.blocks_until_ready or self._trying(queue.name, workload.priority):
            return False
        others = [each.name for each in self._state.queues_below(queue.node.root)]
        if any(self._queues[name].beyond for name in others):
            return False
        return not borrows or not any(self._trying(name) for name in others if name != queue.name)

    def _is_held_up(self, queue: QueueState, workload: QueuedWorkload) -> bool:
        """Tell whether a workload before this one must get quota first (StrictFIFO)."""
        strict = queue.spec is not None and queue.spec.strict
        before = self._trying(queue.name, workload.priority) + self._waiting_before(workload)
        return strict and before > 0

    def _trying(self, name: str, least: float = float("-inf")) -> int:
        """Count the workloads of a queue, of a priority or higher, that were not refused yet."""
        use = self._uses.get(name)
        lines = () if use is None else use.lines
        return sum(line.trying for line in lines if line.priority >= least)

    def _ahead(self, queue: QueueState, workload: QueuedWorkload) -> int | None:
        use = self._uses.get(queue.name)
        if use is None or queue.spec is None or queue.spec.by_usage:
            return None
        known = sum(line.count for line in use.lines if line.priority >= workload.priority)
        return known + self._waiting_before(workload)

    def _waiting_before(self, workload: QueuedWorkload) -> int:
        """Count the workloads that are expected to wait in a queue, before this one."""
        return sum(
            isinstance(result, WouldWait)
            and each.cluster_queue == workload.cluster_queue
            and each.priority >= workload.priority
            for each, result in self._expected.values()
        )

    def _is_unclear(self, root: QuotaNode) -> bool:
        """Tell whether a workload is expected in a tree where it preempts some: not known which."""
        if not self._expected:
            return False
        nodes = (
            self._state.queues[each.cluster_queue].node
            for each, result in self._expected.values()
            if isinstance(result, WouldStart) and result.victims
        )
        return any(node is not None and node.root is root for node in nodes)

    def _mixes(self, options: QueueOptions) -> bool:
        """Tell whether some flavors of a queue place pods, and some do not.

        It is not known then which are suitable.
        """
        placing = self._topologies.intersection(options.spec.flavors)
        return bool(placing) and len(placing) < len(set(options.spec.flavors))

    def _hold(self, root: QuotaNode) -> None:
        """Put what workloads hold in a tree into the state, one by one where that matters."""
        queues = [q for q in self._state.queues_below(root) if q.name in self._uses]
        preempts = any(q.options is not None and q.options.preempts for q in queues)
        count = sum(len(self._uses[q.name].holding) for q in queues)
        alone = preempts and count <= MOST_HOLDING
        if preempts and not alone:
            self._summed.add(root)
        for queue in queues:
            use = self._uses[queue.name]
            for holder in _each(use) if alone else _together(use):
                self._state.put_workload(holder)


def _key_of(workload: QueuedWorkload) -> str:
    """Return the key of a workload that is counted as one with quota."""
    return f"{workload.cluster_queue}/{workload.key}"


def _each(use: ClusterQueueUse) -> Iterator[QueuedWorkload]:
    for number, row in enumerate(use.holding):
        yield _holder(use, f"{use.name}/{number}", use.usages[row.usage], row)


def _together(use: ClusterQueueUse) -> Iterator[QueuedWorkload]:
    """Yield one workload that holds what all of a queue hold."""
    total: dict[tuple[str, str], int] = {}
    for row in use.holding:
        for each in use.usages[row.usage]:
            cell = each.flavor, each.resource
            total[cell] = total.get(cell, 0) + each.amount
    if total:
        amounts = tuple(HeldAmount(*cell, amount) for cell, amount in total.items())
        yield _holder(use, f"{use.name}/all", amounts, None)


def _holder(
    use: ClusterQueueUse, key: str, amounts: tuple[HeldAmount, ...], row: HoldingRow | None
) -> QueuedWorkload:
    flavors: dict[str, dict[str, int]] = {}
    for each in amounts:
        flavors.setdefault(each.flavor, {})[each.resource] = each.amount
    held = tuple(
        PodSetFlavors(name=name, count=1, flavors=dict.fromkeys(usage, name), usage=usage)
        for name, usage in flavors.items()
    )
    since = 0.0 if row is None else float(row.since)
    return QueuedWorkload(
        key=key,
        uid=key,
        cluster_queue=use.name,
        queued_at=since,
        pod_sets=(),
        priority=0 if row is None else row.priority,
        admission=ReservedQuota(cluster_queue=use.name, pod_sets=held),
        admitted=row is None or row.admitted,
        reserved_at=since,
        evicted=row is not None and row.stopping,
    )
