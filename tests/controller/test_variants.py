"""Jobs in a queue with a `concurrentAdmissionPolicy`: variants compete, one for each flavor."""

import pytest

from policyd.alloc.settings import Gates, QueueingSettings
from policyd.controller.queues.hours import SAVE_SECONDS
from policyd.controller.retention import TimeLimits
from policyd.kube import resources as r
from policyd.workload.time_limits import ReadyRules
from tests.controller.queues.test_hours import PLACE
from tests.controller.test_usage import bare, outside_quota, owner_of
from tests.controller.topology.test_topologies import RACK, make_pods, node, places, racks
from tests.controller.topology.test_topologies import job as ring
from tests.controller.world import GPU, HELD, World, condition, held_gpus, plain, running

pytestmark = pytest.mark.anyio

P = "kueue.x-k8s.io/"
PARENT = f"{P}concurrent-admission-parent"
ALLOWED = f"{P}workload-allowed-resource-flavors"
GATE = f"{P}concurrent-admission"
FLAVORS = ("reserved", "on-demand", "spot")


def put_queue(world, migration=None, *, sizes=(8, 8, 8), **spec):
    quotas = zip(FLAVORS, sizes, strict=False)
    flavors = [
        {"name": name, "resources": [{"name": GPU, "nominalQuota": str(size)}]}
        for name, size in quotas
    ]
    groups = [{"coveredResources": [GPU], "flavors": flavors}]
    if migration is not None:
        spec["concurrentAdmissionPolicy"] = {"migration": migration}
    body = {"namespaceSelector": {}, "resourceGroups": groups, **spec}
    world.put(r.CLUSTER_QUEUES, {"metadata": {"name": "cq", **HELD}, "spec": body})


def world_with(migration=None, *, concurrent_admission=True, **queue):
    settings = QueueingSettings(gates=Gates(concurrent_admission=concurrent_admission))
    world = World(settings)
    world.furnish()
    for name in FLAVORS:
        labels = {"nodeLabels": {"pool": name}}
        world.put(r.RESOURCE_FLAVORS, {"metadata": {"name": name, **HELD}, "spec": labels})
    put_queue(world, {"mode": ""} if migration is None else migration, **queue)
    return world


def variants(world, name="train"):
    """Return the variants of a job by flavor."""
    parent = world.workload_of(name)
    uid = parent["metadata"]["uid"]
    owned = (
        each
        for each in world.all(r.WORKLOADS)
        if each["metadata"]["namespace"] == "ns"
        and any(o["uid"] == uid for o in each["metadata"].get("ownerReferences", ()))
    )
    return {each["metadata"]["annotations"][ALLOWED]: each for each in owned}


def holders(world, name="train"):
    return [flavor for flavor, each in variants(world, name).items() if held_gpus(each)]


def pool(world, name="train"):
    job = world.get(r.JOBS, name)
    return job["spec"]["template"]["spec"].get("nodeSelector", {}).get("pool")


def active(world, name="train"):
    return {f for f, each in variants(world, name).items() if each["spec"].get("active", True)}


async def stop(world, name="train"):
    """Let the pods of a job be gone, as the Job controller notes it."""
    world.set_status(r.JOBS, name, active=0)
    await world.pass_time(2)


@pytest.mark.gate("ConcurrentAdmission")
@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
async def test_a_job_has_a_variant_for_each_flavor_and_starts_with_the_best(on):
    world = world_with(concurrent_admission=on)
    async with running(world):
        world.job("train")
        await world.pass_time(3)

        assert not world.suspended("train")
        assert pool(world) == "reserved"
        assert [*variants(world)] == [*(sorted(FLAVORS) if on else ())] or on
        assert set(variants(world)) == (set(FLAVORS) if on else set())
        parent = world.workload_of("train")
        assert (parent["metadata"]["labels"].get(PARENT) == "true") is on
        if on:
            assert holders(world) == ["reserved"]
            best = variants(world)["reserved"]
            message = f"The variant {best['metadata']['name']} is admitted"
            assert condition(parent, "Admitted")["message"] == message
            assert parent["status"]["admission"] == best["status"]["admission"]
            assert best["spec"]["preemptionGates"] == [{"name": GATE}]
            assert active(world) == {"reserved"}
            assert [each["count"] for each in world.events("CreatedVariant")] == [3]
            assert len(world.events("DeactivatedVariant")) == 2


