"""Why a pod set has no place, in Kueue's words."""

from collections.abc import Mapping

from policyd.alloc.topology.values import NoRoom, Refusal, Unusable, UnusableKind

_UNUSABLE: Mapping[UnusableKind, str] = {
    "LevelMissing": "no requested topology level: {0}",
    "SliceLevelMissing": "no requested topology level for slices: {0}",
    "SliceAboveLevel": "podset slice topology {0} is above the podset topology {1}",
    "LayerLevelMissing": "no requested topology level for additional slice layer: {0}",
    "LayersNotNested": "additional slice layer topology {0} must be at a lower level than {1}",
    "SizesNotNested": "additional slice layer size {0} must evenly divide parent layer size {1}",
    "SliceSizeMissing": "slice topology requested, but slice size not provided",
    "SliceSizeInvalid": "slice size must be positive: {0}",
    "CountBelowSlice": "podset count {0} is less than the slice size {1}",
    "NoDomains": "no topology domains at level: {0}",
    "LeaderNotSingle": "podset group {0} has no podset of a single pod to lead it",
    "AssignmentStale": "Cannot replace the node, because the existing topologyAssignment is"
    " invalid, as it contains the stale domain {0}",
    "TopologyMissing": "no topology for flavor {0}",
    "NoTopology": "workload requires Topology, but there is no TAS cache information",
    "FlavorMissing": "no TAS flavor assigned",
    "FlavorsSeveral": "more than one TAS flavor assigned: {0}",
    "ElasticNotFree": "{0} topology is not supported with ElasticJobsViaWorkloadSlices",
}


def placement_text(refusal: Refusal) -> str:
    """Say why a pod set cannot be placed."""
    if isinstance(refusal, Unusable):
        return _UNUSABLE[refusal.kind].format(*refusal.names)
    text = f'topology "{refusal.topology}" {_fitting(refusal)}'
    if not refusal.excluded:
        return text
    reasons = ", ".join(sorted(f"{name}: {n}" for name, n in refusal.excluded.items()))
    return f"{text}. Total nodes: {refusal.nodes}; excluded: {reasons}"


def _fitting(refusal: NoRoom) -> str:
    if refusal.layers:
        layers = (f"{n}/{of} slice(s) fit on level {level}" for level, n, of in refusal.layers)
        return f"doesn't allow to fit; {'; '.join(layers)}"
    if not refusal.fitting:
        return f"doesn't allow to fit any of {refusal.wanted} {refusal.unit}"
    return f"allows to fit only {refusal.fitting} out of {refusal.wanted} {refusal.unit}"
