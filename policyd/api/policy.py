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

    resource_rules: Annotated[tuple[Rule, ...], msgspec.Meta(min_length=1)]
    exclude_resource_rules: tuple[Rule, ...] = ()
    namespace_selector: LabelSelector = MATCH_ALL
    object_selector: LabelSelector = MATCH_ALL
    match_policy: MatchPolicy = "Equivalent"


class NamedExpression(Closed, frozen=True):
    """An expression with a name: a match condition, or a variable."""

    name: str
    expression: str


class Validation(Closed, frozen=True):
    """One condition. The request is denied when `expression` is not true.

    `remedy` tells the user what to do about it; it follows the message.
    """

    expression: str
    name: str = ""
    message: str = ""
    message_expression: str = ""
    remedy: Text = ""
    reason: Reason = "Invalid"


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
    preferred: Text | None = None
    unconstrained: bool | Expression | None = None


class Gang(Closed, frozen=True):
    """How many pods start together, or not at all.

    A plain pod needs the group's `name` too, unless it carries one.
    """

    min_member: Number
    name: Text | None = None


class SchedulingGate(Closed, frozen=True):
    """What must be lifted before a pod is scheduled."""

    name: Text


class Resources(Closed, frozen=True):
    """What each container asks for if its author did not say."""

    requests: dict[str, Amount] = {}
    limits: dict[str, Amount] = {}


class Inject(Closed, frozen=True):
    """What is set on the pods, on the pod templates, or on the object that holds them.

    What the author of the object set is kept, unless `override` is true or names the field.
    `labels` and `annotations` go on the pods; `objectLabels` and `objectAnnotations` on the object.
    """

    queue_name: Text | None = None
    priority_class_name: Text | None = None
    workload_priority_class_name: Text | None = None
    tolerations: tuple[Toleration, ...] | Expression = ()
    node_selector: dict[str, Text] = {}
    affinity: Affinity | None = None
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | Expression = ()
    topology: TopologyRequest | None = None
    gang: Gang | None = None
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    resources: Resources | None = None
    labels: dict[str, Text] = {}
    annotations: dict[str, Text] = {}
    object_labels: dict[str, Text] = {}
    object_annotations: dict[str, Text] = {}
    override: bool | tuple[InjectField, ...] = False


class PolicySpec(Closed, frozen=True):
    """What a policy concerns, sets and demands."""

    match_constraints: MatchConstraints
    description: str = ""
    match_conditions: Annotated[tuple[NamedExpression, ...], msgspec.Meta(max_length=64)] = ()
    variables: tuple[NamedExpression, ...] = ()
    inject: Inject | None = None
    validations: tuple[Validation, ...] = ()
    enforcement: Enforcement = "Deny"
    failure_policy: FailurePolicy = "Fail"
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
