"""Every placement there is, the slow and obvious way.

A placement of pods, and of a leader where there is one, is sound if every node has room for what is
put there, and every domain that a layer of slices names holds whole slices. For a domain, `ways`
are all pairs of pods and leaders that have a sound placement within it.
"""

from itertools import product

from policyd.alloc.topology.values import HOSTNAME, PODS

Ways = set[tuple[int, int]]


class Exhaustive:
    """All placements of one request on some nodes.

    Attributes:
        domains: By level, the ways of its domains by their values.
    """

    def __init__(self, nodes, levels, free, request, leader=None):
        """Look at `nodes`; `free` tells what is left of one."""
        self.levels = levels
        self.request = request
        self.leader = leader
        self.sizes = self._sizes()
        self.domains = [{} for _ in levels]
        for node in nodes:
            path = tuple(node.labels[level] for level in levels)
            self.domains[-1][path] = self._on_node(free(node), path)
        for level in range(len(levels) - 2, -1, -1):
            below = self.domains[level + 1]
            for path in {path[:-1] for path in below}:
                parts = [ways for lower, ways in below.items() if lower[:-1] == path]
                self.domains[level][path] = self._whole(_together(parts), level)

    def everywhere(self) -> Ways:
        return _together(list(self.domains[0].values()))

    def holds(self, ways: Ways) -> bool:
        return (self.request.count, 0 if self.leader is None else 1) in ways

    def holding(self, level):
        """Return the domains of a level that hold everything."""
        return [path for path, ways in self.domains[level].items() if self.holds(ways)]

    def most(self, level, path) -> int:
        """Return how many slices go into a domain, with the leader if there is one."""
        leaders = 0 if self.leader is None else 1
        size = self.request.slices[0].size if self.request.slices else 1
        return max(
            (pods // size for pods, n in self.domains[level][path] if n == leaders), default=0
        )

    def _sizes(self):
        """Return of how many pods the numbers in a domain have to be multiples, by level."""
        sizes = dict.fromkeys(range(len(self.levels)), 1)
        above = None
        for layer in self.request.slices:
            level = self.levels.index(layer.level)
            for each in range(level if above is None else above + 1, level + 1):
                sizes[each] = layer.size
            above = level
        return sizes

    def _on_node(self, free, path):
        ways = {
            (pods, leaders)
            for pods, leaders in product(range(self.request.count + 1), range(2))
            if (not leaders or self.leader is not None) and self._has_room(free, pods, leaders)
        }
        return self._whole(ways, len(self.levels) - 1)

    def _has_room(self, free, pods, leaders):
        needed = {PODS: pods + leaders}
        for request, count in ((self.request, pods), (self.leader, leaders)):
            for name, amount in request.requests.items() if request else ():
                needed[name] = needed.get(name, 0) + amount * count
        return all(amount <= max(0, free.get(name, 0)) for name, amount in needed.items())

    def _whole(self, ways, level):
        return {(pods, leaders) for pods, leaders in ways if pods % self.sizes[level] == 0}


def _together(parts: list[Ways]) -> Ways:
    ways = {(0, 0)}
    for part in parts:
        ways = {
            (pods + more, leaders + other)
            for pods, leaders in ways
            for more, other in part
            if leaders + other <= 1
        }
    return ways


def host_of(node):
    return node.labels[HOSTNAME]
