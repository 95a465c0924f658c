"""Why a workload has to wait: typed, with numbers, and in Kueue's words.

An *obstacle* is one thing in the way. A *refusal* is all of them, and what the workload's condition
says. Texts are made when they are asked for: most refusals are never read.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar, Literal

from policyd.alloc.amount import format_amount
from policyd.alloc.value import Value
from policyd.alloc.workload import ConditionReason

NO_LONGER_FITS = "Workload no longer fits after processing another workload"
"""Kueue's message for a workload that had room until an earlier one of the same cycle took it."""

TARGETS_TAKEN = "Workload has overlapping preemption targets with another workload"
"""Kueue's message for a workload whose victims another one preempts in the same cycle."""

WILL_FIT_AFTER_OTHERS = f"{TARGETS_TAKEN}, but will fit after these preemptions complete"
"""Kueue's message for one that will have room thanks to the other's victims."""

AWAITS_PODS = "waiting for all admitted workloads to be in PodsReady condition"
"""Kueue's message where nobody is admitted before all who are run."""

UnsuitableKind = Literal[
    "NotFound",
    "NotCovered",
    "NotProvided",
    "Untolerated",
    "AffinityMismatch",
    "TopologyMissing",
    "TopologyOnly",
    "NotAllowed",
    "NotNominated",
    "OtherFlavor",
]

_UNSUITABLE: Mapping[UnsuitableKind, str] = {
    "NotFound": "flavor {0} not found",
    "NotCovered": "resource {0} unavailable in ClusterQueue",
    "NotProvided": "flavor {0} does not provide resource {1}",
    "Untolerated": "untolerated taint {{{1}}} in flavor {0}",
    "AffinityMismatch": "flavor {0} doesn't match node affinity",
    "TopologyMissing": 'Flavor "{0}" does not support TopologyAwareScheduling',
    "TopologyOnly": 'Flavor "{0}" supports only TopologyAwareScheduling',
    "NotAllowed": "skipping flavor {0} due to WorkloadAllowedResourceFlavorAnnotation annotation",
    "NotNominated": "skipping flavor {0} as it is not found in the nomination mapping for resource"
    " {1}",
    "OtherFlavor": "could not assign {0} flavor since the original workload is assigned: {1}",
}
"""Kueue's words for what no quota helps against: of a flavor, and what of it is concerned."""


NoFitReason = Literal["NoMatchingFlavor", "ExceedsMaxQuota", "WaitingForQuota"]
"""What a condition says of an obstacle."""


class MissingQuota(Value, frozen=True):
    """There is such quota, but others use it: `missing` of it would have to become free."""

    reason: ClassVar[NoFitReason] = "WaitingForQuota"
    flavor: str
    resource: str
    missing: int
    requested: int
    available: int

    @property
    def text(self) -> str:
        """The obstacle in Kueue's words."""
        missing = format_amount(self.resource, self.missing)
        return (
            f"insufficient unused quota for {self.resource} in flavor {self.flavor}, "
            f"{missing} more needed"
        )


class OverCapacity(Value, frozen=True):
    """More is requested than the queue could ever get: `assumed` is for the pod sets before."""

    reason: ClassVar[NoFitReason] = "ExceedsMaxQuota"
    flavor: str
    resource: str
    assumed: int
    requested: int
    capacity: int

    @property
    def text(self) -> str:
        """The obstacle in Kueue's words."""
        amounts = (self.assumed, self.requested, self.capacity)
        assumed, requested, capacity = (format_amount(self.resource, a) for a in amounts)
        return (
            f"insufficient quota for {self.resource} in flavor {self.flavor}, previously considered"
            f" podsets requests ({assumed}) + current podset request ({requested})"
            f" > maximum capacity ({capacity})"
        )


class Unsuitable(Value, frozen=True):
    """Something that no quota helps against.

    Attributes:
        kind: What.
        name: The flavor; of what is not covered, the resource.
        detail: The taint, the resource or the other flavor concerned, if any is.
    """

    reason: ClassVar[NoFitReason] = "NoMatchingFlavor"
    kind: UnsuitableKind
    name: str
    detail: str = ""

    @property
    def text(self) -> str:
        """The obstacle in Kueue's words."""
        return _UNSUITABLE[self.kind].format(self.name, self.detail)


Obstacle = MissingQuota | OverCapacity | Unsuitable


class PodSetRefusal(Value, frozen=True):
    """What stands in the way of one pod set."""

    name: str
    obstacles: tuple[Obstacle, ...]

    @property
    def text(self) -> str:
        """All obstacles in Kueue's words and order."""
        reasons = ", ".join(sorted(obstacle.text for obstacle in self.obstacles))
        return f"couldn't assign flavors to pod set {self.name}: {reasons}"


class Refusal:
    """Why a workload got no quota in a cycle; compared by what it says.

    Attributes:
        reason: What its condition says.
        note: A sentence that stands in the place of the pod sets' obstacles; "" for none.
        pending: How many workloads are preempted for it.
    """

    __slots__ = ("_explain", "_pod_sets", "note", "pending", "reason")

    def __init__(
        self,
        reason: ConditionReason,
        *,
        note: str = "",
        explain: Callable[[], tuple[PodSetRefusal, ...]] = tuple,
        pending: int = 0,
    ) -> None:
        """Refuse for `reason`; `explain` names the obstacles, and is called if somebody asks."""
        self.reason = reason
        self.note = note
        self.pending = pending
        self._explain = explain
        self._pod_sets: tuple[PodSetRefusal, ...] | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Refusal):
            return NotImplemented
        return (self.reason, self.message) == (other.reason, other.message)

    def __hash__(self) -> int:
        return hash((self.reason, self.message))

    def __repr__(self) -> str:
        return f"Refusal({self.reason}, {self.message!r})"

    @property
    def pod_sets(self) -> tuple[PodSetRefusal, ...]:
        """What stands in the way of which pod set."""
        if self._pod_sets is None:
            self._pod_sets = self._explain()
        return self._pod_sets

    @property
    def message(self) -> str:
        """What Kueue's condition would say, word for word."""
        text = self.note or "; ".join(pod_set.text for pod_set in self.pod_sets)
        if not self.pending:
            return text
        return f"{text}. Pending the preemption of {self.pending} workload(s)"

    @property
    def missing(self) -> tuple[MissingQuota, ...]:
        """What would have to become free, by flavor and resource."""
        return tuple(
            obstacle
            for pod_set in self.pod_sets
            for obstacle in pod_set.obstacles
            if isinstance(obstacle, MissingQuota)
        )


_SEVERITY: tuple[NoFitReason, ...] = ("WaitingForQuota", "ExceedsMaxQuota", "NoMatchingFlavor")


def least_severe(reasons: list[NoFitReason]) -> NoFitReason:
    """Return the reason that is nearest to being overcome; without any, no flavor matched."""
    return min(reasons, key=_SEVERITY.index, default="NoMatchingFlavor")


def most_severe(reasons: list[NoFitReason]) -> NoFitReason:
    """Return the reason that is farthest from being overcome; without any, no flavor matched."""
    return max(reasons, key=_SEVERITY.index, default="NoMatchingFlavor")
