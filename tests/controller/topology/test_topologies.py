"""Jobs whose pods are placed by a topology: started, sent to nodes, moved when a node fails."""

import pytest

from policyd.alloc.settings import Gates, QueueingSettings
from policyd.controller.watch.mirrors import job_resource
from policyd.jobs.kinds.registry import find_kind
from policyd.kube import resources as r
from tests.controller.world import GPU, World, condition, gates, names, running

pytestmark = pytest.mark.anyio

JOB_SETS = job_resource(find_kind("jobset.x-k8s.io", "JobSet"))
RACK, HOST = "rack", "kubernetes.io/hostname"
P = "kueue.x-k8s.io/"


def node(name, rack, gpus=4, *, ready="True"):
    allocatable = {GPU: str(gpus), "pods": "10"}
    return {
        "metadata": {"name": name, "labels": {RACK: rack, HOST: name, "gpu": "h100"}},
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": ready}],
        },
    }


def flavor(**spec):
    return {
        "metadata": {"name": "h100"},
        "spec": {"nodeLabels": {"gpu": "h100"}, "topologyName": "racks", **spec},
    }


def racks():
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    return {"metadata": {"name": "racks"}, "spec": {"levels": levels}}


@pytest.fixture
async def world():
    made = World()
    made.furnish(gpus=16)
    made.put(r.RESOURCE_FLAVORS, flavor())
    made.put(r.TOPOLOGIES, racks())
    for name, rack in (("a1", "a"), ("b1", "b"), ("b2", "b")):
        made.put(r.NODES, node(name, rack))
    async with running(made):
        yield made


def job(world, name="ring", pods=4, gpus=2, **annotations):
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {f"{P}queue-name": "lq-cq"}},
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "template": {
                "metadata": {"annotations": annotations},
                "spec": {
                    "containers": [{"name": "c", "resources": {"requests": {GPU: str(gpus)}}}]
                },
            },
        },
    }
    return world.create(r.JOBS, body)


def make_pods(world, name="ring", indexes=range(4)):
    """Make the pods of a job, as its controller does from its template."""
    template = world.get(r.JOBS, name)["spec"]["template"]
    for index in indexes:
        meta = template["metadata"]
        own = {"job-completion-index": str(index), "job-name": name}
        labels = {
            **meta.get("labels", {}),
            **{f"batch.kubernetes.io/{k}": v for k, v in own.items()},
        }
        world.create(
            r.PODS,
            {
                "metadata": {**meta, "name": f"{name}-{index}", "labels": labels},
                "spec": template["spec"],
            },
        )


def places(world):
    return {
        pod["metadata"]["name"]: pod["spec"]["nodeSelector"].get(HOST) for pod in world.all(r.PODS)
    }


async def start(world, **annotations):
    job(world, **annotations)
    await world.pass_time(2)
    make_pods(world)
    await world.pass_time(2)


async def test_a_gang_goes_into_one_rack_in_the_order_of_its_ranks(world):
    await start(world, **{f"{P}podset-required-topology": RACK})

    assert places(world) == {"ring-0": "b1", "ring-1": "b1", "ring-2": "b2", "ring-3": "b2"}
    assert all(gates(pod) == [] for pod in world.all(r.PODS))
    of_pods = {"cluster_queue": "cq", "is_group": "false"}
    removed = "pod_scheduling_gate_removal_seconds_count"
    assert world.value(removed, name=f"{P}topology", **of_pods) == 4
    assigned = world.workload_of("ring")["status"]["admission"]["podSetAssignments"][0]
    assert assigned["topologyAssignment"]["levels"] == [HOST]


async def test_pods_that_ask_for_nothing_are_placed_where_the_flavor_has_a_topology(world):
    await start(world)

    template = world.get(r.JOBS, "ring")["spec"]["template"]
    assert template["metadata"]["annotations"][f"{P}podset-unconstrained-topology"] == "true"
    assert template["spec"]["schedulingGates"] == [{"name": f"{P}topology"}]
    assert None not in places(world).values()


async def test_a_gang_that_fits_no_rack_says_so_and_goes_once_there_is_a_bigger_one(world):
    job(world, pods=6, **{f"{P}podset-required-topology": RACK})
    await world.pass_time(2)

    reserved = world.condition("ring", "QuotaReserved")
    assert reserved["reason"] == "TopologyPlacementFailed"
    assert 'topology "racks" allows to fit only 4 out of 6 pod(s)' in reserved["message"]

    world.put(r.NODES, node("b3", "b"))
    await world.pass_time(3)

    assert world.is_true("ring", "Admitted")


