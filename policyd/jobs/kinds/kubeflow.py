"""The training jobs of Kubeflow: replicas by role, suspended by their run policy.

They are of one shape; a table says which roles each kind has, and in which order they count.
"""

from collections.abc import Iterator
from typing import Final

from policyd.api.kueue import PodSet
from policyd.api.meta import Condition, Wire
from policyd.api.pods import PodTemplate
from policyd.jobs.base import JobKind, JobObject, JobOutcome, ended_by
from policyd.jobs.gangs.gang import CreationOrder
from policyd.jobs.topology import POD_INDEX_OFFSET, POD_SET_GROUP_NAME, topology_request
from policyd.patch.draft import Draft

POD_INDEX_LABEL = "training.kubeflow.org/replica-index"


class Replicas(Wire, frozen=True):
    """The pods of one role."""

    replicas: int = 1
    template: PodTemplate = PodTemplate()


class SchedulingPolicy(Wire, frozen=True):
    """How the pods are scheduled."""

    priority_class: str = ""


class RunPolicy(Wire, frozen=True):
    """How a job runs."""

    suspend: bool = False
    active_deadline_seconds: int | None = None
    scheduling_policy: SchedulingPolicy | None = None


class TrainingJobSpec(Wire, frozen=True):
    """The spec of a training job; every kind has one of the fields of replicas."""

    run_policy: RunPolicy = RunPolicy()
    launcher_creation_policy: str = ""
    run_launcher_as_worker: bool = False
    jax_replica_specs: dict[str, Replicas | None] = {}
    mpi_replica_specs: dict[str, Replicas | None] = {}
    paddle_replica_specs: dict[str, Replicas | None] = {}
    pytorch_replica_specs: dict[str, Replicas | None] = {}
    tf_replica_specs: dict[str, Replicas | None] = {}
    xgb_replica_specs: dict[str, Replicas | None] = {}


class ReplicaStatus(Wire, frozen=True):
    """How many pods of a role are in each state."""

    active: int = 0


class TrainingJobStatus(Wire, frozen=True):
    """How far a training job has come."""

    conditions: tuple[Condition, ...] = ()
    replica_statuses: dict[str, ReplicaStatus] = {}


class TrainingJob(JobObject, frozen=True):
    """A training job, trimmed to the fields that the queue reads."""

    spec: TrainingJobSpec = TrainingJobSpec()
    status: TrainingJobStatus = TrainingJobStatus()


def active(job: TrainingJob) -> bool:
    """Tell whether a role has pods that have not ended."""
    return any(each.active for each in job.status.replica_statuses.values())


def outcome(job: TrainingJob) -> JobOutcome | None:
    """Return how a training job ended."""
    return ended_by(job.status.conditions, succeeded="Succeeded", failed="Failed")


def ready(job: TrainingJob) -> bool:
    """Tell whether all pods of a training job run."""
    return any(each.type == "Running" and each.status == "True" for each in job.status.conditions)


def comes(job: TrainingJob) -> CreationOrder:
    """Say whether the launcher of an MPIJob waits for its workers."""
    return "RoleByRole" if job.spec.launcher_creation_policy == "WaitForWorkersReady" else ""


def number(draft: Draft, job: TrainingJob) -> None:
    """Count the workers of an MPIJob from 1 where its launcher is the worker of index 0.

    Pods that are placed as a group are counted through anyway.
    """
    roles = [job.spec.mpi_replica_specs.get(role) for role in ("Launcher", "Worker")]
    if not job.spec.run_launcher_as_worker or None in roles:
        return
    if not any(POD_SET_GROUP_NAME in r.template.metadata.annotations for r in roles if r):
        worker = ("spec", "mpiReplicaSpecs", "Worker", "template")
        draft.set((*worker, "metadata", "annotations", POD_INDEX_OFFSET), "1")


def _kind(name: str, *roles: str, specs: str, version: str = "v1") -> JobKind[TrainingJob]:
    """Describe a kind of training job.

    Args:
        name: The kind.
        *roles: Its roles, in the order of the pod sets.
        specs: How the field of its replicas begins.
        version: API version.
    """

    def replicas(job: TrainingJob) -> Iterator[tuple[str, Replicas]]:
        given = getattr(job.spec, f"{specs}_replica_specs")
        return ((role, given[role]) for role in roles if given.get(role) is not None)

    def priority_class(job: TrainingJob) -> str:
        policy = job.spec.run_policy.scheduling_policy
        named = (each.template.spec.priority_class_name for _, each in replicas(job))
        return (policy.priority_class if policy else "") or next(filter(None, named), "")

    return JobKind(
        group="kubeflow.org",
        version=version,
        plural=f"{name.lower()}s",
        kind=name,
        type=TrainingJob,
        pod_sets=lambda job: tuple(_pod_set(role, each) for role, each in replicas(job)),
        templates=lambda job: tuple(
            ("spec", f"{specs}ReplicaSpecs", role, "template") for role, _ in replicas(job)
        ),
        suspended=lambda job: job.spec.run_policy.suspend,
        suspend_path=("spec", "runPolicy", "suspend"),
        limit=lambda job: job.spec.run_policy.active_deadline_seconds,
        active=active,
        outcome=outcome,
        ready=ready,
        reclaimable=lambda _job: (),
        priority_class=priority_class,
        comes=comes,
        number=number,
        takes_prebuilt=name != "JAXJob",
    )


def _pod_set(role: str, replicas: Replicas) -> PodSet:
    template = replicas.template
    return PodSet(
        name=role.lower(),
        template=template,
        count=replicas.replicas,
        topology_request=topology_request(
            template.metadata.annotations, pod_index_label=POD_INDEX_LABEL
        ),
    )


TRAINING_JOBS: Final = (
    _kind("JAXJob", "Worker", specs="jax"),
    _kind("MPIJob", "Launcher", "Worker", specs="mpi", version="v2beta1"),
    _kind("PaddleJob", "Master", "Worker", specs="paddle"),
    _kind("PyTorchJob", "Master", "Worker", specs="pytorch"),
    _kind("TFJob", "Chief", "Master", "PS", "Worker", "Evaluator", specs="tf"),
    _kind("XGBoostJob", "Master", "Worker", specs="xgb"),
)
