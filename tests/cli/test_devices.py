"""Which GPUs nodes have, and how they count against one quota."""

import json

import pytest
import yaml
from click.testing import CliRunner

from policyd.api.configuration import decode_configuration
from policyd.cli import main

H100 = "NVIDIA-H100-80GB-HBM3"
SLICES = "policyd.io/gpu-slices"


def node(name, product=H100, labels=None, **amounts):
    found = {
        f"nvidia.com/{k.replace('mig_', 'mig-').replace('_', '.')}": str(n)
        for k, n in amounts.items()
    }
    labels = {"nvidia.com/gpu.product": product, **(labels or {})}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": found},
    }


NODES = [
    node("a", gpu=8),
    node("b", gpu=8),
    node("c", gpu=4, mig_1g_10gb=14, mig_3g_40gb=4),
    node("d", "Tesla-T4-SHARED", {"nvidia.com/gpu.replicas": "4"}, gpu=16),
]


@pytest.fixture
def shown(tmp_path):
    def run(nodes, *options):
        file = tmp_path / "nodes.yaml"
        file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": nodes}))
        result = CliRunner().invoke(main, ["devices", str(file), *options])
        assert result.exit_code == 0, result.output
        return result

    return run


def test_more_devices_than_can_be_counted_are_the_most_that_can(shown):
    [line] = [line.split() for line in shown([node("a", gpu="1e400")]).stdout.splitlines()[1:]]

    assert line[4:] == [str(2**63 - 1), "1", "9.223e+18"]


def test_a_line_says_how_many_gpus_are_behind_what_is_reported(shown):
    lines = [line.split() for line in shown(NODES).stdout.splitlines()[1:]]

    assert lines == [
        ["nvidia.com/gpu", H100, "-", "3", "20", "1", "20"],
        ["nvidia.com/gpu", "Tesla-T4", "time-slicing", "1", "16", "1/4", "4"],
        ["nvidia.com/mig-1g.10gb", H100, "-", "1", "14", "1/7", "2"],
        ["nvidia.com/mig-3g.40gb", H100, "-", "1", "4", "3/7", "1.714"],
    ]


def test_json_says_the_same(shown):
    first, *_ = json.loads(shown(NODES, "-o", "json").stdout)

    assert first == {
        "resource": "nvidia.com/gpu",
        "product": H100,
        "sharing": "",
        "nodes": 3,
        "reported": 20,
        "share": 1,
        "gpus": 20.0,
    }


def test_a_configuration_counts_all_of_them_in_slices(shown):
    printed = shown(NODES[:3], "-o", "config").stdout
    resources = decode_configuration(yaml.safe_load(printed)).resources

    counted = {each.input: each.outputs[SLICES] for each in resources.transformations}
    assert printed.startswith(f"# A GPU is 7 {SLICES}: a quota of 8 GPUs is 56.\n")
    assert counted["nvidia.com/gpu"] == 7
    assert counted["nvidia.com/mig-1g.10gb"] == 1
    assert counted["nvidia.com/mig-2g.20gb"] == 2, "profiles that the product may be cut into, too"
    assert {each.strategy for each in resources.transformations} == {"Replace"}


def test_replicas_of_another_name_are_counted_too(shown):
    replicas = node("d", "Tesla-T4", {"nvidia.com/gpu.replicas": "4"}, gpu_shared=16)
    printed = yaml.safe_load(shown([*NODES[:3], replicas], "-o", "config").stdout)

    counted = {
        each["input"]: each["outputs"][SLICES] for each in printed["resources"]["transformations"]
    }
    assert counted["nvidia.com/gpu"] == 28
    assert counted["nvidia.com/gpu.shared"] == 7
    assert counted["nvidia.com/mig-3g.40gb"] == 12


def test_differences_between_versions_are_warnings(shown):
    assert shown(NODES).stderr == (
        "warning: nvidia.com/gpu is not the same on all nodes (1/4 of one, a whole GPU), and"
        " counts as the biggest; give the others a flavor and a quota of their own, or, if they are"
        " shared, another name\n"
    )


def test_a_file_without_gpus_has_no_lines(shown):
    assert len(shown([]).stdout.splitlines()) == 1


def test_other_things_than_nodes_are_reported(tmp_path):
    file = tmp_path / "nodes.yaml"
    file.write_text("{kind: Node, metadata: 3}")

    result = CliRunner().invoke(main, ["devices", str(file)])

    assert result.exit_code == 2
    assert result.stderr.startswith("error: Node")


def offered(*devices, resource="", configuration=()):
    """Return a node and a driver's devices on it, of which a class selects all."""
    of_class = {"extendedResourceName": resource} if resource else {}
    pool = {"name": "e", "generation": 1, "resourceSliceCount": 1}
    counters = [{"name": "set", "counters": {"memory": {"value": "80Gi"}}}]
    spec = {"driver": "gpu.nvidia.com", "nodeName": "e", "pool": pool, "devices": list(devices)}
    made = {"apiVersion": "resource.k8s.io/v1", "metadata": {"name": "gpu"}}
    return [
        node("e", product=""),
        {**made, "kind": "DeviceClass", "spec": of_class},
        {**made, "kind": "ResourceSlice", "spec": {**spec, "sharedCounters": counters}},
        *configuration,
    ]


def device(name, memory=""):
    spent = [{"counterSet": "set", "counters": {"memory": {"value": memory}}}] if memory else []
    model = {"string": H100}
    return {"name": name, "attributes": {"productName": model}, "consumesCounters": spent}


def test_devices_that_pods_get_by_claims_are_listed_by_driver(shown):
    head, *lines = shown([*NODES[:1], *offered(device("a"), device("b"))]).stdout.splitlines()

    assert head.split()[-1] == "DRIVER"
    by_class = "deviceclass.resource.kubernetes.io/gpu"
    assert [line.split() for line in lines] == [
        ["nvidia.com/gpu", H100, "-", "1", "8", "1", "8", "-"],
        [by_class, H100, "-", "1", "2", "1", "2", "gpu.nvidia.com"],
    ]


def test_parts_of_a_device_count_as_far_as_they_exist_together_and_as_no_gpus(shown):
    parts = offered(*(device(name, "40Gi") for name in "abc"), resource="nvidia.com/part")
    (found,) = json.loads(shown(parts, "-o", "json").stdout)

    assert found == {
        "resource": "nvidia.com/part", "product": H100, "sharing": "", "nodes": 1, "reported": 2,
        "share": None, "gpus": None, "driver": "gpu.nvidia.com",
    }  # fmt: skip


def test_devices_of_claims_are_called_by_the_resource_that_their_class_is_mapped_to(shown):
    head = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    mappings = [{"name": "x.io/gpu", "deviceClassNames": ["gpu"]}]
    rules = {**head, "resources": {"deviceClassMappings": mappings}}
    result = shown(offered(device("a"), configuration=[rules]), "-o", "config")

    assert "map their classes to a resource with resources.deviceClassMappings" in result.stderr
    assert "x.io/gpu" in shown(offered(device("a"), configuration=[rules])).stdout
