"""Queues and what they are made of, deleted while they are in use: they stay until they are not."""

import pytest

from policyd.api.kueue.names import RESOURCE_IN_USE_FINALIZER
from policyd.kube import resources as r
from policyd.kube.errors import NotFoundError
from tests.controller.world import GPU, World, condition

pytestmark = pytest.mark.anyio
HELD = {"finalizers": ["kueue.x-k8s.io/resource-in-use", "others.example/hold"]}


@pytest.fixture
async def world():
    world = World()
    world.furnish()
    for resource, name in ((r.CLUSTER_QUEUES, "cq"), (r.RESOURCE_FLAVORS, "h100")):
        spec = world.store.get(resource, "", name)["spec"]
        world.put(resource, {"metadata": {"name": name, **HELD}, "spec": spec})
    await world.start()
    yield world
    await world.kill()


def delete(world, resource, name):
    world.store.delete(resource, world.store.get(resource, "", name), dry_run=False)


def finalizers(world, resource, name):
    return world.store.get(resource, "", name)["metadata"].get("finalizers", [])


LEFT = ["others.example/hold"]


async def test_a_queue_stays_as_long_as_a_workload_holds_its_quota(world):
    world.job("train")
    await world.pass_time(2)
    delete(world, r.CLUSTER_QUEUES, "cq")
    await world.pass_time(3)

    queue = world.store.get(r.CLUSTER_QUEUES, "", "cq")
    assert condition(queue, "Active")["reason"] == "Terminating"
    assert finalizers(world, r.CLUSTER_QUEUES, "cq") == HELD["finalizers"]

    world.end_job("train")
    await world.pass_time(3)

    assert finalizers(world, r.CLUSTER_QUEUES, "cq") == LEFT


async def test_an_unused_queue_is_deleted_at_once(world):
    delete(world, r.CLUSTER_QUEUES, "cq")
    await world.pass_time(1)

    assert finalizers(world, r.CLUSTER_QUEUES, "cq") == LEFT


async def test_a_flavor_stays_as_long_as_a_queue_has_it(world):
    delete(world, r.RESOURCE_FLAVORS, "h100")
    await world.pass_time(1)
    assert finalizers(world, r.RESOURCE_FLAVORS, "h100") == HELD["finalizers"]

    quota = {"name": GPU, "nominalQuota": "1"}
    group = {"coveredResources": [GPU], "flavors": [{"name": "a100", "resources": [quota]}]}
    world.put(
        r.CLUSTER_QUEUES,
        {"metadata": {"name": "cq"}, "spec": {"resourceGroups": [group]}},
    )
    await world.pass_time(1)

    assert finalizers(world, r.RESOURCE_FLAVORS, "h100") == LEFT


async def test_objects_made_without_webhooks_are_held(world):
    bare = {"labels": {"team": "a"}}
    made = (
        (r.TOPOLOGIES, "racks", {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}),
        (r.RESOURCE_FLAVORS, "a100", {}),
        (r.CLUSTER_QUEUES, "other", {"resourceGroups": []}),
    )
    for resource, name, spec in made:
        world.put(resource, {"metadata": {"name": name, **bare}, "spec": spec})
    await world.pass_time(1)

    for resource, name, _ in made:
        assert finalizers(world, resource, name) == [RESOURCE_IN_USE_FINALIZER]
        delete(world, resource, name)
    await world.pass_time(1)

    for resource, name, _ in made:
        with pytest.raises(NotFoundError):
            world.store.get(resource, "", name)


async def test_leftover_objects_are_deleted_after_a_start(world):
    await world.kill()
    delete(world, r.CLUSTER_QUEUES, "cq")
    await world.start()
    await world.pass_time(1)

    assert finalizers(world, r.CLUSTER_QUEUES, "cq") == LEFT


async def test_a_topology_stays_as_long_as_a_flavor_names_it(world):
    levels = [{"nodeLabel": "kubernetes.io/hostname"}]
    world.put(r.TOPOLOGIES, {"metadata": {"name": "racks", **HELD}, "spec": {"levels": levels}})
    flavor = {"nodeLabels": {"a": "b"}, "topologyName": "racks"}
    world.put(r.RESOURCE_FLAVORS, {"metadata": {"name": "placed"}, "spec": flavor})
    await world.pass_time(1)
    delete(world, r.TOPOLOGIES, "racks")
    await world.pass_time(1)
    assert finalizers(world, r.TOPOLOGIES, "racks") == HELD["finalizers"]

    delete(world, r.RESOURCE_FLAVORS, "placed")
    await world.pass_time(1)

    assert finalizers(world, r.TOPOLOGIES, "racks") == LEFT


async def test_a_check_stays_as_long_as_workloads_of_a_queue_must_pass_it(world):
    spec = {"controllerName": "example.com/check"}
    world.put(r.ADMISSION_CHECKS, {"metadata": {"name": "check"}, "spec": spec})
    queue = world.store.get(r.CLUSTER_QUEUES, "", "cq")
    rules = {"admissionChecks": [{"name": "check"}]}
    passed = {**queue["spec"], "admissionChecksStrategy": rules}
    world.put(r.CLUSTER_QUEUES, {**queue, "spec": passed})
    await world.pass_time(1)
    delete(world, r.ADMISSION_CHECKS, "check")
    await world.pass_time(1)
    assert finalizers(world, r.ADMISSION_CHECKS, "check") == [RESOURCE_IN_USE_FINALIZER]

    world.put(r.CLUSTER_QUEUES, queue)
    await world.pass_time(1)

    with pytest.raises(NotFoundError):
        world.store.get(r.ADMISSION_CHECKS, "", "check")
