"""`policyd migrate`: policies of other tools, written in CEL."""

import click

from policyd.cli.migrate.gatekeeper import gatekeeper
from policyd.cli.migrate.kyverno import kyverno


@click.group("migrate")
def command() -> None:
    """Bring policies and queues over from other tools."""


command.add_command(kyverno)
command.add_command(gatekeeper)
