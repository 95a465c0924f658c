"""Find the pods in an object: the pod itself, or the pod templates of known kinds.

A template stands at a path; `EACH` in a path stands for every item of a list or object there. How
many pods come of a template is counted as the kind's controller would.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from policyd.api.meta import Json
from policyd.engine.objects.spark import spark_pods
from policyd.patch.operations import Path

Count = Callable[[Json, Path], int]

EACH = "*"


@dataclass(frozen=True, slots=True)
class PodLocation:
    """A pod, or a template of pods: where it stands, and how many pods come of it."""

    path: Path
    pods: int


@dataclass(frozen=True, slots=True)
class _Place:
    path: tuple[str, ...]
    count: Count


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """A kind that makes pods.

    `frozen` is set if its pod template cannot be changed once it is created; `queued` is the path
    of the queued object, which for a CronJob is the Job it makes. `besides` are the paths of
    containers that its controller adds to a pod, with the resources there. `assembled` yields pods
    that are made of other fields than templates, and how many there are of each.
    """

    group: str
    kind: str
    plural: str
    places: tuple[_Place, ...]
    frozen: bool = False
    queued: Path = ()
    besides: tuple[Path, ...] = ()
    assembled: Callable[[Json], Iterable[tuple[int, Json]]] | None = None


def find_kind(obj: Json) -> WorkloadKind | None:
    """Return the workload kind of an object, by its apiVersion and kind; None if it makes no pods.

    The version does not matter: all versions of a known kind hold their templates alike.
    """
    if not isinstance(obj, dict):
        return None
    version, kind = obj.get("apiVersion"), obj.get("kind")
    if not isinstance(version, str) or not isinstance(kind, str):
        return None
    return _kind_of(version, kind)


@lru_cache(maxsize=256)
def _kind_of(version: str, kind: str) -> WorkloadKind | None:
    group, slash, _ = version.partition("/")
    return _BY_KIND.get((group if slash else "", kind))


def pod_templates(obj: Json, kind: WorkloadKind) -> tuple[PodLocation, ...]:
    """Return the existing pod templates of an object of a workload kind."""
    return tuple(
        PodLocation(path, place.count(obj, path))
        for place in kind.places
        for path in _expand(obj, place.path)
    )


def value_at(obj: Json, path: Path) -> Json:
    """Return the value at `path`, None if there is none."""
    for step in path:
        if isinstance(obj, dict):
            obj = obj.get(step)
        elif isinstance(obj, list) and isinstance(step, int) and step < len(obj):
            obj = obj[step]
        else:
            return None
    return obj


def _expand(obj: Json, pattern: tuple[str, ...]) -> Iterator[Path]:
    """List the paths that match `pattern` and have an object."""
    if EACH not in pattern:
        if isinstance(value_at(obj, pattern), dict):
            yield pattern
        return
    split = pattern.index(EACH)
    container = value_at(obj, pattern[:split])
    keys: Iterator[str | int] = iter(())
    if isinstance(container, dict):
        keys = iter(container)
    elif isinstance(container, list):
        keys = iter(range(len(container)))
    for key in keys:
        inside = value_at(container, (key,))
        for rest in _expand(inside, pattern[split + 1 :]):
            yield (*pattern[:split], key, *rest)


def _number(obj: Json, path: Path, default: int = 1) -> int:
    value = value_at(obj, path)
    return value if type(value) is int and value >= 0 else default


def _one(_obj: Json, _path: Path) -> int:
    return 1


def _replicas(obj: Json, path: Path) -> int:
    """Count by the `replicas` beside the template."""
    return _number(obj, (*path[:-1], "replicas"))


def _job_pods(obj: Json, path: Path) -> int:
    """Count the pods of a Job at the same time: its parallelism, or fewer if fewer complete it."""
    parallelism = _number(obj, (*path[:-1], "parallelism"))
    return min(parallelism, _number(obj, (*path[:-1], "completions"), parallelism))


def _job_set_pods(obj: Json, path: Path) -> int:
    """Count the pods of a replicated job of a JobSet."""
    return _number(obj, (*path[:3], "replicas")) * _job_pods(obj, path)


def _worker_group_pods(obj: Json, path: Path) -> int:
    """Count the pods of a worker group of a Ray cluster; a replica may span several hosts.

    There are at least `minReplicas` replicas, also if `replicas` is less.
    """
    replicas = max(_replicas(obj, path), _number(obj, (*path[:-1], "minReplicas"), 0))
    return replicas * _number(obj, (*path[:-1], "numOfHosts"))


def _leaders(obj: Json, _path: Path) -> int:
    return _number(obj, ("spec", "replicas"))


def _followers(obj: Json, _path: Path) -> int:
    """Count the workers of a LeaderWorkerSet, which also lead if there is no leader template."""
    size = _number(obj, ("spec", "leaderWorkerTemplate", "size"))
    led = value_at(obj, ("spec", "leaderWorkerTemplate", "leaderTemplate")) is not None
    return _number(obj, ("spec", "replicas")) * max(size - led, 0)


def _submitters(obj: Json, _path: Path) -> int:
    """Count the pods that submit the program of a RayJob, which other modes submit without one."""
    return int(value_at(obj, ("spec", "submissionMode")) in (None, "K8sJobMode"))


def _ray(kind: str, *cluster: str, more: tuple[_Place, ...] = ()) -> WorkloadKind:
    """Describe a kind of Ray's: a head, workers, and the autoscaler that runs beside the head."""
    head = _Place((*cluster, "headGroupSpec", "template"), _one)
    workers = _Place((*cluster, "workerGroupSpecs", EACH, "template"), _worker_group_pods)
    besides = ((*cluster, "autoscalerOptions"),)
    plural = f"{kind.lower()}s"
    return WorkloadKind("ray.io", kind, plural, (head, workers, *more), besides=besides)


