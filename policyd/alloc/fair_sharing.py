"""Fair sharing: who uses how much of what others lend.

What a queue or cohort uses beyond its own quota is borrowed. Its *dominant* resource is the one of
which it borrows the most, as a fraction of what its parent could lend; that fraction, in
thousandths and divided by the node's weight, is its *share*. Lower shares go first in a cycle, and
higher ones give first when quota is taken back.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from policyd.alloc.amount import add
from policyd.alloc.hierarchy import QuotaNode
from policyd.alloc.queue import FlavorResource
from policyd.alloc.quota import QuotaTree, Shared

_PER_MILLE = 1_000


@dataclass(slots=True, eq=False)
class BorrowedShare:
    """How much a node borrows, against its siblings.

    Attributes:
        borrowed: What it borrows of which flavors and resources; empty if it borrows nothing.
        ratio: What it borrows of the dominant resource, in thousandths of what can be lent; 0 of
            what nobody lends.
        dominant: That resource; "" without a ratio.
    """

    borrowed: Mapping[FlavorResource, int]
    ratio: float = 0.0
    dominant: str = ""
    weight: float = 1.0

    @property
    def rank(self) -> tuple[bool, float]:
        """For comparison: who borrows with weight 0 is above all others, and there by ratio."""
        weightless = self.weight == 0 and self.ratio > 0
        return weightless, self.ratio if weightless or not self.ratio else self.ratio / self.weight


def share_of(tree: QuotaTree, node: QuotaNode) -> BorrowedShare:
    """Work out the share of a node; the top of a tree has none to speak of."""
    usage, borrowed, ratio, dominant = tree.usage, {}, 0.0, ""
    for resource, lendable, cells in tree.shared.get(node) or _shared(tree, node):
        total = 0
        for names, cell, quota in cells:
            amount = usage[cell] - quota
            if amount > 0:
                borrowed[names] = amount
                total += amount
        if total and lendable > 0 and total * _PER_MILLE / lendable > ratio:
            ratio, dominant = total * _PER_MILLE / lendable, resource
    return BorrowedShare(borrowed, ratio, dominant, node.weight)


def _shared(tree: QuotaTree, node: QuotaNode) -> tuple[Shared, ...]:
    """Return what a node may borrow, resource by resource in alphabetical order."""
    if node.parent is None:
        return ()
    lendable = tree.lendable.get(node.parent) or _lendable(tree, node.parent)
    cells: dict[str, list[tuple[FlavorResource, int, int]]] = {}
    for names, cell in node.cells.items():
        if tree.subtree[cell] or _has_quota(node, names):
            cells.setdefault(names[1], []).append((names, cell, tree.subtree[cell]))
    found = tree.shared[node] = tuple((r, lendable.get(r, 0), cells[r]) for r in sorted(cells))
    return found


def _has_quota(node: QuotaNode, names: FlavorResource) -> bool:
    """Tell whether a node, or one below it, has quota of a flavor and resource, if only of 0."""
    return names in node.quotas or any(
        names in child.cells and _has_quota(child, names) for child in node.children.values()
    )


def _lendable(tree: QuotaTree, cohort: QuotaNode) -> Mapping[str, int]:
    """Return what the children of a cohort could have at most of each resource, its own included.

    A flavor that is only elsewhere in the tree counts too, by what the next cohort above has of it.
    """
    known = tree.lendable[cohort] = {}
    for names in cohort.root.cells:
        node = cohort
        while names not in node.cells and node.parent is not None:
            node = node.parent
        known[names[1]] = add(known.get(names[1], 0), tree.potential[node.cells[names]])
    return known
