"""`policyd schema`: the shape of policies and cases, for editors."""

import json
from typing import Literal

import click

from policyd.engine.cases import cases_shape
from policyd.engine.schema import policy_shape


@click.command("schema")
@click.argument("what", type=click.Choice(["policy", "cases"]), default="policy")
def command(what: Literal["policy", "cases"]) -> None:
    r"""Print the JSON schema of a policy, or of a file of cases.

    With it, an editor completes fields and marks mistakes while you write. It is the schema that
    `policyd check` uses.

    \b
    Examples:
      policyd schema > policy.schema.json
      policyd schema cases > cases.schema.json
      # first line of a policy, for the YAML language server:
      #   yaml-language-server: $schema=policy.schema.json
    """
    shape = policy_shape() if what == "policy" else cases_shape()
    click.echo(json.dumps(shape.schema, indent=2))
