"""The settings of dispatching to other clusters."""

from collections.abc import Mapping
from typing import Final

import msgspec

from policyd.alloc.value import Value
from policyd.api.configuration.kinds import AccessProvider

ALL_AT_ONCE: Final = "kueue.x-k8s.io/multikueue-dispatcher-all-at-once"
INCREMENTAL: Final = "kueue.x-k8s.io/multikueue-dispatcher-incremental"
FORECAST: Final = "policyd.io/multikueue-dispatcher-forecast"
"""Beyond Kueue: a workload goes where it is forecast to start first."""
ORIGIN: Final = "kueue.x-k8s.io/multikueue-origin"
"""Label of all that was made on a worker, with the name of the manager."""
KUBECONFIG_FOLDER: Final = "/etc/multikueue/kubeconfigs/"
"""Where files with kubeconfigs must be."""


class MultiKueueSettings(Value, frozen=True):
    """How jobs are sent to other clusters.

    Attributes:
        enabled: Gate MultiKueue: whether any are.
        origin: Value of the label of all that is made on workers.
        dispatcher: The name of the dispatcher that nominates workers.
        step: How many more workers the incremental dispatcher nominates in a round.
        lost_seconds: How long a worker may be out of reach before its jobs are requeued.
        collect_seconds: Between two collections of orphans on the workers; 0 for none.
        frameworks: Other kinds of jobs that may be sent, as `Kind.version.group`.
        providers: The programs that get credentials for ClusterProfiles.
        keeps_order: Gate MultiKueueIncrementalDispatcherRespectConfigOrder: whether workers are
            nominated in the order of the config, rather than by name.
        checks_paths: Gate MultiKueueKubeConfigPathValidation: whether files must be in one folder.
        orchestrates: Gate MultiKueueOrchestratedPreemption: whether one worker preempts at a time.
        automates: Gate MultiKueueManagerQuotaAutomation: whether quota may follow the workers'.
        profiles: Gate MultiKueueClusterProfile: whether ClusterProfiles are read.
        syncs_specs: Gate MultiKueueRemoteSpecSync: whether a service that changes does so there.
        clears_ttl: Gate MultiKueueBatchJobClearingTTLSecondsAfterFinishedOnWorkerCluster: whether a
            Job on a worker stays when it has ended, until it is removed with the Job here.
        annotates: Gate WorkloadIdentifierAnnotations: whether an annotation names the Workload.
        elastic: Gate ElasticJobsViaWorkloadSlices: whether jobs may grow.
    """

    enabled: bool = True
    origin: str = "multikueue"
    dispatcher: str = ALL_AT_ONCE
    step: int = 3
    lost_seconds: float = 900.0
    collect_seconds: float = 60.0
    frameworks: tuple[str, ...] = ()
    providers: tuple[AccessProvider, ...] = ()
    keeps_order: bool = True
    checks_paths: bool = True
    orchestrates: bool = False
    automates: bool = False
    profiles: bool = False
    syncs_specs: bool = True
    clears_ttl: bool = True
    annotates: bool = True
    elastic: bool = True


DEFAULTS: Final = MultiKueueSettings()
"""As Kueue sends jobs without a configuration."""

_GATES: Final[Mapping[str, str]] = {
    "enabled": "MultiKueue",
    "keeps_order": "MultiKueueIncrementalDispatcherRespectConfigOrder",
    "checks_paths": "MultiKueueKubeConfigPathValidation",
    "orchestrates": "MultiKueueOrchestratedPreemption",
    "automates": "MultiKueueManagerQuotaAutomation",
    "profiles": "MultiKueueClusterProfile",
    "syncs_specs": "MultiKueueRemoteSpecSync",
    "clears_ttl": "MultiKueueBatchJobClearingTTLSecondsAfterFinishedOnWorkerCluster",
    "annotates": "WorkloadIdentifierAnnotations",
    "elastic": "ElasticJobsViaWorkloadSlices",
}


def gated(gates: Mapping[str, bool]) -> MultiKueueSettings:
    """Return the default settings with the feature gates that are set, by Kueue's names."""
    fields = {field: gates[gate] for field, gate in _GATES.items() if gate in gates}
    return msgspec.structs.replace(DEFAULTS, **fields)