async def test_the_quota_of_a_job_counts_once():
    world = world_with(sizes=(8,))
    async with running(world):
        world.job("train", gpus=4)
        world.job("other", gpus=4)
        world.job("third", gpus=4)
        await world.pass_time(3)

        assert [world.suspended(each) for each in ("train", "other", "third")] == [
            False,
            False,
            True,
        ]
        used = world.store.get(r.CLUSTER_QUEUES, "", "cq")["status"]["flavorsUsage"]
        assert used[0]["resources"][0]["total"] == "8"


async def test_a_job_migrates_once_a_better_flavor_is_free():
    world = world_with()
    async with running(world):
        world.job("first")
        await world.pass_time(3)
        world.job("train")
        await world.pass_time(3)
        assert pool(world) == "on-demand"
        assert active(world) == {"reserved", "on-demand"}
        waits = condition(variants(world)["reserved"], "QuotaReserved")
        assert waits["status"] == "False"
        world.set_status(r.JOBS, "train", active=1)

        world.end_job("first")
        await world.pass_time(3)
        assert world.suspended("train")
        assert world.condition("train", "Evicted")["reason"] == "VariantEvicted"
        assert condition(variants(world)["on-demand"], "Evicted")["reason"] == "FlavorMigration"
        assert holders(world) == ["on-demand"]

        await stop(world)
        await world.pass_time(3)

        assert not world.suspended("train")
        assert pool(world) == "reserved"
        assert holders(world) == ["reserved"]
        assert active(world) == {"reserved"}


@pytest.mark.parametrize(
    ("migration", "expected"),
    [
        pytest.param({"mode": "RetainFirstAdmission"}, {"spot"}, id="none-after-the-first"),
        pytest.param({"mode": "TryPreferredFlavors"}, set(FLAVORS), id="all-that-are-better"),
        pytest.param(
            {
                "mode": "TryPreferredFlavors",
                "constraints": {"lastAcceptableFlavorName": "reserved"},
            },
            {"reserved", "spot"},
            id="those-that-are-good-enough",
        ),
    ],
)
async def test_the_policy_says_which_variants_go_on(migration, expected):
    world = world_with(migration, sizes=(0, 0, 8))
    async with running(world):
        world.job("train")
        await world.pass_time(3)

        assert pool(world) == "spot"
        assert active(world) == expected


async def test_a_preempted_variant_stops_its_job_which_competes_again():
    world = world_with(sizes=(8,), preemption={"withinClusterQueue": "LowerPriority"})
    world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 10})
    async with running(world):
        world.job("train")
        await world.pass_time(3)
        world.set_status(r.JOBS, "train", active=1)
        world.job("urgent", **{f"{P}priority-class": "high"})
        await world.pass_time(3)

        assert condition(variants(world)["reserved"], "Preempted")["status"] == "True"
        assert world.condition("train", "Evicted")["reason"] == "VariantEvicted"
        assert world.suspended("urgent")

        await stop(world)
        await world.pass_time(3)
        assert not world.suspended("urgent")
        assert world.suspended("train")

        world.end_job("urgent")
        await world.pass_time(3)
        assert not world.suspended("train")


async def test_one_variant_at_a_time_may_preempt():
    world = world_with(sizes=(8, 8), preemption={"withinClusterQueue": "LowerPriority"})
    world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 10})
    async with running(world):
        for each in ("one", "two"):
            world.job(each)
            await world.pass_time(3)
            world.set_status(r.JOBS, each, active=1)
        world.job("urgent", **{f"{P}priority-class": "high"})
        await world.pass_time(5)

        evicted = [each for each in ("one", "two") if world.is_true(each, "Evicted")]
        assert evicted == ["one"]
        positions = {
            flavor: each["status"]["preemptionGates"][0]["position"]
            for flavor, each in variants(world, "urgent").items()
        }
        assert positions == {"reserved": "Open", "on-demand": "Closed"}
        assert len(world.events("PreemptionUngatedVariant")) == 1

        await world.pass_time(301)

        assert len(world.events("PreemptionUngatedVariant")) == 2
        assert not world.is_true("two", "Evicted")  # the first one still waits for its victim
        await stop(world, "one")
        await world.pass_time(3)
        assert pool(world, "urgent") == "reserved"
        assert not world.is_true("two", "Evicted")


