"""What a cluster has from its first moment."""

from policyd.local.apiserver.admission.plugins import PRIORITY_CLASSES
from policyd.local.apiserver.builtin import builtin_kinds
from policyd.local.apiserver.kinds.smaller import open_namespace
from policyd.local.apiserver.registry import Served
from policyd.local.apiserver.status import Object
from policyd.local.apiserver.store import Store
from policyd.local.apiserver.writing.metadata import stamp_created

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")

SYSTEM_VALUES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""The priority classes of what a cluster cannot do without."""


def bootstrap(store: Store, now: float) -> None:
    """Create what is not there yet."""
    kinds = {served.resource: served for served in builtin_kinds()}
    for name in NAMESPACES:
        namespace = _object(kinds["namespaces"], name)
        open_namespace(namespace)
        _create(store, kinds["namespaces"], namespace, now)
    for name, value in SYSTEM_VALUES.items():
        found = _object(kinds[PRIORITY_CLASSES], name)
        found |= {"value": value, "preemptionPolicy": "PreemptLowerPriority"}
        _create(store, kinds[PRIORITY_CLASSES], found, now)


def _object(served: Served, name: str) -> Object:
    return {
        "apiVersion": served.api_version,
        "kind": served.kind,
        "metadata": {"name": name},
    }


def _create(store: Store, served: Served, new: Object, now: float) -> None:
    if store.get(served.storage, "", new["metadata"]["name"]) is None:
        stamp_created(new, served, now)
        store.put(served.storage, new, replacing=None)
