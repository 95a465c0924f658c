"""What queues ask of devices and places by annotations, carried out in the cluster."""

import pytest

from policyd.controller.run import STRANDED_SECONDS
from policyd.kube import resources as r
from tests.controller.topology.test_topologies import HOST, RACK, P, flavor, job, node, racks
from tests.controller.watch.test_claimed_devices import allocated, claiming, furnished, offer_slice
from tests.controller.world import GPU, World, condition, running
from tests.questions.test_unqueued_jobs import owned

pytestmark = pytest.mark.anyio


def other_pod(name, at, gpus):
    """A pod that runs on a node without anybody having asked the queue."""
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {
            "nodeName": at,
            "containers": [{"name": "c", "resources": {"requests": {GPU: str(gpus)}}}],
        },
    }


@pytest.fixture
async def world():
    """Two racks of two nodes with four GPUs each; three of the first node of `b` are taken."""
    made = World()
    made.furnish(gpus=16)
    made.put(r.RESOURCE_FLAVORS, flavor())
    made.put(r.TOPOLOGIES, racks())
    for rack in "ab":
        for number in (1, 2):
            made.put(r.NODES, node(f"{rack}{number}", rack))
    made.put(r.PODS, other_pod("other", "b1", 3))
    async with running(made):
        yield made


async def ask(world, **annotations):
    queue = world.store.get(r.CLUSTER_QUEUES, "", "cq")
    named = {f"policyd.io/{name.replace('_', '-')}": text for name, text in annotations.items()}
    metadata = {"name": "cq", "annotations": named}
    world.put(r.CLUSTER_QUEUES, {"metadata": metadata, "spec": queue["spec"]})
    await world.pass_time(1)


def hosts_of(world, name):
    """How many pods of a job were sent to which rack; None if it waits."""
    admission = world.workload_of(name)["status"].get("admission")
    if admission is None:
        return None
    (slice_,) = admission["podSetAssignments"][0]["topologyAssignment"]["slices"]
    (values,) = slice_["valuesPerLevel"]
    if "universal" in values:
        return [values["universal"]]
    each = values["individual"]
    return [each.get("prefix", "") + root + each.get("suffix", "") for root in each["roots"]]


async def sweep_and_ring(world):
    """A job that may be anywhere, then one that needs all of a rack."""
    job(world, "sweep", pods=2, gpus=1)
    await world.pass_time(2)
    assert hosts_of(world, "sweep") == ["a1"]
    job(world, "ring", pods=4, gpus=2, **{f"{P}podset-required-topology": RACK})
    await world.pass_time(3)


async def test_an_obstructing_workload_moves_to_another_rack(world):
    await ask(world, consolidate="1")

    await sweep_and_ring(world)

    assert hosts_of(world, "ring") == ["a1", "a2"]
    assert hosts_of(world, "sweep") == ["b2"]
    moved = condition(world.workload_of("sweep"), "Preempted")
    assert (moved["status"], moved["reason"]) == ("False", "QuotaReserved")
    assert "consolidation: what it had fits elsewhere" in moved["message"]


async def test_without_the_annotation_none_is(world):
    await sweep_and_ring(world)

    assert hosts_of(world, "ring") is None
    assert hosts_of(world, "sweep") == ["a1"]


async def test_gangs_are_kept_off_nodes_that_share_their_gpus(world):
    await ask(world, avoid_shared_gpus="true")
    for name in ("a1", "a2"):
        shared = node(name, "a")
        shared["metadata"]["labels"]["nvidia.com/gpu.replicas"] = "4"
        world.put(r.NODES, shared)
    await world.pass_time(2)

    job(world, "ring", pods=4, gpus=2, **{f"{P}podset-required-topology": RACK})
    job(world, "alone", pods=1, gpus=1)
    await world.pass_time(3)

    message = world.condition("ring", "QuotaReserved")["message"]
    assert "Total nodes: 4; excluded: " in message
    assert "sharedGPUs: 2" in message
    assert hosts_of(world, "alone") is not None


