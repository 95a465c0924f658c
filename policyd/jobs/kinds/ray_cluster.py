"""ray.io/v1 RayCluster: a head and groups of workers, which run until they are suspended."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from policyd.api.kueue import PodSet
from policyd.api.kueue.names import ELASTIC_JOB
from policyd.api.kueue.validation import FieldError
from policyd.api.meta import Json, Wire
from policyd.api.pods import PodTemplate
from policyd.api.quantity import QuantityError, parse_quantity
from policyd.jobs.base import Elastic, JobKind, JobObject, SizeError
from policyd.jobs.topology import topology_request
from policyd.patch.operations import Path

HEAD: Final = "head"
MOST_POD_SETS: Final = 18
CLUSTER_LABEL: Final = "ray.io/cluster"
"""Label of a pod: the cluster that it is one of."""
FAULT_TOLERANT: Final = "ray.io/ft-enabled"
RAY_CONTAINER: Final = 0
"""The container that runs Ray comes first, as KubeRay demands."""

_AUTOSCALER: Final = {"cpu": "500m", "memory": "512Mi"}
_LEAST_OF_FAULT_TOLERANT: Final = {"cpu": "200m", "memory": "256Mi"}
_MULTI_KUEUE: Final = "kueue.x-k8s.io/multikueue"


class HeadGroup(Wire, frozen=True):
    """The pod that leads."""

    template: Json = {}


class WorkerGroup(Wire, frozen=True):
    """Pods that are made from one template; `num_of_hosts` of them make up a replica."""

    group_name: str = ""
    replicas: int | None = None
    min_replicas: int = 0
    num_of_hosts: int = 1
    template: PodTemplate = PodTemplate()

    @property
    def pods(self) -> int:
        """How many pods the group has: KubeRay makes `min_replicas` though fewer are asked for."""
        replicas = 1 if self.replicas is None else self.replicas
        return max(replicas, self.min_replicas) * max(self.num_of_hosts, 1)


class AutoscalerOptions(Wire, frozen=True):
    """How the container beside the head runs that adds and removes workers."""

    resources: Json = None


class RayClusterSpec(Wire, frozen=True):
    """The spec of a cluster."""

    suspend: bool = False
    managed_by: str = ""
    enable_in_tree_autoscaling: bool = False
    autoscaler_options: AutoscalerOptions | None = None
    gcs_fault_tolerance_options: Json = None
    head_group_spec: HeadGroup = HeadGroup()
    worker_group_specs: tuple[WorkerGroup, ...] = ()


class RayClusterStatus(Wire, frozen=True):
    """How far a cluster has come."""

    state: str = ""


class RayCluster(JobObject, frozen=True):
    """A RayCluster, trimmed to the fields that the queue reads."""

    spec: RayClusterSpec = RayClusterSpec()
    status: RayClusterStatus = RayClusterStatus()


def head_template(spec: RayClusterSpec, annotations: Mapping[str, str]) -> Json:
    """Return the template of the head with KubeRay's additions.

    Args:
        spec: Of the cluster.
        annotations: Of the object that it is written in.
    """
    template = spec.head_group_spec.template or {}
    containers = _head_containers(spec)
    if containers and survives(spec, annotations):
        containers[RAY_CONTAINER] = _with_least(containers[RAY_CONTAINER])
    if spec.enable_in_tree_autoscaling:
        options = spec.autoscaler_options
        given = None if options is None else options.resources
        resources = given or {"limits": _AUTOSCALER, "requests": _AUTOSCALER}
        containers.append({"name": "autoscaler", "resources": resources})
    return with_containers(template, containers)


def _head_containers(spec: RayClusterSpec) -> list[Json]:
    template = spec.head_group_spec.template or {}
    return list((template.get("spec") or {}).get("containers") or ())


def with_containers(template: Json, containers: Sequence[Json]) -> Json:
    """Return a pod template with other containers."""
    if not containers:
        return template
    return {**template, "spec": {**(template.get("spec") or {}), "containers": list(containers)}}


def survives(spec: RayClusterSpec, annotations: Mapping[str, str]) -> bool:
    """Tell whether a cluster survives the loss of its head, as its state is kept in Redis."""
    return spec.gcs_fault_tolerance_options is not None or (
        annotations.get(FAULT_TOLERANT, "").lower() == "true"
    )


def _with_least(container: Json) -> Json:
    """Return a container with the least requests that fault tolerance needs."""
    resources = container.get("resources") or {}
    requests = dict(resources.get("requests") or {})
    for name, least in _LEAST_OF_FAULT_TOLERANT.items():
        if _is_less(requests.get(name, "0"), least):
            requests[name] = least
    return {**container, "resources": {**resources, "requests": requests}}


def _is_less(quantity: object, least: str) -> bool:
    try:
        return parse_quantity(str(quantity)) < parse_quantity(least)
    except QuantityError:
        return False  # the API server reports the error


def cluster_pod_sets(spec: RayClusterSpec, head: Json) -> tuple[PodSet, ...]:
    """Return the pods of a cluster: the head's, and a pod set for each group of workers."""
    leader = _pod_set(HEAD, msgspec.convert(head, PodTemplate), 1)
    groups = spec.worker_group_specs
    return (leader, *(_pod_set(each.group_name, each.template, each.pods) for each in groups))


