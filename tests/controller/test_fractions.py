"""Parts of GPUs are counted in thousandths, on flavors that declare shared GPUs."""

import msgspec
import pytest

from policyd.api.configuration.kinds import ResourcesConfiguration
from policyd.api.gpus import DEVICE_MEMORY, REPLICAS, SHARED_GPU, SHARING, THOUSANDTHS
from policyd.api.kueue import Workload
from policyd.api.kueue.names import POD_SET
from policyd.api.nodes import Node
from policyd.controller.usage import OUTSIDE
from policyd.kube import resources as r
from policyd.workload.held_quota import held_quota
from policyd.workload.topology_values import node_spec
from tests.controller.topology.test_topologies import HOST, RACK, racks
from tests.controller.watch.test_claimed_devices import usage
from tests.controller.world import QUEUE, World, gates, running

pytestmark = pytest.mark.anyio

T4 = {SHARING: "time-slicing", REPLICAS: "4", DEVICE_MEMORY: "16000"}
COUNTED = msgspec.convert({"gpuFractions": True}, ResourcesConfiguration)


def furnished(*, flavors=None, quota=2_000, resources=COUNTED):
    """Return a world whose queue has thousandths of GPUs, of flavors with their annotations."""
    world = World(resources=resources)
    world.furnish()
    flavors = {"t4": T4} if flavors is None else flavors
    for name, annotations in flavors.items():
        offer_flavor(world, name, annotations)
    offer_quota(world, flavors, quota)
    return world


def offer_quota(world, flavors, quota, others=()):
    quotas = {THOUSANDTHS: quota, **dict(others)}
    amounts = [{"name": name, "nominalQuota": each} for name, each in quotas.items()]
    group = {
        "coveredResources": list(quotas),
        "flavors": [{"name": name, "resources": amounts} for name in flavors],
    }
    world.put(
        r.CLUSTER_QUEUES,
        {"metadata": {"name": "cq"}, "spec": {"namespaceSelector": {}, "resourceGroups": [group]}},
    )


def offer_flavor(world, name, annotations, **spec):
    metadata = {"name": name, "annotations": annotations}
    world.put(r.RESOURCE_FLAVORS, {"metadata": metadata, "spec": spec})


def sharing(name, *, pods=1, replica=True, asked=None, **annotations):
    asked = {key.replace("_", "-"): text for key, text in annotations.items()}
    resources = {"limits": {SHARED_GPU: "1"}} if replica else {}
    spec = {"containers": [{"name": "main", "image": "train:1", "resources": resources}]}
    metadata = {"name": name, "namespace": "ns", "labels": {QUEUE: "lq-cq"}}
    template = {"metadata": {"annotations": asked}, "spec": spec}
    body = {"suspend": True, "parallelism": pods, "template": template}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": body}


async def test_parts_count_in_thousandths_in_place_of_their_replicas():
    world = furnished()
    async with running(world):
        world.put(r.JOBS, sharing("halves", pods=3, gpu_fraction="0.5"))
        world.put(r.JOBS, sharing("tiny", gpu_fraction="0.01"))
        world.put(r.JOBS, sharing("memory", gpu_memory="5000"))
        await world.pass_time(3)

        assert usage(world, "halves") == {THOUSANDTHS: "1500"}
        assert usage(world, "tiny") == {THOUSANDTHS: "250"}
        held = held_quota(msgspec.convert(world.workload_of("halves"), Workload))
        assert held.amounts == {"t4": 42}  # 1.5 GPUs in parts of which a GPU has 28
        held = held_quota(msgspec.convert(world.workload_of("tiny"), Workload))
        assert held.amounts == {"t4": 7}
        message = world.condition("memory", "QuotaReserved")["message"]
        assert f"insufficient unused quota for {THOUSANDTHS} in flavor t4, 63 more" in message


@pytest.mark.parametrize(
    ("job", "reason", "message"),
    [
        pytest.param(
            sharing("a", gpu_fraction="1.5"), "Misconfigured", "must be a decimal above 0", id="bad"
        ),
        pytest.param(
            sharing("a", gpu_memory="16001"),
            "Misconfigured",
            "no ResourceFlavor gives a pod as much; `t4` gives at most 16000 MiB",
            id="more-memory-than-there-is",
        ),
        pytest.param(
            sharing("a"), "NoMatchingFlavor", f"resource {SHARED_GPU} unavailable", id="no-part"
        ),
    ],
)
async def test_what_cannot_be_counted_waits_with_a_reason(job, reason, message):
    world = furnished()
    async with running(world):
        world.put(r.JOBS, job)
        await world.pass_time(3)

        condition = world.condition("a", "QuotaReserved")
        assert (condition["status"], condition["reason"]) == ("False", reason)
        assert message in condition["message"]


