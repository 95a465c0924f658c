"""The queues of a cluster as `policyd simulate --cluster` and `policyd what-if` read them."""

from policyd.api.meta import Json
from policyd.cli.clusters import listed, read_cluster
from policyd.cli.options import ClusterOptions
from policyd.engine.objects.workloads import value_at
from policyd.kube import resources as r
from policyd.kube.client import Reader
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.resources import Resource

_QUEUES = (
    *(r.RESOURCE_FLAVORS, r.COHORTS, r.CLUSTER_QUEUES, r.LOCAL_QUEUES),
    *(r.ADMISSION_CHECKS, r.WORKLOADS),
)
_PLACES = (r.TOPOLOGIES, r.NODES, r.PODS)
"""Only for flavors with a topology: what the rest is decided by has no nodes."""


def cluster_scenario(given: ClusterOptions, *, nodes: bool) -> list[Json]:
    """Return the objects of a scenario, as they are in a cluster.

    Nothing of them can be left out: a decision would be another one. If something may not be read,
    the command ends with 2.

    Args:
        given: Which cluster.
        nodes: Whether the nodes are needed in any case.
    """
    return read_cluster(given, lambda reader, _: scenario_of(reader, nodes=nodes))


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
