"""Define the fields of Kyverno's policies that are read, in all versions."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec

from policyd.api.admission import FailurePolicy, Operation
from policyd.api.inject import Closed
from policyd.api.meta import Json, ObjectMeta
from policyd.api.native import NativeValidation
from policyd.api.policy import (
    AuditAnnotation,
    Enforcement,
    MatchResources,
    Mutation,
    NamedExpression,
    ParamKind,
    ParamRef,
    ReinvocationPolicy,
)
from policyd.api.selectors import LabelSelector

Texts = tuple[str, ...]


class PodControllers(Closed, frozen=True):
    """The controllers for whose pod templates a policy for pods stands as well."""

    controllers: Texts | None = None


class Autogen(Closed, frozen=True):
    """The policies that Kyverno generates; those for other kinds are left to Kyverno."""

    pod_controllers: PodControllers | None = None
    validating_admission_policy: Json = None
    mutating_admission_policy: Json = None


class Switch(Closed, frozen=True):
    """A switch: whether something is enabled."""

    enabled: bool = True


class Evaluation(Closed, frozen=True):
    """The evaluation settings of a policy: mode, admission, existing objects."""

    mode: Literal["Kubernetes", "JSON", "HTTP", "Envoy"] = "Kubernetes"
    admission: Switch = Switch()
    background: Json = None
    skip_background_requests: bool = True
    mutate_existing: Switch = Switch(enabled=False)
    use_server_side_apply: bool = False


class IdentifiedValidation(NativeValidation, frozen=True):
    """One condition that must be true, by a name that Kyverno's reports go by."""

    identifier: str = ""


_Actions = Annotated[tuple[Enforcement, ...], msgspec.Meta(max_length=3)]


class ValidatingPolicySpec(Closed, frozen=True):
    """The spec of a ValidatingPolicy."""

    match_constraints: MatchResources = MatchResources()
    validations: tuple[IdentifiedValidation, ...] = ()
    audit_annotations: tuple[AuditAnnotation, ...] = ()
    match_conditions: tuple[NamedExpression, ...] = ()
    variables: tuple[NamedExpression, ...] = ()
    validation_actions: _Actions = ("Deny",)
    failure_policy: FailurePolicy = "Fail"
    evaluation: Evaluation = Evaluation()
    autogen: Autogen = Autogen()
    webhook_configuration: Json = None


class ValidatingPolicy(Closed, frozen=True):
    """A policy of Kyverno's that validates."""

    api_version: str
    kind: Literal["ValidatingPolicy", "NamespacedValidatingPolicy"]
    metadata: ObjectMeta
    spec: ValidatingPolicySpec
    status: Json = None


class TargetResources(MatchResources, frozen=True):
    """Which existing objects a policy mutates: those that match, or that an expression returns."""

    expression: str = ""


class MutatingPolicySpec(Closed, frozen=True):
    """The spec of a MutatingPolicy."""

    mutations: tuple[Mutation, ...]
    match_constraints: MatchResources = MatchResources()
    match_conditions: tuple[NamedExpression, ...] = ()
    variables: tuple[NamedExpression, ...] = ()
    failure_policy: FailurePolicy = "Fail"
    reinvocation_policy: ReinvocationPolicy = "Never"
    evaluation: Evaluation = Evaluation()
    autogen: Autogen = Autogen()
    target_match_constraints: TargetResources | None = None
    target_match_conditions: tuple[NamedExpression, ...] = ()
    audit_annotations: tuple[AuditAnnotation, ...] = ()
    webhook_configuration: Json = None


class MutatingPolicy(Closed, frozen=True):
    """A policy of Kyverno's that mutates."""

    api_version: str
    kind: Literal["MutatingPolicy", "NamespacedMutatingPolicy"]
    metadata: ObjectMeta
    spec: MutatingPolicySpec
    status: Json = None


class GeneratingEvaluation(Closed, frozen=True):
    """When a policy generates, and whether generated objects follow their trigger."""

    admission: Switch = Switch()
    background: Json = None
    skip_background_requests: bool = True
    generate_existing: Switch = Switch(enabled=False)
    synchronize: Switch = Switch(enabled=False)
    orphan_downstream_on_policy_delete: Switch = Switch(enabled=False)


class GenerationTemplate(Closed, frozen=True):
    """Objects as YAML, in which `(( … ))` may be CEL."""

    value: str
    interpolate: Literal["none", "cel"] = "none"


class GenerationEntry(Closed, frozen=True):
    """One entry of `generate`: an expression that calls `generator`, or a template."""

    expression: str = ""
    template: GenerationTemplate | None = None


class GeneratingPolicySpec(Closed, frozen=True):
    """The spec of a GeneratingPolicy."""

    generate: Annotated[tuple[GenerationEntry, ...], msgspec.Meta(min_length=1)]
    match_constraints: MatchResources = MatchResources()
    match_conditions: tuple[NamedExpression, ...] = ()
    variables: tuple[NamedExpression, ...] = ()
    evaluation: GeneratingEvaluation = GeneratingEvaluation()
    use_server_side_apply: bool = False
    webhook_configuration: Json = None


class GeneratingPolicy(Closed, frozen=True):
    """A policy of Kyverno's that generates objects."""

    api_version: str
    kind: Literal["GeneratingPolicy", "NamespacedGeneratingPolicy"]
    metadata: ObjectMeta
    spec: GeneratingPolicySpec
    status: Json = None


class DeletingPolicySpec(Closed, frozen=True):
    """The spec of a DeletingPolicy."""

    schedule: str
    match_constraints: MatchResources = MatchResources()
    conditions: tuple[NamedExpression, ...] = ()
    variables: tuple[NamedExpression, ...] = ()
    deletion_propagation_policy: Literal["Foreground", "Background", "Orphan"] | None = None


