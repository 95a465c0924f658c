"""The lives of namespaces: each has a service account, and takes all it holds with it."""

from policyd.clock import Clock
from policyd.local.apiserver.registry import Registry
from policyd.local.apiserver.status import Object
from policyd.local.apiserver.store import Store, StoreEvent
from policyd.local.apiserver.writing.deletion import (
    NAMESPACE_FINALIZER,
    DeletionRules,
    is_released,
    mark_deleted,
    settle,
)
from policyd.local.apiserver.writing.metadata import stamp_created

SERVICE_ACCOUNTS = "serviceaccounts"


class NamespaceLifecycle:
    """Follows the store's changes; what is to be done is done in `work`, not in between."""

    def __init__(self, store: Store, registry: Registry, clock: Clock) -> None:
        self._store = store
        self._registry = registry
        self._clock = clock

    def concerns(self, event: StoreEvent) -> bool:
        """Tell whether a change may mean work."""
        if event.resource == "namespaces":
            return event.type != "DELETED"
        if event.resource == SERVICE_ACCOUNTS and event.type == "DELETED":
            return True
        namespace = event.object["metadata"].get("namespace", "")
        found = self._store.get("namespaces", "", namespace) if namespace else None
        return event.type == "DELETED" and found is not None and _is_going(found)

    def work(self) -> None:
        """Do what there is to do for every namespace."""
        for _, namespace in self._store.items("namespaces"):
            if not _is_going(namespace):
                self._ensure_service_account(namespace["metadata"]["name"])
            elif self._empty(namespace["metadata"]["name"]):
                self._finish(namespace)

    def _ensure_service_account(self, namespace: str) -> None:
        if self._store.get(SERVICE_ACCOUNTS, namespace, "default") is not None:
            return
        served = self._registry.find("", "v1", SERVICE_ACCOUNTS)
        assert served is not None, "service accounts are built in"
        about = {"name": "default", "namespace": namespace}
        new = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about}
        stamp_created(new, served, self._clock.now())
        self._store.put(SERVICE_ACCOUNTS, new, replacing=None)

    def _empty(self, namespace: str) -> bool:
        """Delete what is in a namespace; tell whether nothing is left."""
        left = False
        for resource in self._store.resources():
            for _, value in self._store.items(resource, namespace):
                left = not self._delete(resource, value) or left
        return not left

    def _delete(self, resource: str, value: Object) -> bool:
        options = DeletionRules(policy="Background")
        marked = mark_deleted(value, resource, options, now=self._clock.now())
        return is_released(settle(self._store, resource, value, marked))

    def _finish(self, namespace: Object) -> None:
        spec = namespace.get("spec", {})
        finalizers = [f for f in spec.get("finalizers", ()) if f != NAMESPACE_FINALIZER]
        rest = {key: value for key, value in spec.items() if key != "finalizers"}
        new = {**namespace, "spec": rest | ({"finalizers": finalizers} if finalizers else {})}
        settle(self._store, "namespaces", namespace, new)


def _is_going(namespace: Object) -> bool:
    return "deletionTimestamp" in namespace["metadata"]
