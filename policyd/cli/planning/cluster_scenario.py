"""The queues of a cluster as `policyd simulate --cluster` and `policyd what-if` read them."""

from policyd.api.meta import Json
from policyd.cli.clusters import read_cluster
from policyd.cli.options import ClusterOptions
from policyd.questions.queue_objects import scenario_of


def cluster_scenario(given: ClusterOptions, *, nodes: bool) -> list[Json]:
    """Return the objects of a scenario, as they are in a cluster.

    Nothing of them can be left out: a decision would be another one. If something may not be read,
    the command ends with 2.

    Args:
        given: Which cluster.
        nodes: Whether the nodes are needed in any case.
    """
    return read_cluster(given, lambda reader, _: scenario_of(reader, nodes=nodes))
