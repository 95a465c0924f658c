"""`policyd crds`: the kinds that policyd brings along."""

import click
import yaml

from policyd.api.crd import KINDS, definition
from policyd.field_descriptions import field_descriptions


@click.command("crds")
@click.option(
    "--full",
    is_flag=True,
    help="With patterns, bounds and rules, which only the webhooks check in the slim kinds.",
)
def command(*, full: bool) -> None:
    """Print all CustomResourceDefinitions as YAML.

    Install them with `policyd crds | kubectl apply -f -`. If Kueue is installed, keep its own
    definitions: policyd uses them.
    """
    documents = [definition(kind, notes=field_descriptions, full=full) for kind in KINDS]
    click.echo(yaml.safe_dump_all(documents, sort_keys=False), nl=False)
