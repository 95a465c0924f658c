"""What commands read of a cluster with `--cluster`: page by page, and nothing is written.

What may not be read is a sentence. A result that would need it is not given.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from policyd.api.kinds import resource_for_kind
from policyd.cli.options import ClusterOptions, ContextOptions
from policyd.engine.documents.findings import Finding, Severity
from policyd.environment import environment
from policyd.kube.client import Reader
from policyd.kube.connection import ApiConnection, connection_from
from policyd.kube.discovery import served_resources
from policyd.kube.errors import ApiError
from policyd.kube.http_client import HttpClient
from policyd.kube.resources import Resource
from policyd.process import run, unless_stopped

T = TypeVar("T")

CLUSTER: Final = "cluster"
"""The source of findings about what is read of a cluster."""


def connection_for(given: ContextOptions) -> ApiConnection:
    """Return how the cluster of the options is reached."""
    return connection_from(environment(), kubeconfig=given["kubeconfig"], context=given["context"])


def read_cluster(given: ClusterOptions, work: Callable[[Reader, str], Coroutine[Any, Any, T]]) -> T:
    """Read from the cluster of the options.

    Args:
        given: The options.
        work: Reads; it gets the namespace of the context.

    Returns:
        The result of `work`. If the cluster cannot be asked, the command ends with 2; if a signal
        stops it, with 130.
    """
    found: list[T] = []

    async def main(stop: asyncio.Event) -> None:
        connection = connection_for(given)
        async with HttpClient(connection) as client:
            found.append(await unless_stopped(stop, work(client, connection.namespace)))

    run(main)
    return found[0]


def missing(what: str, error: ApiError, *, severity: Severity = "error") -> Finding:
    """Return the finding that something cannot be read, with what follows from that."""
    return Finding(
        source=CLUSTER,
        message=f"{what}: {error}",
        hint=error.hint,
        rule="cluster",
        severity=severity,
    )


async def resource_of(reader: Reader, api_version: str, kind: str) -> Resource | None:
    """Return where the objects of a kind are; None if the cluster does not serve it.

    Raises:
        ApiError: If the cluster cannot be asked.
    """
    group, _, version = api_version.rpartition("/")
    known = resource_for_kind(group, version, kind)
    if known is not None:
        return Resource(group, version, known.plural, kind, namespaced=known.namespaced)
    served = await served_resources(reader, api_version)
    return next((each for each in served if each.kind == kind), None)
