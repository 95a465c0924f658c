"""Objects that nobody foresaw: whoever writes one stops nobody else's."""

import msgspec
import pytest

from policyd.alloc import cycle
from policyd.api.kueue import FairSharing
from policyd.jobs.kinds.leader_worker_set import LEADER_WORKER_SET, MOST_REPLICAS
from policyd.kube import resources as r
from policyd.workload.conversion import MOST_WEIGHT, weight_of
from tests.attacks.mutated_objects import mutated_objects
from tests.controller.world import GPU, World, running

ANYIO = pytest.mark.anyio


def test_odd_values_in_any_place_stop_no_process():
    assert mutated_objects(scenes=4, rounds=15).faults == ()


@pytest.mark.parametrize(
    ("weight", "means"), [("2", 2.0), ("1e400", MOST_WEIGHT), ("9" * 900, MOST_WEIGHT), ("x", 1.0)]
)
def test_a_weight_is_a_number_whatever_is_written(weight, means):
    assert weight_of(FairSharing(weight)) == means


@pytest.fixture
async def world():
    made = World()
    made.furnish(gpus=2)
    async with running(made):
        yield made


@ANYIO
async def test_a_local_queue_of_endless_weight_ends_no_controller(world):
    spec = {"clusterQueue": "cq", "fairSharing": {"weight": "1e400"}}
    world.put(r.LOCAL_QUEUES, {"metadata": {"name": "heavy", "namespace": "ns"}, "spec": spec})
    await world.pass_time(2)

    world.job("train", gpus=1)
    await world.pass_time(2)

    assert not world.suspended("train")


@ANYIO
@pytest.mark.breaks
async def test_a_listener_that_breaks_keeps_nothing_from_the_others(world):
    def breaks(_change):
        raise ZeroDivisionError

    world.controller.mirrors.workloads.listen(breaks)
    received = []
    world.controller.mirrors.workloads.listen(received.append)

    world.job("train", gpus=1)
    await world.pass_time(2)

    assert received
    assert not world.suspended("train")


@ANYIO
@pytest.mark.breaks
async def test_a_workload_that_breaks_a_cycle_is_left_out_until_it_changes(world, monkeypatch):
    entry = cycle.Nominator.entry
    broken = {"ns"}

    def breaks(self, ticket, options):
        if broken and "odd" in ticket.workload.key:
            raise ZeroDivisionError
        return entry(self, ticket, options)

    monkeypatch.setattr(cycle.Nominator, "entry", breaks)
    world.job("odd", gpus=1)
    await world.pass_time(2)
    world.job("train", gpus=1)
    await world.pass_time(2)

    assert not world.suspended("train")
    assert world.suspended("odd")

    broken.clear()
    (workload,) = [w for w in world.all(r.WORKLOADS) if "odd" in w["metadata"]["name"]]
    world.put(r.WORKLOADS, {**workload, "spec": {**workload["spec"], "priority": 1}})
    await world.pass_time(2)

    assert not world.suspended("odd")


@ANYIO
@pytest.mark.breaks
async def test_a_status_that_cannot_be_worked_out_keeps_no_others_from_being_written(
    world, monkeypatch
):
    statuses = world.controller.statuses
    write = statuses._write_cluster_queue

    async def breaks(name):
        if name == "cq":
            raise ZeroDivisionError
        await write(name)

    monkeypatch.setattr(statuses, "_write_cluster_queue", breaks)
    world.queue("other", gpus=1)
    await world.pass_time(3)

    (other,) = [q for q in world.all(r.CLUSTER_QUEUES) if q["metadata"]["name"] == "other"]
    assert other["status"]["conditions"]


@ANYIO
async def test_a_node_has_none_of_what_it_does_not_say_as_a_quantity(world):
    levels = [{"nodeLabel": "kubernetes.io/hostname"}]
    world.put(r.TOPOLOGIES, {"metadata": {"name": "t"}, "spec": {"levels": levels}})
    spec = {"nodeLabels": {"gpu": "h100"}, "topologyName": "t"}
    world.put(r.RESOURCE_FLAVORS, {"metadata": {"name": "h100"}, "spec": spec})
    for name, gpus in (("odd", "many"), ("good", "2")):
        labels = {"gpu": "h100", "kubernetes.io/hostname": name}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"allocatable": {GPU: gpus, "pods": "10"}, "conditions": ready}
        world.put(r.NODES, {"metadata": {"name": name, "labels": labels}, "status": status})
    await world.pass_time(2)

    nodes = world.controller.cache.state.ledger.nodes
    assert {name: nodes.node(name).allocatable.get(GPU) for name in ("odd", "good")} == {
        "odd": None,
        "good": 2,
    }


@pytest.mark.parametrize("text", ["9" * 5000 + "%", "2147483647%", "2147483647"])
def test_a_set_has_no_more_groups_than_can_be_looked_after(text):
    surge = int(text) if text.isdecimal() else text
    body = {
        "spec": {
            "replicas": 2**31 - 1,
            "rolloutStrategy": {"rollingUpdateConfiguration": {"maxSurge": surge}},
        },
        "status": {"replicas": 2, "updatedReplicas": 1},
    }
    groups = LEADER_WORKER_SET.groups(msgspec.convert(body, LEADER_WORKER_SET.type))

    assert len(groups) == MOST_REPLICAS
