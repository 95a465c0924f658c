"""Why a workload is not admitted: typed, with numbers.

A *refusal* has the reason of the workload's condition, and all *obstacles* in its way. These are
made when they are asked for: most are never read.
"""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum
from typing import ClassVar, Literal

from policyd.alloc.topology.values import Refusal as Misplacement
from policyd.alloc.value import Value
from policyd.alloc.workload import ConditionReason


class Mode(IntEnum):
    """How a flavor would be had, the best last.

    Not at all; by preemption, but without targets; by preemption in the workload's own queue; or in
    other queues only; at once.
    """

    NO_FIT = 0
    BLOCKED = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


# Python 3.11 calls a function for each member of an enum that is named.
FIT, NO_FIT = Mode.FIT, Mode.NO_FIT


Cause = Literal[
    "", "NoLongerFits", "TargetsTaken", "FitsAfterOthers", "AwaitsPods", "Surpassed", "Migrates",
    "NotAcceptable"
]  # fmt: skip
"""Causes besides obstacles: earlier workloads of the same cycle took the room, or
the victims; there will be room thanks to their victims; pods of admitted ones are not ready.
Another variant of the workload is better, stops for this one, or goes on."""

UnsuitableKind = Literal[
    "NotFound", "NotCovered", "NotProvided", "Untolerated", "AffinityMismatch",
    "TopologyMissing", "TopologyOnly", "LevelMissing", "NotAllowed", "NotNominated",
    "OtherFlavor", "NotGiven"
]  # fmt: skip

NoFitReason = Literal[
    "NoMatchingFlavor", "ExceedsMaxQuota", "WaitingForQuota", "TopologyPlacementFailed"
]
"""The description of an obstacle in a condition."""


class MissingQuota(Value, frozen=True):
    """There is such quota, but others use it: `missing` of it would have to become free."""

    reason: ClassVar[NoFitReason] = "WaitingForQuota"
    flavor: str
    resource: str
    missing: int
    requested: int
    available: int


class OverCapacity(Value, frozen=True):
    """More is requested than the queue could ever get: `assumed` is for the pod sets before."""

    reason: ClassVar[NoFitReason] = "ExceedsMaxQuota"
    flavor: str
    resource: str
    assumed: int
    requested: int
    capacity: int


class Unsuitable(Value, frozen=True):
    """Something that no quota helps against.

    Attributes:
        kind: The kind of obstacle.
        name: The flavor; of a resource that is not covered, the resource.
        detail: The taint, the resource or the other flavor concerned, if any is.
    """

    reason: ClassVar[NoFitReason] = "NoMatchingFlavor"
    kind: UnsuitableKind
    name: str
    detail: str = ""


class Held(Value, frozen=True):
    """Quota that is held for a workload, perhaps its `own`, until `start`; None if not known."""

    reason: ClassVar[NoFitReason] = "WaitingForQuota"
    workload: str
    start: float | None
    own: bool


class Unplaced(Value, frozen=True):
    """There is quota, and no place for the pods."""

    reason: ClassVar[NoFitReason] = "TopologyPlacementFailed"
    why: Misplacement


Obstacle = MissingQuota | OverCapacity | Unsuitable | Held | Unplaced


class TriedFlavor(Value, frozen=True):
    """A flavor that was tried and did not simply fit: how it would be had, borrowing how far up."""

    flavor: str
    mode: Mode
    level: int
    obstacles: tuple[Obstacle, ...]


class Considered(Value, frozen=True):
    """The flavors that were tried for a pod set and did not simply fit."""

    pod_set: str
    tries: tuple[TriedFlavor, ...]


class PodSetRefusal(Value, frozen=True):
    """The obstacles of one pod set."""

    name: str
    obstacles: tuple[Obstacle, ...]


@dataclass(slots=True, eq=False)
class Refusal:
    """Why a workload got no quota in a cycle; compared by content.

    Attributes:
        reason: The reason of its condition.
        cause: The cause, if not the pod sets' obstacles.
        note: A sentence from outside the allocator instead; "" for none.
        explain: Names the obstacles; called once, if they are read.
        pending: How many workloads are preempted for it.
    """

    reason: ConditionReason
    _: KW_ONLY
    cause: Cause = ""
    note: str = ""
    explain: Callable[[], tuple[PodSetRefusal, ...]] = tuple
    pending: int = 0
    _pod_sets: tuple[PodSetRefusal, ...] | None = field(default=None, init=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Refusal) and self._content() == other._content()

    def __hash__(self) -> int:
        return hash(self._content())

    def _content(self) -> tuple[object, ...]:
        return self.reason, self.cause, self.note, self.pending, self.pod_sets

    @property
    def pod_sets(self) -> tuple[PodSetRefusal, ...]:
        """The obstacles of each pod set."""
        if self._pod_sets is None:
            self._pod_sets = self.explain()
        return self._pod_sets

    @property
    def missing(self) -> tuple[MissingQuota, ...]:
        """The amounts that would have to become free, by flavor and resource."""
        obstacles = (each for pod_set in self.pod_sets for each in pod_set.obstacles)
        return tuple(each for each in obstacles if isinstance(each, MissingQuota))


_SEVERITY: tuple[NoFitReason, ...] = (
    "TopologyPlacementFailed",
    "WaitingForQuota",
    "ExceedsMaxQuota",
    "NoMatchingFlavor",
)


def least_severe(reasons: list[NoFitReason]) -> NoFitReason:
    """Return the reason that is nearest to being overcome; without any, no flavor matched."""
    return min(reasons, key=_SEVERITY.index, default="NoMatchingFlavor")


def most_severe(reasons: list[NoFitReason]) -> NoFitReason:
    """Return the reason that is farthest from being overcome; without any, no flavor matched."""
    return max(reasons, key=_SEVERITY.index, default="NoMatchingFlavor")
