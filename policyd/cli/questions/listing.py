"""The objects that queues decide by, read from a cluster with the rights of its user."""

from collections.abc import Iterable
from typing import Final

import click

from policyd.api.meta import Json
from policyd.cli.cluster_scenario import listed_if_served, scenario_of
from policyd.cli.formats.changes import as_new
from policyd.engine.objects.workloads import value_at
from policyd.kube.client import Client, Reader
from policyd.kube.errors import ForbiddenError
from policyd.kube.resources import NAMESPACES, PRIORITY_CLASSES, WORKLOAD_PRIORITY_CLASSES
from policyd.questions.found_jobs import JOBS

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
    found = await scenario_of(reader, nodes=False)
    for resource, missing in _USEFUL.items():
        try:
            found += await listed_if_served(reader, resource)
        except ForbiddenError as error:
            click.secho(f"warning: {error}: {missing}", fg="yellow", err=True)
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
