"""The client over HTTP: verbs become calls, answers become types."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Self, TypeVar, Unpack

from policyd.kube.calls import (
    create_call,
    delete_call,
    get_call,
    object_path,
    page_call,
    patch_call,
    replace_call,
    watch_call,
)
from policyd.kube.client import (
    Bookmark,
    DeleteOptions,
    ListPage,
    Paging,
    PatchOptions,
    Selection,
    WatchEvent,
    WriteOptions,
)
from policyd.kube.connection import ApiConnection
from policyd.kube.decoding import decode_event, decode_object, decode_page, split_lines
from policyd.kube.discovery import ResourceList, discovery_path, resources_of
from policyd.kube.pace import Pace
from policyd.kube.resources import Resource
from policyd.kube.transport import CountRequest, Limits, Transport

T = TypeVar("T")


class HttpClient:
    """Talks to an API server: `async with HttpClient(connection) as client`.

    Conflicts are the caller's: only the caller knows the base of its change.
    """

    def __init__(
        self,
        connection: ApiConnection,
        *,
        limits: Limits | None = None,
        pace: Pace | None = None,
        count: CountRequest | None = None,
    ) -> None:
        self._pace = pace or Pace()
        self._limits = limits or Limits()
        self._transport = Transport(connection, limits=self._limits, pace=self._pace, count=count)

    async def __aenter__(self) -> Self:
        await self._transport.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._transport.close()

    async def fetch(self, path: str, *, into: type[T], **query: str) -> T:
        """Return the document at a path that is not an object's, such as `/version` or `/apis`."""
        return decode_object(await self._transport.send(get_call(path, query)), into)

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        into: type[T],
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """Return one object."""
        return await self.fetch(object_path(resource, namespace, name, subresource), into=into)

    async def served(self, api_version: str) -> tuple[Resource, ...]:
        """Return the resources of a version, as its discovery document has them."""
        path = discovery_path(api_version)
        return resources_of(await self.fetch(path, into=ResourceList), api_version)

    async def page(
        self, resource: Resource, *, into: type[T], **options: Unpack[Paging]
    ) -> ListPage[T]:
        """Return the first part of a collection, or the next after `continue_`."""
        return decode_page(await self._transport.send(page_call(resource, options)), into)

    async def watch(
        self,
        resource: Resource,
        *,
        into: type[T],
        resource_version: str,
        **selection: Unpack[Selection],
    ) -> AsyncGenerator[WatchEvent[T] | Bookmark, None]:
        """Iterate over changes after `resource_version`."""
        shortest, longest = self._limits.watch_seconds
        call = watch_call(
            resource,
            selection,
            resource_version=resource_version,
            seconds=int(shortest + (longest - shortest) * self._pace.jitter()),
        )
        async with (
            aclosing(self._transport.stream(call)) as chunks,
            aclosing(split_lines(chunks, most_bytes=self._limits.answer_bytes)) as lines,
        ):
            async for line in lines:
                yield decode_event(line, into)

    async def create(
        self, resource: Resource, body: object, *, into: type[T], **options: Unpack[WriteOptions]
    ) -> T:
        """Store a new object, and return it as stored."""
        answer = await self._transport.send(create_call(resource, body, options))
        return decode_object(answer, into)

    async def replace(
        self, resource: Resource, body: object, *, into: type[T], **options: Unpack[WriteOptions]
    ) -> T:
        """Store an object in the place of the one of its name, and return it."""
        answer = await self._transport.send(replace_call(resource, body, options))
        return decode_object(answer, into)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: object,
        *,
        into: type[T],
        **options: Unpack[PatchOptions],
    ) -> T:
        """Change an object, and return it as stored."""
        answer = await self._transport.send(patch_call(resource, name, patch, options))
        return decode_object(answer, into)

    async def delete(self, resource: Resource, name: str, **options: Unpack[DeleteOptions]) -> None:
        """Delete an object, or have it marked for deletion while finalizers or grace hold it."""
        await self._transport.send(delete_call(resource, name, options))
