"""One scheduling cycle: a decision about the next workload of every queue.

1. *Nominate*: for each workload, choose flavors, and victims if need be, as if it were alone.
2. *Order*: workloads that borrow least first; then by priority, then by age. With fair sharing, the
   one is next whose share of its cohort would be lowest.
3. *Process* one after the other, each with the usage of those before it. A workload that has lost
   its room since it was nominated waits for the next cycle. No victim makes room for two: a
   workload whose victims are taken chooses again as if they were gone, but keeps its flavors. One
   that waits for quota of its own queue keeps others from borrowing that quota in the same cycle.
4. *Refill*, with fair sharing and its gate: the next workload of a queue whose workload was
   admitted takes part in the rest of the cycle, if it fits. Else it waits for the next cycle.

Usage is changed on the way and taken back at the end: planning leaves the state as it was.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from msgspec.structs import replace

from policyd.alloc.amount import total_of
from policyd.alloc.cluster_queue import NominatedWorkload
from policyd.alloc.extension import CycleExtension
from policyd.alloc.fair_sharing import BorrowedShare, CohortHeap, Key, share_of
from policyd.alloc.flavors.assignment import Assignment
from policyd.alloc.flavors.search import FlavorScan
from policyd.alloc.ledger import Holding, Victim
from policyd.alloc.nominate import Chooser, Nominator
from policyd.alloc.pending import Ticket, becomes_inadmissible
from policyd.alloc.plan import (
    Action,
    Admit,
    Evict,
    Plan,
    Preempt,
    Recomputation,
    Requeue,
    RequeueReason,
)
from policyd.alloc.queue import FlavorResource, QueueSpec
from policyd.alloc.quota import QuotaNode, QuotaTree
from policyd.alloc.reasons import FIT, NO_FIT, Cause, PodSetRefusal, Refusal
from policyd.alloc.settings import Gates, QueueingSettings
from policyd.alloc.state import CoreState
from policyd.alloc.topology.assignments import without
from policyd.alloc.topology.placing import room_for
from policyd.alloc.topology.values import Placement
from policyd.alloc.workload import QueuedWorkload

Successor = Callable[[NominatedWorkload], NominatedWorkload | None]
"""Returns the workload that takes part in a cycle after one that had its turn."""

_MOST_REFILLS = 8
"""How many more workloads than one of each queue a cycle considers, as in Kueue."""


class CycleRoom:
    """Quota and places that are left in a cycle, those of its victims included."""

    def __init__(self, state: CoreState, extension: CycleExtension) -> None:
        self.victims: dict[str, Holding] = {}
        self._freed: dict[QuotaNode, dict[int, int]] = {}
        self._ledger = state.ledger
        self._tree = state.tree
        self._gates = state.settings.gates
        self._extension, self._taken = extension, False

    def overlaps(self, entry: NominatedWorkload) -> bool:
        """Tell whether a target of a workload is a victim already."""
        return any(target.workload.key in self.victims for target in entry.targets)

    def fits(self, entry: NominatedWorkload) -> bool:
        """Tell whether there is room once victims and targets are gone."""
        tree, charges = self._tree, entry.assignment.charges
        if not (self._taken or self._extension.active):
            return True  # nothing has changed since it was nominated
        if not (self.victims or entry.targets or entry.assignment.placements):
            return tree.fits(charges)
        with self.without_victims(entry.root, entry.targets):
            return tree.fits(charges) and self._has_places(entry)

    def lost_places(self, entry: NominatedWorkload) -> bool:
        """Tell whether a workload lost its places in this cycle, and still has its quota."""
        recomputes = self._gates.tas_recompute_assignment_within_scheduling_cycle
        if not (entry.assignment.placements and recomputes and self._taken):
            return False
        with self.without_victims(entry.root, entry.targets):
            return self._tree.fits(entry.assignment.charges) and not self._has_places(entry)

    @contextmanager
    def without_victims(self, root: QuotaNode, targets: Iterable[Victim] = ()) -> Iterator[None]:
        """Release, for a trial, the usage of victims and targets in a tree and on nodes."""
        with self._ledger.trial():
            self._tree.release(self._freed.get(root, {}))
            for key, holding in self.victims.items() if self._ledger.nodes.trees else ():
                if holding.placements:
                    self._ledger.nodes.drop(key)
            for target in targets:
                if target.workload.key not in self.victims:
                    self._ledger.release(target.holding)
            yield

    def preempt(self, entry: NominatedWorkload) -> list[Preempt]:
        """Count a workload's targets as removed; return those that are not under way yet."""
        targets = {target.workload.key: target.holding for target in entry.targets}
        new = [holding.charges for key, holding in targets.items() if key not in self.victims]
        self._freed[entry.root] = total_of(self._freed.get(entry.root, {}), *new)
        self.victims |= targets
        queues = self._tree.hierarchy.queues
        return [
            Preempt(
                workload=target.workload,
                reason=target.reason,
                preemptor=entry.ticket.workload,
                path=queues[target.holding.admission.cluster_queue].path,
                preemptor_path=entry.options.node.path,
            )
            for target in entry.targets
            if not target.holding.stopping
        ]

    def keep(self, entry: NominatedWorkload) -> None:
        """Keep a workload's assignment from later workloads, though it may not get it yet."""
        self._tree.charge(entry.assignment.charges)
        self._occupy(entry)
        if self._extension.active:
            self._extension.kept(entry)

    def reserve(self, entry: NominatedWorkload) -> None:
        """Keep quota for a workload that has to wait and has no targets."""
        # A workload that may reclaim from any other gets its quota back anyway; the others would
        # see it go to those that come later in the cycle.
        reclaims = entry.options.spec.preemption.reclaim_within_cohort == "Any"
        waits = self._gates.prioritize_preemptor_workloads and entry.ticket.preemptor
        if (waits or not reclaims) and not self._extension.holds_for(entry):
            self._tree.charge(reserved_charges(self._tree, entry.assignment))
            self._occupy(entry)

    def _occupy(self, entry: NominatedWorkload) -> None:
        self._taken = True
        if entry.assignment.placements:
            places = (*self._places_of(entry), *self._left_behind(entry))
            self._ledger.nodes.hold(entry.key, places)

    def _left_behind(self, entry: NominatedWorkload) -> tuple[Placement, ...]:
        """Return the places that pods leave; no other workload gets them in this cycle."""
        if entry.assignment.held is None:
            return ()
        found = entry.assignment.admission(entry.queue)
        left = [
            replace(old, placement=without(old.placement, new.placement))
            for old, new in zip(entry.assignment.held.pod_sets, found.pod_sets, strict=True)
            if old.placement is not None and new.placement is not None
        ]
        return self._ledger.placements(replace(found, pod_sets=tuple(left)))

    def _has_places(self, entry: NominatedWorkload) -> bool:
        """Tell whether there is still room just where the pods are to go."""
        if not entry.assignment.placements:
            return True
        self._ledger.vacate(entry.key)
        return room_for(self._ledger.nodes, self._places_of(entry))

    def _places_of(self, entry: NominatedWorkload) -> tuple[Placement, ...]:
        return self._ledger.placements(entry.assignment.admission(entry.queue))


