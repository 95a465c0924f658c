"""What is let go where no controller does it any more."""

import pytest

from policyd.api.kueue.names import MANAGED, RESOURCE_IN_USE_FINALIZER
from policyd.controller.queues.in_use import release
from policyd.kube import resources as r
from policyd.testing import FakeClient
from policyd.testing.objects import refusal
from tests.controller.world import Mortal, World, is_deleted, names, running

pytestmark = pytest.mark.anyio

OTHERS = "example.com/mine"


@pytest.fixture
async def left():
    """A cluster whose controller is gone, with a pod that was deleted since, and two others."""
    world = World()
    world.furnish()
    async with running(world):
        for name in ("a", "b"):
            world.pod(name, group="ring", total=2)
        await world.pass_time(2)
    world.put(r.PODS, {"metadata": {"name": "plain", "namespace": "ns", "finalizers": [OTHERS]}})
    pod = world.get(r.PODS, "b")
    world.put(r.PODS, {**pod, "metadata": {**pod["metadata"], "finalizers": [OTHERS, MANAGED]}})
    world.delete(r.PODS, "a")
    assert is_deleted(world.get(r.PODS, "a"))
    return world


async def released(world, client=None, **options):
    return [each async for each in release(client or FakeClient(store=world.store), **options)]


async def test_deleted_objects_are_removed_and_finalized_ones_stay(left):
    assert await released(left) == ["pods/ns/a", "pods/ns/b"]

    assert names(left, r.PODS) == ["b", "plain"]
    assert left.get(r.PODS, "b")["metadata"]["finalizers"] == [OTHERS]
    assert left.get(r.WORKLOADS, "ring")["metadata"]["finalizers"] == [RESOURCE_IN_USE_FINALIZER]
    assert await released(left) == []


async def test_nothing_is_written_if_it_is_only_to_be_shown(left):
    before = left.store.version

    assert await released(left, dry_run=True, everything=True) == [
        "pods/ns/a",
        "pods/ns/b",
        "workloads/ns/ring",
        "clusterqueues/cq",
        "resourceflavors/h100",
    ]
    assert left.store.version == before


async def test_queues_and_workloads_go_where_that_is_asked_for(left):
    await released(left, everything=True)

    for resource in (r.WORKLOADS, r.CLUSTER_QUEUES, r.RESOURCE_FLAVORS):
        assert [each["metadata"]["finalizers"] for each in left.all(resource)] == [[]]


async def test_only_what_is_in_the_namespace_goes(left):
    assert await released(left, namespace="other", everything=True) == []
    found = await released(left, namespace="ns", everything=True)
    assert found == ["pods/ns/a", "pods/ns/b", "workloads/ns/ring"]


class Restless(FakeClient):
    """Somebody changes each pod just before it is written."""

    seen = 0

    async def patch(self, resource, name, patch, **options):
        self.seen += 1
        if self.seen % 2:
            raise refusal(409, "Conflict", "changed")
        return await super().patch(resource, name, patch, **options)


async def test_objects_that_change_meanwhile_are_deleted_nevertheless(left):
    assert len(await released(left, Restless(store=left.store))) == 2
    assert names(left, r.PODS) == ["b", "plain"]


async def test_a_deleted_workload_is_let_go_once_its_owner_without_a_queue_is_gone():
    """No event of such a job is seen: it is not watched."""
    world = World()
    world.furnish()
    async with running(world):
        job = world.create(r.JOBS, {"metadata": {"name": "unqueued"}, "spec": {"template": {}}})
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "unqueued",
            "uid": job["metadata"]["uid"],
            "controller": True,
        }
        metadata = {
            "name": "left",
            "ownerReferences": [owner],
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
        }
        body = {"metadata": metadata, "spec": {"queueName": "lq-cq", "podSets": []}}
        workload = world.create(r.WORKLOADS, body)
        world.store.delete(r.WORKLOADS, workload, dry_run=False)
        await world.pass_time(10)
        assert names(world, r.WORKLOADS) == ["left"]

        world.store.delete(r.JOBS, job, dry_run=False)
        await world.pass_time(6)

        assert not world.all(r.WORKLOADS)


class Counted(Mortal):
    """Counts the jobs that are read one by one."""

    reads = 0

    async def get(self, resource, name, **options):
        self.reads += resource == r.JOBS
        return await super().get(resource, name, **options)


async def test_few_owners_that_a_tenant_makes_up_are_read_at_once():
    """The last of them is there: whether the others are is not asked again at each look."""
    world = World()
    world.client_type = Counted
    world.furnish()
    async with running(world):
        job = world.create(r.JOBS, {"metadata": {"name": "unqueued"}, "spec": {"template": {}}})
        owner = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}
        made_up = [{**owner, "name": f"none-{n}", "uid": f"none-{n}"} for n in range(300)]
        real = {**owner, "name": "unqueued", "uid": job["metadata"]["uid"]}
        metadata = {
            "name": "left",
            "ownerReferences": [*made_up, real],
            "finalizers": ["kueue.x-k8s.io/resource-in-use"],
        }
        body = {"metadata": metadata, "spec": {"queueName": "lq-cq", "podSets": []}}
        workload = world.create(r.WORKLOADS, body)
        world.store.delete(r.WORKLOADS, workload, dry_run=False)
        await world.pass_time(200)
        assert names(world, r.WORKLOADS) == ["left"]
        assert 300 < world.client.reads <= 400
        world.client.reads = 0
        await world.pass_time(100)
        assert 0 < world.client.reads <= 30

        world.store.delete(r.JOBS, job, dry_run=False)
        await world.pass_time(6)
        assert not world.all(r.WORKLOADS)
