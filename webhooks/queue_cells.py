"""What is sent to the door for the queue's sake, whatever the policies are."""

from typing import Final

from policyd.api.admission import Scope
from policyd.api.kueue.names import GROUP, VERSION
from policyd.jobs.kinds import KINDS
from webhooks.cells import Cell

_QUEUE_KINDS: Final[tuple[tuple[str, Scope], ...]] = (
    ("admissionchecks", "Cluster"),
    ("clusterqueues", "Cluster"),
    ("cohorts", "Cluster"),
    ("localqueues", "Namespaced"),
    ("resourceflavors", "Cluster"),
    ("topologies", "Cluster"),
    ("workloads", "Namespaced"),
    ("workloads/status", "Namespaced"),
)

_JOB_KINDS: Final = (
    *((kind.group, kind.version, kind.plural) for kind in KINDS),
    ("", "v1", "pods"),
)


def _jobs(operation: str) -> frozenset[Cell]:
    return frozenset(
        Cell(group, version, "Namespaced", plural, operation)
        for group, version, plural in _JOB_KINDS
    )


def _queues(operation: str) -> frozenset[Cell]:
    return frozenset(
        Cell(GROUP, VERSION, scope, resource, operation) for resource, scope in _QUEUE_KINDS
    )


NEW_JOBS: Final = _jobs("CREATE")
"""Jobs and pods that may have to be held."""

JOBS: Final = NEW_JOBS | _jobs("UPDATE")
"""Jobs and pods that are checked."""

QUEUES: Final = _queues("CREATE") | _queues("UPDATE")
"""What is checked of Kueue's kinds."""

_FINALIZED: Final = frozenset({"clusterqueues", "resourceflavors", "topologies"})

NEW_QUEUES: Final = frozenset(cell for cell in _queues("CREATE") if cell.resource in _FINALIZED)
"""What gets a finalizer when it is created."""
