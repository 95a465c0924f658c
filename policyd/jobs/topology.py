"""How close together pods must be: annotations of a pod template, as a Workload says it."""

from collections.abc import Mapping

import msgspec

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


def topology_request(
    annotations: Mapping[str, str], *, pod_index_label: str = ""
) -> TopologyRequest:
    """Read the topology annotations of a pod template; what is malformed is left out."""
    unconstrained = annotations.get(PODSET_UNCONSTRAINED_TOPOLOGY, "").lower()
    return TopologyRequest(
        required=annotations.get(PODSET_REQUIRED_TOPOLOGY, ""),
        preferred=annotations.get(PODSET_PREFERRED_TOPOLOGY, ""),
        unconstrained=unconstrained in {"1", "t", "true"},
        pod_index_label=pod_index_label,
        pod_set_group_name=annotations.get(POD_SET_GROUP_NAME, ""),
        pod_set_slice_required_topology=annotations.get(SLICE_REQUIRED_TOPOLOGY, ""),
        pod_set_slice_size=_slice_size(annotations),
        podset_slice_required_topology_constraints=_constraints(
            annotations.get(SLICE_CONSTRAINTS, "")
        ),
    )


def _slice_size(annotations: Mapping[str, str]) -> int | None:
    """Return the size of a slice; without a topology for slices it means nothing."""
    text = annotations.get(SLICE_SIZE, "")
    wanted = annotations.get(SLICE_REQUIRED_TOPOLOGY) and text.isdecimal() and int(text)
    return int(text) if wanted else None


def _constraints(text: str) -> tuple[SliceConstraint, ...]:
    if not text:
        return ()
    try:
        return msgspec.json.decode(text, type=tuple[SliceConstraint, ...])
    except msgspec.DecodeError:
        return ()
