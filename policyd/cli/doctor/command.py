"""`policyd doctor`: the checks one after the other, and what they found."""

import asyncio
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import Final, Unpack

import click

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
from policyd.cli.formats.tables import table_lines
from policyd.cli.options import CONTEXT, KUBECONFIG, ContextOptions, watch_option
from policyd.cli.questions.pages import (
    OUTPUT,
    READING_SECONDS,
    Output,
    Page,
    show_values,
    unless_stopped,
    watch,
)
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


class _Given(ContextOptions):
    """The arguments of the command."""

    output: Output
    watch: bool


@click.command("doctor")
@KUBECONFIG
@CONTEXT
@OUTPUT
@watch_option("Check every ten seconds, and print the findings again when they have changed.")
def command(**given: Unpack[_Given]) -> None:
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
      policyd doctor -o wide
      policyd doctor -o json | jq -r '.findings[].fix'
    """
    run(partial(_run, given))


async def _run(given: _Given, stop: asyncio.Event) -> None:
    lines = partial(_lines, wide=given["output"] == "wide")
    async with HttpClient(connection_for(given)) as client:

        async def ask() -> InstallationReport:
            return await examine(client, now=SystemClock().now())

        if given["watch"]:
            page = Page[InstallationReport](
                given["output"], lambda report: chain(lines(report), _summary(report))
            )
            asked = watch(page, ask, seconds=READING_SECONDS)
            await unless_stopped(asyncio.create_task(asked), stop)
            return
        report = await ask()
    if given["output"] in {"json", "yaml"}:
        show_values(report, given["output"])
    else:
        for line in lines(report):
            click.echo(line)
        for line in _summary(report):
            click.echo(line, err=True)
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


def _summary(report: InstallationReport) -> Iterator[str]:
    if report.unchecked:
        yield "not checked:"
    for each in report.unchecked:
        yield f"  {each.check}: {each.why}"
    nothing = "nothing is wrong in the others" if report.unchecked else "nothing is wrong"
    found = count(len(report.findings), "finding") if report.findings else nothing
    part = f", {len(report.unchecked)} of them left out" if report.unchecked else ""
    yield f"{count(len(report.checked), 'check')}{part}: {found}"


def _lines(report: InstallationReport, *, wide: bool) -> Iterator[str]:
    if wide:
        found = Counter(each.check for each in report.findings)
        skipped = {each.check for each in report.unchecked}
        rows = (
            (name, str(found[name]), "in part, or not at all" if name in skipped else "whole")
            for name in report.checked
        )
        yield from table_lines(("CHECK", "FINDINGS", "MADE"), rows, numbers=("FINDINGS",))
    for each in report.findings:
        color = "red" if each.severity == "error" else "yellow"
        severity = click.style(f"{each.severity}:", fg=color)
        yield f"{severity} {click.style(each.object, bold=True)}: {each.message}"
        yield f"  {click.style('fix:', fg='cyan')} {each.fix}"
