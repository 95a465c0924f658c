"""Discovery: the kinds that the API server serves, and the names of their resources."""

from collections.abc import Sequence
from typing import Final
from urllib.parse import quote

import structlog

from policyd.api.meta import Wire
from policyd.kube.client import PartialObject, Reader
from policyd.kube.errors import ApiError, GoneError, InternalError, NotFoundError, ThrottledError
from policyd.kube.pace import Pace
from policyd.kube.resources import Resource

log = structlog.get_logger()

KIND_SECONDS: Final = 10.0
"""Between looks for a kind that is not served: many clusters never have it."""
OBJECT_SECONDS: Final = 2.0
"""Between looks for a first object of kinds that are served."""


class ServedResource(Wire, frozen=True):
    """One line of a discovery document."""

    name: str
    kind: str
    namespaced: bool = False


class ResourceList(Wire, frozen=True):
    """The discovery document of one version."""

    resources: tuple[ServedResource, ...] = ()


def discovery_path(api_version: str) -> str:
    """Return the path of the discovery document of `group/version`, for any text."""
    root = "apis" if "/" in api_version else "api"
    # Dots alone would lead elsewhere; a name that is empty is none that is served.
    parts = (quote(part, safe="") for part in api_version.split("/"))
    return "/".join(["", root, *(part if part.strip(".") else "-" for part in parts)])


def resources_of(found: ResourceList, api_version: str) -> tuple[Resource, ...]:
    """Return the resources in a discovery document, without subresources."""
    group, _, version = api_version.rpartition("/")
    return tuple(
        Resource(group, version, line.name, line.kind, namespaced=line.namespaced)
        for line in found.resources
        if "/" not in line.name
    )


async def served_resources(reader: Reader, api_version: str) -> tuple[Resource, ...]:
    """Return the resources of `group/version`; none if the API server does not serve it.

    Raises:
        ApiError: If it cannot be asked.
    """
    try:
        return await reader.served(api_version)
    except NotFoundError:
        return ()


async def is_served(reader: Reader, resource: Resource, namespace: str = "") -> bool:
    """Tell whether the API server has begun to serve a resource, so that it can be watched.

    Discovery lists a resource a moment earlier. A server that is in trouble may serve it later.
    An account that may list one namespace asks about that one.

    Raises:
        ApiError: If it cannot be asked, or does not let us list the resource.
    """
    try:
        await reader.page(resource, into=PartialObject, limit=1, namespace=namespace)
    except (GoneError, InternalError, NotFoundError, ThrottledError):
        return False  # 429: a kind that was created a moment ago has no storage yet
    return True


async def wait_until_served(
    reader: Reader, resource: Resource, pace: Pace, namespace: str = ""
) -> None:
    """Wait for a kind, and meanwhile for an API server that cannot be asked."""
    while True:
        try:
            if await is_served(reader, resource, namespace):
                return
        except ApiError as error:
            log.warning("kind_unknown", resource=resource.plural, error=str(error))
        await pace.sleep(KIND_SECONDS)


async def wait_until_some(reader: Reader, resources: Sequence[Resource], pace: Pace) -> None:
    """Wait for a first object of one of several kinds, the first of which is waited for."""
    await wait_until_served(reader, resources[0], pace)
    while True:
        for resource in resources:
            try:
                page = await reader.page(resource, into=PartialObject, limit=1)
            except ApiError:
                continue  # it is not served, or another time
            if page.items:
                return
        await pace.sleep(OBJECT_SECONDS)
