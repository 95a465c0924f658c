"""Amounts by resource and leaf: what nodes have, or what is left of it.

A column is a flat list, so that a placement reads it at once. Ports of nodes have none: every node
has each of them, and most are never taken, so that only what is taken is kept.
"""

from collections.abc import Mapping

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

    def shift(self, leaf: int, amounts: Amounts, sign: int, *, size: int) -> None:
        """Add amounts, or take them with a `sign` of -1; there are `size` numbers by now."""
        for resource, amount in amounts.items():
            column = self.columns.get(resource)
            if column is None:
                if is_port(resource):
                    taken = self.taken.setdefault(resource, {})
                    taken[leaf] = taken.get(leaf, 0) - sign * amount
                    continue
                column = self.columns[resource] = [0] * size
            column[leaf] += sign * amount

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
