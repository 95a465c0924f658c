"""`policyd takeover`: start, status, back."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Final, Unpack

import click
import msgspec

from policyd.cli.clusters import connection_for
from policyd.cli.doctor.installation import LEASE as CONTROLLER_LEASE
from policyd.cli.doctor.installation import without_leader
from policyd.cli.options import CONTEXT, KUBECONFIG, TEXT_OR_JSON, ContextOptions, together
from policyd.cli.takeover.installation import RECORD, Installation, find
from policyd.cli.takeover.steps import BACK, THERE, TakeoverStatus, TakeoverStep, status_of
from policyd.clock import SystemClock
from policyd.errors import PolicydError
from policyd.kube.client import Client
from policyd.kube.errors import ConflictError
from policyd.kube.http_client import HttpClient
from policyd.kube.kueue_lease import NAMESPACE
from policyd.kube.leader import Lease
from policyd.kube.pages import pages
from policyd.kube.resources import LEASES
from policyd.process import run
from policyd.program import FINDINGS

LOOK_SECONDS: Final = 0.5
"""Between looks at what a step waits for."""
MOST_SHOWN: Final = 3
"""Losses that the refusal of a takeover names."""
GO_ON: Final = "`policyd takeover start` goes on, `policyd takeover back` goes back"


class NotPossibleError(PolicydError):
    """The cluster is not as a takeover needs it."""


class TakeoverOptions(ContextOptions):
    """The options that these commands share."""

    kueue_namespace: str


SHARED = together(
    KUBECONFIG,
    CONTEXT,
    click.option(
        "--kueue-namespace", default=NAMESPACE, show_default=True, help="Namespace of Kueue."
    ),
)
MOVING = together(
    click.option(
        "--timeout",
        type=click.FloatRange(min=1),
        default=120.0,
        show_default=True,
        help="Seconds that a step may take.",
    ),
    click.option("--dry-run", is_flag=True, help="Show the steps that are left; write nothing."),
)


@click.group("takeover")
def command() -> None:
    r"""Take the queues of a running cluster over from Kueue, and give them back.

    No job is stopped: Workloads, quota and pods stay as they are, and only the controller changes.
    policyd must be installed beside Kueue; it stands by while Kueue leads. `policyd migrate kueue`
    prints the values of its chart, and what would be different.

    \b
    Steps of `start`, each of which may be repeated:
      record      what there is, in ConfigMap policyd-takeover of Kueue's namespace
      storage     store all objects as v1beta2
      webhooks    have the API server no longer call Kueue's webhooks; policyd's are there
      stop        scale Kueue's Deployment to zero, and wait until its pods are gone
      conversion  have policyd convert v1beta1
      visibility  have policyd answer for pending workloads
      lease       give Kueue's Lease to policyd: while policyd holds it, no Kueue leads

    Do not uninstall Kueue with Helm: that deletes its kinds, with all queues and Workloads.
    """


@command.command("start")
@SHARED
@MOVING
@click.option(
    "--accept-losses", is_flag=True, help="Take over although `policyd migrate kueue` finds losses."
)
def start(
    *, timeout: float, dry_run: bool, accept_losses: bool, **given: Unpack[TakeoverOptions]
) -> None:
    r"""Take the queues over from Kueue, or go on with a takeover that was stopped midway.

    Before it begins, it looks for what `policyd migrate kueue` calls lost, and refuses to take
    over if there is something, unless --accept-losses permits it.

    Exits with 0 when policyd leads, 1 if a step is not done in time, or 2 if the cluster cannot be
    asked, or is not ready for a takeover.

    \b
    Examples:
      policyd takeover start --dry-run
      policyd takeover start
    """
    ready = partial(_ready_for_start, accept_losses=accept_losses)
    _move(given, THERE, ready, timeout, dry_run=dry_run)


@command.command("back")
@SHARED
@MOVING
def back(*, timeout: float, dry_run: bool, **given: Unpack[TakeoverOptions]) -> None:
    r"""Give the queues back to Kueue, also from a takeover that was stopped midway.

    policyd stays installed, and stands by.

    Exits with 0 when Kueue leads, 1 if a step is not done in time, or 2 if the cluster cannot be
    asked, or there is nothing to give back.

    \b
    Examples:
      policyd takeover back --dry-run
      policyd takeover back
    """
    _move(given, BACK, _ready_for_back, timeout, dry_run=dry_run)


@command.command("status")
@SHARED
@TEXT_OR_JSON
def status(*, output: str, **given: Unpack[TakeoverOptions]) -> None:
    r"""Show who leads the queues, and how far a takeover is.

    Exits with 0 if no takeover is under way, 1 if one was stopped midway, or 2 if the cluster
    cannot be asked.

    \b
    Examples:
      policyd takeover status
      policyd takeover status -o json | jq -r '.steps[] | select(.done | not).missing'
    """

    async def show(client: Client, namespace: str) -> None:
        found = status_of(await find(client, namespace))
        lines = [json.dumps(msgspec.to_builtins(found), indent=2)]
        for line in lines if output == "json" else _lines(found):
            click.echo(line)
        if not found.done:
            click.echo(f"stopped midway: {GO_ON}", err=True)
            sys.exit(FINDINGS)

    _run(given, show)


def _lines(found: TakeoverStatus) -> Iterator[str]:
    holder = found.leader or "no process"
    yield f"Kueue's Lease: held by {holder}"
    if not found.direction:
        yield "no takeover is recorded"
    for each in found.steps:
        yield f"{each.name:<11} {'done' if each.done else each.missing}"


def _run(given: TakeoverOptions, work: Callable[[Client, str], Awaitable[None]]) -> None:
    async def main(_stop: asyncio.Event) -> None:
        async with HttpClient(connection_for(given)) as client:
            await work(client, given["kueue_namespace"])

    run(main)


def _move(
    given: TakeoverOptions,
    steps: Sequence[TakeoverStep],
    ready: Callable[[Client, Installation], Awaitable[None]],
    timeout: float,
    *,
    dry_run: bool,
) -> None:
    async def work(client: Client, namespace: str) -> None:
        found = await find(client, namespace)
        await ready(client, found)
        if dry_run:
            for step in steps:
                missing = step.missing(found)
                click.echo(f"{step.name:<11} {step.text}" if missing else f"{step.name:<11} done")
            return
        look = partial(find, client, namespace)
        for step in steps:
            if missing := await carry_out(client, step, look, timeout):
                click.echo(f"{step.name:<11} {missing}")
                click.echo(f"not done within {timeout:.0f} s: {GO_ON}", err=True)
                sys.exit(FINDINGS)
            click.echo(f"{step.name:<11} done")

    _run(given, work)


async def carry_out(
    client: Client, step: TakeoverStep, look: Callable[[], Awaitable[Installation]], seconds: float
) -> str:
    """Do a step until nothing is missing; return what still is after `seconds`.

    Raises:
        ApiError: If the API server refuses, or does not answer.
    """
    clock = SystemClock()
    deadline = clock.monotonic() + seconds
    acted = False
    while missing := step.missing(found := await look()):
        if clock.monotonic() >= deadline:
            return missing
        try:
            await step.act(client, found)
        except ConflictError:
            continue  # something else changed it meanwhile, as Kueue's renewal of certificates
        acted = True
        if step.missing(await look()):
            await asyncio.sleep(LOOK_SECONDS)
    await asyncio.sleep(step.settles if acted else 0)
    return ""


async def _check_losses(client: Client, found: Installation) -> None:
    """Check that nothing is lost.

    Raises:
        NotPossibleError: If something is, or that is not known.
    """
    from policyd.cli.migrate.kueue import losses  # noqa: PLC0415 - large, and seldom needed

    lost = await losses(client, found.namespace)
    if lost:
        more = f"; and {len(lost) - MOST_SHOWN} more" if len(lost) > MOST_SHOWN else ""
        raise NotPossibleError(
            f"a takeover would lose something: {'; '.join(lost[:MOST_SHOWN])}{more}",
            hint="`policyd migrate kueue` shows all; `--accept-losses` takes over nevertheless",
        )


async def _ready_for_start(
    client: Client, found: Installation, *, accept_losses: bool = False
) -> None:
    """Check that policyd can lead.

    Raises:
        NotPossibleError: If it cannot.
    """
    if found.deployment is None and found.lease is None:
        raise NotPossibleError(
            f"there is no Kueue in namespace {found.namespace}",
            hint="name its namespace: `--kueue-namespace`",
        )
    for each in found.definitions:
        versions = {v["name"] for v in each["spec"]["versions"] if v.get("served")}
        if "v1beta2" not in versions and not each["metadata"]["name"].startswith("multikueue"):
            raise NotPossibleError(
                f"{each['metadata']['name']} does not serve v1beta2, only {', '.join(versions)}",
                hint="upgrade Kueue to a version that serves it",
            )
    if not found.called:
        raise NotPossibleError(
            "policyd's webhooks are not registered: nothing would hold new jobs",
            hint="install policyd with the values of `policyd migrate kueue`",
        )
    if (why := await _no_controller(client)) is not None:
        raise NotPossibleError(
            f"no controller of policyd runs: {why}",
            hint="install policyd with the values of `policyd migrate kueue`",
        )
    if found.record is None and not accept_losses:
        await _check_losses(client, found)


async def _no_controller(client: Client) -> str | None:
    """Return why no controller of policyd could lead; None if one could."""
    why = f"there is no Lease {CONTROLLER_LEASE}"
    selected = pages(client, LEASES, into=Lease, field_selector=f"metadata.name={CONTROLLER_LEASE}")
    async for page in selected:
        for lease in page.items:
            wrong = next(iter(without_leader(lease, now=SystemClock().now())), None)
            if wrong is None:
                return None
            why = f"Lease {lease.metadata.key}: {wrong}"
    return why


async def _ready_for_back(_client: Client, found: Installation) -> None:
    """Check that there is a Kueue to give the queues back to.

    Raises:
        NotPossibleError: If there is none.
    """
    if found.record is None:
        raise NotPossibleError(
            f"no takeover is recorded: there is no ConfigMap {RECORD} in {found.namespace}",
            hint="`policyd takeover status` shows who leads",
        )
    if found.deployment is None:
        raise NotPossibleError(
            f"there is no Deployment of Kueue in namespace {found.namespace}",
            hint="install Kueue again; `policyd takeover back` starts it, and gives it the queues",
        )
