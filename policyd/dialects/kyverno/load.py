"""Load Kyverno's documents, and reject those that policyd does not support.

A policy with errors is represented by its readable parts. Features that policyd lacks, such as
patterns and the signatures of images, are left to Kyverno, and nothing represents them.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from policyd.api.meta import Json
from policyd.api.policy import MatchConstraints, PolicySpec
from policyd.dialects.kyverno import background, cluster_policies, entries, exceptions, policies
from policyd.dialects.kyverno.api import Filters
from policyd.dialects.kyverno.environments import cluster_policy_environments, kyverno_environments
from policyd.dialects.kyverno.filters import rules_of
from policyd.engine.compile.placeholders import (
    PolicyDraft,
    compiled_placeholders,
    conditions_in,
    draft_of,
    fields_of,
    name_of,
    objects_in,
    read_as,
)
from policyd.engine.compile.policies import Form
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.dialects import Dialect, FormatContent, PolicyFormat
from policyd.errors import did_you_mean

VERSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    policies.GROUP: ("v1", "v1beta1", "v1alpha1"),
    cluster_policies.GROUP: ("v1", "v2", "v2beta1", "v2alpha1"),
}
"""The versions of Kyverno's groups."""

_REFUSED: Final[Mapping[str, str]] = {
    "ImageValidatingPolicy": "verifies images' signatures",
    "NamespacedImageValidatingPolicy": "verifies images' signatures",
    "ClusterCleanupPolicy": "deletes objects",
    "CleanupPolicy": "deletes objects",
}
"""Kinds that policyd does not support, with their purpose."""

_CLEANING: Final = frozenset({"ClusterCleanupPolicy", "CleanupPolicy"})
"""Those of them that are of the older group."""

KINDS: Final[Mapping[str, frozenset[str]]] = {
    policies.GROUP: policies.KINDS
    | background.KINDS
    | {exceptions.KIND}
    | (_REFUSED.keys() - _CLEANING),
    cluster_policies.GROUP: cluster_policies.KINDS | {exceptions.KIND} | _CLEANING,
}
"""The kinds of policies and exceptions, by Kyverno's groups."""


CHECKED: Final[Mapping[str, frozenset[str]]] = {
    policies.GROUP: KINDS[policies.GROUP] - _REFUSED.keys(),
    cluster_policies.GROUP: (KINDS[cluster_policies.GROUP] - _CLEANING) | {entries.KIND},
}
"""The kinds that are read, and that Kyverno checks when they are stored, by its groups."""


def is_kyverno(value: Json) -> bool:
    """Tell whether a document is one of Kyverno's."""
    return isinstance(value, dict) and str(value.get("kind")) in KINDS.get(_group_of(value), ())


def is_kyverno_group(group: str) -> bool:
    """Tell whether an API group is one of Kyverno's."""
    return group in KINDS


def guards(value: Json) -> bool:
    """Tell whether a document is a Kyverno policy that policyd evaluates on requests."""
    left_out = {*_REFUSED, *background.KINDS, exceptions.KIND}
    return is_kyverno(value) and value["kind"] not in left_out


def is_checked(value: Json) -> bool:
    """Tell whether a document is one that Kyverno checks when it is stored."""
    return isinstance(value, dict) and str(value.get("kind")) in CHECKED.get(_group_of(value), ())


def _group_of(value: Mapping[str, Json]) -> str:
    return str(value.get("apiVersion", "")).rpartition("/")[0]


def misnamed(document: Document) -> list[Finding]:
    """Report a document of Kyverno's groups that is not one of their kinds."""
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


def load_kyverno(document: Document, dialect: Dialect) -> FormatContent:
    """Load one of Kyverno's documents."""
    kind, group = document.value["kind"], _group_of(document.value)
    version = document.value["apiVersion"].rpartition("/")[2]
    if version not in VERSIONS[group]:
        hint = f"there are {', '.join(VERSIONS[group])}"
        message = f"version `{version}` of {group} not found"
        return FormatContent([document.finding(message, ("apiVersion",), hint=hint)])
    if kind in _REFUSED:
        return FormatContent([_refused(document, kind)])
    if kind in background.KINDS:
        acting, findings = background.load_background(document, dialect)
        return FormatContent(findings, background=() if acting is None else (acting,))
    if kind == exceptions.KIND:
        if group == cluster_policies.GROUP:
            exception, findings = exceptions.load_rule_exception(document)
        else:
            exception, findings = exceptions.load_exception(document, dialect)
        return FormatContent(findings, exceptions=() if exception is None else (exception,))
    if group == cluster_policies.GROUP:
        made, findings = cluster_policies.load_cluster_policy(document, dialect)
        return FormatContent(findings, made)
    return _of_requests(document, dialect)


