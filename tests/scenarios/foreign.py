"""Kinds of jobs that come with somebody else's operator: the least of their CRDs, and of it.

Some kinds have the CRDs that are published, where these are at hand: `POLICYD_JOB_CRDS` names
their folder, or they are in `shared/cases/crds/jobs` beside this repository.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from policyd.api.makers import DEFAULT_MAKERS
from tests.scenarios import api as driver
from tests.scenarios.api import Api, eventually
from tests.scenarios.objects import container

GROUPS = {
    "JobSet": ("jobset.x-k8s.io", "v1alpha2"),
    "JAXJob": ("kubeflow.org", "v1"),
    "MPIJob": ("kubeflow.org", "v2beta1"),
    "PaddleJob": ("kubeflow.org", "v1"),
    "PyTorchJob": ("kubeflow.org", "v1"),
    "TFJob": ("kubeflow.org", "v1"),
    "XGBoostJob": ("kubeflow.org", "v1"),
    "RayCluster": ("ray.io", "v1"),
    "RayJob": ("ray.io", "v1"),
    "RayService": ("ray.io", "v1"),
    "TrainJob": ("trainer.kubeflow.org", "v1alpha1"),
    "ClusterTrainingRuntime": ("trainer.kubeflow.org", "v1alpha1"),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io", "v1"),
    "AppWrapper": ("workload.codeflare.dev", "v1beta2"),
    "SparkApplication": ("sparkoperator.k8s.io", "v1beta2"),
    "VolcanoJob": ("batch.volcano.sh", "v1alpha1"),
}
SERVED_AS = {"VolcanoJob": "Job"}
"""The kinds of objects, where there are several of one name."""
PUBLISHED = {"AppWrapper": "appwrapper", "SparkApplication": "spark", "VolcanoJob": "vcjob"}
"""The files of published CRDs, by kind."""
CRDS = Path(
    os.environ.get("POLICYD_JOB_CRDS", "")
    or Path(__file__).parents[3] / "shared" / "cases" / "crds" / "jobs"
)
GPU = "nvidia.com/gpu"
CLUSTER_WIDE = {"ClusterTrainingRuntime"}


def paths() -> dict[str, str]:
    """Return where the kinds are served, as the driver has it."""
    return {
        kind: f"apis/{group}/{version}/"
        f"{'' if kind in CLUSTER_WIDE else 'namespaces/{namespace}/'}{plural(kind)}"
        for kind, (group, version) in GROUPS.items()
    }


def install(api: Api) -> None:
    """Create the CRDs, and teach the driver where the kinds are."""
    driver.PATHS.update(paths())
    for kind, (group, _) in GROUPS.items():
        name = f"{plural(kind)}.{group}"
        if not api.exists("CustomResourceDefinition", name):
            api.create(definition(kind))
    for kind in GROUPS:
        eventually(lambda kind=kind: served(api, kind), what=f"{kind} is served")
    if not api.exists("ClusterTrainingRuntime", "torch"):
        api.create(runtime())


def served(api: Api, kind: str) -> bool:
    try:
        api.find(kind, "team-a")
    except driver.Refused:
        return False
    return True


def plural(kind: str) -> str:
    return f"{SERVED_AS.get(kind, kind).lower()}s"


def definition(kind: str, published: Mapping[str, str] = PUBLISHED) -> dict[str, Any]:
    """Return the CRD of a kind: the published one, of the version that counts, if it is there."""
    file = CRDS / f"{published.get(kind, '')}.yaml"
    if not file.is_file():
        return anything(*GROUPS[kind], SERVED_AS.get(kind, kind))
    made: dict[str, Any] = yaml.load(file.read_text(), Loader=yaml.CSafeLoader)
    version = GROUPS[kind][1]
    made["spec"]["versions"] = [v for v in made["spec"]["versions"] if v["name"] == version]
    made["spec"].pop("conversion", None)
    return made


SCALED = {
    "LeaderWorkerSet": ".spec.replicas",
    "PyTorchJob": ".spec.pytorchReplicaSpecs.Worker.replicas",
}
"""Kinds whose published CRDs have a `scale` subresource, and what it changes."""


def anything(group: str, version: str, kind: str) -> dict[str, Any]:
    """Return a CRD of whose objects nothing is known."""
    unknown = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": unknown, "status": unknown}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural(kind)}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
        },
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural(kind), "singular": kind.lower()},
            "scope": "Cluster" if kind in CLUSTER_WIDE else "Namespaced",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}} | _scale(kind),
                }
            ],
        },
    }


def _scale(kind: str) -> dict[str, Any]:
    if kind not in SCALED:
        return {}
    paths = {"specReplicasPath": SCALED[kind], "statusReplicasPath": ".status.replicas"}
    return {"scale": paths}


def foreign(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return a job of a foreign kind that is submitted to team-a's queue."""
    labels = {"kueue.x-k8s.io/queue-name": "team-a"}
    return {
        "apiVersion": "/".join(GROUPS[kind]),
        "kind": kind,
        "metadata": {"name": name, "namespace": "team-a", "labels": labels},
        "spec": spec,
    }


