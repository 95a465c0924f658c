"""The topology of one flavor's nodes: domains, the free amounts of the lowest, and changes.

Layout. Domains are numbers, and their properties are flat lists: a placement reads a column of
integers and walks by `parent` and `children`. A domain of the lowest level is a *leaf*. Numbers of
domains that went are used again. Lists by level are put in order when they are read after
domains came or went; a change of a node's amounts, or of its usage, costs a few integers.
"""

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from policyd.alloc.queue import FlavorSpec
from policyd.alloc.topology.values import (
    CLAIMED,
    HOST_PORT,
    HOSTNAME,
    PODS,
    DomainValues,
    Placement,
    TopologyNode,
)

_LONGEST = 65_536

Mark = tuple[int, int]
"""How far a reader has read."""

UNREAD: Mark = (-1, 0)
"""The mark of a reader of nothing."""


@dataclass(slots=True, eq=False)
class ChangeLog:
    """Numbers of changed leaves, in order; cleared when there are too many."""

    _entries: list[int] = field(default_factory=list)
    _era: int = 0

    @property
    def mark(self) -> Mark:
        """The mark of a reader of everything."""
        return self._era, len(self._entries)

    def extend(self, numbers: Sequence[int]) -> None:
        """Note changed leaves."""
        if len(self._entries) + len(numbers) > _LONGEST:
            self.forget()
        self._entries += numbers

    def forget(self) -> None:
        """Make all readers look at everything again."""
        self._entries.clear()
        self._era += 1

    def since(self, mark: Mark) -> set[int] | None:
        """Return the leaves that changed since, once each; None if that is not known."""
        era, position = mark
        return set(self._entries[position:]) if era == self._era else None


Amounts = Mapping[str, int]
Column = list[int]


@dataclass(slots=True, eq=False)
class Table:
    """Amounts of leaves by their numbers; may be negative.

    Attributes:
        columns: By resource and leaf, how much there is; 0 for numbers that are not of leaves.
        taken: By port and leaf, how many take it.
    """

    columns: dict[str, Column] = field(default_factory=dict)
    taken: dict[str, dict[int, int]] = field(default_factory=dict)

    def left(self, resource: str, leaf: int) -> int:
        """Return how much of a resource there is."""
        column = self.columns.get(resource)
        if column is not None:
            return column[leaf]
        return 1 - self.taken.get(resource, {}).get(leaf, 0) if is_port(resource) else 0

    def shift(
        self, resource: str, counts: Iterable[tuple[int, int]], amount: int, *, size: int
    ) -> None:
        """Add an amount, which may be negative, to leaves as often as their counts say.

        There are as many numbers of domains by now as `size` says.
        """
        column = self.columns.get(resource)
        if column is None and not is_port(resource):
            column = self.columns[resource] = [0] * size
        if column is None:
            taken = self.taken.setdefault(resource, {})
            for leaf, count in counts:
                taken[leaf] = taken.get(leaf, 0) - amount * count
            return
        for leaf, count in counts:
            column[leaf] += amount * count

    def grow(self) -> None:
        """Make room for another number."""
        for column in self.columns.values():
            column.append(0)

    def clear(self, leaf: int) -> None:
        """Clear a leaf, so that its number can be used again."""
        for column in self.columns.values():
            column[leaf] = 0
        for taken in self.taken.values():
            taken.pop(leaf, None)


def is_port(resource: str) -> bool:
    """Tell whether a resource is a port of a node, of which every node has one."""
    return resource.startswith(HOST_PORT)


NOWHERE = -1
"""Stands for no domain, such as the parent of one of the highest level."""


@dataclass(slots=True, eq=False)
class NodeRoom:
    """A node, and its amounts for placed workloads: allocatable without other pods.

    Attributes:
        node: The node.
        amounts: For placed workloads.
        claimed: What it has that pods get by claims, in use or not.
    """

    node: TopologyNode
    amounts: dict[str, int]
    claimed: Amounts


