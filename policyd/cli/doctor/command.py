"""`policyd doctor`: the checks one after the other, and what they found."""

import asyncio
import json
import sys
from collections.abc import Iterator
from functools import partial
from typing import Final, Unpack

import click
import msgspec

from policyd.cli.clusters import connection_for
from policyd.cli.doctor import held, installation, kueue, queues, webhooks
from policyd.cli.doctor.report import (
    CheckedCluster,
    Checks,
    InstallationProblem,
    InstallationReport,
    SkippedCheckError,
    Unchecked,
)
from policyd.cli.formats.report import count
from policyd.cli.options import CONTEXT, KUBECONFIG, TEXT_OR_JSON, ContextOptions
from policyd.clock import SystemClock
from policyd.errors import PolicydError
from policyd.kube.client import Client
from policyd.kube.errors import ApiError, UnauthorizedError, UnreachableError
from policyd.kube.http_client import HttpClient
from policyd.process import run
from policyd.program import FINDINGS

CHECKS: Checks = {
    **installation.CHECKS,
    **kueue.CHECKS,
    **webhooks.CHECKS,
    **queues.CHECKS,
    **held.CHECKS,
}
"""All checks, in their order."""
WITHOUT_RIGHTS: Final = frozenset({"visibility"})
"""Checks that need no permission: their success does not show that the others succeed."""


class NothingCheckedError(PolicydError):
    """The user may read nothing that is checked."""


@click.command("doctor")
@KUBECONFIG
@CONTEXT
@TEXT_OR_JSON
def command(*, output: str, **given: Unpack[ContextOptions]) -> None:
    r"""Find what is wrong with an installation, and print the command that fixes it.

    \b
    versions      the kinds and the chart are of the version of this program
    leader        a controller holds the Lease
    visibility    the controller answers questions about queues
    kueue         no Kueue leads, and no takeover from it was stopped midway
    registration  the API server is configured to call the webhooks
    certificate   the webhooks' certificate is valid, and trusted by the configurations
    calls         the API server reaches the webhooks
    policies      the policies and bindings are loaded
    flavors       each ResourceFlavor has nodes
    queues        each ClusterQueue can admit, and each LocalQueue leads to one
    pods          no pod is gated for a Workload that is gone
    jobs          no job is suspended for a queue without having a Workload
    deletions     no deleted object is kept by a finalizer of the queue

    Nothing is stored; calls of the webhooks are tried with a dry run. What the user has no right
    to read is not checked, and is listed.

    Exits with 0 if nothing is wrong, 1 if something is, or 2 if the cluster cannot be reached
    or the user may read nothing.

    \b
    Examples:
      policyd doctor
      policyd doctor -o json | jq -r '.findings[].fix'
    """
    run(partial(_run, given, output))


async def _run(given: ContextOptions, output: str, _stop: asyncio.Event) -> None:
    async with HttpClient(connection_for(given)) as client:
        report = await examine(client, now=SystemClock().now())
    if output == "json":
        click.echo(json.dumps(msgspec.to_builtins(report), indent=2))
    else:
        _show(report)
    made = set(report.checked).difference(each.check for each in report.unchecked)
    if made <= WITHOUT_RIGHTS and not report.findings:
        raise NothingCheckedError(
            "none of the checks could be made",
            hint="use the kubeconfig of an administrator of the cluster",
        )
    if report.findings:
        sys.exit(FINDINGS)


async def examine(client: Client, *, now: float, checks: Checks = CHECKS) -> InstallationReport:
    """Make all checks.

    Raises:
        UnreachableError: If the API server does not answer.
        UnauthorizedError: If it does not know the user.
    """
    cluster = CheckedCluster(client, now=now)
    findings: list[InstallationProblem] = []
    unchecked: list[Unchecked] = []
    for name, check in checks.items():
        try:
            async for found in check(cluster):
                findings.append(found)  # noqa: PERF401 - an error keeps those before
        except (UnreachableError, UnauthorizedError):
            raise
        except (ApiError, SkippedCheckError) as error:
            unchecked.append(Unchecked(name, str(error)))
    return InstallationReport(tuple(findings), tuple(checks), tuple(unchecked))


def _show(report: InstallationReport) -> None:
    for line in _lines(report):
        click.echo(line)
    if report.unchecked:
        click.echo("not checked:", err=True)
    for each in report.unchecked:
        click.echo(f"  {each.check}: {each.why}", err=True)
    nothing = "nothing is wrong in the others" if report.unchecked else "nothing is wrong"
    found = count(len(report.findings), "finding") if report.findings else nothing
    part = f", {len(report.unchecked)} of them left out" if report.unchecked else ""
    click.echo(f"{count(len(report.checked), 'check')}{part}: {found}", err=True)


def _lines(report: InstallationReport) -> Iterator[str]:
    for each in report.findings:
        color = "red" if each.severity == "error" else "yellow"
        severity = click.style(f"{each.severity}:", fg=color)
        yield f"{severity} {click.style(each.object, bold=True)}: {each.message}"
        yield f"  {click.style('fix:', fg='cyan')} {each.fix}"
