"""What `policyd up` starts with: simulated GPU nodes in racks, two teams, and one cohort."""

from collections.abc import Iterator
from typing import Any

from policyd.api.kueue.names import API_VERSION

RACK_LABEL = "cloud.provider.com/topology-rack"
GPU_LABEL = "nvidia.com/gpu.product"
GPU_PRODUCT = "NVIDIA-H100-80GB-HBM3"
GPUS_PER_NODE = 8
GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
TEAMS = ("team-a", "team-b")


def nodes(count: int = 8, racks: int = 2) -> Iterator[dict[str, Any]]:
    """Yield `count` GPU nodes, spread evenly over `racks` racks and tainted as GPU nodes are."""
    for index in range(count):
        rack = f"rack-{index * racks // count + 1}"
        yield _node(f"gpu-{index + 1}", rack)


def teams() -> Iterator[dict[str, Any]]:
    """Yield the teams' namespaces and queues: 8 GPUs each, half of which the other may borrow."""
    # Tolerations, so that a pod without GPUs runs there too, and does not hold quota for nothing.
    flavor = {"nodeLabels": {GPU_LABEL: GPU_PRODUCT}, "tolerations": [GPU_TOLERATION]}
    yield _object(API_VERSION, "ResourceFlavor", "h100", spec=flavor)
    yield _object(API_VERSION, "Cohort", "research", spec={})
    for name, value in (("research", 100), ("production", 1000)):
        yield _object(API_VERSION, "WorkloadPriorityClass", name, value=value)
        yield _object("scheduling.k8s.io/v1", "PriorityClass", name, value=value)
    for team in TEAMS:
        labels = {"policyd.io/team": team, "policyd.io/queue": team}
        yield _object("v1", "Namespace", team, labels=labels)
        yield _object(API_VERSION, "ClusterQueue", team, spec=_cluster_queue())
        yield _object(API_VERSION, "LocalQueue", team, namespace=team, spec={"clusterQueue": team})


def pod(name: str, namespace: str) -> dict[str, Any]:
    """Return a pod that asks for one GPU, and for nothing that a policy gives it."""
    limits = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    container = {
        "name": "main",
        "image": "registry.example/train:1",
        "resources": {"limits": limits},
    }
    spec = {"restartPolicy": "Never", "containers": [container]}
    return _object("v1", "Pod", name, namespace=namespace, spec=spec)


def _cluster_queue() -> dict[str, Any]:
    quotas = {"cpu": ("96", "48"), "memory": ("1Ti", "512Gi"), "nvidia.com/gpu": ("8", "4")}
    resources = [
        {"name": name, "nominalQuota": nominal, "borrowingLimit": borrowing}
        for name, (nominal, borrowing) in quotas.items()
    ]
    return {
        "cohortName": "research",
        "namespaceSelector": {},
        "queueingStrategy": "BestEffortFIFO",
        "resourceGroups": [
            {
                "coveredResources": list(quotas),
                "flavors": [{"name": "h100", "resources": resources}],
            }
        ],
    }


def _node(name: str, rack: str) -> dict[str, Any]:
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        RACK_LABEL: rack,
        GPU_LABEL: GPU_PRODUCT,
        "nvidia.com/gpu.present": "true",
    }
    resources = {
        "cpu": "96",
        "memory": "1Ti",
        "pods": "110",
        "ephemeral-storage": "1Ti",
        "nvidia.com/gpu": str(GPUS_PER_NODE),
    }
    node = _object("v1", "Node", name, labels=labels)
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    node["spec"] = {"taints": [taint]}
    node["status"] = {"capacity": resources, "allocatable": resources}
    return node


def _object(api_version: str, kind: str, name: str, **rest: object) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name}
    for field in ("namespace", "labels"):
        if field in rest:
            metadata[field] = rest.pop(field)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}
