"""The deletions that a watch has seen, for policies that generate when their trigger is deleted.

A pass reads what exists, so what is gone has to be kept until a pass has acted on it. It is kept in
memory, a bounded number of objects for a bounded time: where there are too many, the namespace that
has most loses its oldest.

What lasts is how far the deletions of each resource have been acted on, as a version of it. A watch
begins there, in the next process as well, and the API server sends the deletions since then again,
as long as it has their history.
"""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar, Unpack

import msgspec

from policyd.api.meta import Json, rfc3339
from policyd.engine.background.record import name_of
from policyd.engine.objects.workloads import value_at
from policyd.kube.client import Bookmark, Lister, ListPage, Paging, Selection, WatchEvent
from policyd.kube.errors import GoneError
from policyd.kube.pages import whole
from policyd.kube.resources import Resource

T = TypeVar("T")

MOST_DELETIONS: Final = 1_000
"""Deleted objects that are kept."""

MOST_BYTES: Final = 32 * 1024 * 1024
"""Bytes of these, as JSON."""

KEPT_SECONDS: Final = 600.0
"""How long a deletion is tried again if something fails."""


class SeenUpTo(NamedTuple):
    """How far the deletions of a resource have been seen.

    Attributes:
        version: A version of the resource: a watch from there sends the later ones.
        at: When this was, in seconds since the epoch.
    """

    version: str
    at: float

    def is_before(self, version: str) -> bool:
        """Tell whether a version is a later one, as far as they can be compared."""
        return _is_before(self.version, version)


def _is_before(version: str, later: str) -> bool:
    return version.isdecimal() and later.isdecimal() and int(version) < int(later)


def _named(resource: Resource) -> str:
    return f"{resource.api_version}/{resource.plural}"


class NoticedDeletion(NamedTuple):
    """An object that is gone.

    Attributes:
        resource: Where it was.
        object: The object as it was last.
        at: When it was deleted at the earliest, in seconds since the epoch.
        size: Its bytes, as JSON.
        before: How far the deletions before it had been seen.
    """

    resource: Resource
    object: Json
    at: float
    size: int
    before: SeenUpTo | None = None

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
        lost: How many since the last pass had no room.
        unseen: Which since the last pass were not seen, in words.
    """

    now: Callable[[], float]
    watching: bool = False
    lost: int = 0
    unseen: list[str] = field(default_factory=list)
    _seen: dict[str, SeenUpTo] = field(default_factory=dict)
    """How far deletions have been seen, by resource."""
    _kept: dict[str, dict[str, NoticedDeletion]] = field(default_factory=dict)
    _number: int = 0
    _bytes: int = 0

    def note(self, resource: Resource, obj: Json, *, at: float) -> None:
        """Keep an object that was deleted at a time, or later."""
        size = len(msgspec.json.encode(obj))
        before = self._seen.get(_named(resource))
        gone = NoticedDeletion(resource, whole(resource, obj), at, size, before)
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

    def see(self, resource: Resource, seen: SeenUpTo) -> None:
        """Take note that all deletions up to a version have been noted."""
        self._seen[_named(resource)] = seen

    def lose(self, resource: Resource, since: SeenUpTo) -> None:
        """Take note that deletions may never be seen."""
        which = f"{resource.plural} deleted after {rfc3339(since.at)}"
        self.unseen.append(f"{which}: the API server has no history of them")

    def since(self, resource: Resource, version: str) -> SeenUpTo:
        """Return from where a watch has to begin if the objects are known as of a version."""
        seen = self._seen.get(_named(resource))
        if seen is None or not seen.is_before(version):
            return SeenUpTo(version, self.now())
        return seen

    def resume(self, acted_on: Mapping[str, SeenUpTo]) -> None:
        """Go on where another process was, as far as this one has seen nothing."""
        self._seen = {**acted_on, **self._seen}

    def acted_on(self, resources: Iterable[Resource]) -> dict[str, SeenUpTo]:
        """Return how far passes have acted on the deletions of some resources; forget others."""
        names = {_named(each) for each in resources}
        self._seen = {name: seen for name, seen in self._seen.items() if name in names}
        found = dict(self._seen)
        for each in self.pending():
            name = _named(each.resource)
            if name in found and each.before and each.before.is_before(found[name].version):
                found[name] = each.before
        return found

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
        """Iterate over changes, of which each deletion has the object as it was last.

        Deletions that were not seen before `resource_version` are noticed, too.
        """
        listed = SeenUpTo(resource_version, self._noticed.now())
        for start in (self._noticed.since(resource, resource_version), listed):
            try:
                async with aclosing(self._noticing(resource, start, listed, selection)) as events:
                    async for event in events:
                        if isinstance(event, Bookmark):
                            yield event
                        else:
                            yield WatchEvent(event.type, msgspec.convert(event.object, into))
            except GoneError:
                if not start.is_before(resource_version):
                    raise
                self._noticed.lose(resource, start)
            else:
                return

    async def _noticing(
        self, resource: Resource, start: SeenUpTo, listed: SeenUpTo, selection: Selection
    ) -> AsyncGenerator[WatchEvent[dict[str, Json]] | Bookmark, None]:
        """Iterate over the changes after what is listed; notice the deletions since the start."""
        self._noticed.see(resource, start)
        watch = self._reader.watch(resource, into=dict, resource_version=start.version, **selection)
        async with aclosing(watch) as events:
            async for event in events:
                seen = SeenUpTo(_version_of(event), self._noticed.now())
                is_new = start == listed or listed.is_before(seen.version)
                if not isinstance(event, Bookmark) and event.type == "DELETED":
                    at = seen.at if is_new else start.at
                    self._noticed.note(resource, event.object, at=at)
                self._noticed.see(resource, seen)
                if is_new:
                    yield event


def _version_of(event: WatchEvent[dict[str, Json]] | Bookmark) -> str:
    if isinstance(event, Bookmark):
        return event.resource_version
    return str(event.object["metadata"]["resourceVersion"])
