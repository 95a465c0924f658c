"""What has to be placed anew when a node fails: its pods, near those that stay."""

from collections import Counter
from typing import NamedTuple

from msgspec.structs import replace

from policyd.alloc.topology.assignments import without_node
from policyd.alloc.topology.goal import level_of
from policyd.alloc.topology.tree import TopologyTree
from policyd.alloc.topology.values import PlacementRequest, SliceLayer, TopologyPlacement


class Repair(NamedTuple):
    """How to make up for a node.

    Attributes:
        kept: Where the other pods stay.
        request: What the lost pods ask for.
        within: Domain that they have to be in, None for any.
    """

    kept: TopologyPlacement
    request: PlacementRequest
    within: int | None


def repair_of(
    tree: TopologyTree, request: PlacementRequest, held: TopologyPlacement, host: str
) -> Repair | None:
    """Find out what a pod set lost of what it held with a node; None if nothing."""
    kept, lost = without_node(held, host)
    if not lost:
        return None
    broken = [layer for layer in request.slices if layer.size > 0 and lost % layer.size]
    slices = request.slices
    if broken:
        whole = [layer for layer in slices if layer not in broken]
        slices = tuple(whole[-1:])
    level = level_of(tree, request)
    within = _domain(tree, kept, request, broken=broken, lost=lost)
    return Repair(kept, replace(request, count=lost, slices=slices, level=level, held=None), within)


def _domain(
    tree: TopologyTree,
    kept: TopologyPlacement,
    request: PlacementRequest,
    *,
    broken: list[SliceLayer],
    lost: int,
) -> int | None:
    """Return where lost pods have to be: with the rest of their slice, or of what is required."""
    pods = {tree.leaves[name]: n for name, n in kept.domains if name in tree.leaves}
    if not pods:
        return None
    if broken:
        return _incomplete(tree, pods, broken[-1], lost)
    level = level_of(tree, request)
    if request.mode != "Required" or level not in tree.levels:
        return None
    return _around(tree, next(iter(pods)), level)


def _incomplete(
    tree: TopologyTree, pods: dict[int, int], layer: SliceLayer, lost: int
) -> int | None:
    """Return the first domain whose slices are whole again with what was lost."""
    if layer.level not in tree.levels:
        return None
    counts: Counter[int] = Counter()
    for leaf, count in pods.items():
        counts[_around(tree, leaf, layer.level)] += count
    missing = [d for d, count in counts.items() if (count + lost) % layer.size == 0]
    return min(missing, key=tree.values.__getitem__, default=None)


def _around(tree: TopologyTree, leaf: int, level: str) -> int:
    domain = leaf
    while len(tree.values[domain]) > tree.levels.index(level) + 1:
        domain = tree.parent[domain]
    return domain