async def test_nodes_that_are_not_counted_are_reported_to_workloads_without_room(world):
    world.put(r.NODES, node("b3", "b", ready="False"))
    job(world, pods=6, **{f"{P}podset-required-topology": RACK})
    await world.pass_time(2)

    message = world.condition("ring", "QuotaReserved")["message"]
    assert message.endswith("; nodes not counted of flavor h100: b3 is not ready")


async def test_a_pod_set_that_has_given_all_its_quota_back_gives_its_places_back(world):
    job(world, pods=8, gpus=1, **{f"{P}podset-required-topology": RACK})
    await world.pass_time(2)
    job(world, name="next", pods=8, gpus=1, **{f"{P}podset-required-topology": RACK})
    await world.pass_time(2)
    assert world.is_true("ring", "Admitted")
    assert not world.is_true("next", "Admitted")

    for given_back, admitted in ((7, False), (8, True)):
        pods = [{"name": "main", "count": given_back}]
        name = world.workload_of("ring")["metadata"]["name"]
        world.set_status(r.WORKLOADS, name, reclaimablePods=pods)
        await world.pass_time(12)
        assert world.is_true("next", "Admitted") is admitted


async def test_other_pods_on_a_node_take_room_until_they_end(world):
    for name in ("a1", "b1", "b2"):
        world.put(
            r.PODS,
            {
                "metadata": {"name": f"other-{name}", "namespace": "ns"},
                "spec": {
                    "nodeName": name,
                    "containers": [{"name": "c", "resources": {"requests": {GPU: "3"}}}],
                },
            },
        )
    await world.pass_time(1)
    job(world, pods=1, gpus=4)
    await world.pass_time(2)
    assert not world.is_true("ring", "Admitted")

    world.delete(r.PODS, "other-a1")
    await world.pass_time(12)

    assert world.is_true("ring", "Admitted")


async def test_another_pod_that_shrinks_leaves_room(world):
    def other(name, gpus):
        containers = [{"name": "c", "resources": {"requests": {GPU: gpus}}}]
        metadata = {"name": f"other-{name}", "namespace": "ns"}
        return {"metadata": metadata, "spec": {"nodeName": name, "containers": containers}}

    for name in ("a1", "b1", "b2"):
        world.put(r.PODS, other(name, "3"))
    await world.pass_time(1)
    job(world, pods=1, gpus=4)
    await world.pass_time(2)
    assert not world.is_true("ring", "Admitted")

    world.put(r.PODS, other("a1", "0"))
    await world.pass_time(12)

    assert world.is_true("ring", "Admitted")


async def test_pods_of_a_node_that_is_gone_get_another_place_in_the_same_rack(world):
    world.put(r.NODES, node("b3", "b"))
    await start(world, **{f"{P}podset-required-topology": RACK})
    gone = next(iter(sorted(set(places(world).values()))))
    lost = [name for name, at in places(world).items() if at == gone]

    world.store.delete(r.NODES, world.store.get(r.NODES, "", gone), dry_run=False)
    for name in lost:
        world.delete(r.PODS, name)
    await world.pass_time(3)
    make_pods(world, indexes=[int(name[-1]) for name in lost])
    await world.pass_time(3)

    found = places(world)
    assert gone not in found.values()
    assert set(found.values()) <= {"b1", "b2", "b3"}
    assert world.is_true("ring", "Admitted")
    assert "unhealthyNodes" not in world.workload_of("ring")["status"]


@pytest.mark.parametrize(("group", "moves"), [("ring", True), ("", False)], ids=["group", "alone"])
async def test_only_in_a_group_a_pod_is_replaced_elsewhere(world, group, moves):
    annotations = {f"{P}podset-required-topology": RACK}
    world.pod("one", group=group, total=1, **annotations)
    await world.pass_time(3)
    gone = places(world)["one"]

    world.store.delete(r.NODES, world.store.get(r.NODES, "", gone), dry_run=False)
    world.set_status(r.PODS, "one", phase="Failed")
    await world.pass_time(3)
    world.pod("two", group=group, total=1, **annotations)
    await world.pass_time(3)

    if moves:
        assert places(world)["two"] not in {gone, ""}
        assert names(world, r.WORKLOADS) == ["ring"]
        assert world.is_true("ring", "Admitted")
    else:
        assert world.condition("one", "Finished")["reason"] == "Failed"


