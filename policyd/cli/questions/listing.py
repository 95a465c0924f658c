"""Jobs as a cluster would store them."""

from collections.abc import Iterable

from policyd.api.meta import Json
from policyd.cli.formats.changes import as_new
from policyd.engine.objects.workloads import value_at
from policyd.kube.client import Client
from policyd.questions.unqueued_jobs import JOBS


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
