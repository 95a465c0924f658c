"""`policyd check`: load policies, and say everything that is wrong."""

import json
import sys
from typing import Literal

import click

from policyd.cli.files import PATH, load
from policyd.cli.report import as_json, count, show_all


@click.command("check")
@click.argument("paths", nargs=-1, required=True, type=PATH)
@click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to say it."
)
def command(paths: tuple[str, ...], output: Literal["text", "json"]) -> None:
    r"""Say everything that is wrong with the policies in PATHS.

    PATHS are files, folders, or - for standard input. Folders are searched for YAML and JSON;
    documents of other kinds are passed over. Every expression is compiled, so that what check
    accepts does not fail for its wording when an object comes.

    Exits with 0 if all is fine, 1 if anything is wrong.

    \b
    Examples:
      policyd check policies/
      kustomize build overlays/prod | policyd check -
      policyd check -o json policies/ | jq '.findings[].message'
    """
    loaded = load(paths)
    if output == "json":
        policies = [{"name": p.name, "source": p.place} for p in loaded.policies]
        findings = [as_json(finding) for finding in loaded.findings]
        click.echo(json.dumps({"policies": policies, "findings": findings}, indent=2))
    else:
        show_all(loaded.findings)
        found = f", {count(len(loaded.findings), 'finding')}" if loaded.findings else ""
        click.echo(f"{count(len(loaded.policies), 'policy')} fine{found}", err=bool(found))
    if not loaded.policies and not loaded.findings:
        raise click.UsageError(f"no policy in {', '.join(paths)}")
    sys.exit(1 if loaded.findings else 0)
