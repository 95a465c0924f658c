"""The quota tree: how much every queue may use, does use, and could get from its cohort.

Theory. A node has *subtree quota*: its own nominal quota and what its children lend. Of that it
keeps some to itself, the *guaranteed* part, by its lending limit; the rest is in its parent's pool.
Usage fills the guaranteed part first, and only what exceeds it is charged to the parent.
What a node can still get is its unused guaranteed part and what its parent can get, the latter
bounded by its borrowing limit.

Layout. A *cell* is one flavor and resource at one node. Cells are numbers, and the quantities of
all cells are flat lists, so that a decision touches a few integers and walks up by `parent`. Cells
are made where quota or usage is, and in every ancestor. After changes of the hierarchy `refresh`
recomputes the trees concerned, once for any number of changes.

What-if questions change usage for real and take it back: a trial notes what each cell was before.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain

from policyd.alloc.amount import UNLIMITED, add, subtract
from policyd.alloc.hierarchy import Hierarchy, QuotaNode, descendants
from policyd.alloc.queue import FlavorResource, Quota

NOWHERE = -1
"""In the place of a cell that is not there, such as the parent of a root's."""

_NO_QUOTA = Quota(nominal=0)

Shared = tuple[str, int, list[tuple[FlavorResource, int, int]]]
"""A resource, how much of it can be lent, and a node's flavors of it, with cells and quotas."""


class QuotaTree:
    """Quota and usage of all ClusterQueues and Cohorts.

    Attributes:
        hierarchy: Who is below whom. Change it there, then `refresh`.
        node: Whose cell it is, and `names` of which flavor and resource.
        parent: The same flavor and resource one level up, NOWHERE for a root.
        nominal: Own quota of each cell.
        borrowing_limit: Most that may be used beyond the subtree quota; None without a limit.
        subtree: Own quota with what the children lend.
        guaranteed: The part of it that the parent never sees.
        ceiling: Most that may be charged to the parent; UNLIMITED without a borrowing limit.
        pool: The root's cell, if on the way there nothing is guaranteed or limited; else NOWHERE.
        potential: What could be used if nothing were.
        usage: What is used: of queues directly, of cohorts by what their children overflow.
        lendable: What others worked out of the quotas: for nodes, what could be lent to those below
            of each resource. Emptied when quotas change, as the next.
        shared: Of nodes, what they may borrow.
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
        """Return what the cell could still get; negative if more is used than there is."""
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
        """Return how far up the tree `amount` more would have to borrow.

        Returns:
            The height of the lowest subtree whose quota holds it, 0 without borrowing; and whether
            that subtree is less than the whole tree, so that what others took could be reclaimed.
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
        """Return what does not simply fit, as if `assumed` were to be used before.

        Every cell of `charges` that would borrow or has too little, and what it needs in all.
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
        """Tell whether the cells of `charges` could all get their amounts; of nothing, they can.

        Without `borrowing`, none may be beyond its subtree quota then.
        """
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
        """Use more, at least 0 of each cell; what has no guaranteed room goes to the parent."""
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
        """Take notice that something in the tree of a node is not what it was."""
        self._version += 1
        node.root.version = self._version

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Take back, at the end of the block, whatever is charged and released in it."""
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
        """Work out what depends on the cell above, which is known already."""
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
