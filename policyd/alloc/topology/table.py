"""Amounts by resource and leaf: what nodes have, or what is left of it.

A column is a flat list, so that a placement reads it at once. Ports of nodes have none: every node
has each of them, and most are never taken, so that only what is taken is kept.
"""

from collections.abc import Iterable, Mapping

from policyd.alloc.topology.values import HOST_PORT

Amounts = Mapping[str, int]
Column = list[int]


class Table:
    """Amounts of leaves by their numbers; may be negative.

    Attributes:
        columns: By resource and leaf, how much there is; 0 for numbers that are not of leaves.
        taken: By port and leaf, how many take it.
    """

    __slots__ = ("columns", "taken")

    def __init__(self) -> None:
        self.columns: dict[str, Column] = {}
        self.taken: dict[str, dict[int, int]] = {}

    def left(self, resource: str, leaf: int) -> int:
        """Return how much of a resource there is."""
        column = self.columns.get(resource)
        if column is not None:
            return column[leaf]
        return 1 - self.taken.get(resource, {}).get(leaf, 0) if is_port(resource) else 0

    def shift(
        self, resource: str, counts: Iterable[tuple[int, int]], amount: int, *, size: int
    ) -> None:
        """Add an amount, which may be negative, as often as leaves' counts say.

        Args:
            resource: Of which there is more.
            counts: Leaves, and how often each gets the amount.
            amount: How much it is.
            size: How many numbers there are by now.
        """
        column = self.columns.get(resource)
        if column is None and not is_port(resource):
            column = self.columns[resource] = [0] * size
        if column is None:
            taken = self.taken.setdefault(resource, {})
            for leaf, count in counts:
                taken[leaf] = taken.get(leaf, 0) - amount * count
            return
        for leaf, count in counts:
            column[leaf] += amount * count

    def grow(self) -> None:
        """Make room for another number."""
        for column in self.columns.values():
            column.append(0)

    def clear(self, leaf: int) -> None:
        """Forget a leaf, so that its number can be another's."""
        for column in self.columns.values():
            column[leaf] = 0
        for taken in self.taken.values():
            taken.pop(leaf, None)


def is_port(resource: str) -> bool:
    """Tell whether a resource is a port of a node, of which every node has one."""
    return resource.startswith(HOST_PORT)
