"""Policy: the API server's words for matching and validating, and `inject` for the rest."""

from typing import Annotated, Literal

import msgspec

from policyd.api.admission import FailurePolicy, GroupVersionResource, MatchPolicy, Rule
from policyd.api.inject import Closed, Expression, Inject, Text
from policyd.api.meta import Condition, Json, ObjectMeta, Wire
from policyd.api.rollout import RolloutStep
from policyd.api.selectors import LabelSelector

GROUP = "policyd.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

KYVERNO_GROUPS = ("kyverno.io", "policies.kyverno.io")
"""The groups of Kyverno's policies, whose plurals all end alike."""

POLICY_GROUPS = frozenset({GROUP, *KYVERNO_GROUPS})
"""The groups in which there are policies."""

Enforcement = Literal["Deny", "Warn", "Audit"]
ReinvocationPolicy = Literal["Never", "IfNeeded"]
Reason = Literal["Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge"]
STATUS_CODES: dict[Reason, int] = {
    "Unauthorized": 401,
    "Forbidden": 403,
    "Invalid": 422,
    "RequestEntityTooLarge": 413,
}

MATCH_ALL = LabelSelector()


def is_policy(resource: GroupVersionResource) -> bool:
    """Tell whether objects of a resource are policies, or of policyd's own group.

    No policy applies to them: one that denies everything could not be repaired.
    """
    own, kyverno = resource.group == GROUP, resource.group in KYVERNO_GROUPS
    return own or (kyverno and resource.resource.endswith("policies"))


class MatchConstraints(Closed, frozen=True):
    """The requests that the policy matches, by kind, operation and labels."""

    resource_rules: Annotated[tuple[Rule, ...], msgspec.Meta(extra_json_schema={"minItems": 1})]
    """The requests that the policy matches; one matching rule is enough."""
    exclude_resource_rules: tuple[Rule, ...] = ()
    """Requests that it excludes from these."""
    namespace_selector: LabelSelector = MATCH_ALL
    """Labels of the object's namespace, or of the namespace itself if that is the object."""
    object_selector: LabelSelector = MATCH_ALL
    """Labels of the object, as it is or as it was."""
    match_policy: MatchPolicy = "Equivalent"
    """`Equivalent`: other versions of a resource match too. `Exact`: only the one named."""


class MatchResources(Closed, frozen=True):
    """Which requests a binding narrows its policy to; all that is left out narrows nothing."""

    resource_rules: tuple[Rule, ...] = ()
    """One rule that matches is enough; without any, every resource matches."""
    exclude_resource_rules: tuple[Rule, ...] = ()
    """Requests that are excluded from these."""
    namespace_selector: LabelSelector = MATCH_ALL
    """Labels of the object's namespace, or of the namespace itself if that is the object."""
    object_selector: LabelSelector = MATCH_ALL
    """Labels of the object, as it is or as it was."""
    match_policy: MatchPolicy = "Equivalent"
    """`Equivalent`: other versions of a resource match too. `Exact`: only the one named."""


class ParamKind(Closed, frozen=True):
    """The kind of a policy's params."""

    api_version: str
    """Group and version, such as `v1` or `example.com/v1`."""
    kind: str
    """Such as `ConfigMap`."""


class ParamRef(Closed, frozen=True):
    """The parameter objects: one by name, or all that a selector matches."""

    name: str = ""
    """The name of one object; a selector replaces it, and both cannot be set."""
    namespace: str = ""
    """Where to look; empty for the namespace of the request, or of a kind without namespaces."""
    selector: LabelSelector | None = None
    """Picks objects by their labels; the policy is evaluated with each of them."""
    parameter_not_found_action: Literal["Allow", "Deny"] = "Deny"
    """The behavior if the object does not exist."""


class NamedExpression(Closed, frozen=True):
    """An expression with a name: a match condition, or a variable."""

    name: str
    """Unique within the policy; a variable is read as `variables.NAME`."""
    expression: str
    """CEL."""


class Validation(Closed, frozen=True):
    """One condition. The request is denied when `expression` is not true.

    `remedy` is an instruction to the user; it follows the message.
    """

    expression: str
    """CEL that is true of allowed objects."""
    name: str = ""
    """Says which validation it was, in denials and logs."""
    message: str = ""
    """The message for the user."""
    message_expression: str = ""
    """CEL that computes the message; `message` is used if it fails."""
    remedy: Text = ""
    """An instruction to the user."""
    reason: Reason = "Invalid"
    """Decides the HTTP status of the refusal."""


class Mutation(Closed, frozen=True):
    """One change of the object, computed by CEL; each sees the result of the ones before."""

    patch_type: Literal["ApplyConfiguration", "JSONPatch"]
    """Which of the two ways it is written in."""
    apply_configuration: Expression | None = None
    """Gives an `Object{…}` that is merged into the object, as server-side apply does."""
    json_patch: Expression | None = None
    """Gives a list of `JSONPatch{…}` operations."""


class AuditAnnotation(Closed, frozen=True):
    """An entry in the audit log for a request that the policy matched."""

    key: str
    """Unique within the policy."""
    value_expression: str
    """CEL that gives a text, or null for no annotation."""


