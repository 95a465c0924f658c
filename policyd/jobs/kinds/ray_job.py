"""ray.io/v1 RayJob: a program, the cluster that is made for it, and the pod that submits it."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from policyd.api.kueue import PodSet
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Json, Wire
from policyd.api.pods import PodTemplate
from policyd.jobs.base import JobKind, JobOutcome
from policyd.jobs.kinds.ray_cluster import (
    RayClusterSpec,
    RayClusterStatus,
    cluster_mistakes,
    cluster_pod_sets,
    cluster_templates,
    head_template,
    with_containers,
)
from policyd.jobs.kinds.ray_growth import OfCluster, elastic_by_cluster
from policyd.jobs.topology import topology_request
from policyd.patch.draft import Draft
from policyd.patch.operations import Path

SUBMITTER: Final = "submitter"
_CLUSTER: Final = ("spec", "rayClusterSpec")
_SUBMITTER: Final = ("spec", "submitterPodTemplate")
_CONTAINER: Final = {
    "name": "ray-job-submitter",
    "resources": {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "200Mi"},
    },
}
"""The container that KubeRay submits the program with by default."""


class RayJobSpec(Wire, frozen=True):
    """The spec of a RayJob."""

    suspend: bool = False
    active_deadline_seconds: int | None = None
    shutdown_after_job_finishes: bool = False
    submission_mode: str = ""
    cluster_selector: dict[str, str] = {}
    ray_cluster_spec: RayClusterSpec | None = None
    submitter_pod_template: Json = None


class RayJobStatus(Wire, frozen=True):
    """How far a job has come."""

    ray_cluster_name: str = ""
    ray_cluster_status: RayClusterStatus = RayClusterStatus()
    job_status: str = ""
    job_deployment_status: str = ""
    message: str = ""


class RayJob(OfCluster, frozen=True):
    """A RayJob, trimmed to the fields that the queue reads."""

    spec: RayJobSpec = RayJobSpec()
    status: RayJobStatus = RayJobStatus()


def _cluster(job: RayJob) -> RayClusterSpec:
    return job.spec.ray_cluster_spec or RayClusterSpec()


def _uses_another(job: RayJob) -> bool:
    """Tell whether a job runs on a cluster that exists already, which has its own quota."""
    return bool(job.spec.cluster_selector) and job.spec.ray_cluster_spec is None


def _submits_with_devices(job: RayJob) -> bool:
    """Tell whether the pod that submits the program asks for devices."""
    from policyd.devices.amounts import DeviceCountError  # noqa: PLC0415 - few jobs need it
    from policyd.devices.extended import asks_for_devices  # noqa: PLC0415 - few jobs need it

    pods = msgspec.convert(job.spec.submitter_pod_template or {}, PodTemplate).spec
    try:
        return asks_for_devices(pods, lambda _resource: True)
    except DeviceCountError:
        return True  # an amount that is no quantity


def _has_submitter(job: RayJob) -> bool:
    return job.spec.submission_mode == "K8sJobMode"


def _submitter(job: RayJob) -> Json:
    given = job.spec.submitter_pod_template
    return given or {"spec": {"containers": [_CONTAINER], "restartPolicy": "Never"}}


def _head(job: RayJob) -> Json:
    template = head_template(_cluster(job), job.metadata.annotations)
    if job.spec.submission_mode != "SidecarMode":
        return template
    present = (template.get("spec") or {}).get("containers") or ()
    return with_containers(template, [*present, _CONTAINER])


def _pod_sets(job: RayJob) -> tuple[PodSet, ...]:
    pod_sets = cluster_pod_sets(_cluster(job), _head(job))
    if not _has_submitter(job):
        return pod_sets
    template = msgspec.convert(_submitter(job), PodTemplate)
    request = topology_request(template.metadata.annotations)
    return *pod_sets, PodSet(name=SUBMITTER, template=template, count=1, topology_request=request)


def _templates(job: RayJob) -> tuple[Path, ...]:
    clusters = cluster_templates(_cluster(job), *_CLUSTER)
    return (*clusters, _SUBMITTER) if _has_submitter(job) else clusters


def _whole(job: RayJob, templates: Sequence[Json]) -> Sequence[Json]:
    whole = [_head(job), *templates[1:]]
    if _has_submitter(job):
        whole[-1] = _submitter(job)
    return whole


def _prepare(draft: Draft, job: RayJob) -> None:
    """Write the submitter's template: injected fields alone would have no container."""
    if _has_submitter(job) and not job.spec.submitter_pod_template:
        draft.set(_SUBMITTER, _submitter(job))


def _outcome(job: RayJob) -> JobOutcome | None:
    status = job.status
    if status.job_deployment_status not in {"Complete", "Failed"}:
        return None
    return JobOutcome(succeeded=status.job_status == "SUCCEEDED", message=status.message)


def _mistakes(job: RayJob, _old: RayJob | None) -> Iterator[FieldError]:
    spec = job.spec
    if _uses_another(job):
        if _submits_with_devices(job):
            detail = (
                "no quota counts the devices of a job on a cluster that exists already:"
                " ask for them in the cluster"
            )
            yield FieldError("spec.submitterPodTemplate", None, detail, "Forbidden")
        return
    if spec.ray_cluster_spec is None:
        detail = "a queued job needs a cluster of its own: say which"
        yield FieldError("spec.rayClusterSpec", None, detail, "Required")
        return
    if spec.cluster_selector:
        detail = "a queued job cannot use a cluster that already exists"
        yield FieldError("spec.clusterSelector", spec.cluster_selector, detail)
        return
    if not spec.shutdown_after_job_finishes:
        detail = "a queued job must have its cluster deleted when it has finished"
        yield FieldError("spec.shutdownAfterJobFinishes", value=False, message=detail)
    yield from cluster_mistakes(
        spec.ray_cluster_spec,
        at="spec.rayClusterSpec",
        annotations=job.metadata.annotations,
        more_pod_sets=int(_has_submitter(job)),
    )


def _with_cluster(job: RayJob, cluster: RayClusterSpec) -> RayJob:
    return replace(job, spec=replace(job.spec, ray_cluster_spec=cluster))


RAY_JOB = JobKind(
    group="ray.io",
    version="v1",
    plural="rayjobs",
    kind="RayJob",
    type=RayJob,
    limit=lambda job: job.spec.active_deadline_seconds,
    pod_sets=_pod_sets,
    templates=_templates,
    whole=_whole,
    prepare=_prepare,
    suspended=lambda job: job.spec.suspend,
    active=lambda job: job.status.job_deployment_status not in {"", "Suspended"},
    outcome=_outcome,
    ready=lambda job: job.status.ray_cluster_status.state == "ready",
    reclaimable=lambda _job: (),
    on_hold=lambda job: job.status.job_deployment_status == "ValidationFailed",
    ignored=_uses_another,
    mistakes=_mistakes,
    only_managed=True,
    elastic=elastic_by_cluster(
        *_CLUSTER,
        spec=_cluster,
        with_spec=_with_cluster,
        name=lambda job: job.status.ray_cluster_name,
    ),
)
