"""How much of a request goes into each domain: pods, slices, and both beside a leader.

Domains are numbers. Lists of domains come in the order of their values, which breaks ties.
"""

from collections.abc import Iterable, Sequence
from itertools import chain

from policyd.alloc.topology.goal import Goal
from policyd.alloc.topology.tree import Column, TopologyTree

Units = Column | dict[int, int]
"""How much goes where, by domain."""


class DomainRoom:
    """What goes into each domain, by its number.

    Without leaders `beside` and `slices_beside` are what `pods` and `slices` are, the same lists.

    Attributes:
        tree: Whose domains.
        goal: What is to be placed.
        pods: How many pods.
        slices: How many slices; 0 below the level of slices.
        beside: How many pods if a leader goes there too.
        slices_beside: How many slices then.
        leaders: 1 where a leader goes, 0 where none does.
        score: How much of what pods would prefer the nodes there meet; None if it does not matter.
        ties: What decides between domains that are as good; None if their names do.
    """

    __slots__ = (
        "beside", "goal", "leaders", "pods", "score", "slices", "slices_beside", "ties", "tree"
    )  # fmt: skip

    def __init__(self, tree: TopologyTree, goal: Goal, pods: Units) -> None:
        """Start with what goes where if slices are single pods and there are no leaders."""
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
        """Return how many slices could be placed without leaders, in one domain if that is so.

        Domains of one level have as much room together as those of any other, down to the level of
        slices.
        """
        slices, goal = self.slices, self.goal
        if goal.mode == "Required":
            return max([slices[domain] for domain in self.tree.at[goal.level]])
        return sum([slices[domain] for domain in self.tree.at[0]])

    def hosts(self, domain: int, leaders: int) -> bool:
        """Tell whether as many leaders go into a domain, of which there is one at most."""
        return not leaders or (self.leaders is not None and self.leaders[domain] >= leaders)

    def plain_order(self, domains: Iterable[int]) -> list[int]:
        """Return domains in the order in which pods are distributed to them."""
        domains = self._ties_first(domains)
        found = _ordered(domains, self.pods, self.slices, ascending=self.goal.ascending)
        if self.score is not None:
            found.sort(key=self.score.__getitem__, reverse=True)
        return found

    def leading_order(self, domains: Iterable[int]) -> list[int]:
        """Return domains in the order in which they are chosen, those first that host a leader."""
        domains = self._ties_first(domains)
        found = _ordered(domains, self.beside, self.slices_beside, ascending=self.goal.ascending)
        if self.score is not None:
            found.sort(key=self.score.__getitem__, reverse=True)
        if self.leaders is not None:
            found.sort(key=self.leaders.__getitem__, reverse=True)
        return found

    def _ties_first(self, domains: Iterable[int]) -> Iterable[int]:
        """Return domains in the order in which those go that differ in nothing else."""
        if self.ties is None:
            return domains
        return sorted(domains, key=self.ties.__getitem__, reverse=True)

    def best_fit(self, domains: Sequence[int], needed: int, *, leaders: int, units: Units) -> int:
        """Return the domain with the least room that suffices; the first if none does.

        Args:
            domains: In their order, at least one. Only those of the highest score are looked at.
            needed: How much has to go there.
            leaders: How many leaders have to go there too.
            units: What is counted, by domain.
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
        """Work out inner domains from those in them.

        Args:
            top: Only domains in these; None for all.
            inner: Whether slices within slices are heeded.
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


def _ordered(domains: Iterable[int], pods: Units, slices: Units, *, ascending: bool) -> list[int]:
    if pods is slices:
        return sorted(domains, key=slices.__getitem__, reverse=not ascending)
    found = sorted(domains, key=pods.__getitem__)
    found.sort(key=slices.__getitem__, reverse=not ascending)
    return found


def _below(tree: TopologyTree, top: Iterable[int]) -> list[list[int]]:
    levels: list[list[int]] = [[] for _ in tree.levels]
    for domain in top:
        levels[len(tree.values[domain]) - 1].append(domain)
    for level in range(len(levels) - 1):
        for domain in levels[level]:
            levels[level + 1].extend(tree.children[domain])
    return levels
