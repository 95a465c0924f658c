"""Places beside quota: where the pods of a workload go that got flavors with a topology.

Quota is looked for first. If there is quota and no place, others must make room, as if quota were
missing; if not even a cluster without them had a place, nothing helps.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from msgspec.structs import replace as with_fields

from policyd.alloc.flavors.assignment import Assignment
from policyd.alloc.flavors.options import QueueOptions
from policyd.alloc.ledger import Victim
from policyd.alloc.reasons import Mode, Unplaced
from policyd.alloc.state import CoreState
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.placement import fits, place
from policyd.alloc.topology.values import Placement, PlacementRequest, TopologyPlacement, Unusable
from policyd.alloc.workload import QueuedWorkload

_Unplaced = dict[str, tuple[Unplaced, ...]]


class _Asked(NamedTuple):
    """What a workload asks of topologies, given its flavors.

    Attributes:
        requests: By flavor.
        delayed: Pod sets that get their place later.
        unusable: Why pod sets cannot be placed whatever nodes there are.
    """

    requests: Mapping[str, list[PlacementRequest]]
    delayed: frozenset[str]
    unusable: Mapping[str, Unusable]


class Placer:
    """Places one workload with one choice of flavors, with what the state's nodes hold when asked.

    There may be `nothing` to be placed, now or later.
    """

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
        self._asked = _asked(state, options, workload, assignment)
        self._gates = state.settings.gates
        self.nothing = not any(self._asked)
        # Who is moved waits for the places that are held for it.
        self._moves = assignment.held is None and workload.key in self._nodes.held

    @property
    def requests(self) -> Mapping[str, Sequence[PlacementRequest]]:
        """What the workload asks of topologies, by flavor, wherever it is now."""
        return {
            flavor: [with_fields(each, held=None) for each in wanted]
            for flavor, wanted in self._asked.requests.items()
        }

    @property
    def placeable(self) -> bool:
        """Whether all it asks can be answered, and now."""
        return not (self._asked.unusable or self._asked.delayed)

    def placed(self) -> Assignment:
        """Return the assignment with places, or changed to what is left without them."""
        assignment, asked = self._assignment, self._asked
        if assignment.mode is Mode.NO_FIT or self.nothing:
            return assignment
        if asked.unusable:
            wrong = {name: (Unplaced(why=why),) for name, why in asked.unusable.items()}
            return replace(assignment, mode=Mode.NO_FIT, unplaced=wrong)
        assignment = replace(assignment, delayed=asked.delayed)
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
        return replace(assignment, placements=placements, crowded=self._cells())

    def fits(self) -> bool:
        """Tell whether there are places now."""
        if self._workload.failed_node or self._workload.replaces or self._moves:
            return not self._try(empty=False)[1]
        return fits(self._nodes, self._asked.requests, gates=self._gates)

    def after(self, assignment: Assignment, victims: Collection[Victim]) -> Assignment:
        """Return an assignment with the places that there are once victims are gone."""
        with self._state.ledger.trial():
            for victim in victims:
                self._state.ledger.release(victim.holding)
            placements, unplaced = self._try(empty=False)
        return assignment if unplaced else replace(assignment, placements=placements)

    def _try(self, *, empty: bool) -> tuple[dict[str, Placement], _Unplaced]:
        """Return where the pods can go, and why some cannot, by pod set."""
        requests = self._asked.requests
        with self._state.ledger.trial():
            if self._workload.replaces:
                self._nodes.drop(self._workload.replaces)
            if self._moves:
                self._nodes.drop(self._workload.key)
            found = place(
                self._nodes,
                requests,
                gates=self._gates,
                empty=empty,
                failed_node=self._workload.failed_node,
            )
        placements: dict[str, Placement] = {}
        unplaced: _Unplaced = {}
        for flavor, wanted in requests.items():
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
        return frozenset(cell for cell in charges if names[cell][0] in self._asked.requests)


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


def _asked(
    state: CoreState, options: QueueOptions, workload: QueuedWorkload, assignment: Assignment
) -> _Asked:
    requests: dict[str, list[PlacementRequest]] = {}
    delayed, unusable = set(), {}
    held = _held_before(state, workload)
    for name, count, flavors in ((p.name, p.count, p.flavors) for p in assignment.pod_sets):
        request = _request(state, options, workload, name, count)
        if request is None:
            continue
        wanted = sorted(set(flavors.values()) & options.topologies.keys())
        wrong = _unusable(options, workload, request, wanted)
        if options.spec.elsewhere:
            delayed.add(name)
        elif wrong is not None:
            unusable[name] = wrong
        elif assignment.held is None and wanted[0] in options.spec.delayed:
            delayed.add(name)
        else:
            placed = with_fields(request, held=held.get(name))
            requests.setdefault(wanted[0], []).append(placed)
    if assignment.held is not None:
        requests = _missing(workload, assignment, requests)
    return _Asked(requests, frozenset(delayed), unusable)


def _unusable(
    options: QueueOptions,
    workload: QueuedWorkload,
    request: PlacementRequest,
    flavors: Sequence[str],
) -> Unusable | None:
    """Return why a pod set cannot be placed with its flavors, whatever nodes there are."""
    if not options.topologies:
        return Unusable(kind="NoTopology", names=())
    if not flavors:
        return Unusable(kind="FlavorMissing", names=())
    if len(flavors) > 1:
        return Unusable(kind="FlavorsSeveral", names=(", ".join(flavors),))
    if workload.elastic and request.mode != "Unconstrained":
        return Unusable(kind="ElasticNotFree", names=(request.mode.lower(),))
    return None


def _missing(
    workload: QueuedWorkload, assignment: Assignment, requests: Mapping[str, list[PlacementRequest]]
) -> dict[str, list[PlacementRequest]]:
    """Leave of requests those of a second pass: of pods on a failed node, or without places yet."""
    assert assignment.held is not None, "who is placed again has something"
    waiting = {each.name for each in assignment.held.pod_sets if each.delay == "Pending"}

    def lacks(request: PlacementRequest) -> bool:
        if not workload.failed_node:
            return request.pod_set in waiting
        domains = () if request.held is None else request.held.domains
        return any(domain[-1] == workload.failed_node for domain, _ in domains)

    found = {flavor: list(filter(lacks, wanted)) for flavor, wanted in requests.items()}
    return {flavor: wanted for flavor, wanted in found.items() if wanted}


def _request(
    state: CoreState, options: QueueOptions, workload: QueuedWorkload, name: str, count: int
) -> PlacementRequest | None:
    """Return what a pod set asks of a topology; None if it asks for nothing."""
    pod_set = next((each for each in workload.pod_sets if each.name == name), None)
    if pod_set is None or pod_set.place is None or not count:
        return None
    if not pod_set.placed and not options.places_all:
        return None
    return state.extension.request(options.spec, workload, with_fields(pod_set.place, count=count))


def _held_before(state: CoreState, workload: QueuedWorkload) -> dict[str, TopologyPlacement | None]:
    """Return where the pods of a workload are, or those of the slice that it replaces."""
    holding = state.holding(workload.replaces or workload.key)
    pod_sets = () if holding is None else holding.admission.pod_sets
    return {each.name: each.placement for each in pod_sets}
