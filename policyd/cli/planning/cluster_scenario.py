"""The queues of a cluster as `policyd simulate --cluster` and `policyd what-if` read them."""

from collections.abc import Sequence

import click

from policyd.api.meta import Json
from policyd.cli.clusters import read_cluster
from policyd.cli.options import ClusterOptions
from policyd.kube.client import Reader
from policyd.questions.queue_objects import (
    CONFIG_OPTION,
    configuration_of,
    request_objects,
    scenario_of,
)


def cluster_scenario(
    given: ClusterOptions, *, nodes: bool, configured: Sequence[Json]
) -> list[Json]:
    """Return the objects of a scenario, as they are in a cluster.

    No object can be left out: a decision would be another one. If one may not be read, the command
    ends with 2. A Configuration that cannot be read is a warning.

    Args:
        given: Which cluster.
        nodes: Whether the nodes are needed in any case.
        configured: The Configuration, if it is known already.
    """

    async def work(reader: Reader, _namespace: str) -> list[Json]:
        found = await scenario_of(reader, nodes=nodes)
        known = configured or await configuration_of(reader, _warn, CONFIG_OPTION)
        return [*found, *known, *await request_objects(reader, known, _warn)]

    return read_cluster(given, work)


def _warn(sentence: str) -> None:
    click.secho(f"warning: {sentence}", fg="yellow", err=True)
