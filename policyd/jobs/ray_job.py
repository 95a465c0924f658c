"""ray.io/v1 RayJob: a program, the cluster that is made for it, and the pod that submits it."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from policyd.api.kueue import PodSet
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Json, Wire
from policyd.api.pods import PodTemplate
from policyd.jobs.base import Elastic, JobKind, JobObject, Outcome
from policyd.jobs.ray_cluster import (
    CLUSTER_GENERATION,
    RayCluster,
    RayClusterSpec,
    RayClusterStatus,
    cluster_mistakes,
    cluster_pod_sets,
    cluster_templates,
    head_template,
    made_cluster,
    pods_of,
    resized,
    with_containers,
    worker_templates,
)
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
"""What KubeRay submits the program with, where nobody says otherwise."""


class RayJobSpec(Wire, frozen=True):
    """What a job wants."""

    suspend: bool = False
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


class RayJob(JobObject, frozen=True):
    """A RayJob, trimmed to what the queue reads.

    `cluster_version` is the generation of the cluster that says how many workers it has.
    """

    spec: RayJobSpec = RayJobSpec()
    status: RayJobStatus = RayJobStatus()
    cluster_version: str = ""


def _cluster(job: RayJob) -> RayClusterSpec:
    return job.spec.ray_cluster_spec or RayClusterSpec()


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
    """Write the submitter down: a template of what is injected alone would have no container."""
    if _has_submitter(job) and not job.spec.submitter_pod_template:
        draft.set(_SUBMITTER, _submitter(job))


def _outcome(job: RayJob) -> Outcome | None:
    status = job.status
    if status.job_deployment_status not in {"Complete", "Failed"}:
        return None
    return Outcome(succeeded=status.job_status == "SUCCEEDED", message=status.message)


def _mistakes(job: RayJob, _old: RayJob | None) -> Iterator[FieldError]:
    spec = job.spec
    if not spec.shutdown_after_job_finishes:
        detail = "a queued job must have its cluster deleted when it has finished"
        yield FieldError("spec.shutdownAfterJobFinishes", value=False, message=detail)
    if spec.ray_cluster_spec is None:
        return
    if spec.cluster_selector:
        detail = "a queued job cannot use a cluster that is there already"
        yield FieldError("spec.clusterSelector", spec.cluster_selector, detail)
    yield from cluster_mistakes(
        spec.ray_cluster_spec,
        at="spec.rayClusterSpec",
        annotations=job.metadata.annotations,
        more_pod_sets=int(_has_submitter(job)),
    )


def _sized(job: RayJob, found: Json) -> RayJob:
    running, spec = msgspec.convert(found, RayCluster), _cluster(job)
    if spec.enable_in_tree_autoscaling:
        job = replace(job, spec=replace(job.spec, ray_cluster_spec=resized(spec, running.spec)))
    return replace(job, cluster_version=str(running.metadata.generation))


def _notes(job: RayJob) -> dict[str, str]:
    return {CLUSTER_GENERATION: job.cluster_version} if job.cluster_version else {}


RAY_JOB = JobKind(
    group="ray.io",
    version="v1",
    plural="rayjobs",
    kind="RayJob",
    type=RayJob,
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
    ignored=lambda job: bool(job.spec.cluster_selector) and job.spec.ray_cluster_spec is None,
    mistakes=_mistakes,
    only_managed=True,
    elastic=Elastic(
        templates=lambda job: worker_templates(_cluster(job), *_CLUSTER),
        selector=lambda job: pods_of(job.status.ray_cluster_name),
        sized_by=lambda job: made_cluster(job.status.ray_cluster_name),
        sized=_sized,
        notes=_notes,
    ),
)
