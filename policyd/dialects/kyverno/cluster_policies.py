"""Compile the CEL rules of Kyverno's ClusterPolicy and Policy, one policy each."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import msgspec

from policyd.api.meta import Json
from policyd.api.policy import Enforcement, MatchConstraints, PolicySpec, Validation
from policyd.dialects.kyverno.api import (
    ActionOverride,
    ClusterPolicy,
    ClusterPolicySpec,
    Filters,
    PolicyRule,
    ResourceFilter,
    RuleValidation,
)
from policyd.dialects.kyverno.autogen import annotated_controllers, controller_rules
from policyd.dialects.kyverno.confinement import (
    elsewhere,
    params_elsewhere,
    refused,
    with_own_words,
)
from policyd.dialects.kyverno.environments import (
    cluster_policy_environments,
    namespaced_policy_environments,
)
from policyd.dialects.kyverno.filters import (
    filters_of,
    is_plain,
    overrides,
    parse_kind,
    picks,
    rules_of,
)
from policyd.dialects.kyverno.policies import namespace_of, not_at_admission, shape_of
from policyd.engine.compile.native import in_own_words, validation_of
from policyd.engine.compile.policies import Form, Layout, compile_policy
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.compiled import CompiledBinding, CompiledPolicy
from policyd.engine.model.dialects import Dialect
from policyd.engine.model.facts import Facts

GROUP: Final = "kyverno.io"
KINDS: Final = frozenset({"ClusterPolicy", "Policy"})
NAMESPACED: Final = f"{GROUP}/Policy"
"""The name for Kyverno's Policy, since policyd has a Policy of its own."""

_OTHER_WORK: Final = {
    "mutate": "changes objects by patterns",
    "generate": "generates objects",
    "verifyImages": "verifies images' signatures",
}
"""The parts of rules that are not CEL, by field."""


def load_cluster_policy(
    document: Document, dialect: Dialect
) -> tuple[list[CompiledPolicy], list[Finding]]:
    """Compile the rules of a policy, and return the findings."""
    wrong = list(_not_cel(document))
    if wrong:
        return [], wrong
    value, findings = shape_of(ClusterPolicy).read(document)
    if value is None:
        return [], findings
    read: ClusterPolicy = msgspec.convert(value, ClusterPolicy)
    findings += _left_to_kyverno(read.spec, document)
    made: list[CompiledPolicy] = []
    for index, rule in enumerate(read.spec.rules):
        compiled = _rule(read, rule, index, document, dialect)
        if isinstance(compiled, CompiledPolicy):
            made.append(compiled)
        else:
            findings += compiled
    if not read.spec.admission:
        return [], [*findings, not_at_admission(document, ("spec", "admission"))]
    broken = any(finding.severity == "error" for finding in findings)
    return ([] if broken else made), findings


def _left_to_kyverno(spec: ClusterPolicySpec, document: Document) -> Iterator[Finding]:
    """Report fields that have no effect here, and the consequence."""
    unsupported = (
        (spec.apply_rules == "One", ("applyRules",), "all rules are evaluated, not only the first"),
        (
            bool(spec.webhook_configuration.match_conditions),
            ("webhookConfiguration", "matchConditions"),
            "conditions of Kyverno's webhook are not evaluated, only `celPreconditions` are",
        ),
    )
    for given, path, message in unsupported:
        if given:
            finding = document.finding(message, ("spec", *path), of_key=True)
            yield replace(finding, severity="warning")


def _not_cel(document: Document) -> Iterator[Finding]:
    """Report each rule that is not CEL."""
    spec = document.value.get("spec")
    rules = spec.get("rules") if isinstance(spec, dict) else None
    for index, rule in enumerate(rules if isinstance(rules, list) else ()):
        work = _other_work(rule)
        if work is not None:
            name = rule.get("name", "")
            message = f"rule `{name}` {work}: policyd reads the rules that validate by CEL"
            hint = "write it as one of Kyverno's CEL policies, or leave it to Kyverno"
            yield document.finding(message, ("spec", "rules", index), hint=hint)


def _other_work(rule: Json) -> str | None:
    if not isinstance(rule, dict):
        return None
    for field, work in _OTHER_WORK.items():
        if field in rule:
            return work
    validate = rule.get("validate")
    if isinstance(validate, dict) and "cel" not in validate:
        return "validates by patterns"
    return None


def _rule(
    policy: ClusterPolicy, rule: PolicyRule, index: int, document: Document, dialect: Dialect
) -> CompiledPolicy | list[Finding]:
    """Compile one rule as a policy of its own."""
    at = ("spec", "rules", index)
    if rule.validate is None or rule.validate.cel is None:
        return [document.finding("a rule needs `validate`", at)]
    if any(each.roles or each.cluster_roles for each in filters_of(rule.match)):
        message = f"rule `{rule.name}` matches users by their roles, which policyd does not know"
        hint = "name `subjects`, or leave the rule to Kyverno"
        return [document.finding(message, (*at, "match"), of_key=True, hint=hint)]
    extended = _controllers(policy, rule)
    layout = Layout(
        (*at, "validate", "cel"),
        {
            "validations": (*at, "validate", "cel", "expressions"),
            "matchConditions": (*at, "celPreconditions"),
        },
    )
    namespace = namespace_of(policy.metadata, namespaced=policy.kind == "Policy")
    kind = NAMESPACED if namespace else policy.kind
    environments = namespaced_policy_environments if namespace else cluster_policy_environments
    form = Form(kind=kind, environments=environments, layout=layout)
    spec = _spec(policy.spec, rule, rule.validate, extended)
    compiled = compile_policy(in_own_words(policy.metadata, spec), document, form, dialect)
    if not isinstance(compiled, CompiledPolicy):
        wrong = refused(compiled)
        return with_own_words(wrong) if namespace else wrong
    withheld = _withheld(compiled, spec, document, layout, namespace) if namespace else []
    if withheld:
        return withheld
    return replace(
        compiled,
        part=rule.name,
        namespace=namespace,
        templates=bool(extended),
        applies=_predicate(rule, templates=bool(extended)),
        background=policy.spec.background,
        bindings=(_binding(policy.spec, rule.validate, spec),),
    )


