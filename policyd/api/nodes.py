"""Nodes as the queue reads them: their places, amounts and taints."""

from datetime import datetime
from typing import Final

from policyd.api.meta import Condition, ObjectMeta, Wire, find_condition
from policyd.api.pods import Taint
from policyd.api.schema import QuantityText

UNREACHABLE: Final = "node.kubernetes.io/unreachable"


class NodeSpec(Wire, frozen=True):
    """The parts of a node that keep pods away."""

    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeStatus(Wire, frozen=True):
    """The amounts of a node, and its conditions."""

    allocatable: dict[str, QuantityText] = {}
    conditions: tuple[Condition, ...] = ()


class Node(Wire, frozen=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Whether its condition Ready is True."""
        found = find_condition(self.status.conditions, "Ready")
        return found is not None and found.status == "True"

    @property
    def unreachable(self) -> bool:
        """Whether the node controller has tainted it, as its kubelet no longer answers."""
        return any(taint.key == UNREACHABLE for taint in self.spec.taints)

    @property
    def not_ready_since(self) -> datetime | None:
        """Since when its condition Ready is not True; None if it is, or if that is unknown."""
        found = find_condition(self.status.conditions, "Ready")
        return None if found is None or found.status == "True" else found.last_transition_time
