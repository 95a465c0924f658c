"""The administrator's settings: feature gates and fair sharing."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from policyd.alloc.value import Value

_CAPITALS = frozenset({"dra", "tas"})
"""Words of gates that are abbreviations."""


def _gate(field: str) -> str:
    """Return Kueue's name of a gate: words run together, abbreviations in capitals."""
    words = field.split("_")
    return "".join(word.upper() if word in _CAPITALS else word.capitalize() for word in words)


class Gates(Value, frozen=True, rename=_gate):
    """Kueue's feature gates that change a decision of the core, with Kueue's defaults."""

    admission_fair_sharing_anchor_at_quota_reservation: bool = True
    admission_gated_by: bool = True
    assign_queue_labels_for_pods: bool = True
    cleanup_provisioning_requests_on_eviction: bool = True
    concurrent_admission: bool = False
    custom_metric_labels: bool = False
    elastic_jobs_via_workload_slices: bool = True
    elastic_jobs_via_workload_slices_with_tas: bool = False
    failure_recovery_policy: bool = False
    fair_sharing_preempt_within_nominal: bool = True
    fair_sharing_prioritize_non_borrowing: bool = True
    fair_sharing_reevaluate_preemption_candidates: bool = False
    fair_sharing_refill: bool = False
    fast_quota_release_in_pod_integration: bool = False
    finish_orphaned_workloads: bool = True
    flavor_fungibility: bool = True
    flavor_fungibility_preserve_scan_progress: bool = True
    kueue_dra_integration: bool = True
    kueue_dra_integration_consumable_capacity: bool = False
    kueue_dra_integration_extended_resource: bool = True
    kueue_dra_integration_partitionable_devices: bool = True
    kueue_dra_reject_workloads_when_dra_disabled: bool = True
    multi_kueue_orchestrated_preemption: bool = False
    partial_admission: bool = True
    pod_integration_validate_group_owner: bool = True
    prioritize_preemptor_workloads: bool = False
    priority_boost: bool = False
    priority_sorting_within_cohort: bool = True
    quota_check_strategy: bool = True
    reclaimable_pods: bool = True
    recompute_assignment_upon_preemption_targets_overlap: bool = True
    scheduling_equivalence_hashing: bool = True
    scheduling_equivalence_hashing_ignore_pod_set_name: bool = True
    skip_reassignment_for_pod_owned_workloads: bool = True
    tas_assignments_encoding_by_hostname_prefix: bool = True
    tas_balanced_placement: bool = False
    tas_failed_node_replacement: bool = True
    tas_failed_node_replacement_fail_fast: bool = True
    tas_handle_overlapping_flavors: bool = True
    tas_multi_layer_topology: bool = True
    tas_profile_mixed: bool = True
    tas_recompute_assignment_within_scheduling_cycle: bool = True
    tas_replace_node_due_to_not_ready_over_fixed_time: bool = False
    tas_replace_node_on_node_taints: bool = True
    tas_replace_node_on_pod_termination: bool = True
    tas_respect_node_affinity_preferred: bool = False
    topology_aware_scheduling: bool = True
    unadmitted_workloads_explicit_status: bool = False
    unadmitted_workloads_observability: bool = True
    workload_identifier_annotations: bool = True

    @classmethod
    def of(cls, given: Mapping[str, bool]) -> "Gates":
        """Return the gates as `given` by Kueue's names; those the core does not know are left."""
        return msgspec.convert(given, cls)


Strategy = Literal["LessThanOrEqualToFinalShare", "LessThanInitialShare"]
"""When a workload may be preempted to share more fairly."""


class FairSharingRules(Value, frozen=True):
    """Cohorts share lent quota by weight; they preempt by strategies, tried in order."""

    strategies: tuple[Strategy, ...] = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")


class UsageBasedOrder(Value, frozen=True):
    """LocalQueues with the least usage history go first.

    Attributes:
        half_life_seconds: Time after which usage counts half; 0 drops it at once.
        sampling_seconds: How often usage is looked at.
        weights: The weights of resources, 1 by default.
    """

    half_life_seconds: float = 0.0
    sampling_seconds: float = 300.0
    weights: Mapping[str, float] = {}


class QueueingSettings(Value, frozen=True):
    """Settings for all queues.

    Attributes:
        fair_sharing: How cohorts share; None to share by priority and age only.
        admission_fair_sharing: How past usage orders LocalQueues; None if it does not.
        ignores_undeclared: Whether a queue without quota for a resource lets it pass
            (quotaCheckStrategy `IgnoreUndeclared`).
        blocks_until_ready: Whether admissions wait until admitted workloads run
            (waitForPodsReady.blockAdmission).
        requeues_by_creation: Whether a workload whose pods did not get ready keeps its place
            (waitForPodsReady.requeuingStrategy.timestamp `Creation`).
    """

    gates: Gates = Gates()
    fair_sharing: FairSharingRules | None = None
    admission_fair_sharing: UsageBasedOrder | None = None
    ignores_undeclared: bool = False
    blocks_until_ready: bool = False
    requeues_by_creation: bool = False


DEFAULTS = QueueingSettings()
"""As Kueue decides without a configuration."""
