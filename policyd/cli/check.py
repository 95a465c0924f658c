"""`policyd check`: load policies, and say everything that is wrong."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

import click

from policyd.cel.environments import DEFAULT_VERSION, VERSIONS
from policyd.cli.formats.files import PATH, load_documents, read_objects
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import as_json, count, exit_code, show_all
from policyd.cli.formats.reports import TEXT_JSON_OR_REPORT, Format, ReportEntry, entries_of, report
from policyd.dialects.registry import dialect_of
from policyd.engine.compile.load import Loaded
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.lint.conflicts import conflicts
from policyd.engine.lint.doubts import lint, lint_document

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
def command(
    paths: tuple[str, ...], output: Literal["text", "json"] | Format, kubernetes: str
) -> None:
    r"""Say everything that is wrong with the policies in PATHS.

    PATHS are files, folders, or - for standard input. Folders are searched for YAML and JSON;
    documents of other kinds are passed over. Policies may be policyd's own, the API server's
    (ValidatingAdmissionPolicy, MutatingAdmissionPolicy) and Kyverno's, as far as they are CEL.
    Every expression is compiled, so that what check accepts does not fail for its wording when an
    object comes. What the API server refuses of its own kinds is wrong too. Doubtful is what
    nothing can match, what fails for an object with nothing but what it must have or under the next
    version of Kubernetes, and two policies that are sure to write the same field differently.

    Exits with 0 if all is fine or merely doubtful, 1 if anything is wrong, 2 if it is no YAML.

    \b
    Examples:
      policyd check policies/
      policyd check --kubernetes 1.37 policies/
      kustomize build overlays/prod | policyd check -
      policyd check -o json policies/ | jq '.findings[].message'
      policyd check -o sarif policies/ > policyd.sarif
    """
    documents, unreadable = read_objects(paths)
    loaded = load_documents(documents, unreadable, dialect_of(VERSIONS_BY_NAME[kubernetes]))
    doubts = [*_doubts(documents, loaded), *_elsewhere(documents, loaded, kubernetes)]
    loaded = replace(loaded, findings=(*loaded.findings, *doubts))
    if output == "json":
        policies = [{"name": p.name, "kind": p.kind, "source": p.place} for p in loaded.policies]
        findings = [as_json(finding) for finding in loaded.findings]
        click.echo(json.dumps({"policies": policies, "findings": findings}, indent=2))
    elif output != "text":
        click.echo(report(output, "check", _entries(loaded)))
    else:
        show_all(loaded.findings)
        found = f", {count(len(loaded.findings), 'finding')}" if loaded.findings else ""
        click.echo(f"{count(len(loaded.policies), 'policy')} fine{found}", err=bool(found))
    if not loaded.policies and not loaded.findings:
        raise click.UsageError(f"no policy in {', '.join(paths)}")
    sys.exit(exit_code(loaded.findings))


def _doubts(documents: Sequence[Document], loaded: Loaded) -> Iterator[Finding]:
    """Yield what may be wrong with policies that can be used."""
    for document in documents:
        yield from lint_document(document)
    for policy in progress(loaded.policies, "checking", len(loaded.policies)):
        yield from lint(policy)
    yield from conflicts(loaded.policies, loaded.bindings)


def _elsewhere(documents: Sequence[Document], loaded: Loaded, kubernetes: str) -> Iterator[Finding]:
    """Yield what the newest versions of Kubernetes would find, and the chosen one does not."""
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
        for policy in loaded.policies
    ]
    return [*fine, *entries_of(loaded.findings)]
