"""Why a pod set cannot be placed: typed, with numbers, and in Kueue's words."""

from collections.abc import Mapping
from typing import Literal

from policyd.alloc.topology.values import DomainValues
from policyd.alloc.value import Value

UnusableKind = Literal[
    "LevelMissing",
    "SliceLevelMissing",
    "SliceAboveLevel",
    "LayerLevelMissing",
    "LayersNotNested",
    "SizesNotNested",
    "SliceSizeMissing",
    "SliceSizeInvalid",
    "CountBelowSlice",
    "NoDomains",
    "LeaderNotSingle",
    "AssignmentStale",
    "TopologyMissing",
    "NoTopology",
    "FlavorMissing",
    "FlavorsSeveral",
    "ElasticNotFree",
]

_UNUSABLE: Mapping[UnusableKind, str] = {
    "LevelMissing": "no requested topology level: {0}",
    "SliceLevelMissing": "no requested topology level for slices: {0}",
    "SliceAboveLevel": "podset slice topology {0} is above the podset topology {1}",
    "LayerLevelMissing": "no requested topology level for additional slice layer: {0}",
    "LayersNotNested": "additional slice layer topology {0} must be at a lower level than {1}",
    "SizesNotNested": "additional slice layer size {0} must evenly divide parent layer size {1}",
    "SliceSizeMissing": "slice topology requested, but slice size not provided",
    "SliceSizeInvalid": "slice size must be positive: {0}",
    "CountBelowSlice": "podset count {0} is less than the slice size {1}",
    "NoDomains": "no topology domains at level: {0}",
    "LeaderNotSingle": "podset group {0} has no podset of a single pod to lead it",
    "AssignmentStale": "Cannot replace the node, because the existing topologyAssignment is"
    " invalid, as it contains the stale domain {0}",
    "TopologyMissing": "no topology for flavor {0}",
    "NoTopology": "workload requires Topology, but there is no TAS cache information",
    "FlavorMissing": "no TAS flavor assigned",
    "FlavorsSeveral": "more than one TAS flavor assigned: {0}",
    "ElasticNotFree": "{0} topology is not supported with ElasticJobsViaWorkloadSlices",
}


class Unusable(Value, frozen=True):
    """What is asked cannot be answered: no change of the nodes' usage helps.

    Attributes:
        kind: What is wrong.
        names: What is concerned, in the order of the sentence.
    """

    kind: UnusableKind
    names: tuple[str, ...]

    @property
    def text(self) -> str:
        """The reason in Kueue's words, where it has some."""
        return _UNUSABLE[self.kind].format(*self.names)


class NoRoom(Value, frozen=True):
    """There is not enough room where all pods could be.

    Attributes:
        topology: Its name.
        unit: What is counted: pods, or slices of several pods.
        fitting: How many of them there is room for.
        wanted: How many are to be placed.
        level: Label of the level that was looked at; all have to be in one of its domains if it
            was required.
        best: The domain of that level with most room; () if there is none.
        nodes: How many nodes, or domains of the lowest level, were looked at.
        excluded: How many of these could not take a single pod, by what kept it away.
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
    excluded: Mapping[str, int] = {}
    layers: tuple[tuple[str, int, int], ...] = ()

    @property
    def text(self) -> str:
        """The reason in Kueue's words."""
        found = f"allows to fit only {self.fitting} out of {self.wanted} {self.unit}"
        if self.layers:
            layers = (f"{n}/{of} slice(s) fit on level {level}" for level, n, of in self.layers)
            found = f"doesn't allow to fit; {'; '.join(layers)}"
        elif not self.fitting:
            found = f"doesn't allow to fit any of {self.wanted} {self.unit}"
        text = f'topology "{self.topology}" {found}'
        if not self.excluded:
            return text
        reasons = ", ".join(sorted(f"{name}: {n}" for name, n in self.excluded.items()))
        return f"{text}. Total nodes: {self.nodes}; excluded: {reasons}"


Refusal = Unusable | NoRoom
"""Why a pod set cannot be placed."""
