"""The kinds of jobs that the queue knows: a new kind is one module and one line of data.

The line is here for the kinds that come with policyd, and an entry point for those of others.
"""

from collections.abc import Iterable, Iterator
from importlib.metadata import entry_points
from typing import Any, Final, Protocol

from policyd.api.meta import ObjectMeta, OwnerReference
from policyd.jobs.base import JobKind
from policyd.jobs.kinds.app_wrapper import APP_WRAPPER
from policyd.jobs.kinds.batch_job import BATCH_JOB
from policyd.jobs.kinds.deployment import DEPLOYMENT, REPLICA_SET
from policyd.jobs.kinds.job_set import JOB_SET
from policyd.jobs.kinds.kubeflow import TRAINING_JOBS
from policyd.jobs.kinds.leader_worker_set import LEADER_WORKER_SET
from policyd.jobs.kinds.ray_cluster import RAY_CLUSTER
from policyd.jobs.kinds.ray_job import RAY_JOB
from policyd.jobs.kinds.ray_service import RAY_SERVICE
from policyd.jobs.kinds.spark_application import SPARK_APPLICATION
from policyd.jobs.kinds.stateful_set import STATEFUL_SET
from policyd.jobs.kinds.train_job import TRAIN_JOB
from policyd.jobs.kinds.volcano_job import VOLCANO_JOB
from policyd.jobs.parents import ParentKind

GROUP: Final = "policyd.job_kinds"
"""Entry points by which installed packages register kinds: `name = "module:KIND"`."""

BUILT_IN: Final[tuple[JobKind[Any], ...]] = (
    BATCH_JOB,
    JOB_SET,
    *TRAINING_JOBS,
    RAY_CLUSTER,
    RAY_JOB,
    RAY_SERVICE,
    TRAIN_JOB,
    APP_WRAPPER,
    SPARK_APPLICATION,
)


class EntryPoint(Protocol):
    """Where an installed package says that something is."""

    name: str

    def load(self) -> object:
        """Import it."""
        ...


def registered(points: Iterable[EntryPoint]) -> Iterator[JobKind[Any]]:
    """Yield the kinds that installed packages have registered.

    Args:
        points: Each leads to a kind, or to several.

    Raises:
        TypeError: If one leads to something else: fix or remove the package.
        ValueError: If a kind exists already.
    """
    known = {(kind.group, kind.kind) for kind in BUILT_IN}
    for point in points:
        found = point.load()
        for kind in found if isinstance(found, tuple) else (found,):
            if not isinstance(kind, JobKind):
                raise TypeError(f"the entry point `{point.name}` of {GROUP} is no JobKind")
            if (kind.group, kind.kind) in known:
                raise ValueError(f"{kind.kind} of {kind.api_version} is registered twice")
            known.add((kind.group, kind.kind))
            yield kind


# INVARIANT: read once, as modules are; installed packages do not change while a process runs.
REGISTERED: Final = tuple(registered(entry_points(group=GROUP)))
"""Kinds that come from other packages."""

KINDS: tuple[JobKind[Any], ...] = (*BUILT_IN, *REGISTERED)

PARENTS: tuple[ParentKind[Any], ...] = (
    DEPLOYMENT,
    REPLICA_SET,
    STATEFUL_SET,
    LEADER_WORKER_SET,
    VOLCANO_JOB,
)
"""Kinds that are not suspended themselves: their pods are gated."""

_KINDS_BY_NAME: Final = {(known.group, known.kind): known for known in KINDS}
_PARENTS_BY_NAME: Final = {(known.group, known.kind): known for known in PARENTS}


def find_parent(group: str, kind: str) -> ParentKind[Any] | None:
    """Return the kind of parent of that name; None if it is not known."""
    return _PARENTS_BY_NAME.get((group, kind))


def parent_of_owner(owner: OwnerReference) -> ParentKind[Any] | None:
    """Return the kind of parent that an owner reference names; None if it is something else."""
    return next((known for known in PARENTS if known.owns(owner)), None)


def parent_of_pod(pod: ObjectMeta) -> ParentKind[Any] | None:
    """Return the kind that a pod is held for, in a group; None if it is held for itself."""
    return next((known for known in PARENTS if known.in_groups and known.holds(pod)), None)


def find_kind(group: str, kind: str) -> JobKind[Any] | None:
    """Return the kind of job of that name; None if it is not known."""
    return _KINDS_BY_NAME.get((group, kind))


def kind_of_owner(owner: OwnerReference) -> JobKind[Any] | None:
    """Return the kind of job that an owner reference names; None if it names something else."""
    return next((known for known in KINDS if known.owns(owner)), None)
