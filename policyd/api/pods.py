"""Pods as the queue reads them: only their requests, and the rules for their nodes."""

from typing import Annotated, Final, Literal, get_args

from policyd.api.meta import ObjectMeta, Wire
from policyd.api.schema import UNSAID, Int64, QuantityText

TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
TAINT_EFFECTS: Final = get_args(TaintEffect)
TolerationOperator = Literal["", "Exists", "Equal", "Lt", "Gt"]


class Taint(Wire, frozen=True):
    """Keeps pods away that do not tolerate it."""

    key: str
    """The taint's name."""
    effect: TaintEffect
    """The effect on pods that do not tolerate it."""
    value: str = ""
    """Tells taints of one key apart."""


class Toleration(Wire, frozen=True):
    """Lets a pod onto nodes with a matching taint."""

    key: str = ""
    """The taint's key; empty for every taint, with the operator `Exists`."""
    operator: Annotated[TolerationOperator, UNSAID] = ""
    """`Exists` for every value of the taint, `Equal` or empty for one.

    An explicit value stays so when it is passed on.
    """
    value: str = ""
    """The taint's value, with the operator `Equal`."""
    effect: str = ""
    """The taint's effect; empty for every effect."""
    toleration_seconds: Int64 | None = None
    """How long a `NoExecute` taint is tolerated; always if left out."""


class NodeRequirement(Wire, frozen=True):
    """One condition on one node label."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Wire, frozen=True):
    """Conditions that must all hold."""

    match_expressions: tuple[NodeRequirement, ...] = ()
    match_fields: tuple[NodeRequirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    """Terms of which one must hold."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredTerm(Wire, frozen=True):
    """Conditions that had better hold, and how much that counts."""

    weight: int
    preference: NodeSelectorTerm


class NodeAffinity(Wire, frozen=True):
    """Which nodes a pod may run on, and which it would prefer."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredTerm, ...] = ()


class Affinity(Wire, frozen=True):
    """The node part of a pod's affinity."""

    node_affinity: NodeAffinity | None = None


class Resources(Wire, frozen=True):
    """Requests and limits of a container, or of a pod as a whole."""

    requests: dict[str, QuantityText] = {}
    limits: dict[str, QuantityText] = {}


class ContainerPort(Wire, frozen=True):
    """A port of a container that takes one of the node, if any."""

    host_port: int = 0
    protocol: str = "TCP"


class Container(Wire, frozen=True):
    """One container's resources; an init container that always restarts is a sidecar."""

    name: str = ""
    resources: Resources = Resources()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


class SchedulingGate(Wire, frozen=True):
    """Holds a pod back from the scheduler until it is removed."""

    name: str


class SchedulingGroup(Wire, frozen=True):
    """The native pod group that a pod is scheduled with."""

    pod_group_name: str = ""


class PodResourceClaim(Wire, frozen=True):
    """Devices that a pod asks for by a ResourceClaim, which exists already or is made for it."""

    name: str = ""
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodSpec(Wire, frozen=True):
    """The part of a pod's specification that decides about quota, flavor and place."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    node_name: str = ""
    overhead: dict[str, QuantityText] = {}
    resources: Resources | None = None
    runtime_class_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    priority_class_name: str = ""
    priority: int | None = None
    restart_policy: str = ""
    active_deadline_seconds: int | None = None
    scheduler_name: str = ""
    scheduling_group: SchedulingGroup | None = None
    resource_claims: tuple[PodResourceClaim, ...] = ()


class PodTemplate(Wire, frozen=True):
    """A pod template, trimmed to the fields that the queue reads."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
