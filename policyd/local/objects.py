"""Pods, nodes and jobs as the simulated parts of the cluster read them."""

from datetime import datetime

from policyd.api.meta import Condition, Json, ObjectMeta, Wire
from policyd.api.pods import Container, PodSpec
from policyd.jobs.pods import PodClaimStatus


class RunningContainer(Container, frozen=True):
    """A container, with the fields that the simulated kubelet uses."""

    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()


class BoundPodSpec(PodSpec, frozen=True):
    """A pod's specification, with the containers that are simulated."""

    containers: tuple[RunningContainer, ...] = ()


class LocalPodStatus(Wire, frozen=True):
    """How far a pod has come, and the claims that were made for it."""

    phase: str = "Pending"
    resource_claim_statuses: tuple[PodClaimStatus, ...] = ()
    start_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class LocalPod(Wire, frozen=True):
    """A pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BoundPodSpec = BoundPodSpec()
    status: LocalPodStatus = LocalPodStatus()

    @property
    def over(self) -> bool:
        """Whether the pod has ended, one way or the other."""
        return self.status.phase in {"Succeeded", "Failed"}


class JobSpec(Wire, frozen=True):
    """The specification of a Job. The template is not decoded: pods are made from it."""

    template: Json = None
    parallelism: int = 1
    completions: int | None = None
    backoff_limit: int = 6
    completion_mode: str = "NonIndexed"
    suspend: bool = False
    managed_by: str = ""
    ttl_seconds_after_finished: int | None = None


class JobStatus(Wire, frozen=True):
    """How far a job has come."""

    active: int = 0
    ready: int = 0
    succeeded: int = 0
    failed: int = 0
    start_time: datetime | None = None
    completion_time: datetime | None = None
    conditions: tuple[Condition, ...] = ()


class Job(Wire, frozen=True):
    """A batch/v1 Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()
