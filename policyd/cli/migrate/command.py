"""`policyd migrate`: policies and queues of other tools."""

import click

from policyd.cli.migrate.gatekeeper import gatekeeper
from policyd.cli.migrate.kueue import kueue
from policyd.cli.migrate.kyverno import kyverno


@click.group("migrate")
def command() -> None:
    """Bring policies and queues over from other tools."""


command.add_command(kyverno)
command.add_command(gatekeeper)
command.add_command(kueue)