async def test_only_flavors_that_share_gpus_with_room_for_the_part_give_it():
    mps = {SHARING: "mps", REPLICAS: "4", DEVICE_MEMORY: "80000"}
    world = furnished(flavors={"whole": {}, "wrong": {**T4, REPLICAS: "0"}, "mps": mps, "t4": T4})
    async with running(world):
        world.put(r.JOBS, sharing("half", gpu_fraction="0.5"))
        world.put(r.JOBS, sharing("memory", gpu_memory="18000"))
        await world.pass_time(3)

        (half,), (memory,) = (
            world.workload_of(name)["status"]["admission"]["podSetAssignments"]
            for name in ("half", "memory")
        )
        assert half["flavors"] == {THOUSANDTHS: "t4"}
        assert memory["flavors"] == {THOUSANDTHS: "mps"}
        assert memory["resourceUsage"] == {THOUSANDTHS: "250"}


async def test_a_flavor_that_begins_to_share_admits_what_waits():
    world = furnished(flavors={"whole": {}})
    async with running(world):
        world.put(r.JOBS, sharing("half", gpu_fraction="0.5"))
        await world.pass_time(3)
        condition = world.condition("half", "QuotaReserved")
        assert "no ResourceFlavor declares shared GPUs" in condition["message"]

        offer_flavor(world, "other", T4)
        await world.pass_time(3)
        condition = world.condition("half", "QuotaReserved")
        assert condition["reason"] == "NoMatchingFlavor"
        assert (
            "flavor whole declares no shared GPUs with the requested part" in (condition["message"])
        )

        offer_flavor(world, "whole", T4)
        await world.pass_time(3)
        assert world.suspended("half") is False


async def test_annotations_mean_nothing_unless_the_configuration_counts_them():
    world = furnished(resources=ResourcesConfiguration())
    async with running(world):
        world.put(r.JOBS, sharing("half", gpu_fraction="NaN", replica=False))
        await world.pass_time(3)

        assert world.suspended("half") is False


async def test_a_part_that_a_pod_template_writes_as_overhead_is_not_believed():
    world = furnished()
    async with running(world):
        forged = sharing("forged")
        forged["spec"]["template"]["spec"]["overhead"] = {THOUSANDTHS: "1"}
        world.put(r.JOBS, forged)
        await world.pass_time(3)

        message = world.condition("forged", "QuotaReserved")["message"]
        assert f"resource {SHARED_GPU} unavailable in ClusterQueue" in message


