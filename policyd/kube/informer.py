"""A collection of objects, kept equal to the API server's, with a callback for changes.

Theory of operation. A list gives the state at one version; a watch from that version gives every
change after it. A watch that ends, for any reason, is resumed from the last version seen, so
nothing is lost. Only when the server no longer knows that version (410), or sends data that cannot
be read, is the collection listed again; objects in the store that the list lacks were deleted
meanwhile, and are reported as deletions.

Retries wait longer after each failure, with random jitter. The waits begin anew when an event
arrives or a watch has lived a while: a server that accepts watches and drops them is a failure too.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from types import MappingProxyType
from typing import Generic, NoReturn, Protocol, TypeVar, Unpack

import msgspec
import structlog

from policyd.kube.calls import PAGE_LIMIT
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.client import Bookmark, Lister, ListPage, Paging, Selection, WatchEvent
from policyd.kube.decoding import decode_object
from policyd.kube.errors import ApiError, GoneError, UndecodableError
from policyd.kube.pace import Backoff, Pace
from policyd.kube.resources import Resource

log = structlog.get_logger()

FIRST_WAIT_SECONDS = 0.5
LONGEST_WAIT_SECONDS = 30.0
AT_ONCE = 50
"""Objects of a page that are taken in before others have their turn."""
SHORT_WATCH_SECONDS = 5.0
"""A watch that lives no longer than this and brings nothing counts as a failure."""


class Metadata(Protocol):
    """The metadata that an informer needs; ObjectMeta has it, and a smaller Struct may."""

    @property
    def name(self) -> str:
        """The name."""
        ...

    @property
    def namespace(self) -> str:
        """The namespace; empty for cluster objects."""
        ...

    @property
    def uid(self) -> str:
        """The identifier that differs from that of an earlier object of the same name."""
        ...

    @property
    def resource_version(self) -> str:
        """The version; opaque."""
        ...


class Identified(Protocol):
    """An object with metadata."""

    @property
    def metadata(self) -> Metadata:
        """The metadata that names it."""
        ...


T = TypeVar("T", bound=Identified)


def key_of(obj: Identified) -> str:
    """Return `namespace/name`, or the name alone for cluster objects."""
    metadata = obj.metadata
    return f"{metadata.namespace}/{metadata.name}" if metadata.namespace else metadata.name


def ignore(_change: object) -> None:
    """Do nothing with a change: for informers that are only looked into."""


class Informer(Generic[T]):
    """Keeps the objects of one resource. `run` does the work; the rest can be read at any time.

    `on_change` is called for every change, after the store has it. Between calls for the same
    object only those without a connection are left out; then the result is reported
    once, as one change. An object that was deleted and recreated meanwhile is reported as both.

    `into` should be a Struct with `gc=False` that names only the fields that are read; `trim` may
    make less still of an object before it is kept. `page_limit` says how many objects are read at a
    time, where a page of many could be too large for memory.
    """

    def __init__(  # noqa: PLR0913 - the resource, the parts to keep, a callback
        self,
        reader: Lister,
        resource: Resource,
        *,
        into: type[T],
        on_change: Callable[[Change[T]], None] = ignore,
        trim: Callable[[T], T] | None = None,
        page_limit: int = PAGE_LIMIT,
        pace: Pace | None = None,
        **selection: Unpack[Selection],
    ) -> None:
        self._reader = reader
        self._resource = resource
        self._into = into
        self._on_change = on_change
        self._trim = trim
        self._page_limit = page_limit
        self._pace = pace or Pace()
        self._selection = selection
        self._objects: dict[str, T] = {}
        self._invalid: dict[str, str] = {}
        self._version = ""
        self._whole_lists = False
        self._backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, jitter=self._pace.jitter)
        self.synced = asyncio.Event()
        """Set once the first list is complete, and for ever."""
        self.last_contact: float | None = None
        """When the server last answered or sent something, by the monotonic clock."""
        self.last_error: ApiError | None = None
        """Why the informer waits at present; None while all is well."""

    @property
    def store(self) -> Mapping[str, T]:
        """The objects by `namespace/name`, or by name alone: a live view."""
        return MappingProxyType(self._objects)

    def has_reached(self, version: int) -> bool:
        """Tell whether all that was written up to a version of this resource is known."""
        if not self._version:
            return False  # all is listed anew
        return not self._version.isdecimal() or int(self._version) >= version

    @property
    def version(self) -> int:
        """Up to which version all is known; 0 if that is not known."""
        return int(self._version) if self._version.isdecimal() else 0

    @property
    def invalid(self) -> Mapping[str, str]:
        """The errors of objects that cannot be read, by key. The store is without them."""
        return MappingProxyType(self._invalid)

    async def run(self) -> NoReturn:
        """List, watch, and go on until cancelled.

        An exception of `on_change` ends it.
        """
        while True:
            try:
                if not self._version:
                    await self._list()
                wait = await self._watch()
            except ApiError as error:
                wait = self._wait_after(error)
            if wait:
                await self._pace.sleep(wait)

    def _wait_after(self, error: ApiError) -> float:
        if isinstance(error, GoneError):
            # A list that took longer than the server keeps its pages is not cut into pages again.
            self._whole_lists = not self._version
            self._version = ""
        self.last_error = error
        wait = max(self._backoff.next(), error.retry_after or 0.0)
        log.warning(
            "informer_backoff", resource=self._resource.plural, seconds=wait, error=str(error)
        )
        return wait

    async def _list(self) -> None:
        seen: set[str] = set()
        self._invalid.clear()
        asked = asyncio.ensure_future(self._page(""))
        try:
            while True:
                page = await asked
                self._touch()
                if page.continue_:  # the server works on it while this one is taken in
                    asked = asyncio.ensure_future(self._page(page.continue_))
                await self._take_in(page, seen)
                if not page.continue_:
                    break
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
        for key in [key for key in self._objects if key not in seen]:
            self._drop(key)
        self._version = page.resource_version
        self._whole_lists = False
        self.synced.set()

    async def _take_in(self, page: ListPage[T], seen: set[str]) -> None:
        for number, obj in enumerate(page.items):
            if number % AT_ONCE == 0:
                await asyncio.sleep(0)
            seen.add(key_of(obj))
            self._put(obj)

    async def _page(self, continue_: str) -> ListPage[T]:
        paging = Paging(
            limit=0 if self._whole_lists else self._page_limit,
            continue_=continue_,
            **self._selection,
        )
        try:
            return await self._reader.page(self._resource, into=self._into, **paging)
        except UndecodableError:
            page = await self._reader.page(self._resource, into=msgspec.Raw, **paging)
            return self._readable(page)

    def _readable(self, page: ListPage[msgspec.Raw]) -> ListPage[T]:
        items = []
        for raw in page.items:
            try:
                items.append(decode_object(raw, self._into))
            except UndecodableError as error:
                self._reject(error)
        return ListPage(tuple(items), page.resource_version, page.continue_)

    async def _watch(self) -> float:
        """Watch until the server ends it; return how long to wait before the next."""
        began = self._pace.clock.monotonic()
        watch = self._reader.watch(
            self._resource,
            into=self._into,
            resource_version=self._version,
            **self._selection,
        )
        try:
            async with aclosing(watch) as events:
                async for event in events:
                    self._take(event)
        except UndecodableError as error:
            if error.resource_version in {"", self._version}:
                self._version = ""
                raise
            self._reject(error)
            self._version = error.resource_version
            return 0.0
        if self._pace.clock.monotonic() - began < SHORT_WATCH_SECONDS:
            return self._backoff.next()
        self._touch()
        self._backoff.reset()
        return 0.0

    def _take(self, event: WatchEvent[T] | Bookmark) -> None:
        self._touch()
        if isinstance(event, Bookmark):
            self._version = event.resource_version
            return
        self._backoff.reset()
        obj = event.object
        if event.type == "DELETED":
            self._drop(key_of(obj))
        else:
            self._put(obj)
        self._version = obj.metadata.resource_version

    def _touch(self) -> None:
        self.last_contact = self._pace.clock.monotonic()
        self.last_error = None

    def _put(self, obj: T) -> None:
        key = key_of(obj)
        self._invalid.pop(key, None)
        old = self._objects.get(key)
        if old is not None and old.metadata.uid != obj.metadata.uid:
            self._drop(key)
            old = None
        if old is not None and old.metadata.resource_version == obj.metadata.resource_version:
            return
        obj = obj if self._trim is None else self._trimmed(self._trim, obj)
        self._objects[key] = obj
        self._on_change(Added(obj) if old is None else Modified(old, obj))

    def _trimmed(self, trim: Callable[[T], T], obj: T) -> T:
        try:
            return trim(obj)
        except Exception:
            # An unforeseen error about one object must not stop the mirror of all the others.
            log.exception("trim_error", resource=self._resource.plural, object=key_of(obj))
            return obj

    def _drop(self, key: str) -> None:
        self._invalid.pop(key, None)
        old = self._objects.pop(key, None)
        if old is not None:
            self._on_change(Deleted(old))

    def _reject(self, error: UndecodableError) -> None:
        """Treat an unreadable object as deleted: its last version is no longer true."""
        self._drop(error.key)
        if not error.deleted:
            self._invalid[error.key] = str(error)
            log.warning("object_unreadable", resource=self._resource.plural, error=str(error))
