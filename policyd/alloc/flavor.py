"""ResourceFlavors, and which pods may run on their nodes."""

from collections.abc import Iterable, Mapping

from policyd.alloc.value import Value
from policyd.node_rules import NodeTaint, TaintToleration, Term, untolerated


class FlavorSpec(Value, frozen=True):
    """A kind of node, with labels and taints of its nodes.

    Attributes:
        tolerations: What pods sent there tolerate in addition.
        topology: By which topology pods are placed there; "" for none.
        levels: That topology's, the widest first; none if there is no such topology.
    """

    name: str
    labels: Mapping[str, str] = {}
    taints: tuple[NodeTaint, ...] = ()
    tolerations: tuple[TaintToleration, ...] = ()
    topology: str = ""
    levels: tuple[str, ...] = ()


def untolerated_taint(
    flavor: FlavorSpec, tolerations: Iterable[TaintToleration]
) -> NodeTaint | None:
    """Return the first taint of `flavor` that would keep out a pod with `tolerations`."""
    return untolerated(flavor.taints, (*tolerations, *flavor.tolerations))


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
