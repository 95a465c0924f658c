"""Feature gates of Kueue's without effect here: policyd's fixed behavior, and the reason."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from policyd.api.configuration.gates import validate_gates


class FixedGate(NamedTuple):
    """The fixed behavior of policyd for a gate.

    Attributes:
        on: Whether that is Kueue's behavior with the gate on.
        reason: The reason for the fixed behavior.
    """

    on: bool
    reason: str


_CACHES = FixedGate(
    on=True, reason="it makes Kueue faster and changes no decision; policyd always caches"
)

LEFT_OUT: Final[Mapping[str, FixedGate]] = {
    "DeferRayServiceFinalizationForRedisCleanup": FixedGate(
        on=True, reason="a service keeps its quota until the pods are gone that clean up Redis"
    ),
    "DynamicQuotaOrchestration": FixedGate(
        on=False, reason="quota is what the specs of queues and cohorts give"
    ),
    "ElasticJobsViaWorkloadSlicesWithPartialReplicaScaleUp": FixedGate(
        on=False, reason="a job grows to its new size, or keeps the one it has"
    ),
    "KueueDRADeviceFeasibility": FixedGate(
        on=False, reason="free devices on nodes are regarded where a topology places pods"
    ),
    "ManagedJobsNamespaceSelectorAlwaysRespected": FixedGate(
        on=True,
        reason="jobs queue only where `managedJobsNamespaceSelector` says, as Kueue insists",
    ),
    "RemoveFinalizersWithStrictPatch": FixedGate(
        on=True, reason="a finalizer is only taken from the version that was read"
    ),
    "SchedulerLibraryIntegration": FixedGate(
        on=False, reason="pods are placed by policyd's own search; the scheduler binds them"
    ),
    "ShortWorkloadNames": FixedGate(
        on=False, reason="names stay as they are in a cluster that runs"
    ),
    "SkipAncestorCheckForDeletedWorkloads": FixedGate(
        on=True, reason="nothing is looked up for a workload that is gone"
    ),
    "TASCacheNodeMatchResults": _CACHES,
    "TASCacheTopologyTree": _CACHES,
    "TASCachingRemainingResources": _CACHES,
    "TLSOptions": FixedGate(
        on=True, reason="`tls` of the Configuration holds for all servers that read it"
    ),
    "VectorizedResourceRequests": _CACHES,
    "VisibilityOnDemand": FixedGate(on=True, reason="it is served where `--visibility-port` says"),
    "WorkloadRequestUseMergePatch": FixedGate(on=True, reason="every status is a merge patch"),
}
"""By gate. All others work as Kueue's do; tests that flip them show it."""


def ineffective_gates(text: str, given: Mapping[str, bool] | None) -> Iterable[str]:
    """Yield a sentence for each gate whose setting has no effect.

    Args:
        text: Gates from the command line: `A=true,B=false`.
        given: Gates from the Configuration; None if it says none.
    """
    gates, _ = validate_gates(text, given)
    for name, on in sorted(gates.items()):
        left_out = LEFT_OUT.get(name)
        if left_out is not None and left_out.on is not on:
            value, stays = ("true", "off") if on else ("false", "on")
            yield f"feature gate `{name}` is set to {value}, but stays {stays}: {left_out.reason}"
