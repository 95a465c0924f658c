"""What of a GPU a resource stands for, and which nodes have whole ones."""

from fractions import Fraction

import pytest

from policyd.alloc.topology.values import TopologyNode
from policyd.optimize.devices import (
    device_of,
    devices_of,
    gpus_asked,
    inventory,
    shared_gpus,
    whole_gpus_only,
)
from policyd.optimize.mig import profile_of, profiles_of
from tests.alloc.topology.builders import cluster, node, only, request

GPU = "nvidia.com/gpu"
A100 = "NVIDIA-A100-SXM4-40GB"


def gpu_node(name="n", *, product=A100, labels=None, **amounts):
    """A node with devices: `gpu=8, gpu_shared=4, mig_1g_5gb=7`."""
    found = {key.replace("mig_", "mig-").replace("_", "."): n for key, n in amounts.items()}
    labels = {"nvidia.com/gpu.product": product, **(labels or {})}
    return TopologyNode(
        name=name, labels=labels, allocatable={f"nvidia.com/{k}": n for k, n in found.items()}
    )


# Profiles.


@pytest.mark.parametrize(
    ("product", "names"),
    [
        pytest.param(A100, "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", id="a100-40"),
        pytest.param("A100-PCIE-40GB", "1g.5gb 1g.10gb 2g.10gb 3g.20gb 4g.20gb 7g.40gb", id="old"),
        pytest.param(
            "NVIDIA-H100-80GB-HBM3", "1g.10gb 1g.20gb 2g.20gb 3g.40gb 4g.40gb 7g.80gb", id="h100"
        ),
        pytest.param("NVIDIA-H100-NVL", "1g.12gb 1g.24gb 2g.24gb 3g.47gb 4g.47gb 7g.94gb", id="94"),
        pytest.param("NVIDIA-A30", "1g.6gb 2g.12gb 4g.24gb", id="a30"),
        pytest.param(
            "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "1g.24gb 2g.48gb 4g.96gb", id="rtx"
        ),
        pytest.param("NVIDIA-L40S", "", id="no-mig"),
        pytest.param("", "", id="not-known"),
    ],
)
def test_a_product_has_its_profiles(product, names):
    assert " ".join(each.name for each in profiles_of(product)) == names


@pytest.mark.parametrize(
    ("product", "gpu"),
    [
        pytest.param(product, gpu, id=product)
        for product, gpu in (
            (A100, 40),
            ("NVIDIA-H100-80GB-HBM3", 80),
            ("NVIDIA-H200", 141),
            ("NVIDIA-B200", 180),
            ("NVIDIA-GB200", 186),
            ("NVIDIA-GB300", 278),
            ("NVIDIA-A30", 24),
        )
    ],
)
def test_as_many_of_a_profile_as_a_gpu_has_fill_it_and_no_more(product, gpu):
    for profile in profiles_of(product):
        assert profile.most * profile.compute <= profile.parts
        assert profile.most * (profile.gigabytes - 1) < gpu, "names have rounded numbers"
        assert (profile.most + 1) * profile.memory > profile.parts

    assert profiles_of(product)[-1].share == 1


@pytest.mark.parametrize(
    ("resource", "product", "share"),
    [
        pytest.param("nvidia.com/mig-1g.10gb", "NVIDIA-H100-80GB-HBM3", Fraction(1, 7), id="1g"),
        pytest.param("nvidia.com/mig-3g.40gb", "", Fraction(3, 7), id="without-product"),
        pytest.param("nvidia.com/mig-1g.5gb.me", A100, Fraction(1, 7), id="media-extensions"),
        pytest.param("nvidia.com/mig-1c.3g.20gb", A100, Fraction(1, 7), id="part-of-what-computes"),
        pytest.param("nvidia.com/mig-2g.12gb", "", Fraction(2, 4), id="of-quarters"),
        pytest.param("nvidia.com/mig-1g.24gb", "NVIDIA-H100-NVL", Fraction(1, 7), id="h100-nvl"),
        pytest.param(
            "nvidia.com/mig-1g.24gb", "RTX-PRO-6000-Blackwell", Fraction(1, 4), id="rtx-pro"
        ),
        pytest.param("nvidia.com/mig-2g.999gb", "", Fraction(2, 7), id="not-known-yet"),
        pytest.param("nvidia.com/mig-7g.189gb", "NVIDIA-GB200", Fraction(1), id="rounded-else"),
        pytest.param("nvidia.com/mig-2g.11gb", "NVIDIA-A30", Fraction(1, 2), id="rounded-quarters"),
    ],
)
def test_a_profile_is_a_part_of_a_gpu(resource, product, share):
    profile = profile_of(resource, product)

    assert profile is not None
    assert profile.share == share


@pytest.mark.parametrize("resource", [GPU, "cpu", "nvidia.com/mig-strange", "amd.com/mig-1g.5gb"])
def test_other_resources_have_no_profile(resource):
    assert profile_of(resource) is None


