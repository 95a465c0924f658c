"""Places beside quota: where the pods of a workload go that got flavors with a topology.

Quota is looked for first. If there is quota and no place, others must make room, as if quota were
missing; if not even a cluster without them had a place, nothing helps.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from msgspec.structs import replace as with_fields

from policyd.alloc.flavors.assignment import Assignment
from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.ledger import Victim
from policyd.alloc.reasons import Mode, Unplaced
from policyd.alloc.state import CoreState
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.placement import fits, place
from policyd.alloc.topology.values import Placement, PlacementRequest, TopologyPlacement, Unusable
from policyd.alloc.workload import PodSetFlavors, QueuedWorkload

_Unplaced = dict[str, tuple[Unplaced, ...]]


class Placer:
    """Places one workload with one choice of flavors; there may be `nothing` to place."""

    def __init__(
        self,
        state: CoreState,
        options: QueueOptions,
        workload: QueuedWorkload,
        assignment: Assignment,
    ) -> None:
        self._state = state
        self._nodes = state.ledger.nodes
        self._workload = workload
        self._assignment = assignment
        self._gates = state.settings.gates
        self._requests: dict[str, list[PlacementRequest]] = {}
        self._delayed: set[str] = set()
        self._unusable: dict[str, Unusable] = {}
        self._take_in(options)
        self.nothing = not (self._requests or self._delayed or self._unusable)
        # A workload that is moved waits for the places that are held for it.
        self._moves = assignment.held is None and workload.key in self._nodes.held

    @property
    def requests(self) -> Mapping[str, Sequence[PlacementRequest]]:
        """The requests by flavor, wherever the workload is now."""
        return {
            flavor: [with_fields(each, held=None) for each in wanted]
            for flavor, wanted in self._requests.items()
        }

    @property
    def placeable(self) -> bool:
        """Whether all of it can be placed now, if there is room."""
        return not (self._unusable or self._delayed)

    def placed(self) -> Assignment:
        """Return the assignment with places, or its next best result without them."""
        assignment = self._assignment
        if assignment.mode is Mode.NO_FIT or self.nothing:
            return assignment
        if self._unusable:
            wrong = {name: (Unplaced(why=why),) for name, why in self._unusable.items()}
            return replace(assignment, mode=Mode.NO_FIT, unplaced=wrong)
        assignment = replace(assignment, delayed=frozenset(self._delayed))
        if assignment.mode is Mode.FIT:
            placements, unplaced = self._try(empty=False)
            if not unplaced:
                return replace(assignment, placements=placements)
            assignment = replace(assignment, mode=Mode.PREEMPT, unplaced=unplaced)
        if self._workload.failed_node:
            return assignment
        placements, unplaced = self._try(empty=True)
        if unplaced:
            return replace(assignment, mode=Mode.NO_FIT, unplaced=unplaced)
        return replace(assignment, placements=placements, occupied=self._cells())

    def fits(self) -> bool:
        """Tell whether there are places now."""
        if self._workload.failed_node or self._workload.replaces or self._moves:
            return not self._try(empty=False)[1]
        return fits(self._nodes, self._requests, gates=self._gates)

    def after(self, assignment: Assignment, victims: Collection[Victim]) -> Assignment:
        """Return an assignment with the places that there are once victims are gone."""
        with self._state.ledger.trial():
            for victim in victims:
                self._state.ledger.release(victim.holding)
            placements, unplaced = self._try(empty=False)
        return assignment if unplaced else replace(assignment, placements=placements)

    def _try(self, *, empty: bool) -> tuple[dict[str, Placement], _Unplaced]:
        """Return where the pods can go, and why some cannot, by pod set."""
        with self._state.ledger.trial():
            if self._workload.replaces:
                self._nodes.drop(self._workload.replaces)
            if self._moves:
                self._nodes.drop(self._workload.key)
            failed, gates = self._workload.failed_node, self._gates
            found = place(self._nodes, self._requests, gates=gates, empty=empty, failed_node=failed)
        placements: dict[str, Placement] = {}
        unplaced: _Unplaced = {}
        for flavor, wanted in self._requests.items():
            for request in wanted:
                outcome = found.get(request.pod_set)
                if isinstance(outcome, TopologyPlacement):
                    placements[request.pod_set] = Placement(
                        flavor=flavor, assignment=outcome, requests=request.requests
                    )
                elif outcome is not None:
                    unplaced[request.pod_set] = (Unplaced(why=outcome),)
        return placements, dict([*unplaced.items()][:1])

    def _cells(self) -> frozenset[int]:
        """Return the cells of the flavors whose nodes are wanted."""
        holding = self._state.holding(self._workload.key)
        charges = self._assignment.charges if holding is None else holding.charges
        names = self._state.tree.names
        return frozenset(cell for cell in charges if names[cell][0] in self._requests)

    def _take_in(self, options: QueueOptions) -> None:
        """Sort pod sets into requests by flavor, delayed ones, and those that are unusable."""
        workload, assignment, spec = self._workload, self._assignment, options.spec
        asked = {p.name: p.place for p in workload.pod_sets if p.placed or options.places_all}
        holding = self._state.holding(workload.replaces or workload.key)
        had = () if holding is None else holding.admission.pod_sets
        held = {each.name: each.placement for each in had}
        for got in assignment.pod_sets:
            wanted = asked.get(got.name)
            if wanted is None or not got.count:
                continue
            free = wanted.mode == "Unconstrained"  # pods of others cannot stay: all are placed anew
            kept = held.get(got.name) if free or not workload.replaces else None
            wanted = with_fields(wanted, count=got.count, held=kept)
            request = self._state.extension.request(spec, workload, wanted)
            flavors = sorted(set(got.flavors.values()) & options.topologies.keys())
            free = free or not self._gates.elastic_jobs_via_workload_slices_with_tas
            wrong = _unusable(options, request, flavors, free=free or not workload.elastic)
            if spec.elsewhere:
                self._delayed.add(got.name)
            elif wrong is not None:
                self._unusable[got.name] = wrong
            elif assignment.held is None and flavors[0] in spec.delayed:
                self._delayed.add(got.name)
            elif assignment.held is None or self._needs_placement(request, got):
                self._requests.setdefault(flavors[0], []).append(request)

    def _needs_placement(self, request: PlacementRequest, got: PodSetFlavors) -> bool:
        """Tell whether a pod set with quota has pods on the failed node, or no places yet."""
        host = self._workload.failed_node
        if not host:
            return got.delay == "Pending"
        return request.held is not None and any(d[-1] == host for d, _ in request.held.domains)


def room_for(nodes: Nodes, placements: Iterable[Placement]) -> bool:
    """Tell whether there is room for pods just where they were placed."""
    needed: dict[tuple[object, tuple[str, ...], str], int] = {}
    for placement in placements:
        tree = nodes.trees.get(placement.flavor)
        if tree is None:
            return False
        for domain, count in placement.assignment.domains:
            leaf = tree.leaves.get(domain)
            if leaf is None:
                return False
            for resource, amount in {**placement.requests, "pods": 1}.items():
                key = (tree.to_nodes or placement.flavor, domain, resource)
                needed[key] = needed.get(key, 0) + amount * count
                if needed[key] > max(0, tree.free.left(resource, leaf)):
                    return False
    return True


def _unusable(
    options: QueueOptions,
    request: PlacementRequest,
    flavors: Sequence[str],
    *,
    free: bool,
) -> Unusable | None:
    """Return why a pod set cannot be placed with its flavors, regardless of nodes.

    `free` is whether its job may ask for that: one that grows and shrinks may not, with its gate.
    """
    if not options.topologies:
        return Unusable(kind="NoTopology", names=())
    if not flavors:
        return Unusable(kind="FlavorMissing", names=())
    if len(flavors) > 1:
        return Unusable(kind="FlavorsSeveral", names=(", ".join(flavors),))
    if not free:
        return Unusable(kind="ElasticNotFree", names=(request.mode.lower(),))
    return None
