"""Which ClusterQueue is in which Cohort, and which Cohort below which.

A cohort exists when it has an object, or when something names it as its parent. Whoever names a
cohort that leads back to itself makes a cycle; its members, and all below them, get no quota until
it is broken.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from policyd.alloc.queue import FlavorResource, Quota


@dataclass(slots=True, eq=False)
class QuotaNode:
    """A ClusterQueue or a Cohort.

    Attributes:
        queue: Whether it is a ClusterQueue; its name is unique among its kind.
        parent: The cohort above, None for a root.
        children: Queues and cohorts below, by kind and name.
        declared: Whether it has an object of its own.
        weight: How much it counts against its siblings where they share fairly.
        cells: Numbers of its cells, by flavor and resource.
        height: 0 for a queue or an empty cohort, else one more than its highest child.
        root: The top of its tree, itself if it has no parent. Valid after a refresh.
        cyclic: Whether following the parents never ends. Valid after a refresh.
        generation: Grows whenever workloads below may find more quota than before.
        version: Of a root: another number whenever quota or usage in its tree changes for good.
    """

    name: str
    queue: bool = field(kw_only=True)
    parent: "QuotaNode | None" = None
    children: dict[tuple[bool, str], "QuotaNode"] = field(default_factory=dict)
    declared: bool = False
    quotas: Mapping[FlavorResource, Quota] = field(default_factory=dict)
    cells: dict[FlavorResource, int] = field(default_factory=dict)
    weight: float = 1.0
    height: int = 0
    root: "QuotaNode" = field(init=False)
    cyclic: bool = False
    generation: int = 0
    version: int = 0

    def __post_init__(self) -> None:
        self.declared, self.root = self.queue, self

    @property
    def path(self) -> str:
        """The names from the top of the tree down to it: `/root/team/queue`."""
        above = "" if self.parent is None else self.parent.path
        return f"{above}/{self.name}"


class Hierarchy:
    """The trees of ClusterQueues and Cohorts, those included that are only named.

    It remembers which nodes changed, in their quotas, parent or children, and which are gone.
    """

    def __init__(self) -> None:
        self.queues: dict[str, QuotaNode] = {}
        self.cohorts: dict[str, QuotaNode] = {}
        self.changed: list[QuotaNode] = []
        self.dropped: list[QuotaNode] = []

    def put_queue(
        self, name: str, cohort: str, quotas: Mapping[FlavorResource, Quota]
    ) -> QuotaNode:
        """Add a ClusterQueue, or change its quotas or its cohort."""
        node = self.queues.setdefault(name, QuotaNode(name, queue=True))
        self._place(node, cohort, quotas)
        return node

    def remove_queue(self, name: str) -> None:
        """Remove a ClusterQueue."""
        node = self.queues.pop(name)
        self._attach(node, None)
        self.dropped.append(node)

    def put_cohort(
        self, name: str, parent: str, quotas: Mapping[FlavorResource, Quota]
    ) -> QuotaNode:
        """Add a Cohort, or change its quotas or its parent."""
        node = self._cohort(name)
        node.declared = True
        self._place(node, parent, quotas)
        return node

    def remove_cohort(self, name: str) -> None:
        """Remove a Cohort's quotas and parent. It lives on without them while it has children."""
        node = self.cohorts[name]
        node.declared = False
        node.weight = 1.0
        self._place(node, "", {})
        self._drop_if_idle(node)

    def take_changed_roots(self) -> list[QuotaNode]:
        """Return the tops of the trees that changed, once each, and forget that they did.

        For a tree that hangs from a cycle, one node of the cycle stands for the top.
        """
        gone = set(self.dropped)
        tops = dict.fromkeys(_top(node) for node in self.changed if node not in gone)
        self.changed.clear()
        return list(tops)

    def _place(self, node: QuotaNode, parent: str, quotas: Mapping[FlavorResource, Quota]) -> None:
        self._attach(node, self._cohort(parent) if parent else None)
        node.quotas = quotas
        self.changed.append(node)

    def _cohort(self, name: str) -> QuotaNode:
        return self.cohorts.setdefault(name, QuotaNode(name, queue=False))

    def _attach(self, node: QuotaNode, parent: QuotaNode | None) -> None:
        old, node.parent = node.parent, parent
        if parent is not None:
            parent.children[node.queue, node.name] = node
        if old is not None and old is not parent:
            del old.children[node.queue, node.name]
            self.changed.append(old)
            self._drop_if_idle(old)

    def _drop_if_idle(self, cohort: QuotaNode) -> None:
        if not cohort.children and not cohort.declared and cohort.name in self.cohorts:
            self.dropped.append(self.cohorts.pop(cohort.name))


def descendants(top: QuotaNode) -> list[QuotaNode]:
    """Return `top` and all below it, parents before children; in a cycle, each node once."""
    nodes, seen = [top], {top}
    for node in nodes:
        children = [child for child in node.children.values() if child not in seen]
        nodes += children
        seen.update(children)
    return nodes


def _top(node: QuotaNode) -> QuotaNode:
    path: list[QuotaNode] = []
    while node.parent is not None and node not in path:
        path.append(node)
        node = node.parent
    if node.parent is None:
        return node
    return min(path[path.index(node) :], key=lambda member: member.name)
