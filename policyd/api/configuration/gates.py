"""Kueue's feature gates: their defaults, which need which, and how they are given."""

from collections.abc import Mapping
from typing import Final

from policyd.api.kueue.validation import FieldError

DEFAULTS: Final[dict[str, bool]] = {
    "AdmissionFairSharing": True,
    "AdmissionGatedBy": True,
    "AssignQueueLabelsForPods": True,
    "CleanupProvisioningRequestsOnEviction": True,
    "ConcurrentAdmission": False,
    "CustomMetricLabels": False,
    "DeferRayServiceFinalizationForRedisCleanup": True,
    "DisableWaitForPodsReady": False,
    "ElasticJobsViaWorkloadSlices": True,
    "ElasticJobsViaWorkloadSlicesWithTAS": False,
    "FailureRecoveryPolicy": False,
    "FairSharingPreemptWithinNominal": True,
    "FairSharingPrioritizeNonBorrowing": True,
    "FastQuotaReleaseInPodIntegration": False,
    "FinishOrphanedWorkloads": True,
    "FlavorFungibility": True,
    "FlavorFungibilityPreserveScanProgress": True,
    "KueueDRAIntegration": True,
    "KueueDRAIntegrationConsumableCapacity": False,
    "KueueDRAIntegrationExtendedResource": True,
    "KueueDRAIntegrationPartitionableDevices": True,
    "KueueDRARejectWorkloadsWhenDRADisabled": True,
    "LWSImmutableGroupSize": True,
    "LocalQueueMetrics": True,
    "ManagedJobsNamespaceSelectorAlwaysRespected": True,
    "MetricForWorkloadCreationLatency": True,
    "MetricsForCohorts": True,
    "MultiKueue": True,
    "MultiKueueAdaptersForCustomJobs": True,
    "MultiKueueClusterProfile": False,
    "MultiKueueIncrementalDispatcherConfig": True,
    "MultiKueueIncrementalDispatcherRespectConfigOrder": True,
    "MultiKueueKubeConfigPathValidation": True,
    "MultiKueueManagerQuotaAutomation": False,
    "MultiKueueOrchestratedPreemption": False,
    "MultiKueueRemoteSpecSync": True,
    "PartialAdmission": True,
    "PodIntegrationValidateGroupOwner": True,
    "PrioritizePreemptorWorkloads": False,
    "PriorityBoost": False,
    "PrioritySortingWithinCohort": True,
    "QuotaCheckStrategy": True,
    "ReclaimablePods": True,
    "RecomputeAssignmentUponPreemptionTargetsOverlap": True,
    "RejectUpdatesToCQWithInvalidOnFlavors": False,
    "RemoveFinalizersWithStrictPatch": True,
    "SchedulerLibraryIntegration": False,
    "SchedulingEquivalenceHashing": True,
    "ShortWorkloadNames": False,
    "SkipAncestorCheckForDeletedWorkloads": True,
    "SkipReassignmentForPodOwnedWorkloads": True,
    "SparkApplicationIntegration": False,
    "TASAssignmentsEncodingByHostnamePrefix": True,
    "TASBalancedPlacement": False,
    "TASCacheNodeMatchResults": True,
    "TASCacheTopologyTree": True,
    "TASCachingRemainingResources": True,
    "TASFailedNodeReplacement": True,
    "TASFailedNodeReplacementFailFast": True,
    "TASHandleOverlappingFlavors": True,
    "TASMultiLayerTopology": True,
    "TASProfileMixed": True,
    "TASRecomputeAssignmentWithinSchedulingCycle": True,
    "TASReplaceNodeDueToNotReadyOverFixedTime": False,
    "TASReplaceNodeOnNodeTaints": True,
    "TASReplaceNodeOnPodTermination": True,
    "TASRespectNodeAffinityPreferred": False,
    "TASValidateWorkloadSliceSize": True,
    "TLSOptions": True,
    "TopologyAwareScheduling": True,
    "UnadmittedWorkloadsExplicitStatus": False,
    "UnadmittedWorkloadsObservability": True,
    "ValidateRayAndSparkJobUpdates": True,
    "VectorizedResourceRequests": True,
    "VisibilityOnDemand": True,
    "WorkloadIdentifierAnnotations": True,
    "WorkloadPriorityClassDefaulting": True,
    "WorkloadRequestUseMergePatch": False,
    "WorkloadValidateResourcesAreNonNegative": True,
    "WorkloadValidationForPodSetMetadata": True,
}
"""Every gate, and whether it is on if nobody says anything."""