async def test_a_workload_without_another_place_is_requeued(world):
    await start(world, **{f"{P}podset-required-topology": RACK})

    world.put(r.NODES, node("b1", "b", ready="False"))
    for name in ("ring-0", "ring-1"):
        world.delete(r.PODS, name)
    await world.pass_time(3)

    workload = world.workload_of("ring")
    evicted = condition(workload, "Evicted")
    assert evicted["reason"] == "NodeFailures"
    assert "b1" in evicted["message"]


async def test_a_queue_whose_topology_is_missing_is_inactive_until_it_is_there():
    world = World()
    world.furnish()
    world.put(r.RESOURCE_FLAVORS, flavor())
    async with running(world):
        job(world, pods=1)
        await world.pass_time(3)
        active = condition(plain_queue(world), "Active")
        assert (active["status"], active["reason"]) == ("False", "TopologyNotFound")

        world.put(r.TOPOLOGIES, racks())
        world.put(r.NODES, node("a1", "a"))
        await world.pass_time(3)

        assert world.is_true("ring", "Admitted")


def plain_queue(world):
    (queue,) = world.all(r.CLUSTER_QUEUES)
    return queue


@pytest.mark.gate("TopologyAwareScheduling")
async def test_topologies_are_quota_alone_where_the_gate_is_off():
    world = World(QueueingSettings(gates=Gates(topology_aware_scheduling=False)))
    world.furnish()
    world.put(r.RESOURCE_FLAVORS, flavor())
    async with running(world):
        job(world, pods=1, **{f"{P}podset-required-topology": RACK})
        await world.pass_time(3)

        assert world.is_true("ring", "Admitted")
        (assigned,) = world.workload_of("ring")["status"]["admission"]["podSetAssignments"]
        assert "topologyAssignment" not in assigned
        assert "schedulingGates" not in world.get(r.JOBS, "ring")["spec"]["template"]["spec"]


async def test_nodes_and_what_runs_there_are_known_once_a_flavor_gets_a_topology():
    world = World()
    world.furnish()
    world.put(r.TOPOLOGIES, racks())
    world.put(r.NODES, node("a1", "a"))
    spec = {
        "nodeName": "a1",
        "containers": [{"name": "c", "resources": {"requests": {GPU: "3"}}}],
    }
    world.put(r.PODS, {"metadata": {"name": "other", "namespace": "ns"}, "spec": spec})
    async with running(world):
        await world.pass_time(3)
        world.put(r.RESOURCE_FLAVORS, flavor())
        job(world, pods=2, gpus=1)
        await world.pass_time(3)
        assert not world.is_true("ring", "Admitted")

        world.delete(r.PODS, "other")
        await world.pass_time(12)

        assert world.is_true("ring", "Admitted")


async def test_the_node_of_a_role_that_has_ended_may_go(world):
    template = {
        "metadata": {"annotations": {f"{P}podset-required-topology": RACK}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {GPU: "4"}}}]},
    }
    roles = [
        {"name": name, "template": {"spec": {"parallelism": 1, "template": template}}}
        for name in ("fetch", "train")
    ]
    meta = {"name": "pair", "labels": {f"{P}queue-name": "lq-cq"}}
    world.create(JOB_SETS, {"metadata": meta, "spec": {"suspend": True, "replicatedJobs": roles}})
    await world.pass_time(3)
    admission = world.workload_of("pair")["status"]["admission"]
    (gone, stays) = (
        each["topologyAssignment"]["slices"][0]["valuesPerLevel"][0]["universal"]
        for each in admission["podSetAssignments"]
    )
    name = world.workload_of("pair")["metadata"]["name"]
    world.set_status(r.WORKLOADS, name, reclaimablePods=[{"name": "fetch", "count": 1}])
    await world.pass_time(2)

    world.store.delete(r.NODES, world.store.get(r.NODES, "", gone), dry_run=False)
    before = world.client.counted
    await world.pass_time(60)

    assert world.client.counted - before <= 2
    assert world.is_true("pair", "Admitted")
    assert not world.is_true("pair", "Evicted")
    after = world.workload_of("pair")["status"]["admission"]
    assert after["podSetAssignments"][1] == admission["podSetAssignments"][1]
    assert stays != gone


def resize(world, name, pods):
    body = world.get(r.JOBS, name)
    metadata = {**body["metadata"], "generation": body["metadata"]["generation"] + 1}
    spec = {**body["spec"], "parallelism": pods, "completions": pods}
    world.put(r.JOBS, {**body, "metadata": metadata, "spec": spec})


