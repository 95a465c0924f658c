"""Documents of Kyverno's: which are read, and which are refused and why."""

from collections.abc import Mapping
from typing import Final

from policyd.api.meta import Json
from policyd.engine.compiled import CompiledException, CompiledPolicy
from policyd.engine.dialects import Dialect
from policyd.engine.documents import Document
from policyd.engine.findings import Finding
from policyd.engine.kyverno import cluster_policies, exceptions, policies

_REFUSED: Final[Mapping[str, str]] = {
    "GeneratingPolicy": "generates objects",
    "NamespacedGeneratingPolicy": "generates objects",
    "DeletingPolicy": "deletes objects",
    "NamespacedDeletingPolicy": "deletes objects",
    "ImageValidatingPolicy": "verifies images' signatures",
    "NamespacedImageValidatingPolicy": "verifies images' signatures",
    "ClusterCleanupPolicy": "deletes objects",
    "CleanupPolicy": "deletes objects",
}
"""Kinds that do what policyd does not."""


def is_kyverno(value: Json) -> bool:
    """Tell whether a document is one of Kyverno's."""
    if not isinstance(value, dict):
        return False
    group = str(value.get("apiVersion", "")).rpartition("/")[0]
    kind = value.get("kind")
    if group == cluster_policies.GROUP:
        return kind in cluster_policies.KINDS or kind in _REFUSED or kind == exceptions.KIND
    return group == policies.GROUP and (
        kind in policies.KINDS or kind in _REFUSED or kind == exceptions.KIND
    )


def load_kyverno(
    document: Document, dialect: Dialect
) -> tuple[list[CompiledPolicy], list[CompiledException], list[Finding]]:
    """Load one of Kyverno's documents, and say what is wrong with it."""
    kind = document.value["kind"]
    group = document.value["apiVersion"].rpartition("/")[0]
    if kind in _REFUSED:
        return [], [], [_refused(document, kind)]
    if kind == exceptions.KIND:
        if group == cluster_policies.GROUP:
            exception, findings = exceptions.load_rule_exception(document)
        else:
            exception, findings = exceptions.load_exception(document, dialect)
        return [], [] if exception is None else [exception], findings
    if group == cluster_policies.GROUP:
        made, findings = cluster_policies.load_cluster_policy(document, dialect)
    else:
        made, findings = policies.load_policy(document, dialect)
    return made, [], findings


def _refused(document: Document, kind: str) -> Finding:
    message = f"`{kind}` {_REFUSED[kind]}, which policyd does not do"
    return document.finding(message, ("kind",), hint="leave it to Kyverno")
