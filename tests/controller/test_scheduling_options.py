"""What queues ask for by annotations, carried out in the cluster: who is moved, who is stopped."""

import pytest

from policyd.kube import resources as r
from tests.controller.world import GPU, World, condition, running

pytestmark = pytest.mark.anyio


def furnish(world, **annotations):
    """Create two flavors, and a queue of 8 GPUs of each that asks for something."""
    world.furnish()
    for name in ("h100", "a100"):
        spec = {"nodeLabels": {"gpu": name}}
        world.put(r.RESOURCE_FLAVORS, {"metadata": {"name": name}, "spec": spec})
    ask(world, **annotations)


def ask(world, **annotations):
    """Let the queue ask for something, from now on."""
    flavors = [
        {"name": name, "resources": [{"name": GPU, "nominalQuota": "8"}]}
        for name in ("h100", "a100")
    ]
    named = {f"policyd.io/{name.replace('_', '-')}": text for name, text in annotations.items()}
    group = {"coveredResources": [GPU], "flavors": flavors}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    world.put(r.CLUSTER_QUEUES, {"metadata": {"name": "cq", "annotations": named}, "spec": spec})


@pytest.fixture
async def world():
    made = World()
    furnish(made)
    async with running(made):
        yield made


def picky(world, name):
    """A job that asks for all GPUs of one flavor."""
    job = world.job(name, gpus=8)
    job["spec"]["template"]["spec"]["nodeSelector"] = {"gpu": "h100"}
    world.put(r.JOBS, job)


def flavor_of(world, name):
    admission = world.workload_of(name)["status"].get("admission")
    return admission and admission["podSetAssignments"][0]["flavors"][GPU]


async def test_a_job_that_runs_is_moved_so_that_another_fits(world):
    world.job("anywhere", gpus=4)
    await world.pass_time(1)
    assert flavor_of(world, "anywhere") == "h100"
    ask(world, consolidate="2")
    await world.pass_time(1)

    picky(world, "picky")
    await world.pass_time(2)

    assert flavor_of(world, "picky") == "h100"
    assert flavor_of(world, "anywhere") == "a100"
    assert not world.suspended("anywhere")
    moved = condition(world.workload_of("anywhere"), "Preempted")
    assert "consolidation: what it had fits elsewhere" in moved["message"]


async def test_without_the_annotation_it_waits(world):
    world.job("anywhere", gpus=4)
    await world.pass_time(1)

    picky(world, "picky")
    await world.pass_time(2)

    assert flavor_of(world, "picky") is None
    assert flavor_of(world, "anywhere") == "h100"


async def test_a_gang_that_lost_a_pod_is_stopped_after_the_grace_and_queues_again(world):
    ask(world, stale_gang_grace="60s")
    for name in ("zero", "one"):
        world.pod(name, group="gang", total=2)
    await world.pass_time(1)
    ready = [{"type": "Ready", "status": "True"}]
    for name in ("zero", "one"):
        world.set_status(r.PODS, name, phase="Running", conditions=ready)
    await world.pass_time(1)
    assert world.condition("gang", "PodsReady")["status"] == "True"

    world.set_status(r.PODS, "one", phase="Running", conditions=[])
    await world.pass_time(59)
    assert not world.is_true("gang", "Evicted")
    await world.pass_time(2)

    evicted = world.condition("gang", "Evicted")
    assert evicted["reason"] == "StaleGang"
    assert evicted["message"] == "The gang has run with fewer pods than it needs for 60s"
    assert world.events("EvictedDueToStaleGang")


async def test_a_job_that_was_stopped_as_a_gang_starts_again(world):
    ask(world, stale_gang_grace="60s")
    world.job("gang", gpus=8)
    await world.pass_time(1)
    world.set_status(r.JOBS, "gang", active=1, ready=1)
    await world.pass_time(1)
    assert world.condition("gang", "PodsReady")["status"] == "True"
    world.set_status(r.JOBS, "gang", active=1, ready=0)
    await world.pass_time(61)
    assert world.is_true("gang", "Evicted")
    assert world.suspended("gang")

    world.set_status(r.JOBS, "gang", active=0, ready=0)
    await world.pass_time(5)

    assert world.is_true("gang", "Admitted")
    assert not world.suspended("gang")


async def test_a_gang_whose_pod_comes_back_in_time_runs_on(world):
    ask(world, stale_gang_grace="60s")
    for name in ("zero", "one"):
        world.pod(name, group="gang", total=2)
    await world.pass_time(1)
    ready = [{"type": "Ready", "status": "True"}]
    for conditions in (ready, [], ready):
        for name in ("zero", "one"):
            world.set_status(r.PODS, name, phase="Running", conditions=conditions)
        await world.pass_time(40)

    await world.pass_time(60)

    assert not world.is_true("gang", "Evicted")


async def test_the_end_of_a_wait_starts_a_reservation(world):
    ask(world, reserve_after="60s")
    world.job("holder", gpus=8, **{"kueue.x-k8s.io/max-exec-time-seconds": "3600"})
    world.job("other", gpus=8, **{"kueue.x-k8s.io/max-exec-time-seconds": "3600"})
    await world.pass_time(1)
    world.job("gang", gpus=8)
    await world.pass_time(30)
    assert "reserved" not in world.condition("gang", "QuotaReserved")["message"]

    await world.pass_time(60)

    assert "reserved for it from" in world.condition("gang", "QuotaReserved")["message"]
