"""Counts of pods of one kind that fit in each domain, and obstacles there, kept up to date.

Nothing is counted until it is read. Then all leaves are counted, a column at a time; from then on
only changed leaves, and their changes go up to the domains around them.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from operator import itemgetter
from typing import TypeVar

from policyd.alloc.topology.tree import UNREAD, Column, Mark, Table, TopologyTree, is_port
from policyd.alloc.topology.values import CLAIMED, NODE_NAME_FIELD, PODS, NodeRule, TopologyNode
from policyd.alloc.value import Value
from policyd.node_rules import LabelRequirement, NodeTaint, TaintToleration, Term, untolerated

K = TypeVar("K")
V = TypeVar("V")

_Leaf = tuple[int, TopologyNode]


class NodeNeeds(Value, frozen=True):
    """The needs of pods on a node besides amounts."""

    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Term, ...] = ()
    tolerations: tuple[TaintToleration, ...] = ()
    rule: NodeRule | None = None

    def obstacle(self, node: TopologyNode) -> str:
        """Return the obstacle for the pods on a node, in Kueue's words; "" if there is none."""
        taint = untolerated(node.taints, self.tolerations)
        if taint is not None:
            return f'taint "{_written(taint)}"'
        labels = node.labels
        if any(labels.get(key) != value for key, value in self.selector):
            return "nodeSelector"
        if self.affinity and not any(meets(node, term) for term in self.affinity):
            return "affinity"
        return "" if self.rule is None else self.rule(node)


def meets(node: TopologyNode, term: Term) -> bool:
    """Tell whether a node meets a term; none meets one without requirements."""
    labels: Mapping[str, str] = node.labels
    if any(need.key == NODE_NAME_FIELD for need in term):
        labels = {**labels, NODE_NAME_FIELD: node.name}
    return bool(term) and all(need.matches(labels) for need in term)


class _Verdicts(dict[str | None, bool]):
    """Whether values of a label meet a requirement, each asked once."""

    def __init__(self, need: LabelRequirement) -> None:
        self._need = need

    def __missing__(self, value: str | None) -> bool:
        labels = {} if value is None else {self._need.key: value}
        verdict = self[value] = self._need.matches(labels)
        return verdict


def _meeting(nodes: list[_Leaf], term: Term) -> list[_Leaf]:
    """Return those of many nodes that meet a term."""
    for need in term:
        verdicts, key = _Verdicts(need), need.key
        if key == NODE_NAME_FIELD:
            nodes = [each for each in nodes if verdicts[each[1].name]]
        else:
            nodes = [each for each in nodes if verdicts[each[1].labels.get(key)]]
    return nodes if term else []


def _written(taint: NodeTaint) -> str:
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


class Obstacles:
    """The obstacles for pods on leaves of a topology, `by_leaf`, kept up to date.

    Only leaves that are nodes have obstacles: of others it is not known where a pod will be.
    """

    __slots__ = ("_mark", "_needs", "_tree", "by_leaf")

    def __init__(self, tree: TopologyTree, needs: NodeNeeds) -> None:
        self.by_leaf: dict[int, str] = {}
        self._tree = tree
        self._needs = needs
        self._mark: Mark = UNREAD

    def refresh(self) -> None:
        """Look at the nodes that changed."""
        tree = self._tree
        mark = tree.changed_nodes.mark
        if self._mark == mark or not tree.to_nodes:
            return
        changed = tree.changed_nodes.since(self._mark)
        self._mark = mark
        if changed is None:
            self.by_leaf.clear()
            self._look_at_all()
            return
        for leaf in changed:
            self.by_leaf.pop(leaf, None)
            if tree.is_leaf(leaf):
                self._look_at(leaf)

    def _look_at_all(self) -> None:
        """Check all nodes, a requirement at a time; the obstacle of the first is set last."""
        needs, found = self._needs, self.by_leaf
        nodes = [(leaf, self._tree.node(leaf)) for leaf in self._tree.leaves.values()]
        if needs.rule is not None:
            found |= {leaf: why for leaf, node in nodes if (why := needs.rule(node))}
        if needs.affinity:
            terms = [_meeting(nodes, term) for term in needs.affinity]
            good = {leaf for term in terms for leaf, _ in term}
            found |= dict.fromkeys([leaf for leaf, _ in nodes if leaf not in good], "affinity")
        for key, value in needs.selector:
            wrong = [leaf for leaf, node in nodes if node.labels.get(key) != value]
            found |= dict.fromkeys(wrong, "nodeSelector")
        for leaf in [leaf for leaf, node in nodes if node.taints]:
            self._look_at(leaf)

    def _look_at(self, leaf: int) -> None:
        obstacle = self._needs.obstacle(self._tree.node(leaf))
        if obstacle:
            self.by_leaf[leaf] = obstacle


Requests = tuple[tuple[str, int], ...]
_REMEMBERED = 64


class PodKind(Value, frozen=True):
    """The properties of pods that take the same room.

    Requests are more than 0, in the order of resources' names. Another pod, `beside` these, takes
    its own before. With `empty`, the usage of workloads is not counted.
    """

    requests: Requests
    beside: Requests = ()
    needs: NodeNeeds = NodeNeeds()
    empty: bool = False


