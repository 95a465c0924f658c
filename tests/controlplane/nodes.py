"""Nodes for kwok to play."""

from collections.abc import Mapping, Sequence
from typing import Any

RACK = "cloud.provider.com/topology-rack"
"""The label of a node's rack, as in Kueue's documentation of topologies."""

GPU_NODE = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
"""What a node offers unless told."""


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    allocatable: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> dict[str, Any]:
    """Return a node's manifest.

    Args:
        name: The node's name, which is its host name too.
        labels: More labels, such as `{RACK: "a"}`.
        allocatable: What it offers to pods; `GPU_NODE` unless told.
        taints: As in a node's `spec.taints`.
    """
    offered = dict(allocatable or GPU_NODE)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": [dict(taint) for taint in taints]},
        "status": {"allocatable": offered, "capacity": offered},
    }
