"""How much of a request goes into each domain, and why it does not go elsewhere.

Pods, slices, and both beside a leader are counted. Domains are numbers; lists of domains come in
the order of their values, which breaks ties.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from policyd.alloc.topology.counts import CountCache, NodeNeeds, PodKind, meets, requests_of
from policyd.alloc.topology.goal import Goal
from policyd.alloc.topology.tree import Column, TopologyTree
from policyd.alloc.topology.values import NoRoom, PlacementRequest, SliceLayer
from policyd.node_rules import Term

Units = Column | dict[int, int]
"""How much goes where, by domain."""


class DomainRoom:
    """The room in each domain, by its number.

    Without leaders `beside` and `slices_beside` are the same lists as `pods` and `slices`.

    Attributes:
        tree: Whose domains.
        goal: The pods to place.
        pods: How many pods.
        slices: How many slices; 0 below the level of slices.
        beside: How many pods if a leader goes there too.
        slices_beside: How many slices then.
        leaders: 1 where a leader goes, 0 where none does.
        score: How well the nodes there meet the preferences of pods; None if there are none.
        ties: Decides between equally good domains; None if their names do.
    """

    __slots__ = (
        "beside", "goal", "leaders", "pods", "score", "slices", "slices_beside", "ties", "tree"
    )  # fmt: skip

    def __init__(self, tree: TopologyTree, goal: Goal, pods: Units) -> None:
        """Start with the room for slices of single pods without leaders."""
        self.tree = tree
        self.goal = goal
        self.pods: Units = pods
        self.slices = self.beside = self.slices_beside = pods
        self.leaders: Units | None = None
        self.score: Units | None = None
        self.ties: Units | None = None

    def copy(self, top: Iterable[int]) -> "DomainRoom":
        """Return room of some domains, and of those in them, that can be changed by itself."""
        domains = list(chain.from_iterable(_below(self.tree, top)))

        def part(units: Units) -> Units:
            return {domain: units[domain] for domain in domains}

        other = DomainRoom(self.tree, self.goal, part(self.pods))
        other.slices = other.slices_beside = part(self.slices)
        other.score, other.ties = self.score, self.ties
        if self.leaders is not None:
            other.leaders = part(self.leaders)
            other.beside, other.slices_beside = part(self.beside), part(self.slices_beside)
        return other

    def most(self) -> int:
        """Return how many slices could be placed without leaders, in one domain if required."""
        slices, goal = self.slices, self.goal
        if goal.mode == "Required":
            return max([slices[domain] for domain in self.tree.at[goal.level]])
        return sum([slices[domain] for domain in self.tree.at[0]])

    def hosts(self, domain: int, leaders: int) -> bool:
        """Tell whether as many leaders go into a domain, of which there is one at most."""
        return not leaders or (self.leaders is not None and self.leaders[domain] >= leaders)

    def plain_order(self, domains: Iterable[int]) -> list[int]:
        """Return domains in the order in which pods are distributed to them."""
        return self._ordered(domains, self.pods, self.slices)

    def leading_order(self, domains: Iterable[int]) -> list[int]:
        """Return domains in the order in which they are chosen, those first that host a leader."""
        found = self._ordered(domains, self.beside, self.slices_beside)
        if self.leaders is not None:
            found.sort(key=self.leaders.__getitem__, reverse=True)
        return found

    def _ordered(self, domains: Iterable[int], pods: Units, slices: Units) -> list[int]:
        """Sort domains by ties, pods, slices and score, of which the last decides first."""
        ascending = self.goal.ascending
        if self.ties is not None:
            domains = sorted(domains, key=self.ties.__getitem__, reverse=True)
        if pods is slices:
            found = sorted(domains, key=slices.__getitem__, reverse=not ascending)
        else:
            found = sorted(domains, key=pods.__getitem__)
            found.sort(key=slices.__getitem__, reverse=not ascending)
        if self.score is not None:
            found.sort(key=self.score.__getitem__, reverse=True)
        return found

    def best_fit(self, domains: Sequence[int], needed: int, *, leaders: int, units: Units) -> int:
        """Return the domain with the least room that suffices; the first if none does.

        Of `domains`, in their order, only those of the highest score are looked at; `needed` of the
        `units` have to go there, and so many leaders.
        """
        best, least, score = domains[0], None, self.score
        for domain in domains:
            if score is not None and score[domain] != score[domains[0]]:
                break
            room = units[domain]
            if room >= needed and (least is None or room < least) and self.hosts(domain, leaders):
                best, least = domain, room
        return best

    def bubble(self, top: Iterable[int] | None = None, *, inner: bool = True) -> None:
        """Work out inner domains, all or those in `top`, from those in them.

        Without `inner`, slices within slices are ignored.
        """
        tree, goal = self.tree, self.goal
        levels = tree.at if top is None else _below(tree, top)
        last = len(tree.levels) - 1
        for level in range(last, -1, -1):
            size = goal.inner.get(level + 1, 1) if inner else 1
            for domain in levels[level]:
                if level < last:
                    self._gather(domain, tree.children[domain], size)
                if level == goal.slice_level:
                    self._slice(domain)

    def _gather(self, domain: int, children: list[int], size: int) -> None:
        pods, slices = self.pods, self.slices
        pods[domain] = sum([pods[child] // size * size for child in children])
        if slices is not pods:
            slices[domain] = sum([slices[child] for child in children])
        if self.leaders is not None:
            self._gather_beside(domain, children, size)

    def _gather_beside(self, domain: int, children: list[int], size: int) -> None:
        leaders, pods, beside = self.leaders, self.pods, self.beside
        slices, slices_beside = self.slices, self.slices_beside
        assert leaders is not None, "room beside leaders is for where there are any"
        hosts = [child for child in children if leaders[child]]
        leaders[domain] = 1 if hosts else 0
        beside[domain] = slices_beside[domain] = 0
        if hosts:
            lost = min([pods[c] // size * size - beside[c] // size * size for c in hosts])
            beside[domain] = pods[domain] - lost
            lost = min([slices[c] - slices_beside[c] for c in hosts])
            slices_beside[domain] = slices[domain] - lost

    def _slice(self, domain: int) -> None:
        size = self.goal.slice_size
        if self.slices is not self.pods:
            self.slices[domain] = self.pods[domain] // size
        if self.leaders is not None:
            self.slices_beside[domain] = self.beside[domain] // size


def _below(tree: TopologyTree, top: Iterable[int]) -> list[list[int]]:
    levels: list[list[int]] = [[] for _ in tree.levels]
    for domain in top:
        levels[len(tree.values[domain]) - 1].append(domain)
    for level in range(len(levels) - 1):
        for domain in levels[level]:
            levels[level + 1].extend(tree.children[domain])
    return levels


class PlacementCircumstances(NamedTuple):
    """Whether usage by workloads is ignored, the domain to stay in, if preferences matter."""

    empty: bool = False
    within: int | None = None
    scored: bool = False


class Feasibility:
    """Where a request is feasible: its `room`, and what excludes the rest."""

    def __init__(
        self,
        cache: CountCache,
        goal: Goal,
        request: PlacementRequest,
        leader: PlacementRequest | None,
        circumstances: PlacementCircumstances,
    ) -> None:
        """Count the room for a request, and for its leader if there is one."""
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
            requests=requests_of(request.requests, self._tree),
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
        """Let a request decide between equally good places; only needed to choose some."""
        if request.tie_break is not None:
            self.room.ties = request.tie_break(self._tree, request.requests)

    def no_room(self, level: int, fitting: int) -> NoRoom:
        """Say why only `fitting` slices have room at a level."""
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
        tree.sum_up(slices, goal.slice_level)
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
        tree.sum_up(scores)
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
    requests = requests_of(leader.requests, cache.tree)
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
