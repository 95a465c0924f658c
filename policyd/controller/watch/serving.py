"""Kinds that the API server may not serve, or not yet."""

from typing import Any

import structlog

from policyd.controller.watch.mirror import Mirror
from policyd.kube.client import Client, PartialObject
from policyd.kube.errors import ApiError, GoneError, InternalError, NotFoundError, ThrottledError
from policyd.kube.pace import Pace
from policyd.kube.resources import Resource

log = structlog.get_logger()

KIND_SECONDS = 10.0
"""Between looks for a kind that is not served: many clusters never have it."""


async def is_served(client: Client, resource: Resource) -> bool:
    """Tell whether the API server knows a resource, and has begun to serve it.

    A server that is in trouble itself may serve it later.

    Raises:
        ApiError: If it cannot be asked, or does not let us list it.
    """
    try:
        await client.page(resource, into=PartialObject, limit=1)
    except (GoneError, InternalError, NotFoundError, ThrottledError):
        return False  # 429: a kind that was created a moment ago has no storage yet
    return True


async def watch_later(client: Client, mirror: Mirror[Any], pace: Pace) -> None:
    """Watch a kind once it is served."""
    await wait_until_served(client, mirror.resource, pace)
    await mirror.informer.run()


async def wait_until_served(client: Client, resource: Resource, pace: Pace) -> None:
    """Wait for a kind, and meanwhile for an API server that cannot be asked."""
    while True:
        try:
            if await is_served(client, resource):
                return
        except ApiError as error:
            log.warning("kind_unknown", resource=resource.plural, error=str(error))
        await pace.sleep(KIND_SECONDS)
