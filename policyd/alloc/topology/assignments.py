"""Arithmetic of assignments: join and shorten them; keep parts when pods or nodes come and go."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from msgspec.structs import replace

from policyd.alloc.topology.goal import level_of
from policyd.alloc.topology.tree import TopologyTree
from policyd.alloc.topology.values import (
    DomainValues,
    PlacementRequest,
    SliceLayer,
    TopologyPlacement,
)


def _placement(
    levels: tuple[str, ...], domains: Iterable[tuple[DomainValues, int]]
) -> TopologyPlacement:
    return TopologyPlacement(levels=levels, domains=tuple(domains))


def assignment_of(tree: TopologyTree, pods: dict[int, int]) -> TopologyPlacement:
    """Return the assignment of pods to leaves, in the order of their values."""
    levels = tree.levels[-1:] if tree.to_nodes else tree.levels
    leaves = sorted(pods, key=tree.rank.__getitem__)
    return _placement(levels, [(tree.names[leaf], pods[leaf]) for leaf in leaves])


def merged(
    tree: TopologyTree, one: TopologyPlacement, other: TopologyPlacement
) -> TopologyPlacement:
    """Return both together, in the order of the domains' values in the topology."""
    pods: dict[DomainValues, int] = {}
    for name, count in (*one.domains, *other.domains):
        pods[name] = pods.get(name, 0) + count

    def values(name: DomainValues) -> DomainValues:
        leaf = tree.leaves.get(name)
        return name if leaf is None else tree.values[leaf]

    return _placement(one.levels, [(name, pods[name]) for name in sorted(pods, key=values)])


def truncated(assignment: TopologyPlacement, count: int) -> TopologyPlacement:
    """Return the first `count` pods of an assignment."""
    domains, left = [], count
    for name, pods in assignment.domains:
        if left > 0:
            domains.append((name, min(pods, left)))
            left -= pods
    return _placement(assignment.levels, domains)


def without(one: TopologyPlacement, other: TopologyPlacement) -> TopologyPlacement:
    """Return the pods of one assignment that are elsewhere, or nowhere, in another."""
    counts = dict(other.domains)
    left = [(name, count - counts.get(name, 0)) for name, count in one.domains]
    return _placement(one.levels, [(name, count) for name, count in left if count > 0])


def without_node(assignment: TopologyPlacement, host: str) -> tuple[TopologyPlacement, int]:
    """Take the pods on a node out of an assignment; return the rest, and how many they are."""
    kept = [each for each in assignment.domains if each[0][-1] != host]
    rest = _placement(assignment.levels, kept)
    return rest, assignment.count - rest.count


class Repair(NamedTuple):
    """Where pods stay, the request for the lost ones, and their required domain, if any."""

    kept: TopologyPlacement
    request: PlacementRequest
    within: int | None


def repair_of(
    tree: TopologyTree, request: PlacementRequest, held: TopologyPlacement, host: str
) -> Repair | None:
    """Return what a pod set lost with a node; None if nothing."""
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
    """Return where lost pods have to be: with their slice, or in their required domain."""
    pods = {tree.leaves[name]: n for name, n in kept.domains if name in tree.leaves}
    if not pods:
        return None
    if broken:
        return _incomplete(tree, pods, broken[-1], lost)
    level = level_of(tree, request)
    if request.mode != "Required" or level not in tree.levels:
        return None
    return tree.ancestor(next(iter(pods)), tree.levels.index(level))


def _incomplete(
    tree: TopologyTree, pods: dict[int, int], layer: SliceLayer, lost: int
) -> int | None:
    """Return the first domain whose slices are whole again with the lost pods."""
    if layer.level not in tree.levels:
        return None
    level, counts = tree.levels.index(layer.level), Counter[int]()
    for leaf, count in pods.items():
        counts[tree.ancestor(leaf, level)] += count
    missing = [d for d, count in counts.items() if (count + lost) % layer.size == 0]
    return min(missing, key=tree.values.__getitem__, default=None)


class KeptPods(NamedTuple):
    """Where the pods of each pod set stay, and the request of those that need more places."""

    assignments: dict[str, TopologyPlacement]
    more: PlacementRequest | None = None


def kept_places(workers: PlacementRequest, leader: PlacementRequest | None) -> KeptPods | None:
    """Return the places that pod sets keep; None if they are to be placed from scratch.

    Of fewer pods, the first ones stay; for more, places are added. Only whole slices are kept.
    """
    held = workers.held
    if held is None:
        return None
    size = workers.slices[0].size if workers.slices else 1
    if size < 1 or held.count % size or workers.count % size:
        return None
    kept = {}
    if leader is not None and leader.held is not None:
        kept[leader.pod_set] = leader.held
    if workers.count > held.count:
        more = replace(workers, count=workers.count - held.count, held=None)
        return KeptPods({workers.pod_set: held, **kept}, more)
    if leader is not None and leader.held is None:
        return None
    return KeptPods({workers.pod_set: truncated(held, workers.count), **kept})
