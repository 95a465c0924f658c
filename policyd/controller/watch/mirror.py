"""Collections in their latest state: as sent by the API server, with our own later writes.

A watch is a little behind. A reconciler that relied on it alone would write the same thing twice,
or base a write on an old version. So the answer to a write is taken in immediately, and the events
of the watch are passed on only if they are newer. Listeners get every change once, in
order.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar, Unpack

import structlog

from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.client import Reader, Selection
from policyd.kube.discovery import wait_until_served
from policyd.kube.informer import Identified, Informer, key_of
from policyd.kube.pace import Pace
from policyd.kube.resources import Resource

log = structlog.get_logger()

MOST_REMEMBERED = 2_000
"""Deleted objects that are remembered, until the answers to writes to them have surely come."""

T = TypeVar("T", bound=Identified)


class Mirror(Generic[T]):
    """The objects of one resource, by `namespace/name` or by name."""

    def __init__(
        self,
        reader: Reader,
        resource: Resource,
        *,
        into: type[T],
        pace: Pace,
        trim: Callable[[T], T] | None = None,
        **selection: Unpack[Selection],
    ) -> None:
        self.resource = resource
        self.into = into
        self._namespace = selection.get("namespace", "")
        self.informer = Informer(
            reader, resource, into=into, on_change=self._seen, trim=trim, pace=pace, **selection
        )
        """Run by the controller."""
        self._objects: dict[str, T] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._listeners: list[Callable[[Change[T]], None]] = []

    def __iter__(self) -> Iterator[T]:
        """Iterate over all objects as of now."""
        return iter(tuple(self._objects.values()))

    def in_turns(self) -> Iterator[T | None]:
        """Yield None before each object: others may have their turn there, and change objects.

        Objects that are deleted meanwhile are left out, and so are new ones.
        """
        for key in tuple(self._objects):
            yield None
            found = self._objects.get(key)
            if found is not None:
                yield found

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: str) -> T | None:
        """Return the object of that key, if there is one."""
        return self._objects.get(key)

    def listen(self, listener: Callable[[Change[T]], None]) -> None:
        """Call `listener` at each change, from now on."""
        self._listeners.append(listener)

    async def watch_when_served(self, reader: Reader, pace: Pace) -> None:
        """Run the informer once the kind is served, until cancelled."""
        await wait_until_served(reader, self.resource, pace, self._namespace)
        await self.informer.run()

    def wrote(self, obj: T) -> None:
        """Add the object that a write or a read returned.

        The answer to a write may come after the watch event of the object's deletion.
        """
        key, current = key_of(obj), self._objects.get(key_of(obj))
        if obj.metadata.uid in self._gone or (current is not None and not _newer(obj, current)):
            return
        self._objects[key] = obj
        if current is None:
            self._notify(Added(obj))
        elif current.metadata.uid == obj.metadata.uid:
            self._notify(Modified(current, obj))
        else:
            self._notify(Deleted(current))
            self._notify(Added(obj))

    def forget(self, key: str) -> None:
        """Note that an object is not there, though no deletion has been seen."""
        current = self._objects.pop(key, None)
        if current is not None:
            self._notify(Deleted(current))

    def lost(self, obj: T) -> None:
        """Note that an object was not found.

        By the time that the answer is here, there may be another object of its name.
        """
        current = self._objects.get(key_of(obj))
        if current is not None and current.metadata.uid == obj.metadata.uid:
            self.forget(key_of(obj))

    def _seen(self, change: Change[T]) -> None:
        match change:
            case Added():
                # It may have left the selection for a while: a watch has changes in their order.
                self._gone.pop(change.object.metadata.uid, None)
                self.wrote(change.object)
            case Modified():
                self.wrote(change.object)
            case Deleted():
                self._bury(change.object.metadata.uid)
                self.lost(change.object)

    def _bury(self, uid: str) -> None:
        self._gone[uid] = None
        if len(self._gone) > MOST_REMEMBERED:
            self._gone.popitem(last=False)

    def _notify(self, change: Change[T]) -> None:
        for listener in self._listeners:
            try:
                listener(change)
            except Exception:
                # An unforeseen error about one object must not stop the others.
                resource, key = self.resource.plural, key_of(change.object)
                log.exception("object_error", resource=resource, object=key)


def _newer(obj: Identified, current: Identified) -> bool:
    """Tell whether an object is a later version; if versions are not numbers, it is."""
    new, old = obj.metadata.resource_version, current.metadata.resource_version
    if new.isdecimal() and old.isdecimal():
        return int(new) > int(old)
    return new != old