class ExceptionTerms(Closed, frozen=True):
    """An exception from the policy: its users, places, end, and reason.

    All set fields must hold of a request. `validations` and `containers` exempt from a part.
    """

    reason: Annotated[str, msgspec.Meta(min_length=1)]
    """Why, such as the number of an incident."""
    owner: str = ""
    """The person or team that is responsible for it."""
    until: Annotated[str, msgspec.Meta(pattern=r"^(\d{4}-\d{2}-\d{2})?$")] = ""
    """The last day on which it holds, as `2027-01-31`, in UTC; for good if left out."""
    users: tuple[str, ...] = ()
    """The user of the request: any of these."""
    groups: tuple[str, ...] = ()
    """A group of that user: any of these."""
    namespaces: tuple[str, ...] = ()
    """The namespace of the request: any of these."""
    expression: str = ""
    """CEL that is true of the requests that are meant."""
    validations: tuple[str, ...] = ()
    """Names of the exempt validations; all, and all that the policy sets, if left out."""
    containers: tuple[str, ...] = ()
    """Names of containers that validations do not see; the others must pass."""


class PolicySpec(Closed, frozen=True):
    """The requests that a policy matches, its changes, and its validations."""

    match_constraints: MatchConstraints
    """Which requests the policy concerns, by kind, operation and labels."""
    description: str = ""
    """The purpose of the policy, in a sentence."""
    pod_templates: bool = False
    """Whether rules for pods stand for the pod templates of every kind that makes pods, too."""
    match_conditions: Annotated[tuple[NamedExpression, ...], msgspec.Meta(max_length=64)] = ()
    """Which of those it concerns, by CEL: all must be true."""
    variables: tuple[NamedExpression, ...] = ()
    """Named expressions, computed when they are first used; later ones may use earlier ones."""
    param_kind: ParamKind | None = None
    """The kind of the objects that expressions see as `params`."""
    param_ref: ParamRef | None = None
    """Which objects those are, unless a PolicyBinding says."""
    inject: Inject | None = None
    """Fields that are set on the objects."""
    mutations: tuple[Mutation, ...] = ()
    """Further changes by CEL, after `inject`."""
    reinvocation_policy: ReinvocationPolicy = "IfNeeded"
    """Whether mutations run again when another policy changed the object after them."""
    validations: tuple[Validation, ...] = ()
    """Rules for the objects, after the changes of all policies."""
    audit_annotations: Annotated[tuple[AuditAnnotation, ...], msgspec.Meta(max_length=20)] = ()
    """Entries in the audit log."""
    exceptions: tuple[ExceptionTerms, ...] = ()
    """Exceptions from all that."""
    enforcement: Enforcement = "Deny"
    """The effect of a validation that is not true: a refusal, a warning, or an audit annotation."""
    rollout: Annotated[tuple[RolloutStep, ...], msgspec.Meta(max_length=16)] = ()
    """Requests with another enforcement: the first step that matches a request decides."""
    shadow_of: str = ""
    """The policy that this may replace: both are asked, the other answers, and how they differ is
    reported. It has the other's bindings unless it has its own."""
    requires_binding: bool = False
    """Whether it does nothing without a PolicyBinding, as with params and no `paramRef` anyway."""
    failure_policy: FailurePolicy = "Fail"
    """The behavior if the policy cannot be evaluated: it objects, or it is left out."""
    priority: int = 0
    """The order of mutations: higher first, then by name."""


class PolicyStatus(Wire, frozen=True):
    """The state of a policy, or of a binding, in the cluster."""

    observed_generation: int = 0
    """The generation of the object that this is about."""
    conditions: tuple[Condition, ...] = ()
    """`Ready` says whether it counts, and why not."""


class Policy(Closed, frozen=True):
    """One policy: the requests that it matches, its changes, and its validations."""

    api_version: Literal["policyd.io/v1alpha1"]
    kind: Literal["Policy"]
    metadata: ObjectMeta
    spec: PolicySpec
    status: PolicyStatus | None = None

    @property
    def name(self) -> str:
        """The policy's name."""
        return self.metadata.name


class PolicyBindingSpec(Closed, frozen=True):
    """Where a policy applies, with which params, and how strictly."""

    policy_name: str
    """The policy that is bound. A policy that has bindings applies by them alone."""
    param_ref: ParamRef | None = None
    """The params it is evaluated with."""
    match_resources: MatchResources | None = None
    """Narrows the requests that the policy matches."""
    enforcement: Enforcement | None = None
    """The effect of a validation that is not true; the policy's own if left out."""
    rollout: Annotated[tuple[RolloutStep, ...], msgspec.Meta(max_length=16)] = ()
    """Requests with another enforcement; the policy's own steps if this and that are left out."""


class PolicyBinding(Closed, frozen=True):
    """Binds a policy to params and places: the same policy may have several bindings."""

    api_version: Literal["policyd.io/v1alpha1"]
    kind: Literal["PolicyBinding"]
    metadata: ObjectMeta
    spec: PolicyBindingSpec
    status: PolicyStatus | None = None


class PolicyObject(Wire, frozen=True):
    """A Policy object as the API server keeps it: its spec is read later, mistakes and all."""

    metadata: ObjectMeta
    spec: Json = None
    status: PolicyStatus | None = None

    @property
    def value(self) -> Json:
        """The object as it would be written: with its name and spec."""
        return _written("Policy", self.metadata.name, self.spec)


class BindingObject(Wire, frozen=True):
    """A PolicyBinding object as the API server keeps it."""

    metadata: ObjectMeta
    spec: Json = None
    status: PolicyStatus | None = None

    @property
    def value(self) -> Json:
        """The object as it would be written: with its name and spec."""
        return _written("PolicyBinding", self.metadata.name, self.spec)

    @property
    def policy_name(self) -> str:
        """The policy it is for; empty if it does not say."""
        named = self.spec.get("policyName") if isinstance(self.spec, dict) else None
        return named if isinstance(named, str) else ""


def _written(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
