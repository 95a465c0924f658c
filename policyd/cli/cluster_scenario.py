"""The queues of a cluster as `policyd simulate --cluster` reads them."""

from policyd.api.meta import Json
from policyd.cli.clusters import listed, read_cluster
from policyd.cli.options import ClusterOptions
from policyd.engine.objects.workloads import value_at
from policyd.kube import resources as r
from policyd.kube.client import Reader

_QUEUES = (
    *(r.RESOURCE_FLAVORS, r.COHORTS, r.CLUSTER_QUEUES, r.LOCAL_QUEUES),
    *(r.ADMISSION_CHECKS, r.WORKLOADS),
)
_PLACES = (r.TOPOLOGIES, r.NODES, r.PODS)
"""Only for flavors with a topology: what the rest is decided by has no nodes."""


def cluster_scenario(given: ClusterOptions, *, nodes: bool) -> list[dict[str, Json]]:
    """Return the objects of a scenario, as they are in a cluster.

    Nothing of them can be left out: a decision would be another one. If something may not be read,
    the command ends with 2.

    Args:
        given: Which cluster.
        nodes: Whether the nodes are needed in any case.
    """
    return read_cluster(given, lambda reader, _: scenario_of(reader, nodes=nodes))


async def scenario_of(reader: Reader, *, nodes: bool) -> list[dict[str, Json]]:
    """Return the objects of a scenario.

    Raises:
        ApiError: If something cannot be read.
    """
    found: list[dict[str, Json]] = []
    for resource in _QUEUES:
        found += await listed(reader, resource)
    if any(value_at(each, ("spec", "topologyName")) for each in found):
        for resource in _PLACES:
            found += await listed(reader, resource)
    elif nodes:
        found += await listed(reader, r.NODES)
    return found
