"""`policyd background`: act on Kyverno's policies that generate, mutate and delete."""

import asyncio
import socket
import sys
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import AsyncExitStack, suppress
from typing import Unpack

import click

from policyd.cli.background.acting import BackgroundPass, Passed
from policyd.cli.background.bounds import PassOptions
from policyd.cli.background.deletions import NoticedDeletions
from policyd.cli.background.mutating import RepeatedWrites
from policyd.cli.background.policies import PolicyReader
from policyd.cli.background.reads import resource_named
from policyd.cli.background.statuses import AccountRights
from policyd.cli.background.watching import LEASE, Watching
from policyd.cli.background.writes import PassLine
from policyd.cli.clusters import connection_for
from policyd.cli.options import CONTEXT, KUBECONFIG, ContextOptions
from policyd.clock import SystemClock
from policyd.connections import Listening
from policyd.engine.background.record import RecordDamagedError, RecordFullError
from policyd.health import HEALTH_BOUNDS, create_health_app
from policyd.kube.client import Client
from policyd.kube.connection import ApiConnection
from policyd.kube.errors import ApiError
from policyd.kube.http_client import HttpClient
from policyd.kube.leader import LeaderElection
from policyd.kube.resources import Resource
from policyd.process import loading_thread, run
from policyd.program import FINDINGS
from policyd.serving import served
from policyd.telemetry import configure_logging

_RESOURCE = "VERSION/PLURAL"
_WATCHED_EVERY = 30.0
"""Seconds between passes while nothing changes."""


class _Given(ContextOptions):
    """The options of the command."""

    generates: tuple[str, ...]
    mutates: tuple[str, ...]
    deletes: tuple[str, ...]
    reads: tuple[str, ...]
    exceptions: tuple[str, ...]
    namespaced: bool
    act: bool
    every: float | None
    watch: bool
    namespace: str
    record: str
    most_deletes: int
    leader_election: bool
    health_host: str
    health_port: int | None
    log_format: str


