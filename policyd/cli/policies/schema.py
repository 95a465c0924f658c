"""`policyd schema`: the shape of policies and cases, for editors."""

import copy
import json
from collections.abc import Callable, Mapping
from typing import Literal

import click
import msgspec

from policyd.api import policy
from policyd.api.meta import Json
from policyd.engine.compile.native import shape_of
from policyd.engine.compile.schema import DocumentShape, policy_shape
from policyd.engine.offline import cases
from policyd.engine.offline.cases import cases_shape
from policyd.field_descriptions import field_descriptions


@click.command("schema")
@click.argument("what", type=click.Choice(["policy", "binding", "cases"]), default="policy")
def command(what: Literal["policy", "binding", "cases"]) -> None:
    r"""Print the JSON schema of a policy, of a binding, or of a file of cases.

    With it, an editor completes fields and marks mistakes while you write. It is the schema that
    `policyd check` uses.

    \b
    Examples:
      policyd schema > policy.schema.json
      policyd schema cases > cases.schema.json
      # first line of a policy, for the YAML language server:
      #   yaml-language-server: $schema=policy.schema.json
    """
    shape = _SHAPES[what]()
    click.echo(json.dumps(_described(shape.schema), indent=2))


_SHAPES: Mapping[str, Callable[[], DocumentShape]] = {
    "policy": policy_shape,
    "binding": lambda: shape_of("PolicyBinding"),
    "cases": cases_shape,
}


def _described(schema: Json) -> Json:
    """Add a description to each field, for editors."""
    described = copy.deepcopy(schema)
    for name, definition in described["$defs"].items():
        struct = getattr(policy, name, None) or getattr(cases, name, None)
        if struct is None:
            continue
        notes = field_descriptions(struct)
        for field in msgspec.structs.fields(struct):
            if field.name in notes and field.encode_name in definition.get("properties", {}):
                definition["properties"][field.encode_name]["description"] = notes[field.name]
    return described
