"""Which functions know which kind: its defaults, its beginning, its rules."""

from collections.abc import Callable, Iterator, Mapping

from policyd.local.apiserver.custom import definitions
from policyd.local.apiserver.custom.definitions import DEFINITIONS
from policyd.local.apiserver.kinds import (
    cluster_checks,
    jobs,
    pod_checks,
    pod_defaults,
    pod_updates,
    smaller,
    workloads,
)
from policyd.local.apiserver.status import Cause, Object

Default = Callable[[Object], None]
Check = Callable[[Object], Iterator[Cause]]
CheckUpdate = Callable[[Object, Object], Iterator[Cause]]

DEFAULTS: Mapping[str, Default] = {
    "cronjobs.batch": workloads.default_cron_job,
    DEFINITIONS: definitions.default_definition,
    "daemonsets.apps": workloads.default_daemon_set,
    "deployments.apps": workloads.default_deployment,
    "jobs.batch": jobs.default_whole_job,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": smaller.default_mutating_webhooks,
    "namespaces": smaller.default_namespace,
    "nodes": smaller.default_node,
    "pods": pod_defaults.default_pod,
    "priorityclasses.scheduling.k8s.io": smaller.default_priority_class,
    "replicasets.apps": workloads.default_replica_set,
    "resourceclaims.resource.k8s.io": smaller.default_claim,
    "resourceclaimtemplates.resource.k8s.io": smaller.default_claim_template,
    "secrets": smaller.default_secret,
    "services": smaller.default_service,
    "statefulsets.apps": workloads.default_stateful_set,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": smaller.default_webhooks,
}
"""Sets the defaults of an object; runs before admission, and again after each webhook."""

BEGIN: Mapping[str, Default] = {
    DEFINITIONS: definitions.establish,
    "jobs.batch": jobs.select_own_pods,
    "namespaces": smaller.open_namespace,
}
"""Sets the fields of a new object that depend on its name and uid; runs once, after mutation."""

CHECKS: Mapping[str, Check] = {
    **dict.fromkeys(
        (
            "mutatingadmissionpolicies.admissionregistration.k8s.io",
            "mutatingadmissionpolicybindings.admissionregistration.k8s.io",
            "validatingadmissionpolicies.admissionregistration.k8s.io",
            "validatingadmissionpolicybindings.admissionregistration.k8s.io",
        ),
        smaller.check_admission_policy,
    ),
    "configmaps": smaller.check_config_map,
    "cronjobs.batch": workloads.check_cron_job,
    DEFINITIONS: definitions.check_definition,
    "daemonsets.apps": workloads.check_workload,
    "deployments.apps": workloads.check_deployment,
    "events": smaller.check_event,
    "jobs.batch": jobs.check_job,
    "mutatingwebhookconfigurations.admissionregistration.k8s.io": smaller.check_webhooks,
    "pods": pod_checks.check_pod,
    "leases.coordination.k8s.io": cluster_checks.check_lease,
    "namespaces": cluster_checks.check_namespace,
    "nodes": cluster_checks.check_node,
    "priorityclasses.scheduling.k8s.io": cluster_checks.check_priority_class,
    "replicasets.apps": workloads.check_workload,
    "secrets": smaller.check_config_map,
    "statefulsets.apps": workloads.check_workload,
    "validatingwebhookconfigurations.admissionregistration.k8s.io": smaller.check_webhooks,
}
"""The rules of objects that are created or changed."""

CHECKS_OF_NEW: Mapping[str, Check] = {"pods": pod_checks.check_created_pod}
"""The rules of objects that are created."""

CHECKS_OF_UPDATES: Mapping[str, CheckUpdate] = {
    "configmaps": smaller.check_config_map_update,
    DEFINITIONS: definitions.check_definition_update,
    "deployments.apps": workloads.check_workload_update,
    "events": smaller.check_event_update,
    "daemonsets.apps": workloads.check_workload_update,
    "jobs.batch": jobs.check_job_update,
    "pods": pod_updates.check_pod_update,
    "priorityclasses.scheduling.k8s.io": cluster_checks.check_priority_class_update,
    "replicasets.apps": workloads.check_workload_update,
    "secrets": smaller.check_config_map_update,
    "statefulsets.apps": workloads.check_stateful_set_update,
}
"""The rules of changes."""
