"""`policyd crds`: the kinds that policyd brings along."""

import click
import yaml

from policyd.api.crd import KINDS, definition
from policyd.field_notes import field_notes


@click.command("crds")
@click.option(
    "--full",
    is_flag=True,
    help="With patterns, bounds and rules, which otherwise the webhooks alone check.",
)
def command(*, full: bool) -> None:
    """Print all CustomResourceDefinitions as YAML.

    Install them with `policyd crds | kubectl apply -f -`. Where Kueue is installed, its own are
    used as they are: leave them.
    """
    documents = [definition(kind, notes=field_notes, full=full) for kind in KINDS]
    click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)