async def test_a_pod_of_a_group_that_enlarges_its_part_stays_held():
    world = furnished(quota=0)
    async with running(world):
        pod = world.pod("another", gpus=0, group="other", total=9)
        pod["metadata"]["labels"]["kueue.x-k8s.io/pod-group-name"] = "g"
        pod["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = "2"
        pod["metadata"]["annotations"]["gpu-fraction"] = "0.3"
        pod["spec"]["containers"][0]["resources"] = {"limits": {SHARED_GPU: "1"}}
        del pod["metadata"]["resourceVersion"], pod["metadata"]["uid"]
        for name in ("a", "b"):
            pod["metadata"]["name"] = name
            world.create(r.PODS, pod)
        await world.pass_time(3)
        enlarged = world.get(r.PODS, "b")
        enlarged["metadata"]["annotations"]["gpu-fraction"] = "0.9"
        world.put(r.PODS, enlarged)
        offer_quota(world, ["t4"], 2_000)
        await world.pass_time(3)

        assert usage(world, "g")[THOUSANDTHS] == "600"
        assert not gates(world.get(r.PODS, "a"))
        assert gates(world.get(r.PODS, "b"))


async def test_parts_are_placed_by_thousandths_on_nodes_of_shared_gpus():
    world = furnished(quota=9_000)
    world.put(r.TOPOLOGIES, racks())
    offer_flavor(world, "t4", T4, nodeLabels={"pool": "t4"}, topologyName="racks")
    for name in ("n1", "n2"):
        labels = {
            "pool": "t4",
            HOST: name,
            RACK: "a",
            "nvidia.com/gpu.replicas": "4",
            "nvidia.com/gpu.sharing-strategy": "time-slicing",
        }
        status = {
            "allocatable": {SHARED_GPU: "4", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        world.put(r.NODES, {"metadata": {"name": name, "labels": labels}, "status": status})
    async with running(world):
        world.put(r.JOBS, sharing("large", pods=2, gpu_fraction="0.8"))
        await world.pass_time(3)
        world.put(r.JOBS, sharing("larger", gpu_fraction="0.9"))
        await world.pass_time(3)

        assert usage(world, "large") == {THOUSANDTHS: "1600"}
        message = world.condition("larger", "QuotaReserved")["message"]
        assert f'excluded: resource "{THOUSANDTHS}": 2' in message


def sharing_pod(world, name, job="", *, replicas="1", **asked):
    """Create a pod as it comes past the webhooks, with a part of a GPU or without."""
    spec = sharing(name)["spec"]["template"]["spec"]
    spec["containers"][0]["resources"] = {"limits": {SHARED_GPU: replicas}}
    annotations = {key.replace("_", "-"): text for key, text in asked.items()}
    metadata = {"name": name, "annotations": annotations}
    if job:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": job, "controller": True}
        metadata["labels"] = {POD_SET: "main"}
        metadata["ownerReferences"] = [{**owner, "uid": world.get(r.JOBS, job)["metadata"]["uid"]}]
    return world.create(r.PODS, {"metadata": metadata, "spec": spec})


def outside_quota(world):
    return {e["involvedObject"]["name"]: e["message"] for e in world.events(OUTSIDE)}


async def admitted_part(world, **asked):
    """Have a job with two pods of a part admitted, in a queue that covers replicas as well."""
    offer_quota(world, ["t4"], 2_000, {SHARED_GPU: 8})
    world.deletes_outside_quota = True
    world.put(r.JOBS, sharing("train", pods=2, **asked))
    await world.pass_time(3)
    assert list(usage(world, "train")) == [THOUSANDTHS]


async def test_a_part_outside_of_quota_is_reported_in_thousandths():
    world = furnished()
    async with running(world):
        sharing_pod(world, "alone", gpu_memory="8000")
        sharing_pod(world, "bad", gpu_fraction="NaN")
        await world.pass_time(10)

        message = f"takes 500 {THOUSANDTHS} that no queue has given it: it belongs to no workload"
        assert outside_quota(world) == {"alone": message}  # of a replica, there is no quota


async def test_pods_of_an_admitted_part_are_within_quota_and_others_are_reported():
    world = furnished()
    async with running(world):
        await admitted_part(world, gpu_fraction="0.5")
        for name in ("a", "b"):
            sharing_pod(world, name, "train", gpu_fraction="0.5")
        await world.pass_time(40)
        assert outside_quota(world) == {}

        world.delete(r.PODS, "b")
        sharing_pod(world, "larger", "train", gpu_fraction="0.6")
        await world.pass_time(10)
        assert list(outside_quota(world)) == ["larger"]
        world.delete(r.PODS, "larger")
        sharing_pod(world, "whole", "train", replicas="4")
        await world.pass_time(10)
        assert list(outside_quota(world)) == ["larger", "whole"]
        assert world.get(r.PODS, "a")


@pytest.mark.parametrize(
    "annotations",
    [
        pytest.param({**T4, DEVICE_MEMORY: "10000"}, id="smaller-gpus"),
        pytest.param({**T4, REPLICAS: "2"}, id="fewer-replicas"),
        pytest.param({}, id="shared-no-longer"),
    ],
)
async def test_pods_of_an_admitted_part_stay_within_quota_when_flavors_change(annotations):
    world = furnished()
    async with running(world):
        await admitted_part(world, gpu_memory="4000")
        sharing_pod(world, "before", "train", gpu_memory="4000")
        await world.pass_time(3)
        offer_flavor(world, "t4", annotations)
        await world.pass_time(3)
        sharing_pod(world, "after", "train", gpu_memory="4000")
        await world.pass_time(40)
        assert outside_quota(world) == {}

        offer_flavor(world, "t4", T4)
        await world.pass_time(40)
        assert outside_quota(world) == {}


async def test_a_limit_range_of_a_user_gives_admitted_pods_no_more_quota():
    world = furnished()
    async with running(world):
        await admitted_part(world, gpu_fraction="0.5")
        default = {"type": "Container", "default": {"nvidia.com/gpu": "8"}}
        metadata = {"name": "more", "namespace": "ns"}
        world.put(r.LIMIT_RANGES, {"metadata": metadata, "spec": {"limits": [default]}})
        offer_quota(world, ["t4"], 2_000, {SHARED_GPU: 8, "nvidia.com/gpu": 8})
        pod = sharing_pod(world, "a", "train", gpu_fraction="0.5")
        pod["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "8"
        world.put(r.PODS, pod)
        await world.pass_time(10)

        assert list(outside_quota(world)) == ["a"]


@pytest.mark.parametrize(
    ("replicas", "labels", "thousandths"),
    [
        pytest.param("8", {"nvidia.com/gpu.replicas": "4"}, 2_000, id="two-gpus"),
        pytest.param("0", {"nvidia.com/gpu.replicas": "4"}, 0, id="none-now"),
        pytest.param("9", {"nvidia.com/gpu.replicas": "-4"}, 4_500, id="replicas-unknown"),
        pytest.param("9" * 18, {}, 2**63 - 1, id="enormous"),
        pytest.param("many", {}, None, id="no-number"),
    ],
)
def test_a_node_has_the_thousandths_of_its_shared_gpus(replicas, labels, thousandths):
    metadata = {"name": "n", "labels": labels}
    node = msgspec.convert(
        {"metadata": metadata, "status": {"allocatable": {SHARED_GPU: replicas}}}, Node
    )

    assert node_spec(node, fractions=True).allocatable.get(THOUSANDTHS) == thousandths
    assert THOUSANDTHS not in node_spec(node).allocatable