@click.command("background")
@click.option(
    "--generates",
    multiple=True,
    metavar=_RESOURCE,
    help="A resource whose objects may be generated, such as v1/resourcequotas; repeatable.",
)
@click.option(
    "--mutates",
    multiple=True,
    metavar=_RESOURCE,
    help="A resource whose existing objects may be mutated, such as v1/configmaps; repeatable.",
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
@click.option(
    "--exceptions",
    multiple=True,
    metavar="NAMESPACE",
    help="A namespace whose PolicyExceptions count; repeatable.",
)
@click.option("--namespaced", is_flag=True, help="Act on the policies of namespaces, too.")
@click.option("--act", is_flag=True, help="Write and delete; without it, only show the changes.")
@click.option(
    "--every",
    type=click.FloatRange(min=5, max=3600),
    default=None,
    metavar="SECONDS",
    help="Repeat the pass at this interval until interrupted; one pass if left out.",
)
@click.option("--watch", is_flag=True, help="Repeat the pass after each change, until interrupted.")
@click.option(
    "--namespace",
    default="",
    help="The namespace of the record and the Lease.  [its own, or the context's]",
)
@click.option(
    "--record",
    default=LEASE,
    show_default=True,
    metavar="CONFIGMAP",
    help="The ConfigMap that says which objects were generated.",
)
@click.option(
    "--most-deletes",
    type=click.IntRange(min=1, max=10_000),
    default=50,
    show_default=True,
    help="Objects that one pass deletes on schedules, a fifth of them in one namespace.",
)
@click.option(
    "--leader-election/--no-leader-election",
    default=True,
    help="Let only one of several processes with --watch act.",
)
@click.option(
    "--health-host", default="127.0.0.1", show_default=True, help="Address of --health-port."
)
@click.option("--health-port", type=int, help="Port of /livez, /readyz and /metrics, with --watch.")
@click.option(
    "--log-format",
    type=click.Choice(["json", "lines"]),
    default="json",
    show_default=True,
    help="The format of the log of --watch.",
)
@KUBECONFIG
@CONTEXT
def command(**given: Unpack[_Given]) -> None:
    r"""Act on Kyverno's policies that generate, mutate existing objects, and delete.

    These are GeneratingPolicies, MutatingPolicies with mutateExisting, and DeletingPolicies.

    Without --act, nothing is written: the command says what it would do. With it, a policy acts on
    as many of a hundred triggers or objects as its annotation policyd.io/rollout says; without that
    annotation, on none.

    It generates by server-side apply, and records the uids of generated objects in a ConfigMap. It
    changes and deletes no other objects, whatever their labels are. Objects whose trigger or policy
    is gone are deleted, unless the policy orphans them; what was changed or deleted by others is
    restored. A policy without `synchronize` generates once for each trigger. A policy whose rules
    name DELETE generates when a trigger is deleted, as long as --watch sees it. A DeletingPolicy
    deletes when its schedule is due, and its status says when that was; an Event and a line in the
    log tell of each deletion.

    A MutatingPolicy mutates the targets of each trigger that exists; what is there already is not
    written. Mutations that do not come to rest are not made.

    Only resources that the options list are touched. One pass writes 200 objects at most, and
    mutates as many.

    Exits with 0 if all is done, 1 if something failed or is in conflict, and 2 if the cluster
    cannot be read.

    \b
    Examples:
      policyd background --generates v1/configmaps
      policyd background --generates v1/resourcequotas --deletes v1/pods --act --watch
    """
    failed: list[bool] = []

    async def main(stop: asyncio.Event) -> None:
        connection = connection_for(given)
        executor = loading_thread()
        try:
            async with HttpClient(connection) as client:
                program = _Program(client, connection, given, executor)
                if given["watch"]:
                    await program.watch(stop)
                else:
                    failed.append(await program.passes(stop))
        finally:
            executor.shutdown(wait=False, cancel_futures=True)

    if given["watch"]:
        configure_logging(json=given["log_format"] == "json")
    run(main)
    sys.exit(FINDINGS if any(failed) else 0)


class _Program:
    """The command as it runs: what lasts from one pass to the next."""

    def __init__(
        self, client: Client, connection: ApiConnection, given: _Given, executor: Executor
    ) -> None:
        self._client, self._given = client, given
        self._clock = SystemClock()
        self._reader = PolicyReader(
            client,
            executor,
            self._clock.now,
            namespaced=given["namespaced"],
            exceptions=given["exceptions"],
        )
        self._rights, self._repeats = AccountRights(client), RepeatedWrites()
        self._deletions = NoticedDeletions(self._clock.now)
        self._namespace = given["namespace"] or connection.namespace
        self._leading: Callable[[], bool] = lambda: True

    async def passes(self, stop: asyncio.Event) -> bool:
        """Carry out passes until the command is stopped; return whether the last one failed."""
        while True:
            failed = await self._shown()
            if not self._given["every"]:
                return failed
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), self._given["every"])
            if stop.is_set():
                return False

    async def _shown(self) -> bool:
        try:
            return (await self._carry(_show)).failed
        except (ApiError, RecordDamagedError, RecordFullError) as error:
            if not self._given["every"]:
                raise
            click.secho(f"error: {error}", fg="red", err=True)
            return True

    async def watch(self, stop: asyncio.Event) -> None:
        """Carry out passes when something changes, until the command is stopped."""
        given, election = self._given, None
        if given["leader_election"]:
            identity = f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}"
            election = LeaderElection(
                self._client, LEASE, namespace=self._namespace, identity=identity
            )
            self._leading = lambda: election.leading
        watching = Watching(
            self._client,
            self._carry,
            election,
            every=given["every"] or _WATCHED_EVERY,
            deletions=self._deletions,
        )
        async with AsyncExitStack() as stack:
            if given["health_port"] is not None:
                app = create_health_app(watching.metrics.registry, tuple)
                listening = Listening(bounds=HEALTH_BOUNDS)
                host, port = given["health_host"], given["health_port"]
                await stack.enter_async_context(
                    served(app, listening, host=host, port=port, option="--health-port")
                )
            async with asyncio.TaskGroup() as group:
                working = group.create_task(watching.run())
                await stop.wait()
                working.cancel()

    async def _carry(self, note: Callable[[PassLine], None]) -> Passed:
        given = self._given
        options = PassOptions(
            generates=await self._resources(given["generates"]),
            mutates=await self._resources(given["mutates"]),
            deletes=await self._resources(given["deletes"]),
            reads=await self._resources(given["reads"]),
            place=f"{self._namespace}/{given['record']}",
            act=given["act"],
            most_deletes=given["most_deletes"],
            leading=self._leading,
        )
        given_now = self._clock.now(), self._repeats, self._deletions
        return await BackgroundPass(
            self._client, options, self._reader, self._rights, note, *given_now
        ).run()

    async def _resources(self, texts: Sequence[str]) -> tuple[Resource, ...]:
        return tuple([await resource_named(self._client, text) for text in texts])


def _show(line: PassLine) -> None:
    text = f"{line.what}: {line.done} ({line.policy})"
    click.secho(text, fg="red" if line.failed else None, err=line.failed)
