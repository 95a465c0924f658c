"""Nodes that are not counted, in words: not ready, cordoned, or outside the topology."""

from collections.abc import Iterator
from heapq import nsmallest
from itertools import chain

from policyd.alloc.reasons import Refusal, Unplaced
from policyd.alloc.state import CoreState
from policyd.alloc.topology.tree import TopologyTree
from policyd.alloc.topology.values import NoRoom, TopologyNode, Unusable
from policyd.status.shortages import and_others


def not_counted(state: CoreState, flavor: str, *, limit: int = 3) -> str:
    """Say which nodes with the labels of a flavor are not counted in its topology, and why.

    Args:
        state: The state to look at.
        flavor: Name of a ResourceFlavor.
        limit: How many nodes to name at most.

    Returns:
        Such as `a1-2 is not ready; a1-3 has no label ...`; empty if all are counted.
    """
    nodes = state.ledger.nodes
    if flavor not in nodes.trees:
        return ""
    found, more = left_out(nodes.trees[flavor], limit=limit)
    return "; ".join(f"{node} {why}" for node, why in found.items()) + and_others(more)


def left_out(tree: TopologyTree, *, limit: int) -> tuple[dict[str, str], int]:
    """Say which nodes with the labels of a topology's flavor are not counted.

    Returns:
        The first by name, at most `limit`, and why each is not; and how many more there are.
    """
    twins = {
        name: f"has the host name `{domain[0]}` of node `{names[0]}`"
        for domain, names in tree.twins.items()
        for name in names[1:]
    }
    first = nsmallest(limit, chain(tree.unusable, twins))
    found = {name: twins.get(name) or _why_unusable(tree, tree.unusable[name]) for name in first}
    return found, len(tree.unusable) + len(twins) - len(found)


def _why_unusable(tree: TopologyTree, node: TopologyNode) -> str:
    if not node.ready:
        return "is not ready"
    missing = tree.missing_level(node)
    return f"has no label `{missing}`" if missing else "is cordoned"


def nodes_missed(state: CoreState, refusal: Refusal, queue: str) -> str:
    """Say which nodes are not counted for a workload that has no place; empty if none is missed.

    Args:
        state: The state to look at.
        refusal: Why the workload waits.
        queue: The workload's ClusterQueue.
    """
    if not any(_is_short_of_room(refusal)):
        return ""
    options = state.queues[queue].options if queue in state.queues else None
    flavors = () if options is None else sorted(options.topologies)
    texts = [f"{flavor}: {text}" for flavor in flavors if (text := not_counted(state, flavor))]
    return f"; nodes not counted of flavor {'; of flavor '.join(texts)}" if texts else ""


def _is_short_of_room(refusal: Refusal) -> Iterator[bool]:
    for pod_set in refusal.pod_sets:
        for obstacle in pod_set.obstacles:
            why = obstacle.why if isinstance(obstacle, Unplaced) else None
            yield isinstance(why, NoRoom) or (isinstance(why, Unusable) and why.kind == "NoDomains")
