"""How close together pods must be: annotations of a pod template, as a Workload says it."""

from collections.abc import Mapping
from typing import Final

import msgspec

from policyd.api.integers import whole_number
from policyd.api.kueue import TopologyRequest
from policyd.api.kueue.names import (
    PODSET_PREFERRED_TOPOLOGY,
    PODSET_REQUIRED_TOPOLOGY,
    PODSET_UNCONSTRAINED_TOPOLOGY,
)
from policyd.api.kueue.workload import SliceConstraint

SLICE_REQUIRED_TOPOLOGY = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"
SLICE_CONSTRAINTS = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
POD_SET_GROUP_NAME = "kueue.x-k8s.io/podset-group-name"
POD_INDEX_OFFSET = "kueue.x-k8s.io/pod-index-offset"
POD_INDEX_LABEL_NAME = "kueue.x-k8s.io/pod-group-pod-index-label"
"""Annotation of a pod that names the label in which its index is."""

LEVEL_ANNOTATIONS: Final = (
    PODSET_REQUIRED_TOPOLOGY,
    PODSET_PREFERRED_TOPOLOGY,
    PODSET_UNCONSTRAINED_TOPOLOGY,
)
"""Of these, a pod template has one at most."""

TOPOLOGY_ANNOTATIONS: Final = (*LEVEL_ANNOTATIONS, SLICE_REQUIRED_TOPOLOGY, SLICE_CONSTRAINTS)
"""By any of these, pods ask to be placed by a topology."""

YES: Final = frozenset({"1", "t", "true"})
NO: Final = frozenset({"0", "f", "false"})


def asks_for_topology(annotations: Mapping[str, str]) -> bool:
    """Tell whether pods of these annotations ask to be placed by a topology."""
    return any(name in annotations for name in TOPOLOGY_ANNOTATIONS)


def topology_request(
    annotations: Mapping[str, str],
    *,
    pod_index_label: str = "",
    sub_group_index_label: str = "",
    sub_group_count: int | None = None,
) -> TopologyRequest | None:
    """Read the topology annotations of a pod template; malformed ones are skipped.

    Args:
        annotations: Of the pod template.
        pod_index_label: Label that holds the index of a pod in its job, or in its sub-group.
        sub_group_index_label: Label that holds the index of the sub-group that a pod is in.
        sub_group_count: How many sub-groups the pod set has.

    Returns:
        The pod set's request; None if there is none, and its pods have no index either.
    """
    by_level = bool({PODSET_REQUIRED_TOPOLOGY, PODSET_PREFERRED_TOPOLOGY} & annotations.keys())
    size = _slice_size(annotations)
    request = TopologyRequest(
        required=annotations.get(PODSET_REQUIRED_TOPOLOGY, ""),
        preferred=annotations.get(PODSET_PREFERRED_TOPOLOGY, ""),
        unconstrained=annotations.get(PODSET_UNCONSTRAINED_TOPOLOGY, "").lower() in YES,
        pod_index_label=pod_index_label,
        sub_group_index_label=sub_group_index_label,
        sub_group_count=sub_group_count,
        pod_set_group_name=annotations.get(POD_SET_GROUP_NAME, "") if by_level else "",
        pod_set_slice_required_topology=annotations[SLICE_REQUIRED_TOPOLOGY] if size else "",
        pod_set_slice_size=size,
        podset_slice_required_topology_constraints=slice_constraints(annotations) or (),
    )
    return None if request == TopologyRequest() else request


def _slice_size(annotations: Mapping[str, str]) -> int | None:
    """Return the size of a slice; without a topology for slices it means nothing."""
    size = whole_number(annotations.get(SLICE_SIZE, ""), bits=32)
    wanted = annotations.get(SLICE_REQUIRED_TOPOLOGY) and size is not None and size > 0
    return size if wanted else None


def slice_constraints(annotations: Mapping[str, str]) -> tuple[SliceConstraint, ...] | None:
    """Return the constraints on slices, the widest first; None if they cannot be read."""
    text = annotations.get(SLICE_CONSTRAINTS)
    if text is None:
        return ()
    try:
        return msgspec.json.decode(text, type=tuple[SliceConstraint, ...])
    except msgspec.DecodeError:
        return None
