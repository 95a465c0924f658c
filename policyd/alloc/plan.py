"""The decisions of one cycle: a list of actions, each a value with its reason."""

from collections.abc import Mapping
from typing import Literal

from policyd.alloc.flavors.assignment import Progress
from policyd.alloc.reasons import Considered, Refusal
from policyd.alloc.value import Value
from policyd.alloc.workload import QueuedWorkload, ReservedQuota

RequeueReason = Literal[
    "Generic", "NoFit", "PreemptionNoCandidates", "PreemptionGated", "PendingPreemption",
    "PreemptionFailed", "FailedAfterNomination", "NamespaceMismatch", "SecondPassFailed",
    "PendingMigration"
]  # fmt: skip
"""How an attempt failed: it decides whether the workload is tried again at once."""

PreemptionReason = Literal[
    "InClusterQueue", "InCohortReclamation", "InCohortFairSharing",
    "InCohortReclaimWhileBorrowing", "Consolidation"
]  # fmt: skip
"""By which right a workload is preempted: the reason of its condition `Preempted`."""


class Admit(Value, frozen=True):
    """Reserve quota for a workload, as it was while pending; the one it replaces loses its quota.

    Attributes:
        level: How far up the cohort tree it borrows; 0 without borrowing.
        charges: The admission's usage by cell, for the state the plan was made for.
        considered: Flavors that did not simply fit, by pod set.
    """

    workload: QueuedWorkload
    admission: ReservedQuota
    level: int = 0
    charges: Mapping[int, int] = {}
    considered: tuple[Considered, ...] = ()


class Preempt(Value, frozen=True):
    """Stop a workload, so that another gets its quota; paths are names from the tree's top."""

    workload: QueuedWorkload
    reason: PreemptionReason
    preemptor: QueuedWorkload
    path: str
    preemptor_path: str


class Move(Value, frozen=True):
    """A place held for a workload that moves, or for which others move, `until` then at most.

    The pins are its flavors, by group of pod sets and of resources.
    """

    key: str
    admission: ReservedQuota
    pins: tuple[tuple[str, ...], ...]
    until: float


class Evict(Value, frozen=True):
    """Stop a workload.

    A gang that is short of pods `since` then, one without a place for a failed node, or a variant
    in whose place another one comes.
    """

    workload: QueuedWorkload
    reason: Literal["StaleGang", "NodeFailures", "FlavorMigration"]
    since: float = 0.0
    refusal: Refusal | None = None


class Requeue(Value, frozen=True):
    """Let a workload wait.

    Attributes:
        reason: How the attempt failed.
        refusal: The obstacles, for its condition.
        requests: Requests of each pod set in total, by name and resource, in canonical units.
        inadmissible: Whether it is only tried again after a change, so that the next one is tried.
        progress: Where the search for flavors is to go on; None from the start.
    """

    workload: QueuedWorkload
    reason: RequeueReason
    refusal: Refusal
    requests: Mapping[str, Mapping[str, int]]
    inadmissible: bool
    progress: Progress | None = None

    @property
    def searches_on(self) -> bool:
        """Whether there are flavors to try in the next cycle."""
        return self.progress is not None and self.progress.goes_on


Action = Admit | Preempt | Evict | Requeue

Recomputation = Literal["new_targets", "deferred_fit", "skipped"]
"""The result for a preemptor whose victims another one took in the same cycle."""


class Plan(Value, frozen=True):
    """The actions of a cycle, in this order.

    Attributes:
        actions: One for each workload that was considered, and one for each victim.
        revision: The state it was made for; it holds for no other.
        skipped: Queues whose workloads could have preempted, had another not come first.
        recomputed: Queues whose victims were chosen again, and the result.
        reserved: Keys of workloads for which quota is held, and their ClusterQueues.
        moves: Places that are to be held from now on.
    """

    actions: tuple[Action, ...]
    revision: int
    skipped: tuple[str, ...] = ()
    recomputed: tuple[tuple[str, Recomputation], ...] = ()
    reserved: Mapping[str, str] = {}
    moves: tuple[Move, ...] = ()

    @property
    def goes_on(self) -> bool:
        """Whether another cycle may decide more, though nothing else changes."""
        return any(
            isinstance(each, Admit)
            or (isinstance(each, Requeue) and (each.inadmissible or each.searches_on))
            for each in self.actions
        )
