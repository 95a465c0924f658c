"""Where the objects are: in memory, with one counter of versions, and a bounded memory of changes.

Objects are never changed in place. A writer names the object it means to replace; when another one
stands there meanwhile, the write fails. That is all the concurrency control there is.
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from policyd.local.apiserver.status import Object

Key = tuple[str, str]
"""Namespace (empty for cluster-scoped objects) and name."""

Change = Literal["ADDED", "MODIFIED", "DELETED"]

HISTORY = 500
"""Changes of each resource that a watch can catch up on; a slower one lists again (410)."""


class ChangedError(Exception):
    """Another object stands where the writer meant to write."""


class TooOldError(Exception):
    """The changes since a version are no longer kept; the first argument is the oldest one kept."""


@dataclass(frozen=True, slots=True)
class StoreEvent:
    """One change: the object after it (or as it was last), and before it."""

    type: Change
    resource: str
    object: Object
    previous: Object | None
    version: int


Listener = Callable[[StoreEvent], None]


class Store:
    """The objects of all resources; a resource is named like `pods` or `jobs.batch`."""

    def __init__(self, *, history: int = HISTORY) -> None:
        self.version = 1
        self._history_size = history
        self._objects: dict[str, dict[Key, Object]] = {}
        self._history: dict[str, deque[StoreEvent]] = {}
        self._forgotten: dict[str, int] = {}
        self._listeners: list[Listener] = []
        self._resource_listeners: dict[str, list[Listener]] = {}

    def get(self, resource: str, namespace: str, name: str) -> Object | None:
        """Return one object, if it exists."""
        return self._objects.get(resource, {}).get((namespace, name))

    def items(self, resource: str, namespace: str = "") -> list[tuple[Key, Object]]:
        """Return the objects of a resource, of one namespace or of all, in the order of names."""
        found = self._objects.get(resource, {})
        keys = [key for key in found if key[0] == namespace] if namespace else found
        return [(key, found[key]) for key in sorted(keys)]

    def resources(self) -> list[str]:
        """Return the resources that have objects."""
        return [resource for resource, objects in self._objects.items() if objects]

    def put(self, resource: str, new: Object, *, replacing: Object | None) -> Object:
        """Store an object, with the next version as its resourceVersion.

        Args:
            resource: Where it belongs.
            new: The object, with its name and namespace.
            replacing: The very object that stands there now; None if none may.

        Raises:
            ChangedError: If something else stands there.
        """
        key = key_of(new)
        objects = self._objects.setdefault(resource, {})
        if objects.get(key) is not replacing:
            raise ChangedError
        stored = self._stamped(new)
        objects[key] = stored
        self._publish("MODIFIED" if replacing else "ADDED", resource, stored, replacing)
        return stored

    def remove(self, resource: str, old: Object) -> Object:
        """Take an object away; watchers see it once more, as it was.

        Raises:
            ChangedError: If another object stands there, or none.
        """
        objects = self._objects.get(resource, {})
        key = key_of(old)
        if objects.get(key) is not old:
            raise ChangedError
        del objects[key]
        final = self._stamped(old)
        self._publish("DELETED", resource, final, old)
        return final

    def load(self, resource: str, saved: Object) -> None:
        """Store an object of an earlier run unchanged, without calling listeners."""
        self._objects.setdefault(resource, {})[key_of(saved)] = saved
        self.version = max(self.version, int(saved["metadata"]["resourceVersion"]))

    def continue_from(self, version: int) -> None:
        """Go on counting after an earlier run, of whose changes nothing is remembered."""
        self.version = max(self.version, version)
        self.forget()

    def forget(self) -> None:
        """Make every version up to now too old to watch from, as compaction does."""
        self._history.clear()
        self._forgotten = {"": self.version}

    def since(self, resource: str, version: int) -> list[StoreEvent]:
        """Return the changes after `version`.

        Raises:
            TooOldError: If some of them are no longer kept.
        """
        forgotten = max(self._forgotten.get(resource, 0), self._forgotten.get("", 0))
        if version < forgotten:
            raise TooOldError(forgotten)
        return [e for e in self._history.get(resource, ()) if e.version > version]

    def listen(self, listener: Listener, resource: str = "") -> Callable[[], None]:
        """Call `listener` with every change (of one resource); return a function that ends it."""
        listeners = self._listeners
        if resource:
            listeners = self._resource_listeners.setdefault(resource, [])
        listeners.append(listener)
        return lambda: listeners.remove(listener)

    def __iter__(self) -> Iterator[tuple[str, Object]]:
        for resource, objects in list(self._objects.items()):
            for value in list(objects.values()):
                yield resource, value

    def _stamped(self, new: Object) -> Object:
        self.version += 1
        return {**new, "metadata": {**new["metadata"], "resourceVersion": str(self.version)}}

    def _publish(self, change: Change, resource: str, new: Object, previous: Object | None) -> None:
        event = StoreEvent(change, resource, new, previous, self.version)
        history = self._history.setdefault(resource, deque())
        history.append(event)
        if len(history) > self._history_size:
            self._forgotten[resource] = history.popleft().version
        for listener in (*self._resource_listeners.get(resource, ()), *self._listeners):
            listener(event)


def key_of(value: Object) -> Key:
    """Return where an object stands among those of its resource."""
    metadata = value["metadata"]
    return metadata.get("namespace", ""), metadata["name"]
