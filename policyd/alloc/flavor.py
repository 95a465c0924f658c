"""ResourceFlavors, and which pods may run on their nodes."""

from collections.abc import Iterable, Mapping
from typing import Literal

from policyd.alloc.value import Value


class Taint(Value, frozen=True):
    """Keeps pods away that do not tolerate it. `PreferNoSchedule` keeps nobody away."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


class Toleration(Value, frozen=True):
    """Which taints a pod accepts. No key means any, no effect means every effect."""

    key: str = ""
    operator: Literal["Exists", "Equal", "Lt", "Gt"] = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
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


class LabelRequirement(Value, frozen=True):
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


class FlavorSpec(Value, frozen=True):
    """A kind of node.

    Attributes:
        name: Unique among flavors.
        labels: Of its nodes.
        taints: Of its nodes.
        tolerations: What pods sent there tolerate in addition.
        topology: By which topology pods are placed there; "" for none.
    """

    name: str
    labels: Mapping[str, str] = {}
    taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: str = ""


def untolerated_taint(flavor: FlavorSpec, tolerations: Iterable[Toleration]) -> Taint | None:
    """Return the first taint of `flavor` that would keep out a pod with `tolerations`."""
    accepted = (*tolerations, *flavor.tolerations)
    for taint in flavor.taints:
        keeps_out = taint.effect in {"NoSchedule", "NoExecute"}
        if keeps_out and not any(toleration.tolerates(taint) for toleration in accepted):
            return taint
    return None


def matches_affinity(
    flavor: FlavorSpec, node_selector: Mapping[str, str], terms: tuple[Term, ...]
) -> bool:
    """Tell whether pods may run on nodes with the labels of `flavor`.

    A flavor names only some of its nodes' labels, so only conditions on these are looked at. A term
    without any such condition could match, and with it all of them.
    """
    labels = flavor.labels
    if any(labels.get(key, value) != value for key, value in node_selector.items()):
        return False
    known = [tuple(need for need in term if need.key in labels) for term in terms]
    return (
        not all(known) or any(all(n.matches(labels) for n in term) for term in known) or not known
    )


def _compares(left: str | None, operator: str, right: str) -> bool:
    try:
        a, b = int(left or ""), int(right)
    except ValueError:
        return False
    return a > b if operator == "Gt" else a < b
