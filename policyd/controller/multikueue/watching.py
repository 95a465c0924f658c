"""Watches on another cluster: what changes there has the workload here looked at again."""

from collections.abc import Callable
from contextlib import aclosing
from typing import NoReturn

import structlog

from policyd.api.meta import ObjectMeta
from policyd.jobs.base import prebuilt_name
from policyd.kube.client import Bookmark, Client, PartialObject
from policyd.kube.errors import ApiError, GoneError, UnauthorizedError, UnreachableError
from policyd.kube.pace import Pace
from policyd.kube.pages import pages
from policyd.kube.resources import WORKLOADS, Resource
from policyd.multikueue.settings import ORIGIN

log = structlog.get_logger()

PROBE_SECONDS = 10.0
"""Between looks whether a cluster still answers: a watch does not notice a cable that is cut."""
PROBE_TIMEOUT_SECONDS = 20.0
"""How long it may take to answer."""

Notify = Callable[[str, str], None]
"""Called with the namespace and the name of a workload."""


async def watch_remote(
    client: Client, resource: Resource, origin: str, pace: Pace, notify: Notify
) -> None:
    """Tell of each change of the objects of one kind that this manager made.

    Raises:
        ApiError: If the cluster is out of reach.
    """
    selector = f"{ORIGIN}={origin}"
    while True:
        version = ""
        async for page in pages(client, resource, into=PartialObject, label_selector=selector):
            version = page.resource_version or version
            for obj in page.items:
                _report(resource, obj.metadata, notify)
        try:
            while True:
                version = await _watch(client, resource, version, selector, notify)
                await pace.sleep(0)
        except GoneError:
            continue


async def _watch(
    client: Client, resource: Resource, version: str, selector: str, notify: Notify
) -> str:
    """Watch until the server ends the watch; return the last version that was seen."""
    stream = client.watch(
        resource, into=PartialObject, resource_version=version, label_selector=selector
    )
    async with aclosing(stream) as events:
        async for event in events:
            if isinstance(event, Bookmark):
                version = event.resource_version
                continue
            metadata = event.object.metadata
            version = metadata.resource_version or version
            _report(resource, metadata, notify)
    return version


def _report(resource: Resource, metadata: ObjectMeta, notify: Notify) -> None:
    name = metadata.name if resource == WORKLOADS else prebuilt_name(metadata)
    if name:
        notify(metadata.namespace, name)


async def probe(client: Client, pace: Pace) -> NoReturn:
    """Ask a cluster now and then whether it is there.

    Raises:
        ApiError: If it does not answer.
    """
    while True:
        await pace.sleep(PROBE_SECONDS)
        try:
            await pace.within(PROBE_TIMEOUT_SECONDS, client.served(WORKLOADS.api_version))
        except TimeoutError as error:
            raise UnreachableError("the cluster does not answer") from error
        except (UnreachableError, UnauthorizedError):
            raise
        except ApiError as error:
            log.debug("cluster_probed", error=str(error))  # it answers, and that was the question
