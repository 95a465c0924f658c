"""Nodes, and the topology requests and placements of pod sets: amounts and names."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from policyd.alloc.value import NO_ENTRIES, Value
from policyd.node_rules import NodeTaint, TaintToleration, Term

HOSTNAME = "kubernetes.io/hostname"
"""As lowest level: its domains are single nodes, and known by their host name alone."""

NODE_NAME_FIELD = "field:metadata.name"
"""Key of a requirement on a node's name (matchFields); no label can have it."""

HOST_PORT = "hostPort/"
"""The prefix of a node port's name as a resource, of which every node has one."""

CLAIMED = "byClaim/"
"""The prefix of a resource that pods get by claims. It limits pods once some node has it. As the
other prefix, it has a capital, so that no pod can request a resource of that name."""

PODS = "pods"
"""The resource of which every pod needs one."""

DomainValues = tuple[str, ...]
"""The values of the level labels that name a domain, from the coarsest level to its own."""


class TopologyNode(Value, frozen=True):
    """A node.

    Attributes:
        name: Unique among nodes.
        labels: Its labels; those of a topology's levels say where it is.
        allocatable: Amounts for pods, in canonical units; `pods` is one of the resources.
        taints: Taints that keep pods away.
        ready: Whether its condition Ready is True.
        schedulable: Whether new pods may go there (no `spec.unschedulable`).
    """

    name: str
    labels: Mapping[str, str] = NO_ENTRIES
    allocatable: Mapping[str, int] = NO_ENTRIES
    taints: tuple[NodeTaint, ...] = ()
    ready: bool = True
    schedulable: bool = True

    @property
    def usable(self) -> bool:
        """Whether pods may be placed there at all."""
        return self.ready and self.schedulable


class SliceLayer(Value, frozen=True):
    """Every `size` pods of a pod set, of the same slice, stay in one domain of `level`."""

    level: str
    size: int


class TopologyPlacement(Value, frozen=True):
    """Where the pods of a pod set go: a TopologyAssignment.

    Attributes:
        levels: Labels of the levels that `domains` name; of a topology down to nodes, its last.
        domains: Domains in order, by their values of `levels`, with their numbers of pods.
    """

    levels: tuple[str, ...]
    domains: tuple[tuple[DomainValues, int], ...] = ()

    @property
    def count(self) -> int:
        """How many pods it places."""
        return sum(count for _, count in self.domains)


Mode = Literal["Required", "Preferred", "Unconstrained"]
"""All pods in one domain; in one if possible, else in as few as possible; anywhere."""


NodeRule = Callable[[TopologyNode], str]
"""Returns the obstacle for pods on a node; "" if there is none."""

TieBreak = Callable[[Any, Mapping[str, int]], list[int]]
"""Given a topology's tree and one pod's requests, ranks its domains: the highest goes first."""


class PlacementRequest(Value, frozen=True):
    """The topology request of one pod set.

    Attributes:
        pod_set: Its name.
        count: How many pods to place.
        requests: Requests of one pod, in canonical units; one of `pods` is implied.
        mode: How close the pods must be.
        level: In domains of which level; "" for the lowest, or the highest if there are slices.
        slices: Layers of slices, the outermost first.
        group: Pod sets of the same group are placed together; "" for none.
        node_selector: Node labels the pods insist on.
        affinity: Terms of which a node must meet one; without terms, any node will do.
        preferred_affinity: Weights of terms that nodes better meet.
        tolerations: Taints the pods accept.
        held: Its assignment so far, which is kept, or repaired if a node failed.
        pinned: Whether it cannot go elsewhere, since its workload stands for an existing pod.
        short: Whether some of its pods have ended, so that its last slice may lack some.
        rule: A further rule for nodes; None if there is none.
        tie_break: Decides between equally good places; None if their names do.
    """

    pod_set: str
    count: int
    requests: Mapping[str, int] = NO_ENTRIES
    mode: Mode = "Unconstrained"
    level: str = ""
    slices: tuple[SliceLayer, ...] = ()
    group: str = ""
    node_selector: Mapping[str, str] = NO_ENTRIES
    affinity: tuple[Term, ...] = ()
    preferred_affinity: tuple[tuple[int, Term], ...] = ()
    tolerations: tuple[TaintToleration, ...] = ()
    held: TopologyPlacement | None = None
    pinned: bool = False
    short: bool = False
    rule: NodeRule | None = None
    tie_break: TieBreak | None = None


class Placement(Value, frozen=True):
    """Placed pods of a workload: the flavor of the topology, their domains, requests of one."""

    flavor: str
    assignment: TopologyPlacement
    requests: Mapping[str, int]


UnusableKind = Literal[
    "LevelMissing", "SliceLevelMissing", "SliceAboveLevel", "LayerLevelMissing",
    "LayersNotNested", "SizesNotNested", "SliceSizeMissing", "SliceSizeInvalid",
    "CountBelowSlice", "NoDomains", "LeaderNotSingle", "AssignmentStale", "TopologyMissing",
    "NoTopology", "FlavorMissing", "FlavorsSeveral", "ElasticNotFree"
]  # fmt: skip


class Unusable(Value, frozen=True):
    """A request that no change of usage helps; `names` are in the order of the sentence."""

    kind: UnusableKind
    names: tuple[str, ...]


class NoRoom(Value, frozen=True):
    """There is not enough room where all pods could be.

    Attributes:
        topology: Its name.
        unit: Pods, or slices of several pods.
        fitting: How many of them there is room for, of those `wanted`.
        level: Label of the level that was looked at; all have to be in one of its domains if it
            was required.
        best: The domain of that level with most room; () if there is none.
        nodes: How many nodes, or domains of the lowest level, were looked at.
        excluded: How many of these could not take a single pod, by the obstacle.
        layers: Of slices within slices, the outermost first: the level, for how many slices the
            best domain has room when each layer is counted alone, and how many there are to be.
    """

    topology: str
    unit: Literal["pod(s)", "slice(s)"]
    fitting: int
    wanted: int
    level: str = ""
    best: DomainValues = ()
    nodes: int = 0
    excluded: Mapping[str, int] = NO_ENTRIES
    layers: tuple[tuple[str, int, int], ...] = ()


Refusal = Unusable | NoRoom
"""Why a pod set cannot be placed."""
