"""Where the pods of a workload go: the entry point."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from policyd.alloc.settings import DEFAULTS, Gates
from policyd.alloc.topology.assignments import assignment_of, merged
from policyd.alloc.topology.balanced import balance
from policyd.alloc.topology.elastic import Kept, kept_places
from policyd.alloc.topology.fitting import Short, choose, distribute
from policyd.alloc.topology.goal import goal_of
from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.refusal import Refusal, Unusable
from policyd.alloc.topology.repair import Repair, repair_of
from policyd.alloc.topology.survey import Circumstances, Survey
from policyd.alloc.topology.values import Holding, TopologyAssignment, TopologyRequest

Outcome = TopologyAssignment | Refusal
"""What becomes of a pod set."""

Outcomes = dict[str, Outcome]


class Group(NamedTuple):
    """Pod sets that are placed together: workers, and the pod that leads them if there is one."""

    workers: TopologyRequest
    leader: TopologyRequest | None = None

    @property
    def members(self) -> tuple[TopologyRequest, ...]:
        """All pod sets of the group."""
        return (self.workers,) if self.leader is None else (self.workers, self.leader)


def place(
    nodes: Nodes,
    requests: Mapping[str, Sequence[TopologyRequest]],
    *,
    gates: Gates = DEFAULTS.gates,
    empty: bool = False,
    failed_node: str = "",
) -> Outcomes:
    """Find places for the pod sets of one workload; nothing is charged.

    Flavors are taken by name, pod sets in their order, those of a group together; each sees what
    those before it took. The first that cannot be placed ends the search.

    Args:
        nodes: What there is.
        requests: The workload's pod sets by the flavor that they got.
        gates: Which of Kueue's rules apply.
        empty: Whether to place as if no workload had places, only pods that are not ours.
        failed_node: Host name of a node whose pods need another place. What the pod sets hold
            elsewhere stays; those that hold nothing are left out.

    Returns:
        By pod set, its assignment or why it has none; pod sets after one with a refusal are
        missing. Pod sets of a group that cannot be placed have the same refusal.
    """
    search = _Search(nodes, gates, empty=empty, failed_node=failed_node)
    outcomes: Outcomes = {}
    with nodes.assuming() as search.assumed:
        for flavor in sorted(requests):
            for found in search.flavor(flavor, requests[flavor]):
                outcomes |= found
                if any(not isinstance(each, TopologyAssignment) for each in found.values()):
                    return outcomes
    return outcomes


class _Search:
    """One workload's search for places."""

    def __init__(self, nodes: Nodes, gates: Gates, *, empty: bool, failed_node: str) -> None:
        self.assumed: list[Holding] = []
        self._nodes = nodes
        self._gates = gates
        self._circumstances = Circumstances(
            empty=empty, scored=gates.tas_respect_node_affinity_preferred
        )
        self._failed_node = failed_node

    def flavor(self, flavor: str, requests: Sequence[TopologyRequest]) -> Iterator[Outcomes]:
        """Yield what becomes of each group of a flavor."""
        if flavor not in self._nodes.trees:
            yield _all(requests, Unusable(kind="TopologyMissing", names=(flavor,)))
            return
        for members in _grouped(requests):
            if self._failed_node:
                for request in members:
                    yield self._repaired(flavor, request)
            else:
                yield self._group(flavor, members)

    def _group(self, flavor: str, members: list[TopologyRequest]) -> Outcomes:
        group = _group_of(members)
        if isinstance(group, Unusable):
            return _all(members, group)
        kept = self._kept(flavor, group)
        if kept is None:
            return self._fresh(flavor, group)
        self._assume_all(flavor, group, kept.assignments)
        if kept.more is None:
            return dict(kept.assignments)
        leads = None if group.leader is None or group.leader.pod_set in kept.assignments else True
        more = Group(kept.more, group.leader if leads else None)
        found = self._fresh(flavor, more)
        grown = found[group.workers.pod_set]
        if not isinstance(grown, TopologyAssignment):
            return found
        tree = self._nodes.trees[flavor]
        workers = merged(tree, grown, kept.assignments[group.workers.pod_set])
        return {**kept.assignments, **found, group.workers.pod_set: workers}

    def _kept(self, flavor: str, group: Group) -> Kept | None:
        if not self._gates.elastic_jobs_via_workload_slices_with_tas:
            return None
        held = [member.held for member in group.members if member.held is not None]
        if any(self._nodes.stale_domain(flavor, each) for each in held):
            return None
        return kept_places(group.workers, group.leader)

    def _fresh(self, flavor: str, group: Group) -> Outcomes:
        found = self._placed(flavor, group, self._circumstances)
        if not isinstance(found, dict):
            return _all(group.members, found)
        self._assume_all(flavor, group, found)
        return dict(found)

    def _repaired(self, flavor: str, request: TopologyRequest) -> Outcomes:
        if request.held is None:
            return {}
        pinned = request.pinned and self._gates.skip_reassignment_for_pod_owned_workloads
        repair = repair_of(self._nodes.trees[flavor], request, self._failed_node)
        if pinned or repair is None:
            return {request.pod_set: request.held}
        stale = self._nodes.stale_domain(flavor, repair.kept)
        if stale:
            return {request.pod_set: Unusable(kind="AssignmentStale", names=(stale,))}
        return {request.pod_set: self._replaced(flavor, repair)}

    def _replaced(self, flavor: str, repair: Repair) -> Outcome:
        group = Group(repair.request)
        within = self._circumstances._replace(within=repair.within)
        found = self._placed(flavor, group, within)
        if not isinstance(found, dict):
            return found
        self._assume_all(flavor, group, found)
        return merged(self._nodes.trees[flavor], found[repair.request.pod_set], repair.kept)

    def _placed(
        self, flavor: str, group: Group, circumstances: Circumstances
    ) -> dict[str, TopologyAssignment] | Refusal:
        cache, (workers, leader) = self._nodes.counts[flavor], group
        tree = cache.tree
        goal = goal_of(tree, workers, leaders=0 if leader is None else 1, gates=self._gates)
        if isinstance(goal, Unusable):
            return goal
        if not tree.leaves:
            return Unusable(kind="NoDomains", names=(tree.levels[goal.level],))
        survey = Survey(cache, goal, workers, leader, circumstances)
        room, balanced = survey.room, None
        if self._gates.tas_balanced_placement and goal.mode == "Preferred":
            balanced = balance(room)
        fit, room = balanced or (choose(room), room)
        if isinstance(fit, Short):
            return survey.no_room(fit.level, fit.fitting)
        shares = distribute(room, fit, balanced=balanced is not None)
        if sum([share.pods for share in shares]) < goal.count:
            return survey.no_room(fit.level, 0)
        found = {workers.pod_set: assignment_of(tree, {s.domain: s.pods for s in shares if s.pods})}
        if leader is not None:
            leaders = {share.domain: share.leaders for share in shares if share.leaders}
            found[leader.pod_set] = assignment_of(tree, leaders)
        return found

    def _assume_all(
        self, flavor: str, group: Group, found: Mapping[str, TopologyAssignment]
    ) -> None:
        for member in group.members:
            assignment = found.get(member.pod_set)
            if assignment is not None:
                holding = Holding(flavor=flavor, assignment=assignment, requests=member.requests)
                self._nodes.assume(holding, self.assumed)


def _grouped(requests: Sequence[TopologyRequest]) -> list[list[TopologyRequest]]:
    groups: dict[object, list[TopologyRequest]] = {}
    for place, request in enumerate(requests):
        groups.setdefault(request.group or place, []).append(request)
    return list(groups.values())


def _group_of(members: list[TopologyRequest]) -> Group | Unusable:
    workers, *others = members
    if not others:
        return Group(workers)
    leader = others[0]
    if leader.count > workers.count:
        workers, leader = leader, workers
    if len(others) > 1 or leader.count != 1:
        return Unusable(kind="LeaderNotSingle", names=(workers.group,))
    return Group(workers, leader)


def _all(members: Sequence[TopologyRequest], refusal: Refusal) -> Outcomes:
    return {member.pod_set: refusal for member in members}
