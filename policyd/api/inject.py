"""The fields that a policy sets: `inject`, declared in plain YAML or computed by CEL.

Wherever `Text`, `Number` or `Expression` stands, a value is written out or computed by CEL as
`{expression: …}`. A computed value that is null is left out, with the field that would carry it.
"""

from typing import Annotated, Literal

import msgspec

from policyd.api.meta import Wire
from policyd.api.selectors import LabelSelector

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
"""The names for `override`. Scheduling gates are only ever added."""


class Closed(Wire, frozen=True, forbid_unknown_fields=True):
    """Base of types that users write: an unknown field is an error."""


class Expression(Closed, frozen=True):
    """A value computed by CEL."""

    expression: str
    """CEL."""


Text = str | Expression
Number = int | Expression
Amount = str | int | Expression


class InjectedToleration(Closed, frozen=True):
    """A taint the pods put up with."""

    key: Text = ""
    """The taint's key; empty for every taint, with the operator `Exists`."""
    operator: Literal["", "Exists", "Equal", "Lt", "Gt"] | Expression = ""
    """`Exists` for every value of the taint; empty for `Equal`."""
    value: Text = ""
    """The taint's value, with the operator `Equal`."""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] | Expression = ""
    """The taint's effect; empty for every effect."""
    toleration_seconds: Number | None = None
    """How long a `NoExecute` taint is tolerated; always if left out."""


class InjectedNodeRequirement(Closed, frozen=True):
    """One condition on one label of a node."""

    key: Text
    """The label."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    """How the label's value is compared with `values`."""
    values: tuple[Text, ...] | Expression = ()
    """The values to compare with; none for `Exists` and `DoesNotExist`, one number for `Gt` and
    `Lt`."""


class NodeTerm(Closed, frozen=True):
    """Conditions on a node that must all hold."""

    match_expressions: tuple[InjectedNodeRequirement, ...] = ()
    """Conditions on labels of the node."""
    match_fields: tuple[InjectedNodeRequirement, ...] = ()
    """Conditions on fields of the node, such as `metadata.name`."""


class NodeTerms(Closed, frozen=True):
    """Terms of which at least one must hold."""

    node_selector_terms: Annotated[tuple[NodeTerm, ...], msgspec.Meta(min_length=1)]
    """Each a way to fulfil it."""


class InjectedPreferredTerm(Closed, frozen=True):
    """A term that is wished for, with its weight."""

    weight: Annotated[int, msgspec.Meta(ge=1, le=100)]
    """How much it counts, from 1 to 100."""
    preference: NodeTerm
    """The preferred nodes."""


class InjectedNodeAffinity(Closed, frozen=True):
    """The nodes that the pods require or prefer."""

    required_during_scheduling_ignored_during_execution: NodeTerms | None = None
    """The requirements on nodes."""
    preferred_during_scheduling_ignored_during_execution: tuple[InjectedPreferredTerm, ...] = ()
    """The preferences for nodes."""


class InjectedAffinity(Closed, frozen=True):
    """Node affinity of the pods. Required terms are added to each term the author wrote."""

    node_affinity: InjectedNodeAffinity
    """The nodes that the pods require or prefer."""


class TopologySpreadConstraint(Closed, frozen=True):
    """How evenly pods spread; one per topology key and `whenUnsatisfiable`."""

    max_skew: Number
    """How many more pods one domain may have than another."""
    topology_key: Text
    """The node label whose values are the domains."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    """Whether pods wait, or go where the skew is least."""
    label_selector: LabelSelector | None = None
    """The pods that are counted."""
    match_label_keys: tuple[str, ...] = ()
    """Pod labels whose values must be those of the pod at hand."""
    min_domains: Number | None = None
    """How few domains are enough."""
    node_affinity_policy: Literal["", "Honor", "Ignore"] = ""
    """Whether nodes that the pod does not select are left out."""
    node_taints_policy: Literal["", "Honor", "Ignore"] = ""
    """Whether nodes that the pod does not tolerate are left out."""


class InjectedTopology(Closed, frozen=True):
    """How close together all pods of a job go. Exactly one of the three.

    `required` and `preferred` name the node label of a level of the Topology.
    """

    required: Text | None = None
    """All pods within one domain of this level, or the job waits."""
    preferred: Text | None = None
    """Within one domain if it can be had, else in as few as possible."""
    unconstrained: bool | Expression | None = None
    """Anywhere, with the free capacity of each node looked at."""


class InjectedGang(Closed, frozen=True):
    """How many pods start together, or not at all.

    A plain pod needs the group's `name` too, unless it carries one.
    """

    min_member: Number
    """Pods that start together."""
    name: Text | None = None
    """The group that a plain pod belongs to."""


class InjectedSchedulingGate(Closed, frozen=True):
    """A gate that must be removed before a pod is scheduled."""

    name: Text
    """The gate's name."""


class InjectedResources(Closed, frozen=True):
    """Requests and limits of each container whose author did not set them."""

    requests: dict[str, Amount] = {}
    """By resource. A limit that the author stated counts as the request."""
    limits: dict[str, Amount] = {}
    """By resource. Never below a request that the author stated."""


class Inject(Closed, frozen=True):
    """The fields that are set on the pods, on the pod templates, or on the object that holds them.

    A value that the author of the object set is kept, unless `override` is true or names the field.
    `labels` and `annotations` go on the pods; `objectLabels` and `objectAnnotations` on the object.
    """

    queue_name: Text | None = None
    """The LocalQueue that the object waits in."""
    priority_class_name: Text | None = None
    """The PriorityClass of the pods."""
    workload_priority_class_name: Text | None = None
    """The WorkloadPriorityClass that orders the object in its queue."""
    tolerations: tuple[InjectedToleration, ...] | Expression = ()
    """Added, unless an existing one covers them."""
    node_selector: dict[str, Text] = {}
    """Labels that nodes must have; each is set for itself."""
    affinity: InjectedAffinity | None = None
    """Nodes for the pods; combined with the author's affinity."""
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] | Expression = ()
    """How evenly the pods spread."""
    topology: InjectedTopology | None = None
    """How close together the pods go."""
    gang: InjectedGang | None = None
    """How many pods start together."""
    scheduling_gates: tuple[InjectedSchedulingGate, ...] = ()
    """Gates that must be removed before the pods are scheduled; set at creation only."""
    resources: InjectedResources | None = None
    """Requests and limits of containers whose author did not set them."""
    labels: dict[str, Text] = {}
    """Labels of the pods."""
    annotations: dict[str, Text] = {}
    """Annotations of the pods."""
    object_labels: dict[str, Text] = {}
    """Labels of the object itself."""
    object_annotations: dict[str, Text] = {}
    """Annotations of the object itself."""
    override: bool | tuple[InjectField, ...] = False
    """Whether, or for which fields, these values override the author's."""
