"""Pods go where nodes have the devices that they get by ResourceClaims."""

import pytest

from policyd.kube import resources as r
from tests.controller.topology.test_topologies import P, flavor, make_pods, node, racks
from tests.controller.watch.test_claimed_devices import (
    COUNTED,
    DRIVER,
    claiming,
    make_claims,
    offer_class,
    offer_template,
)
from tests.controller.world import GPU, World, gates, running

pytestmark = pytest.mark.anyio
PER_NODE = 4


@pytest.fixture
def world():
    return with_racks()


def with_racks():
    """Return a world of three nodes in two racks, with a class and templates of its devices."""
    made = World(resources=COUNTED)
    made.furnish(gpus=99)
    made.put(r.RESOURCE_FLAVORS, flavor())
    made.put(r.TOPOLOGIES, racks())
    for name, rack in (("a1", "a"), ("b1", "b"), ("b2", "b")):
        made.put(r.NODES, node(name, rack))
    offer_class(made)
    for name, count in (("one", 1), ("two", 2), ("three", 3)):
        offer_template(made, name, count)
    return made


def offer_slices(world, *nodes):
    for name in nodes:
        devices = [{"name": f"gpu-{number}"} for number in range(PER_NODE)]
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
        world.put(r.RESOURCE_SLICES, {"metadata": {"name": name}, "spec": spec})


def start(world, name, template, pods=1, **asked):
    body = claiming(name, template=template, pods=pods)
    wanted = asked or {f"{P}podset-required-topology": "rack"}
    body["spec"]["template"]["metadata"] = {"annotations": wanted}
    return world.create(r.JOBS, body)


def start_gang(world, template="", shared=""):
    """Start a job of one pod that has a claim and a place."""
    body = claiming("gang", template=template, shared=shared)
    wanted = {f"{P}podset-required-topology": "rack"}
    body["spec"]["template"]["metadata"] = {"annotations": wanted}
    world.create(r.JOBS, body)


def allocate(world, name, node, *devices, pod="", owned=False):
    """Let a claim have devices, as the scheduler does."""
    results = [{"driver": DRIVER, "pool": node, "device": f"gpu-{each}"} for each in devices]
    metadata = {"name": name, "namespace": "ns"}
    status = {"allocation": {"devices": {"results": results}}}
    if pod:
        status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": "p"}]
    if owned:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": "p", "controller": True}
        metadata["ownerReferences"] = [owner]
    world.put(r.RESOURCE_CLAIMS, {"metadata": metadata, "spec": {}, "status": status})


def pending(world, name):
    return world.condition(name, "QuotaReserved")["message"]


async def test_a_gang_goes_where_the_nodes_have_enough_devices_by_claim(world):
    offer_slices(world, "a1", "b1", "b2")
    async with running(world):
        start(world, "first", "two", pods=4)
        await world.pass_time(3)
        assert world.suspended("first") is False
        start(world, "second", "three", pods=1)
        await world.pass_time(3)
        assert world.suspended("second") is False, "the other rack has a node"

        start(world, "third", "one", pods=2)
        await world.pass_time(3)
        assert world.suspended("third") is True
        assert f'devices by claim "{GPU}": 2' in pending(world, "third")

        world.end_job("first")
        await world.pass_time(5)
        assert world.suspended("third") is False


async def test_nodes_limit_no_claims_where_no_driver_publishes_devices(world):
    async with running(world):
        start(world, "big", "three", pods=12)
        await world.pass_time(3)

        assert world.suspended("big") is False


async def test_devices_that_come_or_go_change_where_pods_fit(world):
    offer_slices(world, "a1")
    async with running(world):
        start(world, "gang", "two", pods=4)
        await world.pass_time(3)
        assert "allows to fit only 2 out of 4 pod(s)" in pending(world, "gang")

        offer_slices(world, "b1", "b2")
        await world.pass_time(5)
        assert world.suspended("gang") is False