def _withheld(
    compiled: CompiledPolicy, spec: PolicySpec, document: Document, layout: Layout, namespace: str
) -> list[Finding]:
    """Report external data that a namespaced rule cannot read."""
    params = params_elsewhere(spec.param_kind, spec.param_ref, document, layout.root, namespace)
    return [*elsewhere(compiled.uses, document), *params]


def _binding(
    whole: ClusterPolicySpec, validate: RuleValidation, spec: PolicySpec
) -> CompiledBinding:
    """Return the action for a violation of a rule, which may depend on the namespace.

    Without a namespace, the strictest is returned: webhooks must fail closed if one refuses.
    """
    others = validate.failure_action_overrides or whole.validation_failure_action_overrides
    actions = _actions(spec.enforcement, whole)

    def actions_for(facts: Facts) -> tuple[Enforcement, ...]:
        found = next((other for other in others if overrides(other, facts)), ActionOverride())
        return _actions(_enforcement(found.action), whole) if found.action else actions

    refuses = any(_enforcement(other.action) == "Deny" for other in others)
    return CompiledBinding(
        param_ref=spec.param_ref,
        actions=("Deny",) if refuses else actions,
        actions_for=actions_for if others else None,
    )


def _actions(enforcement: Enforcement, whole: ClusterPolicySpec) -> tuple[Enforcement, ...]:
    warned = enforcement == "Audit" and whole.emit_warning
    return ("Audit", "Warn") if warned else (enforcement,)


def _spec(
    whole: ClusterPolicySpec, rule: PolicyRule, validate: RuleValidation, extended: tuple[str, ...]
) -> PolicySpec:
    cel = validate.cel
    assert cel is not None, "checked by the caller"
    rules = rules_of(rule.match)
    operations = rules[0].operations if rules else ()
    return PolicySpec(
        match_constraints=MatchConstraints(
            resource_rules=(*rules, *controller_rules(extended, operations))
        ),
        match_conditions=rule.cel_preconditions,
        variables=cel.variables,
        validations=tuple(
            _with_message(validation_of(each), validate.message) for each in cel.expressions
        ),
        audit_annotations=cel.audit_annotations,
        param_kind=cel.param_kind,
        param_ref=cel.param_ref,
        enforcement=_enforcement(validate.failure_action or whole.validation_failure_action),
        failure_policy=whole.webhook_configuration.failure_policy or whole.failure_policy,
    )


def _with_message(validation: Validation, message: str) -> Validation:
    if validation.message or not message:
        return validation
    return msgspec.structs.replace(validation, message=message)


def _enforcement(action: str) -> Enforcement:
    return "Deny" if action.lower() == "enforce" else "Audit"


def _controllers(policy: ClusterPolicy, rule: PolicyRule) -> tuple[str, ...]:
    """Return the controllers that a rule for pods is extended to.

    One rule that Kyverno cannot extend keeps it from extending any of the policy.
    """
    given = (f for r in policy.spec.rules for f in (*filters_of(r.match), *filters_of(r.exclude)))
    if not all(_may_be_extended(each.resources) for each in given) or not _names_pods(rule.match):
        return ()
    excluded = any(each.resources.kinds for each in filters_of(rule.exclude))
    if rule.name.startswith("autogen-") or (excluded and not _names_pods(rule.exclude)):
        return ()
    return annotated_controllers(policy.metadata.annotations)


def _may_be_extended(wanted: ResourceFilter) -> bool:
    """Tell whether a filter is for pods alone, or for none, and knows nothing of single ones."""
    named = wanted.name or wanted.names or wanted.selector or wanted.annotations
    return not named and (len(wanted.kinds) <= 1 or not _has_pod(wanted.kinds))


def _names_pods(filters: Filters) -> bool:
    return any(_has_pod(each.resources.kinds) for each in filters_of(filters))


def _has_pod(kinds: tuple[str, ...]) -> bool:
    return any(parse_kind(kind)[2:] == ("Pod", "") for kind in kinds)


def _predicate(rule: PolicyRule, *, templates: bool) -> Callable[[Facts], bool] | None:
    """Return a function that tells whether a rule matches a request, if kinds alone do not."""
    match, exclude = rule.match, rule.exclude
    if is_plain(match) and exclude == Filters():
        return None

    def applies(facts: Facts) -> bool:
        return picks(match, facts, templates=templates) and not picks(
            exclude, facts, templates=templates
        )

    return applies
