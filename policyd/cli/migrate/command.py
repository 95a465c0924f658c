"""`policyd migrate`: policies of other tools, written in CEL."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import click
import yaml

from policyd.cli.formats.files import read_objects
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import count, exit_code, show_all, unusable
from policyd.cli.policies.export import PolicyDumper, exported_documents
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.errors import PolicydError
from policyd.migrate.kyverno.comments import comments_of
from policyd.migrate.kyverno.policies import Conversion, convert, is_legacy
from policyd.program import USAGE
from policyd.standard_input import PATH

Target = Literal["policyd", "vpol", "vap"]

_WIDTH: Final = 100


@click.group("migrate")
def command() -> None:
    """Write policies of other tools in CEL."""


@command.command("kyverno")
@click.argument("paths", nargs=-1, required=True, type=PATH)
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Choice(["policyd", "vpol", "vap"]),
    default="policyd",
    help="Kind of the result: policyd's Policy, Kyverno's ValidatingPolicy and MutatingPolicy, or"
    " the API server's ValidatingAdmissionPolicy and MutatingAdmissionPolicy.",
)
def kyverno(paths: tuple[str, ...], target: Target) -> None:
    r"""Write Kyverno's legacy ClusterPolicies and Policies in CEL.

    Reads `validate` with patterns, conditions and `foreach`, and `mutate` with overlays and JSON
    patches. A rule that reads ConfigMaps, other objects, or parts of images becomes a
    ValidatingPolicy or MutatingPolicy of Kyverno, which policyd evaluates, too. What has no
    counterpart is listed on standard error, with its line and a remedy; the result then says
    that it is partial.

    Exits with 0 if every policy is converted whole, 1 if a part of one is not, or 2 if a document
    cannot be read: nothing is written then.

    \b
    Examples:
      policyd migrate kyverno require-labels.yaml
      policyd migrate kyverno policies/ -o vap | kubectl apply -f -
      kubectl get clusterpolicies -o yaml | policyd migrate kyverno -
    """
    documents, findings = read_objects(paths)
    converted: list[_Converted] = []
    for document in progress(documents, "converting", len(documents)):
        if not is_legacy(document.value):
            findings.append(_left_out(document))
            continue
        try:
            made = convert(document.value, kyverno=target == "vpol")
        except PolicydError as error:
            findings.append(unusable(document, error))
            continue
        converted.append(_Converted(document, made))
        findings += _findings(document, made)
    if not converted and not findings:
        raise click.UsageError(f"no policy in {', '.join(paths)}")
    if not converted:
        findings = [replace(finding, severity="error", rule="unreadable") for finding in findings]
    text = "".join(_texts(converted, target, findings))
    show_all(findings)
    code = exit_code(findings)
    if code == USAGE:
        click.echo("nothing is written, because not everything could be read", err=True)
        sys.exit(code)
    click.echo(text, nl=False)
    whole = sum(each.conversion.whole for each in converted)
    partial = sum(
        not each.conversion.whole and bool(each.conversion.policies) for each in converted
    )
    shown = f"{count(whole, 'policy')} of {len(converted)} converted whole, {partial} in part"
    click.echo(shown, err=True)
    sys.exit(code)


@dataclass(frozen=True)
class _Converted:
    """A document, and what is made of it."""

    document: Document
    conversion: Conversion


def _left_out(document: Document) -> Finding:
    value = document.value
    kind = value.get("kind") if isinstance(value, dict) else None
    shown = f"`{kind}`" if isinstance(kind, str) else "a document without `kind`"
    finding = document.finding(
        f"{shown} is no ClusterPolicy or Policy of kyverno.io, and is left out",
        ("kind",),
        hint="`policyd export` writes policies in CEL as the API server's own kinds",
    )
    return replace(finding, severity="warning")


def _findings(document: Document, conversion: Conversion) -> Iterator[Finding]:
    for refusal in conversion.refusals:
        named = f"rule `{refusal.rule}`: " if refusal.rule else ""
        hint = refusal.hint or "write this part by hand, or leave the rule to Kyverno"
        yield document.finding(
            f"{named}not converted: {refusal.reason}", refusal.path, hint=hint, of_key=True
        )
    for index, note in conversion.notes:
        finding = document.finding(note, ("spec", "rules", index, "validate", "message"))
        yield replace(finding, severity="warning")


def _texts(
    converted: Sequence[_Converted], target: Target, findings: list[Finding]
) -> Iterator[str]:
    """Yield the text of each policy, with the comments of its rules; append further findings."""
    for each in converted:
        before, of_rules = _comments(each.document)
        heading = [*before, *_partial(each)]
        for policy, places in zip(each.conversion.policies, each.conversion.places, strict=True):
            comments = [*heading, *(line for place in places for line in of_rules[place])]
            heading = []
            objects = [policy] if target != "vap" else _exported(policy, each.document, findings)
            for obj in objects:
                yield _text(obj, comments)
                comments = []


def _partial(each: _Converted) -> list[str]:
    if each.conversion.whole:
        return []
    name = each.document.value["metadata"]["name"]
    reasons = [
        f"  {refusal.rule or 'the policy'}: {refusal.reason}"
        for refusal in each.conversion.refusals
    ]
    return [f"Partial: of the ClusterPolicy {name}, this is not converted:", *reasons]


def _comments(document: Document) -> tuple[list[str], list[list[str]]]:
    starts = []
    for index in range(len(document.value["spec"]["rules"])):
        position = document.position(("spec", "rules", index))
        starts.append(position.line - document.first_line if position else 1)
    return comments_of(document.text, starts)


def _exported(
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


def _text(policy: dict[str, Any], comments: Sequence[str]) -> str:
    lines = "".join(f"# {line}".rstrip() + "\n" for line in comments)
    return "---\n" + lines + yaml.dump(policy, Dumper=_Dumper, sort_keys=False, width=_WIDTH)
