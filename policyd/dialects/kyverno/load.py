"""Documents of Kyverno's: which are read, and which are refused and why."""

from collections.abc import Mapping
from typing import Final

from policyd.api.meta import Json
from policyd.dialects.kyverno import cluster_policies, exceptions, policies
from policyd.dialects.kyverno.places import kyverno_places
from policyd.dialects.kyverno.stand_ins import kyverno_stand_ins
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.compiled import CompiledException, CompiledPolicy
from policyd.engine.model.dialects import Dialect, PolicyFormat
from policyd.errors import did_you_mean

VERSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    policies.GROUP: ("v1", "v1beta1", "v1alpha1"),
    cluster_policies.GROUP: ("v1", "v2", "v2beta1", "v2alpha1"),
}
"""The versions of Kyverno's groups."""

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

_CLEANING: Final = frozenset({"ClusterCleanupPolicy", "CleanupPolicy"})
"""Those of them that are of the older group."""

KINDS: Final[Mapping[str, frozenset[str]]] = {
    policies.GROUP: policies.KINDS | {exceptions.KIND} | (_REFUSED.keys() - _CLEANING),
    cluster_policies.GROUP: cluster_policies.KINDS | {exceptions.KIND} | _CLEANING,
}
"""The kinds of policies and exceptions, by Kyverno's groups."""


def is_kyverno(value: Json) -> bool:
    """Tell whether a document is one of Kyverno's."""
    return isinstance(value, dict) and str(value.get("kind")) in KINDS.get(_group_of(value), ())


def guards(value: Json) -> bool:
    """Tell whether a document is one of Kyverno's policies that do what policyd does."""
    return is_kyverno(value) and value["kind"] not in {*_REFUSED, exceptions.KIND}


def _group_of(value: Mapping[str, Json]) -> str:
    return str(value.get("apiVersion", "")).rpartition("/")[0]


def misnamed(document: Document) -> list[Finding]:
    """Say what is wrong with a document of Kyverno's groups that is none of their policies."""
    group, kind = _group_of(document.value), str(document.value["kind"])
    if group not in KINDS:
        return []
    other = next((each for each in KINDS if kind in KINDS[each]), None)
    if other is not None:
        hint = f"write `apiVersion: {other}/{VERSIONS[other][0]}`"
        return [document.finding(f"`{kind}` is not of {group}", ("apiVersion",), hint=hint)]
    near = did_you_mean(kind, KINDS[group])
    if near or group == policies.GROUP:
        return [document.finding(f"unknown kind `{kind}`", ("kind",), hint=near)]
    return []


def load_kyverno(
    document: Document, dialect: Dialect
) -> tuple[list[CompiledPolicy], list[CompiledException], list[Finding]]:
    """Load one of Kyverno's documents, and say what is wrong with it."""
    kind, group = document.value["kind"], _group_of(document.value)
    version = document.value["apiVersion"].rpartition("/")[2]
    if version not in VERSIONS[group]:
        hint = f"there are {', '.join(VERSIONS[group])}"
        message = f"version `{version}` of {group} not found"
        return [], [], [document.finding(message, ("apiVersion",), hint=hint)]
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
    message = f"`{kind}` {_REFUSED[kind]}, which policyd does not support"
    return document.finding(message, ("kind",), hint="leave it to Kyverno")


KYVERNO: Final = PolicyFormat(
    name="kyverno",
    reads=is_kyverno,
    guards=guards,
    load=load_kyverno,
    stand_ins=kyverno_stand_ins,
    misnamed=misnamed,
    places=kyverno_places,
)
"""Kyverno's policies and exceptions, for the engine."""
