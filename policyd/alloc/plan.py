"""What one cycle decided: a list of actions, each a value with its reason."""

from collections.abc import Mapping
from typing import Literal

from policyd.alloc.reasons import Refusal
from policyd.alloc.value import Value
from policyd.alloc.workload import Admission, Workload

RequeueReason = Literal[
    "Generic",
    "NoFit",
    "PreemptionNoCandidates",
    "PreemptionGated",
    "PendingPreemption",
    "PreemptionFailed",
    "FailedAfterNomination",
    "NamespaceMismatch",
]
"""How an attempt failed: it decides whether the workload is tried again at once."""


PreemptionReason = Literal[
    "InClusterQueue",
    "InCohortReclamation",
    "InCohortFairSharing",
    "InCohortReclaimWhileBorrowing",
]
"""By which right a workload is preempted: the reason of its condition `Preempted`."""


class Target(Value, frozen=True):
    """A victim of a preemption.

    Attributes:
        workload: Who holds the quota; which, its admission says.
        reason: By which right it is taken.
    """

    workload: Workload
    reason: PreemptionReason


class Admit(Value, frozen=True):
    """Reserve quota for a workload.

    Attributes:
        workload: Who, as it was while pending.
        admission: What it gets.
        level: How far up the cohort tree it borrows; 0 without borrowing.
        charges: The admission's usage by cell, for the state the plan was made for.
    """

    workload: Workload
    admission: Admission
    level: int = 0
    charges: Mapping[int, int] = {}


class Requeue(Value, frozen=True):
    """Let a workload wait.

    Attributes:
        workload: Who.
        reason: How the attempt failed.
        refusal: What stands in the way, for its condition.
        requests: What each pod set requested in total, by name and resource, in canonical units.
        parked: Whether it waits aside until something changes, so that the next one is tried.
    """

    workload: Workload
    reason: RequeueReason
    refusal: Refusal
    requests: Mapping[str, Mapping[str, int]]
    parked: bool


Action = Admit | Requeue


class Plan(Value, frozen=True):
    """What to do, in this order.

    Attributes:
        actions: One for each workload that was considered.
        revision: The state it was made for; it holds for no other.
    """

    actions: tuple[Action, ...]
    revision: int
