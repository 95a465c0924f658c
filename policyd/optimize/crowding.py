"""Who crowds the domains that a request might be in."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import nlargest

from policyd.alloc.topology.nodes import Nodes
from policyd.alloc.topology.tree import TopologyTree
from policyd.alloc.topology.values import PODS, PlacementRequest
from policyd.optimize.devices import device_of
from policyd.optimize.fragmentation import free_of

MOST_DOMAINS = 64
"""How many domains are looked at, those with most room first."""

_EVERYWHERE, _NOWHERE = -1, -2
"""In the place of a domain: for who may be in several, and for a node that is gone."""


def crowds(
    nodes: Nodes, requests: Mapping[str, Sequence[PlacementRequest]], keys: Iterable[str]
) -> Iterator[list[str]]:
    """Yield, for each domain that a request might be in, who has something there.

    Args:
        nodes: What there is.
        requests: What is asked, by flavor.
        keys: Of which workloads; those who have as much stay in this order.

    Yields:
        Keys, of those first who have most devices there.
    """
    known = list(keys)
    for flavor, (request, *_) in requests.items():
        tree, device = nodes.trees[flavor], device_of(request.requests) or PODS
        there: dict[int, Counter[str]] = {}
        for key in known:
            for placement in nodes.held.get(key, ()):
                each = placement.requests.get(device, 1 if device == PODS else 0)
                for name, count in placement.assignment.domains:
                    domain = _domain(tree, request, tree.leaves.get(name))
                    there.setdefault(domain, Counter())[key] += each * count
        there.pop(_NOWHERE, None)
        free = [*free_of(tree, device), 0]
        for domain in nlargest(MOST_DOMAINS, there, key=free.__getitem__):
            yield [key for key, amount in there[domain].most_common() if amount]


def _domain(tree: TopologyTree, request: PlacementRequest, leaf: int | None) -> int:
    """Return the domain, of those that a request might be in, that a leaf is in."""
    if leaf is None:
        return _NOWHERE
    if request.mode != "Required" or request.level not in tree.levels:
        return _EVERYWHERE
    return tree.ancestor(leaf, tree.levels.index(request.level))
