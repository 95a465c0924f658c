"""`policyd convert`: convert objects of Kueue's v1beta1 to v1beta2."""

import sys

import click
import yaml

from policyd.api.kueue.names import GROUP
from policyd.api.kueue.v1beta1 import (
    KINDS,
    OLD_API_VERSION,
    UnconvertibleError,
    is_known_version,
    upgraded,
)
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
    dropped, as in Kueue. Objects of other groups are copied; so are those of kinds and versions
    that Kueue does not have, which are listed.

    Exits with 0, with 1 if a kind or version is unknown, or with 2 if a document cannot be read.

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
    """Say that Kueue has no such kind or version; None if it has, or the group is another.

    Raises:
        UnconvertibleError: If it is not an object at all.
    """
    value = document.value
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str):
        raise UnconvertibleError("not a Kubernetes object: `kind` is missing")
    group, _, version = str(value.get("apiVersion")).rpartition("/")
    if group != GROUP:
        return None
    if not is_known_version(value):
        hint = f"write it as {OLD_API_VERSION}, or have a cluster do so that has both versions"
        message = f"version `{version}` of `{kind}` cannot be converted"
        return document.finding(message, ("apiVersion",), hint=hint)
    if kind in KINDS:
        return None
    hint = did_you_mean(kind, KINDS) or f"kinds of {GROUP}: {', '.join(sorted(KINDS))}"
    return document.finding(f"kind `{kind}` not found in {group}/{version}", ("kind",), hint=hint)
