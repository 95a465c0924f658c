"""The objects that the scenarios create."""

from typing import Any


def container(gpus: int) -> dict[str, Any]:
    resources = {"cpu": "1", "memory": "1Gi"}
    if gpus:
        resources["nvidia.com/gpu"] = str(gpus)
    return {
        "name": "main",
        "image": "registry.example/train:1",
        "resources": {"limits": resources},
    }


def pod(name: str, namespace: str = "team-a", *, gpus: int = 1, **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, **metadata},
        "spec": {"restartPolicy": "Never", "containers": [container(gpus)]},
    }


def job(
    name: str, namespace: str = "team-a", *, gpus: int = 8, pods: int = 1, run_for: str = "3s"
) -> dict[str, Any]:
    template = {
        "metadata": {"annotations": {"policyd.io/run-for": run_for}},
        "spec": {"restartPolicy": "Never", "containers": [container(gpus // pods)]},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"parallelism": pods, "completions": pods, "template": template},
    }
