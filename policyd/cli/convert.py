"""`policyd convert`: convert objects of Kueue's v1beta1 to v1beta2."""

import sys

import click
import yaml

from policyd.api.kueue.v1beta1 import KINDS, OLD_API_VERSION, UnconvertibleError, upgraded
from policyd.api.meta import Json
from policyd.cli.formats.documents import read_objects
from policyd.cli.formats.progress import progress
from policyd.cli.formats.report import count, exit_code, show_all, unusable
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.errors import did_you_mean
from policyd.standard_input import PATH


@click.command("convert")
@click.argument("paths", nargs=-1, required=True, type=PATH)
def command(paths: tuple[str, ...]) -> None:
    r"""Write Kueue's objects of version v1beta1 as v1beta2, which is what policyd serves.

    Fields that v1beta2 does not have, such as `retryDelayMinutes` of an AdmissionCheck, are
    dropped, as in Kueue. Objects of other groups are copied; so are those of kinds that Kueue's
    v1beta1 does not have, which are listed.

    Exits with 0, with 1 if a kind is unknown, or with 2 if a document cannot be read.

    \b
    Examples:
      policyd convert queues.yaml | kubectl apply -f -
      kubectl get clusterqueues.v1beta1.kueue.x-k8s.io -o yaml | policyd convert -
    """
    documents, findings = read_objects(paths)
    given: list[Json] = []
    written: list[Json] = []
    for document in progress(documents, "converting", len(documents)):
        try:
            unknown = _unknown(document)
            findings += [unknown] if unknown else []
            written.append(document.value if unknown else upgraded(document.value))
            given.append(document.value)
        except UnconvertibleError as error:
            findings.append(unusable(document, error))
    show_all(findings)
    click.echo(yaml.safe_dump_all(written, sort_keys=False), nl=False)
    changed = sum(old != new for old, new in zip(given, written, strict=True))
    click.echo(f"{count(changed, 'object')} converted", err=True)
    sys.exit(exit_code(findings))


def _unknown(document: Document) -> Finding | None:
    """Say that v1beta1 does not have the kind of an object; None if it has, or is not asked.

    Raises:
        UnconvertibleError: If it is not an object at all.
    """
    value = document.value
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        raise UnconvertibleError("not a Kubernetes object: `kind` is missing")
    if kind in KINDS or value.get("apiVersion") != OLD_API_VERSION:
        return None
    hint = did_you_mean(kind, KINDS) or f"kinds of {OLD_API_VERSION}: {', '.join(sorted(KINDS))}"
    return document.finding(f"kind `{kind}` not found in {OLD_API_VERSION}", ("kind",), hint=hint)
