"""What the bench reads of workloads and queues, and the statuses that it writes."""

import time
from datetime import UTC, datetime
from typing import Any

from policyd.api.kueue.workload import Admission
from policyd.api.meta import Condition, ObjectMeta, Wire


class Status(Wire, frozen=True):
    """What became of a workload."""

    conditions: tuple[Condition, ...] = ()
    admission: Admission | None = None


class PodSet(Wire, frozen=True):
    """A pod set's size."""

    name: str = ""
    count: int = 1


class Spec(Wire, frozen=True):
    """What a workload asks for."""

    queue_name: str = ""
    pod_sets: tuple[PodSet, ...] = ()


class Workload(Wire, frozen=True):
    """A workload."""

    metadata: ObjectMeta = ObjectMeta()
    spec: Spec = Spec()
    status: Status = Status()

    def holds(self, condition: str) -> bool:
        """Tell whether a condition is true."""
        return any(c.type == condition and c.status == "True" for c in self.status.conditions)

    def since(self, condition: str) -> datetime | None:
        """Return when a condition changed last."""
        found = (c.last_transition_time for c in self.status.conditions if c.type == condition)
        return next(found, None)


class ResourceUsage(Wire, frozen=True):
    """How much of a resource is used."""

    name: str
    total: str | int = 0


class FlavorUsage(Wire, frozen=True):
    """How much of a flavor is used."""

    name: str
    resources: tuple[ResourceUsage, ...] = ()


class QueueStatus(Wire, frozen=True):
    """What a ClusterQueue says of itself."""

    flavors_usage: tuple[FlavorUsage, ...] = ()


class ClusterQueue(Wire, frozen=True):
    """A ClusterQueue."""

    metadata: ObjectMeta = ObjectMeta()
    status: QueueStatus = QueueStatus()


def with_conditions(workload: Workload, *new: tuple[str, str, str]) -> list[Any]:
    """Return a workload's conditions with some set: each a type, a status and a reason."""
    now = datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    types = {kind for kind, _, _ in new}
    kept: list[Any] = [c for c in workload.status.conditions if c.type not in types]
    for kind, status, reason in new:
        kept.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": "as the bench has it",
                "lastTransitionTime": now,
            }
        )
    return kept


def status_patch(workload: Workload, status: Any) -> Any:
    """Return a patch that applies only to the version that was seen."""
    return {
        "metadata": {"resourceVersion": workload.metadata.resource_version},
        "status": status,
    }
