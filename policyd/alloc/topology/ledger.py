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

    def charge(self, placement: Placement, sign: int) -> None:
        """Use more, or with a `sign` of -1 less, by what pods use where they are."""
        requests = {**placement.requests, PODS: 1}
        for domain, count in placement.assignment.domains:
            used = self.used.setdefault(domain, {})
            for resource, amount in requests.items():
                used[resource] = used.get(resource, 0) + sign * amount * count
        self.try_charge(placement, sign)

    def try_charge(self, placement: Placement, sign: int) -> None:
        """Charge the topologies alone, for a trial in which no domain comes or goes."""
        for tree in self.trees:
            tree.charge(placement, sign, tree.free)

    def assume(self, placement: Placement, sign: int) -> None:
        """Take from the topologies what is about to be held; it does not count as used yet."""
        for tree in self.trees:
            tree.charge(placement, sign, tree.free, tree.offered)
