"""What placed workloads use of each domain, whether or not its nodes are there just now."""

from policyd.alloc.topology.tree import TopologyTree
from policyd.alloc.topology.values import PODS, DomainValues, Placement


class Ledger:
    """Usage of domains by their names.

    Attributes:
        used: What is used of each domain; amounts of 0 may stay.
        trees: The topologies of which these are domains.
    """

    __slots__ = ("trees", "used")

    def __init__(self) -> None:
        self.used: dict[DomainValues, dict[str, int]] = {}
        self.trees: list[TopologyTree] = []

    def charge(self, holding: Placement, sign: int) -> None:
        """Use more, or with a `sign` of -1 less, by what is held."""
        for domain, amounts in _amounts(holding):
            used = self.used.setdefault(domain, {})
            for resource, amount in amounts.items():
                used[resource] = used.get(resource, 0) + sign * amount
            for tree in self.trees:
                tree.charge(domain, amounts, sign)

    def assume(self, holding: Placement, sign: int) -> None:
        """Take from the topologies what is about to be held; it does not count as used yet."""
        for domain, amounts in _amounts(holding):
            for tree in self.trees:
                tree.assume(domain, amounts, sign)


def _amounts(holding: Placement) -> list[tuple[DomainValues, dict[str, int]]]:
    each = {**holding.requests, PODS: 1}
    counts = {count for _, count in holding.assignment.domains}
    by_count = {count: {name: n * count for name, n in each.items()} for count in counts}
    return [(domain, by_count[count]) for domain, count in holding.assignment.domains]
