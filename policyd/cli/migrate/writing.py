"""What the commands of `policyd migrate` share: their options, and how policies are written."""

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NoReturn

import click
import yaml

from policyd.cli.formats.report import exit_code, show_all
from policyd.cli.policies.export import PolicyDumper, exported_documents
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.program import USAGE
from policyd.standard_input import PATH

Target = Literal["policyd", "vpol", "vap"]

_WIDTH: Final = 100

PATHS: Final = click.argument("paths", nargs=-1, required=True, type=PATH)
TARGET: Final = click.option(
    "-o",
    "--output",
    "target",
    type=click.Choice(["policyd", "vpol", "vap"]),
    default="policyd",
    help="Kind of the result: policyd's Policy, Kyverno's ValidatingPolicy and MutatingPolicy, or"
    " the API server's ValidatingAdmissionPolicy and MutatingAdmissionPolicy.",
)


def end(text: str, findings: Sequence[Finding], shown: str) -> NoReturn:
    """Write the result unless a document could not be read, and exit."""
    show_all(findings)
    code = exit_code(findings)
    if code == USAGE:
        click.echo("nothing is written, because not everything could be read", err=True)
        sys.exit(code)
    click.echo(text, nl=False)
    click.echo(shown, err=True)
    sys.exit(code)


def left_out(document: Document, wanted: str) -> Finding:
    """Return the warning that a document is not of the kinds that are wanted."""
    value = document.value
    kind = value.get("kind") if isinstance(value, dict) else None
    shown = f"`{kind}`" if isinstance(kind, str) else "a document without `kind`"
    finding = document.finding(
        f"{shown} is no {wanted}, and is left out",
        ("kind",),
        hint="`policyd export` writes policies in CEL as the API server's own kinds",
    )
    return replace(finding, severity="warning")


def exported(
    policy: dict[str, Any], document: Document, findings: list[Finding]
) -> list[dict[str, Any]]:
    """Return a policy as the API server's own kinds."""
    objects: list[dict[str, Any]] = []
    for made in exported_documents([Document(policy, document.source)], "v1"):
        objects += made.objects
        for finding in made.findings:
            name = policy["metadata"]["name"]
            findings.append(document.finding(f"`{name}`: {finding.message}", hint=finding.hint))
    return objects


class _Dumper(PolicyDumper):
    """Writes lists of words in one line, and long texts as blocks."""


def _list(dumper: yaml.CSafeDumper, value: list[Any]) -> yaml.SequenceNode:
    words = all(isinstance(each, str) for each in value)
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=words)


def _long(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    if style is None and (len(text) > _WIDTH or text.count("'") > 1) and text == text.strip():
        style = ">"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(list, _list)
_Dumper.add_representer(str, _long)


def text(policy: dict[str, Any], comments: Sequence[str]) -> str:
    """Return a policy as a YAML document, below its comments."""
    lines = "".join(f"# {line}".rstrip() + "\n" for line in comments)
    return "---\n" + lines + yaml.dump(policy, Dumper=_Dumper, sort_keys=False, width=_WIDTH)
