"""A job of any kind as far as its life in the queue goes, and the steps of that life."""

from dataclasses import dataclass, field

from policyd.api.kueue import PodSet, ReclaimablePod, Workload
from policyd.api.meta import Condition, ObjectMeta
from policyd.jobs.base import JobOutcome
from policyd.jobs.workload import Priority


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job of any kind, as far as its life in the queue goes.

    Attributes:
        metadata: Of the job; of a group of pods, the first pod's.
        held: Whether something of it waits to be started.
        running: Whether a part of it was started and has not ended.
        active: Whether it still has pods that use its quota.
        ready: Whether all its pods run or have succeeded.
        complete: Whether all that it demands is known.
        outcome: How it ended; None while it has not.
        on_hold: Whether it cannot use quota for now.
        pod_sets: Its pod sets.
        reclaimable: Pods that no longer need their quota.
        priority: How important it is.
        prebuilt: Name of its prebuilt workload; empty if it has none.
        elastic: Whether it may grow and shrink while it runs.
        follows: Whether another object, such as a StatefulSet, sets queue and priority of its
            workload.
        gated: Whether its admission gates are closed (gate AdmissionGatedBy).
        leaves: Whether it ends without its workload, even if none of it runs.
    """

    metadata: ObjectMeta
    held: bool
    running: bool
    active: bool
    ready: bool = False
    complete: bool = True
    outcome: JobOutcome | None = None
    on_hold: bool = False
    pod_sets: tuple[PodSet, ...] = ()
    reclaimable: tuple[ReclaimablePod, ...] = ()
    priority: Priority = field(default_factory=Priority)
    prebuilt: str = ""
    elastic: bool = False
    follows: bool = False
    gated: bool = True
    leaves: bool = False


@dataclass(frozen=True, slots=True)
class CreateWorkload:
    """Create the workload; for an elastic job that has grown, to replace a smaller one."""

    replaces: Workload | None = None


@dataclass(frozen=True, slots=True)
class Adopt:
    """Take over the prebuilt workload of the job."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class Resize:
    """Let the workload of an elastic job have as many pods as the job has."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class Retire:
    """Declare a workload finished that does not stand for the job any more, or never did."""

    workload: Workload
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class UpdateWorkload:
    """Update the workload to the job's current requests.

    `fits` tells whether its pods are the job's already, and only its queue or time is not.
    """

    workload: Workload
    fits: bool = False


@dataclass(frozen=True, slots=True)
class ChangePriority:
    """Give the workload the priority that the job has now."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class Regate:
    """Update the workload to the job's current admission gates."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
    """Delete a workload that does not fit the job."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class Start:
    """Let the job go, to where its workload was assigned."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class Stop:
    """Stop the job, and undo the changes of its start.

    `reason` is a CamelCase word for the pods' conditions; `workload` has their values before,
    and is deleted then if it no longer `fits` the job.
    """

    workload: Workload | None
    reason: str
    message: str
    fits: bool = True


@dataclass(frozen=True, slots=True)
class Release:
    """Give the quota of a workload back: it was evicted, and its job has stopped.

    With `on_hold` it queues for none either, as its job cannot use any; or, if that is False, it
    queues again.
    """

    workload: Workload
    on_hold: bool | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Say which pods need their quota no longer."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class ReportReady:
    """Say whether all pods of a workload run."""

    workload: Workload
    condition: Condition


@dataclass(frozen=True, slots=True)
class Finish:
    """Declare the workload finished."""

    workload: Workload
    outcome: JobOutcome


@dataclass(frozen=True, slots=True)
class DropFinalizer:
    """Let go of a workload that no longer matters."""

    workload: Workload


Step = (
    CreateWorkload
    | Adopt
    | Resize
    | Retire
    | UpdateWorkload
    | ChangePriority
    | Regate
    | DeleteWorkload
    | Start
    | Stop
    | Release
    | Report
    | ReportReady
    | Finish
    | DropFinalizer
)
