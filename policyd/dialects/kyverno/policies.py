"""Compile Kyverno's ValidatingPolicy and MutatingPolicy, and their namespaced kinds."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

import msgspec

from policyd.api.admission import Rule
from policyd.api.meta import ObjectMeta
from policyd.api.policy import MatchConstraints, MatchResources, PolicySpec
from policyd.dialects.kyverno.api import (
    Evaluation,
    MutatingPolicy,
    TargetResources,
    ValidatingPolicy,
)
from policyd.dialects.kyverno.autogen import (
    CONTROLLERS,
    controller_rules,
    is_controller,
    is_for_pods,
)
from policyd.dialects.kyverno.confinement import elsewhere, refused, with_own_words
from policyd.dialects.kyverno.environments import kyverno_environments, namespaced_environments
from policyd.engine.compile.native import constraints_of, in_own_words, validation_of
from policyd.engine.compile.policies import Form, compile_policy
from policyd.engine.compile.schema import ForeignShape, schema_of
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.compiled import CompiledBinding, CompiledPolicy
from policyd.engine.model.dialects import Dialect
from policyd.errors import did_you_mean
from policyd.patch.operations import Path

GROUP: Final = "policies.kyverno.io"

_STRUCTS: Final[Mapping[str, type[msgspec.Struct]]] = {
    "ValidatingPolicy": ValidatingPolicy,
    "NamespacedValidatingPolicy": ValidatingPolicy,
    "MutatingPolicy": MutatingPolicy,
    "NamespacedMutatingPolicy": MutatingPolicy,
}

OTHER_MODES: Final = {"JSON": "any JSON", "HTTP": "HTTP requests", "Envoy": "requests of Envoy"}
"""The modes of policies that are not for Kubernetes objects."""

KINDS: Final = frozenset(_STRUCTS)
"""The kinds that are read here."""

_NO_RULES: Final = "a matchConstraints with at least one resource rule is required"
_NO_MODE: Final = (
    "disabling both admission and mutateExisting is not allowed: no evaluation mode is enabled"
)


@cache
def shape_of(struct: type[msgspec.Struct]) -> ForeignShape:
    """Return the shape of one of Kyverno's kinds."""
    return ForeignShape(schema_of(struct))


def load_policy(document: Document, dialect: Dialect) -> tuple[list[CompiledPolicy], list[Finding]]:
    """Compile a policy, and return the findings."""
    kind = document.value["kind"]
    struct = _STRUCTS[kind]
    value, findings = shape_of(struct).read(document)
    if value is None:
        return [], findings
    read: Any = msgspec.convert(value, struct)
    wrong = _unsupported(read.spec, document)
    if wrong:
        return [], [*findings, *wrong]
    policy = in_own_words(read.metadata, _spec(read.spec))
    namespace = namespace_of(read.metadata, namespaced=kind.startswith("Namespaced"))
    form = Form(
        kind=kind, environments=namespaced_environments if namespace else kyverno_environments
    )
    compiled = compile_policy(policy, document, form, dialect)
    if not isinstance(compiled, CompiledPolicy):
        wrong = refused(compiled)
        return [], [*findings, *(with_own_words(wrong) if namespace else wrong)]
    withheld = elsewhere(compiled.uses, document) if namespace else []
    if withheld or not is_at_requests(read.spec):
        if not withheld and not changes_existing(read.spec):
            withheld = [not_at_admission(document, ("spec", "evaluation", "admission"))]
        return [], [*findings, *withheld]
    made = replace(
        compiled,
        namespace=namespace,
        templates=_extended(read.spec),
        background=is_scanned(read.spec.evaluation),
        bindings=(CompiledBinding(actions=getattr(read.spec, "validation_actions", ("Deny",))),),
    )
    return [made], [*findings, *_unknown_controllers(read.spec, document)]


def changes_existing(spec: Any) -> bool:  # noqa: ANN401 - of either kind
    """Tell whether a policy mutates objects that exist."""
    evaluation: Evaluation = spec.evaluation
    return hasattr(spec, "mutations") and evaluation.mutate_existing.enabled


def is_at_requests(spec: Any) -> bool:  # noqa: ANN401 - of either kind
    """Tell whether a policy decides on requests: one with targets mutates these alone."""
    evaluation: Evaluation = spec.evaluation
    return evaluation.admission.enabled and not has_targets(spec)


def has_targets(spec: Any) -> bool:  # noqa: ANN401 - of either kind
    """Tell whether a policy says which objects it mutates, besides those that it matches."""
    targets: TargetResources | None = getattr(spec, "target_match_constraints", None)
    return targets is not None and bool(targets.resource_rules or targets.expression)


def namespace_of(metadata: ObjectMeta, *, namespaced: bool) -> str:
    """Return the namespace that something belongs to; empty if that is the cluster."""
    return (metadata.namespace or "default") if namespaced else ""