async def test_devices_of_pods_that_no_topology_placed_are_taken_and_given_back(world):
    offer_slices(world, "a1", "b1", "b2")
    for name in ("a1", "b1", "b2"):
        allocate(world, f"of-{name}", name, 0, 1, 2, pod="stranger", owned=True)
    async with running(world):
        start(world, "gang", "two", pods=1)
        await world.pass_time(3)
        assert f'devices by claim "{GPU}": 3' in pending(world, "gang")

        world.delete(r.RESOURCE_CLAIMS, "of-a1")
        await world.pass_time(5)
        assert world.suspended("gang") is False


async def test_claims_of_placed_pods_are_not_counted_twice_nor_for_less_than_they_have(world):
    offer_slices(world, "a1")
    async with running(world):
        start(world, "first", "one", pods=1)
        await world.pass_time(2)
        make_pods(world, "first", indexes=[0])
        await world.pass_time(2)
        allocate(world, "mine", "a1", 0, pod="first-0", owned=True)
        await world.pass_time(3)
        start(world, "second", "three")
        await world.pass_time(3)
        assert world.suspended("second") is False, "one and three are four"

        world.end_job("second")
        allocate(world, "mine", "a1", 0, 1, 2, pod="first-0", owned=True)
        await world.pass_time(3)
        start(world, "third", "three")
        await world.pass_time(3)
        assert f'devices by claim "{GPU}": ' in pending(world, "third")


async def test_a_restart_leaves_placed_workloads_their_devices(world):
    offer_slices(world, "a1")
    async with running(world):
        start(world, "first", "two")
        await world.pass_time(3)
        assert world.suspended("first") is False

        await world.kill()
        await world.start()
        start(world, "second", "three")
        await world.pass_time(5)
        assert world.suspended("second") is True


async def test_a_template_that_is_replaced_takes_no_more_of_a_node_than_the_quota_of_the_job(world):
    offer_slices(world, "a1")
    async with running(world):
        start(world, "first", "one")
        await world.pass_time(3)

        world.delete(r.RESOURCE_CLAIM_TEMPLATES, "one")
        offer_template(world, "one", 99)
        await world.kill()
        await world.start()
        start(world, "second", "three")
        await world.pass_time(5)
        assert world.suspended("second") is False


async def test_the_devices_of_an_extended_resource_are_those_of_its_class(world):
    offer_class(world, extendedResourceName="example.com/gpu")
    offer_slices(world, "a1")
    async with running(world):
        job = claiming("extended", template="two", pods=2)
        amounts = {"example.com/gpu": "3"}
        container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
        job["spec"]["template"]["spec"] = {"containers": [container]}
        world.create(r.JOBS, job)
        await world.pass_time(3)

        assert "allows to fit only 1 out of 2 pod(s)" in pending(world, "extended")


async def test_a_pod_that_waits_for_its_place_stays_held_while_its_claim_is_more(world):
    async with running(world):
        start(world, "gang", "one", pods=2)
        await world.pass_time(3)
        make_pods(world, "gang", indexes=[0])
        make_claims(world, "gang-0")
        await world.pass_time(2)
        world.delete(r.RESOURCE_CLAIM_TEMPLATES, "one")
        offer_template(world, "one", 3)
        make_pods(world, "gang", indexes=[1])
        make_claims(world, "gang-1")
        await world.pass_time(3)

        assert [bool(gates(world.get(r.PODS, f"gang-{n}"))) for n in range(2)] == [False, True]
        assert "was admitted with 1" in world.events("MoreThanAdmitted")[0]["message"]


async def test_a_pod_gets_its_place_without_a_claim_where_none_is_made_for_it(world):
    async with running(world):
        start(world, "gang", "one")
        await world.pass_time(3)
        make_pods(world, "gang", indexes=[0])
        await world.pass_time(5)
        assert gates(world.get(r.PODS, "gang-0"))

        await world.pass_time(10)
        assert not gates(world.get(r.PODS, "gang-0"))