def template(gpus: int) -> dict[str, Any]:
    return {
        "metadata": {"annotations": {"policyd.io/run-for": "60s"}},
        "spec": {"restartPolicy": "Never", "containers": [container(gpus)]},
    }


def job_set(gpus: int) -> dict[str, Any]:
    """Return a JobSet of two pods."""
    spec = {"parallelism": 1, "completions": 1, "template": template(gpus // 2)}
    return {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": {"spec": spec}}]}


def training(specs: str, *roles: str) -> Any:
    """Return what makes the spec of a training job, one pod a role."""
    return lambda gpus: {
        specs: {role: {"replicas": 1, "template": template(gpus // len(roles))} for role in roles},
        "runPolicy": {},
    }


def ray_cluster(gpus: int) -> dict[str, Any]:
    """Return a cluster of a head and a worker."""
    return {
        "headGroupSpec": {"rayStartParams": {}, "template": template(gpus // 2)},
        "workerGroupSpecs": [
            {
                "groupName": "workers",
                "replicas": 1,
                "rayStartParams": {},
                "template": template(gpus // 2),
            }
        ],
    }


def ray_job(gpus: int) -> dict[str, Any]:
    return {"rayClusterSpec": ray_cluster(gpus), "shutdownAfterJobFinishes": True}


def ray_service(gpus: int) -> dict[str, Any]:
    return {"rayClusterConfig": ray_cluster(gpus)}


def train_job(gpus: int) -> dict[str, Any]:
    """Return a job of two nodes of the runtime that there is."""
    resources = container(gpus // 2)["resources"]
    return {
        "runtimeRef": {"name": "torch"},
        "trainer": {"numNodes": 2, "resourcesPerNode": resources},
    }


def app_wrapper(gpus: int) -> dict[str, Any]:
    """Return a wrapper of a Job of two pods."""
    spec = {"parallelism": 2, "completions": 2, "template": template(gpus // 2)}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "wrapped"}, "spec": spec}
    return {"components": [{"template": job}]}


def spark_application(gpus: int) -> dict[str, Any]:
    """Return an application of a driver and an executor."""

    def role() -> dict[str, Any]:
        annotations = {"policyd.io/run-for": "60s"}
        devices = {"name": GPU, "quantity": gpus // 2}
        return {"coreRequest": "1", "memory": "1g", "gpu": devices, "annotations": annotations}

    program = {"type": "Python", "mainApplicationFile": "local:///main.py", "sparkVersion": "3.5.0"}
    return {
        **program,
        "mode": "cluster",
        "driver": role(),
        "executor": {**role(), "instances": 1},
    }


def runtime() -> dict[str, Any]:
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    pods = template(0)
    pods["spec"]["containers"][0]["name"] = "node"
    jobs = [
        {"name": "node", "template": {"metadata": {"labels": labels}, "spec": {"template": pods}}}
    ]
    return {
        "apiVersion": "/".join(GROUPS["ClusterTrainingRuntime"]),
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "torch"},
        "spec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }


SPECS = {
    "JobSet": job_set,
    "JAXJob": training("jaxReplicaSpecs", "Worker"),
    "MPIJob": training("mpiReplicaSpecs", "Launcher", "Worker"),
    "PaddleJob": training("paddleReplicaSpecs", "Master", "Worker"),
    "PyTorchJob": training("pytorchReplicaSpecs", "Master", "Worker"),
    "TFJob": training("tfReplicaSpecs", "Chief", "Worker"),
    "XGBoostJob": training("xgbReplicaSpecs", "Master", "Worker"),
    "RayCluster": ray_cluster,
    "RayJob": ray_job,
    "RayService": ray_service,
    "TrainJob": train_job,
    "AppWrapper": app_wrapper,
    "SparkApplication": spark_application,
}


def done(kind: str) -> dict[str, Any] | None:
    """Return the status of a job that has ended well; None if jobs of its kind never end."""
    if kind in {"RayCluster", "RayService"}:
        return None
    if kind == "RayJob":
        return {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "the end"}
    if kind == "AppWrapper":
        return {"phase": "Succeeded", "conditions": []}
    if kind == "SparkApplication":
        return {"applicationState": {"state": "COMPLETED"}, "driverInfo": {}}
    type_ = {"JobSet": "Completed", "TrainJob": "Complete"}.get(kind, "Succeeded")
    ended = {"type": type_, "status": "True", "reason": "Done", "message": "the end"}
    return {"conditions": [ended]}


def running(kind: str, *, runs: bool) -> dict[str, Any] | None:
    """Return what the operator reports of a job whose pods all run, or that has none.

    None if the queue needs no such report of the kind.
    """
    if kind == "SparkApplication":
        executors = {"executor-1": "RUNNING"} if runs else {}
        state = {"state": "RUNNING" if runs else "SUSPENDED"}
        return {"applicationState": state, "driverInfo": {}, "executorState": executors}
    if kind != "AppWrapper":
        return None
    changed = {"lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "Soon", "message": "it is"}
    types = ("QuotaReserved", "ResourcesDeployed", "PodsReady")
    conditions = [{"type": type_, "status": str(runs), **changed} for type_ in types]
    return {"phase": "Running" if runs else "Suspended", "conditions": conditions}


def operator(job: dict[str, Any]) -> str:
    """Return the account of the operator that makes the pods of a job."""
    return min(DEFAULT_MAKERS[job["apiVersion"].partition("/")[0]])


def suspended(job: dict[str, Any]) -> bool:
    spec = job["spec"]
    return bool(spec.get("runPolicy", spec.get("rayClusterConfig", spec)).get("suspend"))


def templates(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the template of every pod of a job."""
    spec = job["spec"]
    if "trainer" in spec:
        return [trained(spec)] * spec["trainer"]["numNodes"]
    if {"rayClusterSpec", "rayClusterConfig", "headGroupSpec"} & spec.keys():
        cluster = spec.get("rayClusterSpec", spec.get("rayClusterConfig", spec))
        groups = cluster["workerGroupSpecs"]
        workers = [each["template"] for each in groups for _ in range(each["replicas"])]
        return [cluster["headGroupSpec"]["template"], *workers]
    if "components" in spec:
        return [made for each in spec["components"] for made in wrapped(each)]
    if "executor" in spec:
        driver, executor = spec["driver"], spec["executor"]
        return [of_role(driver), *(of_role(executor) for _ in range(executor["instances"]))]
    if "replicatedJobs" in spec:
        return [
            each["template"]["spec"]["template"]
            for each in spec["replicatedJobs"]
            for _ in range(each["replicas"])
        ]
    (roles,) = (value for name, value in spec.items() if name.endswith("ReplicaSpecs"))
    return [each["template"] for each in roles.values() for _ in range(each["replicas"])]


def wrapped(component: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the template of every pod of a wrapped Job, with the changes of its start."""
    job = component["template"]["spec"]
    (info,) = component.get("podSetInfos") or [{}]
    made = changed(job["template"], info)
    made["spec"]["schedulingGates"] = info.get("schedulingGates", [])
    return [made] * int(job["parallelism"])


def of_role(role: dict[str, Any]) -> dict[str, Any]:
    """Return the template of the pods of a driver, or of the executors."""
    asked = {"cpu": role["coreRequest"], "memory": "1Gi", GPU: str(role["gpu"]["quantity"])}
    resources = {"requests": asked, "limits": {GPU: asked[GPU]}}
    made = template(0)
    made["metadata"] = {"annotations": {}}
    made["spec"]["containers"][0]["resources"] = resources
    made = changed(made, role)
    gates = role.get("template", {}).get("spec", {}).get("schedulingGates", [])
    made["spec"]["schedulingGates"] = gates
    return made


def changed(made_from: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return a template with the labels, annotations, nodes and tolerations of `more`."""
    metadata, spec = made_from.get("metadata", {}), made_from["spec"]
    sections = {
        name: {**metadata.get(name, {}), **more.get(name, {})} for name in ("labels", "annotations")
    }
    nodes = {**spec.get("nodeSelector", {}), **more.get("nodeSelector", {})}
    tolerations = [*spec.get("tolerations", ()), *more.get("tolerations", ())]
    return {
        "metadata": sections,
        "spec": {**spec, "nodeSelector": nodes, "tolerations": tolerations},
    }


def trained(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the template of a TrainJob's pods: the runtime's, and what is laid over it."""
    made = template(0)
    made["spec"]["containers"][0]["resources"] = spec["trainer"]["resourcesPerNode"]
    for patch in spec.get("runtimePatches", ()):
        for each in patch["trainingRuntimeSpec"]["template"]["spec"].get("replicatedJobs", ()):
            change = each["template"]["spec"]["template"]
            metadata, pods = change.get("metadata", {}), change.get("spec", {})
            annotations = {**made["metadata"]["annotations"], **metadata.get("annotations", {})}
            made["metadata"] = {**made["metadata"], **metadata, "annotations": annotations}
            made["spec"] = {**made["spec"], **pods}
    return made


def operate(
    api: Api,
    job: dict[str, Any],
    *,
    first: int = 0,
    templates_of: list[dict[str, Any]] | None = None,
) -> None:
    """Make the pods of a job that may run, as its operator would; more of them, if those are told.

    Args:
        api: Where they are made.
        job: The job.
        first: The number of the first.
        templates_of: What they are made from; None for all that the job has.
    """
    metadata = job["metadata"]
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }
    for index, made_from in enumerate(templates_of or templates(job), start=first):
        given = made_from.get("metadata", {})
        name = f"{metadata['name']}-{index}"
        names = {"name": name, "namespace": metadata["namespace"], "ownerReferences": [owner]}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**given, **names}}
        api.acting_as(operator(job)).create({**pod, "spec": made_from["spec"]})
