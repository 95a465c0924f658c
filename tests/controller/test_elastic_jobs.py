"""Jobs that grow and shrink while they run: a slice for each size, and pods that wait for it."""

import copy

import pytest

from policyd.api.kueue.names import SLICE_REPLACEMENT_FOR
from policyd.controller.retention import TimeLimits
from policyd.jobs.rules.defaults import default_on_create
from policyd.kube import resources as r
from policyd.patch.draft import Draft
from policyd.workload.time_limits import ReadyRules
from tests.controller.world import (
    QUEUE,
    World,
    condition,
    gates,
    held_gpus,
    pod_spec,
    running,
)

pytestmark = pytest.mark.anyio

ELASTIC = "kueue.x-k8s.io/elastic-job"


def furnished(gpus):
    world = World()
    world.furnish(gpus=gpus)
    return world


def elastic_job(world, parallelism, **more):
    """Create an elastic job of one GPU a pod, as the webhook lets it in."""
    spec = {"parallelism": parallelism, "template": {"spec": pod_spec(1)}, **more}
    metadata = {"name": "train", "labels": {QUEUE: "lq-cq"}, "annotations": {ELASTIC: "true"}}
    draft = Draft({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    default_on_create(draft, group="batch", kind="Job")
    world.create(r.JOBS, draft.object)


def resize(world, parallelism):
    job = world.get(r.JOBS, "train")
    generation = job["metadata"].get("generation", 0) + 1
    metadata = {**job["metadata"], "generation": generation}
    spec = {**job["spec"], "parallelism": parallelism}
    world.put(r.JOBS, {**job, "metadata": metadata, "spec": spec})


def make_pods(world, *names):
    """Make pods of the job's template, as the job controller does, and count them."""
    template = world.get(r.JOBS, "train")["spec"]["template"]
    for name in names:
        metadata = copy.deepcopy(template.get("metadata", {}))
        metadata.setdefault("labels", {})["batch.kubernetes.io/job-name"] = "train"
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, "name": name}}
        world.create(r.PODS, {**body, "spec": copy.deepcopy(template["spec"])})
    world.set_status(r.JOBS, "train", active=len(world.all(r.PODS)))


def waiting(world):
    return {each["metadata"]["name"] for each in world.all(r.PODS) if ELASTIC in gates(each)}


def gpus_held(world):
    return sum(held_gpus(each) for each in world.all(r.WORKLOADS))


async def two_pods_run(world):
    elastic_job(world, 2)
    await world.pass_time(2)
    make_pods(world, "p1", "p2")
    await world.pass_time(2)


async def test_a_job_runs_on_while_it_waits_for_more_pods_than_there_is_quota_for():
    rules = ReadyRules(timeout=10.0, recovery=10.0, retries=1, first_wait=1, longest_wait=60)
    world = World(limits=TimeLimits(ready=rules))
    world.furnish(gpus=2)
    async with running(world):
        await two_pods_run(world)
        world.set_status(r.JOBS, "train", active=2, ready=2)
        await world.pass_time(2)

        resize(world, 3)
        await world.pass_time(30)

        held = next(each for each in world.all(r.WORKLOADS) if held_gpus(each))
        assert condition(held, "PodsReady")["status"] == "True"
        assert condition(held, "Evicted") == {}
        assert not world.suspended("train")


async def test_a_job_that_grows_gets_a_bigger_slice_and_its_new_pods_go_then():
    world = furnished(gpus=4)
    async with running(world):
        await two_pods_run(world)
        assert not waiting(world)

        resize(world, 4)
        make_pods(world, "p3", "p4")
        await world.pass_time(3)

        assert not world.suspended("train")
        assert not waiting(world)
        of_pods = {"cluster_queue": "cq", "is_group": "false"}
        assert (
            world.value("pod_scheduling_gate_removal_seconds_count", name=ELASTIC, **of_pods) == 4
        )
        assert gpus_held(world) == 4
        ended = [w for w in world.all(r.WORKLOADS) if "Finished" in str(w["status"])]
        assert [w["status"]["conditions"][-1]["reason"] for w in ended] == ["WorkloadSliceReplaced"]
        assert not world.events("Stopped")


