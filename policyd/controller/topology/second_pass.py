"""The second pass of workloads with quota: after a check, or after a node failed."""

from collections.abc import Callable

import structlog
from msgspec.structs import replace

from policyd.alloc.reasons import Refusal
from policyd.api.kueue import Admission, Workload, WorkloadStatus
from policyd.controller.watch.mirror import Mirror
from policyd.controller.writes import Writes
from policyd.jobs.lifecycle import has_quota
from policyd.kube.resources import WORKLOADS
from policyd.status.messages import message_of
from policyd.status.naming import Naming
from policyd.workload.conversion import placed_again
from policyd.workload.transitions import sync_admitted, with_status

log = structlog.get_logger()

SECOND_PASS_FAILED = "SecondPassFailed"  # noqa: S105 - no password
"""Each failure is an event of its own, as in Kueue: the waits between them grow to 30 seconds."""


def placed_status(
    workload: Workload, admission: Admission, *, now: float, detailed: bool
) -> WorkloadStatus:
    """Return the status of a workload whose pods got places; all of its nodes are healthy then."""
    status = replace(workload.status, admission=admission, unhealthy_nodes=())
    return sync_admitted(with_status(workload, status), now=now, detailed=detailed)


def no_replacement_message(workload: Workload) -> str:
    """Say why a workload is evicted for which a failed node cannot be replaced."""
    names = ", ".join(node.name for node in workload.status.unhealthy_nodes)
    return f"Workload was evicted as there was no replacement for unhealthy node(s): {names}"


class SecondPassWrites:
    """Writes the second pass: new topology assignments of workloads with quota, or failures."""

    def __init__(
        self,
        mirror: Mirror[Workload],
        writes: Writes,
        *,
        changed: Callable[[Workload, Workload], None],
        try_again: Callable[[Workload], None],
        naming: Callable[[Workload], Naming],
    ) -> None:
        """Work for a reconciler.

        Args:
            mirror: The workloads.
            writes: How they are written.
            changed: Called with a workload before and after a write.
            try_again: Called with a workload that found no place.
            naming: How a workload's messages name others.
        """
        self._mirror = mirror
        self._writes = writes
        self._changed = changed
        self._try_again = try_again
        self._naming = naming

    async def place(self, workload: Workload, found: Admission, *, detailed: bool) -> None:
        """Write the places of a workload, as a new admission has them.

        Raises:
            ApiError: If that did not succeed.
        """
        before = workload.status.admission
        assert before is not None, "a workload that is placed again has its quota"
        admission = placed_again(before, found)
        status = placed_status(workload, admission, now=self._writes.now, detailed=detailed)
        stored = await self._writes.status(self._mirror, workload, status)
        log.info("workload_placed", workload=workload.metadata.key)
        self._changed(workload, stored)

    def refused(self, workload: Workload, refusal: Refusal | None) -> None:
        """Record that a second pass failed, and have it tried again later."""
        if refusal is not None and has_quota(workload):
            message = message_of(refusal, self._naming(workload))
            self._writes.record(
                WORKLOADS, workload.metadata, SECOND_PASS_FAILED, message, warning=True
            )
            self._try_again(workload)
