"""What room a cycle has left, given what it decided so far."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from policyd.alloc.amount import total_of
from policyd.alloc.cluster_queue import Holding, Victim
from policyd.alloc.entry import NominatedWorkload, reserved_charges
from policyd.alloc.extension import CycleExtension
from policyd.alloc.hierarchy import QuotaNode
from policyd.alloc.plan import Preempt
from policyd.alloc.state import CoreState
from policyd.alloc.topology.assignments import without
from policyd.alloc.topology.placing import room_for
from policyd.alloc.topology.values import Placement


class CycleRoom:
    """Quota and places that are left, those included of whom the cycle preempts: its victims."""

    def __init__(self, state: CoreState, extension: CycleExtension) -> None:
        self.victims: dict[str, Holding] = {}
        self._freed: dict[QuotaNode, dict[int, int]] = {}
        self._ground = state.ground
        self._tree = state.tree
        self._gates = state.settings.gates
        self._extension, self._taken = extension, False

    def overlaps(self, entry: NominatedWorkload) -> bool:
        """Tell whether somebody whom a workload would preempt is a victim already."""
        return any(target.workload.key in self.victims for target in entry.targets)

    def fits(self, entry: NominatedWorkload) -> bool:
        """Tell whether there is room, those that are or would be preempted being gone."""
        tree, charges = self._tree, entry.assignment.charges
        if not (self._taken or self._extension.active):
            return True  # nothing has changed since it was nominated
        if not (self.victims or entry.targets or entry.assignment.placements):
            return tree.fits(charges)
        with self.without_victims(entry.options.node.root, entry.targets):
            return tree.fits(charges) and self._has_places(entry)

    def lost_places(self, entry: NominatedWorkload) -> bool:
        """Tell whether others took the places of a workload in this cycle, and only these."""
        recomputes = self._gates.tas_recompute_assignment_within_scheduling_cycle
        if not recomputes or not self._taken:
            return False
        with self.without_victims(entry.options.node.root, entry.targets):
            return self._tree.fits(entry.assignment.charges) and not self._has_places(entry)

    @contextmanager
    def without_victims(self, root: QuotaNode, targets: Iterable[Victim] = ()) -> Iterator[None]:
        """Take away, for a trial, what the victims hold of a tree and of nodes, and some more."""
        with self._ground.trial():
            self._tree.release(self._freed.get(root, {}))
            for key, holding in self.victims.items() if self._ground.nodes.trees else ():
                if holding.placements:
                    self._ground.nodes.drop(key)
            for target in targets:
                if target.workload.key not in self.victims:
                    self._ground.release(target.holding)
            yield

    def preempt(self, entry: NominatedWorkload) -> list[Preempt]:
        """Count a workload's targets as gone; return what is to be done, but for those stopping."""
        targets = {target.workload.key: target.holding for target in entry.targets}
        new = [holding.charges for key, holding in targets.items() if key not in self.victims]
        root = entry.options.node.root
        self._freed[root] = total_of(self._freed.get(root, {}), *new)
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
        """Keep quota for somebody, who may not get it yet, from those that come later."""
        self._tree.charge(entry.assignment.charges)
        self._occupy(entry)
        self._extension.kept(entry)

    def reserve(self, entry: NominatedWorkload) -> None:
        """Keep quota for somebody who has to wait and can preempt nobody."""
        # Whoever may reclaim from anybody gets its quota back anyway; the others would see it go
        # to those that come later in the cycle.
        waits = self._gates.prioritize_preemptor_workloads and entry.ticket.preemptor
        if self._extension.holds_for(entry):
            return
        if waits or entry.options.spec.preemption.reclaim_within_cohort != "Any":
            self._tree.charge(reserved_charges(self._tree, entry.assignment))
            self._occupy(entry)

    def _occupy(self, entry: NominatedWorkload) -> None:
        self._taken = True
        if entry.assignment.placements:
            places = (*self._places_of(entry), *self._left_behind(entry))
            self._ground.nodes.hold(entry.ticket.workload.key, places)

    def _left_behind(self, entry: NominatedWorkload) -> tuple[Placement, ...]:
        """Return the places that pods leave; in this cycle nobody else gets them."""
        if entry.assignment.held is None:
            return ()
        found = entry.assignment.admission(entry.queue)
        left = [
            replace(old, placement=without(old.placement, new.placement))
            for old, new in zip(entry.assignment.held.pod_sets, found.pod_sets, strict=True)
            if old.placement is not None and new.placement is not None
        ]
        return self._ground.placements(replace(found, pod_sets=tuple(left)))

    def _has_places(self, entry: NominatedWorkload) -> bool:
        """Tell whether there is still room just where the pods are to go."""
        if not entry.assignment.placements:
            return True
        self._ground.vacate(entry.ticket.workload.key)
        return room_for(self._ground.nodes, self._places_of(entry))

    def _places_of(self, entry: NominatedWorkload) -> tuple[Placement, ...]:
        return self._ground.placements(entry.assignment.admission(entry.queue))