async def test_a_job_that_ends_ends_its_variants_and_gives_the_quota_back():
    world = world_with(sizes=(8,))
    async with running(world):
        world.job("train")
        world.job("next")
        await world.pass_time(3)
        world.end_job("train")
        await world.pass_time(3)

        assert condition(variants(world)["reserved"], "Finished")["status"] == "True"
        assert not world.suspended("next")


async def test_pods_of_a_job_are_within_the_quota_that_its_variant_holds():
    world = world_with()
    async with running(world):
        world.job("train")
        await world.pass_time(3)
        owner = owner_of(world, r.JOBS, "train")
        bare(world, "train-0", owner=owner)
        await world.pass_time(10)
        assert outside_quota(world) == {}

        bare(world, "forged", owner=owner)
        await world.pass_time(10)
        assert set(outside_quota(world)) == {"forged"}


async def test_pods_of_a_job_without_quota_are_outside_whatever_its_variant_holds():
    world = world_with(sizes=(8,))
    async with running(world):
        world.job("train")
        world.job("next")
        await world.pass_time(3)
        bare(world, "next-0", owner=owner_of(world, r.JOBS, "next"))
        await world.pass_time(10)

        assert set(outside_quota(world)) == {"next-0"}


async def test_gpu_hours_of_a_job_count_once_also_after_a_restart():
    world = world_with()
    world.hours_record = PLACE
    async with running(world):
        world.job("train")
        await world.pass_time(3)
        held = [each.amounts for each in world.controller.hours.record.held.values()]
        await world.pass_time(SAVE_SECONDS)
    async with running(world):
        await world.pass_time(3)
        record = world.controller.hours.record
        assert [each.amounts for each in record.held.values()] == held

        world.end_job("train")
        await world.pass_time(3)
        assert record.held == {}


async def test_a_deactivated_parent_deactivates_all_variants():
    world = world_with()
    async with running(world):
        world.job("train")
        await world.pass_time(3)
        world.set_status(r.JOBS, "train", active=1)
        parent = world.workload_of("train")
        world.put(r.WORKLOADS, {**parent, "spec": {**parent["spec"], "active": False}})
        await world.pass_time(3)
        await stop(world)
        await world.pass_time(3)

        assert world.suspended("train")
        assert active(world) == set()
        assert holders(world) == []

        parent = world.workload_of("train")
        world.put(r.WORKLOADS, {**parent, "spec": {**parent["spec"], "active": True}})
        await world.pass_time(3)

        assert not world.suspended("train")


async def test_variants_follow_the_flavors_of_the_queue():
    world = world_with(sizes=(0, 0))
    async with running(world):
        world.job("train")
        await world.pass_time(3)
        assert set(variants(world)) == {"reserved", "on-demand"}

        put_queue(world, {"mode": ""}, sizes=(0, 0, 8))
        await world.pass_time(3)
        assert pool(world) == "spot"

        put_queue(world, {"mode": ""}, sizes=(0, 0))
        await world.pass_time(3)
        assert set(variants(world)) == {"reserved", "on-demand"}
        assert world.suspended("train")
        assert world.condition("train", "Evicted")["reason"] == "ConcurrentAdmission"


async def test_a_pending_job_says_why_each_variant_waits():
    world = world_with(sizes=(4, 0))
    async with running(world):
        world.job("train")
        await world.pass_time(3)

        waits = world.condition("train", "QuotaReserved")
        assert waits["message"].startswith("variant reserved: ")
        assert "; variant on-demand: " in waits["message"]
        before = world.client.counted
        await world.pass_time(60)
        assert world.client.counted == before


