"""Arithmetic of assignments: join them, shorten them, take a node out of them."""

from policyd.alloc.topology.tree import TopologyTree
from policyd.alloc.topology.values import DomainValues, TopologyPlacement


def assignment_of(tree: TopologyTree, pods: dict[int, int]) -> TopologyPlacement:
    """Return the assignment of so many pods to leaves, in the order of their values."""
    levels = tree.levels[-1:] if tree.to_nodes else tree.levels
    leaves = sorted(pods, key=tree.rank.__getitem__)
    return TopologyPlacement(
        levels=levels, domains=tuple([(tree.names[leaf], pods[leaf]) for leaf in leaves])
    )


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

    names = sorted(pods, key=values)
    return TopologyPlacement(
        levels=one.levels, domains=tuple([(name, pods[name]) for name in names])
    )


def truncated(assignment: TopologyPlacement, count: int) -> TopologyPlacement:
    """Return the first `count` pods of an assignment."""
    domains, left = [], count
    for name, pods in assignment.domains:
        if left > 0:
            domains.append((name, min(pods, left)))
            left -= pods
    return TopologyPlacement(levels=assignment.levels, domains=tuple(domains))


def without(one: TopologyPlacement, other: TopologyPlacement) -> TopologyPlacement:
    """Return of one assignment what another has not: pods that are elsewhere there, or nowhere."""
    counts = dict(other.domains)
    left = [(name, count - counts.get(name, 0)) for name, count in one.domains]
    return TopologyPlacement(
        levels=one.levels, domains=tuple([(name, count) for name, count in left if count > 0])
    )


def without_node(assignment: TopologyPlacement, host: str) -> tuple[TopologyPlacement, int]:
    """Take the pods on a node out of an assignment; return the rest, and how many they are."""
    kept = tuple([each for each in assignment.domains if each[0][-1] != host])
    rest = TopologyPlacement(levels=assignment.levels, domains=kept)
    return rest, assignment.count - rest.count
