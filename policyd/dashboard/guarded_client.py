"""Reads as the page itself for a person who has no token, what the API server permits that person.

Both must have the right: the API server is asked about the person's, and refuses the page's own.
"""

from collections.abc import AsyncGenerator
from typing import Any, NoReturn, TypeVar, Unpack

from policyd.dashboard.access import ResourceAttributes, Rights, Session
from policyd.kube.client import Bookmark, Client, ListPage, Paging, Selection, WatchEvent
from policyd.kube.errors import ForbiddenError
from policyd.kube.resources import Resource

T = TypeVar("T")


class GuardedClient:
    """A client for one person, who was signed in by a proxy."""

    def __init__(self, own: Client, rights: Rights, session: Session) -> None:
        self._own = own
        self._rights = rights
        self._session = session

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
        await self._check("get", resource, namespace, name, subresource)
        return await self._own.get(
            resource, name, into=into, namespace=namespace, subresource=subresource
        )

    async def served(self, api_version: str) -> tuple[Resource, ...]:
        """Return the resources of a version: all who are authenticated may know them."""
        return await self._own.served(api_version)

    async def page(
        self, resource: Resource, *, into: type[T], **options: Unpack[Paging]
    ) -> ListPage[T]:
        """Return the first part of a collection, or the next after `continue_`."""
        await self._check("list", resource, options.get("namespace", ""))
        return await self._own.page(resource, into=into, **options)

    async def watch(
        self,
        resource: Resource,
        *,
        into: type[T],
        resource_version: str,
        **selection: Unpack[Selection],
    ) -> AsyncGenerator[WatchEvent[T] | Bookmark, None]:
        """Iterate over changes after `resource_version`."""
        await self._check("watch", resource, selection.get("namespace", ""))
        async for each in self._own.watch(
            resource, into=into, resource_version=resource_version, **selection
        ):
            yield each

    async def create(self, resource: Resource, *_: Any, **__: Any) -> NoReturn:  # noqa: ANN401
        """Refuse: nothing is tried for a user without a token."""
        self._refuse(resource)

    replace = patch = delete = create

    def _refuse(self, resource: Resource) -> NoReturn:
        raise ForbiddenError(
            f"{resource.plural} cannot be tried here without your token",
            hint="sign in with a token, or use the command line",
        )

    async def _check(
        self, verb: str, resource: Resource, namespace: str, name: str = "", subresource: str = ""
    ) -> None:
        plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
        asked = ResourceAttributes(verb, resource.group, plural, namespace, name)
        if not await self._rights.may(self._session, asked):
            within = f" in namespace {namespace}" if namespace else ""
            raise ForbiddenError(
                f"{self._session.identity.name} may not {verb} {plural}{within}",
                hint="an administrator has to grant that",
            )