def _of_requests(document: Document, dialect: Dialect) -> FormatContent:
    """Load a policy of requests, which may mutate existing objects, too."""
    made, findings = policies.load_policy(document, dialect)
    kind = document.value["kind"]
    if kind not in background.MUTATING or any(each.severity == "error" for each in findings):
        return FormatContent(findings, made)
    existing, more = background.load_existing(document, dialect)
    return FormatContent([*findings, *more], made, background=(existing,) if existing else ())


def _refused(document: Document, kind: str) -> Finding:
    message = f"`{kind}` {_REFUSED[kind]}, which policyd does not support"
    return document.finding(message, ("kind",), hint="leave it to Kyverno")


def _kyverno_placeholders(
    document: Document, reason: str, dialect: Dialect
) -> tuple[CompiledPolicy, ...]:
    """Return the placeholders of an invalid policy."""
    return compiled_placeholders(_drafts(document), document, reason, dialect)


def _drafts(document: Document) -> Iterator[PolicyDraft]:
    kind = document.value["kind"]
    if kind in cluster_policies.KINDS:
        yield from _of_rules(document)
    elif _is_at_admission(fields_of(document.value, "spec")):
        draft = draft_of(document, Form(kind=kind, environments=kyverno_environments))
        namespace = _namespace_of(document.value) if kind.startswith("Namespaced") else ""
        yield msgspec.structs.replace(draft, namespace=namespace)


def _of_rules(document: Document) -> Iterator[PolicyDraft]:
    """Yield the readable parts of the rules that validate by CEL."""
    spec = fields_of(document.value, "spec")
    namespaced = document.value["kind"] == "Policy"
    kind = cluster_policies.NAMESPACED if namespaced else document.value["kind"]
    called = fields_of(spec, "webhookConfiguration").get("failurePolicy")
    ignores = "Ignore" in (called, called or spec.get("failurePolicy"))
    if spec.get("admission") is False:
        return
    for index, rule in enumerate(objects_in(spec.get("rules"))):
        validate = fields_of(rule, "validate")
        if "cel" not in validate:
            continue
        action = validate.get("failureAction") or spec.get("validationFailureAction")
        rules = rules_of(read_as(rule.get("match"), Filters) or Filters())
        yield PolicyDraft(
            name=name_of(document.value),
            form=Form(kind=kind, environments=cluster_policy_environments),
            spec=PolicySpec(
                match_constraints=MatchConstraints(resource_rules=rules),
                failure_policy="Ignore" if ignores else "Fail",
            ),
            conditions=conditions_in(rule.get("celPreconditions")),
            actions=("Deny",) if str(action or "Audit").lower() != "audit" else ("Audit",),
            namespace=_namespace_of(document.value) if namespaced else "",
            part=str(rule.get("name") or index),
        )


def _is_at_admission(spec: Mapping[str, Json]) -> bool:
    """Tell whether a policy is for admission."""
    evaluation = fields_of(spec, "evaluation")
    return (
        evaluation.get("mode") not in policies.OTHER_MODES
        and fields_of(evaluation, "admission").get("enabled") is not False
        and fields_of(evaluation, "mutateExisting").get("enabled") is not True
        and not spec.get("targetMatchConstraints")
    )


def _namespace_of(value: Mapping[str, Json]) -> str:
    return str(fields_of(value, "metadata").get("namespace") or "default")


KYVERNO: Final = PolicyFormat(
    name="kyverno",
    reads=is_kyverno,
    guards=guards,
    load=load_kyverno,
    placeholders=_kyverno_placeholders,
    misnamed=misnamed,
    environments=kyverno_environments,
)
"""Kyverno's policies and exceptions, for the engine."""
