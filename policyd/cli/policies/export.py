"""`policyd export`: policies in the API server's own kinds, for clusters without policyd."""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import click
import yaml

from policyd.api.meta import Json
from policyd.cli.formats.documents import read_objects
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import count, exit_code, show_all
from policyd.cli.policies.proving import PROVE_TIMEOUT, Proofs, SolverSteps, differences
from policyd.dialects.exports import EXPORTS, ExportFormat
from policyd.dialects.registry import EVERY_FORMAT
from policyd.engine.compile.load import Loaded, gather, is_policy, load_document
from policyd.engine.compile.native import GROUP, is_binding, is_native
from policyd.engine.documents.reading import Document
from policyd.engine.export.policies import Exported, export_policy
from policyd.engine.model.compiled import CompiledException
from policyd.program import FINDINGS
from policyd.standard_input import PATH

Version = Literal["v1", "v1beta1"]


STANDARD_OUTPUT: Final = "-"


@click.command("export")
@click.argument("paths", nargs=-1, required=True, type=PATH)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True, path_type=Path),
    help="File to write; - is standard output.",
)
@click.option(
    "--api-version",
    "version",
    type=click.Choice(["v1", "v1beta1"]),
    default="v1",
    help="Version of admissionregistration.k8s.io: MutatingAdmissionPolicy is v1beta1 in 1.34.",
)
@click.option("--partial", is_flag=True, help="Exit with 0 even if some policies need policyd.")
@click.option(
    "--prove",
    "steps",
    type=SolverSteps(),
    metavar="STEPS",
    help="Prove that each exported policy denies what its source denies: with so many steps of the"
    " solver for each policy and kind of object.",
)
@PROVE_TIMEOUT
def command(  # noqa: PLR0913 - one for each option
    paths: tuple[str, ...],
    output: Path | None,
    version: Version,
    steps: int | None,
    seconds: float,
    *,
    partial: bool,
) -> None:
    r"""Write policies as ValidatingAdmissionPolicies and MutatingAdmissionPolicies.

    References to `pod` and `workload`, and injected values, are written in plain CEL; a policy
    for kinds with pods in different places becomes one policy for each place. The API server's
    own policies are copied, Kyverno's are written in its kinds. A policy that needs policyd or
    Kyverno is skipped as a whole, with the reason on standard error.

    With --prove, a solver compares the validations of each exported policy with those of its
    source. A policy that differs is skipped, and an object that only one of them denies is shown;
    one for which there is no proof is a warning. Bindings and mutations are not compared. It needs
    the extra `prove`: pip install 'policyd[prove]'.

    Exits with 0 if every policy is exported, 1 if one is not, 2 if a file is not YAML.

    \b
    Examples:
      policyd export --prove 3000000 policies/ > native.yaml
      policyd export policies/ | kubectl create -f -
      policyd export -o native.yaml policies/gpu
      policyd export --partial policies/ | policyd check -
    """
    documents, findings = read_objects(paths)
    made = [*exported_documents(documents, version)]
    if steps is not None:
        made = [*_proved(documents, made, Proofs(steps, seconds))]
    findings += [finding for one in made for finding in one.findings]
    objects = [obj for one in made for obj in one.objects]
    show_all(findings)
    if not objects and not findings:
        raise click.UsageError(f"no policy in {', '.join(paths)}")
    text = yaml.dump_all(objects, Dumper=PolicyDumper, sort_keys=False, width=100)
    if output is None or str(output) == STANDARD_OUTPUT:
        click.echo(text, nl=False)
    else:
        output.write_text(text, encoding="utf-8")
    policies = sum(obj["kind"].endswith("Policy") for obj in objects)
    click.echo(f"{count(policies, 'policy')} exported", err=True)
    code = exit_code(findings)
    sys.exit(0 if partial and code == FINDINGS else code)


def _proved(
    documents: Sequence[Document], made: Sequence[Exported], proofs: Proofs
) -> Iterator[Exported]:
    """Compare exported policies with their sources; leave out those that differ."""
    compared = proved = 0
    pairs = zip(documents, made, strict=True)
    for document, one in progress(pairs, "proving", len(made)):
        sources = load_document(document, EVERY_FORMAT).policies
        if not one.objects or is_native(document.value) or not any(p.validations for p in sources):
            yield one
            continue
        results = gather(
            load_document(Document(obj, "export"), EVERY_FORMAT) for obj in one.objects
        )
        names = f"`{sources[0].name}`", "the exported policy"
        found = [
            *differences(proofs, sources, results.policies, names=names, place=document.finding(""))
        ]
        compared, proved = compared + 1, proved + (not found)
        objects = one.objects if exit_code(found) == 0 else ()
        yield Exported(objects, (*one.findings, *found))
    shown = f"{proved} of {count(compared, 'policy')} with validations"
    click.echo(f"{shown} proved to deny what the source denies, {proofs.bound}", err=True)
    proofs.end()


def exported_documents(documents: Sequence[Document], version: Version) -> Iterator[Exported]:
    """Export each document; the bindings of a policy may be in any of them."""
    loaded = [
        (document, load_document(document, EVERY_FORMAT))
        for document in progress(documents, "exporting", len(documents))
    ]
    together = gather(part for _, part in loaded)
    bindings, exceptions = together.bindings, together.exceptions
    for document, part in loaded:
        wrong = tuple(finding for finding in part.findings if finding.severity == "error")
        if wrong:
            yield Exported((), wrong)
        elif is_policy(document.value):
            yield from _own(document, part, bindings, version)
        elif is_native(document.value) or is_binding(document.value):
            yield Exported(tuple(_native(document.value, version)))
        elif (written_in := EVERY_FORMAT.format_of(document.value)) is not None:
            export = partial(EXPORTS[written_in], version=version)
            yield _foreign(document, part, exceptions, export)


def _own(
    document: Document, part: Loaded, bindings: Sequence[Any], version: Version
) -> Iterator[Exported]:
    for policy in part.policies:
        own = [b for b in bindings if (b.policy_kind, b.policy) == (policy.kind, policy.name)]
        yield export_policy(policy, document, own, version=version)


def _foreign(
    document: Document,
    part: Loaded,
    exceptions: Sequence[CompiledException],
    export: ExportFormat,
) -> Exported:
    if part.policies:
        return export(part.policies, document, exceptions)
    if part.exceptions:
        message = "the API server knows no exceptions: a condition of the policy has to say it"
        return Exported((), (document.finding(message, ("kind",)),))
    return Exported(())


def _native(value: Json, version: Version) -> Iterator[Json]:
    """Pass on a policy of the API server's in another version, whose fields are the same."""
    if not value["apiVersion"].startswith(f"{GROUP}/"):
        return  # a binding of policyd's own went into what it binds
    kept = {key: field for key, field in value.items() if key != "status"}
    yield {**kept, "apiVersion": f"{GROUP}/{version}"}


class PolicyDumper(yaml.CSafeDumper):
    """Writes long expressions as blocks, and no anchors: kubectl reads them, people do not."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's signature
        """Return that no value is written as an alias."""
        return True


def _text(dumper: yaml.CSafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


PolicyDumper.add_representer(str, _text)
