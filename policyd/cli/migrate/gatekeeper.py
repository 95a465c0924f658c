"""`policyd migrate gatekeeper`: constraints of Gatekeeper, written in CEL."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import click

from policyd.cli.formats.documents import read_objects
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import count
from policyd.cli.migrate.writing import (
    PATHS,
    PROOFS,
    TARGET,
    Target,
    end,
    exported,
    left_out,
    proved,
    text,
)
from policyd.dialects.gatekeeper.templates import is_template
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.objects.workloads import value_at
from policyd.migrate.gatekeeper.constraints import (
    SourceTemplate,
    UnconvertibleConstraintError,
    as_kyverno,
    convert_constraint,
    is_constraint,
    library,
    of_library,
    source_of,
)


@click.command("gatekeeper")
@PATHS
@TARGET
@PROOFS
def gatekeeper(
    paths: tuple[str, ...],
    target: Target,
    steps: int | None,
    seconds: float,
    against: str | None,
) -> None:
    r"""Write Gatekeeper's constraints in CEL, each with its template.

    A template that has CEL is used as it is. Of templates that are in Rego alone, those of
    gatekeeper-library are known: their constraints get CEL that decides the same, also without the
    template in PATHS. Other Rego is not read. What has no counterpart is listed on standard error,
    with its line and a remedy.

    --against compares the result with policies that were written by hand, and --prove looks for
    policies without effect, as in `policyd migrate kyverno`.

    Exits with 0 if every constraint is converted, 1 if one is not, or 2 if a document cannot be
    read: nothing is written then.

    \b
    Examples:
      policyd migrate gatekeeper templates/ constraints/
      policyd migrate gatekeeper constraints/ -o vap | kubectl apply -f -
    """
    documents, findings = read_objects(paths)
    if not documents and not findings:
        raise click.UsageError(f"no constraint in {', '.join(paths)}")
    templates = _Templates()
    constraints = []
    for document in documents:
        if is_template(document.value):
            findings += templates.add(document)
        elif is_constraint(document.value):
            constraints.append(document)
        else:
            findings.append(left_out(document, "constraint or ConstraintTemplate of Gatekeeper"))
    if not constraints and not templates:
        findings = [replace(finding, severity="error", rule="unreadable") for finding in findings]
    converted: list[tuple[Document, str]] = []
    taken = set[str]()
    for document in progress(constraints, "converting", len(constraints)):
        try:
            source, template = templates.of(str(document.value.get("kind")))
            name = _free_name(document.value, taken)
            policy = convert_constraint(source, document, template, name=name)
        except UnconvertibleConstraintError as error:
            findings.append(_unconverted(document, error))
            continue
        made = "".join(_texts(policy, source, target, document, findings))
        converted.append((document, made))
    findings += proved(converted, steps, seconds, against)
    whole = sum(bool(made) for _, made in converted)
    shown = f"{count(whole, 'constraint')} of {len(constraints)} converted"
    end("".join(made for _, made in converted), findings, shown)


class _Templates:
    """The templates of the files, by the kind of their constraints."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[SourceTemplate | None, Document]] = {}

    def __len__(self) -> int:
        """Return of how many kinds they are."""
        return len(self._found)

    def add(self, document: Document) -> Iterator[Finding]:
        """Add a template; yield why it cannot be used."""
        kind = str(value_at(document.value, ("spec", "crd", "spec", "names", "kind")) or "")
        try:
            self._found[kind] = source_of(document), document
        except UnconvertibleConstraintError as error:
            self._found[kind] = None, document
            yield _unconverted(document, error)

    def of(self, kind: str) -> tuple[SourceTemplate, Document | None]:
        """Return the CEL of a kind's template, and the template if it is among the files.

        Raises:
            UnconvertibleConstraintError: If there is none.
        """
        if kind in self._found:
            source, document = self._found[kind]
            if source is None:
                raise UnconvertibleConstraintError(f"its template `{kind}` is not", ("kind",))
            return source, document
        if kind in library():
            return of_library(kind), None
        raise UnconvertibleConstraintError(
            f"the template of `{kind}` is not among these files",
            ("kind",),
            hint="give the file of the template, too",
        )


def _texts(
    policy: dict[str, Any],
    source: SourceTemplate,
    target: Target,
    document: Document,
    findings: list[Finding],
) -> Iterator[str]:
    comments = []
    if source.library is not None:
        comments = [f"The template of {source.kind} is in Rego: this CEL decides the same."]
    made = [policy] if target == "policyd" else [as_kyverno(policy)]
    if target == "vap":
        made, wrong = exported(policy, document)
        findings += wrong
    for obj in made:
        yield text(obj, comments)
        comments = []


def _free_name(constraint: Any, taken: set[str]) -> str:  # noqa: ANN401 - a JSON document
    """Return the name of a constraint's policy: with its kind if another one has the name."""
    name = str(value_at(constraint, ("metadata", "name")) or "constraint")
    if name in taken:
        name = f"{name}-{str(constraint.get('kind')).lower()}"
    taken.add(name)
    return name


def _unconverted(document: Document, error: UnconvertibleConstraintError) -> Finding:
    hint = error.hint or "write this part by hand, or leave it to Gatekeeper"
    return document.finding(f"not converted: {error}", error.path, hint=hint, of_key=True)
