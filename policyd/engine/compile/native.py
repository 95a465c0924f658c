"""Read the API server's own policies, and convert them to policyd's kind."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

import msgspec

from policyd.api.meta import Json, ObjectMeta
from policyd.api.native import (
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding,
    NativeValidation,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)
from policyd.api.policy import (
    MatchConstraints,
    MatchResources,
    Policy,
    PolicyBinding,
    PolicySpec,
    Validation,
)
from policyd.engine.compile.check import check_rollout, check_selectors
from policyd.engine.compile.policies import Form
from policyd.engine.compile.schema import ForeignShape, schema_of
from policyd.engine.documents.findings import Finding
from policyd.engine.documents.reading import Document
from policyd.engine.model.bindings import BINDING_KINDS
from policyd.engine.model.compiled import MUTATING, VALIDATING, CompiledBinding
from policyd.engine.model.dialects import native_environments

GROUP = "admissionregistration.k8s.io"
VERSIONS: Final = ("v1", "v1beta1", "v1alpha1")

FORMS: Final = {
    kind: Form(kind=kind, environments=native_environments) for kind in (VALIDATING, MUTATING)
}
"""The forms of the API server's policies."""

_STRUCTS: Final[Mapping[str, type[msgspec.Struct]]] = {
    VALIDATING: ValidatingAdmissionPolicy,
    MUTATING: MutatingAdmissionPolicy,
    "ValidatingAdmissionPolicyBinding": ValidatingAdmissionPolicyBinding,
    "MutatingAdmissionPolicyBinding": MutatingAdmissionPolicyBinding,
    "PolicyBinding": PolicyBinding,
}


@cache
def shape_of(kind: str) -> ForeignShape:
    """Return the shape of one of the API server's kinds, or of a binding of policyd's own."""
    return ForeignShape(schema_of(_STRUCTS[kind]))


def is_native(value: Json) -> bool:
    """Tell whether a document is a policy of the API server's, of any version."""
    return isinstance(value, dict) and _group(value) == GROUP and str(value.get("kind")) in FORMS


def is_binding(value: Json) -> bool:
    """Tell whether a document is a binding, of the API server's kinds or policyd's own."""
    if not isinstance(value, dict) or str(value.get("kind")) not in BINDING_KINDS:
        return False
    own = value["kind"] == "PolicyBinding"
    return _group(value) == ("policyd.io" if own else GROUP)


def read_policy(document: Document) -> tuple[Policy | None, list[Finding]]:
    """Convert a policy to policyd's own kind, and return the findings.

    Returns:
        The policy, None if it cannot be used, and findings. Unknown fields are warnings.
    """
    kind = document.value["kind"]
    value, findings = shape_of(kind).read(document)
    if value is None:
        return None, findings
    read: Any = msgspec.convert(value, _STRUCTS[kind])
    spec = read.spec
    findings += check_selectors(spec.match_constraints, document, ("spec", "matchConstraints"))
    common: dict[str, Any] = {
        "match_constraints": constraints_of(spec.match_constraints),
        "match_conditions": spec.match_conditions,
        "variables": spec.variables,
        "param_kind": spec.param_kind,
        "failure_policy": spec.failure_policy,
    }
    if kind == VALIDATING:
        common["validations"] = tuple(map(validation_of, spec.validations))
        common["audit_annotations"] = spec.audit_annotations
    else:
        common["mutations"] = spec.mutations
        common["reinvocation_policy"] = spec.reinvocation_policy
    return in_own_words(read.metadata, PolicySpec(**common)), findings


def read_binding(document: Document) -> tuple[CompiledBinding | None, list[Finding]]:
    """Read a binding, and return the findings."""
    kind = document.value["kind"]
    value, findings = shape_of(kind).read(document)
    if value is None:
        return None, findings
    read: Any = msgspec.convert(value, _STRUCTS[kind])
    spec = read.spec
    if spec.match_resources is not None:
        wrong = check_selectors(spec.match_resources, document, ("spec", "matchResources"))
        if wrong:
            return None, [*findings, *wrong]
    wrong = check_rollout(getattr(spec, "rollout", ()), document)
    if wrong:
        return None, [*findings, *wrong]
    ref = spec.param_ref
    if ref is not None and bool(ref.name) == (ref.selector is not None):
        message = "`paramRef` takes one of `name` and `selector`"
        wrong = [document.finding(message, ("spec", "paramRef"), of_key=True)]
        return None, [*findings, *wrong]
    binding = CompiledBinding(
        name=read.metadata.name,
        policy=spec.policy_name,
        constraints=spec.match_resources,
        param_ref=ref,
        actions=_actions(kind, spec),
        policy_kind=BINDING_KINDS[kind],
        place=document.finding("").place,
        rollout=getattr(spec, "rollout", ()),
    )
    return binding, findings


def _actions(kind: str, spec: Any) -> tuple[Any, ...]:  # noqa: ANN401 - any binding's
    if kind == "PolicyBinding":
        return (spec.enforcement,) if spec.enforcement else ()
    return spec.validation_actions if kind == "ValidatingAdmissionPolicyBinding" else ("Deny",)


def in_own_words(metadata: ObjectMeta, spec: PolicySpec) -> Policy:
    """Return a policy of policyd's own kind."""
    return Policy(api_version="policyd.io/v1alpha1", kind="Policy", metadata=metadata, spec=spec)


def constraints_of(given: MatchResources) -> MatchConstraints:
    """Return the constraints of a policy as in policyd's own kind."""
    return MatchConstraints(
        **{field: getattr(given, field) for field in MatchConstraints.__struct_fields__}
    )


def validation_of(given: NativeValidation) -> Validation:
    """Return a validation in the words of policyd's own kind."""
    return Validation(
        expression=given.expression,
        message=given.message,
        message_expression=given.message_expression,
        reason=given.reason or "Invalid",
    )


def _group(value: Mapping[str, Json]) -> str:
    return str(value.get("apiVersion", "")).rpartition("/")[0]
