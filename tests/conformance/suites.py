"""Which code runs which files of cases. A new adapter is one line in ADAPTERS.

A suite is a file of cases; its name is `group/stem`. The group is the folder, but for Kueue's
tables: there `suites.tsv`, beside them, says it, and an adapter that spells a table's name out.
"""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import import_module
from pathlib import Path

from tests.conformance.outcome import Outcome, SuiteResult

Runner = Callable[[Path], Iterable[Outcome]]


@dataclass(frozen=True)
class Adapter:
    """Code that runs the cases of the files it names.

    Attributes:
        group: What `SUITE=` calls them together.
        stem: Pattern of the files' names, without their suffix.
        code: `module:function` below `tests.conformance`; the function takes the file's path. It
            is imported when a file is run, so that an adapter in the making stops nobody else.
        folder: The folder of the files.
    """

    group: str
    stem: str
    code: str
    folder: str = "kueue"

    def takes(self, path: Path) -> bool:
        return path.parent.name == self.folder and fnmatchcase(path.stem, self.stem)

    def runner(self) -> Runner:
        module, _, function = self.code.partition(":")
        return getattr(import_module(f"tests.conformance.{module}"), function)


ADAPTERS: tuple[Adapter, ...] = (
    Adapter("cel", "*", "cel_spec:run_cel_spec", "cel"),
    Adapter("policy", "k8s-cel-library", "kubernetes_cel:run_library", "policy"),
    Adapter("policy", "k8s-cel-conditions", "kubernetes_cel:run_conditions", "policy"),
    Adapter("policy", "k8s-cel-cost", "kubernetes_cel:run_cost", "policy"),
    Adapter("policy", "k8s-match", "policy_match:run_match", "policy"),
    Adapter("policy", "k8s-map", "policy_native:run_native", "policy"),
    Adapter("policy", "gatekeeper-library-cel", "policy_native:run_native", "policy"),
    Adapter("policy", "kubescape-vap", "policy_native:run_native", "policy"),
    Adapter("policy", "kyverno-cli-vap", "policy_native:run_native", "policy"),
    Adapter("policy", "kyverno-cli-map", "policy_native:run_native", "policy"),
    Adapter("policy", "psa-fixtures", "policy_standards:run_standards", "policy"),
    Adapter("policy", "kyverno-*", "policy_kyverno:run_kyverno", "policy"),
    Adapter("migrate", "kyverno-legacy", "migrate_kyverno:run_migrate", "migrate"),
    Adapter("kueue-config", "apis-kueue-v1beta1__*", "kueue_config:run_objects"),
    Adapter("kueue-config", "apis-config-*__TestSetDefaults_*", "kueue_config:run_defaults"),
    Adapter("kueue-config", "apis-config-*__TestClusterProfile*", "kueue_config:run_alias"),
    Adapter("kueue-config", "apis-config-*__*", "kueue_config:run_conversion"),
    Adapter("kueue-config", "pkg-config__TestEncode", "kueue_config:run_encoding"),
    Adapter("kueue-config", "pkg-config__TestLoad", "kueue_config:run_load"),
    Adapter("kueue-config", "pkg-config__TestLoadAndValidate*", "kueue_config:run_gates"),
    Adapter("kueue-config", "pkg-config__TestValidate", "kueue_config:run_validation"),
    Adapter(
        "kueue-config", "pkg-config__TestValidateDeviceClassMappings", "kueue_config:run_validation"
    ),
    Adapter("kueue-config", "pkg-config__TestValidateCustom*", "kueue_config:run_custom_labels"),
    Adapter("kueue-config", "pkg-config__TestWaitForPodsReady*", "kueue_config:run_waiting"),
    Adapter("kueue-core", "*assigner__TestAssignment_Requires*", "kueue_cycle:run_borrowing"),
    Adapter("kueue-core", "*assigner__TestAssignment_Total*", "kueue_cycle:run_slices"),
    Adapter("kueue-core", "*assigner__TestFlavorScan*", "kueue_topology_flavors:run_scan"),
    Adapter("kueue-core", "*assigner__TestRecompute*", "kueue_topology_flavors:run_recomputed"),
    Adapter(
        "kueue-core",
        "pkg-scheduler__TestScheduleForPreserve*",
        "kueue_topology_scheduler:run_scans",
    ),
    Adapter(
        "kueue-core",
        "pkg-scheduler__TestSecondPassSkips*",
        "kueue_topology_scheduler:run_second_pass",
    ),
    Adapter("kueue-core", "pkg-scheduler__TestEntryOrdering", "kueue_cycle:run_order"),
    Adapter("kueue-core", "pkg-scheduler__TestLastAssignment*", "kueue_cycle:run_outdated"),
    Adapter("kueue-core", "pkg-scheduler__TestLastScheduling*", "kueue_cycle:run_progress"),
    Adapter("kueue-core", "pkg-scheduler__TestRequeueAndUpdate", "kueue_cycle:run_requeue"),
    Adapter("kueue-core", "pkg-scheduler__TestResourcesToReserve", "kueue_cycle:run_reserved"),
    Adapter("kueue-core", "pkg-scheduler__TestScheduleForAFS", "kueue_cycle:run_by_usage"),
    Adapter("kueue-core", "pkg-scheduler__TestShouldApply*", "kueue_cycle:run_penalty"),
    Adapter("kueue-core", "*__TestAssignmentClusterQueueState", "kueue_cycle:run_unfinished"),
    Adapter("kueue-core", "pkg-cache-scheduler__TestAvailable", "kueue_tree:run_available"),
    Adapter("kueue-core", "*__TestCohortCycles", "kueue_tree:run_cycles_of_cohorts"),
    Adapter("kueue-core", "*__TestDeleteCohortUpdates*", "kueue_tree:run_deleted_cohort"),
    Adapter("kueue-core", "pkg-cache-scheduler__TestSnapshot", "kueue_tree:run_snapshot"),
    Adapter("kueue-core", "pkg-cache-scheduler__*_Table", "kueue_tree:run_functions"),
    Adapter("kueue-core", "pkg-cache-hierarchy__TestCycles", "kueue_tree:run_hierarchy"),
    Adapter("kueue-core", "pkg-resources__*", "kueue_tree:run_amounts"),
    Adapter("kueue-core", "*assigner__TestAssignFlavors", "kueue_topology_flavors:run_assignments"),
    Adapter("kueue-core", "*assigner__TestAssignFlavorsWith*", "kueue_flavors:run_modes"),
    Adapter("kueue-core", "*assigner__TestDeletedFlavors", "kueue_flavors:run_assignments"),
    Adapter("kueue-core", "*assigner__TestHierarchical", "kueue_flavors:run_modes"),
    Adapter("kueue-core", "*assigner__TestReclaimBefore*", "kueue_flavors:run_modes"),
    Adapter("kueue-core", "*assigner__TestIsNoFit*", "kueue_topology_flavors:run_reasons"),
    Adapter("kueue-core", "*assigner__TestIsPreferred", "kueue_flavors:run_preference"),
    Adapter("kueue-core", "*assigner__TestSearch", "kueue_flavors:run_search"),
    Adapter("kueue-core", "pkg-scheduler__TestSchedule", "kueue_scheduler:run_schedule"),
    Adapter(
        "kueue-core", "pkg-scheduler__TestScheduleForFairSharing", "kueue_scheduler:run_schedule"
    ),
    Adapter("kueue-core", "pkg-scheduler__TestScheduleRecompute*", "kueue_scheduler:run_schedule"),
    Adapter("kueue-core", "*preemption__TestPreemption", "kueue_preemption:run_targets"),
    Adapter(
        "kueue-core", "*preemption__TestHierarchicalPreemptions", "kueue_preemption:run_targets"
    ),
    Adapter("kueue-core", "*preemption__TestFairPreemptions", "kueue_preemption:run_targets"),
    Adapter("kueue-core", "*preemption__TestFairPreemptionSkips*", "kueue_preemption:run_hopeless"),
    Adapter("kueue-core", "*preemption__TestCandidatesOrdering", "kueue_preemption:run_candidates"),
    Adapter("kueue-core", "*preemption-common__*", "kueue_preemption:run_policies"),
    Adapter("kueue-core", "*preemption__TestPreemptionMessage", "kueue_preemption:run_messages"),
    Adapter("kueue-core", "*preemption__TestPriorityInfo", "kueue_priority:run_parts"),
    Adapter("kueue-core", "pkg-util-priority__TestGetPriority*", "kueue_priority:run_classes"),
    Adapter("kueue-core", "pkg-util-priority__*Effective*", "kueue_priority:run_effective"),
    Adapter("kueue-core", "pkg-util-priority__TestPriority*", "kueue_priority:run_effective"),
    Adapter("kueue-core", "*preemption-fairsharing__*", "kueue_fair_sharing:run_order"),
    Adapter("kueue-core", "*__TestDominantResourceShare", "kueue_fair_sharing:run_shares"),
    Adapter("kueue-core", "*__TestCohortLendable", "kueue_fair_sharing:run_lendable"),
    Adapter("kueue-core", "*__TestIsBorrowingOn", "kueue_fair_sharing:run_borrowing"),
    Adapter("kueue-core", "*__TestPreciseWeightedShare*", "kueue_fair_sharing:run_texts"),
    Adapter("kueue-core", "*__TestSnapshotAddRemoveW*", "kueue_preemption:run_what_if"),
    Adapter("kueue-core", "*__TestEntryComparerLess", "kueue_fair_sharing:run_comparison"),
    Adapter("kueue-controllers", "*__TestSyncCheckStates", "kueue_workloads:run_check_states"),
    Adapter("kueue-controllers", "*__TestReconcileSyncAdm*", "kueue_workloads:run_checks"),
    Adapter(
        "kueue-controllers", "*-provisioning__TestReconcile", "kueue_provisioning:run_requests"
    ),
    Adapter("kueue-controllers", "*__TestReconcileAdmissionCheck", "kueue_provisioning:run_checks"),
    Adapter("kueue-controllers", "*__TestReqIsNeeded", "kueue_provisioning:run_needs"),
    Adapter("kueue-controllers", "*__TestUpdateCheckMessage", "kueue_provisioning:run_messages"),
    Adapter("kueue-controllers", "*core__TestLocalQueueRec*", "kueue_queues:run_local_queues"),
    Adapter("kueue-controllers", "*core__TestClusterQueueRec*", "kueue_queues:run_terminating"),
    Adapter("kueue-controllers", "*__TestUpdateCqStatusIf*", "kueue_queues:run_figures"),
    Adapter("kueue-controllers", "*__TestResourceFlavorRec*", "kueue_queues:run_flavors"),
    Adapter("kueue-controllers", "*__TestWorkloadPriorityClassR*", "kueue_queues:run_classes"),
    Adapter(
        "kueue-controllers", "pkg-controller-core__TestReconcile*", "kueue_workloads:run_reconciler"
    ),
    Adapter(
        "kueue-controllers", "*__TestAdmittedNotReadyWorkload", "kueue_workloads:run_readiness"
    ),
    Adapter(
        "kueue-controllers", "pkg-controller-jobs-job*__TestPodSets", "kueue_jobs:run_pod_sets"
    ),
    Adapter("kueue-controllers", "*-mpijob__TestPodSets", "kueue_jobs:run_pod_sets"),
    Adapter("kueue-controllers", "*-kubeflow-jobs-*__TestPodSets", "kueue_jobs:run_pod_sets"),
    Adapter(
        "kueue-later",
        "pkg-scheduler__TestScheduleConcurrentAdmission",
        "kueue_scheduler:run_schedule",
    ),
    *(
        Adapter("kueue-later", f"pkg-controller-jobs-{table}", code)
        for table, code in (
            ("appwrapper__TestPodSets", "kueue_wrapped:run_pod_sets"),
            ("appwrapper__TestReconciler", "kueue_wrapped:run_reconciler"),
            ("rayservice__TestIsActive", "kueue_jobs:run_states"),
            ("rayservice__TestIsSuspended", "kueue_jobs:run_states"),
            ("rayservice__TestPodSets", "kueue_jobs:run_pod_sets"),
            ("rayservice__TestPodsReady", "kueue_jobs:run_readiness"),
            ("rayservice__TestValidateCreate", "kueue_jobs:run_creation"),
            ("rayservice__TestValidateUpdate", "kueue_jobs:run_change"),
            ("sparkapplication__TestAddVolumeMount", "kueue_wrapped:run_mounts"),
            ("sparkapplication__TestAddVolumes", "kueue_wrapped:run_volumes"),
            ("sparkapplication__TestDefault", "kueue_jobs:run_defaults"),
            ("sparkapplication__TestPodSets", "kueue_wrapped:run_pod_sets"),
            ("sparkapplication__TestReconciler", "kueue_jobs:run_reconciler"),
            ("sparkapplication__TestRestorePodSetsInfo", "kueue_starts:run_ways"),
            ("sparkapplication__TestRunWithPodsetsInfo", "kueue_starts:run_ways"),
            ("sparkapplication__TestValidateCreate", "kueue_jobs:run_creation"),
            ("sparkapplication__TestValidateUpdate", "kueue_jobs:run_change"),
        )
    ),
    Adapter("kueue-controllers", "*-jobs-ray*__TestPodSets", "kueue_jobs:run_pod_sets"),
    Adapter("kueue-controllers", "*-jobs-ray*__TestValidateCreate", "kueue_jobs:run_creation"),
    Adapter("kueue-controllers", "*-jobs-ray*__TestValidateUpdate", "kueue_jobs:run_change"),
    Adapter("kueue-controllers", "*__TestBuildPodSets", "kueue_rays:run_pod_sets"),
    Adapter("kueue-controllers", "*__TestValidateCreateRayClusterSpec", "kueue_rays:run_specs"),
    Adapter("kueue-controllers", "*__TestUpdateRayCluster*", "kueue_rays:run_starts"),
    Adapter("kueue-controllers", "*-rayjob__TestNodeSelectors", "kueue_rays:run_ways"),
    Adapter("kueue-controllers", "*-rayjob__TestRestorePodSetsInfo", "kueue_rays:run_ways"),
    Adapter("kueue-controllers", "*__Test_RayJob*", "kueue_rays:run_states"),
    Adapter("kueue-controllers", "*-ray*__TestDefault", "kueue_jobs:run_defaults"),
    Adapter("kueue-controllers", "*-ray*__TestValidateDefault", "kueue_jobs:run_defaults"),
    Adapter("kueue-controllers", "*-raycluster__TestUpdatePodSets", "kueue_rays:run_sizes"),
    Adapter("kueue-controllers", "*__TestUpdatePodSets*_GetError", "kueue_rays:run_unreadable"),
    Adapter("kueue-controllers", "*-deployment__TestDefault", "kueue_jobs:run_defaults"),
    Adapter("kueue-controllers", "*-leaderworkerset__TestDefault", "kueue_jobs:run_defaults"),
    Adapter("kueue-controllers", "*-statefulset__TestDefault", "kueue_jobs:run_defaults"),
    Adapter("kueue-controllers", "*-deployment__TestValidateCreate", "kueue_jobs:run_creation"),
    Adapter("kueue-controllers", "*-deployment__TestValidateUpdate", "kueue_jobs:run_change"),
    Adapter("kueue-controllers", "*workerset__TestValidateCreate", "kueue_jobs:run_creation"),
    Adapter("kueue-controllers", "*workerset__TestValidateUpdate", "kueue_jobs:run_change"),
    Adapter("kueue-controllers", "*-statefulset__TestValidateCreate", "kueue_jobs:run_creation"),
    Adapter("kueue-controllers", "*-statefulset__TestValidateUpdate", "kueue_jobs:run_change"),
    Adapter("kueue-controllers", "*-leaderworkerset__TestReconciler", "kueue_parents:run_sets"),
    Adapter(
        "kueue-controllers", "*-leaderworkerset__TestReconcileW*", "kueue_parents:run_branches"
    ),
    Adapter("kueue-controllers", "*__TestGetWorkloadIndex", "kueue_parents:run_indexes"),
    Adapter("kueue-controllers", "*-statefulset__TestReconciler", "kueue_parents:run_sets"),
    Adapter("kueue-controllers", "*-statefulset__TestPodReconciler", "kueue_parents:run_sets"),
    Adapter("kueue-controllers", "*-statefulset__TestReconcileD*", "kueue_parents:run_branches"),
    Adapter("kueue-controllers", "*__TestReconciler_ClearOnHold*", "kueue_parents:run_hold"),
    Adapter("kueue-controllers", "*-statefulset__TestGetWorkloadName", "kueue_parents:run_names"),
    Adapter("kueue-controllers", "*-statefulset__TestHandle", "kueue_parents:run_choice"),
    Adapter("kueue-controllers", "*-trainjob__TestDefault", "kueue_jobs:run_defaults"),
    Adapter("kueue-controllers", "*-trainjob__TestValidateCreate", "kueue_jobs:run_creation"),
    Adapter("kueue-controllers", "*-trainjob__TestRunWith*", "kueue_rays:run_trainers"),
    Adapter("kueue-controllers", "*-trainjob__TestReconciler", "kueue_rays:run_demands"),
    Adapter("kueue-controllers", "*__TestComparePodSetCounts", "kueue_rays:run_changes"),
    Adapter("kueue-controllers", "*-ray*__TestGet*CustomAnnotations", "kueue_rays:run_sizes"),
    Adapter("kueue-controllers", "*__TestPriorityClass", "kueue_jobs:run_priorities"),
    Adapter("kueue-controllers", "*__TestCalcPriorityClassName", "kueue_jobs:run_priorities"),
    Adapter("kueue-controllers", "*__TestOrderedReplicaTypes", "kueue_jobs:run_roles"),
    Adapter("kueue-controllers", "*-jobs-job*__TestReclaimablePods", "kueue_jobs:run_reclaimable"),
    Adapter("kueue-controllers", "*-jobs-job*__TestPodsReady", "kueue_jobs:run_readiness"),
    Adapter("kueue-controllers", "*__TestTerminalIndexesCount", "kueue_jobs:run_indexes"),
    Adapter("kueue-controllers", "*-jobs-job*__TestValidateCreate", "kueue_jobs:run_creation"),
    Adapter("kueue-controllers", "*-mpijob__TestValidateCreate", "kueue_jobs:run_creation"),
    Adapter("kueue-controllers", "*-kubeflow-jobs-*__TestValidate", "kueue_jobs:run_creation"),
    Adapter("kueue-controllers", "*-jobs-job*__TestValidateUpdate", "kueue_jobs:run_change"),
    Adapter("kueue-controllers", "*jobframework__TestValidateJobOnUpdate", "kueue_jobs:run_change"),
    Adapter(
        "kueue-controllers", "*jobframework__TestValidateJobOnCreate", "kueue_jobs:run_creation"
    ),
    Adapter(
        "kueue-controllers", "pkg-controller-jobs-job__TestReconciler", "kueue_jobs:run_reconciler"
    ),
    Adapter(
        "kueue-controllers", "pkg-controller-jobs-pod__TestReconciler", "kueue_pods:run_reconciler"
    ),
    Adapter("kueue-controllers", "*__TestIsEvictedByDeactivation", "kueue_parts:run_deactivated"),
    Adapter("kueue-controllers", "*__TestIsEvictedByPodsReady*", "kueue_parts:run_timed_out"),
    Adapter("kueue-controllers", "pkg-workload-finish__*", "kueue_parts:run_finish"),
    Adapter("kueue-controllers", "pkg-workload-patching__TestPatch*", "kueue_writes:run_statuses"),
    Adapter("kueue-controllers", "*__TestEvictionPendingLatency", "kueue_parts:run_eviction_ends"),
    Adapter("kueue-controllers", "*__TestFromQuotaReservedOr*", "kueue_parts:run_fallen_back"),
    Adapter("kueue-controllers", "*__TestTotalExecutionTime", "kueue_parts:run_execution_times"),
    Adapter("kueue-controllers", "*__TestGetMaxRetryTime", "kueue_parts:run_retry_time"),
    Adapter("kueue-controllers", "pkg-workload__TestIsOnHold", "kueue_parts:run_on_hold"),
    Adapter("kueue-controllers", "*__TestNeedsSecondPass", "kueue_parts:run_second_pass"),
    Adapter("kueue-controllers", "*__TestSetQuotaReservation", "kueue_parts:run_reservation"),
    Adapter("kueue-controllers", "*__TestUpdateReclaimablePods", "kueue_parts:run_reclaimed"),
    Adapter("kueue-controllers", "*-patching__TestSetCheckState", "kueue_writes:run_checks"),
    Adapter("kueue-controllers", "*__TestSetRequeueState", "kueue_parts:run_requeue_state"),
    Adapter("kueue-controllers", "*__TestShouldSkipCluster*", "kueue_multikueue:run_skips"),
    Adapter("kueue-controllers", "*__Test_multiKueueAdapter_*", "kueue_multikueue:run_jobs"),
    Adapter("kueue-controllers", "*__TestSyncAdmittedCondition", "kueue_parts:run_admitted"),
    Adapter("kueue-controllers", "*__TestWorkloadPriorityClassChanged", "kueue_parts:run_priority"),
    Adapter("kueue-controllers", "pkg-workloadslicing__TestEnabled", "kueue_parts:run_elastic"),
    Adapter("kueue-controllers", "*__TestScaledDown", "kueue_parts:run_shrunk"),
    Adapter("kueue-controllers", "*__TestFindLatestActiveWorkload", "kueue_parts:run_latest"),
    Adapter("kueue-controllers", "*__TestNormalizeActiveSlices", "kueue_parts:run_settled"),
    Adapter("kueue-controllers", "*__TestFindNotFinishedWorkloads", "kueue_parts:run_unfinished"),
    Adapter("kueue-controllers", "*__TestReplacedWorkloadSlice", "kueue_parts:run_replacements"),
    Adapter("kueue-controllers", "*__TestPreemptibleSliceKey", "kueue_parts:run_replaced"),
    Adapter("kueue-controllers", "pkg-util-pod__Test*ate", "kueue_parts:run_gates"),
    Adapter("kueue-controllers", "pkg-util-pod__TestGetPodGroup*", "kueue_parts:run_group_name"),
    Adapter("kueue-controllers", "pkg-util-pod__TestGenerateRole*", "kueue_parts:run_hashes"),
    Adapter("kueue-controllers", "pkg-util-pod__TestSpecShape", "kueue_parts:run_shapes"),
    Adapter("kueue-controllers", "pkg-util-pod__TestReadUInt*", "kueue_parts:run_indexes"),
    Adapter("kueue-controllers", "pkg-util-pod__TestIsTerminated", "kueue_parts:run_terminated"),
    Adapter("kueue-controllers", "*jobs-pod__TestGetWorkloadName*", "kueue_pods:run_names"),
    Adapter("kueue-controllers", "*jobs-pod__TestRun", "kueue_parts:run_other_infos"),
    Adapter("kueue-controllers", "*__TestActiveOrLastPR*", "kueue_parts:run_earlier_requests"),
    Adapter("kueue-controllers", "*__TestParsePodSetReplica*", "kueue_parts:run_own_sizes"),
    Adapter("kueue-controllers", "*jobs-job__TestCleanLabels", "kueue_jobs:run_labels"),
    Adapter("kueue-controllers", "*__TestReleaseScaleDown*", "kueue_parents:run_scaled_down"),
    Adapter("kueue-controllers", "*jobs-pod__TestGetRoleHash", "kueue_parts:run_same_hash"),
    Adapter("kueue-controllers", "*jobs-pod__TestPod_IsActive", "kueue_parts:run_activity"),
    Adapter("kueue-controllers", "*jobs-pod__TestPodsReady", "kueue_parts:run_pods_ready"),
    Adapter("kueue-controllers", "*__TestConstructComposable*", "kueue_parts:run_role_limit"),
    Adapter("kueue-controllers", "*_ErrorFinalizingPod", "kueue_parts:run_pod_finalizers"),
    Adapter("kueue-controllers", "*_DeletePodAfter*", "kueue_parts:run_pod_finalizers"),
    Adapter("kueue-controllers", "pkg-podset__TestFromAssignment", "kueue_parts:run_assignment"),
    Adapter("kueue-controllers", "pkg-podset__TestMergeRestore", "kueue_parts:run_merge"),
    Adapter("kueue-controllers", "pkg-podset__TestAddOrUpdate*", "kueue_parts:run_label"),
    Adapter("kueue-controllers", "*__Test_applyWorkloadSlice*", "kueue_jobs:run_elastic_gates"),
    Adapter("kueue-controllers", "*jobs-pod__TestDefault", "kueue_pods:run_defaults"),
    Adapter("kueue-controllers", "*jobs-pod__TestValidateCreate", "kueue_jobs:run_creation"),
    Adapter("kueue-controllers", "*jobs-pod__TestValidateUpdate", "kueue_jobs:run_change"),
    Adapter(
        "kueue-controllers", "*__TestApplyDefaultLocalQ*", "kueue_framework:run_default_queues"
    ),
    Adapter(
        "kueue-controllers",
        "*__TestApplyDefaultWorkloadPriorityClass",
        "kueue_jobs:run_default_classes",
    ),
    Adapter("kueue-controllers", "*__TestReconcileGenericJob", "kueue_framework:run_jobs"),
    Adapter("kueue-controllers", "*GenericJobWithCustom*", "kueue_framework:run_activation"),
    Adapter("kueue-controllers", "*GenericJobWithWaitFor*", "kueue_writes:run_readiness"),
    Adapter("kueue-controllers", "*GenericJob_Eviction*", "kueue_framework:run_released"),
    Adapter("kueue-controllers", "*jobframework__TestPodSetTop*", "kueue_framework:run_requests"),
    Adapter("kueue-controllers", "*jobframework__TestFindAnc*", "kueue_framework:run_ancestors"),
    Adapter("kueue-controllers", "*__TestSanitizePodSets", "kueue_framework:run_environments"),
    Adapter("kueue-controllers", "*jobframework__TestProcess*", "kueue_framework:run_go_options"),
    Adapter("kueue-controllers", "*__TestEnsureWorkloadSlices", "kueue_framework:run_slices"),
    Adapter("kueue-controllers", "pkg-visibility-storage__*", "kueue_visibility:run_summaries"),
    Adapter("kueue-controllers", "*jobs-pod__TestIsPodOwner*", "kueue_pods:run_owners"),
    Adapter("kueue-controllers", "*jobs-pod__TestPodSets", "kueue_pods:run_pod_sets"),
    Adapter("kueue-controllers", "*jobs-pod__TestStop", "kueue_pods:run_stop"),
    Adapter("kueue-controllers", "*__TestRestorePodSetsInfo", "kueue_starts:run_ways"),
    Adapter("kueue-controllers", "*jobs-job__TestPodSetsInfo", "kueue_starts:run_ways"),
    Adapter("kueue-controllers", "*-mpijob__TestRunWithPodSetsInfo", "kueue_starts:run_ways"),
    Adapter("kueue-controllers", "*jobs-job__TestDefault", "kueue_jobs:run_defaults"),
    Adapter("kueue-controllers", "*-jobset__TestDefault", "kueue_jobs:run_defaults"),
    Adapter("kueue-controllers", "*-mpijob__TestDefault", "kueue_jobs:run_defaults"),
    Adapter("kueue-controllers", "*-jobset__TestReconciler", "kueue_jobs:run_reconciler"),
    Adapter("kueue-controllers", "*-mpijob__TestReconciler", "kueue_jobs:run_reconciler"),
    Adapter("kueue-controllers", "*-raycluster__TestReconciler", "kueue_jobs:run_reconciler"),
    Adapter("kueue-controllers", "*-kubeflow-*__TestReconciler", "kueue_jobs:run_reconciler"),
    Adapter("kueue-controllers", "pkg-webhooks__TestValidateCohort", "kueue_webhooks:run_cohorts"),
    Adapter("kueue-controllers", "pkg-webhooks__*ResourceFlavor", "kueue_webhooks:run_flavors"),
    Adapter("kueue-controllers", "pkg-webhooks__*Workload*", "kueue_webhooks:run_workloads"),
    Adapter("kueue-controllers", "pkg-webhooks__*", "kueue_webhooks:run_queues"),
    Adapter("kueue-later", "pkg-dra__TestComputeCapacityCharge", "kueue_devices:run_capacity"),
    Adapter("kueue-later", "pkg-dra__TestComputeCounter*", "kueue_devices:run_counters"),
    Adapter("kueue-later", "pkg-dra__TestCreateMapper*", "kueue_devices:run_mappings"),
    Adapter("kueue-later", "pkg-dra__Test*DRAResourceMapper*", "kueue_devices:run_lookups"),
    Adapter("kueue-later", "pkg-dra__TestResourceMapper*", "kueue_devices:run_counted_resources"),
    Adapter("kueue-later", "pkg-dra__TestGroupSlicesByPool", "kueue_devices:run_pools"),
    Adapter("kueue-later", "pkg-dra__TestResourceSliceCache*", "kueue_devices:run_slices"),
    Adapter("kueue-later", "pkg-dra__TestIsExtendedResourceName", "kueue_devices:run_names"),
    Adapter("kueue-later", "pkg-dra__TestSelectedDeviceClass", "kueue_devices:run_selected"),
    Adapter("kueue-later", "pkg-dra__TestNeedsDRAReconcile", "kueue_devices:run_needs"),
    Adapter("kueue-later", "pkg-dra__TestResolveExtended*", "kueue_devices:run_extended"),
    Adapter("kueue-later", "pkg-dra__TestRoundToValid*", "kueue_devices:run_rounding"),
    Adapter("kueue-later", "pkg-dra__TestSelectorErrorPaths", "kueue_devices:run_selector_errors"),
    Adapter("kueue-later", "pkg-dra__Test_GetResourceRequests", "kueue_devices:run_claims"),
    Adapter("kueue-later", "pkg-dra__Test_countDevices*", "kueue_devices:run_sums"),
    *(
        Adapter(
            "kueue-later",
            f"pkg-controller-admissionchecks-multikueue__{table}",
            f"kueue_multikueue:{code}",
        )
        for table, code in (
            ("TestActiveCondition*", "run_message"),
            ("TestAdmissionCheckHandler*", "run_handlers"),
            ("TestConfigHandlerUpdate", "run_handlers"),
            ("TestConfigHandlerDelete", "run_deleted_config"),
            ("TestCQReconcile", "run_quotas"),
            ("TestCQReconciler_*", "run_quota_handlers"),
            ("TestClustersReconcilerEvent*", "run_cluster_filters"),
            ("TestConnectionState*", "run_states"),
            ("TestDisconnectedClient*", "run_reconnection"),
            ("TestEstablishBackoff*", "run_establishing"),
            ("TestEstablishWatch", "run_watches"),
            ("TestFSWatch*", "run_watchers"),
            ("TestList*", "run_indexes"),
            ("TestMultiKueueWorkloadAdm*", "run_counts"),
            ("TestNominate*", "run_nominations"),
            ("TestOrphaned*", "run_orphans_after_reconnect"),
            ("TestReconcile", "run_checks"),
            ("TestReconcileGroup*", "run_deferred"),
            ("TestReconnectBackoff", "run_backoff"),
            ("TestRemoteClientConcurrent*", "run_goroutines"),
            ("TestRemoteClientGC", "run_collection"),
            ("TestSetRemoteClient*", "run_slow_clusters"),
            ("TestStopWatchers*", "run_stopped_watches"),
            ("TestUpdateConfig", "run_clusters"),
            ("TestValidateKubeConfigPath", "run_paths"),
            ("TestValidateKubeconfig", "run_kubeconfigs"),
            ("TestWlReconcile", "run_workloads"),
        )
    ),
    *(
        Adapter(
            "kueue-later",
            f"pkg-controller-jobs-{kind}__TestMultiKueueAdapter",
            "kueue_multikueue:run_adapters",
        )
        for kind in (
            "appwrapper",
            "job",
            "jobset",
            "kubeflow-jobs-jaxjob",
            "kubeflow-jobs-paddlejob",
            "kubeflow-jobs-pytorchjob",
            "kubeflow-jobs-tfjob",
            "kubeflow-jobs-xgboostjob",
            "leaderworkerset",
            "mpijob",
            "pod",
            "raycluster",
            "rayjob",
            "rayservice",
            "statefulset",
            "trainjob",
        )
    ),
    Adapter("kueue-core", "pkg-workload__TestSchedulingHash", "kueue_queue:run_demands"),
    Adapter("kueue-core", "pkg-cache-queue__*", "kueue_queue:run_calls"),
    Adapter("kueue-core", "pkg-cache-scheduler__TestCacheClusterQueue*", "kueue_cache:run_calls"),
    Adapter("kueue-core", "pkg-cache-scheduler__TestCachePodsReady*", "kueue_cache:run_calls"),
    Adapter("kueue-core", "pkg-cache-scheduler__TestCacheQueueOperations", "kueue_cache:run_calls"),
    Adapter("kueue-core", "pkg-cache-scheduler__TestCacheWorkload*", "kueue_cache:run_calls"),
    Adapter(
        "kueue-core", "pkg-cache-scheduler__TestClusterQueueReadiness", "kueue_cache:run_calls"
    ),
    Adapter(
        "kueue-core", "pkg-cache-scheduler__TestClusterQueueUpdateWith*", "kueue_cache:run_calls"
    ),
    Adapter("kueue-core", "pkg-cache-scheduler__TestClusterQueueUsage", "kueue_cache:run_calls"),
    Adapter(
        "kueue-core", "pkg-cache-scheduler__TestClusterQueuesForResources", "kueue_cache:run_calls"
    ),
    Adapter("kueue-core", "pkg-cache-scheduler__TestClusterQueuesUsing*", "kueue_cache:run_calls"),
    Adapter("kueue-core", "pkg-cache-scheduler__TestLocalQueueUsage", "kueue_cache:run_calls"),
    Adapter("kueue-core", "pkg-workload__TestAdjustResources", "kueue_workload:run_adjustments"),
    Adapter("kueue-core", "pkg-workload__TestNewInfo", "kueue_workload:run_info"),
    Adapter("kueue-core", "pkg-workload__TestResourceUsage", "kueue_workload:run_usage"),
    Adapter("kueue-core", "pkg-workload__TestPropagate*", "kueue_workload:run_propagation"),
    Adapter("kueue-core", "pkg-workload__TestValidate*", "kueue_workload:run_resources"),
    Adapter("kueue-core", "pkg-util-limitrange__*", "kueue_workload:run_limit_ranges"),
    Adapter("kueue-core", "pkg-workload__Test*ChecksFor*", "kueue_workload:run_checks"),
    Adapter("kueue-core", "pkg-workload__TestGetQueueOrder*", "kueue_workload:run_places"),
    Adapter("kueue-core", "pkg-workload__TestLimitReclaimable*", "kueue_workload:run_reclaimable"),
    Adapter("kueue-core", "pkg-util-priority__*", "kueue_workload:run_default_class"),
    Adapter("kueue-core", "pkg-util-admission*__*Decayed*", "kueue_workload:run_decay"),
    Adapter("kueue-core", "pkg-util-admission*__*", "kueue_workload:run_usage_order"),
    Adapter("kueue-core", "pkg-workload__TestCalcLocalQueue*", "kueue_workload:run_usage_order"),
    Adapter("kueue-core", "pkg-cache-queue-afs__TestPenalty*", "kueue_workload:run_penalties"),
    Adapter("kueue-core", "pkg-cache-queue-afs__TestUpdate", "kueue_workload:run_ledger"),
    Adapter(
        "kueue-topology",
        "*util-tas__TestV1Beta2FromInternal*",
        "kueue_topology_encoding:run_encoding",
    ),
    Adapter("kueue-topology", "*__TestClusterQueueReadinessWithTAS", "kueue_cache:run_calls"),
    Adapter(
        "kueue-topology", "*__TestCompareDomainLevel*", "kueue_topology_parts:run_order_of_values"
    ),
    Adapter("kueue-topology", "*__TestCountPodsInAssignment", "kueue_topology_parts:run_count"),
    Adapter("kueue-topology", "*__TestFindBestDomains*", "kueue_topology_parts:run_balance"),
    Adapter("kueue-topology", "*__TestFindTopologyAssignments*", "kueue_topology:run_assignments"),
    Adapter("kueue-topology", "*__TestFreeCapacityPerDomain", "kueue_topology_parts:run_closures"),
    Adapter("kueue-topology", "*__TestHasLevel", "kueue_topology_parts:run_levels"),
    Adapter("kueue-topology", "*__TestIsTopologyAssignmentStale", "kueue_topology_parts:run_stale"),
    Adapter("kueue-topology", "*__TestMergeTopologyAssign*", "kueue_topology_parts:run_merge"),
    Adapter("kueue-topology", "*__TestNodePortsFeasibility", "kueue_topology_parts:run_ports"),
    Adapter("kueue-topology", "*__TestNonTasUsageCache*", "kueue_topology_parts:run_pods"),
    Adapter(
        "kueue-topology",
        "*DomainsBalancedStableTieBreak",
        "kueue_topology_parts:run_shares_of_equals",
    ),
    Adapter("kueue-topology", "*__TestPlaceSlicesOnDomains*", "kueue_topology_parts:run_shares"),
    Adapter(
        "kueue-topology", "*SetToFitStableTieBreak", "kueue_topology_parts:run_fewest_of_equals"
    ),
    Adapter("kueue-topology", "*__TestSelectOptimalDomain*", "kueue_topology_parts:run_fewest"),
    Adapter("kueue-topology", "*__TestSortedDomains", "kueue_topology_parts:run_order"),
    Adapter(
        "kueue-topology", "*__TestSortedDomainsWithLeader", "kueue_topology_parts:run_leading_order"
    ),
    Adapter("kueue-topology", "*__TestTASFlavorCache*", "kueue_topology_parts:run_usage"),
    Adapter("kueue-topology", "*__TestTruncateAssignment", "kueue_topology_parts:run_truncation"),
    Adapter(
        "kueue-topology",
        "pkg-scheduler__TestScheduleForTAS*",
        "kueue_topology_scheduler:run_schedule",
    ),
    Adapter("kueue-topology", "*_ErrorBranches", "kueue_topology_flavors:run_errors"),
    Adapter(
        "kueue-topology",
        "*__TestWorkloadsTopologyRequests_Z*",
        "kueue_topology_flavors:run_requests",
    ),
    Adapter("kueue-topology", "*_ComputeTASNetUsage", "kueue_topology_flavors:run_net_usage"),
    Adapter("kueue-topology", "*util-tas__TestBelongsTo", "kueue_topology_encoding:run_belonging"),
    Adapter("kueue-topology", "*-was__*", "kueue_topology_encoding:run_library"),
    Adapter("kueue-topology", "*_LeaderWorkerSet*", "kueue_topology_flavors:run_groups"),
    Adapter("kueue-topology", "*_ElasticJobsVal*", "kueue_topology_flavors:run_errors"),
    Adapter("kueue-topology", "*controller-tas__TestNodeF*", "kueue_topology_pods:run_failures"),
    Adapter("kueue-topology", "*controller-tas__TestGetW*", "kueue_topology_pods:run_failures"),
    Adapter("kueue-topology", "*controller-tas__TestReconcile", "kueue_topology_pods:run_ungating"),
    Adapter("kueue-topology", "*controller-tas__TestIsTAS", "kueue_topology_pods:run_requests"),
    Adapter(
        "kueue-topology",
        "*controller-tas__TestBelongsToNonTAS*",
        "kueue_topology_pods:run_room",
    ),
    Adapter("kueue-topology", "*util-tas__TestInternal*", "kueue_topology_encoding:run_reading"),
    Adapter("kueue-topology", "*util-tas__TestPodCounts", "kueue_topology_encoding:run_reading"),
    Adapter(
        "kueue-topology", "*util-tas__TestTotalDomainCount", "kueue_topology_encoding:run_reading"
    ),
    Adapter("kueue-topology", "*util-tas__TestHas*", "kueue_topology_encoding:run_nodes"),
    Adapter("kueue-topology", "*util-tas__TestNodeName*", "kueue_topology_encoding:run_node_names"),
    Adapter("kueue-topology", "*util-tas__TestByteSizeLimit", "kueue_topology_encoding:run_sizes"),
)
"""The first adapter that takes a file runs it. Kueue's tables: one line for each table or more."""


