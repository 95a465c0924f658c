"""What the commands of `policyd migrate` share: their options, and how policies are written."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, NoReturn

import click
import yaml

from policyd.cli.formats.documents import load
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import count, exit_code, show_all
from policyd.cli.options import together
from policyd.cli.policies.export import PolicyDumper, exported_documents
from policyd.cli.policies.proving import (
    DEFAULT_STEPS,
    PROVE_TIMEOUT,
    Proofs,
    SolverSteps,
    differences,
    proved_warnings,
)
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import load_policies
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.objects.workloads import value_at
from policyd.patch.operations import Path
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
_PROVE: Final = click.option(
    "--prove",
    "steps",
    type=SolverSteps(),
    metavar="STEPS",
    help="Look for policies of the result that never or always deny, or are shadowed: with so many"
    " steps of the solver for each question and kind of object.",
)
_AGAINST: Final = click.option(
    "--against",
    type=PATH,
    metavar="FILE",
    help="Prove that each policy denies what the policy of its name in FILE denies, within the"
    f" steps of --prove, {DEFAULT_STEPS} by default.",
)
PROOFS: Final = together(_PROVE, _AGAINST, PROVE_TIMEOUT)
"""The options of proofs."""


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
        f"{shown} is not a {wanted}, and is left out",
        ("kind",),
        hint=_hint(str(value_at(value, ("apiVersion",)) or "").partition("/")[0], str(kind)),
    )
    return replace(finding, severity="warning")


def _hint(group: str, kind: str) -> str | None:
    """Return what to do with a document of a kind that is not converted."""
    match group, kind:
        case ("constraints.gatekeeper.sh", _) | ("templates.gatekeeper.sh", _):
            return "`policyd migrate gatekeeper` converts constraints with their templates"
        case "kyverno.io", "ClusterPolicy" | "Policy":
            return "`policyd migrate kyverno` converts it"
        case "kyverno.io", "CleanupPolicy" | "ClusterCleanupPolicy":
            return "write it as a DeletingPolicy of policies.kyverno.io"
        case ("policyd.io", _) | ("policies.kyverno.io", _):
            return "`policyd export` writes policies in CEL as the API server's own kinds"
        case _:
            return None


def exported(
    policy: dict[str, Any], document: Document, path: Path = ()
) -> tuple[list[dict[str, Any]], list[Finding]]:
    """Return a policy as the API server's own kinds, and what is found.

    There are no objects if these kinds cannot say all of it.

    Args:
        policy: The policy.
        document: What it is made of.
        path: The part of that; all by default.
    """
    objects: list[dict[str, Any]] = []
    findings: list[Finding] = []
    for made in exported_documents([Document(policy, document.source)], "v1"):
        objects += made.objects
        for finding in made.findings:
            shown = f"`{policy['metadata']['name']}`: {finding.message}"
            found = document.finding(shown, path, hint=finding.hint)
            findings.append(replace(found, severity=finding.severity))
    return objects, findings


def proved(
    results: Iterable[tuple[Document, str]],
    steps: int | None,
    seconds: float,
    against: str | None,
) -> Iterator[Finding]:
    """Yield what proofs find in converted policies.

    Args:
        results: What was converted, and the text that it became.
        steps: Of the solver, for each question; None for no proofs of the result alone.
        seconds: For all proofs.
        against: The file with the policies that the result is compared with, if any.

    Raises:
        PolicydError: If the solver is not installed.
    """
    if steps is None and against is None:
        return
    proofs = Proofs(steps or DEFAULT_STEPS, seconds)
    twins = () if against is None else load([against]).policies
    made = [
        (document, load_policies(text, "result", EVERY_FORMAT).policies)
        for document, text in results
    ]
    compared = equal = 0
    for document, policies in progress(made if against else (), "proving", len(made)):
        name = str(value_at(document.value, ("metadata", "name")))
        found = [*_against(proofs, document, name, policies, twins, alone=len(made) == 1)]
        compared, equal = compared + 1, equal + (not found)
        yield from found
    if against is not None:
        shown = f"{equal} of {count(compared, 'policy')} proved to deny what {against} denies"
        click.echo(f"{shown}, {proofs.bound}", err=True)
    if steps is not None:
        yield from proved_warnings(proofs, [each for _, policies in made for each in policies])
    proofs.end()


def _against(  # noqa: PLR0913 - each says something of one comparison
    proofs: Proofs,
    document: Document,
    name: str,
    policies: Sequence[CompiledPolicy],
    twins: Sequence[CompiledPolicy],
    *,
    alone: bool,
) -> Iterator[Finding]:
    """Compare what a document became with the policies of its name, or all if it is alone."""
    named = tuple(each for each in twins if each.name == name)
    others = named or (tuple(twins) if alone else ())
    if not others:
        finding = document.finding(f"there is no policy `{name}` to compare the result with")
        yield replace(finding, severity="warning", rule="proof")
    elif policies:
        names = f"the result of `{name}`", f"`{others[0].name}` in {others[0].place}"
        place = document.finding("", ("metadata", "name"))
        yield from differences(proofs, tuple(policies), others, names=names, place=place)


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
