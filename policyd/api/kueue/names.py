"""Kueue's labels, annotations, gates, finalizers, condition types and reasons."""

from typing import Final

GROUP: Final = "kueue.x-k8s.io"
VERSION: Final = "v1beta2"
API_VERSION: Final = f"{GROUP}/{VERSION}"

QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
PRIORITY_BOOST: Final = "kueue.x-k8s.io/priority-boost"
MAX_EXEC_TIME_SECONDS: Final = "kueue.x-k8s.io/max-exec-time-seconds"
JOB_UID: Final = "kueue.x-k8s.io/job-uid"
MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
MANAGED: Final = "kueue.x-k8s.io/managed"
POD_SET: Final = "kueue.x-k8s.io/podset"
POD_GROUP_NAME: Final = "kueue.x-k8s.io/pod-group-name"
POD_GROUP_TOTAL_COUNT: Final = "kueue.x-k8s.io/pod-group-total-count"
RETRIABLE_IN_GROUP: Final = "kueue.x-k8s.io/retriable-in-group"
ROLE_HASH: Final = "kueue.x-k8s.io/role-hash"
IS_GROUP_WORKLOAD: Final = "kueue.x-k8s.io/is-group-workload"
WORKLOAD: Final = "kueue.x-k8s.io/workload"
ELASTIC_JOB: Final = "kueue.x-k8s.io/elastic-job"
SLICE_REPLACEMENT_FOR: Final = "kueue.x-k8s.io/workload-slice-replacement-for"
ALLOWED_FLAVORS: Final = "kueue.x-k8s.io/workload-allowed-resource-flavors"
ADMISSION_GATED_BY: Final = "kueue.x-k8s.io/admission-gated-by"

PODSET_REQUIRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-required-topology"
PODSET_PREFERRED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-preferred-topology"
PODSET_UNCONSTRAINED_TOPOLOGY: Final = "kueue.x-k8s.io/podset-unconstrained-topology"

ADMISSION_GATE: Final = "kueue.x-k8s.io/admission"
TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"

RESOURCE_IN_USE_FINALIZER: Final = "kueue.x-k8s.io/resource-in-use"

ACTIVE: Final = "Active"
QUOTA_RESERVED: Final = "QuotaReserved"
ADMITTED: Final = "Admitted"
EVICTED: Final = "Evicted"
PREEMPTED: Final = "Preempted"
REQUEUED: Final = "Requeued"
FINISHED: Final = "Finished"
PODS_READY: Final = "PodsReady"
DEACTIVATION_TARGET: Final = "DeactivationTarget"

DEFAULT_POD_SET: Final = "main"
DEFAULT_LOCAL_QUEUE: Final = "default"
PODS_RESOURCE: Final = "pods"

MULTI_KUEUE: Final = "kueue.x-k8s.io/multikueue"
"""Controller of admission checks that send jobs to other clusters."""
PROVISIONING: Final = "kueue.x-k8s.io/provisioning-request"
"""Controller of admission checks that have nodes made."""