def _training(kind: str, field: str) -> WorkloadKind:
    """Describe a training job: replicas by role, each role with its template."""
    place = _Place(("spec", field, EACH, "template"), _replicas)
    return WorkloadKind("kubeflow.org", kind, f"{kind.lower()}s", (place,))


_TEMPLATE = ("spec", "template")
_JOB = ("spec", "jobTemplate")
_JOB_TEMPLATE = (*_JOB, *_TEMPLATE)
_REPLICATED_JOB = ("spec", "replicatedJobs", EACH, "template", *_TEMPLATE)
_SET = ("spec", "leaderWorkerTemplate")
_SUBMITTER = ("spec", "submitterPodTemplate")
_LEADER_WORKER_SET = (
    _Place((*_SET, "leaderTemplate"), _leaders),
    _Place((*_SET, "workerTemplate"), _followers),
)

KINDS: tuple[WorkloadKind, ...] = (
    WorkloadKind("", "Pod", "pods", (_Place((), _one),), frozen=True),
    WorkloadKind(
        "", "PodTemplate", "podtemplates", (_Place(("template",), _one),), queued=("template",)
    ),
    WorkloadKind(
        "", "ReplicationController", "replicationcontrollers", (_Place(_TEMPLATE, _replicas),)
    ),
    WorkloadKind("apps", "Deployment", "deployments", (_Place(_TEMPLATE, _replicas),)),
    WorkloadKind("apps", "ReplicaSet", "replicasets", (_Place(_TEMPLATE, _replicas),)),
    WorkloadKind("apps", "StatefulSet", "statefulsets", (_Place(_TEMPLATE, _replicas),)),
    WorkloadKind("apps", "DaemonSet", "daemonsets", (_Place(_TEMPLATE, _one),)),
    WorkloadKind("batch", "Job", "jobs", (_Place(_TEMPLATE, _job_pods),), frozen=True),
    WorkloadKind(
        "batch.volcano.sh",
        "Job",
        "jobs",
        (_Place(("spec", "tasks", EACH, "template"), _replicas),),
        frozen=True,
    ),
    WorkloadKind("batch", "CronJob", "cronjobs", (_Place(_JOB_TEMPLATE, _job_pods),), queued=_JOB),
    WorkloadKind(
        "jobset.x-k8s.io",
        "JobSet",
        "jobsets",
        (_Place(_REPLICATED_JOB, _job_set_pods),),
        frozen=True,
    ),
    WorkloadKind(
        "leaderworkerset.x-k8s.io", "LeaderWorkerSet", "leaderworkersets", _LEADER_WORKER_SET
    ),
    WorkloadKind("argoproj.io", "Rollout", "rollouts", (_Place(_TEMPLATE, _replicas),)),
    _ray("RayCluster", "spec"),
    _ray("RayJob", "spec", "rayClusterSpec", more=(_Place(_SUBMITTER, _submitters),)),
    _ray("RayService", "spec", "rayClusterConfig"),
    _training("PyTorchJob", "pytorchReplicaSpecs"),
    _training("TFJob", "tfReplicaSpecs"),
    _training("XGBoostJob", "xgbReplicaSpecs"),
    _training("PaddleJob", "paddleReplicaSpecs"),
    _training("JAXJob", "jaxReplicaSpecs"),
    _training("MPIJob", "mpiReplicaSpecs"),
    # Its pods are those of a runtime, which is another object.
    WorkloadKind("trainer.kubeflow.org", "TrainJob", "trainjobs", ()),
    # Its pods are those of other objects in it, which are reviewed themselves.
    WorkloadKind("workload.codeflare.dev", "AppWrapper", "appwrappers", ()),
    # Spark makes its pods, which are reviewed themselves.
    WorkloadKind(
        "sparkoperator.k8s.io", "SparkApplication", "sparkapplications", (), assembled=spark_pods
    ),
)
"""Every kind that makes pods as far as policyd knows; a DaemonSet counts as one pod."""

_BY_KIND = {(kind.group, kind.kind): kind for kind in KINDS}
