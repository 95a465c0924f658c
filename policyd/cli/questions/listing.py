"""The objects that queues decide by, read from a cluster with the rights of its user."""

from collections.abc import Iterable
from typing import Any, Final

import click

from policyd.api.meta import Json
from policyd.cli.formats.changes import as_new
from policyd.cli.questions.found_jobs import JOBS
from policyd.engine.objects.workloads import value_at
from policyd.kube.client import Client, Reader
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.pages import pages
from policyd.kube.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    LOCAL_QUEUES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESOURCE_FLAVORS,
    TOPOLOGIES,
    WORKLOAD_PRIORITY_CLASSES,
    WORKLOADS,
    Resource,
)

_NEEDED: Final = (
    RESOURCE_FLAVORS, TOPOLOGIES, COHORTS, CLUSTER_QUEUES, LOCAL_QUEUES, ADMISSION_CHECKS,
    WORKLOADS,
)  # fmt: skip
_PLACES: Final = (NODES, PODS)
"""Only read where a topology places pods: there are many."""
_USEFUL: Final = {
    PRIORITY_CLASSES: "jobs that are submitted cannot name one",
    WORKLOAD_PRIORITY_CLASSES: "jobs that are submitted cannot name one",
    NAMESPACES: "namespace selectors of ClusterQueues are not checked",
}
"""What is missing without them."""


async def queue_objects(reader: Reader) -> list[dict[str, Json]]:
    """Return the queues, flavors, workloads and, where topologies place pods, nodes and pods.

    Raises:
        ForbiddenError: If the user may not list what decisions depend on.
        ApiError: If the API server does not answer.
    """
    found = [each for resource in _NEEDED for each in await _listed(reader, resource)]
    for resource, missing in _USEFUL.items():
        try:
            found += await _listed(reader, resource)
        except ForbiddenError as error:
            click.secho(f"warning: {error}: {missing}", fg="yellow", err=True)
    if _places_pods(found):
        found += [each for resource in _PLACES for each in await _listed(reader, resource)]
    return found


async def submitted_objects(
    client: Client, objects: Iterable[dict[str, Json]], namespace: str
) -> list[dict[str, Json]]:
    """Return jobs as a cluster would store them: with the queue that its policies give them.

    Args:
        client: Asked for a dry run of their creation.
        objects: Manifests; those that are no jobs are returned as they are.
        namespace: Where those go that name none.

    Raises:
        ApiError: If the API server refuses one, or a policy does.
    """
    found = []
    for each in objects:
        resource = JOBS.get(str(each["kind"]))
        if resource is None or each.get("apiVersion") != resource.api_version:
            found.append(each)
            continue
        new = as_new(each)
        within = value_at(new, ("metadata", "namespace"))
        stored = await client.create(
            resource, new, into=dict, namespace=str(within or namespace), dry_run=True
        )
        about = {"apiVersion": resource.api_version, "kind": resource.kind}
        found.append({**stored, **about})
    return found


def _places_pods(objects: Iterable[Json]) -> bool:
    return any(value_at(each, ("spec", "topologyName")) for each in objects)


async def _listed(reader: Reader, resource: Resource) -> list[dict[str, Json]]:
    """Return the objects of a kind in all namespaces; none if the cluster has no such kind."""
    about = {"apiVersion": resource.api_version, "kind": resource.kind}
    found: list[dict[str, Any]] = []
    try:
        async for page in pages(reader, resource, into=dict):
            found += [{**each, **about} for each in page.items]
    except NotFoundError:
        return []
    except ForbiddenError as error:
        where = " in all namespaces" if resource.namespaced else ""
        group = f".{resource.group}" if resource.group else ""
        hint = (
            f"an administrator has to grant `list` on `{resource.plural}{group}`{where};"
            " or read a dump that somebody else made"
        )
        raise ForbiddenError(str(error), hint=hint) from error
    return found
