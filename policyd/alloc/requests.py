"""What a workload asks of a queue, worked out once: which cells, and how much of each.

Turning names into cell numbers costs more than deciding. It is done once for all workloads with the
same requests, and again only when the queue's quotas change.
"""

from collections.abc import Mapping
from functools import lru_cache

from policyd.alloc.assignment import Assignment, plain_assignment
from policyd.alloc.flavor import FlavorSpec
from policyd.alloc.hierarchy import Node
from policyd.alloc.offers import Offer, PodSetRequests
from policyd.alloc.queue import QueueSpec, ResourceGroup
from policyd.alloc.workload import PodSet, Workload

PODS = "pods"
"""The resource that counts pods, where a queue has quota for it."""

_MOST_REQUESTS = 1_000


class Requests:
    """What a workload asks of a queue.

    Attributes:
        pod_sets: What each pod set asks.
        plain: What the workload gets if there is room for all of it in the first flavors without
            borrowing; None if these may be unsuitable.
        totals: What the pods of each pod set need together, by name and resource.
    """

    __slots__ = ("plain", "pod_sets", "totals")

    def __init__(self, pod_sets: tuple[PodSetRequests, ...]) -> None:
        self.pod_sets = pod_sets
        self.plain: Assignment | None = plain_assignment(pod_sets)
        self.totals: Mapping[str, Mapping[str, int]] = {p.name: p.totals for p in pod_sets}


class QueueOptions:
    """Everything a queue has to offer, with names turned into cells.

    Attributes:
        spec: The queue.
        missing: Flavors it names that do not exist.
        open: Whether nothing of its own keeps it from giving out quota.
    """

    __slots__ = ("_cells", "_flavors", "_group_of", "_requests", "missing", "open", "spec")

    def __init__(self, spec: QueueSpec, node: Node, flavors: Mapping[str, FlavorSpec]) -> None:
        self.spec = spec
        self.missing = tuple(name for name in spec.flavors if name not in flavors)
        blocked = spec.stopped or spec.missing_checks or spec.inactive_checks
        self.open = not blocked and not self.missing
        self._flavors = {name: flavors[name] for name in spec.flavors if name in flavors}
        self._cells = node.cells
        self._group_of = {r: group for group in spec.groups for r in group.resources}
        self._requests: dict[object, Requests] = {}

    def requests(self, workload: Workload) -> Requests:
        """Work out what a workload asks of the queue."""
        key = tuple([(p.name, p.count, *p.requests.items()) for p in workload.pod_sets])
        requests = self._requests.get(key)
        if requests is None:
            if len(self._requests) >= _MOST_REQUESTS:
                self._requests.clear()
            pod_sets = tuple(self._pod_set_requests(pod_set) for pod_set in workload.pod_sets)
            requests = self._requests[key] = Requests(pod_sets)
        return requests

    def _pod_set_requests(self, pod_set: PodSet) -> PodSetRequests:
        totals = pod_set.totals()
        if PODS in self._group_of:
            totals[PODS] = pod_set.count
        requests = PodSetRequests(pod_set.name, pod_set.count, totals)
        groups: dict[tuple[str, ...], tuple[Offer, ...]] = {}
        for resource in sorted(totals, key=search_order):
            group = self._group_of.get(resource)
            if group is not None and group.resources not in groups:
                groups[group.resources] = self._offers(group, totals)
            if group is None and totals[resource]:
                requests.uncovered = resource
                break
        requests.groups = tuple(groups.values())
        return requests

    def _offers(self, group: ResourceGroup, totals: Mapping[str, int]) -> tuple[Offer, ...]:
        wanted = sorted((r for r in group.resources if r in totals), key=search_order)
        offers = []
        for flavor in group.flavors:
            given = [r for r in wanted if r in flavor.quotas]
            charges = {self._cells[flavor.name, r]: totals[r] for r in given}
            lacks = next((r for r in wanted if r not in flavor.quotas), "")
            spec = self._flavors.get(flavor.name)
            offers.append(Offer(flavor.name, spec, tuple(given), charges, lacks))
        return tuple(offers)


@lru_cache(maxsize=1024)
def search_order(resource: str) -> int:
    """Return the 64-bit FNV-1a hash of a resource's name: the order in which Kueue visits them.

    It decides nothing but which of several obstacles is met, and so named, first.
    """
    order = 0xCBF29CE484222325
    for byte in resource.encode():
        order = (order ^ byte) * 0x100000001B3 % 2**64
    return order
