"""The server's background work: first objects, namespaces, garbage, old events."""

import asyncio
from contextlib import suppress

from policyd.clock import Clock
from policyd.local.apiserver.admission.plugins import PRIORITY_CLASSES
from policyd.local.apiserver.builtin import EVENTS, builtin_kinds
from policyd.local.apiserver.garbage import GarbageCollector
from policyd.local.apiserver.kinds.smaller import open_namespace
from policyd.local.apiserver.registry import Registry, Served
from policyd.local.apiserver.state import ServerState
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
from policyd.status.ages import seconds_of

NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")

SYSTEM_VALUES = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""The priority classes of critical system pods."""


def bootstrap(store: Store, now: float) -> None:
    """Create the objects of a new cluster that do not exist yet."""
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


SERVICE_ACCOUNTS = "serviceaccounts"


class NamespaceLifecycle:
    """Follows the changes of the store, and acts in `work` only."""

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
        """Create missing service accounts, and empty the namespaces that are being deleted."""
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
        """Delete the objects of a namespace; tell whether none is left."""
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


EVENT_SECONDS = 3600.0
"""How long an event is kept, as on the real server."""

SWEEP_SECONDS = 60.0


class Housekeeping:
    """Follows the store, and works whenever something calls for it."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._garbage = GarbageCollector(state.store, state.clock)
        self._namespaces = NamespaceLifecycle(state.store, state.registry, state.clock)
        self._called = asyncio.Event()
        self._swept_at = state.clock.monotonic()
        state.store.listen(self._notice)

    def _notice(self, event: StoreEvent) -> None:
        garbage = self._garbage.notice(event)
        if garbage or self._namespaces.concerns(event):
            self._called.set()

    def work(self) -> None:
        """Do all there is to do now."""
        self._called.clear()
        self._namespaces.work()
        self._garbage.work()

    async def run(self) -> None:
        """Work until cancelled."""
        self._called.set()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_SECONDS):
                    await self._called.wait()
            # Requests in progress are answered first.
            await asyncio.sleep(0)
            self.work()
            if self._state.clock.monotonic() - self._swept_at >= SWEEP_SECONDS:
                self.drop_old_events()

    def drop_old_events(self) -> None:
        """Drop the events that are older than an hour."""
        self._swept_at = self._state.clock.monotonic()
        oldest = self._state.clock.now() - EVENT_SECONDS
        for _, event in self._state.store.items(EVENTS):
            if seconds_of(event["metadata"]["creationTimestamp"]) < oldest:
                self._state.store.remove(EVENTS, event)
