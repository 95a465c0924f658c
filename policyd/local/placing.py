"""Where a pod goes: the rules of the stock scheduler that policyd's users meet. Pure.

Scheduling gates, node selector, required node affinity, taints, requests, and the number of pods.
Among the nodes that fit, the one with the most devices and cpu left wins, then the first by name.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from policyd import node_rules
from policyd.api.nodes import Node
from policyd.api.pods import NodeRequirement, NodeSelector, PodSpec, Taint, Toleration
from policyd.local.objects import LocalPod
from policyd.node_rules import LabelRequirement

Amounts = Mapping[str, int]
"""Resource name to amount: milli-CPU, bytes, whole devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeCandidate:
    """A node and its free resources."""

    node: Node
    free: Amounts


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No node fits; the message counts the reasons, as the stock scheduler does."""

    message: str


def choose_node(
    pod: LocalPod, requests: Amounts, candidates: Iterable[NodeCandidate]
) -> str | Unschedulable:
    """Return the name of the node for `pod`, or why there is none.

    Args:
        pod: A pod without scheduling gates that is not bound.
        requests: The requests of the pod, `pods: 1` included.
        candidates: Every node of the cluster.
    """
    fitting, reasons, total = [], Counter[str](), 0
    for candidate in candidates:
        total += 1
        found = obstacles(pod.spec, requests, candidate)
        reasons.update(found)
        if not found:
            fitting.append(candidate)
    if fitting:
        return min(fitting, key=_roomiest_first).node.metadata.name
    counted = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    return Unschedulable(f"0/{total} nodes are available: {counted or 'no nodes'}.")


def obstacles(spec: PodSpec, requests: Amounts, candidate: NodeCandidate) -> list[str]:
    """Return why a pod does not fit on a node; empty if it fits."""
    node = candidate.node
    if node.spec.unschedulable:
        return ["node(s) were unschedulable"]
    if not selected(spec, node):
        return ["node(s) didn't match Pod's node affinity/selector"]
    untolerated = next((t for t in node.spec.taints if not tolerated(t, spec.tolerations)), None)
    if untolerated is not None:
        value = f": {untolerated.value}" if untolerated.value else ": "
        return [f"node(s) had untolerated taint {{{untolerated.key}{value}}}"]
    return [
        "Too many pods" if resource == "pods" else f"Insufficient {resource}"
        for resource, amount in sorted(requests.items())
        if amount > candidate.free.get(resource, 0)
    ]


def selected(spec: PodSpec, node: Node) -> bool:
    """Tell whether the node has the labels that the pod asks for."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity and spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    return not required or _any_term(required, node)


def _any_term(required: NodeSelector, node: Node) -> bool:
    fields = {"metadata.name": node.metadata.name}
    return any(
        all(meets(r, node.metadata.labels) for r in term.match_expressions)
        and all(meets(r, fields) for r in term.match_fields)
        for term in required.node_selector_terms
        if term.match_expressions or term.match_fields
    )


def meets(requirement: NodeRequirement, labels: Mapping[str, str]) -> bool:
    """Tell whether `labels` meet one requirement of a node selector term."""
    return msgspec.convert(requirement, LabelRequirement, from_attributes=True).matches(labels)


def tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    """Tell whether a taint is tolerated, or would only be a preference."""
    return taint.effect == "PreferNoSchedule" or any(_tolerates(t, taint) for t in tolerations)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    known = msgspec.convert(taint, node_rules.NodeTaint, from_attributes=True)
    return msgspec.convert(toleration, node_rules.TaintToleration, from_attributes=True).tolerates(
        known
    )


def _roomiest_first(candidate: NodeCandidate) -> tuple[int, int, str]:
    devices = sum(amount for name, amount in candidate.free.items() if "/" in name)
    return -devices, -candidate.free.get("cpu", 0), candidate.node.metadata.name