# Devices of nodes.


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        pytest.param(gpu_node(gpu=8), [(GPU, "", 1, 8)], id="whole"),
        pytest.param(
            gpu_node(gpu=16, product=f"{A100}-SHARED", labels={f"{GPU}.replicas": "4"}),
            [(GPU, "time-slicing", Fraction(1, 4), 4)],
            id="time-slicing",
        ),
        pytest.param(
            gpu_node(gpu=10, labels={f"{GPU}.replicas": "10", f"{GPU}.sharing-strategy": "mps"}),
            [(GPU, "mps", Fraction(1, 10), 1)],
            id="mps",
        ),
        pytest.param(
            gpu_node(
                gpu_shared=8, labels={f"{GPU}.replicas": "2", f"{GPU}.sharing-strategy": "mps"}
            ),
            [(f"{GPU}.shared", "mps", Fraction(1, 2), 4)],
            id="renamed",
        ),
        pytest.param(
            gpu_node(gpu=56, product=f"{A100}-MIG-1g.5gb"),
            [(GPU, "", Fraction(1, 7), 8)],
            id="mig-single",
        ),
        pytest.param(
            gpu_node(gpu=4, mig_1g_5gb=14, mig_3g_20gb=4),
            [
                (GPU, "", 1, 4),
                ("nvidia.com/mig-1g.5gb", "", Fraction(1, 7), 2),
                ("nvidia.com/mig-3g.20gb", "", Fraction(3, 7), Fraction(12, 7)),
            ],
            id="mig-mixed",
        ),
        pytest.param(
            gpu_node(mig_1g_5gb=14, labels={"nvidia.com/mig-1g.5gb.replicas": "2"}),
            [("nvidia.com/mig-1g.5gb", "time-slicing", Fraction(1, 14), 1)],
            id="shared-parts",
        ),
        pytest.param(
            gpu_node(gpu=8, labels={f"{GPU}.replicas": "many"}), [(GPU, "", 1, 8)], id="odd-label"
        ),
    ],
)
def test_a_node_says_how_many_gpus_are_behind_what_it_reports(of, expected):
    found = [(each.resource, each.sharing, each.share, each.gpus) for each in devices_of(of)]

    assert found == expected


def test_nodes_that_are_alike_are_counted_together():
    found = inventory([gpu_node("a", gpu=8), gpu_node("b", gpu=7), gpu_node("c", mig_1g_5gb=7)])

    assert [(each.resource, each.reported, each.nodes) for each in found] == [
        (GPU, 15, 2),
        ("nvidia.com/mig-1g.5gb", 7, 1),
    ]


@pytest.mark.parametrize(
    ("of", "whole"),
    [
        pytest.param(gpu_node(gpu=8), True, id="whole"),
        pytest.param(gpu_node(gpu=8, product=f"{A100}-SHARED"), False, id="old-label"),
        pytest.param(gpu_node(gpu=56, product=f"{A100}-MIG-1g.5gb"), False, id="mig-single"),
        pytest.param(gpu_node(gpu_shared=8), True, id="renamed-has-none-of-that-name"),
        pytest.param(TopologyNode(name="cpu"), True, id="no-gpus"),
    ],
)
def test_a_node_has_whole_gpus_only_or_it_does_not(of, whole):
    assert whole_gpus_only(of) is whole


@pytest.mark.parametrize(
    ("requests", "gpus", "device"),
    [
        pytest.param({"cpu": 4000}, 0, "", id="none"),
        pytest.param({GPU: 2, "rdma/hca": 2}, 2, GPU, id="whole"),
        pytest.param(
            {"nvidia.com/mig-3g.20gb": 2}, Fraction(6, 7), "nvidia.com/mig-3g.20gb", id="parts"
        ),
        pytest.param({"example.com/fpga": 1}, 0, "example.com/fpga", id="other-devices"),
        pytest.param({"hostPort/TCP/80": 1}, 0, "", id="ports-are-no-devices"),
    ],
)
def test_a_pod_asks_for_so_many_gpus(requests, gpus, device):
    assert gpus_asked(requests) == gpus
    assert device_of(requests) == device


# Gangs that want whole ones.


def shared_and_whole():
    shared = node("b/r/x1", labels={f"{GPU}.replicas": "4"})
    return cluster(
        *(
            TopologyNode(name=n.name, labels=n.labels, allocatable={"pods": 9, GPU: 4})
            for n in (shared, node("b/r/x2"))
        )
    )


def test_a_workload_for_whole_gpus_stays_off_shared_ones():
    asked = request(4, requests={GPU: 1}, rule=shared_gpus)

    assert only(shared_and_whole(), asked) == {"x2": 4}


def test_the_reason_says_how_many_nodes_share_their_gpus():
    asked = request(5, requests={GPU: 1}, rule=shared_gpus)

    assert only(shared_and_whole(), asked).endswith("Total nodes: 2; excluded: sharedGPUs: 1")


def test_others_are_placed_anywhere():
    assert sum(only(shared_and_whole(), request(8, requests={GPU: 1})).values()) == 8


def test_a_node_that_begins_to_share_its_gpus_is_noticed():
    nodes = shared_and_whole()
    asked = request(4, requests={GPU: 1}, rule=shared_gpus)
    only(nodes, asked)

    whole = nodes.node("x2")
    nodes.put(
        TopologyNode(
            name="x2",
            labels={**whole.labels, f"{GPU}.sharing-strategy": "mps"},
            allocatable=whole.allocatable,
        )
    )

    assert only(nodes, asked).endswith("excluded: sharedGPUs: 2")
