"""Placement: where the pods of a workload go.

Pod sets of a group are placed together. Each group has a `goal` in levels of the topology; the
room in each domain is counted, then domains are chosen and share the pods out to leaves, evenly
if `balanced`. Pods of elastic workloads stay where they are; those of a failed node are repaired.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from policyd.alloc.settings import DEFAULTS, Gates
from policyd.alloc.topology.assignments import (
    KeptPods,
    assignment_of,
    kept_places,
    merged,
    repair_of,
    truncated,
)
from policyd.alloc.topology.balanced import balance
from policyd.alloc.topology.feasibility import Feasibility, PlacementCircumstances
from policyd.alloc.topology.fitting import DomainShare, Partial, choose, distribute, holds, is_whole
from policyd.alloc.topology.goal import goal_of
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.values import (
    NoRoom,
    Placement,
    PlacementRequest,
    Refusal,
    TopologyPlacement,
    Unusable,
)

Outcome = TopologyPlacement | Refusal
"""The result for a pod set."""

Outcomes = dict[str, Outcome]
Assignments = dict[str, TopologyPlacement]


class PodSetGroup(NamedTuple):
    """Pod sets that are placed together: workers, and the pod that leads them if there is one."""

    flavor: str
    workers: PlacementRequest
    leader: PlacementRequest | None = None

    @property
    def members(self) -> tuple[PlacementRequest, ...]:
        """All pod sets of the group."""
        return (self.workers,) if self.leader is None else (self.workers, self.leader)


def place(
    nodes: Nodes,
    requests: Mapping[str, Sequence[PlacementRequest]],
    *,
    gates: Gates = DEFAULTS.gates,
    empty: bool = False,
    failed_node: str = "",
) -> Outcomes:
    """Find places for the pod sets of one workload; nothing is charged.

    Flavors are taken by name, pod sets in their order, those of a group together; each sees the
    usage of those before it. The first that cannot be placed ends the search.

    Args:
        nodes: The nodes and their usage.
        requests: The workload's pod sets by the flavor that they got.
        gates: Which of Kueue's rules apply.
        empty: Whether to place as if no workload had places, only pods that are not ours.
        failed_node: Host name of a node whose pods need another place. Places of the pod sets
            elsewhere are kept; pod sets that hold nothing are left out.

    Returns:
        By pod set, its assignment or why it has none; pod sets after one with a refusal are
        missing. Pod sets of a group that cannot be placed have the same refusal.
    """
    outcomes: Outcomes = {}
    with nodes.assuming() as assumed:
        search = _Search(nodes, gates, assumed, empty=empty)
        for flavor, members in _grouped(requests):
            if failed_node:
                found = search.repaired(flavor, members, failed_node)
            else:
                found = search.placed(flavor, members)
            outcomes |= found
            if _refused(found):
                break
    return outcomes


def fits(
    nodes: Nodes,
    requests: Mapping[str, Sequence[PlacementRequest]],
    *,
    gates: Gates = DEFAULTS.gates,
    empty: bool = False,
) -> bool:
    """Tell whether `place` would find places, sooner than it finds them.

    A repeated check while workloads are dropped in a trial costs the dropped amounts, and a look
    at the domains of the requested levels.
    """
    groups = _grouped(requests)
    with nodes.assuming() as assumed:
        search = _Search(nodes, gates, assumed, empty=empty)
        if any(_refused(search.placed(*group)) for group in groups[:-1]):
            return False
        return all(search.fits(*group) for group in groups[-1:])


class _Search:
    """One workload's search for places; later searches count its results as used."""

    def __init__(
        self, nodes: Nodes, gates: Gates, assumed: list[Placement], *, empty: bool
    ) -> None:
        self._nodes = nodes
        self._gates = gates
        self._assumed = assumed
        self._found: list[Placement] = []
        scored = gates.tas_respect_node_affinity_preferred
        self._circumstances = PlacementCircumstances(empty=empty, scored=scored)

    def placed(self, flavor: str, members: Sequence[PlacementRequest]) -> Outcomes:
        """Place pod sets of the same group; those of elastic workloads beside their held places."""
        group = _group_of(flavor, members)
        if isinstance(group, Unusable):
            return {member.pod_set: group for member in members}
        kept = self._kept(group)
        if kept is None:
            found = self._placed(group)
            if isinstance(found, dict):
                return dict(found)
            return {member.pod_set: found for member in members}
        self._note(group, kept.assignments)
        return self._grown(group, kept) if kept.more else dict(kept.assignments)

    def fits(self, flavor: str, members: Sequence[PlacementRequest]) -> bool:
        """Tell whether `placed` would find places."""
        group = _group_of(flavor, members)
        if isinstance(group, Unusable):
            return False
        if any(member.held is not None for member in members):
            return not _refused(self.placed(flavor, members))
        feasible = self._feasibility(group)
        return isinstance(feasible, Feasibility) and holds(feasible.room)

    def repaired(self, flavor: str, members: Sequence[PlacementRequest], host: str) -> Outcomes:
        """Find another place for the pods that pod sets lost with a node, each by itself."""
        outcomes: Outcomes = {}
        for member in members:
            if member.held is not None:
                outcomes[member.pod_set] = self._repaired(PodSetGroup(flavor, member), host)
        return outcomes

    def _kept(self, group: PodSetGroup) -> KeptPods | None:
        held = [member.held for member in group.members if member.held is not None]
        if any(self._nodes.stale_domain(group.flavor, each) for each in held):
            return None
        return kept_places(group.workers, group.leader)

    def _grown(self, group: PodSetGroup, kept: KeptPods) -> Outcomes:
        assert kept.more is not None, "only what grows has more to place"
        name, leader = group.workers.pod_set, group.leader
        if leader is not None and leader.pod_set in kept.assignments:
            leader = None
        found = self._placed(PodSetGroup(group.flavor, kept.more, leader))
        if not isinstance(found, dict):
            return {name: found}
        tree = self._nodes.trees[group.flavor]
        workers = merged(tree, found[name], kept.assignments[name])
        return {**kept.assignments, **found, name: workers}

    def _repaired(self, group: PodSetGroup, host: str) -> Outcome:
        request = group.workers
        tree = self._nodes.trees.get(group.flavor)
        assert request.held is not None, "only what is held can be repaired"
        if request.pinned and self._gates.skip_reassignment_for_pod_owned_workloads:
            return request.held
        if tree is None:
            return Unusable(kind="TopologyMissing", names=(group.flavor,))
        repair = repair_of(tree, request, request.held, host)
        if repair is None:
            return request.held
        stale = self._nodes.stale_domain(group.flavor, repair.kept)
        if stale:
            return Unusable(kind="AssignmentStale", names=(stale,))
        found = self._placed(PodSetGroup(group.flavor, repair.request), repair.within)
        if isinstance(found, dict):
            return merged(tree, found[request.pod_set], repair.kept)
        return found

    def _feasibility(self, group: PodSetGroup, within: int | None = None) -> Feasibility | Unusable:
        cache = self._nodes.counts.get(group.flavor)
        if cache is None:
            return Unusable(kind="TopologyMissing", names=(group.flavor,))
        leaders = len(group.members) - 1
        goal = goal_of(cache.tree, group.workers, leaders=leaders, gates=self._gates)
        if isinstance(goal, Unusable):
            return goal
        if not cache.tree.leaves:
            return Unusable(kind="NoDomains", names=(cache.tree.levels[goal.level],))
        for holding in self._found:
            self._nodes.assume(holding, self._assumed)
        self._found.clear()
        circumstances = self._circumstances._replace(within=within)
        return Feasibility(cache, goal, group.workers, group.leader, circumstances)

    def _placed(self, group: PodSetGroup, within: int | None = None) -> Assignments | Refusal:
        feasible = self._feasibility(group, within)
        if not isinstance(feasible, Feasibility):
            return feasible
        shares = self._shares(feasible, group.workers)
        if not isinstance(shares, list):
            return shares
        tree = self._nodes.trees[group.flavor]
        pods = {share.domain: share.pods for share in shares if share.pods}
        whole, workers = assignment_of(tree, pods), group.workers
        found = {workers.pod_set: truncated(whole, workers.count) if workers.short else whole}
        if group.leader is not None:
            leaders = {share.domain: share.leaders for share in shares if share.leaders}
            found[group.leader.pod_set] = assignment_of(tree, leaders)
        self._note(group, found)
        return found

    def _shares(
        self, feasible: Feasibility, workers: PlacementRequest
    ) -> list[DomainShare] | NoRoom:
        feasible.break_ties(workers)
        room, goal = feasible.room, feasible.room.goal
        if self._gates.tas_balanced_placement and goal.mode == "Preferred":
            even = balance(room)
            shares = [] if even is None else distribute(even[1], even[0], balanced=True)
            if shares and is_whole(room, shares):
                return shares
        found = choose(room)
        if isinstance(found, Partial):
            return feasible.no_room(found.level, found.fitting)
        shares = distribute(room, found)
        return shares if is_whole(room, shares) else feasible.no_room(found.level, 0)

    def _note(self, group: PodSetGroup, found: Assignments) -> None:
        self._found += [
            Placement(flavor=group.flavor, assignment=found[each.pod_set], requests=each.requests)
            for each in group.members
            if each.pod_set in found
        ]


def _grouped(
    requests: Mapping[str, Sequence[PlacementRequest]],
) -> list[tuple[str, list[PlacementRequest]]]:
    groups: dict[tuple[str, object], list[PlacementRequest]] = {}
    for flavor in sorted(requests):
        for place, request in enumerate(requests[flavor]):
            groups.setdefault((flavor, request.group or place), []).append(request)
    return [(flavor, members) for (flavor, _), members in groups.items()]


def _refused(outcomes: Outcomes) -> bool:
    return any(not isinstance(outcome, TopologyPlacement) for outcome in outcomes.values())


def _group_of(flavor: str, members: Sequence[PlacementRequest]) -> PodSetGroup | Unusable:
    workers, *others = members
    if not others:
        return PodSetGroup(flavor, workers)
    leader = others[0]
    if leader.count > workers.count:
        workers, leader = leader, workers
    if len(others) > 1 or leader.count != 1:
        return Unusable(kind="LeaderNotSingle", names=(workers.group,))
    return PodSetGroup(flavor, workers, leader)