def plan_cycle(state: CoreState) -> Plan:
    """Decide about the next workload of every active queue.

    The state is left as it was; `state.commit(plan)` carries the plan out in it.
    """
    state.settle()
    with state.extension.cycle() as extension, ExitStack() as passed_over:
        cycle = _Cycle(state, extension, passed_over)
        cycle.nominate()
        with state.ledger.trial():
            for entry in turns(cycle.entries, state.tree, state.settings, cycle.successor):
                cycle.process(entry)
    return Plan(
        actions=tuple(cycle.actions),
        revision=state.revision,
        skipped=tuple(cycle.skipped),
        recomputed=tuple(cycle.recomputed),
        reserved=extension.reserved,
        moves=tuple(extension.moves),
    )


class _Cycle:
    """A running cycle: nominated workloads, the decisions so far, and the room that is left."""

    def __init__(self, state: CoreState, extension: CycleExtension, passed_over: ExitStack) -> None:
        self.entries: list[NominatedWorkload] = []
        self.actions: list[Action] = []
        self.skipped: list[str] = []
        self.recomputed: list[tuple[str, Recomputation]] = []
        self._state = state
        self._gates = state.settings.gates
        self._extension = extension
        self._nominator = Nominator(state)
        self.room = CycleRoom(state, extension)
        rules = state.settings
        refills = rules.fair_sharing is not None and rules.gates.fair_sharing_refill
        self._blocks = rules.blocks_until_ready
        can_refill = refills and not (self._blocks or extension.active)
        self._refills_left = _MOST_REFILLS if can_refill else 0
        self._refilled: set[str] = set()
        self._can_step_back = can_refill or self._gates.concurrent_admission
        self._passed_over = passed_over

    def nominate(self) -> None:
        """Choose for the next workload of every queue."""
        for options, ticket in self._state.heads():
            self._state.deciding = ticket.workload.key
            objection = None if ticket.plain else ticket.workload.objection
            if objection is None:
                self.entries.append(self._nominator.entry(ticket, options))
            else:
                entry = NominatedWorkload(ticket, options, ticket.requests(options), Assignment())
                refusal = Refusal(objection.reason, note=objection.message)
                reason: RequeueReason = "NamespaceMismatch" if objection.misplaced else "Generic"
                self._requeue(entry, reason, refusal, goes_on=False)
        self.actions.extend(self._extension.evictions())

    def process(self, entry: NominatedWorkload) -> None:
        """Decide about one nominated workload."""
        self._state.deciding = entry.ticket.workload.key
        extension, missing = self._extension, entry.assignment.refusals
        if self._can_step_back and self._steps_back(entry):
            return
        if extension.active and extension.make_room(entry, self.room.victims):
            self._preempt(entry, missing)
            return
        deferred = (entry.targets or entry.assignment.placements) and self._recompute(entry)
        mode = entry.assignment.mode
        if mode is not FIT and entry.assignment.held is not None and self._gives_up(entry):
            return
        if mode is NO_FIT:
            self._requeue(entry, "NoFit", entry.assignment.refusal)
        elif deferred:
            self.room.keep(entry)
            refusal = Refusal("WaitingForPreemptedWorkloads", cause="FitsAfterOthers")
            self._requeue(entry, "PendingPreemption", refusal, goes_on=False)
        elif extension.active and (delay := extension.delay(entry)) and self.room.fits(entry):
            self._requeue(entry, "Generic", delay, goes_on=False)
        elif mode is FIT:
            self._admit_if_it_fits(entry)
        else:
            self._preempt_if_it_helps(entry)

    def successor(self, entry: NominatedWorkload) -> NominatedWorkload | None:
        """Return the next workload of the queue of one that was just admitted, if it fits too."""
        if not (self._refills_left and self.actions) or entry.assignment.held is not None:
            return None
        latest = self.actions[-1]
        if not (isinstance(latest, Admit) and latest.workload is entry.ticket.workload):
            return None
        pending = self._state.queues[entry.queue].pending
        self._passed_over.enter_context(pending.passing_over(entry.ticket))
        ticket = pending.head()
        if ticket is None:
            return None
        self._refills_left -= 1
        if ticket.workload.objection is not None:
            return None
        # What a nomination remembers for others with the same requests holds before a cycle only.
        found = Chooser(self._state, ticket, entry.options, preempts=False).choose()
        if found.assignment.mode is not FIT:
            return None
        self._refilled.add(found.key)
        return found

    def _recompute(self, entry: NominatedWorkload) -> bool:
        """Replace the victims that others took; tell whether it fits once those are removed."""
        if not (entry.targets and self.room.overlaps(entry)):
            if self.room.lost_places(entry):
                self._choose(entry)
            return False
        if not self._gates.recompute_assignment_upon_preemption_targets_overlap:
            return False
        with self.room.without_victims(entry.root):
            self._choose(entry, self.room.victims)
        deferred = entry.assignment.mode is FIT
        result: Recomputation = "new_targets" if entry.targets else "skipped"
        self.recomputed.append((entry.queue, "deferred_fit" if deferred else result))
        return deferred

    def _choose(self, entry: NominatedWorkload, removed: Collection[str] = ()) -> None:
        """Choose again, of the same flavors, by the current usage."""
        chooser = Chooser(self._state, entry.ticket, entry.options, entry.options.preempts)
        found = chooser.choose(FlavorScan(pins=entry.assignment.flavors), removed)
        entry.requests, entry.assignment = found.requests, found.assignment
        entry.targets = found.targets

    def _admit_if_it_fits(self, entry: NominatedWorkload) -> None:
        if entry.key in self._state.giving_way:
            refusal = Refusal("WaitingForQuota", cause="NoLongerFits")
            self._requeue(entry, "FailedAfterNomination", refusal, goes_on=False)
            return
        if not self.room.fits(entry):
            self._lose(entry)
            return
        assignment = entry.assignment
        if self._blocks and assignment.held is None and self._awaits_pods():
            self._skip(entry, Refusal("WaitingForPodsReady", cause="AwaitsPods"))
            return
        if self._gates.concurrent_admission and self._migrates(entry):
            return
        self.room.keep(entry)
        self.actions.append(
            Admit(
                workload=entry.ticket.workload,
                admission=assignment.admission(entry.queue),
                level=assignment.level,
                charges=assignment.charges,
                considered=assignment.considered() if assignment.hindered else (),
            )
        )

    def _awaits_pods(self) -> bool:
        """Tell whether pods of an admitted workload, also of this cycle, are not ready yet."""
        return any(isinstance(each, Admit) for each in self.actions) or self._state.awaits_pods()

    def _steps_back(self, entry: NominatedWorkload) -> bool:
        """Leave a workload for another cycle before all else; tell whether it is so.

        That is a variant for which there is a better one, and a successor that fits no more.
        """
        if entry.key in self._refilled and not self.room.fits(entry):
            return True
        if not self._gates.concurrent_admission:
            return False
        surpassed = is_surpassed(self._state, entry.options.spec, entry.ticket.workload)
        if surpassed:
            self._skip(entry, Refusal("PendingEvaluation", cause="Surpassed"))
        return surpassed

    def _migrates(self, entry: NominatedWorkload) -> bool:
        """Stop the admitted variant in whose place this one comes; tell whether there is one."""
        workload, spec = entry.ticket.workload, entry.options.spec
        siblings = admitted_siblings(self._state, workload)
        if not siblings:
            return False
        cause = outcome_of_migration(spec, workload)
        if cause == "Migrates":
            self.room.keep(entry)
            self.actions += [
                Evict(workload=each.workload, reason="FlavorMigration")
                for each in siblings
                if not each.assumed
            ]
        self._requeue(entry, "PendingMigration", Refusal("PendingEvaluation", cause=cause))
        return True

    def _preempt_if_it_helps(self, entry: NominatedWorkload) -> None:
        assignment, gates = entry.assignment, self._gates
        gated = gates.concurrent_admission or gates.multi_kueue_orchestrated_preemption
        if not entry.targets:
            self.room.reserve(entry)
            self._requeue(entry, "PreemptionNoCandidates", assignment.refusal)
        elif gated and entry.ticket.workload.gated:
            self._requeue(entry, "PreemptionGated", assignment.refusal, goes_on=False)
        elif self.room.overlaps(entry):
            self.skipped.append(entry.queue)
            self._skip(entry, Refusal("WaitingForQuota", cause="TargetsTaken"))
        elif not self.room.fits(entry):
            self.skipped.append(entry.queue)
            self._lose(entry)
        else:
            self._preempt(entry, assignment.refusals)

    def _gives_up(self, entry: NominatedWorkload) -> bool:
        """Evict or requeue a workload that has quota and cannot be placed; tell whether it is so.

        One that preempts for its place is processed like any other.
        """
        workload, refusal = entry.ticket.workload, entry.assignment.refusal
        if workload.failed_node and self._gates.tas_failed_node_replacement_fail_fast:
            self.actions.append(Evict(workload=workload, reason="NodeFailures", refusal=refusal))
            return True
        if not entry.targets:
            self._requeue(entry, "SecondPassFailed", refusal, goes_on=False)
        return not entry.targets

    def _lose(self, entry: NominatedWorkload) -> None:
        missing = entry.assignment.shortfall(self._state.tree)
        refusal = Refusal("WaitingForQuota", cause="NoLongerFits", explain=lambda: missing)
        self._skip(entry, refusal)

    def _preempt(
        self, entry: NominatedWorkload, missing: Callable[[], tuple[PodSetRefusal, ...]]
    ) -> None:
        self.room.keep(entry)
        self.actions.extend(self.room.preempt(entry))
        pending = len(entry.targets)
        refusal = Refusal("WaitingForPreemptedWorkloads", explain=missing, pending=pending)
        self._requeue(entry, "PendingPreemption", refusal, goes_on=False)
        self._extension.preempted(entry)

    def _skip(self, entry: NominatedWorkload, refusal: Refusal) -> None:
        goes_on = self._gates.flavor_fungibility_preserve_scan_progress
        self._requeue(entry, "FailedAfterNomination", refusal, goes_on=goes_on)

    def _requeue(
        self,
        entry: NominatedWorkload,
        reason: RequeueReason,
        refusal: Refusal,
        *,
        goes_on: bool = True,
    ) -> None:
        ticket, options, strict = entry.ticket, entry.options, entry.options.spec.strict
        if self._extension.active:
            refusal, strict = self._extension.requeued(entry, refusal, strict=strict)
        progress = self._nominator.progress(entry) if goes_on else None
        inadmissible = becomes_inadmissible(reason, progress, strict=strict)
        self.actions.append(
            Requeue(
                workload=ticket.workload,
                reason=reason,
                refusal=refusal,
                requests=ticket.requests(options).totals,
                inadmissible=inadmissible,
                progress=None if inadmissible else progress,
            )
        )


