"""Jobs and pods that name a workload which somebody else makes: they wait for it and take it."""

import pytest

from policyd.jobs.rules.defaults import default_on_create
from policyd.kube import resources as r
from policyd.patch.draft import Draft
from tests.controller.world import QUEUE, World, gates, pod_spec, running

pytestmark = pytest.mark.anyio

PREBUILT = "kueue.x-k8s.io/prebuilt-workload-name"


@pytest.fixture
async def world():
    made = World()
    made.furnish()
    async with running(made):
        yield made


def make(world, gpus=8, **metadata):
    pod_set = {"name": "main", "count": 1, "template": {"spec": pod_spec(gpus)}}
    spec = {"queueName": "lq-cq", "priority": 0, "active": True, "podSets": [pod_set]}
    return world.create(r.WORKLOADS, {"metadata": {"name": "made", **metadata}, "spec": spec})


def pod(world):
    metadata = {"name": "alone", "labels": {QUEUE: "lq-cq", PREBUILT: "made"}}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec(8)}
    draft = Draft(body)
    default_on_create(draft, group="", kind="Pod")
    return world.create(r.PODS, draft.object)


def owners(world):
    (workload,) = world.all(r.WORKLOADS)
    return [each["name"] for each in workload["metadata"].get("ownerReferences", ())]


async def test_a_job_waits_for_its_workload(world):
    world.job("train", **{PREBUILT: "made"})
    await world.pass_time(10)
    assert world.all(r.WORKLOADS) == []
    assert world.suspended("train")

    make(world)
    await world.pass_time(7)

    assert owners(world) == ["train"]
    assert not world.suspended("train")


async def test_a_pod_takes_over_its_workload(world):
    pod(world)
    await world.pass_time(10)

    make(world)
    await world.pass_time(7)

    assert owners(world) == ["alone"]
    assert gates(world.get(r.PODS, "alone")) == []


async def test_a_pod_does_not_change_the_workload_of_another(world):
    other = world.job("other")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "other", "controller": True}
    make(world, ownerReferences=[{**owner, "uid": other["metadata"]["uid"]}])
    pod(world)
    await world.pass_time(10)

    assert owners(world) == ["other"]
    assert gates(world.get(r.PODS, "alone"))


async def test_a_workload_that_is_not_what_a_pod_demands_is_finished(world):
    pod(world)
    make(world, gpus=4)
    await world.pass_time(10)

    assert world.condition("made", "Finished")["reason"] == "OutOfSync"
    assert gates(world.get(r.PODS, "alone"))


async def test_a_job_that_is_over_is_left_alone_when_its_workload_is_deleted(world):
    make(world)
    world.job("train", **{PREBUILT: "made"})
    await world.pass_time(1)
    world.set_status(r.JOBS, "train", startTime="2026-01-01T00:00:00Z")
    world.end_job("train")
    await world.pass_time(1)
    before = world.get(r.JOBS, "train")

    world.delete(r.WORKLOADS, "made")
    await world.pass_time(10)

    assert world.get(r.JOBS, "train") == before


async def test_a_workload_that_no_job_stops_gives_its_quota_back_in_time():
    world = World()
    world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 9})
    world.furnish(preemption={"withinClusterQueue": "LowerPriority"})
    async with running(world):
        make(world)
        await world.pass_time(1)
        world.job("urgent", **{"kueue.x-k8s.io/priority-class": "high"})

        await world.pass_time(100)
        assert world.is_true("made", "QuotaReserved")
        assert world.suspended("urgent")

        await world.pass_time(30)
        assert not world.is_true("made", "QuotaReserved")
        assert not world.suspended("urgent")


async def test_a_group_does_not_run_in_the_quota_of_a_job(world):
    """Nobody counts the pods of a job among those of a group that names its workload."""
    world.job("train")
    await world.pass_time(2)
    name = world.workload_of("train")["metadata"]["name"]
    role = {"kueue.x-k8s.io/role-hash": "main", PREBUILT: name}
    world.pod("thief", gpus=8, group=name, total=1, **role)
    await world.pass_time(10)

    assert not world.suspended("train")
    assert gates(world.get(r.PODS, "thief"))
    assert owners(world) == ["train"]
    assert [e["involvedObject"]["name"] for e in world.events("WorkloadNameConflict")] == ["thief"]


@pytest.mark.parametrize("kind", ["job", "pod"])
async def test_nothing_takes_over_the_workload_of_a_group(world, kind):
    world.pod("a", gpus=8, group="made", total=1, **{"kueue.x-k8s.io/role-hash": "main"})
    await world.pass_time(2)
    assert gates(world.get(r.PODS, "a")) == []

    if kind == "job":
        world.job("train", **{PREBUILT: "made"})
    else:
        pod(world)
    await world.pass_time(10)

    assert owners(world) == ["a"]
    assert world.suspended("train") if kind == "job" else gates(world.get(r.PODS, "alone"))