class DeletingPolicy(Closed, frozen=True):
    """A policy of Kyverno's that deletes objects on a schedule."""

    api_version: str
    kind: Literal["DeletingPolicy", "NamespacedDeletingPolicy"]
    metadata: ObjectMeta
    spec: DeletingPolicySpec
    status: Json = None


class Subject(Closed, frozen=True):
    """A user, group or service account."""

    kind: Literal["User", "Group", "ServiceAccount"]
    name: str
    namespace: str = ""
    api_group: str = ""


class ResourceFilter(Closed, frozen=True):
    """A filter of objects; every given field must match."""

    kinds: Texts = ()
    operations: tuple[Operation, ...] = ()
    name: str = ""
    names: Texts = ()
    namespaces: Texts = ()
    annotations: dict[str, str] = {}
    selector: LabelSelector | None = None
    namespace_selector: LabelSelector | None = None


class Filter(Closed, frozen=True):
    """A filter of requests, by object and user."""

    resources: ResourceFilter = ResourceFilter()
    subjects: tuple[Subject, ...] = ()
    roles: Texts = ()
    cluster_roles: Texts = ()


class Filters(Closed, frozen=True):
    """Requests that any filter picks, or all do; a filter may stand here itself."""

    any: tuple[Filter, ...] = ()
    all: tuple[Filter, ...] = ()
    resources: ResourceFilter = ResourceFilter()
    subjects: tuple[Subject, ...] = ()
    roles: Texts = ()
    cluster_roles: Texts = ()


class CelValidation(Closed, frozen=True):
    """A rule's validations by CEL."""

    expressions: tuple[NativeValidation, ...] = ()
    variables: tuple[NamedExpression, ...] = ()
    audit_annotations: tuple[AuditAnnotation, ...] = ()
    param_kind: ParamKind | None = None
    param_ref: ParamRef | None = None
    generate: bool = False


class ActionOverride(Closed, frozen=True):
    """The action for a violation in some namespaces."""

    action: str = ""
    namespaces: Texts = ()
    namespace_selector: LabelSelector | None = None


class RuleValidation(Closed, frozen=True):
    """The validation of a rule; only `cel` is read."""

    cel: CelValidation | None = None
    message: str = ""
    failure_action: str = ""
    failure_action_overrides: tuple[ActionOverride, ...] = ()
    allow_existing_violations: bool = True


class PolicyRule(Closed, frozen=True):
    """One rule of a ClusterPolicy."""

    name: str
    match: Filters = Filters()
    exclude: Filters = Filters()
    cel_preconditions: tuple[NamedExpression, ...] = ()
    validate: RuleValidation | None = None
    skip_background_requests: bool = True


class WebhookConfiguration(Closed, frozen=True):
    """The webhook settings of a ClusterPolicy."""

    failure_policy: FailurePolicy | None = None
    timeout_seconds: int | None = None
    match_conditions: tuple[NamedExpression, ...] = ()


class ClusterPolicySpec(Closed, frozen=True):
    """The rules of a ClusterPolicy."""

    rules: Annotated[tuple[PolicyRule, ...], msgspec.Meta(min_length=1)]
    validation_failure_action: str = "Audit"
    validation_failure_action_overrides: tuple[ActionOverride, ...] = ()
    failure_policy: FailurePolicy = "Fail"
    background: bool = True
    admission: bool = True
    schema_validation: bool | None = None
    emit_warning: bool = False
    webhook_timeout_seconds: int | None = None
    webhook_configuration: WebhookConfiguration = WebhookConfiguration()
    apply_rules: str = "All"
    use_server_side_apply: bool = False


class ClusterPolicy(Closed, frozen=True):
    """A policy of Kyverno's older kind."""

    api_version: str
    kind: Literal["ClusterPolicy", "Policy"]
    metadata: ObjectMeta
    spec: ClusterPolicySpec
    status: Json = None


class PolicyReference(Closed, frozen=True):
    """Names the policy that an exception is from."""

    name: str = ""
    kind: str = ""


class PolicyExceptionSpec(Closed, frozen=True):
    """The spec of a PolicyException."""

    policy_refs: tuple[PolicyReference, ...] = ()
    match_conditions: tuple[NamedExpression, ...] = ()
    images: Texts = ()
    allowed_values: Texts = ()
    report_result: str = ""
    expires_at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    properties: dict[str, str] = {}


class ExceptedRules(Closed, frozen=True):
    """Names rules of a ClusterPolicy, by patterns; a namespaced policy as `namespace/name`."""

    policy_name: str
    rule_names: Texts = ()


class RuleExceptionSpec(Closed, frozen=True):
    """Which rules of which ClusterPolicies do not concern the requests that filters pick."""

    exceptions: Annotated[tuple[ExceptedRules, ...], msgspec.Meta(min_length=1)]
    match: Filters
    background: bool = True
    conditions: Json = None
    pod_security: Json = None


class RuleException(Closed, frozen=True):
    """Exempts some requests from rules of ClusterPolicies: the older kind of PolicyException."""

    api_version: str
    kind: Literal["PolicyException"]
    metadata: ObjectMeta
    spec: RuleExceptionSpec
    status: Json = None


class PolicyException(Closed, frozen=True):
    """Exempts some requests from Kyverno's policies, or passes these allowed values."""

    api_version: str
    kind: Literal["PolicyException"]
    metadata: ObjectMeta
    spec: PolicyExceptionSpec
    status: Json = None
