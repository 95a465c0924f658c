"""`policyd convert`: what was written for Kueue's v1beta1, for a cluster that serves v1beta2."""

import sys

import click
import yaml

from policyd.api.kueue.v1beta1 import KINDS, OLD_API_VERSION, upgraded
from policyd.cli.files import PATH, read_objects
from policyd.cli.report import count, show_all
from policyd.engine.documents import Document
from policyd.engine.findings import Finding
from policyd.errors import did_you_mean


@click.command("convert")
@click.argument("paths", nargs=-1, required=True, type=PATH)
def command(paths: tuple[str, ...]) -> None:
    r"""Write Kueue's objects of version v1beta1 as v1beta2, which is what policyd serves.

    What v1beta2 cannot say, such as `retryDelayMinutes` of an AdmissionCheck, is left out, as Kueue
    leaves it out. Objects of other groups are passed on as they are; so are those of kinds that
    Kueue's v1beta1 does not have, which are named.

    Exits with 0, or 1 if something cannot be read or is of a kind that is not known.

    \b
    Examples:
      policyd convert queues.yaml | kubectl apply -f -
      kubectl get clusterqueues.v1beta1.kueue.x-k8s.io -o yaml | policyd convert -
    """
    documents, findings = read_objects(paths)
    findings = [*findings, *map(_unknown, filter(_is_unknown, documents))]
    show_all(findings)
    given = [document.value for document in documents]
    written = [d.value if _is_unknown(d) else upgraded(d.value) for d in documents]
    click.echo(yaml.safe_dump_all(written, sort_keys=False), nl=False)
    changed = sum(old != new for old, new in zip(given, written, strict=True))
    click.echo(f"{count(changed, 'object')} converted", err=True)
    sys.exit(1 if findings else 0)


def _is_unknown(document: Document) -> bool:
    value = document.value
    of_kueue = isinstance(value, dict) and value.get("apiVersion") == OLD_API_VERSION
    return of_kueue and value.get("kind") not in KINDS


def _unknown(document: Document) -> Finding:
    kind = str(document.value.get("kind", ""))
    hint = did_you_mean(kind, KINDS) or f"kinds of {OLD_API_VERSION}: {', '.join(sorted(KINDS))}"
    return document.finding(f"there is no kind `{kind}` in {OLD_API_VERSION}", ("kind",), hint=hint)