@pytest.mark.parametrize("writes", range(1, 6))
async def test_a_job_that_grows_runs_on_whenever_the_controller_ends(writes):
    world = furnished(gpus=4)
    async with running(world):
        await two_pods_run(world)
    resize(world, 4)
    await world.start(writes=writes, after=True)
    await world.pass_time(2)
    await world.kill()

    async with running(world):
        await world.pass_time(3)

        assert gpus_held(world) == 4
        assert not world.events("Stopped")


async def test_the_bigger_slice_has_its_quota_before_the_smaller_one_ends():
    world = furnished(gpus=4)
    async with running(world):
        await two_pods_run(world)
        seen = len(world.store.history)
        resize(world, 4)
        await world.pass_time(3)

    changes = [each for each in world.store.history[seen:] if each.resource == r.WORKLOADS]
    kinds = [
        kind
        for each in changes
        for kind in ("QuotaReserved", "Finished")
        if each.new and condition(each.new, kind).get("status") == "True" != was(each.old, kind)
    ]
    assert kinds == ["QuotaReserved", "Finished"]
    assert len(world.events("WorkloadSliceReplaced")) == 1


def was(obj, kind):
    return condition(obj or {}, kind).get("status")


async def test_a_bigger_slice_and_the_one_that_it_replaces_do_not_both_hold_quota():
    world = furnished(gpus=4)
    async with running(world):
        await two_pods_run(world)
    resize(world, 4)
    # Stopped between the two writes: the new slice has its quota, the old one is not finished.
    while not both_have_quota(world):
        await world.start(writes=1, after=True)
        await world.pass_time(1)
        await world.kill()
    world.job("next", gpus=1)

    await world.start()
    try:
        queue = world.controller.cache.state.queues["cq"]
        assert sum(h.admission.totals()["nvidia.com/gpu"] for h in queue.holdings.values()) == 4
        await world.pass_time(3)
        assert world.suspended("next")
        assert gpus_held(world) == 4
    finally:
        await world.kill()


def both_have_quota(world):
    return (
        [held_gpus(each) for each in world.all(r.WORKLOADS)].count(0)
        == 0
        < len(world.all(r.WORKLOADS)) - 1
    )


async def test_a_job_that_shrinks_gives_back_only_what_it_has_left_over():
    world = furnished(gpus=20)
    async with running(world):
        elastic_job(world, 20, completions=20)
        await world.pass_time(2)
        world.set_status(r.JOBS, "train", active=5, succeeded=15)
        await world.pass_time(2)
        assert gpus_held(world) == 5

        resize(world, 10)
        await world.pass_time(3)

        (workload,) = world.all(r.WORKLOADS)
        assert workload["status"]["reclaimablePods"] == [{"name": "main", "count": 5}]
        totals = [
            holding.admission.totals()
            for holding in world.controller.cache.state.queues["cq"].holdings.values()
        ]
        assert totals == [{"nvidia.com/gpu": 5}]


async def test_pods_for_which_there_is_no_quota_wait_while_the_others_run_on():
    world = furnished(gpus=3)
    async with running(world):
        await two_pods_run(world)

        resize(world, 4)
        make_pods(world, "p3", "p4")
        await world.pass_time(3)

        assert not world.suspended("train")
        assert waiting(world) == {"p3", "p4"}
        assert gpus_held(world) == 2


def set_active(world, *, active):
    """Activate the slice that is to replace another one, or deactivate it, as its user does."""
    for each in world.all(r.WORKLOADS):
        if SLICE_REPLACEMENT_FOR in each["metadata"].get("annotations", {}):
            world.put(r.WORKLOADS, {**each, "spec": {**each["spec"], "active": active}})


async def test_a_slice_that_its_user_deactivates_waits_until_it_is_active_again():
    world = furnished(gpus=3)
    async with running(world):
        await two_pods_run(world)
        resize(world, 4)
        await world.pass_time(3)

        set_active(world, active=False)
        world.queue(gpus=4)
        await world.pass_time(3)
        before = gpus_held(world)
        set_active(world, active=True)
        await world.pass_time(3)

        assert (before, gpus_held(world)) == (2, 4)
        assert not world.suspended("train")
        assert not world.events("Stopped")


async def test_a_job_that_shrinks_gives_back_at_once():
    world = furnished(gpus=4)
    async with running(world):
        elastic_job(world, 4)
        await world.pass_time(2)
        world.job("next", gpus=2)
        await world.pass_time(2)
        assert world.suspended("next")

        resize(world, 2)
        await world.pass_time(3)

        assert not world.suspended("next")
        assert len(world.all(r.WORKLOADS)) == 2
