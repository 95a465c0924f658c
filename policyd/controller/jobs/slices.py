"""Ends the slices of elastic jobs that bigger ones have replaced."""

from policyd.api.kueue import Workload
from policyd.controller.watch.mirror import Mirror
from policyd.controller.writes import Writes
from policyd.jobs.slices import SLICE_REPLACED
from policyd.kube.resources import WORKLOADS
from policyd.workload.transitions import finish


async def finish_slice(
    mirror: Mirror[Workload], writes: Writes, slice_: Workload, message: str
) -> None:
    """Declare a slice finished that another one has replaced, and tell for which.

    Raises:
        ApiError: If a write did not succeed.
    """
    status = finish(slice_, reason=SLICE_REPLACED, message=message, now=writes.now)
    stored = await writes.status(mirror, slice_, status)
    writes.tell(WORKLOADS, stored.metadata, SLICE_REPLACED, message)
