"""Collections that are read once, page by page; an informer keeps one up to date instead."""

from collections.abc import AsyncIterator
from typing import TypeVar, Unpack

from policyd.api.meta import Json
from policyd.kube.client import Lister, ListPage, Paging
from policyd.kube.resources import Resource

T = TypeVar("T")


async def pages(
    lister: Lister, resource: Resource, *, into: type[T], **options: Unpack[Paging]
) -> AsyncIterator[ListPage[T]]:
    """Iterate over the pages of a collection.

    Raises:
        ApiError: If the server does not answer.
    """
    while True:
        page = await lister.page(resource, into=into, **options)
        yield page
        if not page.continue_:
            return
        options["continue_"] = page.continue_


def whole(resource: Resource, item: Json) -> Json:
    """Return an item of a list with its kind, and without managed fields."""
    metadata = {key: part for key, part in item["metadata"].items() if key != "managedFields"}
    named = {"apiVersion": resource.api_version, "kind": resource.kind}
    return {**named, **item, "metadata": metadata}
