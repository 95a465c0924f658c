"""The deletions that a watch has seen, for policies that generate when their trigger is deleted.

A pass reads what exists, so what is gone has to be kept until a pass has acted on it. It is kept in
memory, a bounded number of objects for a bounded time: where there are too many, the namespace that
has most loses its oldest. Deletions that another process has seen, or none, are not acted on.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar, Unpack

import msgspec

from policyd.api.meta import Json
from policyd.engine.background.record import name_of
from policyd.engine.objects.workloads import value_at
from policyd.kube.client import Bookmark, Lister, ListPage, Paging, Selection, WatchEvent
from policyd.kube.pages import whole
from policyd.kube.resources import Resource

T = TypeVar("T")

MOST_DELETIONS: Final = 1_000
"""Deleted objects that are kept."""

MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes of these, as JSON."""

KEPT_SECONDS: Final = 600.0
"""How long a deletion is tried again if something fails."""


class NoticedDeletion(NamedTuple):
    """An object that is gone.

    Attributes:
        resource: Where it was.
        object: The object as it was last.
        at: When the deletion was seen, in seconds since the epoch.
        size: Its bytes, as JSON.
    """

    resource: Resource
    object: Json
    at: float
    size: int

    @property
    def uid(self) -> str:
        """The uid of the object."""
        return str(value_at(self.object, ("metadata", "uid")))


@dataclass(slots=True)
class NoticedDeletions:
    """Keeps deletions until a pass has acted on them.

    Attributes:
        now: Returns the seconds since the epoch.
        watching: Whether a watch notices any.
        lost: How many since the last pass were not seen as they were, or had no room.
    """

    now: Callable[[], float]
    watching: bool = False
    lost: int = 0
    _kept: dict[str, dict[str, NoticedDeletion]] = field(default_factory=dict)
    _number: int = 0
    _bytes: int = 0

    def note(self, resource: Resource, obj: Json) -> None:
        """Keep a deleted object."""
        size = len(msgspec.json.encode(obj))
        gone = NoticedDeletion(resource, whole(resource, obj), self.now(), size)
        kept = self._kept.setdefault(name_of(gone.object).namespace, {})
        if gone.uid in kept:
            return
        kept[gone.uid] = gone
        self._number += 1
        self._bytes += size
        while self._number > MOST_DELETIONS or self._bytes > MOST_BYTES:
            by = self._bytes_of if self._bytes > MOST_BYTES else self._number_of
            fullest = max(self._kept, key=by)
            self._drop(fullest, next(iter(self._kept[fullest])))
            self.lost += 1

    def missed(self, namespace: str, uid: str) -> None:
        """Count an object that is gone, unless it was seen as it was last."""
        self.lost += uid not in self._kept.get(namespace, ())

    def pending(self) -> list[NoticedDeletion]:
        """Return the deletions that no pass has acted on, by namespace."""
        return [each for kept in self._kept.values() for each in kept.values()]

    def forget(self, gone: Iterable[NoticedDeletion], late: Collection[str]) -> None:
        """Forget deletions, but for recent ones with uids that are tried again."""
        for each in gone:
            if each.uid not in late or each.at < self.now() - KEPT_SECONDS:
                self._drop(name_of(each.object).namespace, each.uid)

    def _number_of(self, namespace: str) -> int:
        return len(self._kept[namespace])

    def _bytes_of(self, namespace: str) -> int:
        return sum(each.size for each in self._kept[namespace].values())

    def _drop(self, namespace: str, uid: str) -> None:
        kept = self._kept.get(namespace, {})
        gone = kept.pop(uid, None)
        if gone is not None:
            self._number -= 1
            self._bytes -= gone.size
        if not kept:
            self._kept.pop(namespace, None)


class DeletionReader:
    """Reads of a resource as another reader does, and notices what is deleted."""

    def __init__(self, reader: Lister, noticed: NoticedDeletions) -> None:
        self._reader = reader
        self._noticed = noticed

    async def page(
        self, resource: Resource, *, into: type[T], **options: Unpack[Paging]
    ) -> ListPage[T]:
        """Return a page of a list."""
        return await self._reader.page(resource, into=into, **options)

    async def watch(
        self,
        resource: Resource,
        *,
        into: type[T],
        resource_version: str,
        **selection: Unpack[Selection],
    ) -> AsyncGenerator[WatchEvent[T] | Bookmark, None]:
        """Iterate over changes, of which each deletion has the object as it was last."""
        watch = self._reader.watch(
            resource, into=dict, resource_version=resource_version, **selection
        )
        async with aclosing(watch) as events:
            async for event in events:
                if isinstance(event, Bookmark):
                    yield event
                    continue
                if event.type == "DELETED":
                    self._noticed.note(resource, event.object)
                yield WatchEvent(event.type, msgspec.convert(event.object, into))
