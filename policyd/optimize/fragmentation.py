"""Fragmentation: free devices that a workload which needs whole nodes cannot use.

Theory (Weng et al., Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent, USENIX ATC 2023). A node's free GPUs are *fragments* for a task that does not fit
there; fragmentation is their expected number over coming tasks. Here the task is the
one that suffers first: it asks for all devices of a node. So the free devices of a node are
fragments if the node is in use in part.

To keep it low, of equally good places the one with most fragments goes first: a workload
there breaks up no whole node. That is the descent which FGD looks for, as far as
places differ in nothing else.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.tree import Column, TopologyTree
from policyd.alloc.topology.values import CLAIMED
from policyd.optimize.devices import device_of


class Fragmentation(NamedTuple):
    """Free devices of a part of the cluster.

    Attributes:
        free: How many there are.
        fragments: How many of them are on nodes that are in use in part.
    """

    free: int = 0
    fragments: int = 0

    @property
    def share(self) -> float:
        """The fraction of free devices that are fragments; 0 if none is free."""
        return self.fragments / self.free if self.free else 0.0


def measured(nodes: Nodes) -> Iterator[tuple[str, str, Fragmentation]]:
    """Yield flavors with a topology, their kinds of devices, and how these are fragmented.

    Devices that pods get by claims are added to those that nodes have themselves.
    """
    for flavor, tree in sorted(nodes.trees.items()):
        found: dict[str, Fragmentation] = {}
        for resource in (each for each in tree.capacity.columns if "/" in each):
            name, more = resource.removeprefix(CLAIMED), fragmentation(tree, resource)
            free, fragments = found.get(name, Fragmentation())
            found[name] = Fragmentation(free + more.free, fragments + more.fragments)
        for name in sorted(found):
            yield flavor, name, found[name]


def fragmentation(tree: TopologyTree, resource: str) -> Fragmentation:
    """Measure the fragmentation of a topology's free devices."""
    tree.settle()
    free, fragments = free_of(tree, resource), fragments_of(tree, resource)
    top = tree.at[0]
    return Fragmentation(sum([free[d] for d in top]), sum([fragments[d] for d in top]))


def free_of(tree: TopologyTree, resource: str) -> Column:
    """Return how many devices are free in each domain."""
    return _summed(tree, [max(0, free) for free in _free(tree, resource)])


def fragments_of(tree: TopologyTree, resource: str) -> Column:
    """Return how many fragments there are in each domain.

    A lowest domain of several nodes counts as one: on which of them its pods are is not known.
    """
    free = _free(tree, resource)
    if not tree.to_nodes:
        whole = tree.capacity.columns.get(resource, free)
        pieces = [max(0, left) if left < has else 0 for left, has in zip(free, whole, strict=True)]
        return _summed(tree, pieces)
    pieces = [0] * len(free)
    claimed, node, size = resource.startswith(CLAIMED), tree.node, tree.size
    for leaf in tree.leaves.values():
        left = free[leaf]
        if left > 0:
            has = (size(leaf) if claimed else node(leaf).allocatable).get(resource, 0)
            pieces[leaf] = left if left < has else 0
    return _summed(tree, pieces)


def fragments_first(tree: TopologyTree, requests: Mapping[str, int]) -> Column:
    """Rank domains by their fragments of the device that a pod asks for."""
    return fragments_of(tree, device_of(requests))


def _free(tree: TopologyTree, resource: str) -> Column:
    return tree.free.columns.get(resource) or [0] * len(tree.values)


def _summed(tree: TopologyTree, column: Column) -> Column:
    """Sum up a column of leaves for the domains around them."""
    tree.sum_up(column)
    return column
