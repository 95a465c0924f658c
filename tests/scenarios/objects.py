"""The objects that the scenarios create."""

from collections.abc import Iterator
from typing import Any

from policyd.api.kueue.names import API_VERSION
from policyd.cli import demo

QUEUE = "kueue.x-k8s.io/queue-name"
GROUP = "kueue.x-k8s.io/pod-group-name"


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


def queued(item: dict[str, Any], team: str = "team-a") -> dict[str, Any]:
    """Return an object with a team's namespace and queue."""
    item["metadata"]["namespace"] = team
    item["metadata"].setdefault("labels", {})[QUEUE] = team
    return item


def member(name: str, index: int, team: str = "team-a") -> dict[str, Any]:
    """Return a pod of a group of two."""
    made = queued(pod(name, gpus=1), team)
    made["metadata"]["name"] = f"{name}-{index}"
    made["metadata"]["labels"][GROUP] = name
    made["metadata"]["annotations"] = {
        "kueue.x-k8s.io/pod-group-total-count": "2",
        "policyd.io/run-for": "10m",
    }
    return made


def team_of_kinds() -> Iterator[dict[str, Any]]:
    """Yield a team with room for one job of each kind, and a queue of it with a topology."""
    yield {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "team-c", "labels": {"policyd.io/queue": "team-c"}},
    }
    levels = [{"nodeLabel": label} for label in (demo.RACK_LABEL, "kubernetes.io/hostname")]
    flavor = {"nodeLabels": {demo.GPU_LABEL: demo.GPU_PRODUCT}, "topologyName": "racks"}
    yield of_kueue("Topology", "racks", levels=levels)
    yield of_kueue("ResourceFlavor", "racks", tolerations=[demo.GPU_TOLERATION], **flavor)
    for name, flavor_name, gpus in (("team-c", "h100", 8), ("racks", "racks", 2)):
        quotas = {"cpu": "120", "memory": "1Ti", "nvidia.com/gpu": str(gpus)}
        resources = [{"name": each, "nominalQuota": quota} for each, quota in quotas.items()]
        flavors = [{"name": flavor_name, "resources": resources}]
        group = {"coveredResources": list(quotas), "flavors": flavors}
        yield of_kueue("ClusterQueue", name, namespaceSelector={}, resourceGroups=[group])
        yield of_kueue("LocalQueue", name, "team-c", clusterQueue=name)


def of_kueue(kind: str, name: str, namespace: str = "", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def placed() -> dict[str, Any]:
    """Return a job of two pods, on two nodes of one rack: one has too few CPUs for both."""
    made = queued(job("placed", gpus=2, pods=2, run_for="10m"), "team-c")
    made["metadata"]["labels"][QUEUE] = "racks"
    made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "60"
    asked = {"kueue.x-k8s.io/podset-required-topology": demo.RACK_LABEL}
    made["spec"]["template"]["metadata"]["annotations"] |= asked
    return made


def serving(kind: str, name: str) -> dict[str, Any]:
    """Return a Deployment or StatefulSet of two pods."""
    labels = {"app": name}
    ordered = {"serviceName": name, "podManagementPolicy": "Parallel"}
    more = ordered if kind == "StatefulSet" else {}
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container(1)]}},
        **more,
    }
    made = {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}
    return queued(made, "team-c")