def requests_of(requests: Mapping[str, int], tree: TopologyTree) -> Requests:
    """Return the requests of a pod that limit where it goes in a topology, itself included."""
    taken = {**requests, PODS: 1}.items()
    return tuple(sorted((r, n) for r, n in taken if n > 0 and tree.limits(r)))


class Counts:
    """How many `pods` of a kind go into each domain of a topology, and `obstacles` to others."""

    __slots__ = ("_kind", "_mark", "_shape", "_tree", "obstacles", "pods")

    def __init__(self, tree: TopologyTree, kind: PodKind, obstacles: Obstacles) -> None:
        self.pods: Column = []
        self.obstacles = obstacles
        self._tree = tree
        self._kind = kind
        self._mark: Mark = UNREAD
        self._shape = -1

    def refresh(self) -> None:
        """Count changed leaves again."""
        tree = self._tree
        mark, before = tree.changed.mark, self._mark
        if mark == before:
            return
        self.obstacles.refresh()
        self._mark = mark
        changed = tree.changed.since(before)
        if changed is None or len(changed) * 2 > len(tree.leaves):
            self._count_all()
        elif self._shape != tree.shape:
            self.pods.extend([0] * (len(tree.values) - len(self.pods)))
            for leaf in changed:
                self.pods[leaf] = self._count(leaf)
        else:
            self._update(changed)
            return
        self._shape = tree.shape
        tree.sum_up(self.pods)

    def short_of(self, leaves: Iterable[int]) -> Counter[str]:
        """Count leaves that no pod fits into by the first resource, by name, that is missing."""
        found: Counter[str] = Counter()
        rest = [leaf for leaf in leaves if not self.pods[leaf]]
        table = self._table
        for resource, amount in self._kind.requests:
            column = table.columns.get(resource)
            left = partial(table.left, resource) if column is None else column.__getitem__
            kept = [leaf for leaf in rest if left(leaf) >= amount]
            if len(kept) < len(rest):
                found[_missing(resource)] = len(rest) - len(kept)
            rest = kept
        return found

    @property
    def _table(self) -> Table:
        return self._tree.capacity if self._kind.empty else self._tree.free

    def _count_all(self) -> None:
        requests = self._kind.requests
        amounts = [request for request in requests if not is_port(request[0])]
        pods = self._by_columns(sorted(amounts, key=itemgetter(1)))
        if min(pods, default=0) < 0:
            pods = [max(0, count) for count in pods]
        if len(amounts) < len(requests):
            pods = [count and self._count(leaf) for leaf, count in enumerate(pods)]
        for leaf in self.obstacles.by_leaf:
            pods[leaf] = 0
        self.pods = pods

    def _by_columns(self, requests: list[tuple[str, int]]) -> Column:
        beside = dict(self._kind.beside)
        pods: Column | None = None
        for resource, amount in requests:
            column = self._table.columns.get(resource)
            if column is None:
                return [0] * len(self._tree.values)
            if resource in beside:
                taken = beside[resource]
                column = [free - taken for free in column]
            if pods is None:
                pods = [free // amount for free in column]
            else:
                pairs = zip(pods, column, strict=True)
                pods = [n if n * amount <= free else free // amount for n, free in pairs]
        assert pods is not None, "every pod needs one of `pods`"
        return pods

    def _update(self, changed: set[int]) -> None:
        pods, parent = self.pods, self._tree.parent
        for leaf in changed:
            more = self._count(leaf) - pods[leaf]
            domain = leaf if more else -1
            while domain >= 0:
                pods[domain] += more
                domain = parent[domain]

    def _count(self, leaf: int) -> int:
        if leaf in self.obstacles.by_leaf or not self._tree.is_leaf(leaf):
            return 0
        left, beside = self._table.left, dict(self._kind.beside)
        counts = [
            (left(resource, leaf) - beside.get(resource, 0)) // amount
            for resource, amount in self._kind.requests
        ]
        return max(0, min(counts))


def _missing(resource: str) -> str:
    """Return the words for a resource that is missing: Kueue's, which knows none of claims."""
    claimed = resource.removeprefix(CLAIMED)
    return f'resource "{resource}"' if claimed == resource else f'devices by claim "{claimed}"'


class CountCache:
    """Counts and obstacles of a topology's `tree` that were asked for lately."""

    def __init__(self, tree: TopologyTree) -> None:
        self.tree = tree
        self._counts: OrderedDict[PodKind, Counts] = OrderedDict()
        self._obstacles: OrderedDict[NodeNeeds, Obstacles] = OrderedDict()

    def counts(self, kind: PodKind) -> Counts:
        """Return up-to-date counts of a kind of pods."""
        found = _recent(self._counts, kind, self._counted)
        found.refresh()
        return found

    def _counted(self, kind: PodKind) -> Counts:
        obstacles = _recent(self._obstacles, kind.needs, partial(Obstacles, self.tree))
        return Counts(self.tree, kind, obstacles)


def _recent(known: OrderedDict[K, V], key: K, make: Callable[[K], V]) -> V:
    """Return the value of a key, made if it is not known; drop those not used recently."""
    found = known.get(key)
    if found is None:
        found = known[key] = make(key)
        if len(known) > _REMEMBERED:
            known.popitem(last=False)
    known.move_to_end(key)
    return found
