"""What the commands that ask a cluster's queues have in common: options, snapshot, output."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Literal, TypedDict

import click
import msgspec
import yaml

from policyd.cli.formats.files import FILE, text_of
from policyd.cli.options import CONTEXT, KUBECONFIG, together
from policyd.clock import SystemClock
from policyd.config import environment
from policyd.errors import PolicydError
from policyd.kube.client import Reader
from policyd.kube.connection import ApiConnection, connection_from
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.http_client import HttpClient
from policyd.kube.resources import Resource
from policyd.process import run
from policyd.snapshot.reading import OLD_SECONDS, read
from policyd.snapshot.values import (
    CLUSTER_PLURAL,
    GROUP,
    KIND,
    NAME,
    PLURAL,
    VERSION,
    QueueSnapshot,
)
from policyd.status.ages import duration
from policyd.status.quantities import format_amount

Output = Literal["table", "wide", "json", "yaml"]

OF_NAMESPACE = Resource(GROUP, VERSION, PLURAL, KIND)
OF_CLUSTER = Resource(GROUP, VERSION, CLUSTER_PLURAL, KIND, namespaced=False)


class Asking(TypedDict):
    """The options that these commands share."""

    kubeconfig: str
    context: str
    namespace: str
    snapshot: str | None
    output: Output


class NoSnapshotsError(PolicydError):
    """The cluster serves no snapshots of its queues."""


SHARED = together(
    KUBECONFIG,
    CONTEXT,
    click.option("-n", "--namespace", default="", help="Namespace to ask for.  [the context's]"),
    click.option(
        "--snapshot",
        type=FILE,
        metavar="FILE",
        help="Read a queue snapshot from a file, or -, instead of asking a cluster.",
    ),
    click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "wide", "json", "yaml"]),
        default="table",
        show_default=True,
        help="For people, with more columns, or for programs.",
    ),
)
ALL_NAMESPACES = click.option(
    "-A",
    "--all-namespaces",
    "everywhere",
    is_flag=True,
    help="All queues of the cluster, not only those that the namespace shares quota with.",
)


def connection_for(given: Asking) -> ApiConnection:
    """Return how the cluster of the options is reached."""
    return connection_from(environment(), kubeconfig=given["kubeconfig"], context=given["context"])


def show_snapshot(
    given: Asking, show: Callable[[QueueSnapshot], None], *, everywhere: bool
) -> None:
    """Show something of the snapshot that the options mean, of a file or of a cluster.

    Args:
        given: The options.
        show: Prints it.
        everywhere: Whether to ask for the whole cluster.
    """

    async def asked(_stop: asyncio.Event) -> None:
        connection = connection_for(given)
        namespace = "" if everywhere else given["namespace"] or connection.namespace
        async with HttpClient(connection) as client:
            snapshot = await ask(client, namespace)
        show(snapshot)

    if given["snapshot"]:
        show(read_file(given["snapshot"]))
    else:
        run(asked)


async def ask(reader: Reader, namespace: str) -> QueueSnapshot:
    """Return the snapshot for a namespace; for the whole cluster if that is "".

    Raises:
        NoSnapshotsError: If the cluster serves none.
        ApiError: If the API server refuses, or does not answer.
        SnapshotError: If the answer is of another version of policyd.
    """
    resource = OF_NAMESPACE if namespace else OF_CLUSTER
    try:
        found = await reader.get(resource, NAME, namespace=namespace, into=msgspec.Raw)
    except NotFoundError as error:
        raise NoSnapshotsError(
            "the cluster serves no queue snapshots",
            hint="install the chart with `controller.visibility.enabled=true`, or upgrade policyd",
        ) from error
    except ForbiddenError as error:
        raise ForbiddenError(str(error), hint=_right(namespace)) from error
    return aged(read(bytes(found), f"{resource.plural}/{NAME}"))


def _right(namespace: str) -> str:
    if not namespace:
        return (
            f"without -A, the right to `get` `{PLURAL}.{GROUP}` in your namespace is enough;"
            f" with it, an administrator has to grant `get` on `{CLUSTER_PLURAL}.{GROUP}`"
        )
    return (
        f"an administrator has to grant `get` on `{PLURAL}.{GROUP}` in namespace {namespace};"
        " the role `view` has it"
    )


def read_file(path: str) -> QueueSnapshot:
    """Return the snapshot of a file.

    Raises:
        SnapshotError: If it is none.
    """
    name, body = text_of(path)
    return aged(read(body, name))


def aged(snapshot: QueueSnapshot) -> QueueSnapshot:
    """Return a snapshot, after a warning if it is old."""
    age = SystemClock().now() - snapshot.taken_at
    if age > OLD_SECONDS:
        click.secho(
            f"warning: the snapshot is {duration(age)} old; the queues may have changed since",
            fg="yellow",
            err=True,
        )
    return snapshot


def show_values(found: object, output: Output) -> None:
    """Print values for programs."""
    plain = msgspec.to_builtins(found)
    if output == "json":
        click.echo(json.dumps(plain, indent=2))
    else:
        click.echo(yaml.safe_dump(plain, sort_keys=False), nl=False)


def amounts_text(amounts: Mapping[str, int]) -> str:
    """Write amounts of resources in one cell, devices first: `8 nvidia.com/gpu, 4 cpu`."""
    devices_first = sorted(amounts, key=lambda name: ("/" not in name, name))
    return ", ".join(f"{format_amount(n, amounts[n])} {n}" for n in devices_first) or "-"
