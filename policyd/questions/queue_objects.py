"""The objects that queues decide by, read from a cluster with the rights of the user."""

from collections.abc import Callable, Iterable
from typing import Final

from policyd.api.meta import Json
from policyd.engine.objects.workloads import value_at
from policyd.kube import resources as r
from policyd.kube.client import Reader
from policyd.kube.errors import ApiError, ForbiddenError, NotFoundError
from policyd.kube.pages import pages, whole
from policyd.kube.resources import (
    NAMESPACES,
    PRIORITY_CLASSES,
    WORKLOAD_PRIORITY_CLASSES,
    Resource,
)
from policyd.questions.snapshots import NoSnapshotsError, configuration
from policyd.snapshot.reading import SnapshotError

_QUEUES = (
    *(r.RESOURCE_FLAVORS, r.COHORTS, r.CLUSTER_QUEUES, r.LOCAL_QUEUES),
    *(r.ADMISSION_CHECKS, r.WORKLOADS),
)
_PLACES = (r.TOPOLOGIES, r.NODES, r.PODS)
"""Only for flavors with a topology: what the rest is decided by has no nodes."""

_COUNTED_BY = (
    *(r.DEVICE_CLASSES, r.RESOURCE_CLAIM_TEMPLATES),
    *(r.RESOURCE_CLAIMS, r.RESOURCE_SLICES),
)
"""Only where a device class is mapped to a resource."""

_USEFUL: Final = {
    PRIORITY_CLASSES: "jobs that are submitted cannot name one",
    WORKLOAD_PRIORITY_CLASSES: "jobs that are submitted cannot name one",
    NAMESPACES: "namespace selectors of ClusterQueues are not checked",
}
"""What is missing without them."""

_WITHOUT_CONFIGURATION: Final = (
    "the controller's Configuration (fair sharing, order, feature gates) is not read, and its"
    " defaults are used"
)


async def queue_objects(
    reader: Reader, missing: Callable[[str], None], *, nodes: bool = False
) -> list[dict[str, Json]]:
    """Return the queues, flavors, workloads and, where topologies place pods, nodes and pods.

    Args:
        reader: The API server.
        nodes: Whether the nodes are needed in any case.
        missing: Called with a sentence for each kind that is useful and cannot be listed.

    Raises:
        ForbiddenError: If the user may not list what decisions depend on.
        ApiError: If the API server does not answer.
    """
    found = await scenario_of(reader, nodes=nodes)
    for resource, without in _USEFUL.items():
        try:
            found += await listed_if_served(reader, resource)
        except ForbiddenError as error:
            missing(f"{error}: {without}")
    return found


CONFIG_OPTION: Final = "; --config names its file"
"""What to do about that, where a command has the option."""


async def configuration_of(
    reader: Reader, missing: Callable[[str], None], hint: str = ""
) -> list[Json]:
    """Return the Configuration by which the queues decide, as the controller tells it.

    Args:
        reader: The API server.
        missing: Called with a sentence if the controller does not tell.
        hint: What to do about that.
    """
    try:
        return [await configuration(reader)]
    except (ApiError, NoSnapshotsError, SnapshotError) as error:
        missing(f"{error}: {_WITHOUT_CONFIGURATION}{hint}")
        return []


async def request_objects(
    reader: Reader, objects: Iterable[Json], missing: Callable[[str], None]
) -> list[Json]:
    """Return the objects by which devices of claims are counted, where a Configuration has them.

    Args:
        reader: The API server.
        objects: Objects, with the Configuration if it is known.
        missing: Called with a sentence if the user may not list some of them.

    Raises:
        ApiError: If the API server does not answer.
    """
    mapped = ("resources", "deviceClassMappings")
    if not any(each["kind"] == "Configuration" and value_at(each, mapped) for each in objects):
        return []
    try:
        return [
            found for resource in _COUNTED_BY for found in await listed_if_served(reader, resource)
        ]
    except ForbiddenError as error:
        missing(f"{error}: jobs that get devices by claims count as jobs that cannot start")
        return []


async def device_objects(reader: Reader, missing: Callable[[str], None]) -> list[Json]:
    """Return the nodes, the devices that drivers offer beside, and the Configuration for these.

    Args:
        reader: The API server.
        missing: Called with a sentence if the user may not list what drivers offer.

    Raises:
        ApiError: If nodes cannot be listed, or the API server does not answer.
    """
    nodes = await listed(reader, r.NODES)
    try:
        slices = await listed_if_served(reader, r.RESOURCE_SLICES)
        classes = await listed_if_served(reader, r.DEVICE_CLASSES) if slices else []
    except ForbiddenError as error:
        missing(f"{error}: devices that pods get by ResourceClaims are not listed")
        return nodes
    rules = await configuration_of(reader, lambda _: None) if slices else []
    return [*nodes, *slices, *classes, *rules]


async def scenario_of(reader: Reader, *, nodes: bool) -> list[Json]:
    """Return the objects of a scenario.

    Raises:
        ApiError: If something cannot be read.
    """
    found: list[Json] = []
    for resource in _QUEUES:
        found += await listed_if_served(reader, resource)
    if any(value_at(each, ("spec", "topologyName")) for each in found):
        for resource in _PLACES:
            found += await listed_if_served(reader, resource)
    elif nodes:
        found += await listed_if_served(reader, r.NODES)
    return found


async def listed_if_served(reader: Reader, resource: Resource) -> list[Json]:
    """Return the objects of a kind in all namespaces; none if the cluster has no such kind.

    Raises:
        ApiError: If they cannot be listed.
    """
    try:
        return await listed(reader, resource)
    except NotFoundError:
        return []
    except ForbiddenError as error:
        where = " in all namespaces" if resource.namespaced else ""
        group = f".{resource.group}" if resource.group else ""
        hint = (
            f"an administrator has to grant `list` on `{resource.plural}{group}`{where};"
            " or read a dump that an administrator made"
        )
        raise ForbiddenError(str(error), hint=hint) from error


async def listed(reader: Reader, resource: Resource, *, namespace: str = "") -> list[Json]:
    """Return all objects of a resource, as documents have them.

    Raises:
        ApiError: If they cannot be listed.
    """
    found: list[Json] = []
    async for page in pages(reader, resource, into=dict, namespace=namespace):
        found += (whole(resource, item) for item in page.items)
    return found