def turns(
    entries: Iterable[NominatedWorkload],
    tree: QuotaTree,
    settings: QueueingSettings,
    successor: Successor,
) -> Iterator[NominatedWorkload]:
    """Yield entries as they have their turn."""
    if settings.fair_sharing is None:
        yield from in_turn(entries, settings.gates)
    else:
        yield from tournament(entries, tree, settings.gates, successor)


def in_turn(entries: Iterable[NominatedWorkload], gates: Gates) -> list[NominatedWorkload]:
    """Return entries in their order without fair sharing; first those that are only placed."""
    by_priority = gates.priority_sorting_within_cohort
    preemptors_first = gates.prioritize_preemptor_workloads

    def turn(entry: NominatedWorkload) -> tuple[bool, bool, int, tuple[object, ...]]:
        ticket, chosen = entry.ticket, entry.assignment
        later = preemptors_first and not ticket.preemptor
        rank = ticket.rank if by_priority else ticket.rank[1:]
        return chosen.held is None, later, chosen.level, rank

    return sorted(entries, key=turn)


def tournament(
    entries: Iterable[NominatedWorkload],
    tree: QuotaTree,
    gates: Gates,
    successor: Successor = lambda _entry: None,
) -> Iterator[NominatedWorkload]:
    """Yield entries, at each turn the one whose share of the cohorts would be lowest.

    In every cohort the best of each child meet, and are compared by the children's shares as they
    would be then; the best goes on to the cohort above. Between trees, and between equals, names
    decide. Usage may change between two turns as the winner's turn makes it: in its queue and
    above. Of several entries of a ClusterQueue the last takes part. The `successor` of an entry
    that had its turn takes its place, if there is one.
    """
    left = {entry.options.node: entry for entry in entries}

    def match(child: QuotaNode, best: QuotaNode) -> Key | None:
        """Return the rank of the best below `child` in the cohort above."""
        if best not in left:
            return None
        charges = left[best].assignment.charges
        with tree.trial():
            tree.charge(charges)
            share = share_of(tree, child)
        wanted = [tree.names[cell] for cell, amount in charges.items() if amount]
        return tournament_key(left[best].ticket, share, wanted, gates)

    for root in sorted({node.root for node in left}, key=lambda node: (node.queue, node.name)):
        heap = CohortHeap([node for node in left if node.root is root], match)
        while (winner := heap.best(root)) is not None and winner in left:
            entry = left.pop(winner)
            yield entry
            if (following := successor(entry)) is not None:
                left[winner] = following
            heap.changed(winner)


