"""The API server's own policies: ValidatingAdmissionPolicy, MutatingAdmissionPolicy, bindings.

All versions (v1, v1beta1, v1alpha1) have the same fields. They are read from files and cases; in a
cluster that has them, the API server enforces them itself.
"""

from typing import Annotated, Literal

import msgspec

from policyd.api.admission import FailurePolicy
from policyd.api.inject import Closed
from policyd.api.meta import Json, ObjectMeta
from policyd.api.policy import (
    AuditAnnotation,
    Enforcement,
    MatchResources,
    Mutation,
    NamedExpression,
    ParamKind,
    ParamRef,
    Reason,
    ReinvocationPolicy,
)

ApiVersion = Literal[
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1beta1",
    "admissionregistration.k8s.io/v1alpha1",
]

_Conditions = Annotated[tuple[NamedExpression, ...], msgspec.Meta(max_length=64)]


class NativeValidation(Closed, frozen=True):
    """One condition that must be true."""

    expression: str
    message: str = ""
    message_expression: str = ""
    reason: Reason | None = None


class ValidatingSpec(Closed, frozen=True):
    """The requests that a ValidatingAdmissionPolicy matches, and its validations."""

    match_constraints: MatchResources
    validations: tuple[NativeValidation, ...] = ()
    audit_annotations: Annotated[tuple[AuditAnnotation, ...], msgspec.Meta(max_length=20)] = ()
    match_conditions: _Conditions = ()
    variables: tuple[NamedExpression, ...] = ()
    param_kind: ParamKind | None = None
    failure_policy: FailurePolicy = "Fail"


class ValidatingAdmissionPolicy(Closed, frozen=True):
    """A policy of the API server that validates."""

    api_version: ApiVersion
    kind: Literal["ValidatingAdmissionPolicy"]
    metadata: ObjectMeta
    spec: ValidatingSpec
    status: Json = None


class MutatingSpec(Closed, frozen=True):
    """The requests that a MutatingAdmissionPolicy matches, and its mutations."""

    match_constraints: MatchResources
    mutations: tuple[Mutation, ...]
    match_conditions: _Conditions = ()
    variables: tuple[NamedExpression, ...] = ()
    param_kind: ParamKind | None = None
    failure_policy: FailurePolicy = "Fail"
    reinvocation_policy: ReinvocationPolicy = "Never"


class MutatingAdmissionPolicy(Closed, frozen=True):
    """A policy of the API server that mutates."""

    api_version: ApiVersion
    kind: Literal["MutatingAdmissionPolicy"]
    metadata: ObjectMeta
    spec: MutatingSpec
    status: Json = None


class ValidatingBindingSpec(Closed, frozen=True):
    """Where a ValidatingAdmissionPolicy applies, and how strictly."""

    policy_name: str
    validation_actions: Annotated[tuple[Enforcement, ...], msgspec.Meta(min_length=1)]
    param_ref: ParamRef | None = None
    match_resources: MatchResources | None = None


class ValidatingAdmissionPolicyBinding(Closed, frozen=True):
    """Binds a ValidatingAdmissionPolicy."""

    api_version: ApiVersion
    kind: Literal["ValidatingAdmissionPolicyBinding"]
    metadata: ObjectMeta
    spec: ValidatingBindingSpec


class MutatingBindingSpec(Closed, frozen=True):
    """Where a MutatingAdmissionPolicy applies."""

    policy_name: str
    param_ref: ParamRef | None = None
    match_resources: MatchResources | None = None


class MutatingAdmissionPolicyBinding(Closed, frozen=True):
    """Binds a MutatingAdmissionPolicy."""

    api_version: ApiVersion
    kind: Literal["MutatingAdmissionPolicyBinding"]
    metadata: ObjectMeta
    spec: MutatingBindingSpec
