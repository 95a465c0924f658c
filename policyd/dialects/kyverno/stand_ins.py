"""What stands in for one of Kyverno's policies that has mistakes: what can be read of it.

Whatever is not policyd's work, such as patterns and the generating of objects, is left to Kyverno,
and nothing stands in for it.
"""

from collections.abc import Iterator, Mapping

import msgspec

from policyd.api.meta import Json
from policyd.api.policy import MatchConstraints, PolicySpec
from policyd.dialects.kyverno import cluster_policies, policies
from policyd.dialects.kyverno.api import Filters
from policyd.dialects.kyverno.filters import rules_of
from policyd.dialects.kyverno.places import cluster_policy_places, kyverno_places
from policyd.engine.compile.policies import Form
from policyd.engine.compile.stand_ins import (
    PolicyDraft,
    compiled_stand_ins,
    conditions_in,
    draft_of,
    fields_of,
    name_of,
    objects_in,
    read_as,
)
from policyd.engine.documents.reading import Document
from policyd.engine.model.compiled import CompiledPolicy
from policyd.engine.model.dialects import Dialect


def kyverno_stand_ins(
    document: Document, reason: str, dialect: Dialect
) -> tuple[CompiledPolicy, ...]:
    """Return what stands in for a policy that has mistakes."""
    return compiled_stand_ins(_drafts(document), document, reason, dialect)


def _drafts(document: Document) -> Iterator[PolicyDraft]:
    kind = document.value["kind"]
    if kind in cluster_policies.KINDS:
        yield from _of_rules(document)
    elif _is_at_admission(fields_of(document.value, "spec")):
        draft = draft_of(document, Form(kind=kind, places=kyverno_places))
        namespace = _namespace_of(document.value) if kind.startswith("Namespaced") else ""
        yield msgspec.structs.replace(draft, namespace=namespace)


def _of_rules(document: Document) -> Iterator[PolicyDraft]:
    """Yield what can be read of the rules that validate by CEL."""
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
            form=Form(kind=kind, places=cluster_policy_places),
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
    """Tell whether a policy is for what is written to the API server."""
    evaluation = fields_of(spec, "evaluation")
    return (
        evaluation.get("mode") not in policies.OTHER_MODES
        and fields_of(evaluation, "admission").get("enabled") is not False
        and fields_of(evaluation, "mutateExisting").get("enabled") is not True
        and not spec.get("targetMatchConstraints")
    )


def _namespace_of(value: Mapping[str, Json]) -> str:
    return str(fields_of(value, "metadata").get("namespace") or "default")
