"""`policyd check`: load policies, and say everything that is wrong."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import click

from policyd.cel.environments import DEFAULT_VERSION, VERSIONS
from policyd.cli.formats.documents import load_documents, read_objects
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import as_json, count, exit_code, show_all
from policyd.cli.formats.reports import TEXT_JSON_OR_REPORT, Format, ReportEntry, entries_of, report
from policyd.cli.policies.proving import PROVE_TIMEOUT, Proofs, SolverSteps, proved_warnings
from policyd.dialects.registry import dialect_of
from policyd.engine.compile.load import Loaded
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.lint.conflicts import conflicts
from policyd.engine.lint.policy_warnings import lint, lint_document
from policyd.registration.interest import widened_rules
from policyd.standard_input import PATH

VERSIONS_BY_NAME = {f"{major}.{minor}": (major, minor) for major, minor in VERSIONS}

_NEWEST = ("1.36", "1.37")
"""Versions that differ, and between which clusters are to be moved now."""


@click.command("check")
@click.argument("paths", nargs=-1, required=True, type=PATH)
@TEXT_JSON_OR_REPORT
@click.option(
    "--kubernetes",
    type=click.Choice(list(VERSIONS_BY_NAME)),
    default=".".join(map(str, DEFAULT_VERSION)),
    help="The version of Kubernetes that expressions are checked for.",
)
@click.option(
    "--prove",
    "steps",
    type=SolverSteps(),
    metavar="STEPS",
    help="Look for policies that never or always deny, or are shadowed by another: with so many"
    " steps of the solver for each question and kind of object.",
)
@PROVE_TIMEOUT
def command(
    paths: tuple[str, ...],
    output: Literal["text", "json"] | Format,
    kubernetes: str,
    steps: int | None,
    seconds: float,
) -> None:
    r"""Check the policies in PATHS and report every error.

    PATHS are files, folders, or - for standard input. Folders are searched for YAML and JSON;
    documents of other kinds are skipped. Policies may be policyd's own, the API server's
    (ValidatingAdmissionPolicy, MutatingAdmissionPolicy) and Kyverno's, as far as they are CEL.
    Every expression is compiled, so that an accepted policy has no syntax or type error when an
    object arrives. What the API server refuses in its own kinds is an error too. A warning is
    given for a rule that nothing can match, for an expression that fails on an object with only
    its required fields or under the next version of Kubernetes, for rules with so many
    combinations that the webhooks are called for more objects, and for two policies that are
    certain to write different values into the same field.

    With --prove, a solver looks for policies that deny no request, or each that they match, or
    none that another policy of the set does not deny, too: a warning each. How far it looks is
    counted in its steps, as by `policyd prove`, so that the warnings do not depend on the machine.
    It needs the extra `prove`: pip install 'policyd[prove]'.

    Exits with 0 if there is no error (warnings are allowed), 1 if there is one, 2 if a file is
    not YAML.

    \b
    Examples:
      policyd check policies/
      policyd check --kubernetes 1.37 policies/
      policyd check --prove 3000000 policies/
      kustomize build overlays/prod | policyd check -
      policyd check -o json policies/ | jq '.findings[].message'
      policyd check -o sarif policies/ > policyd.sarif
    """
    documents, unreadable = read_objects(paths)
    loaded = load_documents(documents, unreadable, dialect_of(VERSIONS_BY_NAME[kubernetes]))
    warnings = [*_warnings(documents, loaded), *_elsewhere(documents, loaded, kubernetes)]
    if steps is not None:
        proofs = Proofs(steps, seconds)
        warnings += proved_warnings(proofs, loaded.policies)
        proofs.end()
    loaded = replace(loaded, findings=(*loaded.findings, *warnings))
    if not loaded.all_policies and not loaded.findings:
        raise click.UsageError(f"no policy in {', '.join(paths)}")
    if output == "json":
        policies = [
            {"name": p.name, "kind": p.kind, "source": p.place} for p in loaded.all_policies
        ]
        findings = [as_json(finding) for finding in loaded.findings]
        click.echo(json.dumps({"policies": policies, "findings": findings}, indent=2))
    elif output != "text":
        click.echo(report(output, "check", _entries(loaded)))
    else:
        show_all(loaded.findings)
        found = f", {count(len(loaded.findings), 'finding')}" if loaded.findings else ""
        click.echo(f"{count(len(loaded.all_policies), 'policy')} valid{found}", err=bool(found))
    sys.exit(exit_code(loaded.findings))


def _warnings(documents: Sequence[Document], loaded: Loaded) -> Iterator[Finding]:
    """Yield warnings about valid policies."""
    for document in documents:
        yield from lint_document(document)
    for policy in progress(loaded.policies, "checking", len(loaded.policies)):
        yield from lint(policy)
        yield from widened_rules(policy)
    yield from conflicts(loaded.policies, loaded.bindings)


def _elsewhere(documents: Sequence[Document], loaded: Loaded, kubernetes: str) -> Iterator[Finding]:
    """Yield the errors that only the newest versions of Kubernetes report."""
    known = {finding.message for finding in loaded.findings}
    for name in _NEWEST:
        if name == kubernetes:
            continue
        there = load_documents(documents, (), dialect_of(VERSIONS_BY_NAME[name]))
        for finding in there.findings:
            if finding.message not in known and finding.severity == "error":
                message = f"under Kubernetes {name}: {finding.message}"
                yield replace(finding, message=message, severity="warning", rule="dialect")


def _entries(loaded: Loaded) -> list[ReportEntry]:
    """Return the policies that are fine, and the files that have findings."""
    fine = [
        ReportEntry(name=policy.id, group=policy.place.rsplit(":", 2)[0])
        for policy in loaded.all_policies
    ]
    return [*fine, *entries_of(loaded.findings)]
