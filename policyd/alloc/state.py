"""The state that cycles decide on, kept up to date object by object.

The caller puts flavors, queues, cohorts and workloads, pending or with quota; an equal one changes
nothing. Inadmissible workloads of a whole tree are tried again when quota in it is released or
changed.
"""

from collections.abc import Callable, Hashable, Iterator
from typing import Any

from msgspec.structs import replace

from policyd.alloc.amount import total_of
from policyd.alloc.cluster_queue import QueueState
from policyd.alloc.extension import Extension
from policyd.alloc.flavors.options import QueueOptions, RequestKey
from policyd.alloc.ledger import Holding, Ledger
from policyd.alloc.pending import Ticket
from policyd.alloc.plan import Admit, Evict, Plan, Preempt, Requeue
from policyd.alloc.queue import CohortQuotas, FlavorSpec, QueueSpec, quotas_of
from policyd.alloc.quota import QuotaNode, QuotaTree, descendants
from policyd.alloc.settings import DEFAULTS, QueueingSettings
from policyd.alloc.usage_history import UsageHistory, nanos
from policyd.alloc.workload import QueuedWorkload, ReservedQuota


class CoreState:
    """Flavors, queues, cohorts and workloads, and the settings for all of them.

    Attributes:
        ledger: Quota, its `tree`, and nodes with what workloads hold of them.
        again: Keys of workloads that have quota and are to be placed in the next cycle.
        deciding: Key of the workload that a cycle is about at present.
        giving_way: Keys of workloads that keep their turn and are not admitted in it.
        queues: ClusterQueues by name, including those that only workloads name.
        extension: Decides beyond Kueue's rules.
        preemptors: Uids of the workloads for which each was preempted, by its key.
        local_weights: Of LocalQueues, by `namespace/name`; 1 where it does not say.
        history: The usage history of LocalQueues; None without admission fair sharing.
        local_usage: The usage of each by weight, by `namespace/name`; empty without a history.
        now: Seconds since the epoch, kept current by the planner.
        revision: Grows with every change, and `cycle` with every plan that is carried out.
    """

    def __init__(
        self,
        settings: QueueingSettings = DEFAULTS,
        extend: "Callable[[CoreState], Extension] | None" = None,
    ) -> None:
        """Begin with nothing; `extend` makes the extension, if there is to be one."""
        self.settings = settings
        self.tree = QuotaTree()
        self.flavors: dict[str, FlavorSpec] = {}
        sharing = settings.admission_fair_sharing
        self.history = None if sharing is None else UsageHistory(sharing)
        self.local_usage = {} if self.history is None else self.history.usage
        self.now = 0.0
        self.revision = 0
        self.cycle = 0
        overlapping = settings.gates.tas_handle_overlapping_flavors
        self.ledger = Ledger(self.tree, self.flavors, overlapping=overlapping)
        self.again: tuple[str, ...] = ()
        self.deciding = ""
        self.giving_way: set[str] = set()
        self.preemptors: dict[str, set[str]] = {}
        self.local_weights: dict[str, float] = {}
        self.queues: dict[str, QueueState] = {}
        self._queue_of: dict[str, str] = {}
        self._outdated: dict[str, QueueState] = {}
        self._changed: set[QuotaNode] = set()
        self._candidates: tuple[int, dict[Hashable, list[Any]]] = (0, {})
        self.extension = Extension() if extend is None else extend(self)

    @property
    def candidates(self) -> dict[Hashable, list[Any]]:
        """Candidates for preemption, as searches for victims found them in this revision."""
        if self._candidates[0] != self.revision:
            self._candidates = (self.revision, {})
        return self._candidates[1]

    def put_flavor(self, flavor: FlavorSpec) -> None:
        """Add or change a ResourceFlavor."""
        if not self.settings.gates.topology_aware_scheduling:
            flavor = replace(flavor, topology="", levels=())
        if self.flavors.get(flavor.name) != flavor:
            self.flavors[flavor.name] = flavor
            self.ledger.nodes.put_flavor(flavor, flavor.levels)
            self._flavor_changed(flavor.name)

    def remove_flavor(self, name: str) -> None:
        """Remove a ResourceFlavor. Queues that name it become inactive."""
        if self.flavors.pop(name, None) is not None:
            self.ledger.nodes.remove_flavor(name)
            self._flavor_changed(name)

    def put_cohort(self, spec: CohortQuotas) -> None:
        """Add or change a Cohort."""
        hierarchy = self.tree.hierarchy
        self._note_change(hierarchy.cohorts.get(spec.name))
        node = hierarchy.put_cohort(spec.name, spec.parent, quotas_of(spec.groups))
        node.weight = spec.weight
        self._note_change(node)

    def remove_cohort(self, name: str) -> None:
        """Remove a Cohort; it lives on without quota and parent while something names it."""
        node = self.tree.hierarchy.cohorts.get(name)
        if node is not None:
            self._note_change(node)
            self.tree.hierarchy.remove_cohort(name)

    def put_queue(self, spec: QueueSpec) -> None:
        """Add or change a ClusterQueue."""
        queue = self._queue(spec.name)
        if queue.spec == spec:
            return
        self._note_change(queue.node)
        missing = queue.node is None
        node = self.tree.hierarchy.put_queue(spec.name, spec.cohort, quotas_of(spec.groups))
        queue.spec, queue.node = spec, node
        queue.pending.order_by(self.local_usage if self.history and spec.by_usage else None)
        self.extension.put_queue(queue)
        node.weight = spec.weight
        self._note_change(node)
        self._outdated[queue.name] = queue
        if missing:
            for holding in queue.holdings.values():
                self._charge(node, holding)

    def remove_queue(self, name: str) -> None:
        """Remove a ClusterQueue. Its workloads stay, and wait for it to come back."""
        queue = self.queues.get(name)
        if queue is None or queue.node is None:
            return
        self._note_change(queue.node)
        self.tree.hierarchy.remove_queue(name)
        queue.spec = queue.node = queue.options = None
        self.extension.put_queue(queue)
        for holding in queue.holdings.values():
            holding.charges = {}
        self._drop_if_idle(queue)

    def put_workload(self, workload: QueuedWorkload) -> None:
        """Add a workload, or note its change.

        With an admission it holds quota, without one it is pending; but while a plan's admission
        is only assumed, an older view of the workload as pending does not take it back.
        """
        self.revision += 1
        if workload.preempted_by:
            self.preemptors.setdefault(workload.key, set()).add(workload.preempted_by)
        if workload.admission is None:
            self._put_pending(workload)
        else:
            self._put_holding(workload, workload.admission)

    def remove_workload(self, key: str) -> None:
        """Remove a workload: it was deleted, has finished, or is not to be queued."""
        if key in self._queue_of:
            self.revision += 1
            self.extension.forget(key)
            self.preemptors.pop(key, None)
            self._leave(key)

    def retract(self, key: str) -> None:
        """Take back an admission that could not be written down, if it is still only assumed."""
        holding = self.holding(key)
        if holding is not None and holding.assumed:
            holding.assumed = False
            self.put_workload(holding.workload)

    def wake(self, name: str) -> None:
        """Let the inadmissible workloads in the tree of a ClusterQueue be tried again."""
        if name in self.queues:
            self._note_change(self.queues[name].node)

    def wake_placed(self) -> None:
        """Let workloads be tried again that nodes with more room might help."""
        for queue in self.queues.values():
            if queue.options is not None and queue.options.topologies:
                self._note_change(queue.node)

    def holding(self, key: str) -> Holding | None:
        """Return the quota a workload holds; None if it holds none."""
        name = self._queue_of.get(key)
        return None if name is None else self.queues[name].holdings.get(key)

    def waiting(self, key: str) -> QueuedWorkload | None:
        """Return a pending workload, as it is known; None if it is not pending."""
        name = self._queue_of.get(key)
        return None if name is None else self.queues[name].pending.get(key)

    def awaits_pods(self) -> bool:
        """Tell whether a workload holds quota whose pods are not ready."""
        return any(not holding.workload.ready for holding in self._holdings())

    def usage_of(self, local_queue: str) -> dict[str, int]:
        """Return what counts as usage of a LocalQueue, in 10⁻⁹ units by resource."""
        theirs = (h for h in self._holdings() if h.workload.local_queue == local_queue)
        return nanos(total_of(*(h.admission.totals() for h in theirs if self._is_used(h))))

    def _is_used(self, holding: Holding) -> bool:
        """Tell whether quota counts as usage: once its workload is admitted, or as it is reserved.

        Usage and penalties count from the same moment on. Else the usage of a workload whose checks
        take long would decay while it holds its quota.
        """
        spec = self.queues[holding.admission.cluster_queue].spec
        early = self.settings.gates.admission_fair_sharing_anchor_at_quota_reservation
        return holding.workload.admitted or (early and spec is not None and spec.by_usage)

    def using(self, flavor: str) -> list[QueueState]:
        """Return the queues that have quota for a flavor."""
        return [q for q in self.queues.values() if q.spec is not None and flavor in q.spec.flavors]

    def heads(self) -> Iterator[tuple[QueueOptions, Ticket]]:
        """Yield the next workload of every active queue that has one, with the queue's options."""
        self.settle()
        yield from self._to_be_placed()
        held_up = self.extension.held_up
        for queue in self.queues.values():
            ticket, options = queue.pending.head(), queue.options
            if ticket is None or options is None or not queue.active:
                continue
            if options.node.root in held_up and queue.pending.yields(ticket):
                continue
            yield options, ticket

    def _to_be_placed(self) -> Iterator[tuple[QueueOptions, Ticket]]:
        """Yield workloads that have quota and are to be placed, or placed again."""
        for key in self.again:
            holding = self.holding(key)
            if holding is not None:
                options = self.queues[holding.admission.cluster_queue].options
                if options is not None:
                    yield options, Ticket(holding.workload, RequestKey())

    def commit(self, plan: Plan) -> None:
        """Carry out a plan in this state: admissions are assumed, workloads inadmissible.

        Raises:
            ValueError: If the state has changed since the plan was made.
        """
        if plan.revision != self.revision:
            raise ValueError("the plan was made for another revision of the state")
        self.revision += 1
        self.cycle += 1
        self.again = ()
        for action in plan.actions:
            match action:
                case Admit():
                    self._assume(action)
                case Preempt() | Evict():
                    self._note_preempted(action.workload.key, preempted=True)
                case Requeue():
                    self._requeue(action)
        for name in self.extension.committed(plan):
            self.wake(name)

    def forget_preemption(self, key: str) -> None:
        """Drop a preemption that could not be written: it may be tried again."""
        self._note_preempted(key, preempted=False)

    def settle(self) -> None:
        """Recompute quota after changes, and activate the workloads that they may help."""
        self.tree.refresh()
        for queue in self._outdated.values():
            spec, node, rules = queue.spec, queue.node, self.settings
            if spec is not None and node is not None:
                search = self.extension.search(self.tree, spec, rules)
                queue.options = QueueOptions(spec, node, self.flavors, search, settings=rules)
        self._outdated.clear()
        self.extension.settle()
        changed, self._changed = self._changed, set()
        for root in self.extension.due(changed):
            for queue in self.queues_below(root):
                queue.pending.wake()

    def queues_below(self, root: QuotaNode) -> Iterator[QueueState]:
        """Return the known ClusterQueues of a tree."""
        nodes = (node for node in descendants(root) if node.queue)
        return (self.queues[node.name] for node in nodes if node.name in self.queues)

    def _note_preempted(self, key: str, *, preempted: bool) -> None:
        holding = self.holding(key)
        if holding is not None:
            holding.preempted = preempted
            self.revision += 1

    def _requeue(self, action: Requeue) -> None:
        if self.holding(action.workload.key) is not None:
            return  # it has its quota, and waits for a place elsewhere
        queue = self.queues[action.workload.cluster_queue]
        equivalents = self.settings.gates.scheduling_equivalence_hashing
        strict = queue.spec is not None and queue.spec.strict
        queue.pending.requeue(action, strict=strict, equivalents=equivalents)

    def _flavor_changed(self, name: str) -> None:
        self.revision += 1
        for holding in self._holdings():
            if any(name in each.flavors.values() for each in holding.admission.pod_sets):
                self.ledger.occupy(holding)
        for queue in self.using(name):
            self._outdated[queue.name] = queue
            self._note_change(queue.node)

    def _holdings(self) -> Iterator[Holding]:
        return (each for queue in self.queues.values() for each in queue.holdings.values())

    def _queue(self, name: str) -> QueueState:
        """Return a ClusterQueue; a new one is made."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = QueueState(name)
        return queue

    def _drop_if_idle(self, queue: QueueState) -> None:
        """Remove a ClusterQueue that was deleted, and that no workload names."""
        if queue.spec is None and not queue.pending and not queue.holdings:
            del self.queues[queue.name]

    def _put_pending(self, workload: QueuedWorkload) -> None:
        key, name = workload.key, workload.cluster_queue
        known, holding = self._queue_of.get(key), self.holding(key)
        if holding is not None and holding.assumed:
            return
        if known is not None and (holding is not None or known != name):
            self._leave(key)
        self._queue_of[key] = name
        gates = self.settings.gates
        self._queue(name).pending.put(
            workload,
            carries=gates.flavor_fungibility_preserve_scan_progress,
            nameless=gates.scheduling_equivalence_hashing_ignore_pod_set_name,
        )

    def _put_holding(self, workload: QueuedWorkload, admission: ReservedQuota) -> None:
        key, name = workload.key, admission.cluster_queue
        old = self.holding(key)
        if old is not None and old.admission == admission:
            self._hold_on(old, workload)
            return
        if key in self._queue_of:
            self._leave(key)
        queue = self._queue(name)
        self._queue_of[key] = name
        holding = queue.holdings[key] = Holding(workload, admission, assumed=False)
        self.ledger.occupy(holding)
        if queue.node is not None:
            self._charge(queue.node, holding)

    def _hold_on(self, holding: Holding, workload: QueuedWorkload) -> None:
        """Update a workload that changed, but holds the same as before."""
        other_priority = workload.priority != holding.workload.priority
        holding.workload, holding.assumed, holding.preempted = workload, False, False
        node = self.queues[holding.admission.cluster_queue].node
        if node is not None:
            self.tree.touch(node)
            node.generation += 1  # Kueue removes it and adds it again
        history, local_queue = self.history, workload.local_queue
        awaits = history is not None and history.awaits(local_queue, workload.key)
        if history is not None and awaits and self._is_used(holding):
            history.settle(local_queue, workload.key, self.usage_of(local_queue), self.now)
        if other_priority or self.extension.holds_for(workload.key):
            self._note_change(node)

    def _leave(self, key: str) -> None:
        """Remove a workload that is known."""
        queue = self.queues[self._queue_of.pop(key)]
        queue.pending.remove(key)
        holding, node = queue.holdings.pop(key, None), queue.node
        self.ledger.vacate(key)
        if holding is not None and self.history is not None:
            self.history.drop(holding.workload.local_queue, key)
        if holding is not None and node is not None:
            self.tree.refresh()
            self.tree.release(holding.charges)
            node.generation += 1
        if holding is not None or self.extension.holds_for(key):
            self._note_change(node)
        self._drop_if_idle(queue)

    def _assume(self, action: Admit) -> None:
        """Let a pending workload hold the quota that a plan gives it."""
        workload = action.workload
        queue = self.queues[workload.cluster_queue]
        queue.pending.remove(workload.key)
        before = queue.holdings.get(workload.key)
        holding = Holding(workload, action.admission, assumed=True)
        queue.holdings[workload.key] = holding
        self.ledger.occupy(holding)
        if before is not None:  # it has got places for the quota that it had
            holding.charges = before.charges
            return
        if self.history is not None and queue.spec is not None and queue.spec.by_usage:
            used = nanos(action.admission.totals())
            self.history.push(workload.local_queue, workload.key, used, self.now)
        if workload.replaces and self.holding(workload.replaces) and queue.node is not None:
            self._leave(workload.replaces)
            self._charge(queue.node, holding)
            return
        holding.charges = action.charges
        self.tree.charge(action.charges)

    def _charge(self, node: QuotaNode, holding: Holding) -> None:
        """Charge a workload's holding to a queue's node."""
        self.tree.refresh()
        usage = holding.admission.usage()
        holding.charges = {self.tree.cell(node, names): n for names, n in usage.items()}
        self.tree.charge(holding.charges)

    def _note_change(self, node: QuotaNode | None) -> None:
        """Note a change at a node, which may belong to another tree from now on."""
        self.revision += 1
        if node is not None:
            self._changed.add(node)
            if node.parent is not None:
                self._changed.add(node.parent)
