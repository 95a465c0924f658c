"""Objects of the API server, whole and of any kind, watched so that they can be looked up at once.

A look-up does not wait: it returns the object, or why it is not known (yet).
"""

import asyncio
import operator
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from typing import Any, Unpack

import msgspec

from policyd.api.meta import Json, ObjectMeta
from policyd.kube.changes import Change, Deleted
from policyd.kube.client import Bookmark, ListPage, Paging, Reader, Selection, WatchEvent
from policyd.kube.errors import ApiError, NotFoundError
from policyd.kube.informer import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, Informer
from policyd.kube.namespace_limits import NamespaceLimits
from policyd.kube.pace import Backoff, Pace
from policyd.kube.resources import Resource


class WholeObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object of any kind, whole."""

    metadata: ObjectMeta
    value: Json


class WholeObjects:
    """Reads a resource's objects with all fields, except managed fields.

    Lists name neither version nor kind of their items, so both are put there.
    """

    def __init__(self, reader: Reader, resource: Resource) -> None:
        self._reader = reader
        self._named = {"apiVersion": resource.api_version, "kind": resource.kind}

    async def page(
        self,
        resource: Resource,
        *,
        into: type[Any],  # noqa: ARG002 - always a WholeObject
        **options: Unpack[Paging],
    ) -> ListPage[Any]:
        """Return a part of the objects."""
        page = await self._reader.page(resource, into=dict, **options)
        items = tuple(self._whole(item) for item in page.items)
        return ListPage(items, page.resource_version, page.continue_)

    async def watch(
        self,
        resource: Resource,
        *,
        into: type[Any],  # noqa: ARG002 - always a WholeObject
        resource_version: str,
        **selection: Unpack[Selection],
    ) -> AsyncGenerator[WatchEvent[Any] | Bookmark, None]:
        """Iterate over the changes."""
        events = self._reader.watch(
            resource, into=dict, resource_version=resource_version, **selection
        )
        async for event in events:
            if isinstance(event, Bookmark):
                yield event
            else:
                yield WatchEvent(event.type, self._whole(event.object))

    def _whole(self, obj: Json) -> WholeObject:
        metadata = {key: given for key, given in obj["metadata"].items() if key != "managedFields"}
        value = {**self._named, **obj, "metadata": metadata}
        return WholeObject(metadata=msgspec.convert(metadata, ObjectMeta), value=value)


_name = operator.itemgetter(0)


class Watch:
    """The objects of one kind, by namespace and name."""

    def __init__(  # noqa: PLR0913 - the selection, and its limits
        self,
        reader: Reader,
        api_version: str,
        is_it: Callable[[Resource], bool],
        *,
        resource: Resource | None = None,
        limits: NamespaceLimits | None = None,
        pace: Pace,
        **selection: Unpack[Selection],
    ) -> None:
        """Begin with none.

        Args:
            reader: The API server.
            api_version: Group and version.
            is_it: Tells which resource of that version is meant.
            resource: That resource, if it is known without asking.
            limits: Of the objects in memory; none if left out.
            pace: Time.
            selection: Which of its objects are meant; all if left out.
        """
        self._reader = reader
        self._api_version = api_version
        self._is_it = is_it
        self._pace = pace
        self._selection = selection
        self._informer: Informer[WholeObject] | None = None
        self._error: ApiError | None = None
        self._objects: dict[str, dict[str, Json]] = {}
        self._limits = limits
        self.resource = resource
        """Where the objects are; None while that is not known."""
        self.complete = asyncio.Event()
        """Set once all objects are known, for the first time."""

    @property
    def trouble(self) -> str | None:
        """Why the objects are not known; None if they are."""
        error = self._informer.last_error if self._informer else self._error
        if self.complete.is_set() and not isinstance(error, NotFoundError):
            return None
        return "not listed yet" if error is None else str(error)

    def of(self, namespace: str) -> Mapping[str, Json]:
        """Return the objects of a namespace, by name."""
        return self._objects.get(namespace, {})

    def reason_not_kept(self, namespace: str, name: str | None = None) -> str:
        """Say why an object of a namespace, or any of them, is not kept; nothing if it is."""
        left_out = self._limits and self._limits.left_out(namespace, name)
        if self._limits is None or left_out is None:
            return ""
        kind = "objects" if self.resource is None else self.resource.kind
        return (
            f"`{left_out}` is left out, as `{namespace}` has more {kind} than are kept"
            f" ({self._limits.bounds}): have less there, and write `{left_out}` again"
        )

    def all(self) -> Iterator[Json]:
        """Yield the objects of all namespaces, ordered by namespace and name."""
        for _, within in sorted(self._objects.items(), key=_name):
            yield from (obj for _, obj in sorted(within.items(), key=_name))

    async def run(self) -> None:
        """Find the kind, and watch its objects."""
        if self.resource is None:
            self.resource = await self._found()
        self._informer = informer = Informer(
            WholeObjects(self._reader, self.resource),
            self.resource,
            into=WholeObject,
            on_change=self._take,
            trim=self._kept,
            pace=self._pace,
            **self._selection,
        )
        running = asyncio.ensure_future(informer.run())
        try:
            await informer.synced.wait()
            self.complete.set()
            await running
        finally:
            running.cancel()

    async def _found(self) -> Resource:
        backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, jitter=self._pace.jitter)
        while True:
            try:
                for resource in await self._reader.served(self._api_version):
                    if self._is_it(resource):
                        return resource
                self._error = NotFoundError("no such kind is served")
            except ApiError as error:
                self._error = error
            await self._pace.sleep(backoff.next())

    def _take(self, change: Change[WholeObject]) -> None:
        metadata, value = change.object.metadata, change.object.value
        within = self._objects.setdefault(metadata.namespace, {})
        gone = isinstance(change, Deleted)
        if gone and self._limits is not None:
            self._limits.drop(metadata.namespace, metadata.name)
        if gone or value is None:
            within.pop(metadata.name, None)
        else:
            within[metadata.name] = value

    def _kept(self, obj: WholeObject) -> WholeObject:
        """Return an object as it is kept: its name alone if it is beyond the limits."""
        if self._limits is None:
            return obj
        metadata, size = obj.metadata, len(msgspec.json.encode(obj.value))
        if self._limits.put(metadata.namespace, metadata.name, size):
            return obj
        named = ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            resource_version=metadata.resource_version,
        )
        return WholeObject(metadata=named, value=None)
