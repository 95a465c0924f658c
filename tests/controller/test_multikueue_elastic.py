"""Jobs that grow and shrink while they run on another cluster."""

import pytest

from policyd.jobs.rules.defaults import default_on_create
from policyd.kube import resources as r
from policyd.patch.draft import Draft
from tests.controller.clusters import MANAGER, Manager, clusters, where
from tests.controller.test_elastic_jobs import ELASTIC, elastic_job, make_pods, resize
from tests.controller.world import QUEUE, World, gates, names, pod_spec, running

pytestmark = pytest.mark.anyio


def sent_job(manager, parallelism):
    elastic_job(manager, parallelism, managedBy=MANAGER)


def size_on(world):
    return world.get(r.JOBS, "train")["spec"]["parallelism"]


def finished(world):
    """Return the reasons of the workloads that ended."""
    found = (w["status"].get("conditions", ()) for w in world.all(r.WORKLOADS))
    return [c["reason"] for conditions in found for c in conditions if c["type"] == "Finished"]


async def test_a_job_grows_and_shrinks_on_its_worker_by_the_slices_of_here():
    manager = Manager(0, 8)
    sent_job(manager, 1)
    async with clusters(manager):
        west = manager.workers["west"]
        assert size_on(west) == 1
        resize(manager, 3)
        await manager.pass_time(30)
        assert size_on(west) == 3
        assert finished(west) == finished(manager) == ["WorkloadSliceReplaced"]
        for size in (2, 1):
            resize(manager, size)
            await manager.pass_time(30)
            assert size_on(west) == size
        assert finished(west) == finished(manager) == ["WorkloadSliceReplaced"]
        assert len(manager.all(r.WORKLOADS)) == 2
        west.job("local", gpus=7)
        await west.pass_time(5)
        assert not west.suspended("local")
        west.end_job("train")
        await manager.pass_time(30)
        assert names(west, r.JOBS) == ["local"]
        assert where(manager, "train") == "west"


async def test_the_first_slice_of_a_job_shrinks_on_its_worker():
    manager = Manager(8, 0)
    sent_job(manager, 3)
    async with clusters(manager):
        east = manager.workers["east"]
        resize(manager, 1)
        await manager.pass_time(30)
        assert size_on(east) == 1
        assert finished(east) == finished(manager) == []


async def test_of_a_job_that_is_larger_than_the_slice_it_names_only_as_many_pods_start():
    world = World()
    world.furnish(gpus=8)
    template = {"spec": pod_spec(1)}
    world.create(
        r.WORKLOADS,
        {
            "metadata": {"name": "slice", "annotations": {ELASTIC: "true"}},
            "spec": {
                "queueName": "lq-cq",
                "podSets": [{"name": "main", "count": 1, "template": template}],
            },
        },
    )
    elastic = {ELASTIC: "true", "kueue.x-k8s.io/prebuilt-workload-name": "slice"}
    metadata = {"name": "train", "labels": {QUEUE: "lq-cq"}, "annotations": elastic}
    spec = {"parallelism": 3, "template": template}
    draft = Draft({"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec})
    default_on_create(draft, group="batch", kind="Job")
    world.create(r.JOBS, draft.object)
    async with running(world):
        await world.pass_time(5)
        make_pods(world, "a", "b", "c")
        await world.pass_time(30)
        assert sorted(gates(pod) for pod in world.all(r.PODS)) == [[], [ELASTIC], [ELASTIC]]


async def test_an_elastic_job_does_not_run_by_a_slice_that_asks_for_less_for_each_pod():
    world = World()
    world.furnish(gpus=8)
    small = {"name": "main", "count": 1, "template": {"spec": pod_spec(1)}}
    world.create(
        r.WORKLOADS,
        {
            "metadata": {"name": "slice", "annotations": {ELASTIC: "true"}},
            "spec": {"queueName": "lq-cq", "podSets": [small]},
        },
    )
    elastic = {ELASTIC: "true", "kueue.x-k8s.io/prebuilt-workload-name": "slice"}
    metadata = {"name": "train", "labels": {QUEUE: "lq-cq"}, "annotations": elastic}
    spec = {"parallelism": 1, "suspend": True, "template": {"spec": pod_spec(8)}}
    world.create(r.JOBS, {"metadata": metadata, "spec": spec})
    async with running(world):
        await world.pass_time(30)
        assert world.suspended("train")
        assert finished(world) == ["OutOfSync"]