def tournament_key(
    ticket: Ticket, share: BorrowedShare, wanted: Iterable[FlavorResource], gates: Gates
) -> Key:
    """Rank a workload in a cohort; the lowest wins.

    The share is that of the cohort's child that it is below, with `wanted` counted as used.
    """
    borrows = any(names in share.borrowed for names in wanted)
    return (
        gates.prioritize_preemptor_workloads and not ticket.preemptor,
        gates.fair_sharing_prioritize_non_borrowing and borrows,
        share.rank,
        -ticket.workload.priority if gates.priority_sorting_within_cohort else 0,
        ticket.workload.queued_at,
    )


def reserved_charges(tree: QuotaTree, assignment: Assignment) -> dict[int, int]:
    """Return the part of an assignment that is kept free for a workload that has to wait for it.

    Without borrowing that is its own queue's unused quota; else the amount that it may borrow. An
    assignment that fits is kept whole.
    """
    if assignment.mode is FIT:
        return assignment.charges
    kept: dict[int, int] = {}
    for cell, amount in assignment.charges.items():
        most = tree.nominal[cell] - tree.usage[cell]
        if assignment.level:
            limit = tree.borrowing_limit[cell]
            most = amount if limit is None else most + limit
        kept[cell] = max(0, min(amount, most))
    return kept


