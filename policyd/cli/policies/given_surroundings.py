"""The surroundings of objects, from where the options of a command say: a cluster, or files."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from policyd.api.meta import Json
from policyd.cli.formats.snapshots import facts_in
from policyd.cli.options import check_cluster
from policyd.cli.policies.request_options import ObjectSurroundings, RequestOptions
from policyd.engine.compile.load import Loaded

if TYPE_CHECKING:
    from policyd.kube.client import Reader


def surroundings_of(
    given: RequestOptions, loaded: Loaded, objects: Sequence[Json], *, jobs: bool = False
) -> ObjectSurroundings:
    """Return the surroundings of objects, from a cluster or from files.

    Args:
        given: The options; their namespace becomes that of the context if none was named.
        loaded: The policies.
        objects: The objects.
        jobs: Whether to read which jobs are held, too.

    Raises:
        click.UsageError: If a cluster is named, and not to be read.
    """
    check_cluster(given)
    surroundings = (
        _of_cluster(given, loaded, objects, jobs=jobs) if given["cluster"] else ObjectSurroundings()
    )
    if given["snapshot"]:
        surroundings.queues = facts_in(given["snapshot"])
    return surroundings


def _of_cluster(
    given: RequestOptions, loaded: Loaded, objects: Sequence[Json], *, jobs: bool
) -> ObjectSurroundings:
    # Imported only where a cluster is read: it takes as long as a small command.
    from policyd.cli.clusters import read_cluster  # noqa: PLC0415
    from policyd.cli.policies.held_jobs import read_held_jobs  # noqa: PLC0415
    from policyd.cli.policies.surroundings import read_surroundings  # noqa: PLC0415

    source = click.get_current_context().get_parameter_source("namespace")

    async def read(reader: "Reader", namespace: str) -> ObjectSurroundings:
        if source is not ParameterSource.DEFAULT:
            namespace = given["namespace"]
        stored = given["operation"] != "CREATE"
        found = await read_surroundings(
            reader, loaded.policies, objects, namespace=namespace, stored=stored
        )
        found.held = await read_held_jobs(reader, objects, found) if jobs else None
        return found

    surroundings = read_cluster(given, read)
    given["namespace"] = surroundings.namespace
    return surroundings
