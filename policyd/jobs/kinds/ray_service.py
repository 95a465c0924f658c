"""ray.io/v1 RayService: a cluster that serves models, and is replaced while it does."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from policyd.api.kueue import PodSet
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Condition, Json, Wire, condition_true
from policyd.jobs.base import JobKind
from policyd.jobs.kinds.ray_cluster import (
    RayClusterSpec,
    cluster_mistakes,
    cluster_pod_sets,
    cluster_templates,
    head_template,
    survives,
)
from policyd.jobs.kinds.ray_growth import OfCluster, elastic_by_cluster

_CLUSTER: Final = ("spec", "rayClusterConfig")


class RayServiceSpec(Wire, frozen=True):
    """The spec of a RayService."""

    ray_cluster_config: RayClusterSpec = RayClusterSpec()


class ServiceStatus(Wire, frozen=True):
    """The cluster that serves now."""

    ray_cluster_name: str = ""


class RayServiceStatus(Wire, frozen=True):
    """How far a service has come."""

    active_service_status: ServiceStatus = ServiceStatus()
    conditions: tuple[Condition, ...] = ()


class RayService(OfCluster, frozen=True):
    """A RayService, trimmed to the fields that the queue reads."""

    spec: RayServiceSpec = RayServiceSpec()
    status: RayServiceStatus = RayServiceStatus()


def _cluster(job: RayService) -> RayClusterSpec:
    return job.spec.ray_cluster_config


def _head(job: RayService) -> Json:
    return head_template(_cluster(job), job.metadata.annotations)


def _pod_sets(job: RayService) -> tuple[PodSet, ...]:
    return cluster_pod_sets(_cluster(job), _head(job))


def _whole(job: RayService, templates: Sequence[Json]) -> Sequence[Json]:
    return _head(job), *templates[1:]


def _serves(job: RayService) -> bool:
    return condition_true(job.status.conditions, "Ready")


def _mistakes(job: RayService, _old: RayService | None) -> Iterator[FieldError]:
    at, annotations = "spec.rayClusterConfig", job.metadata.annotations
    yield from cluster_mistakes(_cluster(job), at=at, annotations=annotations)


def _with_cluster(job: RayService, cluster: RayClusterSpec) -> RayService:
    return replace(job, spec=RayServiceSpec(cluster))


RAY_SERVICE = JobKind(
    group="ray.io",
    version="v1",
    plural="rayservices",
    kind="RayService",
    type=RayService,
    pod_sets=_pod_sets,
    templates=lambda job: cluster_templates(_cluster(job), *_CLUSTER),
    whole=_whole,
    suspended=lambda job: _cluster(job).suspend,
    suspend_path=(*_CLUSTER, "suspend"),
    active=_serves,
    outcome=lambda _job: None,
    ready=_serves,
    reclaimable=lambda _job: (),
    lingers=lambda job: survives(_cluster(job), job.metadata.annotations),
    mistakes=_mistakes,
    only_managed=True,
    elastic=elastic_by_cluster(
        *_CLUSTER,
        spec=_cluster,
        with_spec=_with_cluster,
        name=lambda job: job.status.active_service_status.ray_cluster_name,
    ),
)
