"""How many workloads have finished and are still there, and how many may not run, and why.

Workloads are many and are asked about often: they are counted as they change.
"""

from collections.abc import Iterator
from typing import Final

from policyd.api.kueue import Workload
from policyd.api.kueue.names import ADMITTED, FINISHED, QUOTA_RESERVED
from policyd.api.meta import Condition
from policyd.controller.watch.mirror import Mirror
from policyd.kube.changes import Added, Change, Deleted, Modified

Standing = tuple[str, str, str, str]
"""Where a workload stands: its namespace, what LocalQueue it names, why it may not run, and why it
has no quota, if that is why. Instead of the first reason, `Finished` if it has."""

NOT_TOLD: Final = "PendingEvaluation"
"""Why who was not looked at yet has no quota."""


def standing_of(workload: Workload) -> Standing | None:
    """Return where a workload stands; None if it may run."""
    reserved = admitted = None
    for condition in workload.status.conditions:
        kind = condition.type
        if kind == QUOTA_RESERVED:
            reserved = condition
        elif kind == ADMITTED:
            admitted = condition
        elif kind == FINISHED and condition.status == "True":
            return workload.metadata.namespace, workload.spec.queue_name, FINISHED, ""
    if admitted is not None and admitted.status == "True":
        return None
    return workload.metadata.namespace, workload.spec.queue_name, *_why(reserved, admitted)


def _why(reserved: Condition | None, admitted: Condition | None) -> tuple[str, str]:
    if reserved is None or reserved.status != "True":
        return "NoReservation", NOT_TOLD if reserved is None else reserved.reason
    return "UnsatisfiedAdmissionChecks" if admitted is None else admitted.reason, ""


class Standings:
    """Counts workloads by where they stand."""

    def __init__(self, workloads: Mirror[Workload]) -> None:
        self._counts: dict[Standing, int] = {}
        workloads.listen(self._changed)

    def __iter__(self) -> Iterator[tuple[Standing, int]]:
        """Iterate over where workloads stand, and how many do."""
        return iter(tuple(self._counts.items()))

    def _changed(self, change: Change[Workload]) -> None:
        match change:
            case Modified(old, new):
                before, after = standing_of(old), standing_of(new)
                if before != after:
                    self._add(before, -1)
                    self._add(after, 1)
            case Added(new):
                self._add(standing_of(new), 1)
            case Deleted(old):
                self._add(standing_of(old), -1)

    def _add(self, standing: Standing | None, more: int) -> None:
        if standing is None:
            return
        number = self._counts.get(standing, 0) + more
        if number:
            self._counts[standing] = number
        else:
            del self._counts[standing]
