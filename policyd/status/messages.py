"""The core's decisions in Kueue's words: messages of conditions and events, word for word."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from policyd.alloc.reasons import (
    Cause,
    Considered,
    Held,
    MissingQuota,
    Mode,
    Obstacle,
    OverCapacity,
    PodSetRefusal,
    Refusal,
    TriedFlavor,
    Unplaced,
    Unsuitable,
    UnsuitableKind,
)
from policyd.alloc.topology.values import NoRoom, Unusable, UnusableKind
from policyd.status.naming import PLAIN, Naming
from policyd.status.quantities import format_amount

_CAUSES: Mapping[Cause, str] = {
    "NoLongerFits": "Workload no longer fits after processing another workload",
    "TargetsTaken": "Workload has overlapping preemption targets with another workload",
    "FitsAfterOthers": "Workload has overlapping preemption targets with another workload, but will"
    " fit after these preemptions complete",
    "AwaitsPods": "waiting for all admitted workloads to be in PodsReady condition",
    "Surpassed": "A more favorable variant is already admitted",
    "Migrates": "Waiting for the admitted variant with a less favorable flavor to be evicted",
    "NotAcceptable": "Target flavor is below LastAcceptableFlavorName",
}

_UNSUITABLE: Mapping[UnsuitableKind, str] = {
    "NotFound": "flavor {0} not found",
    "NotCovered": "resource {0} unavailable in ClusterQueue",
    "NotProvided": "flavor {0} does not provide resource {1}",
    "Untolerated": "untolerated taint {{{1}}} in flavor {0}",
    "AffinityMismatch": "flavor {0} doesn't match node affinity",
    "TopologyMissing": 'Flavor "{0}" does not support TopologyAwareScheduling',
    "TopologyOnly": 'Flavor "{0}" supports only TopologyAwareScheduling',
    "LevelMissing": 'Flavor "{0}" does not contain the requested level',
    "NotAllowed": "skipping flavor {0} due to WorkloadAllowedResourceFlavorAnnotation annotation",
    "NotNominated": "skipping flavor {0} as it is not found in the nomination mapping for resource"
    " {1}",
    "NotGiven": "flavor {0} declares no shared GPUs with the requested part",
    "OtherFlavor": "could not assign {0} flavor since the original workload is assigned: {1}",
}
"""Obstacles that no quota removes: of a flavor, and its part concerned."""

_MODES: Mapping[Mode, str] = {
    Mode.NO_FIT: "NoFit",
    Mode.BLOCKED: "preemptionMode=NoCandidates",
    Mode.PREEMPT: "preemptionMode=Preempt",
    Mode.RECLAIM: "preemptionMode=Reclaim",
    Mode.FIT: "Fit",
}


def message_of(refusal: Refusal, naming: Naming = PLAIN) -> str:
    """Say why a workload waits, as its condition does."""
    parts = (_pod_set_text(pod_set, naming) for pod_set in refusal.pod_sets)
    text = refusal.note or _CAUSES.get(refusal.cause) or "; ".join(parts)
    if not refusal.pending:
        return text
    return f"{text}. Pending the preemption of {refusal.pending} workload(s)"


def obstacle_text(obstacle: Obstacle, naming: Naming = PLAIN) -> str:
    """Return an obstacle as text."""
    match obstacle:
        case MissingQuota():
            missing = format_amount(obstacle.resource, obstacle.missing)
            return (
                f"insufficient unused quota for {obstacle.resource} in flavor {obstacle.flavor}, "
                f"{missing} more needed"
            )
        case OverCapacity():
            return _over_capacity(obstacle)
        case Unsuitable():
            return _UNSUITABLE[obstacle.kind].format(obstacle.name, obstacle.detail)
        case Held():
            return _held_text(obstacle, naming)
        case Unplaced():
            return placement_text(obstacle.why)


def considered_text(considered: Iterable[Considered], naming: Naming = PLAIN) -> str:
    """Say which flavors did not simply fit, pod set by pod set; "" if all that were tried did.

    The mode, how victims would be had, how far it would borrow, and the obstacles, as the
    event of an admission has them.
    """
    return " | ".join(
        f"{each.pod_set}: {', '.join(_try_text(tried, naming) for tried in _by_name(each.tries))}"
        for each in considered
    )


def _pod_set_text(refusal: PodSetRefusal, naming: Naming) -> str:
    reasons = ", ".join(sorted(obstacle_text(each, naming) for each in refusal.obstacles))
    return f"couldn't assign flavors to pod set {refusal.name}: {reasons}"


def _over_capacity(obstacle: OverCapacity) -> str:
    amounts = (obstacle.assumed, obstacle.requested, obstacle.capacity)
    assumed, requested, capacity = (format_amount(obstacle.resource, each) for each in amounts)
    return (
        f"insufficient quota for {obstacle.resource} in flavor {obstacle.flavor}, previously"
        f" considered podsets requests ({assumed}) + current podset request ({requested})"
        f" > maximum capacity ({capacity})"
    )


def _held_text(held: Held, naming: Naming) -> str:
    when = "an unknown time"
    if held.start is not None:
        when = datetime.fromtimestamp(held.start, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if held.own:
        return f"reserved for it from {when} on"
    return f"it could delay {naming.one(held.workload)}, which has a reservation from {when} on"


def _by_name(tries: Iterable[TriedFlavor]) -> list[TriedFlavor]:
    return sorted(tries, key=lambda tried: tried.flavor)


def _try_text(tried: TriedFlavor, naming: Naming) -> str:
    borrowing = [f"borrow={tried.level}"] if tried.level else []
    obstacles = (obstacle_text(each, naming) for each in tried.obstacles)
    parts = [_MODES[tried.mode], *borrowing, *obstacles]
    return f"{tried.flavor}({';'.join(parts)})"


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


def placement_text(refusal: NoRoom | Unusable) -> str:
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
