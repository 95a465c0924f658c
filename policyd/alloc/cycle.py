"""One scheduling cycle: the next workload of every queue, and what to do with each.

1. *Nominate*: for each of them, choose flavors, and victims if need be, as if it were alone.
2. *Order*: those that borrow least first; then by priority, then by age. With fair sharing, who
   would have the lowest share of its cohort is next.
3. *Process* one after the other, each with the usage of those before it. What had room when it was
   nominated may have lost it, and waits for the next cycle. Nobody is preempted for two workloads:
   who counted on victims that are already taken chooses again as if they were gone, but keeps its
   flavors. What waits for quota of its own queue keeps others from borrowing that quota away in
   the same cycle.

Usage is changed on the way and taken back at the end: planning leaves the state as it was.
"""

from collections.abc import Callable, Iterable, Iterator

from policyd.alloc.cluster_queue import Holding, Victim
from policyd.alloc.consolidation import claim_of, consolidate
from policyd.alloc.entry import Entry, in_tournament, in_turn, reserved_charges
from policyd.alloc.nominate import Chooser, Nominator
from policyd.alloc.options import QueueOptions
from policyd.alloc.pending import Ticket, waits_aside
from policyd.alloc.placing import room_for
from policyd.alloc.plan import (
    Action,
    Admit,
    Evict,
    Move,
    Plan,
    Preempt,
    Recomputation,
    Requeue,
    RequeueReason,
)
from policyd.alloc.reasons import Mode, PodSetRefusal, Refusal
from policyd.alloc.reservation import Reservations
from policyd.alloc.search import Scan
from policyd.alloc.state import State
from policyd.alloc.timing import stale_gangs
from policyd.alloc.topology.values import Placement
from policyd.alloc.workload import Objection

# Python 3.11 calls a function for each member of an enum that is named.
_FIT, _NO_FIT = Mode.FIT, Mode.NO_FIT


def plan_cycle(state: State) -> Plan:
    """Decide what to do with the next workload of every active queue.

    Args:
        state: Left as it was; `state.commit(plan)` carries the plan out in it.
    """
    cycle = _Cycle(state)
    cycle.nominate()
    with state.ground.trial():
        for entry in cycle.ordered():
            cycle.process(entry)
    return Plan(
        actions=tuple(cycle.actions),
        revision=state.revision,
        skipped=tuple(cycle.skipped),
        recomputed=tuple(cycle.recomputed),
        reserved={} if cycle.reserved is None else cycle.reserved.holders,
        moves=tuple(cycle.moves),
    )


