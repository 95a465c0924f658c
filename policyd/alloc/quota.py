"""The quota tree: how much every queue may use, does use, and could get from its cohort.

A Cohort exists when it has an object, or when something names it as its parent. Cohorts that lead
back to themselves make a cycle: their members, and all below them, get no quota until it is broken.

Theory. A node has *subtree quota*: its own nominal quota and the quota that its children lend. It
keeps some of that to itself, the *guaranteed* part, by its lending limit; the rest is in its
parent's pool. Usage fills the guaranteed part first, and only the excess is charged to the parent.
A node can still get its unused guaranteed part and the amount that its parent can get, the latter
bounded by its borrowing limit.

Layout. A *cell* is one flavor and resource at one node. Cells are numbers, and the quantities of
all cells are flat lists, so that a decision touches a few integers and walks up by `parent`. Cells
are made where quota or usage is, and in every ancestor. After changes of the hierarchy `refresh`
recomputes the trees concerned, once for any number of changes.

What-if questions change usage for real and take it back: a trial notes each cell's former value.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain

from policyd.alloc.amount import UNLIMITED, add, subtract
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

    Nodes that `changed` in quotas, parent or children, and those `dropped`, are remembered.
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
        """Return the tops of the trees that changed, once each, and clear the list.

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


NOWHERE = -1
"""In the place of a cell that is not there, such as the parent of a root's."""

_NO_QUOTA = Quota(nominal=0)

Shared = tuple[str, int, list[tuple[FlavorResource, int, int]]]
"""A resource, how much of it can be lent, and a node's flavors of it, with cells and quotas."""


