"""Which nodes the pods of a request may run on, and what keeps them from the others."""

from collections.abc import Mapping

from policyd.alloc.topology.changes import UNREAD, Mark
from policyd.alloc.topology.tree import TopologyTree
from policyd.alloc.topology.values import NODE_NAME_FIELD, NodeRule, TopologyNode
from policyd.alloc.value import Value
from policyd.node_rules import LabelRequirement, NodeTaint, TaintToleration, Term, untolerated

_Leaf = tuple[int, TopologyNode]


class NodeNeeds(Value, frozen=True):
    """What pods need of a node besides amounts."""

    selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[Term, ...] = ()
    tolerations: tuple[TaintToleration, ...] = ()
    rule: NodeRule | None = None

    def obstacle(self, node: TopologyNode) -> str:
        """Return what keeps the pods from a node, in Kueue's words; "" if nothing does."""
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
    """What keeps pods from the leaves of a topology, kept up to date.

    Attributes:
        by_leaf: The obstacle of each leaf that has one. Only nodes have: of larger leaves nobody
            knows on which node a pod will be.
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
        """Look at all nodes, a requirement at a time; what goes before is said last."""
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