async def test_who_waits_for_a_variant_waits_for_its_job():
    world = world_with(sizes=(8, 0))
    async with running(world):
        world.job("train")
        await world.pass_time(3)
        world.job("next")
        await world.pass_time(3)

        assert "held by ns/train (8)" in world.condition("next", "QuotaReserved")["message"]


# What users could try, and what may happen meanwhile.


def forged(world, name, flavor="reserved", *, gpus=8, namespace="ns", priority=0):
    """Create a Workload that says that it is a variant."""
    parent = world.workload_of("train")["metadata"]
    pod_sets = world.workload_of("train")["spec"]["podSets"]
    template = pod_sets[0]["template"]
    container = dict(template["spec"]["containers"][0], resources={"requests": {GPU: str(gpus)}})
    spec = {**template["spec"], "containers": [container]}
    own = [{**pod_sets[0], "template": {**template, "spec": spec}}]
    reference = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "name": parent["name"],
        "uid": parent["uid"],
        "controller": True,
    }
    metadata = {"name": name, "annotations": {ALLOWED: flavor}, "ownerReferences": [reference]}
    body = {"podSets": own if gpus != 8 else pod_sets, "queueName": "lq-cq", "priority": priority}
    world.create(r.WORKLOADS, {"metadata": metadata, "spec": body}, namespace)


@pytest.mark.parametrize(
    "forgery",
    [
        pytest.param({"gpus": 1}, id="smaller-than-its-parent"),
        pytest.param({"flavor": "gold"}, id="for-a-flavor-that-the-queue-does-not-have"),
        pytest.param({"flavor": ""}, id="for-no-flavor"),
        pytest.param({"name": "zz"}, id="second-for-a-flavor"),
        pytest.param({"name": "a", "priority": 5}, id="more-urgent-than-its-parent"),
    ],
)
async def test_a_forged_variant_starts_no_job_and_goes(forgery):
    world = world_with(sizes=(4,))
    async with running(world):
        world.job("train")
        await world.pass_time(3)
        forged(world, **{"name": "forged", **forgery})
        await world.pass_time(3)

        assert world.suspended("train")
        assert holders(world) == []
        assert len(world.all(r.WORKLOADS)) == 2


async def test_a_workload_that_names_the_parent_of_another_team_stops_nothing():
    world = world_with(sizes=(4, 8))
    world.put(r.NAMESPACES, {"metadata": {"name": "theirs"}})
    local = {"metadata": {"name": "lq-cq", "namespace": "theirs"}, "spec": {"clusterQueue": "cq"}}
    world.put(r.LOCAL_QUEUES, local)
    async with running(world):
        world.job("train")
        await world.pass_time(3)
        assert pool(world) == "on-demand"
        forged(world, "forged", gpus=4, namespace="theirs")
        await world.pass_time(3)

        assert held_gpus(plain(world.store.get(r.WORKLOADS, "theirs", "forged"))) == 4
        assert not world.is_true("train", "Evicted")
        assert holders(world) == ["on-demand"]


async def test_the_label_of_a_parent_means_nothing_in_another_queue():
    world = world_with()
    world.queue("plain", gpus=8)
    async with running(world):
        world.job("train", queue="lq-plain", **{PARENT: "true"})
        await world.pass_time(2)
        workload = world.workload_of("train")
        labels = {**workload["metadata"]["labels"], PARENT: "true"}
        metadata = {**workload["metadata"], "labels": labels}
        world.put(r.WORKLOADS, {**workload, "metadata": metadata})
        world.job("next", queue="lq-plain")
        await world.pass_time(3)

        assert not world.suspended("train")
        assert world.suspended("next")
        assert variants(world) == {}


async def test_a_user_who_deletes_the_admitted_variant_frees_no_quota_before_the_job_has_stopped():
    world = world_with(sizes=(8,))
    async with running(world):
        world.job("train")
        await world.pass_time(3)
        world.set_status(r.JOBS, "train", active=1)
        world.job("next")
        await world.pass_time(3)
        variant = variants(world)["reserved"]
        world.store.delete(r.WORKLOADS, variant, dry_run=False)
        await world.pass_time(5)

        assert world.condition("train", "Evicted")["reason"] == "ConcurrentAdmission"
        assert world.suspended("next")

        await stop(world)
        await world.pass_time(3)
        assert [world.suspended(each) for each in ("train", "next")].count(False) == 1


