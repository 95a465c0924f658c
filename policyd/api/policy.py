"""Policy: the API server's words for matching and validating, and `inject` for what is to be set.

Wherever `Text`, `Number` or `Expression` stands, a value is written out or computed by CEL as
`{expression: …}`. A computed value that is null is left out, with the field that would carry it.
"""

from typing import Annotated, Literal

import msgspec

from policyd.api.admission import FailurePolicy, MatchPolicy, Rule
from policyd.api.meta import Condition, ObjectMeta, Wire
from policyd.api.selectors import LabelSelector

GROUP = "policyd.io"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"

Enforcement = Literal["Deny", "Warn", "Audit"]
ReinvocationPolicy = Literal["Never", "IfNeeded"]
Reason = Literal["Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge"]
InjectField = Literal[
    "queueName",
    "priorityClassName",
    "workloadPriorityClassName",
    "tolerations",
    "nodeSelector",
    "affinity",
    "topologySpreadConstraints",
    "topology",
    "gang",
    "resources",
    "labels",
    "annotations",
    "objectLabels",
    "objectAnnotations",
]
"""What `override` can name. Scheduling gates are only ever added."""

STATUS_CODES: dict[Reason, int] = {
    "Unauthorized": 401,
    "Forbidden": 403,
    "Invalid": 422,
    "RequestEntityTooLarge": 413,
}

MATCH_ALL = LabelSelector()


class Closed(Wire, frozen=True, forbid_unknown_fields=True):
    """Base of what users write: a field that is not known is a mistake."""


class Expression(Closed, frozen=True):
    """A value computed by CEL."""

    expression: str


Text = str | Expression
Number = int | Expression
Amount = str | int | Expression


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


class Toleration(Closed, frozen=True):
    """A taint the pods put up with."""

    key: Text = ""
    operator: Literal["", "Exists", "Equal", "Lt", "Gt"] | Expression = ""
    value: Text = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] | Expression = ""
    toleration_seconds: Number | None = None


class NodeRequirement(Closed, frozen=True):
    """One condition on one label of a node."""

    key: Text
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[Text, ...] | Expression = ()


class NodeTerm(Closed, frozen=True):
    """Conditions on a node that must all hold."""

    match_expressions: tuple[NodeRequirement, ...] = ()
    match_fields: tuple[NodeRequirement, ...] = ()


class NodeTerms(Closed, frozen=True):
    """Terms of which at least one must hold."""

    node_selector_terms: Annotated[tuple[NodeTerm, ...], msgspec.Meta(min_length=1)]


class PreferredTerm(Closed, frozen=True):
    """A term that is wished for, with its weight."""

    weight: Annotated[int, msgspec.Meta(ge=1, le=100)]
    preference: NodeTerm


class NodeAffinity(Closed, frozen=True):
    """Which nodes the pods must, or should, go to."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredTerm, ...] = ()


class Affinity(Closed, frozen=True):
    """What the pods are drawn to. Required terms are added to each term the author wrote."""

    node_affinity: NodeAffinity


class TopologySpreadConstraint(Closed, frozen=True):
    """How evenly pods spread; one per topology key and `whenUnsatisfiable`."""

    max_skew: Number
    topology_key: Text
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    label_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    min_domains: Number | None = None
    node_affinity_policy: Literal["", "Honor", "Ignore"] = ""
    node_taints_policy: Literal["", "Honor", "Ignore"] = ""


class TopologyRequest(Closed, frozen=True):
    """How close together all pods of a job go. Exactly one of the three.

    `required` and `preferred` name the node label of a level of the Topology.
    """

    required: Text | None = None
    """All pods within one domain of this level, or the job waits."""
    preferred: Text | None = None
    """Within one domain if it can be had, else in as few as possible."""
    unconstrained: bool | Expression | None = None
    """Anywhere, with the free capacity of each node looked at."""


class Gang(Closed, frozen=True):
    """How many pods start together, or not at all.

    A plain pod needs the group's `name` too, unless it carries one.
    """

    min_member: Number
    """Pods that start together."""
    name: Text | None = None
    """The group that a plain pod belongs to."""


class SchedulingGate(Closed, frozen=True):
    """What must be lifted before a pod is scheduled."""

    name: Text


class Resources(Closed, frozen=True):
    """What each container asks for if its author did not say."""

    requests: dict[str, Amount] = {}
    """By resource. A limit that the author stated counts as the request."""
    limits: dict[str, Amount] = {}
    """By resource. Never below a request that the author stated."""


class Inject(Closed, frozen=True):
    """What is set on the pods, on the pod templates, or on the object that holds them.

    What the author of the object set is kept, unless `override` is true or names the field.
    `labels` and `annotations` go on the pods; `objectLabels` and `objectAnnotations` on the object.
    """

    queue_name: Text | None = None
    """The LocalQueue that the object waits in."""
    priority_class_name: Text | None = None
    """The PriorityClass of the pods."""
    workload_priority_class_name: Text | None = None
    """The WorkloadPriorityClass that orders the object in its queue."""
    tolerations: tuple[Toleration, ...] | Expression = ()
    """Added, unless one that is there covers them."""
    node_selector: dict[str, Text] = {}
    """Labels that nodes must have; each is set for itself."""
    affinity: Affinity | None = None
    """Nodes to go to; joined with what the author asked for."""
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | Expression = ()
    """How evenly the pods spread."""
    topology: TopologyRequest | None = None
    """How close together the pods go."""
    gang: Gang | None = None
    """How many pods start together."""
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    """What must be lifted before the pods are scheduled; set at creation only."""
    resources: Resources | None = None
    """What containers ask for if their author did not say."""
    labels: dict[str, Text] = {}
    """Labels of the pods."""
    annotations: dict[str, Text] = {}
    """Annotations of the pods."""
    object_labels: dict[str, Text] = {}
    """Labels of the object itself."""
    object_annotations: dict[str, Text] = {}
    """Annotations of the object itself."""
    override: bool | tuple[InjectField, ...] = False
    """Whether, or for which fields, this goes before what the author set."""


class PolicySpec(Closed, frozen=True):
    """What a policy concerns, sets and demands."""

    match_constraints: MatchConstraints
    """Which requests the policy concerns, by kind, operation and labels."""
    description: str = ""
    """What the policy is for, in a sentence."""
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
    enforcement: Enforcement = "Deny"
    """What a validation that is not true leads to: a refusal, a warning, or an audit annotation."""
    failure_policy: FailurePolicy = "Fail"
    """What happens when the policy cannot be evaluated: it objects, or it is left out."""
    priority: int = 0
    """Who mutates first: the higher, then the lower name."""


class PolicyStatus(Wire, frozen=True):
    """What became of a policy in the cluster."""

    observed_generation: int = 0
    conditions: tuple[Condition, ...] = ()


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


class PolicyBinding(Closed, frozen=True):
    """Binds a policy to params and places: the same policy may have several bindings."""

    api_version: Literal["policyd.io/v1alpha1"]
    kind: Literal["PolicyBinding"]
    metadata: ObjectMeta
    spec: PolicyBindingSpec
