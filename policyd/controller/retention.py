"""Workloads that have finished: kept for a while, and deleted, by objectRetentionPolicies."""

from dataclasses import dataclass

from policyd.api.kueue import Workload
from policyd.api.kueue.names import EVICTED, FINISHED
from policyd.api.meta import find_condition
from policyd.controller.patches import without_finalizer
from policyd.controller.watch.mirror import Mirror
from policyd.controller.writes import Writes
from policyd.jobs.lifecycle import has_finalizer
from policyd.jobs.slices import SLICE_REPLACED
from policyd.kube.resources import WORKLOADS
from policyd.workload.time_limits import ReadyRules
from policyd.workload.transitions import finish


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Seconds after which finished objects are deleted; None for never.

    Attributes:
        after_finished: A workload that has finished.
        after_deactivated: The job of a workload that was deactivated by the queue.
    """

    after_finished: float | None = None
    after_deactivated: float | None = None

    def finished_left(self, workload: Workload, *, now: float) -> float | None:
        """Return the seconds for which a finished workload is kept; None if for ever."""
        return _left(workload, FINISHED, self.after_finished, now)

    def deactivated_left(self, workload: Workload, *, now: float) -> float | None:
        """Return the seconds for which the job of a workload is kept; None if for ever.

        One that a user has deactivated is never deleted.
        """
        eviction = find_condition(workload.status.conditions, EVICTED)
        by_us = eviction is not None and eviction.reason.startswith("DeactivatedDueTo")
        if workload.spec.active or not by_us:
            return None
        return _left(workload, EVICTED, self.after_deactivated, now)


def _left(workload: Workload, kind: str, kept: float | None, now: float) -> float | None:
    condition = find_condition(workload.status.conditions, kind)
    if kept is None or condition is None or condition.status != "True":
        return None
    since = condition.last_transition_time
    return None if since is None else since.timestamp() + kept - now


FOR_EVER = Retention()
"""Nothing is deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeLimits:
    """Time limits of workloads.

    Attributes:
        ready: How long their pods may take to become ready; None for no limit.
        retention: How long those that are over are kept.
    """

    ready: ReadyRules | None = None
    retention: Retention = FOR_EVER


NO_LIMITS = TimeLimits()
"""Pods may take any time, and nothing is deleted."""


async def keep(
    writes: Writes, mirror: Mirror[Workload], workload: Workload, retention: Retention
) -> float | None:
    """Delete a finished workload that was kept for long enough.

    Returns:
        The seconds for which it is kept; None if for ever, or no longer.
    """
    left = retention.finished_left(workload, now=writes.now)
    deleted = workload.metadata.deletion_timestamp is not None
    if left is None or (left > 0 and not deleted):
        return left
    await drop_finalizer(writes, mirror, workload)
    if not deleted:
        await writes.delete(mirror, workload)
        message = "Deleted finished workload due to elapsed retention"
        writes.record(WORKLOADS, workload.metadata, "Deleted", message)
    return None


async def drop_finalizer(writes: Writes, mirror: Mirror[Workload], workload: Workload) -> None:
    """Let a workload vanish when it is deleted."""
    if has_finalizer(workload):
        await writes.patch(mirror, workload, without_finalizer(workload.metadata))


async def finish_slice(
    mirror: Mirror[Workload], writes: Writes, slice_: Workload, message: str
) -> None:
    """Declare a slice finished that another one has replaced, and tell for which.

    Raises:
        ApiError: If a write did not succeed.
    """
    status = finish(slice_, reason=SLICE_REPLACED, message=message, now=writes.now)
    stored = await writes.status(mirror, slice_, status)
    writes.record(WORKLOADS, stored.metadata, SLICE_REPLACED, message)
