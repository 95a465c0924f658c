"""`policyd dashboard`: show queues, nodes and jobs in a browser."""

import asyncio
from functools import partial
from typing import Unpack

import click

from policyd.cli.clusters import connection_for
from policyd.cli.options import CONTEXT, KUBECONFIG, ContextOptions
from policyd.kube.http_client import HttpClient
from policyd.process import run


class _Given(ContextOptions):
    """The arguments of the command."""

    port: int


@click.command("dashboard")
@KUBECONFIG
@CONTEXT
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default="a free one",
    help="Port of the page, on loopback.",
)
def command(**given: Unpack[_Given]) -> None:
    r"""Show queues, nodes and jobs in a browser, as they change. Press Ctrl-C to stop it.

    The page is read-only, and shows what you may see with your kubeconfig. It is served on
    loopback, and opened by a link that is good for one browser and for ten minutes. Whenever the
    page is opened without a session, the terminal prints a new link.

    \b
    Examples:
      policyd dashboard
      policyd dashboard --context production --port 8090
    """
    run(partial(_serve, given))


async def _serve(given: _Given, stop: asyncio.Event) -> None:
    from policyd.dashboard.serve import on_loopback  # noqa: PLC0415 - with its libraries

    connection = connection_for(given)
    async with HttpClient(connection) as client:
        namespace, port = connection.namespace, given["port"]
        async with on_loopback(client, namespace=namespace, port=port, say=_say) as link:
            _say(link)
            await stop.wait()


def _say(link: str) -> None:
    click.echo(f"open this in a browser, once, within ten minutes: {link}")