def variant_rank(spec: QueueSpec, workload: QueuedWorkload) -> int:
    """Return the place of a variant's flavor in its queue: the lower, the better."""
    places = {name: index for index, name in enumerate(spec.flavors)}
    named = workload.allowed_flavors or ()
    return min((places.get(name, len(places)) for name in named), default=len(places))


def admitted_siblings(state: CoreState, workload: QueuedWorkload) -> list[Holding]:
    """Return the other variants of the same workload that are admitted, or will be in a moment."""
    queue = state.queues.get(workload.cluster_queue)
    if queue is None or not workload.variant_of:
        return []
    return [
        holding
        for holding in queue.holdings.values()
        if holding.workload.variant_of == workload.variant_of
        and (holding.workload.admitted or holding.assumed)
        and holding.workload.key != workload.key
    ]


def is_surpassed(state: CoreState, spec: QueueSpec, workload: QueuedWorkload) -> bool:
    """Tell whether a variant with a better flavor is admitted."""
    rank = variant_rank(spec, workload)
    siblings = admitted_siblings(state, workload)
    return any(variant_rank(spec, each.workload) < rank for each in siblings)


def outcome_of_migration(spec: QueueSpec, workload: QueuedWorkload) -> Cause:
    """Return why a variant waits that could take the place of an admitted one.

    Returns:
        `Migrates` if the admitted one is to be stopped; `NotAcceptable` if it goes on.
    """
    if not spec.migrates:
        return "NotAcceptable"
    last = spec.last_acceptable
    places = spec.flavors.index(last) if last in spec.flavors else len(spec.flavors)
    return "Migrates" if variant_rank(spec, workload) <= places else "NotAcceptable"
