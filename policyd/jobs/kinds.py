"""The kinds of jobs that the queue knows: a new kind is one module and one line here."""

from typing import Any

from policyd.api.meta import OwnerReference
from policyd.jobs.base import JobKind
from policyd.jobs.batch_job import BATCH_JOB
from policyd.jobs.job_set import JOB_SET
from policyd.jobs.kubeflow import TRAINING_JOBS
from policyd.jobs.ray_cluster import RAY_CLUSTER
from policyd.jobs.ray_job import RAY_JOB
from policyd.jobs.train_job import TRAIN_JOB

KINDS: tuple[JobKind[Any], ...] = (
    BATCH_JOB,
    JOB_SET,
    *TRAINING_JOBS,
    RAY_CLUSTER,
    RAY_JOB,
    TRAIN_JOB,
)


def find_kind(group: str, kind: str) -> JobKind[Any] | None:
    """Return the kind of job of that name; None if it is not known."""
    return next((known for known in KINDS if (known.group, known.kind) == (group, kind)), None)


def kind_of_owner(owner: OwnerReference) -> JobKind[Any] | None:
    """Return the kind of job that an owner reference names; None if it names something else."""
    return next((known for known in KINDS if known.owns(owner)), None)