async def grown(world, *, before, after, gpus=4, **annotations):
    """Start an elastic job, and have it ask for another number of pods."""
    body = job(world, pods=before, gpus=gpus, **annotations)
    metadata = {**body["metadata"], "annotations": {f"{P}elastic-job": "true"}}
    gated = {**body["spec"]["template"]["spec"], "schedulingGates": [{"name": f"{P}elastic-job"}]}
    template = {**body["spec"]["template"], "spec": gated}
    spec = {**body["spec"], "template": template}
    world.put(r.JOBS, {**body, "metadata": metadata, "spec": spec})
    await world.pass_time(2)
    make_pods(world, indexes=range(before))
    world.set_status(r.JOBS, "ring", active=before)
    await world.pass_time(2)
    resize(world, "ring", after)
    await world.pass_time(2)


async def test_pods_that_come_after_an_elastic_job_has_grown_get_their_places(world):
    await grown(world, before=1, after=3)

    make_pods(world, indexes=range(1, 3))
    world.set_status(r.JOBS, "ring", active=3)
    await world.pass_time(2)

    assert all(gates(pod) == [] for pod in world.all(r.PODS))
    assert sorted(places(world).values()) == ["a1", "b1", "b2"]


@pytest.mark.gate("ElasticJobsViaWorkloadSlicesWithTAS")
@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
async def test_an_elastic_job_may_require_a_rack_where_the_gate_is_off(on):
    gates = Gates(elastic_jobs_via_workload_slices_with_tas=on)
    made = World(QueueingSettings(gates=gates))
    made.furnish(gpus=16)
    made.put(r.RESOURCE_FLAVORS, flavor())
    made.put(r.TOPOLOGIES, racks())
    for name, rack in (("a1", "a"), ("b1", "b"), ("b2", "b")):
        made.put(r.NODES, node(name, rack))
    async with running(made):
        await grown(made, before=1, after=2, **{f"{P}podset-required-topology": RACK})

        slices = [w for w in made.all(r.WORKLOADS) if condition(w, "Finished") == {}]
        assigned = [w.get("status", {}).get("admission") for w in slices]
        if on:
            assert assigned == [None]
            message = condition(slices[0], "QuotaReserved")["message"]
            assert "required topology" in message
        else:
            counts = [each["podSetAssignments"][0]["count"] for each in assigned]
            assert counts == [2]


async def test_a_pod_that_runs_keeps_its_place_when_an_elastic_job_grows(world):
    await grown(world, before=1, after=1, gpus=2)
    world.put(r.NODES, node("a0", "a"))  # which comes first, and would take both

    resize(world, "ring", 2)
    await world.pass_time(2)
    make_pods(world, indexes=[1])
    world.set_status(r.JOBS, "ring", active=2)
    await world.pass_time(2)

    assert places(world) == {"ring-0": "a1", "ring-1": "a1"}


async def test_places_that_an_elastic_job_has_given_up_are_free(world):
    await grown(world, before=3, after=1)
    for name in ("ring-1", "ring-2"):
        world.delete(r.PODS, name)

    job(world, "next", pods=2, gpus=4)
    await world.pass_time(2)

    assert not world.suspended("next")
    make_pods(world, "next", range(2))
    await world.pass_time(2)
    assert sorted(places(world).values()) == ["a1", "b1", "b2"]


async def test_an_elastic_job_that_shrinks_and_grows_at_once_keeps_the_places_of_its_pods(world):
    await grown(world, before=3, after=1)
    before = places(world)

    resize(world, "ring", 3)
    await world.pass_time(2)

    assert places(world) == before
    job(world, "next", pods=1, gpus=4)
    await world.pass_time(2)
    assert world.suspended("next")


async def test_each_failed_attempt_to_replace_a_node_has_its_own_event():
    world = World(QueueingSettings(gates=Gates(tas_failed_node_replacement_fail_fast=False)))
    world.furnish(gpus=16)
    world.put(r.RESOURCE_FLAVORS, flavor())
    world.put(r.TOPOLOGIES, racks())
    for name in ("b1", "b2"):
        world.put(r.NODES, node(name, "b"))
    async with running(world):
        await start(world, **{f"{P}podset-required-topology": RACK})

        world.put(r.NODES, node("b1", "b", ready="False"))
        for name in ("ring-0", "ring-1"):
            world.delete(r.PODS, name)
        await world.pass_time(15)

        failed = world.events("SecondPassFailed")
        assert len(failed) >= 3
        assert {event["count"] for event in failed} == {1}
