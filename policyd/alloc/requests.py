"""What a workload asks of a queue, worked out once: which cells, and how much of each.

Turning names into cell numbers costs more than deciding. It is done when a workload is first looked
at, and again only when its queue's quotas change.
"""

from collections.abc import Mapping
from functools import lru_cache

from policyd.alloc.flavor import FlavorSpec
from policyd.alloc.hierarchy import Node
from policyd.alloc.queue import QueueSpec, ResourceGroup
from policyd.alloc.quota import NOWHERE
from policyd.alloc.workload import PodSet, Workload

PODS = "pods"
"""The resource that counts pods, where a queue has quota for it."""


class FlavorOption:
    """A flavor of a resource group: its specification, None if missing, and a cell a resource."""

    __slots__ = ("cells", "name", "restricts", "spec")

    def __init__(self, name: str, spec: FlavorSpec | None, cells: tuple[int, ...]) -> None:
        self.name = name
        self.spec = spec
        self.cells = cells
        self.restricts = spec is None or bool(spec.labels or spec.taints)


class GroupOptions:
    """A resource group of a queue: its resources, and its flavors in order of trial."""

    __slots__ = ("flavors", "resources")

    def __init__(self, resources: tuple[str, ...], flavors: tuple[FlavorOption, ...]) -> None:
        self.resources = resources
        self.flavors = flavors


class QueueOptions:
    """Everything a queue has to offer, with names turned into cells.

    Attributes:
        spec: The queue.
        groups: Its resource groups.
        missing: Flavors it names that do not exist.
    """

    __slots__ = ("groups", "missing", "spec")

    def __init__(self, spec: QueueSpec, node: Node, flavors: Mapping[str, FlavorSpec]) -> None:
        self.spec = spec
        self.groups = tuple(_group_options(group, node, flavors) for group in spec.groups)
        self.missing = tuple(name for name in spec.flavors if name not in flavors)


class GroupRequests:
    """What a pod set wants of one group: positions of the group's resources, and amounts."""

    __slots__ = ("group", "wants")

    def __init__(self, group: GroupOptions, wants: tuple[tuple[int, int], ...]) -> None:
        self.group = group
        self.wants = wants


class PodSetRequests:
    """What a pod set wants: of each group in the order of the search.

    Attributes:
        pod_set: Whose demand it is.
        totals: What all its pods need together, by resource.
        groups: What to search a flavor for.
        uncovered: A resource the queue has nothing of, met after `groups`; "" for none.
    """

    __slots__ = ("groups", "pod_set", "totals", "uncovered")

    def __init__(self, pod_set: PodSet, options: QueueOptions) -> None:
        self.pod_set = pod_set
        self.totals = pod_set.totals()
        self.uncovered = ""
        where = {r: group for group in options.groups for r in group.resources}
        if PODS in where:
            self.totals[PODS] = pod_set.count
        wanted: dict[int, GroupRequests] = {}
        for resource in sorted(self.totals, key=search_order):
            group = where.get(resource)
            if group is not None and id(group) not in wanted:
                wanted[id(group)] = GroupRequests(group, self._wants(group))
            if group is None and self.totals[resource]:
                self.uncovered = resource
                break
        self.groups = tuple(wanted.values())

    def _wants(self, group: GroupOptions) -> tuple[tuple[int, int], ...]:
        positions = [
            (search_order(resource), position, self.totals[resource])
            for position, resource in enumerate(group.resources)
            if resource in self.totals
        ]
        return tuple((position, amount) for _, position, amount in sorted(positions))


def requests_of(workload: Workload, options: QueueOptions) -> tuple[PodSetRequests, ...]:
    """Work out what `workload` asks of a queue with `options`, pod set by pod set."""
    return tuple(PodSetRequests(pod_set, options) for pod_set in workload.pod_sets)


@lru_cache(maxsize=1024)
def search_order(resource: str) -> int:
    """Return the 64-bit FNV-1a hash of a resource's name: the order in which Kueue visits them.

    It decides nothing but which of several obstacles is met, and so named, first.
    """
    order = 0xCBF29CE484222325
    for byte in resource.encode():
        order = (order ^ byte) * 0x100000001B3 % 2**64
    return order


def _group_options(
    group: ResourceGroup, node: Node, flavors: Mapping[str, FlavorSpec]
) -> GroupOptions:
    options = []
    for flavor in group.flavors:
        cells = [
            node.cells[flavor.name, resource] if resource in flavor.quotas else NOWHERE
            for resource in group.resources
        ]
        options.append(FlavorOption(flavor.name, flavors.get(flavor.name), tuple(cells)))
    return GroupOptions(group.resources, tuple(options))
