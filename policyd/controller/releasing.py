"""Takes the queue's finalizers off what it has left behind, so that it can be deleted."""

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from policyd.api.kueue.names import MANAGED, RESOURCE_IN_USE_FINALIZER
from policyd.controller.patches import without_finalizer
from policyd.kube.client import Client, PartialObject
from policyd.kube.errors import ConflictError, NotFoundError
from policyd.kube.pages import pages
from policyd.kube.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    PODS,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOADS,
    Resource,
)

QUEUES: Final = (WORKLOADS, CLUSTER_QUEUES, RESOURCE_FLAVORS, TOPOLOGIES, ADMISSION_CHECKS)
"""Kinds whose objects stay as long as they are in use, by the controller's word."""


async def release(
    client: Client, *, namespace: str = "", everything: bool = False, dry_run: bool = False
) -> AsyncIterator[str]:
    """Take finalizers off, and yield `resource/namespace/name` of what has lost one.

    Args:
        client: The API server.
        namespace: Whose pods and workloads; empty for those of all.
        everything: Whether also those of workloads, queues and what these are made of are taken.
        dry_run: Whether nothing is written.

    Raises:
        ApiError: If the API server does not answer, or refuses.
    """
    kinds = [(PODS, MANAGED)]
    if everything:
        kinds += [(kind, RESOURCE_IN_USE_FINALIZER) for kind in QUEUES]
    for resource, finalizer in kinds:
        if namespace and not resource.namespaced:
            continue
        with suppress(NotFoundError):  # the kind is not served: there is nothing of it
            listed = pages(client, resource, into=PartialObject, namespace=namespace)
            async for page in listed:
                for found in page.items:
                    held = finalizer in found.metadata.finalizers
                    if held and (dry_run or await _let_go(client, resource, found, finalizer)):
                        yield f"{resource.plural}/{found.metadata.key}"


async def _let_go(client: Client, resource: Resource, found: PartialObject, finalizer: str) -> bool:
    """Take a finalizer off an object, however often that changes; tell whether it was there."""
    name, namespace = found.metadata.name, found.metadata.namespace
    while finalizer in found.metadata.finalizers:
        patch = without_finalizer(found.metadata, finalizer)
        try:
            await client.patch(resource, name, patch, namespace=namespace, into=PartialObject)
        except NotFoundError:
            return False
        except ConflictError:
            with suppress(NotFoundError):
                found = await client.get(resource, name, namespace=namespace, into=PartialObject)
                continue
            return False
        return True
    return False
