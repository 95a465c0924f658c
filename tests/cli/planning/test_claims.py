"""A simulation places pods with ResourceClaims where nodes have devices for them."""

import json

import pytest
import yaml
from click.testing import CliRunner

from policyd.cli import main

API, DRA, GPU = "kueue.x-k8s.io/v1beta2", "resource.k8s.io/v1", "nvidia.com/gpu"
HOST = "kubernetes.io/hostname"
PER_NODE = 8


def kueue(kind, name, spec, **metadata):
    return {"apiVersion": API, "kind": kind, "metadata": {"name": name, **metadata}, "spec": spec}


def device_slice(node):
    devices = [{"name": f"gpu-{each}"} for each in range(PER_NODE)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": devices}
    return {
        "apiVersion": DRA,
        "kind": "ResourceSlice",
        "metadata": {"name": node},
        "spec": spec,
    }


def cluster():
    selector = {"cel": {"expression": 'device.driver == "gpu.example.com"'}}
    mapping = {"name": GPU, "deviceClassNames": ["gpus"]}
    quota = {"name": GPU, "nominalQuota": 100}
    group = {"coveredResources": [GPU], "flavors": [{"name": "h100", "resources": [quota]}]}
    request = {"exactly": {"deviceClassName": "gpus", "count": 4}}
    claim = {"spec": {"devices": {"requests": [{"name": "r", **request}]}}}
    return [
        {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "resources": {"deviceClassMappings": [mapping]},
        },
        kueue("Topology", "hosts", {"levels": [{"nodeLabel": HOST}]}),
        kueue("ResourceFlavor", "h100", {"nodeLabels": {"gpu": "h100"}, "topologyName": "hosts"}),
        kueue("ClusterQueue", "cq", {"namespaceSelector": {}, "resourceGroups": [group]}),
        kueue("LocalQueue", "lq", {"clusterQueue": "cq"}, namespace="ns"),
        {
            "apiVersion": DRA,
            "kind": "DeviceClass",
            "metadata": {"name": "gpus"},
            "spec": {"selectors": [selector]},
        },
        {
            "apiVersion": DRA,
            "kind": "ResourceClaimTemplate",
            "metadata": {"name": "four", "namespace": "ns"},
            "spec": claim,
        },
        *(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"gpu": "h100", HOST: name}},
                "status": {
                    "allocatable": {"cpu": "64", "pods": "110"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
            for name in ("a", "b")
        ),
        device_slice("a"),
        device_slice("b"),
    ]


def workload(name, *, after, pods=1, node="", seconds=600):
    asked = {"name": "gpus", "resourceClaimTemplateName": "four"}
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "gpus"}]}}
    template = {"spec": {"containers": [container], "resourceClaims": [asked]}}
    pod_set = {"name": "main", "count": pods, "template": template}
    pod_set["topologyRequest"] = {"required": HOST}
    notes = {"policyd.io/arrives-after": after, "policyd.io/run-for": f"{seconds}s"}
    made = kueue(
        "Workload",
        name,
        {"queueName": "lq", "podSets": [pod_set]},
        namespace="ns",
        annotations=notes,
    )
    if node:
        assignment = {
            "name": "main",
            "count": pods,
            "flavors": {GPU: "h100"},
            "resourceUsage": {GPU: str(4 * pods)},
            "topologyAssignment": {
                "levels": [HOST],
                "slices": [
                    {
                        "domainCount": 1,
                        "podCounts": {"universal": pods},
                        "valuesPerLevel": [{"universal": node}],
                    }
                ],
            },
        }
        since = {"lastTransitionTime": "2026-11-01T00:00:00Z", "message": "", "reason": "R"}
        made["status"] = {
            "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
            "conditions": [
                {"type": kind, "status": "True", **since} for kind in ("QuotaReserved", "Admitted")
            ],
        }
    return made


def running_pod(name, node, *, workload=""):
    """Return a pod and the claim by which it has four devices."""
    labels = {"kueue.x-k8s.io/tas": "true"} if workload else {}
    notes = {"kueue.x-k8s.io/workload": workload} if workload else {}
    results = [
        {"driver": "gpu.example.com", "pool": node, "device": f"gpu-{each}", "request": "r"}
        for each in range(4)
    ]
    metadata = {"name": f"{name}-gpus", "namespace": "ns"}
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": True}
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "ns", "labels": labels, "annotations": notes},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Running"},
        },
        {
            "apiVersion": DRA,
            "kind": "ResourceClaim",
            "metadata": {**metadata, "ownerReferences": [owner]},
            "spec": {"devices": {"requests": []}},
            "status": {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [{"resource": "pods", "name": name, "uid": name}],
            },
        },
    ]


@pytest.fixture
def starts(tmp_path):
    def run(*objects):
        """Return when each workload starts, in seconds."""
        file = tmp_path / "scenario.yaml"
        file.write_text(yaml.safe_dump_all([*cluster(), *objects]))
        result = CliRunner().invoke(main, ["simulate", str(file), "-o", "json"])
        assert result.exit_code == 0, result.output
        return {
            each["workload"].rpartition("/")[2]: cycle["time"]
            for cycle in json.loads(result.stdout)
            for each in cycle["actions"]
            if each["action"] == "Admit"
        }

    return run


def test_no_node_gets_more_claims_than_it_has_devices(starts):
    came = [workload(f"w{each}", after=f"{each}s") for each in range(5)]

    assert starts(*came) == {"w0": 0, "w1": 1, "w2": 2, "w3": 3, "w4": 600}


def test_devices_of_a_pod_that_no_topology_placed_are_taken(starts):
    strangers = [*running_pod("x", "a"), *running_pod("y", "b")]

    assert starts(*strangers, workload("pair", after="0s", pods=2)) == {}
    assert starts(*strangers, workload("one", after="0s")) == {"one": 0}


def test_devices_of_a_workload_that_runs_already_are_taken_once(starts):
    runs = workload("runs", after="0s", node="a")
    pod = running_pod("runs-0", "a", workload="runs")
    filled = [*running_pod("x", "b"), *pod, runs]

    assert starts(*filled, workload("one", after="1s"), workload("two", after="2s")) == {
        "one": 1,
        "two": 2,
    }