@dataclass(frozen=True)
class Suite:
    """A file of cases, and the adapter that runs it; None if there is none yet."""

    group: str
    path: Path
    adapter: Adapter | None

    @property
    def name(self) -> str:
        return f"{self.group}/{self.path.stem}"

    def run(self) -> SuiteResult:
        if self.adapter is None:
            return SuiteResult(self.name, cases=_count(self.path), no_adapter=True)
        return SuiteResult.of(self.name, self.adapter.runner()(self.path))


def find_suites(cases: Path, wanted: str) -> Iterator[Suite]:
    """Yield the suites `wanted`: all, a group's, a folder's, or one file's."""
    groups = _groups(cases / "kueue" / "suites.tsv")
    for path in sorted(cases.glob("*/*.json")):
        adapter = next((adapter for adapter in ADAPTERS if adapter.takes(path)), None)
        folder = path.parent.name
        group = groups.get(path.stem, "") if folder == "kueue" else folder
        if adapter and (not groups or adapter.stem == path.stem):
            group = adapter.group
        suite = Suite(group, path, adapter)
        # Tables of Kueue that nobody names test the Go code's own machinery.
        if group and (not wanted or wanted in (group, folder, path.stem, suite.name)):
            yield suite


def _groups(index: Path) -> dict[str, str]:
    """Return the groups of Kueue's tables."""
    if not index.is_file():
        return {}
    with index.open(newline="") as file:
        return {row["table"]: row["suite"] for row in csv.DictReader(file, delimiter="\t")}


def _count(path: Path) -> int:
    content = json.loads(path.read_text())
    return len(content["cases"] if isinstance(content, dict) else content)