class TopologyTree:
    """The domains of one flavor.

    Attributes:
        flavor: Whose nodes.
        levels: Labels of the levels, the coarsest first.
        to_nodes: Whether leaves are single nodes.
        values: By domain, its values of all levels down to its own.
        parent: By domain, the one it is in.
        children: By domain, those in it, in the order of their values.
        rank: By domain, its place among those of its level in the order of their values.
        at: By level, its domains in the order of their values.
        leaves: Leaves by the values that assignments name them with.
        names: By domain, if it is a leaf, its name in assignments.
        free: By resource and leaf, the free amount; may be negative.
        capacity: By resource and leaf, the free amount if workloads held nothing.
        changed: Leaves whose amounts changed, or that were added.
        changed_nodes: Those whose node changed in more than amounts.
        shape: Grows when domains come or go.
        twins: Names of nodes with the same host name; only the first by name is used.
        unusable: Nodes with the flavor's labels that pods cannot be sent to, by name.
        claimable: What pods get by claims, and is limited by what nodes have.
    """

    def __init__(
        self, flavor: FlavorSpec, levels: tuple[str, ...], used: Mapping[DomainValues, Amounts]
    ) -> None:
        """Start without nodes, but with the usage of nodes that may be added."""
        self.flavor = flavor
        self.levels = levels
        self.to_nodes = bool(levels) and levels[-1] == HOSTNAME
        self.values: list[DomainValues] = []
        self.parent: Column = []
        self.children: list[list[int]] = []
        self.rank: Column = []
        self.at: list[list[int]] = [[] for _ in levels]
        self.leaves: dict[DomainValues, int] = {}
        self.names: list[DomainValues] = []
        self.free = Table()
        self.capacity = Table()
        self.changed = ChangeLog()
        self.changed_nodes = ChangeLog()
        self.shape = 0
        self.twins: dict[DomainValues, list[str]] = {}
        self.unusable: dict[str, TopologyNode] = {}
        self.claimable: Set[str] = frozenset()
        self._rooms: dict[str, NodeRoom] = {}
        self._inner: dict[DomainValues, int] = {}
        self._below: Column = []
        self._node: list[TopologyNode | None] = []
        self._unused: Column = []
        self._settled = 0
        self._used = used

    def settle(self) -> None:
        """Put the lists by level in order. Costs nothing unless domains came or went."""
        if self._settled == self.shape:
            return
        self._settled = self.shape
        by_values = self.values.__getitem__
        members = [list(self.leaves.values())]
        inner: list[list[int]] = [[] for _ in self.levels]
        for values, domain in self._inner.items():
            inner[len(values) - 1].append(domain)
            self.children[domain] = []
        self.at = [sorted(each, key=by_values) for each in (*inner[:-1], *members)]
        for level in self.at:
            for rank, domain in enumerate(level):
                self.rank[domain] = rank
                above = self.parent[domain]
                if above >= 0:
                    self.children[above].append(domain)

    def sum_up(self, column: Column, below: int = -1) -> None:
        """Give each domain above a level, by default the lowest, the sum of those in it."""
        self.settle()
        amount, children = column.__getitem__, self.children
        for level in reversed(self.at[:below]):
            for domain in level:
                column[domain] = sum(map(amount, children[domain]))

    def ancestor(self, domain: int, level: int) -> int:
        """Return the domain of a level that a domain is in, or that it is."""
        while len(self.values[domain]) > level + 1:
            domain = self.parent[domain]
        return domain

    def is_leaf(self, domain: int) -> bool:
        """Tell whether a number is that of a leaf; it may be in use no more."""
        return self.leaves.get(self.names[domain]) == domain

    def node(self, leaf: int) -> TopologyNode:
        """Return the node that a leaf is, if leaves are nodes."""
        node = self._node[leaf]
        assert node is not None, "a leaf that is a node has one"
        return node

    def size(self, leaf: int) -> Amounts:
        """Return what a leaf that is a node has, in use or not, by itself and by claims."""
        node = self.node(leaf)
        claimed = self._rooms[node.name].claimed
        return {**node.allocatable, **claimed} if claimed else node.allocatable

    def limits(self, resource: str) -> bool:
        """Tell whether leaves have room for so much of a resource, and no more.

        It is not known which ports are free where leaves are not nodes.
        """
        if resource.startswith(CLAIMED):
            return resource in self.claimable
        return self.to_nodes or not is_port(resource)

    def name_of(self, node: TopologyNode) -> DomainValues | None:
        """Return the name of the leaf of a node; None if the flavor cannot use it."""
        if not node.usable or not self._wants(node) or self.missing_level(node):
            return None
        return (node.labels[HOSTNAME],) if self.to_nodes else self._values(node)

    def missing_level(self, node: TopologyNode) -> str:
        """Return the first level that a node has no label of; "" if it has all."""
        return next((level for level in self.levels if level not in node.labels), "")

    def put(self, room: NodeRoom) -> None:
        """Take in a node that is new, or whose labels, taints or state changed."""
        name = room.node.name
        before = self._rooms.get(name)
        domain = self.name_of(room.node)
        if before and domain and self._values(before.node) == self._values(room.node):
            self._rooms[name] = room
            if self._shown(domain, name):
                self._update(before, room, self.leaves[domain])
            return
        self.remove(name)
        if domain is not None:
            self._rooms[name] = room
            self._add(domain, name)
        elif self._wants(room.node):
            self.unusable[name] = room.node

    def remove(self, name: str) -> None:
        """Remove a node."""
        self.unusable.pop(name, None)
        room = self._rooms.pop(name, None)
        if room is None:
            return
        domain = self.name_of(room.node)
        assert domain is not None, "only nodes with a place are kept"
        shown = self._shown(domain, name)
        twins = self.twins.get(domain, [name])
        twins.remove(name)
        if len(twins) < 2:
            self.twins.pop(domain, None)
        if not shown:
            return
        self._detach(domain, room)
        if twins:
            self._attach(domain, self._rooms[twins[0]])

    def add(self, name: str, amounts: Amounts, sign: int) -> None:
        """Change a node's amounts; it may be one that the flavor does not use."""
        room = self._rooms.get(name)
        if room is None:
            return
        domain = self.name_of(room.node)
        assert domain is not None, "only nodes with a place are kept"
        if self._shown(domain, name):
            self._shift(self.leaves[domain], amounts, sign, self.free, self.capacity)

    def charge(self, placement: Placement, sign: int, *tables: Table) -> None:
        """Subtract the usage of placed pods from tables; unknown leaves are skipped."""
        leaves = self.leaves
        pods = [(leaves[d], n) for d, n in placement.assignment.domains if d in leaves]
        for resource, amount in {**placement.requests, PODS: 1}.items():
            for table in tables:
                table.shift(resource, pods, -sign * amount, size=len(self.values))
        self.changed.extend([leaf for leaf, _ in pods])

    def _wants(self, node: TopologyNode) -> bool:
        labels, wanted = node.labels, self.flavor.labels
        return all(labels.get(key) == value for key, value in wanted.items())

    def _values(self, node: TopologyNode) -> DomainValues:
        return tuple([node.labels[level] for level in self.levels])

    def _shown(self, domain: DomainValues, name: str) -> bool:
        twins = self.twins.get(domain)
        return not twins or twins[0] == name

    def _update(self, before: NodeRoom, after: NodeRoom, leaf: int) -> None:
        old, new = before.amounts, after.amounts
        more = {name: new.get(name, 0) - old.get(name, 0) for name in {**old, **new}}
        changed = {name: amount for name, amount in more.items() if amount}
        self._shift(leaf, changed, 1, self.free, self.capacity)
        if self.to_nodes:
            self._node[leaf] = node = after.node
            if (node.labels, node.taints) != (before.node.labels, before.node.taints):
                self.changed_nodes.extend((leaf,))

    def _add(self, domain: DomainValues, name: str) -> None:
        if self.to_nodes and (domain in self.leaves):
            twins = self.twins.setdefault(domain, [self.node(self.leaves[domain]).name])
            insort(twins, name)
            if twins[0] != name:
                return
            self._detach(domain, self._rooms[twins[1]])
        self._attach(domain, self._rooms[name])

    def _attach(self, domain: DomainValues, room: NodeRoom) -> None:
        leaf = self.leaves.get(domain)
        if leaf is None:
            leaf = self.leaves[domain] = self._number(self._values(room.node), domain)
            self._shift(leaf, self._used.get(domain, {}), -1, self.free)
        self._below[leaf] += 1
        self._shift(leaf, room.amounts, 1, self.free, self.capacity)
        if self.to_nodes:
            self._node[leaf] = room.node
            self.changed_nodes.extend((leaf,))

    def _detach(self, domain: DomainValues, room: NodeRoom) -> None:
        leaf = self.leaves[domain]
        self._shift(leaf, room.amounts, -1, self.free, self.capacity)
        self._below[leaf] -= 1
        if not self._below[leaf]:
            del self.leaves[domain]
            self.changed_nodes.extend((leaf,))
            self._release(leaf)

    def _release(self, domain: int) -> None:
        """Give back the number of a domain with nothing in it, and of those above likewise."""
        self.free.clear(domain)
        self.capacity.clear(domain)
        self._node[domain] = None
        self._unused.append(domain)
        self.shape += 1
        above = self.parent[domain]
        if above >= 0:
            self._below[above] -= 1
            if not self._below[above]:
                del self._inner[self.values[above]]
                self._release(above)

    def _number(self, values: DomainValues, name: DomainValues) -> int:
        """Make a domain, and those above it that are not there yet."""
        above = NOWHERE
        if len(values) > 1:
            found = self._inner.get(values[:-1])
            above = self._number(values[:-1], ()) if found is None else found
            self._inner[values[:-1]] = above
            self._below[above] += 1
        self.shape += 1
        if self._unused:
            domain = self._unused.pop()
            self.values[domain], self.names[domain], self.parent[domain] = values, name, above
            self.children[domain] = []
            return domain
        self.values.append(values)
        self.names.append(name)
        self.parent.append(above)
        self.children.append([])
        self._node.append(None)
        self.rank.append(0)
        self._below.append(0)
        self.free.grow()
        self.capacity.grow()
        return len(self.values) - 1

    def _shift(self, leaf: int, amounts: Amounts, sign: int, *tables: Table) -> None:
        for table in tables:
            for resource, amount in amounts.items():
                table.shift(resource, ((leaf, amount),), sign, size=len(self.values))
        self.changed.extend((leaf,))