async def test_a_job_whose_pods_do_not_get_ready_waits_with_all_its_variants():
    world = world_with(sizes=(8, 8))
    world.limits = TimeLimits(ready=ReadyRules(timeout=30, first_wait=60))
    async with running(world):
        world.job("train")
        await world.pass_time(3)
        world.set_status(r.JOBS, "train", active=1)
        await world.pass_time(31)
        assert world.condition("train", "Evicted")["reason"] == "PodsReadyTimeout"
        await stop(world)
        await world.pass_time(5)
        assert holders(world) == []
        assert world.suspended("train")

        await world.pass_time(60)

        assert not world.suspended("train")
        assert pool(world) == "reserved"


async def test_variants_get_the_new_priority_of_their_parent():
    world = world_with(sizes=(4, 4))
    world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 10})
    async with running(world):
        world.job("train")
        await world.pass_time(3)
        job = world.get(r.JOBS, "train")
        labels = {**job["metadata"]["labels"], f"{P}priority-class": "high"}
        world.put(r.JOBS, {**job, "metadata": {**job["metadata"], "labels": labels}})
        await world.pass_time(5)

        assert {each["spec"]["priority"] for each in variants(world).values()} == {10}
        assert set(variants(world)) == {"reserved", "on-demand"}


async def test_variants_go_where_the_gate_is_turned_off():
    world = world_with()
    async with running(world):
        world.job("train")
        await world.pass_time(3)
        assert len(variants(world)) == 3
    world.queueing = QueueingSettings(gates=Gates(concurrent_admission=False))
    async with running(world):
        await world.pass_time(3)

        assert variants(world) == {}
        assert not world.suspended("train")
        assert held_gpus(world.workload_of("train")) == 8


async def test_jobs_that_ran_before_there_were_variants_run_on():
    world = world_with(concurrent_admission=False)
    async with running(world):
        world.job("train")
        await world.pass_time(3)
    world.queueing = QueueingSettings(gates=Gates(concurrent_admission=True))
    async with running(world):
        await world.pass_time(3)

        assert not world.suspended("train")
        assert variants(world) == {}
        assert held_gpus(world.workload_of("train")) == 8


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_controller_that_stops_at_any_write_is_continued(after):
    for writes in range(1, 16):
        world = world_with()
        world.job("train")
        await world.start(writes=writes, after=after)
        await world.pass_time(5)
        await world.kill()
        async with running(world):
            await world.pass_time(5)
            assert pool(world) == "reserved", writes
            assert len(variants(world)) == 3
            assert holders(world) == ["reserved"]


async def test_pods_of_a_node_that_failed_get_another_place_by_the_variant():
    world = world_with(sizes=(8,))
    world.put(r.TOPOLOGIES, racks())
    spec = {"nodeLabels": {"gpu": "h100"}, "topologyName": "racks"}
    world.put(r.RESOURCE_FLAVORS, {"metadata": {"name": "reserved", **HELD}, "spec": spec})
    for name in ("b1", "b2", "b3"):
        world.put(r.NODES, node(name, "b"))
    async with running(world):
        ring(world, **{f"{P}podset-required-topology": RACK})
        await world.pass_time(3)
        make_pods(world)
        await world.pass_time(3)
        assert set(places(world).values()) == {"b1", "b2"}

        world.store.delete(r.NODES, world.store.get(r.NODES, "", "b1"), dry_run=False)
        for pod, place in places(world).items():
            if place == "b1":
                world.delete(r.PODS, pod)
        await world.pass_time(5)
        make_pods(world, indexes=(0, 1))
        await world.pass_time(3)

        assert set(places(world).values()) == {"b2", "b3"}
        assert not world.is_true("ring", "Evicted")
        parent, variant = world.workload_of("ring"), variants(world, "ring")["reserved"]
        assert parent["status"]["admission"] == variant["status"]["admission"]
