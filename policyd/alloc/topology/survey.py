"""How much of a request goes where, and why it does not go elsewhere."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from policyd.alloc.topology.counts import CountCache, NodeNeeds, PodKind, meets, requests_of
from policyd.alloc.topology.goal import Goal
from policyd.alloc.topology.room import DomainRoom
from policyd.alloc.topology.tree import Column
from policyd.alloc.topology.values import NoRoom, PlacementRequest, SliceLayer
from policyd.node_rules import Term


class PlacementCircumstances(NamedTuple):
    """What a placement has to heed besides the request.

    Attributes:
        empty: Whether what workloads hold is left out of account.
        within: Domain that no pod may leave; None if there is none.
        scored: Whether what pods would prefer matters.
    """

    empty: bool = False
    within: int | None = None
    scored: bool = False


class Survey:
    """What was counted for a request: its `room`."""

    def __init__(
        self,
        cache: CountCache,
        goal: Goal,
        request: PlacementRequest,
        leader: PlacementRequest | None,
        circumstances: PlacementCircumstances,
    ) -> None:
        """Count what of a request, and of its leader if it has one, goes where."""
        self._tree = cache.tree
        self._within = circumstances.within
        flavor = self._tree.flavor
        needs = NodeNeeds(
            selector=tuple(sorted(request.node_selector.items())),
            affinity=request.affinity,
            tolerations=(*request.tolerations, *flavor.tolerations),
            rule=request.rule,
        )
        kind = PodKind(
            requests=requests_of(request.requests, ports=self._tree.to_nodes),
            needs=needs,
            empty=circumstances.empty,
        )
        self._counts = cache.counts(kind)
        self._tree.settle()
        self.room = DomainRoom(self._tree, goal, self._counts.pods)
        if leader is None and self._within is None and not goal.inner:
            self._slice_up()
        else:
            self._work_out(_beside(cache, kind, leader))
        if circumstances.scored and request.preferred_affinity:
            self.room.score = self._scores(request.preferred_affinity)

    def break_ties(self, request: PlacementRequest) -> None:
        """Let what a request says decide between places that are as good.

        Who asks whether there is room at all does not need it, and saves milliseconds.
        """
        if request.tie_break is not None:
            self.room.ties = request.tie_break(self._tree, request.requests)

    def no_room(self, level: int, fitting: int) -> NoRoom:
        """Say what stood in the way.

        Args:
            level: At which level there was not enough.
            fitting: How many slices there was room for.
        """
        tree, goal, room = self._tree, self.room.goal, self.room
        best = max(tree.at[level], key=room.slices.__getitem__)
        return NoRoom(
            topology=tree.flavor.topology,
            unit="pod(s)" if goal.slice_size == 1 else "slice(s)",
            fitting=fitting,
            wanted=goal.slices,
            level=tree.levels[level],
            best=tree.values[best],
            nodes=len(tree.leaves),
            excluded=dict(self._excluded()),
            layers=tuple(
                (layer.level, self._layer_room(best, layer), goal.count // layer.size)
                for layer in goal.layers
            ),
        )

    def _slice_up(self) -> None:
        """Count slices where pods are known: at their level and above."""
        room, tree, goal = self.room, self._tree, self.room.goal
        if goal.slice_size == 1 and goal.slice_level == len(tree.levels) - 1:
            return
        slices = [0] * len(room.pods)
        for domain in tree.at[goal.slice_level]:
            slices[domain] = room.pods[domain] // goal.slice_size
        for level in range(goal.slice_level - 1, -1, -1):
            for domain in tree.at[level]:
                slices[domain] = sum([slices[child] for child in tree.children[domain]])
        room.slices = room.slices_beside = slices

    def _work_out(self, beside: tuple[Column, Column] | None) -> None:
        """Count everything from the leaves on, of those only that pods may go to."""
        room = self.room
        room.pods = self._allowed(self._counts.pods)
        room.beside = room.pods
        room.slices = room.slices_beside = [0] * len(room.pods)
        if beside is not None:
            room.leaders, room.beside = map(self._allowed, beside)
            room.slices_beside = [0] * len(room.pods)
        room.bubble()

    def _allowed(self, column: Column) -> Column:
        if self._within is None:
            return list(column)
        allowed = [0] * len(column)
        for leaf in self._inside(self._within, len(self._tree.levels)):
            allowed[leaf] = column[leaf]
        return allowed

    def _inside(self, domain: int, depth: int) -> list[int]:
        """Return the domains within one that are so many levels deep."""
        found = [domain]
        for _ in range(depth - len(self._tree.values[domain])):
            found = [child for each in found for child in self._tree.children[each]]
        return found

    def _scores(self, preferred: Iterable[tuple[int, Term]]) -> Column:
        tree, obstacles = self._tree, self._counts.obstacles.by_leaf
        scores = [0] * len(tree.values)
        if tree.to_nodes:
            for leaf in tree.at[-1]:
                if leaf not in obstacles:
                    node = tree.node(leaf)
                    scores[leaf] = sum([weight for weight, term in preferred if meets(node, term)])
        for level in reversed(tree.at[:-1]):
            for domain in level:
                scores[domain] = sum([scores[child] for child in tree.children[domain]])
        return scores

    def _excluded(self) -> Counter[str]:
        tree, obstacles = self._tree, self._counts.obstacles.by_leaf
        leaves = [leaf for leaf in tree.leaves.values() if leaf not in obstacles]
        found = Counter(obstacles.values())
        if self._within is not None:
            within = set(self._inside(self._within, len(tree.levels)))
            found["topologyDomain"] = sum(leaf not in within for leaf in leaves)
            leaves = [leaf for leaf in leaves if leaf in within]
        return +(found + self._counts.short_of(leaves))

    def _layer_room(self, domain: int, layer: SliceLayer) -> int:
        inside = self._inside(domain, self._tree.levels.index(layer.level) + 1)
        return sum([self.room.pods[each] // layer.size for each in inside])


def _beside(
    cache: CountCache, kind: PodKind, leader: PlacementRequest | None
) -> tuple[Column, Column] | None:
    """Return which leaves host a leader, and how many pods go to each beside it."""
    if leader is None:
        return None
    requests = requests_of(leader.requests, ports=cache.tree.to_nodes)
    hosts = cache.counts(PodKind(requests=requests, needs=kind.needs, empty=kind.empty)).pods
    alone = cache.counts(kind).pods
    shared = cache.counts(
        PodKind(requests=kind.requests, beside=requests, needs=kind.needs, empty=kind.empty)
    ).pods
    together = zip(hosts, alone, shared, strict=True)
    return (
        [1 if host else 0 for host in hosts],
        [with_it if host else without for host, without, with_it in together],
    )
