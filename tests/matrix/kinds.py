"""The kinds of jobs of the matrix: two pods of four GPUs each, or as near to that as they come."""

from collections.abc import Iterator
from typing import Any

from tests.scenarios import api as driver
from tests.scenarios import foreign, test_parents
from tests.scenarios.objects import job, pod

Body = dict[str, Any]

NAME = "main"
GPUS = 8
PARENTS = {
    "Deployment": test_parents.deployment,
    "ReplicaSet": test_parents.replica_set,
    "StatefulSet": test_parents.stateful_set,
    "LeaderWorkerSet": test_parents.leader_worker_set,
    "VolcanoJob": test_parents.volcano_job,
}
RAYS = ("RayCluster", "RayJob", "RayService")
PODS = ("Pod", "PodGroup")
KINDS = ("Job", *foreign.SPECS, *PODS, *PARENTS)
ONE_BY_ONE = frozenset({"Deployment", "ReplicaSet"})
"""What has pods that queue each for itself."""
ENDLESS = frozenset({"RayCluster", "RayService", *PARENTS} - {"VolcanoJob"})
"""What runs until it is deleted."""
WITH_LEADER = (
    "JobSet",
    "MPIJob",
    "PaddleJob",
    "PyTorchJob",
    "TFJob",
    "XGBoostJob",
    "SparkApplication",
    *RAYS,
)
"""What has a pod set of one pod, and another one beside it."""

driver.PATHS["ReplicaSet"] = "apis/apps/v1/namespaces/{namespace}/replicasets"
driver.PATHS["CronJob"] = "apis/batch/v1/namespaces/{namespace}/cronjobs"
driver.PATHS["StatefulSet"] = "apis/apps/v1/namespaces/{namespace}/statefulsets"


def bodies(kind: str) -> list[Body]:
    """Return the objects to create of a kind, one but for a group of pods."""
    if kind == "Job":
        return [job(NAME, gpus=GPUS, pods=2, run_for="3600s")]
    if kind in PODS:
        return [*_pods(1 if kind == "Pod" else 2)]
    if kind in PARENTS:
        return [PARENTS[kind]() | {"metadata": {"name": NAME}}]
    made = foreign.foreign(kind, NAME, foreign.SPECS[kind](GPUS))
    for template in templates_in(made):
        template["metadata"]["annotations"]["policyd.io/run-for"] = "3600s"
        template["metadata"]["labels"] = {"ray.io/cluster": NAME}
    return [made]


def _pods(count: int) -> Iterator[Body]:
    for index in range(count):
        made = pod(f"{NAME}-{index}", gpus=4, annotations={"policyd.io/run-for": "3600s"})
        if count > 1:
            made["metadata"]["labels"] = {"kueue.x-k8s.io/pod-group-name": NAME}
            made["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = str(count)
        yield made


def templates_in(body: Any) -> Iterator[Body]:
    """Yield all pod templates of an object, each once; a pod is one itself.

    A role of a SparkApplication has labels and annotations of its own, as a template has.
    """
    if isinstance(body, list):
        for each in body:
            yield from templates_in(each)
    elif isinstance(body, dict):
        if "containers" in (body.get("spec") or {}):
            body.setdefault("metadata", {}).setdefault("annotations", {})
            yield body
        elif "coreRequest" in body:
            body.setdefault("annotations", {})
            yield {"metadata": body}
        for each in body.values():
            yield from templates_in(each)


def worker_groups(body: Body) -> list[Body]:
    """Return the groups of workers of what runs as a Ray cluster."""
    spec = body["spec"]
    groups: list[Body] = spec.get("rayClusterSpec", spec.get("rayClusterConfig", spec))[
        "workerGroupSpecs"
    ]
    return groups
