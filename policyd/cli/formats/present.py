"""What is known of a cluster at one moment: of queues, of jobs that run, and of those that wait.

The objects are those of a scenario, with the times that the API server gave them: workloads keep
their places in the queue, and those that run have run since they were admitted.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from policyd.alloc.workload import QueuedWorkload
from policyd.api import kueue
from policyd.api.kueue.names import FINISHED
from policyd.api.meta import Json, ObjectMeta, condition_true
from policyd.cli.formats.scenario_jobs import SkippedJobs
from policyd.cli.formats.scenarios import (
    last_change,
    named,
    objects_of,
    scenario_arrivals,
)
from policyd.errors import PolicydError, did_you_mean
from policyd.patch.merge_patch import apply_merge_patch
from policyd.simulate.scenario import Arrival
from policyd.workload.topology_values import nodes_of


class ChangeError(PolicydError):
    """A change is not one of what is there."""


class ObjectName(NamedTuple):
    """The name of an object of a scenario; the namespace of cluster objects is empty."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """Write it as `Kind namespace/name`."""
        return f"{self.kind} {self.namespace}{'/' if self.namespace else ''}{self.name}"
