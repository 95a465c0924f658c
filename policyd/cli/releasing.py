"""`policyd release`: remove the queue's finalizers where no controller runs any more."""

import asyncio
from dataclasses import dataclass
from functools import partial

import click

from policyd.cli.formats.report import count
from policyd.cli.options import KUBECONFIG
from policyd.controller.queues.in_use import release
from policyd.environment import environment
from policyd.kube.connection import connection_from
from policyd.kube.http_client import HttpClient
from policyd.process import run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """The arguments of the command."""

    kubeconfig: str
    context: str
    namespace: str
    everything: bool
    dry_run: bool


@click.command("release")
@KUBECONFIG
@click.option("--context", default="", help="A context of the kubeconfig; its current one if not.")
@click.option("-n", "--namespace", default="", help="Namespace of the pods and workloads.  [all]")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Also workloads, queues, flavors, topologies and checks.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be released, without writing.")
def command(*, dry_run: bool, everything: bool, **given: str) -> None:
    r"""Take the queue's finalizers off pods, so that they can be deleted without a controller.

    A deleted pod of a queue remains until the controller has recorded its end. If the
    controller is stopped, or was removed before that, nothing else removes the finalizer. Pods
    that are not deleted keep running or stay pending.

    The controller may keep running, except with --all: it would add the finalizers of used
    objects again.

    Exits with 0, or 2 if the API server cannot be reached or refuses.

    \b
    Examples:
      policyd release --dry-run
      policyd release -n team-a
      policyd release --all
    """
    run(partial(_run, _Given(everything=everything, dry_run=dry_run, **given)))


async def _run(given: _Given, _stop: asyncio.Event) -> None:
    connection = connection_from(environment(), kubeconfig=given.kubeconfig, context=given.context)
    released = 0
    async with HttpClient(connection) as client:
        named = release(
            client,
            namespace=given.namespace,
            everything=given.everything,
            dry_run=given.dry_run,
        )
        async for each in named:
            released += 1
            click.echo(each)
    would = "would be " if given.dry_run else ""
    click.echo(f"{count(released, 'object')} {would}let go", err=True)
