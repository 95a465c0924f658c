"""Killed at any write while pods go to their places, and to others when a node is gone."""

import asyncio
from collections import Counter

import pytest

from policyd.kube import resources as r
from tests.controller.test_kills import settle
from tests.controller.topology.test_topologies import (
    RACK,
    P,
    flavor,
    job,
    make_pods,
    node,
    places,
    racks,
)
from tests.controller.world import World, gates

NODES = {"a1": "a", "b1": "b", "b2": "b", "b3": "b"}
WRITES = 14
"""More than the scenario below takes."""


def furnished():
    world = World()
    world.furnish(gpus=16)
    world.put(r.RESOURCE_FLAVORS, flavor())
    world.put(r.TOPOLOGIES, racks())
    for name, rack in NODES.items():
        world.put(r.NODES, node(name, rack))
    return world


async def scenario(world):
    """Start a gang in a rack, then lose a node on which two of its pods are."""
    job(world, **{f"{P}podset-required-topology": RACK})
    await settle(world)
    assert not world.suspended("ring")
    make_pods(world)
    await settle(world)
    check_places(world, lost="")

    lost = min(places(world).values())
    world.store.delete(r.NODES, world.store.get(r.NODES, "", lost), dry_run=False)
    again = [name for name, at in places(world).items() if at == lost]
    for name in again:
        world.delete(r.PODS, name)
    await settle(world)
    make_pods(world, indexes=[int(name[-1]) for name in again])
    await settle(world)
    check_places(world, lost=lost)


def check_places(world, *, lost):
    assert not any(gates(pod) for pod in world.all(r.PODS))
    found = Counter(places(world).values())
    assert found.total() == 4
    assert {NODES[name] for name in found} == {"b"}
    assert max(found.values()) == 2
    assert lost not in found
    assert world.is_true("ring", "Admitted")
    assert not world.workload_of("ring")["status"].get("unhealthyNodes")
    assert world.condition("ring", "Evicted") == {}


async def played(writes=None, *, after=False):
    world = furnished()
    await world.start(writes=writes, after=after)
    try:
        await scenario(world)
        return world.client.counted
    finally:
        await world.kill()


@pytest.mark.parametrize("after", [False, True], ids=["before-it", "after-it"])
@pytest.mark.parametrize("writes", range(WRITES))
def test_a_kill_at_any_write_leaves_every_pod_in_its_place(writes, after):
    asyncio.run(played(writes, after=after))


def test_the_scenario_takes_no_more_writes_than_are_tried():
    assert 8 < asyncio.run(played()) <= WRITES