def _pod_set(name: str, template: PodTemplate, count: int) -> PodSet:
    return PodSet(
        name=name.lower(),
        template=template,
        count=count,
        topology_request=topology_request(template.metadata.annotations),
    )


def cluster_templates(spec: RayClusterSpec, *at: str) -> tuple[Path, ...]:
    """Return where the pod templates are of a cluster that is written `at` some path."""
    groups = range(len(spec.worker_group_specs))
    workers: Iterable[Path] = ((*at, "workerGroupSpecs", index, "template") for index in groups)
    return ((*at, "headGroupSpec", "template"), *workers)


def worker_templates(spec: RayClusterSpec, *at: str) -> tuple[Path, ...]:
    """Return where the templates are of the pods of a cluster that come and go while it runs."""
    return cluster_templates(spec, *at)[1:]


def resized(spec: RayClusterSpec, running: RayClusterSpec) -> RayClusterSpec:
    """Return a cluster with as many workers as one has that was made from it, and runs.

    Raises:
        SizeError: If that one has workers of other groups.
    """
    live = {each.group_name.lower(): each for each in running.worker_group_specs}
    known = {each.group_name.lower(): each for each in spec.worker_group_specs}
    unknown = next((name for name in live if name not in known), None)
    if unknown is not None:
        raise SizeError(f"the cluster has the worker group `{unknown}`, which its job has not")
    sizes = {**known, **live}
    groups = (
        replace(each, replicas=sizes[name].replicas, num_of_hosts=sizes[name].num_of_hosts)
        for name, each in known.items()
    )
    return replace(spec, worker_group_specs=tuple(groups))


def pods_of(name: str) -> str:
    """Return the label selector of a cluster's pods; empty if the cluster does not exist yet."""
    return f"{CLUSTER_LABEL}={name}" if name else ""


def cluster_mistakes(
    spec: RayClusterSpec, *, at: str, annotations: Mapping[str, str], more_pod_sets: int = 0
) -> Iterator[FieldError]:
    """Yield the errors in a cluster.

    Args:
        spec: The cluster.
        at: Where it is written.
        annotations: Of the object that it is written in.
        more_pod_sets: How many pod sets that object has beside it.
    """
    elastic = annotations.get(ELASTIC_JOB) == "true"
    where, scales = f"{at}.enableInTreeAutoscaling", spec.enable_in_tree_autoscaling
    if scales and not elastic:
        detail = f"only an elastic job can use autoscaling: annotate it with {ELASTIC_JOB}: true"
        yield FieldError(where, scales, detail)
    elif scales and spec.managed_by == _MULTI_KUEUE:
        detail = "an elastic job of another cluster cannot use autoscaling"
        yield FieldError(where, scales, detail, "Forbidden")
    if survives(spec, annotations) and not _head_containers(spec):
        where = f"{at}.headGroupSpec.template.spec.containers"
        detail = "a head whose state is kept in Redis must have the Ray container"
        yield FieldError(where, None, detail, "Required")
    groups = spec.worker_group_specs
    most = MOST_POD_SETS - 1 - more_pod_sets
    if len(groups) > most:
        detail = f"must have at most {most} items"
        yield FieldError(f"{at}.workerGroupSpecs", len(groups), detail, "TooMany")
    for index, group in enumerate(groups):
        if group.group_name.lower() == HEAD:
            where, detail = f"{at}.workerGroupSpecs[{index}].groupName", "is the head's name"
            yield FieldError(where, group.group_name, detail, "Forbidden")


def _whole(job: RayCluster, templates: Sequence[Json]) -> Sequence[Json]:
    return head_template(job.spec, job.metadata.annotations), *templates[1:]


def _pod_sets(job: RayCluster) -> tuple[PodSet, ...]:
    return cluster_pod_sets(job.spec, head_template(job.spec, job.metadata.annotations))


def _mistakes(job: RayCluster, _old: RayCluster | None) -> Iterable[FieldError]:
    return cluster_mistakes(job.spec, at="spec", annotations=job.metadata.annotations)


RAY_CLUSTER = JobKind(
    group="ray.io",
    version="v1",
    plural="rayclusters",
    kind="RayCluster",
    type=RayCluster,
    pod_sets=_pod_sets,
    templates=lambda job: cluster_templates(job.spec, "spec"),
    whole=_whole,
    suspended=lambda job: job.spec.suspend,
    active=lambda job: job.status.state == "ready",
    outcome=lambda _job: None,
    ready=lambda job: job.status.state == "ready",
    reclaimable=lambda _job: (),
    mistakes=_mistakes,
    only_managed=True,
    elastic=Elastic(
        templates=lambda job: worker_templates(job.spec, "spec"),
        selector=lambda job: pods_of(job.metadata.name),
    ),
)
