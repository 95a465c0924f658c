"""Report forbidden reads of a namespaced policy, and mark what Kyverno refuses to store."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from policyd.api.kinds import resource_for_kind
from policyd.api.policy import ParamKind, ParamRef
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.confinement import ElsewhereError, of_the_cluster
from policyd.patch.operations import Path

WITHHELD: Final[Mapping[str, str]] = {
    "http": "the webhooks would send it, and they reach more than the namespace",
    "globalContext": "its entries contain data of the whole cluster",
    "image": "registries are called with the cluster administrator's passwords",
}
"""The variables that a namespaced policy does not have, and why."""

REFUSED: Final = "refused"
"""The rule of findings for which Kyverno refuses to store an object."""

_REFUSED_THERE: Final = frozenset({"http", "globalContext"})
"""Those of the variables for which Kyverno refuses a namespaced policy."""


def refused(findings: Iterable[Finding]) -> list[Finding]:
    """Mark findings as those for which Kyverno refuses to store an object."""
    return [replace(each, rule=REFUSED) for each in findings]


def elsewhere(uses: frozenset[str], document: Document) -> list[Finding]:
    """Report variables that are not available to namespaced policies."""
    found: list[Finding] = []
    for name, why in WITHHELD.items():
        if name in uses:
            message = f"`{name}` is not allowed in namespaced policies: {why}"
            finding = document.finding(message, ("kind",), hint="use a cluster-wide policy")
            found += refused([finding]) if name in _REFUSED_THERE else [finding]
    return found


def params_elsewhere(
    kind: ParamKind | None, ref: ParamRef | None, document: Document, at: Path, namespace: str
) -> list[Finding]:
    """Say that params are not of the namespace that their policy belongs to, if that is known."""
    if kind is None:
        return []
    group, _, version = kind.api_version.rpartition("/")
    built_in = resource_for_kind(group, version, kind.kind)
    if built_in is not None and not built_in.namespaced:
        message = str(ElsewhereError(namespace, of_the_cluster(kind)))
        return [document.finding(message, (*at, "paramKind"))]
    if ref is not None and ref.namespace not in ("", namespace):
        message = str(ElsewhereError(namespace, f"params of `{ref.namespace}`"))
        return [document.finding(message, (*at, "paramRef", "namespace"), hint="leave it out")]
    return []


def with_own_words(findings: list[Finding]) -> list[Finding]:
    """Say of calls of `resource` that name a namespace how they are written."""
    return [
        replace(finding, hint="in a namespaced policy, `resource` takes no namespace")
        if "applied to 'resource.Context." in finding.message and finding.hint is None
        else finding
        for finding in findings
    ]