def _unknown_controllers(
    spec: Any,  # noqa: ANN401 - of either kind
    document: Document,
) -> Iterator[Finding]:
    """Report the controllers that a policy for pods is to be extended to, and is not."""
    for index, name in enumerate(_controllers(spec) if is_for_pods(spec.match_constraints) else ()):
        if not is_controller(name):
            path = ("spec", "autogen", "podControllers", "controllers", index)
            message = f"policyd does not know where `{name}` has pods: the policy sees none of them"
            hint = did_you_mean(name, CONTROLLERS) or "write a policy for it by itself"
            yield replace(document.finding(message, path, hint=hint), severity="warning")


def is_scanned(evaluation: Evaluation) -> bool:
    """Tell whether a policy also applies to existing objects, which is the default."""
    background = evaluation.background
    return not isinstance(background, dict) or background.get("enabled") is not False


def _spec(spec: Any) -> PolicySpec:  # noqa: ANN401 - of either kind
    common: dict[str, Any] = {
        "match_constraints": _constraints(spec),
        "match_conditions": spec.match_conditions,
        "variables": spec.variables,
        "failure_policy": spec.failure_policy,
    }
    if hasattr(spec, "mutations"):
        return PolicySpec(
            **common, mutations=spec.mutations, reinvocation_policy=spec.reinvocation_policy
        )
    return PolicySpec(
        **common,
        validations=tuple(map(validation_of, spec.validations)),
        audit_annotations=spec.audit_annotations,
    )


def _constraints(spec: Any) -> MatchConstraints:  # noqa: ANN401 - of either kind
    """Return the constraints of a policy, with controllers if it is for pods."""
    constraints = constraints_of(spec.match_constraints)
    rules = tuple(map(completed_rule, constraints.resource_rules))
    if _extended(spec):
        chosen = _controllers(spec)
        rules += controller_rules(chosen, rules[0].operations)
    return msgspec.structs.replace(constraints, resource_rules=rules)


def completed_rule(rule: Rule) -> Rule:
    """Complete a rule without operations with Kyverno's default."""
    if rule.operations:
        return rule
    return msgspec.structs.replace(rule, operations=("CREATE", "UPDATE"))


def _extended(spec: Any) -> bool:  # noqa: ANN401 - of either kind
    return is_for_pods(spec.match_constraints) and bool(_controllers(spec))


def _controllers(spec: Any) -> tuple[str, ...]:  # noqa: ANN401 - of either kind
    chosen = spec.autogen.pod_controllers
    if chosen is None or chosen.controllers is None:
        return tuple(CONTROLLERS)
    controllers: tuple[str, ...] = chosen.controllers
    return controllers


def _unsupported(spec: Any, document: Document) -> list[Finding]:  # noqa: ANN401 - of either kind
    evaluation: Evaluation = spec.evaluation
    wrong = _refused_there(spec, document)
    if wrong:
        return wrong
    other = OTHER_MODES.get(evaluation.mode)
    if other is not None:
        what = f"the policy is for {other}: policyd evaluates policies for Kubernetes' objects"
        return [document.finding(what, ("spec", "evaluation", "mode"), of_key=True)]
    if has_targets(spec) and not evaluation.mutate_existing.enabled:
        message = "targets are mutated only with `mutateExisting`, which is not enabled"
        hint = "set `evaluation.mutateExisting.enabled: true`, or remove `targetMatchConstraints`"
        path = ("spec", "targetMatchConstraints")
        return [document.finding(message, path, of_key=True, hint=hint)]
    return []


def matches_nothing(constraints: MatchResources, document: Document) -> list[Finding]:
    """Refuse a policy without rules, as Kyverno does."""
    if constraints.resource_rules:
        return []
    hint = "name resources in `spec.matchConstraints.resourceRules`"
    given = ("matchConstraints",) if "matchConstraints" in document.value["spec"] else ()
    message = f"Required value: {_NO_RULES}"
    finding = document.finding(message, ("spec", *given), of_key=True, hint=hint)
    return refused([replace(finding, field="spec.matchConstraints")])


def _refused_there(spec: Any, document: Document) -> list[Finding]:  # noqa: ANN401 - of either kind
    """Return the errors, besides those of expressions, for which Kyverno refuses a policy."""
    evaluation: Evaluation = spec.evaluation
    of_objects = evaluation.mode == "Kubernetes"
    found = matches_nothing(spec.match_constraints, document) if of_objects else []
    modes = evaluation.admission.enabled, evaluation.mutate_existing.enabled
    if hasattr(spec, "mutations") and not any(modes):
        path = ("spec", "evaluation")
        found += refused([document.finding(_NO_MODE, path, of_key=True, hint="enable one of them")])
    return found


def not_at_admission(document: Document, path: Path) -> Finding:
    """Say that a policy is not used, as the field at `path` keeps it from requests."""
    message = "the policy is not for admission, and is not used"
    return replace(document.finding(message, path, of_key=True), severity="warning")
