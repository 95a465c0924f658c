"""Kubernetes' rules for which pods may run on which nodes: taints and requirements on labels. Pure.

All parts that place pods use these: the allocator for flavors, a topology for its nodes, and the
embedded scheduler.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec


class NodeTaint(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Keeps pods away that do not tolerate it. `PreferNoSchedule` keeps no pod away."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class TaintToleration(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which taints a pod accepts. No key means any, no effect means every effect."""

    key: str = ""
    operator: Literal["Exists", "Equal", "Lt", "Gt"] = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: NodeTaint) -> bool:
        """Tell whether a pod with this toleration accepts `taint`."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.key != taint.key and (self.key or self.operator != "Exists"):
            return False
        match self.operator:
            case "Exists":
                return True
            case "Equal":
                return self.value == taint.value
            case "Lt" | "Gt":
                return _compares(taint.value, self.operator, self.value)


class LabelRequirement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One condition on a node label."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Tell whether `labels` meet this requirement."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return len(self.values) == 1 and _compares(value, self.operator, self.values[0])


Term = tuple[LabelRequirement, ...]
"""Requirements that must all hold; of several terms, one must hold."""


def untolerated(
    taints: Iterable[NodeTaint], tolerations: Sequence[TaintToleration]
) -> NodeTaint | None:
    """Return the first of `taints` that would keep out a pod with `tolerations`."""
    for taint in taints:
        keeps_out = taint.effect in {"NoSchedule", "NoExecute"}
        if keeps_out and not any(toleration.tolerates(taint) for toleration in tolerations):
            return taint
    return None


def _compares(left: str | None, operator: str, right: str) -> bool:
    try:
        a, b = int(left or ""), int(right)
    except ValueError:
        return False
    return a > b if operator == "Gt" else a < b
