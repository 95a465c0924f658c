"""Guard requests in place of a policy or binding that is invalid.

A placeholder matches the requests of its policy, as far as they can be read, and more if a selector
or a condition cannot be read. It never allows: it is a policy that cannot be evaluated, so that
failurePolicy and enforcement decide. A document that names no resource gets no placeholder.

The format of another engine's policy decides which parts of it can be read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar, get_args

import msgspec

from policyd.api.admission import MatchPolicy, Operation, Rule, Scope
from policyd.api.meta import Json, ObjectMeta
from policyd.api.policy import (
    Enforcement,
    MatchConstraints,
    MatchResources,
    NamedExpression,
    PolicySpec,
)
from policyd.api.rollout import RolloutStep
from policyd.api.selectors import LabelSelector
from policyd.engine.compile.check import check_rollout, check_selectors
from policyd.engine.compile.native import FORMS, constraints_of, in_own_words
from policyd.engine.compile.policies import OWN_FORM, Form, compile_policy
from policyd.engine.compile.templated import with_workload_kinds
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.bindings import BINDING_KINDS, NEEDS_BINDING
from policyd.engine.model.compiled import CompiledBinding, CompiledPolicy
from policyd.engine.model.dialects import Dialect

T = TypeVar("T")

_CHANGED: Final = ("CREATE", "UPDATE")
_OPERATIONS: Final = frozenset({*get_args(Operation), "*"})
_ENFORCEMENTS: Final = frozenset(get_args(Enforcement))
_EVERYTHING: Final = LabelSelector()


def placeholders(
    document: Document, findings: Iterable[Finding], dialect: Dialect
) -> tuple[CompiledPolicy, ...]:
    """Return the placeholders of an invalid policy: none if it names no resource."""
    if not name_of(document.value) or fields_of(document.value, "spec").get("shadowOf"):
        return ()
    reason = _reason(findings)
    written_in = dialect.format_of(document.value)
    if written_in is not None:
        return tuple(written_in.placeholders(document, reason, dialect))
    kind = document.value["kind"]
    draft = draft_of(document, OWN_FORM if kind == OWN_FORM.kind else FORMS[kind])
    return compiled_placeholders([draft], document, reason, dialect)


def compiled_placeholders(
    drafts: Iterable["PolicyDraft"], document: Document, reason: str, dialect: Dialect
) -> tuple[CompiledPolicy, ...]:
    """Compile the drafts of a policy that name a resource.

    Args:
        drafts: The readable fields of each part of the policy.
        document: Its document.
        reason: Why it cannot be used.
        dialect: The versions and formats that it is loaded with.
    """
    compiled = (draft.compiled(document, dialect) for draft in drafts)
    return tuple(replace(made, unusable=reason) for made in compiled if made is not None)


def binding_placeholders(
    document: Document, findings: Iterable[Finding]
) -> tuple[CompiledBinding, ...]:
    """Return the placeholders of an invalid binding: none if it names no policy."""
    kind, spec = document.value["kind"], fields_of(document.value, "spec")
    policy = spec.get("policyName")
    if not isinstance(policy, str) or not policy:
        return ()
    own = kind == "PolicyBinding"
    declared = [spec.get("enforcement")] if own else spec.get("validationActions")
    binding = CompiledBinding(
        name=name_of(document.value),
        policy=policy,
        constraints=_resources(spec.get("matchResources"), document),
        actions=_actions(declared, otherwise=() if own else ("Deny",)),
        policy_kind=BINDING_KINDS[kind],
        place=document.finding("").place,
        unusable=_reason(findings),
    )
    return (binding,)


class PolicyDraft(msgspec.Struct, frozen=True, kw_only=True):
    """The readable parts of a policy."""

    name: str
    form: Form
    spec: PolicySpec
    conditions: Sequence[NamedExpression]
    actions: tuple[Enforcement, ...]
    namespace: str = ""
    part: str = ""

    def compiled(self, document: Document, dialect: Dialect) -> CompiledPolicy | None:
        """Compile it, with those conditions that can be; None if it names no resource."""
        if not self.spec.match_constraints.resource_rules:
            return None
        kept = tuple(c for c in self.conditions if self._compiled((c,), document, dialect))
        made = self._compiled(kept, document, dialect)
        if made is None:
            return None
        binding = CompiledBinding(actions=self.actions, rollout=self.spec.rollout)
        return replace(made, bindings=(binding,), namespace=self.namespace, part=self.part)

    def _compiled(
        self, conditions: tuple[NamedExpression, ...], document: Document, dialect: Dialect
    ) -> CompiledPolicy | None:
        spec = msgspec.structs.replace(self.spec, match_conditions=conditions)
        policy = with_workload_kinds(in_own_words(ObjectMeta(name=self.name), spec))
        made = compile_policy(policy, document, self.form, dialect)
        return made if isinstance(made, CompiledPolicy) else None


def draft_of(document: Document, form: Form) -> PolicyDraft:
    """Return the readable parts of a policy with the API server's field names."""
    spec, kind = fields_of(document.value, "spec"), document.value["kind"]
    own = form is OWN_FORM
    declared = [spec.get("enforcement")] if own else spec.get("validationActions")
    changes = "Mutating" in kind
    bound = bool(spec.get("requiresBinding")) or (
        own and "paramKind" in spec and "paramRef" not in spec
    )
    return PolicyDraft(
        name=name_of(document.value),
        form=form,
        spec=PolicySpec(
            match_constraints=_constraints(spec.get("matchConstraints"), document, changes=changes),
            pod_templates=spec.get("podTemplates") is True and own,
            rollout=_rollout(spec.get("rollout"), document) if own else (),
            requires_binding=bound and kind not in NEEDS_BINDING,
            failure_policy="Ignore" if spec.get("failurePolicy") == "Ignore" else "Fail",
        ),
        conditions=conditions_in(spec.get("matchConditions")),
        actions=("Deny",) if changes else _actions(declared, otherwise=("Deny",)),
    )


