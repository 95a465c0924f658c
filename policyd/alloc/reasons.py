"""Why a workload has to wait: typed, with numbers, and in Kueue's words.

An *obstacle* is one thing in the way. A *refusal* is all of them, and what the workload's condition
says. Texts are made when they are asked for: most refusals are never read.
"""

from collections.abc import Callable
from typing import Literal

from policyd.alloc.amount import format_amount
from policyd.alloc.flavor import Taint
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


class MissingQuota(Value, frozen=True):
    """There is such quota, but others use it: `missing` of it would have to become free."""

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


class Untolerated(Value, frozen=True):
    """The flavor's nodes have a taint that the pods do not tolerate."""

    flavor: str
    taint: Taint

    @property
    def text(self) -> str:
        """The obstacle in Kueue's words."""
        taint = self.taint
        shown = f"{taint.key} {taint.value} {taint.effect} <nil>"
        return f"untolerated taint {{{shown}}} in flavor {self.flavor}"


class AffinityMismatch(Value, frozen=True):
    """The pods insist on node labels that the flavor's nodes do not have."""

    flavor: str

    @property
    def text(self) -> str:
        """The obstacle in Kueue's words."""
        return f"flavor {self.flavor} doesn't match node affinity"


class UnknownFlavor(Value, frozen=True):
    """The queue names a flavor that does not exist."""

    flavor: str

    @property
    def text(self) -> str:
        """The obstacle in Kueue's words."""
        return f"flavor {self.flavor} not found"


class NotProvided(Value, frozen=True):
    """The flavor has no quota for one of the resources of its group."""

    flavor: str
    resource: str

    @property
    def text(self) -> str:
        """The obstacle in Kueue's words."""
        return f"flavor {self.flavor} does not provide resource {self.resource}"


class TopologyMismatch(Value, frozen=True):
    """The flavor places pods by a topology, and the pods do not ask for that; or the other way."""

    flavor: str
    places: bool

    @property
    def text(self) -> str:
        """The obstacle in Kueue's words."""
        does = "supports only" if self.places else "does not support"
        return f'Flavor "{self.flavor}" {does} TopologyAwareScheduling'


class NotNominated(Value, frozen=True):
    """The flavor was not chosen before, and it is too late in the cycle to choose another."""

    flavor: str
    resource: str

    @property
    def text(self) -> str:
        """The obstacle in Kueue's words."""
        return (
            f"skipping flavor {self.flavor} as it is not found in the nomination mapping for"
            f" resource {self.resource}"
        )


class NotAllowed(Value, frozen=True):
    """The workload may not have this flavor, it says."""

    flavor: str

    @property
    def text(self) -> str:
        """The obstacle in Kueue's words."""
        return (
            f"skipping flavor {self.flavor} due to WorkloadAllowedResourceFlavorAnnotation"
            " annotation"
        )


class OtherFlavor(Value, frozen=True):
    """The workload that this one replaces has another flavor, and so must this one."""

    flavor: str
    has: str

    @property
    def text(self) -> str:
        """The obstacle in Kueue's words."""
        return (
            f"could not assign {self.flavor} flavor since the original workload is assigned: "
            f"{self.has}"
        )


class NotCovered(Value, frozen=True):
    """The queue has no quota at all for a resource that is requested."""

    resource: str

    @property
    def text(self) -> str:
        """The obstacle in Kueue's words."""
        return f"resource {self.resource} unavailable in ClusterQueue"


Obstacle = (
    MissingQuota
    | OverCapacity
    | Untolerated
    | AffinityMismatch
    | UnknownFlavor
    | NotProvided
    | TopologyMismatch
    | NotNominated
    | NotAllowed
    | OtherFlavor
    | NotCovered
)


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


NoFitReason = Literal["NoMatchingFlavor", "ExceedsMaxQuota", "WaitingForQuota"]

_SEVERITY: tuple[NoFitReason, ...] = ("WaitingForQuota", "ExceedsMaxQuota", "NoMatchingFlavor")


def least_severe(reasons: list[NoFitReason]) -> NoFitReason:
    """Return the reason that is nearest to being overcome; without any, no flavor matched."""
    return min(reasons, key=_SEVERITY.index, default="NoMatchingFlavor")


def most_severe(reasons: list[NoFitReason]) -> NoFitReason:
    """Return the reason that is farthest from being overcome; without any, no flavor matched."""
    return max(reasons, key=_SEVERITY.index, default="NoMatchingFlavor")


def obstacle_reason(obstacle: Obstacle) -> NoFitReason:
    """Return what a condition says of one obstacle."""
    match obstacle:
        case MissingQuota():
            return "WaitingForQuota"
        case OverCapacity():
            return "ExceedsMaxQuota"
        case _:
            return "NoMatchingFlavor"
