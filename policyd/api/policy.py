"""Policy: the API server's words for matching and validating, and `inject` for the rest."""

from typing import Annotated, Literal

import msgspec

from policyd.api.admission import FailurePolicy, MatchPolicy, Rule
from policyd.api.inject import Closed, Expression, Inject, Text
from policyd.api.meta import Condition, Json, ObjectMeta, Wire
from policyd.api.rollout import RolloutStep
from policyd.api.selectors import LabelSelector

GROUP = "policyd.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

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


class MatchConstraints(Closed, frozen=True):
    """Which requests a policy concerns, by kind, operation and labels."""

    resource_rules: Annotated[tuple[Rule, ...], msgspec.Meta(extra_json_schema={"minItems": 1})]
    """What the policy concerns; one rule that matches is enough."""
    exclude_resource_rules: tuple[Rule, ...] = ()
    """What it leaves out of that."""
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
    """What is left out of that."""
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
    """Which objects are the params: one by name, or all that a selector picks."""

    name: str = ""
    """The name of one object; a selector stands in its place, never beside it."""
    namespace: str = ""
    """Where to look; empty for the namespace of the request, or of a kind without namespaces."""
    selector: LabelSelector | None = None
    """Picks objects by their labels; the policy is evaluated with each of them."""
    parameter_not_found_action: Literal["Allow", "Deny"] = "Deny"
    """What happens when there is no such object."""


class NamedExpression(Closed, frozen=True):
    """An expression with a name: a match condition, or a variable."""

    name: str
    """Unique within the policy; that of a variable is what `variables.NAME` calls it."""
    expression: str
    """CEL."""


class Validation(Closed, frozen=True):
    """One condition. The request is denied when `expression` is not true.

    `remedy` tells the user what to do about it; it follows the message.
    """

    expression: str
    """CEL that is true of what may pass."""
    name: str = ""
    """Says which validation it was, in denials and logs."""
    message: str = ""
    """What is wrong."""
    message_expression: str = ""
    """CEL that computes the message; `message` stands in where it fails."""
    remedy: Text = ""
    """What to do about it."""
    reason: Reason = "Invalid"
    """Decides the HTTP status of the refusal."""


class Mutation(Closed, frozen=True):
    """One change of the object, computed by CEL; each sees what the ones before made of it."""

    patch_type: Literal["ApplyConfiguration", "JSONPatch"]
    """Which of the two ways it is written in."""
    apply_configuration: Expression | None = None
    """Gives an `Object{…}` that is merged into the object, as server-side apply does."""
    json_patch: Expression | None = None
    """Gives a list of `JSONPatch{…}` operations."""


class AuditAnnotation(Closed, frozen=True):
    """What the audit log is told of a request that the policy concerned."""

    key: str
    """Unique within the policy."""
    value_expression: str
    """CEL that gives a text, or null for no annotation."""


class LiftedRule(Closed, frozen=True):
    """What is lifted from the policy: for whom, where, until when, and why.

    All that is given must hold of a request. `validations` and `containers` lift less than all.
    """

    reason: Annotated[str, msgspec.Meta(min_length=1)]
    """Why, such as the number of an incident."""
    owner: str = ""
    """Who answers for it."""
    until: Annotated[str, msgspec.Meta(pattern=r"^(\d{4}-\d{2}-\d{2})?$")] = ""
    """The last day on which it holds, as `2027-01-31`, in UTC; for good if left out."""
    users: tuple[str, ...] = ()
    """Who sends the request: any of these."""
    groups: tuple[str, ...] = ()
    """A group of who sends it: any of these."""
    namespaces: tuple[str, ...] = ()
    """The namespace of the request: any of these."""
    expression: str = ""
    """CEL that is true of the requests that are meant."""
    validations: tuple[str, ...] = ()
    """Names of the validations that are lifted; all, and what the policy sets, if left out."""
    containers: tuple[str, ...] = ()
    """Names of containers that validations do not see; the others must pass."""


class PolicySpec(Closed, frozen=True):
    """What a policy concerns, sets and demands."""

    match_constraints: MatchConstraints
    """Which requests the policy concerns, by kind, operation and labels."""
    description: str = ""
    """What the policy is for, in a sentence."""
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
    """What is set on the objects."""
    mutations: tuple[Mutation, ...] = ()
    """What is changed besides, after `inject`, by CEL."""
    reinvocation_policy: ReinvocationPolicy = "IfNeeded"
    """Whether mutations run again when another policy changed the object after them."""
    validations: tuple[Validation, ...] = ()
    """What must be true of them, after all policies have set what they set."""
    audit_annotations: Annotated[tuple[AuditAnnotation, ...], msgspec.Meta(max_length=20)] = ()
    """What the audit log is told."""
    exceptions: tuple[LiftedRule, ...] = ()
    """What is lifted from all that."""
    enforcement: Enforcement = "Deny"
    """What a validation that is not true leads to: a refusal, a warning, or an audit annotation."""
    rollout: Annotated[tuple[RolloutStep, ...], msgspec.Meta(max_length=16)] = ()
    """For whom it is enforced otherwise meanwhile: the first step that picks a request says."""
    shadow_of: str = ""
    """The policy that this may replace: both are asked, the other answers, and how they differ is
    reported. It has the other's bindings unless it has its own."""
    requires_binding: bool = False
    """Whether it does nothing without a PolicyBinding, as with params and no `paramRef` anyway."""
    failure_policy: FailurePolicy = "Fail"
    """What happens when the policy cannot be evaluated: it objects, or it is left out."""
    priority: int = 0
    """Who mutates first: the higher, then the lower name."""


class PolicyStatus(Wire, frozen=True):
    """What became of a policy, or of a binding, in the cluster."""

    observed_generation: int = 0
    """The generation of the object that this was said of."""
    conditions: tuple[Condition, ...] = ()
    """`Ready` says whether it counts, and why not."""


class Policy(Closed, frozen=True):
    """One policy: which requests it concerns, what it sets, and what it demands."""

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
    """Narrows what the policy concerns."""
    enforcement: Enforcement | None = None
    """What a validation that is not true leads to; the policy's own word if left out."""
    rollout: Annotated[tuple[RolloutStep, ...], msgspec.Meta(max_length=16)] = ()
    """For whom it is enforced otherwise; the policy's own steps if this and that are left out."""


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
