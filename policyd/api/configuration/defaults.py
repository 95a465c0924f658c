"""Kueue's defaults for unset fields of a Configuration, in either version.

Works on decoded JSON, since the versions differ in a few fields only. As in Kueue, an empty text
and a duration of zero say nothing, except where zero switches something off.
"""

from typing import Final

from policyd.api.configuration.kinds import OLD_API_VERSION
from policyd.api.meta import Json
from policyd.api.names import NAME_LABEL

Fields = dict[str, Json]

DEFAULT_NAMESPACE: Final = "kueue-system"
SYSTEM_NAMESPACE: Final = "kube-system"
INCREMENTAL_DISPATCHER: Final = "kueue.x-k8s.io/multikueue-dispatcher-incremental"

_SHARED: Final[Fields] = {
    "namespace": DEFAULT_NAMESPACE,
    "webhook": {"port": 9443},
    "metrics": {"bindAddress": ":8443"},
    "health": {"healthProbeBindAddress": ":8081"},
    "leaderElection": {
        "leaderElect": True,
        "leaseDuration": "15s",
        "renewDeadline": "10s",
        "retryPeriod": "2s",
        "resourceLock": "leases",
        "resourceName": "c1f6bfd2.kueue.x-k8s.io",
    },
    "internalCertManagement": {"enable": True},
    "clientConnection": {"qps": 300, "burst": 500},
    "integrations": {"frameworks": ["batch/job"]},
    "multiKueue": {
        "gcInterval": "1m0s",
        "origin": "multikueue",
        "workerLostTimeout": "15m0s",
        "dispatcherName": "kueue.x-k8s.io/multikueue-dispatcher-all-at-once",
    },
}
_REQUEUING: Final[Fields] = {
    "timestamp": "Eviction",
    "backoffBaseSeconds": 60,
    "backoffMaxSeconds": 3600,
}
_STRATEGIES: Final = ("LessThanOrEqualToFinalShare", "LessThanInitialShare")
_ZERO_IS_UNSET: Final = frozenset(
    {"leaseDuration", "renewDeadline", "retryPeriod", "timeout", "usageSamplingInterval"}
)


def with_defaults(document: Fields) -> Fields:
    """Return a Configuration with the defaults of its version filled in."""
    filled = _fill(document, _SHARED)
    old = document.get("apiVersion") == OLD_API_VERSION
    _fill_selector(filled)
    _fill_metrics(filled)
    _fill_certificates(filled)
    _fill_multi_kueue(filled["multiKueue"])
    if old:
        _fill_old(filled)
    else:
        filled["waitForPodsReady"] = _waiting(
            filled.get("waitForPodsReady") or {}, timeout="30m0s", blocks=False
        )
        filled = _fill(filled, {"visibilityServer": {"bindPort": 8082}})
    _fill_optional(filled)
    return filled


def _fill(given: Fields, defaults: Fields) -> Fields:
    """Return `given` with unset fields taken from `defaults`, at every depth."""
    filled = dict(given)
    for name, default in defaults.items():
        value = given.get(name)
        if isinstance(default, dict):
            filled[name] = _fill(value or {}, default)
        elif value in (None, "") or (name in _ZERO_IS_UNSET and value == "0s"):
            filled[name] = default
    return filled


def _fill_selector(filled: Fields) -> None:
    if filled.get("managedJobsNamespaceSelector") is None:
        own = [SYSTEM_NAMESPACE, filled["namespace"]]
        expression = {"key": NAME_LABEL, "operator": "NotIn", "values": own}
        filled["managedJobsNamespaceSelector"] = {"matchExpressions": [expression]}


def _fill_metrics(filled: Fields) -> None:
    if filled["metrics"].get("localQueueMetrics") is None:
        filled["metrics"]["localQueueMetrics"] = {"enable": True}


def _fill_certificates(filled: Fields) -> None:
    if filled["internalCertManagement"]["enable"]:
        names = {
            "webhookServiceName": "kueue-webhook-service",
            "webhookSecretName": "kueue-webhook-server-cert",
        }
        filled["internalCertManagement"] = _fill(filled["internalCertManagement"], names)


def _fill_multi_kueue(filled: Fields) -> None:
    if filled["dispatcherName"] == INCREMENTAL_DISPATCHER:
        steps = filled.get("incrementalDispatcherConfig") or {}
        filled["incrementalDispatcherConfig"] = _fill(steps, {"stepSize": 3})


def _fill_old(filled: Fields) -> None:
    """Fill in the parts that v1beta1 enables by fields named `enable`."""
    waiting = filled.get("waitForPodsReady") or {}
    if waiting.get("enable"):
        waiting = _waiting(waiting, timeout="5m0s", blocks=True)
    filled["waitForPodsReady"] = waiting
    sharing = filled.get("fairSharing")
    if sharing and sharing.get("enable") and not sharing.get("preemptionStrategies"):
        filled["fairSharing"] = {**sharing, "preemptionStrategies": list(_STRATEGIES)}


def _waiting(given: Fields, *, timeout: str, blocks: bool) -> Fields:
    defaults = {"timeout": timeout, "blockAdmission": blocks, "requeuingStrategy": _REQUEUING}
    filled = _fill(given, defaults)
    return _fill(filled, {"recoveryTimeout": filled["timeout"]})


def _fill_optional(filled: Fields) -> None:
    """Fill in fields that are only set if their part of the Configuration is."""
    if filled.get("admissionFairSharing") is not None:
        sampling = {"usageSamplingInterval": "5m0s"}
        filled["admissionFairSharing"] = _fill(filled["admissionFairSharing"], sampling)
    resources = filled.get("resources")
    if resources and resources.get("transformations"):
        retain = {"strategy": "Retain"}
        transformations = [_fill(each, retain) for each in resources["transformations"]]
        filled["resources"] = {**resources, "transformations": transformations}