LOCKED: Final = frozenset({"ManagedJobsNamespaceSelectorAlwaysRespected", "TLSOptions"})
"""Gates that can no longer be set to anything but their default."""

_NODE_REPLACEMENT: Final = ("TASFailedNodeReplacement", "TopologyAwareScheduling")
_NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "ElasticJobsViaWorkloadSlicesWithTAS": (
        "ElasticJobsViaWorkloadSlices",
        "TopologyAwareScheduling",
    ),
    "FlavorFungibilityPreserveScanProgress": ("FlavorFungibility",),
    "KueueDRAIntegrationConsumableCapacity": ("KueueDRAIntegration",),
    "KueueDRAIntegrationExtendedResource": ("KueueDRAIntegration",),
    "KueueDRAIntegrationPartitionableDevices": ("KueueDRAIntegration",),
    "TASBalancedPlacement": ("TopologyAwareScheduling",),
    "TASFailedNodeReplacement": ("TopologyAwareScheduling",),
    "TASFailedNodeReplacementFailFast": _NODE_REPLACEMENT,
    "TASHandleOverlappingFlavors": ("TopologyAwareScheduling",),
    "TASMultiLayerTopology": ("TopologyAwareScheduling",),
    "TASProfileMixed": ("TopologyAwareScheduling",),
    "TASRecomputeAssignmentWithinSchedulingCycle": ("TopologyAwareScheduling",),
    "TASReplaceNodeDueToNotReadyOverFixedTime": _NODE_REPLACEMENT,
    "TASReplaceNodeOnNodeTaints": ("TopologyAwareScheduling",),
    "TASReplaceNodeOnPodTermination": _NODE_REPLACEMENT,
    "TASRespectNodeAffinityPreferred": ("TopologyAwareScheduling",),
    "UnadmittedWorkloadsExplicitStatus": ("UnadmittedWorkloadsObservability",),
}
"""Gates that do nothing without others, in alphabetical order."""


def all_gates(given: Mapping[str, bool]) -> dict[str, bool]:
    """Return every gate, as `given` or else by default."""
    return {**DEFAULTS, **given}


def validate_gates(
    text: str, given: Mapping[str, bool] | None
) -> tuple[dict[str, bool], list[FieldError]]:
    """Return what gates are set to, and what is wrong with that.

    Args:
        text: Gates from the command line: `A=true,B=false`.
        given: Gates from the Configuration; None if it says none.
    """
    path = "featureGates"
    if text and given is not None:
        message = "feature gates for CLI and configuration cannot both specified"
        return {}, [FieldError(path, dict(given), message)]
    chosen, wrong = _parse(text) if text else (dict(given or {}), [])
    wrong += [f"unrecognized feature gate: {name}" for name in chosen if name not in DEFAULTS]
    wrong += [
        f"cannot set feature gate {name} to {_word(chosen[name])}, feature is locked to "
        f"{_word(DEFAULTS[name])}"
        for name in sorted(LOCKED & chosen.keys())
        if chosen[name] != DEFAULTS[name]
    ]
    wrong = wrong or _unmet(all_gates(chosen))
    if not wrong:
        return chosen, []
    message = wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]"
    return chosen, [FieldError(path, text or chosen, message)]


def _parse(text: str) -> tuple[dict[str, bool], list[str]]:
    chosen: dict[str, bool] = {}
    wrong = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            wrong.append(f"missing bool value for {name}")
        elif value.lower() not in {"true", "false"}:
            wrong.append(f"invalid value of {name}={value}")
        else:
            chosen[name.strip()] = value.lower() == "true"
    return chosen, wrong


def _unmet(gates: Mapping[str, bool]) -> list[str]:
    wrong = []
    for name, needed in _NEEDS.items():
        off = " ".join(other for other in needed if not gates[other])
        if gates[name] and off:
            wrong.append(f"{name} is enabled, but depends on features that are disabled: [{off}]")
    return wrong


def _word(value: bool) -> str:  # noqa: FBT001 - it writes a boolean
    return "true" if value else "false"
