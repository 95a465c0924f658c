"""Nodes as the queue reads them: where they are, what they offer and whom they keep away."""

from datetime import datetime

from policyd.api.meta import Condition, ObjectMeta, Wire, find_condition
from policyd.api.pods import Taint
from policyd.api.schema import QuantityText


class NodeSpec(Wire, frozen=True):
    """What keeps pods away from a node."""

    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class NodeStatus(Wire, frozen=True):
    """What a node offers, and how it is."""

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
    def not_ready_since(self) -> datetime | None:
        """Since when its condition Ready is not True; None if it is, or if that is not said."""
        found = find_condition(self.status.conditions, "Ready")
        return None if found is None or found.status == "True" else found.last_transition_time