class QuotaTree:
    """Quota and usage of all ClusterQueues and Cohorts.

    Attributes:
        hierarchy: Its nodes. Change it there, then `refresh`.
        node: The node of each cell, and `names` its flavor and resource.
        parent: The same flavor and resource one level up, NOWHERE for a root.
        nominal: Own quota of each cell.
        borrowing_limit: Most that may be used beyond the subtree quota; None without a limit.
        subtree: Own quota with what the children lend.
        guaranteed: The part of it that the parent never sees.
        ceiling: Most that may be charged to the parent; UNLIMITED without a borrowing limit.
        pool: The root's cell, if on the way there nothing is guaranteed or limited; else NOWHERE.
        potential: Amounts that could be used if nothing were in use.
        usage: Amounts in use: of queues directly, of cohorts by the overflow of their children.
        lendable: By node, the amounts of each resource that could be lent to those below; `shared`,
            those that it may borrow. Kept for fair sharing until quotas change.
    """

    def __init__(self) -> None:
        self.hierarchy = Hierarchy()
        self.node: list[QuotaNode] = []
        self.names: list[FlavorResource] = []
        self.parent: list[int] = []
        self.nominal: list[int] = []
        self.borrowing_limit: list[int | None] = []
        self.subtree: list[int] = []
        self.guaranteed: list[int] = []
        self.ceiling: list[int] = []
        self.pool: list[int] = []
        self.potential: list[int] = []
        self.usage: list[int] = []
        self.lendable: dict[QuotaNode, dict[str, int]] = {}
        self.shared: dict[QuotaNode, tuple[Shared, ...]] = {}
        self._unused: list[int] = []
        self._log: dict[int, int] | None = None
        self._version = 0

    def available(self, cell: int) -> int:
        """Return the amount that the cell could still get; negative if more is used than exists."""
        usage, subtree = self.usage, self.subtree
        pool = self.pool[cell]
        if pool >= 0:
            return UNLIMITED if subtree[pool] >= UNLIMITED else subtree[pool] - usage[pool]
        parent, guaranteed, ceiling = self.parent, self.guaranteed, self.ceiling
        spare, bound, up = 0, UNLIMITED, parent[cell]
        while up >= 0:
            overflow = usage[cell] - guaranteed[cell]
            if overflow < 0:
                spare -= overflow
                overflow = 0
            if ceiling[cell] < UNLIMITED:
                bound = min(bound, spare + ceiling[cell] - overflow)
            cell, up = up, parent[up]
        if subtree[cell] >= UNLIMITED:
            return bound
        return min(bound, spare + subtree[cell] - usage[cell])

    def borrowing_level(self, cell: int, amount: int) -> tuple[int, bool]:
        """Return the height of the lowest subtree whose quota holds `amount` more.

        It is 0 without borrowing. Also tell whether that is less than the whole tree, so that quota
        that other nodes took could be reclaimed.
        """
        usage, subtree, parent = self.usage, self.subtree, self.parent
        up = parent[cell]
        if up < 0 or usage[cell] + amount <= subtree[cell]:
            return 0, up >= 0
        while True:
            amount -= max(0, self.guaranteed[cell] - usage[cell])
            cell, up = up, parent[up]
            if up < 0 or usage[cell] + amount <= subtree[cell]:
                return self.node[cell].height, up >= 0

    def strained(
        self, charges: Mapping[int, int], assumed: Mapping[int, int]
    ) -> list[tuple[int, int]]:
        """Return the cells of `charges` that would borrow or have too little, and their needs.

        The amounts in `assumed` are counted as used before.
        """
        usage, subtree, pools = self.usage, self.subtree, self.pool
        found = []
        for cell, amount in charges.items():
            needed = amount + assumed[cell] if cell in assumed else amount
            if usage[cell] + needed > subtree[cell]:
                found.append((cell, needed))
            else:
                pool = pools[cell]
                open_ = pool >= 0 and usage[pool] + needed <= subtree[pool]
                if not open_ and needed and needed > self.available(cell):
                    found.append((cell, needed))
        return found

    def fits(self, charges: Mapping[int, int], *, borrowing: bool = True) -> bool:
        """Tell whether all cells of `charges` could get their amounts, perhaps by `borrowing`."""
        usage, subtree, pools = self.usage, self.subtree, self.pool
        for cell, amount in charges.items():
            if not borrowing and usage[cell] + amount > subtree[cell]:
                return False
            pool = pools[cell]
            if pool >= 0 and usage[pool] + amount <= subtree[pool]:
                continue
            if amount and amount > self.available(cell):
                return False
        return True

    def charge(self, charges: Mapping[int, int]) -> None:
        """Use more, at least 0 of each cell; the excess over the guaranteed goes to the parent."""
        self._use(charges, 1)

    def release(self, charges: Mapping[int, int]) -> None:
        """Use less: the reverse of `charge`."""
        self._use(charges, -1)

    def _use(self, charges: Mapping[int, int], sign: int) -> None:
        usage, guaranteed, parent, log = self.usage, self.guaranteed, self.parent, self._log
        for leaf, amount in charges.items():
            cell, change = leaf, amount * sign
            while change and cell >= 0:
                before = usage[cell]
                if log is not None and cell not in log:
                    log[cell] = before
                usage[cell] = before + change
                own = guaranteed[cell]
                if own:
                    change = max(own, before + change) - max(own, before)
                cell = parent[cell]
        if log is None and charges:
            self.touch(self.node[leaf])

    def touch(self, node: QuotaNode) -> None:
        """Note that something in the tree of a node changed."""
        self._version += 1
        node.root.version = self._version

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Undo, at the end of the block, all charges and releases in it."""
        log: dict[int, int] = {}
        outer, self._log = self._log, log
        try:
            yield
        finally:
            for cell, before in log.items():
                self.usage[cell] = before
            self._log = outer

    def cell(self, node: QuotaNode, flavor_resource: FlavorResource) -> int:
        """Return the cell of a node; if it has none it is made, with those above it."""
        if flavor_resource not in node.cells:
            self._make_cell(node, flavor_resource)
            self.hierarchy.changed.append(node)
            self.refresh()
        return node.cells[flavor_resource]

    def refresh(self) -> None:
        """Recompute the trees that changed. Costs nothing if none did."""
        hierarchy = self.hierarchy
        if not hierarchy.changed and not hierarchy.dropped:
            return
        assert self._log is None, "the tree does not change during a trial"
        self.lendable.clear()
        self.shared.clear()
        for top in hierarchy.take_changed_roots():
            self._recompute(top)
        for node in hierarchy.dropped:
            self._free(node)
        hierarchy.dropped.clear()

    def _recompute(self, top: QuotaNode) -> None:
        nodes = descendants(top)
        self._version += 1
        cyclic = top.parent is not None
        for node in reversed(nodes):
            node.root, node.cyclic = top, cyclic
            node.generation += 1
            node.version = self._version
            self._recompute_node(node, () if cyclic else node.children.values())
        for node in nodes:
            for cell in node.cells.values():
                self._look_up(cell)

    def _recompute_node(self, node: QuotaNode, children: Iterable[QuotaNode]) -> None:
        node.height = max((1 if child.queue else 1 + child.height for child in children), default=0)
        for flavor_resource in chain(node.quotas, *(child.cells for child in children)):
            if flavor_resource not in node.cells:
                self._make_cell(node, flavor_resource)
        for flavor_resource, cell in node.cells.items():
            below = [c.cells[flavor_resource] for c in children if flavor_resource in c.cells]
            self._recompute_cell(cell, node.quotas.get(flavor_resource, _NO_QUOTA), below)

    def _recompute_cell(self, cell: int, quota: Quota, below: list[int]) -> None:
        subtree = quota.nominal
        for child in below:
            self.parent[child] = cell
            subtree = add(subtree, subtract(self.subtree[child], self.guaranteed[child]))
        lends, borrows = quota.lending_limit, quota.borrowing_limit
        guaranteed = 0 if lends is None else max(0, subtract(subtree, lends))
        lent = subtract(subtree, guaranteed)
        self.ceiling[cell] = UNLIMITED if borrows is None else add(lent, borrows)
        self.parent[cell], self.nominal[cell] = NOWHERE, quota.nominal
        self.borrowing_limit[cell] = borrows
        self.subtree[cell], self.guaranteed[cell] = subtree, guaranteed
        if not self.node[cell].queue:
            self.usage[cell] = sum(max(0, self.usage[c] - self.guaranteed[c]) for c in below)

    def _look_up(self, cell: int) -> None:
        """Compute the values that depend on the cell above, which is known already."""
        above = self.parent[cell]
        if above == NOWHERE:
            self.potential[cell], self.pool[cell] = self.subtree[cell], cell
            return
        limit = self.borrowing_limit[cell]
        most = UNLIMITED if limit is None else add(self.subtree[cell], limit)
        self.potential[cell] = min(most, add(self.guaranteed[cell], self.potential[above]))
        open_ = not self.guaranteed[cell] and self.ceiling[cell] >= UNLIMITED
        self.pool[cell] = self.pool[above] if open_ else NOWHERE

    def _make_cell(self, node: QuotaNode, flavor_resource: FlavorResource) -> None:
        if self._unused:
            cell = self._unused.pop()
            self.node[cell], self.names[cell] = node, flavor_resource
        else:
            cell = len(self.usage)
            self.node.append(node)
            self.names.append(flavor_resource)
            self.borrowing_limit.append(None)
            self.ceiling.append(UNLIMITED)
            for column in (self.parent, self.pool):
                column.append(NOWHERE)
            for column in (self.nominal, self.subtree, self.guaranteed, self.potential, self.usage):
                column.append(0)
        node.cells[flavor_resource] = cell

    def _free(self, node: QuotaNode) -> None:
        for cell in node.cells.values():
            self.usage[cell] = 0
            self._unused.append(cell)
        node.cells = {}