class _Cycle:
    """A cycle on its way.

    Attributes:
        actions: What was decided so far.
        skipped: Queues whose workloads could have preempted, had another not come before.
        recomputed: Queues whose victims were chosen again, and what came of it.
        reserved: What is held for some; None if no queue wants anything of that kind.
        moves: Places to hold for those that are moved.
    """

    def __init__(self, state: State) -> None:
        self.actions: list[Action] = []
        self.skipped: list[str] = []
        self.recomputed: list[tuple[str, Recomputation]] = []
        self.reserved: Reservations | None = None
        self.moves: list[Move] = []
        self._state = state
        self._ground = state.ground
        self._tree = state.tree
        self._gates = state.settings.gates
        self._blocks = state.settings.blocks_until_ready
        self._nominator = Nominator(state)
        self._entries: list[Entry] = []
        self._victims: dict[str, Holding] = {}
        self._taken = False

    # Nominate.

    def nominate(self) -> None:
        """Choose for the next workload of every queue."""
        for options, ticket in self._state.heads():
            objection = None if ticket.plain else ticket.workload.objection
            if objection is None:
                self._entries.append(self._nominator.entry(ticket, options))
            else:
                self._set_aside(options, ticket, objection)
        if self._state.opted:
            self.reserved = Reservations(self._state)
            self.actions.extend(stale_gangs(self._state))

    # Order.

    def ordered(self) -> Iterator[Entry]:
        """Yield the nominated in the order of their turns, which processing may still change."""
        state = self._state
        again = [each for each in self._entries if each.assignment.held is not None]
        first = [each for each in self._entries if each.assignment.held is None]
        yield from again
        if state.settings.fair_sharing is None:
            yield from in_turn(first, self._gates)
            return
        yield from in_tournament(first, self._tree, self._gates)

    # Process.

    def process(self, entry: Entry) -> None:
        """Decide about one of the nominated."""
        if self.reserved is not None and self._consolidate(entry, self.reserved):
            return
        deferred = self._mend(entry)
        mode = entry.assignment.mode
        if mode is not _FIT and entry.assignment.held is not None and self._gives_up(entry):
            return
        if mode is _NO_FIT:
            self._requeue(entry, "NoFit", entry.assignment.refusal)
        elif deferred:
            self._defer(entry)
        elif self.reserved is not None and self._yields(entry, self.reserved):
            pass
        elif mode is _FIT:
            self._admit_if_it_fits(entry)
        else:
            self._preempt_if_it_helps(entry)

    def _mend(self, entry: Entry) -> bool:
        """Choose again what others took; tell whether it fits once their victims are gone."""
        if entry.targets and self._overlaps(entry):
            gates = self._gates
            recomputes = gates.recompute_assignment_upon_preemption_targets_overlap
            return recomputes and self._choose_again(entry)
        if entry.assignment.placements and self._lost_places(entry):
            self._choose(entry)
        return False

    def _yields(self, entry: Entry, reserved: Reservations) -> bool:
        """Let a workload wait that fits, but would delay one for which quota is held."""
        refusal = reserved.refusal(entry) if self._fits(entry) else None
        if refusal is not None:
            self._requeue(entry, "Generic", refusal, goes_on=False)
        return refusal is not None

    def _consolidate(self, entry: Entry, reserved: Reservations) -> bool:
        """Move others out of the way of a workload that does not fit, if its queue wants that."""
        wants = entry.options.spec.opt_ins.moves and entry.assignment.mode is not _FIT
        if not wants or self._victims or entry.options.topologies or reserved.of(entry):
            return False
        found = consolidate(self._state, entry)
        if found is None:
            return False
        missing = entry.assignment.refusals
        entry.assignment, entry.targets, moves = found
        self.moves.extend(moves)
        self._preempt(entry, missing)
        reserved.hold(moves[1:])
        return True

    def _admit_if_it_fits(self, entry: Entry) -> None:
        if not self._fits(entry):
            self._lose(entry)
            return
        if self._blocks and entry.assignment.held is None and self._awaits_pods():
            self._skip(entry, Refusal("WaitingForPodsReady", cause="AwaitsPods"))
            return
        assignment = entry.assignment
        self._keep(entry)
        ticket = entry.ticket
        self.actions.append(
            Admit(
                workload=ticket.workload,
                admission=assignment.admission(entry.queue),
                level=assignment.level,
                charges=assignment.charges,
                considered=assignment.considered() if assignment.hindered else (),
            )
        )

    def _awaits_pods(self) -> bool:
        started = any(isinstance(action, Admit) for action in self.actions)
        return started or self._state.register.awaits_pods()

    def _preempt_if_it_helps(self, entry: Entry) -> None:
        assignment = entry.assignment
        if not entry.targets:
            self._reserve(entry)
            self._requeue(entry, "PreemptionNoCandidates", assignment.refusal)
        elif self._gated(entry):
            self._requeue(entry, "PreemptionGated", assignment.refusal, goes_on=False)
        elif self._overlaps(entry):
            self.skipped.append(entry.queue)
            self._skip(entry, Refusal("WaitingForQuota", cause="TargetsTaken"))
        elif not self._fits(entry):
            self.skipped.append(entry.queue)
            self._lose(entry)
        else:
            self._preempt(entry, assignment.refusals)

    def _overlaps(self, entry: Entry) -> bool:
        return any(target.workload.key in self._victims for target in entry.targets)

    def _fits(self, entry: Entry) -> bool:
        """Tell whether there is room, those that are or would be preempted being gone."""
        tree, charges = self._tree, entry.assignment.charges
        if not self._taken and self.reserved is None:
            return True  # nothing has changed since it was nominated
        if not (self._victims or entry.targets or entry.assignment.placements):
            return tree.fits(charges)
        gone = self._victims | _holdings(entry.targets)
        with self._ground.trial():
            for holding in gone.values():
                self._ground.release(holding)
            return tree.fits(charges) and self._has_places(entry)

    def _has_places(self, entry: Entry) -> bool:
        """Tell whether there is still room just where the pods are to go."""
        if not entry.assignment.placements:
            return True
        self._ground.vacate(entry.ticket.workload.key)
        return room_for(self._ground.nodes, self._places_of(entry))

    def _places_of(self, entry: Entry) -> tuple[Placement, ...]:
        return self._ground.placements(entry.assignment.admission(entry.queue))

    def _lost_places(self, entry: Entry) -> bool:
        """Tell whether others took the places of a workload in this cycle, and only these."""
        recomputes = self._gates.tas_recompute_assignment_within_scheduling_cycle
        if not recomputes or not self._taken:
            return False
        gone = self._victims | _holdings(entry.targets)
        with self._ground.trial():
            for holding in gone.values():
                self._ground.release(holding)
            return self._tree.fits(entry.assignment.charges) and not self._has_places(entry)

    def _choose(self, entry: Entry, removed: tuple[str, ...] = ()) -> None:
        """Choose again, of the same flavors, with what there is now."""
        options, ticket = entry.options, entry.ticket
        requests = ticket.requests(options)
        chooser = Chooser(self._state, options, ticket.workload, requests, options.preempts)
        holding = self._state.holding(ticket.workload.key)
        if holding is not None:
            choice = chooser.place_again(holding, removed)
        else:
            choice = chooser.choose(Scan(pins=entry.assignment.flavors), removed)
        entry.requests, entry.assignment, entry.targets = choice

    def _gives_up(self, entry: Entry) -> bool:
        """Let a workload start over for which a failed node cannot be replaced, if that is wanted.

        Who waits longer for its place is told so.
        """
        workload, refusal = entry.ticket.workload, entry.assignment.refusal
        if workload.failed_node and self._gates.tas_failed_node_replacement_fail_fast:
            self.actions.append(Evict(workload=workload, reason="NodeFailures", refusal=refusal))
            return True
        if not entry.targets:
            self._requeue(entry, "SecondPassFailed", refusal, goes_on=False)
        return not entry.targets

    def _choose_again(self, entry: Entry) -> bool:
        """Choose as if this cycle's victims were gone; tell whether it fits once they are."""
        with self._ground.trial():
            for holding in self._victims.values():
                self._ground.release(holding)
            self._choose(entry, tuple(self._victims))
        deferred = entry.assignment.mode is _FIT
        result: Recomputation = "new_targets" if entry.targets else "skipped"
        self.recomputed.append((entry.queue, "deferred_fit" if deferred else result))
        return deferred

    def _defer(self, entry: Entry) -> None:
        self._keep(entry)
        refusal = Refusal("WaitingForPreemptedWorkloads", cause="FitsAfterOthers")
        self._requeue(entry, "PendingPreemption", refusal, goes_on=False)

    def _gated(self, entry: Entry) -> bool:
        gates = self._gates
        heeded = gates.concurrent_admission or gates.multi_kueue_orchestrated_preemption
        return heeded and entry.ticket.workload.gated

    def _lose(self, entry: Entry) -> None:
        missing = entry.assignment.shortfall(self._tree)
        refusal = Refusal("WaitingForQuota", cause="NoLongerFits", explain=lambda: missing)
        self._skip(entry, refusal)

    def _preempt(self, entry: Entry, missing: Callable[[], tuple[PodSetRefusal, ...]]) -> None:
        self._keep(entry)
        self._victims |= _holdings(entry.targets)
        self.actions.extend(self._preemptions(entry))
        claims = entry.options.spec.opt_ins.claims
        if claims and all(move.key != entry.ticket.workload.key for move in self.moves):
            self.moves.append(claim_of(self._state, entry))
        refusal = Refusal(
            "WaitingForPreemptedWorkloads",
            explain=missing,
            pending=len(entry.targets),
        )
        self._requeue(entry, "PendingPreemption", refusal, goes_on=False)

    def _preemptions(self, entry: Entry) -> Iterator[Preempt]:
        for target in entry.targets:
            holding = target.holding
            if holding.stopping:
                continue
            queue = self._tree.hierarchy.queues[holding.admission.cluster_queue]
            yield Preempt(
                workload=target.workload,
                reason=target.reason,
                preemptor=entry.ticket.workload,
                path=queue.path,
                preemptor_path=entry.options.node.path,
            )

    def _reserve(self, entry: Entry) -> None:
        # Whoever may reclaim from anybody gets its quota back anyway; the others would see it go
        # to those that come later in the cycle.
        waits = self._gates.prioritize_preemptor_workloads and entry.ticket.preemptor
        held = None if self.reserved is None else self.reserved.of(entry)
        if held is not None and held.name == entry.ticket.workload.key:
            return
        if waits or entry.options.spec.preemption.reclaim_within_cohort != "Any":
            self._tree.charge(reserved_charges(self._tree, entry.assignment))
            self._occupy(entry)

    def _keep(self, entry: Entry) -> None:
        """Keep quota for somebody, who may not get it yet, from those that come later."""
        self._tree.charge(entry.assignment.charges)
        self._occupy(entry)
        if self.reserved is not None:
            self.reserved.note(entry)

    def _occupy(self, entry: Entry) -> None:
        self._taken = True
        if entry.assignment.placements:
            self._ground.nodes.hold(entry.ticket.workload.key, self._places_of(entry))

    def _skip(self, entry: Entry, refusal: Refusal) -> None:
        goes_on = self._gates.flavor_fungibility_preserve_scan_progress
        self._requeue(entry, "FailedAfterNomination", refusal, goes_on=goes_on)

    def _requeue(
        self, entry: Entry, reason: RequeueReason, refusal: Refusal, *, goes_on: bool = True
    ) -> None:
        ticket, options, requests = entry.ticket, entry.options, entry.requests
        progress, strict = None, options.spec.strict
        if self.reserved is not None:
            refusal = self.reserved.told(entry, refusal)
            held = self.reserved.of(entry)
            strict = strict and (held is None or held.node is not options.node)
        if goes_on and entry.assignment.unfinished:
            tried = entry.assignment.tried
            progress = self._nominator.progress(tried, ticket, options, requests)
        self.actions.append(
            Requeue(
                workload=ticket.workload,
                reason=reason,
                refusal=refusal,
                requests=ticket.requests(options).totals,
                parked=waits_aside(reason, progress, strict=strict),
                progress=progress,
            )
        )

    def _set_aside(self, options: QueueOptions, ticket: Ticket, objection: Objection) -> None:
        reason: RequeueReason = "NamespaceMismatch" if objection.misplaced else "Generic"
        self.actions.append(
            Requeue(
                workload=ticket.workload,
                reason=reason,
                refusal=Refusal(objection.reason, note=objection.message),
                requests=ticket.requests(options).totals,
                parked=waits_aside(reason, None, strict=options.spec.strict),
            )
        )


def _holdings(victims: Iterable[Victim]) -> dict[str, Holding]:
    return {victim.workload.key: victim.holding for victim in victims}
