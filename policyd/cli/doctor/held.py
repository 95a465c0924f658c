"""Checks of what is held: pods, jobs and deletions that wait for something that is gone."""

from collections.abc import AsyncIterator, Iterator
from typing import Final, NamedTuple

from policyd.api.kueue.names import (
    ADMISSION_GATE,
    MANAGED,
    POD_SET,
    QUEUE_NAME,
    RESOURCE_IN_USE_FINALIZER,
    TOPOLOGY_GATE,
    WORKLOAD,
)
from policyd.api.meta import ObjectMeta, Wire
from policyd.cli.doctor.installation import PODS as SHOW_PODS
from policyd.cli.doctor.queues import is_old
from policyd.cli.doctor.report import GRACE_SECONDS, CheckedCluster, Checks, InstallationProblem
from policyd.jobs.base import controller_of
from policyd.jobs.pods import group_name
from policyd.kube.client import PartialObject
from policyd.kube.errors import NotFoundError
from policyd.kube.resources import CLUSTER_QUEUES, PODS, RESOURCE_FLAVORS, WORKLOADS
from policyd.questions.unqueued_jobs import JOBS

_GATES: Final = frozenset({ADMISSION_GATE, TOPOLOGY_GATE})


class _Gate(Wire, frozen=True):
    name: str


class _PodSpec(Wire, frozen=True):
    scheduling_gates: tuple[_Gate, ...] = ()


class HeldPod(Wire, frozen=True):
    """The parts of a pod that say what it waits for."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _PodSpec = _PodSpec()

    @property
    def gated(self) -> bool:
        """Whether it waits for a queue."""
        return not _GATES.isdisjoint(gate.name for gate in self.spec.scheduling_gates)


class _RunPolicy(Wire, frozen=True):
    suspend: bool | None = None


class _JobSpec(Wire, frozen=True):
    suspend: bool | None = None
    run_policy: _RunPolicy | None = None


class HeldJob(Wire, frozen=True):
    """The parts of a job, of whatever kind, that say that it is suspended."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _JobSpec = _JobSpec()

    @property
    def suspended(self) -> bool:
        """Whether it is suspended; kinds that cannot be are not."""
        inner = self.spec.run_policy
        return bool(self.spec.suspend or (inner is not None and inner.suspend))


class Workloads(NamedTuple):
    """The Workloads that there are.

    Attributes:
        keys: `namespace/name` of each.
        owners: The uids of their owners.
    """

    keys: set[str]
    owners: set[str]


async def _workloads(cluster: CheckedCluster) -> Workloads:
    found = Workloads(set(), set())
    async for workload in cluster.all(WORKLOADS, PartialObject):
        found.keys.add(workload.metadata.key)
        found.owners.update(owner.uid for owner in workload.metadata.owner_references)
    return found


async def pods(cluster: CheckedCluster) -> AsyncIterator[InstallationProblem]:
    """Find pods that wait for a Workload that is gone."""
    workloads = await _workloads(cluster)
    for label in (f"{MANAGED}=true", f"{POD_SET},!{MANAGED}"):
        async for pod in cluster.all(PODS, HeldPod, label_selector=label):
            for found in held_pod(pod, workloads, cluster.now):
                yield found


async def jobs(cluster: CheckedCluster) -> AsyncIterator[InstallationProblem]:
    """Find jobs that are suspended for a queue, and have no Workload."""
    workloads = await _workloads(cluster)
    for kind, resource in JOBS.items():
        try:
            async for job in cluster.all(resource, HeldJob, label_selector=QUEUE_NAME):
                for found in held_job(kind, job, workloads, cluster.now):
                    yield found
        except NotFoundError:
            continue  # the cluster has no such kind


async def deletions(cluster: CheckedCluster) -> AsyncIterator[InstallationProblem]:
    """Find deleted objects that a finalizer of the queue keeps."""
    for resource in (PODS, WORKLOADS, CLUSTER_QUEUES, RESOURCE_FLAVORS):
        selector = {"label_selector": f"{MANAGED}=true"} if resource is PODS else {}
        async for each in cluster.all(resource, PartialObject, **selector):
            for found in not_deleted(resource.kind, each.metadata, cluster.now):
                yield found


def held_pod(pod: HeldPod, workloads: Workloads, now: float) -> Iterator[InstallationProblem]:
    """Yield that a pod waits for a Workload that is gone."""
    metadata = pod.metadata
    if not pod.gated or not is_old(metadata, now) or metadata.deletion_timestamp is not None:
        return
    wanted = group_name(metadata) or metadata.annotations.get(WORKLOAD, "")
    owners = {metadata.uid, *(owner.uid for owner in metadata.owner_references)}
    exists = f"{metadata.namespace}/{wanted}" in workloads.keys
    if exists or not workloads.owners.isdisjoint(owners):
        return
    message = (
        f"it is gated, and its Workload {wanted} is gone"
        if wanted
        else ("it is gated, and has no Workload")
    )
    yield _held(
        "pods",
        "Pod",
        metadata,
        message,
        f"kubectl events --for pod/{metadata.name} -n {metadata.namespace}",
    )


def not_deleted(kind: str, metadata: ObjectMeta, now: float) -> Iterator[InstallationProblem]:
    """Yield that an object was deleted, and is kept by a finalizer of the queue."""
    deleted = metadata.deletion_timestamp
    ours = {MANAGED, RESOURCE_IN_USE_FINALIZER}.intersection(metadata.finalizers)
    if deleted is None or not ours:
        return
    age = now - deleted.timestamp()
    if age > GRACE_SECONDS:
        message = f"it was deleted {age:.0f} s ago, and is kept by {', '.join(sorted(ours))}"
        where = f" -n {metadata.namespace}" if metadata.namespace else ""
        everything = "" if kind == "Pod" else " --all"
        yield _held(
            "deletions",
            kind,
            metadata,
            f"{message}, as it is used or no controller runs",
            f"{SHOW_PODS}; without a controller: policyd release{where}{everything} --dry-run",
        )


def held_job(
    kind: str, job: HeldJob, workloads: Workloads, now: float
) -> Iterator[InstallationProblem]:
    """Yield that a job is suspended, and that there is no Workload that could start it."""
    metadata = job.metadata
    if not job.suspended or metadata.uid in workloads.owners or not is_old(metadata, now):
        return
    if controller_of(metadata) is None:
        fix = f"policyd why {kind.lower()}/{metadata.name} -n {metadata.namespace}"
        yield _held("jobs", kind, metadata, "it is suspended, and has no Workload", fix)


def _held(
    check: str, kind: str, metadata: ObjectMeta, message: str, fix: str
) -> InstallationProblem:
    return InstallationProblem(check, "error", f"{kind} {metadata.key}", message, fix)


CHECKS: Checks = {"pods": pods, "jobs": jobs, "deletions": deletions}