def _reason(findings: Iterable[Finding]) -> str:
    found = next(finding for finding in findings if finding.severity == "error")
    field = f"`{found.field}`: " if found.field else ""
    return f"it is not usable as it is written: {field}{found.message}"


def _constraints(value: Json, document: Document, *, changes: bool) -> MatchConstraints:
    """Read the constraints of a policy; those of a mutating policy match writes only."""
    read = _resources(value, document) or MatchResources()
    if changes:
        rules = tuple(filter(None, map(_written, read.resource_rules)))
        read = msgspec.structs.replace(read, resource_rules=rules)
    return constraints_of(read)


def _written(rule: Rule) -> Rule | None:
    operations = _CHANGED if "*" in rule.operations else rule.operations
    kept = tuple(each for each in operations if each in _CHANGED)
    return msgspec.structs.replace(rule, operations=kept) if kept else None


def _resources(value: Json, document: Document) -> MatchResources | None:
    """Read match resources; unreadable parts match everything, an unreadable rule no resource."""
    if not isinstance(value, dict):
        return None
    rules = map(_rule, objects_in(value.get("resourceRules")))
    exclude = (read_as(rule, Rule) for rule in objects_in(value.get("excludeResourceRules")))
    policy: MatchPolicy = "Exact" if value.get("matchPolicy") == "Exact" else "Equivalent"
    return MatchResources(
        resource_rules=tuple(rule for rule in rules if rule is not None),
        exclude_resource_rules=tuple(rule for rule in exclude if rule is not None),
        namespace_selector=_selector(value.get("namespaceSelector"), document),
        object_selector=_selector(value.get("objectSelector"), document),
        match_policy=policy,
    )


def _rule(value: Mapping[str, Json]) -> Rule | None:
    """Read a rule: one that names no resource is none, and neither is one for all of any group."""
    groups, resources = _texts(value.get("apiGroups")), _texts(value.get("resources"))
    if not resources or not (groups or {"*", "*/*"}.isdisjoint(resources)):
        return None
    operations = tuple(each for each in _texts(value.get("operations")) if each in _OPERATIONS)
    scope: Any = value.get("scope")
    return Rule(
        operations=operations or _CHANGED,
        api_groups=groups or ("*",),
        api_versions=_texts(value.get("apiVersions")) or ("*",),
        resources=resources,
        scope=scope if scope in get_args(Scope) else "*",
        resource_names=_texts(value.get("resourceNames")),
    )


def _selector(value: Json, document: Document) -> LabelSelector:
    read = read_as(value, LabelSelector) or _EVERYTHING
    if isinstance(value, dict) and not value.keys() <= {"matchLabels", "matchExpressions"}:
        return _EVERYTHING
    wrong = check_selectors(MatchResources(namespace_selector=read), document, ())
    return _EVERYTHING if wrong else read


def _rollout(value: Json, document: Document) -> tuple[RolloutStep, ...]:
    read = read_as(value, tuple[RolloutStep, ...]) or ()
    return () if check_rollout(read, document) else read


def conditions_in(value: Json) -> list[NamedExpression]:
    """Return those match conditions of a list that can be read."""
    read = (read_as(each, NamedExpression) for each in objects_in(value))
    return [condition for condition in read if condition is not None]


def _actions(value: Json, *, otherwise: tuple[Enforcement, ...]) -> tuple[Enforcement, ...]:
    """Read the actions of a validation, which must all be readable."""
    given: list[Any] = value if isinstance(value, list) else []
    readable = bool(given) and all(isinstance(e, str) and e in _ENFORCEMENTS for e in given)
    return tuple(given) if readable else otherwise


def read_as(value: Json, into: type[T]) -> T | None:
    """Return a value as a type; None if there is none, or it cannot be read as that."""
    try:
        return None if value is None else msgspec.convert(value, into)
    except (msgspec.ValidationError, RecursionError):
        return None


def _texts(value: Json) -> tuple[str, ...]:
    return tuple(e for e in value if isinstance(e, str)) if isinstance(value, list) else ()


def objects_in(value: Json) -> list[dict[str, Json]]:
    """Return the objects of a list; none if it is not a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def fields_of(value: Mapping[str, Json], name: str) -> dict[str, Json]:
    """Return the fields of an object in a field; none if it is not an object."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def name_of(value: Mapping[str, Json]) -> str:
    """Return the name of an object; empty if it has none."""
    name = fields_of(value, "metadata").get("name")
    return name if isinstance(name, str) else ""
