"""`policyd background`: act on Kyverno's policies that generate and delete."""

import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Unpack

import click

from policyd.cli.background.acting import BackgroundPass, PassLine, PassOptions
from policyd.cli.background.reads import resource_named
from policyd.cli.clusters import connection_for
from policyd.cli.options import CONTEXT, KUBECONFIG, ContextOptions
from policyd.clock import SystemClock
from policyd.kube.client import Client
from policyd.kube.errors import ApiError
from policyd.kube.http_client import HttpClient
from policyd.kube.resources import Resource
from policyd.process import run
from policyd.program import FINDINGS

_RESOURCE = "VERSION/PLURAL"


class _Given(ContextOptions):
    """The options of the command."""

    generates: tuple[str, ...]
    deletes: tuple[str, ...]
    reads: tuple[str, ...]
    namespaced: bool
    act: bool
    every: float | None


@click.command("background")
@click.option(
    "--generates",
    multiple=True,
    metavar=_RESOURCE,
    help="A resource whose objects may be generated, such as v1/resourcequotas; repeatable.",
)
@click.option(
    "--deletes",
    multiple=True,
    metavar=_RESOURCE,
    help="A resource whose objects may be deleted on a schedule, such as v1/pods; repeatable.",
)
@click.option(
    "--reads",
    multiple=True,
    metavar=_RESOURCE,
    help="A resource that expressions may read, such as v1/secrets; repeatable.",
)
@click.option("--namespaced", is_flag=True, help="Act on the policies of namespaces, too.")
@click.option("--act", is_flag=True, help="Write and delete; without it, only say what would be.")
@click.option(
    "--every",
    type=click.FloatRange(min=5, max=3600),
    default=None,
    metavar="SECONDS",
    help="Go on until interrupted, with a pass so often; one pass if left out.",
)
@KUBECONFIG
@CONTEXT
def command(**given: Unpack[_Given]) -> None:
    r"""Act on Kyverno's GeneratingPolicies and DeletingPolicies in a cluster.

    Without --act, nothing is written: the command says what it would do. It generates by
    server-side apply, with labels that name the policy and the trigger, and changes and deletes no
    object without them. Objects whose trigger or policy is gone are deleted, unless the policy
    orphans them; what was changed or deleted by others is restored. Only policies with
    `synchronize` are acted on. A DeletingPolicy deletes when its schedule is due, and its status
    says when that was; an Event precedes each deletion.

    Only resources that the options list are touched. One pass writes 200 objects at most.

    Exits with 0 if all is done, 1 if something failed or is in conflict, and 2 if the cluster
    cannot be read.

    \b
    Examples:
      policyd background --generates v1/configmaps
      policyd background --generates v1/resourcequotas --deletes v1/pods --act --every 30
    """
    failed: list[bool] = []

    async def main(stop: asyncio.Event) -> None:
        async with HttpClient(connection_for(given)) as client:
            failed.append(await _passes(client, given, stop))

    run(main)
    sys.exit(FINDINGS if any(failed) else 0)


async def _passes(client: Client, given: _Given, stop: asyncio.Event) -> bool:
    """Carry out passes until the command is stopped; return whether the last one failed."""
    while True:
        failed = await _one(client, given)
        if not given["every"]:
            return failed
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), given["every"])
        if stop.is_set():
            return False


async def _one(client: Client, given: _Given) -> bool:
    try:
        options = PassOptions(
            generates=await _resources(client, given["generates"]),
            deletes=await _resources(client, given["deletes"]),
            reads=await _resources(client, given["reads"]),
            namespaced=given["namespaced"],
            act=given["act"],
            now=SystemClock().now(),
        )
        lines = await BackgroundPass(client, options).run()
    except ApiError as error:
        if not given["every"]:
            raise
        click.secho(f"error: {error}", fg="red", err=True)
        return True
    _show(lines)
    return any(line.failed for line in lines)


async def _resources(client: Client, texts: Sequence[str]) -> tuple[Resource, ...]:
    return tuple([await resource_named(client, text) for text in texts])


def _show(lines: Sequence[PassLine]) -> None:
    for line in lines:
        text = f"{line.what}: {line.done} ({line.policy})"
        click.secho(text, fg="red" if line.failed else None, err=line.failed)
