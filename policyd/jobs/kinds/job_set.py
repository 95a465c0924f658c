"""jobset.x-k8s.io/v1alpha2 JobSet: several batch Jobs that start and stop together."""

from policyd.api.kueue import PodSet, ReclaimablePod
from policyd.api.meta import Condition, Wire
from policyd.jobs.base import JobKind, JobObject, JobOutcome, ended_by
from policyd.jobs.gangs.gang import CreationOrder
from policyd.jobs.kinds.batch_job import POD_INDEX_LABEL, BatchJobSpec, pods_at_a_time
from policyd.jobs.topology import topology_request
from policyd.patch.operations import Path

JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"


class JobTemplate(Wire, frozen=True):
    """The template of each Job of a replicated job."""

    spec: BatchJobSpec = BatchJobSpec()


class ReplicatedJob(Wire, frozen=True):
    """Jobs that are made from one template."""

    name: str = ""
    replicas: int = 1
    template: JobTemplate = JobTemplate()


class ReplicatedJobStatus(Wire, frozen=True):
    """How many Jobs of a replicated job are in each state."""

    name: str = ""
    ready: int = 0
    succeeded: int = 0
    active: int = 0


class StartupPolicy(Wire, frozen=True):
    """Whether replicated jobs start one after the other."""

    startup_policy_order: str = "AnyOrder"


class FailurePolicy(Wire, frozen=True):
    """How often all Jobs are made again once one has failed."""

    max_restarts: int = 0


class JobSetSpec(Wire, frozen=True):
    """The spec of a JobSet."""

    suspend: bool = False
    startup_policy: StartupPolicy | None = None
    failure_policy: FailurePolicy | None = None
    replicated_jobs: tuple[ReplicatedJob, ...] = ()


class JobSetStatus(Wire, frozen=True):
    """How far a JobSet has come."""

    conditions: tuple[Condition, ...] = ()
    replicated_jobs_status: tuple[ReplicatedJobStatus, ...] = ()


class JobSet(JobObject, frozen=True):
    """A JobSet, trimmed to the fields that the queue reads."""

    spec: JobSetSpec = JobSetSpec()
    status: JobSetStatus = JobSetStatus()


def pod_sets(job: JobSet) -> tuple[PodSet, ...]:
    """Return a pod set for each replicated job: the pods of all its Jobs."""
    return tuple(
        PodSet(
            name=each.name.lower(),
            template=each.template.spec.template,
            count=each.replicas * pods_at_a_time(each.template.spec),
            topology_request=topology_request(
                each.template.spec.template.metadata.annotations,
                pod_index_label=POD_INDEX_LABEL,
                sub_group_index_label=JOB_INDEX_LABEL,
                sub_group_count=each.replicas,
            ),
        )
        for each in job.spec.replicated_jobs
    )


def templates(job: JobSet) -> tuple[Path, ...]:
    """Return where the pod templates are."""
    count = len(job.spec.replicated_jobs)
    where = ("template", "spec", "template")
    return tuple(("spec", "replicatedJobs", index, *where) for index in range(count))


def active(job: JobSet) -> bool:
    """Tell whether a Job of it has pods that have not ended."""
    return any(each.active for each in job.status.replicated_jobs_status)


def outcome(job: JobSet) -> JobOutcome | None:
    """Return how a JobSet ended."""
    return ended_by(job.status.conditions, succeeded="Completed", failed="Failed")


def ready(job: JobSet) -> bool:
    """Tell whether every Job is ready or has succeeded."""
    wanted = sum(each.replicas for each in job.spec.replicated_jobs)
    return wanted == sum(each.ready + each.succeeded for each in job.status.replicated_jobs_status)


def comes(job: JobSet) -> CreationOrder:
    """Say whether a replicated job starts when those before it are ready."""
    policy = job.spec.startup_policy
    return "RoleByRole" if policy and policy.startup_policy_order == "InOrder" else ""


def limit(job: JobSet) -> int | None:
    """Return how long a JobSet may run by the deadlines of its Jobs, in seconds.

    Returns:
        None if a Job has none, or if the Jobs may be made again.
    """
    deadlines = [each.template.spec.active_deadline_seconds for each in job.spec.replicated_jobs]
    known = [each for each in deadlines if each is not None]
    policy = job.spec.failure_policy
    if not known or len(known) < len(deadlines) or (policy and policy.max_restarts > 0):
        return None
    return sum(known) if comes(job) else max(known)


def reclaimable(job: JobSet) -> tuple[ReclaimablePod, ...]:
    """Return the pods of the Jobs that have succeeded."""
    succeeded = {each.name: each.succeeded for each in job.status.replicated_jobs_status}
    ended = ((each, succeeded.get(each.name, 0)) for each in job.spec.replicated_jobs)
    return tuple(
        ReclaimablePod(name=each.name.lower(), count=count * pods_at_a_time(each.template.spec))
        for each, count in ended
        if count > 0
    )


JOB_SET = JobKind(
    group="jobset.x-k8s.io",
    version="v1alpha2",
    plural="jobsets",
    kind="JobSet",
    type=JobSet,
    pod_sets=pod_sets,
    templates=templates,
    suspended=lambda job: job.spec.suspend,
    active=active,
    outcome=outcome,
    ready=ready,
    reclaimable=reclaimable,
    comes=comes,
    limit=limit,
)