async def test_a_workload_that_waits_for_a_whole_gpu_learns_of_a_free_part(world):
    mig = "nvidia.com/mig-3g.40gb"
    queue = world.store.get(r.CLUSTER_QUEUES, "", "cq")
    resources = [{"name": name, "nominalQuota": "16"} for name in (GPU, mig)]
    flavors = [{"name": "h100", "resources": resources}]
    group = {"coveredResources": [GPU, mig], "flavors": flavors}
    spec = {**queue["spec"], "resourceGroups": [group]}
    world.put(r.CLUSTER_QUEUES, {"metadata": {"name": "cq"}, "spec": spec})
    for name in ("a1", "a2", "b1", "b2"):
        cut = node(name, name[0], gpus=0)
        cut["status"]["allocatable"][mig] = "2"
        world.put(r.NODES, cut)
    await world.pass_time(2)

    job(world, "notebook", pods=1, gpus=1)
    await world.pass_time(2)

    message = world.condition("notebook", "QuotaReserved")["message"]
    assert message.endswith(
        "; to help it: ask for 1 nvidia.com/mig-3g.40gb instead of 1 nvidia.com/gpu, if 3/7 of a"
        " GPU with 40 GB is enough: it is free on 4 node(s)"
    )


@pytest.mark.parametrize(("wanted", "host"), [("false", "a1"), ("true", "b2")])
async def test_ties_are_broken_by_what_is_in_pieces_where_that_is_wanted(world, wanted, host):
    """The second node of `b` has as much room as those of `a`, and as much again in use."""
    world.put(r.NODES, node("b2", "b", gpus=8))
    world.put(r.PODS, other_pod("another", "b2", 4))
    await ask(world, avoid_fragments=wanted)

    job(world, "one", pods=1, gpus=2, **{f"{P}podset-required-topology": HOST})
    await world.pass_time(2)

    assert hosts_of(world, "one") == [host]


async def test_metrics_say_how_many_devices_are_free_and_in_pieces(world):
    job(world, "sweep", pods=2, gpus=1)
    await world.pass_time(15)

    names = {"flavor": "h100", "resource": GPU}
    value = world.controller.health.metrics.registry.get_sample_value
    assert value("policyd_free_devices", names) == 16 - 3 - 2
    assert value("policyd_fragmented_devices", names) == 1 + 2


async def test_a_metric_has_the_devices_that_no_pending_pod_can_use(world):
    def stranded():
        value = world.controller.health.metrics.registry.get_sample_value
        return value("policyd_stranded_devices", {"flavor": "h100", "resource": GPU})

    await world.pass_time(2)
    assert stranded() == 1  # beside the other pod: a pod of a whole node is the measure

    job(world, "large", pods=5, gpus=4)  # waits: only three nodes are free
    await world.pass_time(STRANDED_SECONDS)
    assert stranded() == 1
    job(world, "small", pods=17, gpus=1)
    await world.pass_time(STRANDED_SECONDS)
    assert stranded() == 0  # it waits for quota, and could use the rest of the node


async def test_devices_of_claims_are_stranded_until_a_pending_pod_can_use_them():
    """A node has four, of which a claim has one; another node has none."""
    made = furnished(templates=(("one", 1),), gpus=1)
    made.put(r.RESOURCE_FLAVORS, flavor())
    made.put(r.TOPOLOGIES, racks())
    for name in ("n1", "n2"):
        made.put(r.NODES, node(name, "a", gpus=0))
    offer_slice(made, *({"name": name} for name in "abcd"))
    allocated(made, "a", owners=owned("Pod", "p", api="v1"))
    async with running(made):
        value = made.controller.health.metrics.registry.get_sample_value
        names = {"flavor": "h100", "resource": GPU}
        await made.pass_time(STRANDED_SECONDS)
        assert value("policyd_stranded_devices", names) == 3
        assert value("policyd_free_devices", names) == 3
        assert value("policyd_fragmented_devices", names) == 3

        made.put(r.JOBS, claiming("first", template="one"))
        made.put(r.JOBS, claiming("waits", template="one"))
        await made.pass_time(STRANDED_SECONDS)
        assert made.suspended("waits") is True
        assert value("policyd_stranded_devices", names) == 0
        assert value("policyd_free_devices", names) == 2
