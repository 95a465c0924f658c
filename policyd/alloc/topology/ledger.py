"""What placed workloads use of each domain, whether or not its nodes are there just now."""

from collections.abc import Mapping
from typing import Protocol

from policyd.alloc.topology.values import PODS, DomainValues, Holding


class Charged(Protocol):
    """Who is told what is used: a topology with the domains that the ledger names."""

    def charge(self, domain: DomainValues, amounts: Mapping[str, int], sign: int) -> None:
        """Change what is used in a domain."""
        ...

    def assume(self, domain: DomainValues, amounts: Mapping[str, int], sign: int) -> None:
        """Change what is taken from a domain for good."""
        ...


class Ledger:
    """Usage of domains by their names.

    Attributes:
        used: What is used of each domain; amounts of 0 may stay.
        trees: The topologies of which these are domains.
    """

    __slots__ = ("trees", "used")

    def __init__(self) -> None:
        self.used: dict[DomainValues, dict[str, int]] = {}
        self.trees: list[Charged] = []

    def charge(self, holding: Holding, sign: int) -> None:
        """Use more, or with a `sign` of -1 less, by what is held."""
        for domain, amounts in _amounts(holding):
            used = self.used.setdefault(domain, {})
            for resource, amount in amounts.items():
                used[resource] = used.get(resource, 0) + sign * amount
            for tree in self.trees:
                tree.charge(domain, amounts, sign)

    def assume(self, holding: Holding, sign: int) -> None:
        """Take from the topologies what is about to be held; it does not count as used yet."""
        for domain, amounts in _amounts(holding):
            for tree in self.trees:
                tree.assume(domain, amounts, sign)


def _amounts(holding: Holding) -> list[tuple[DomainValues, dict[str, int]]]:
    each = {**holding.requests, PODS: 1}
    by_count: dict[int, dict[str, int]] = {}
    found = []
    for domain, count in holding.assignment.domains:
        amounts = by_count.get(count)
        if amounts is None:
            amounts = by_count[count] = {name: n * count for name, n in each.items()}
        found.append((domain, amounts))
    return found
