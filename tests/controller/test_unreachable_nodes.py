"""Pods on nodes that no longer answer: ended by force where their owners say that this is safe."""

from datetime import UTC, datetime

import pytest

from policyd.alloc.settings import Gates, QueueingSettings
from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError
from tests.controller.topology.test_topologies import node
from tests.controller.world import World, condition, names, running

pytestmark = pytest.mark.anyio

SAFE = "kueue.x-k8s.io/safe-to-forcefully-delete"
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
MESSAGE = (
    "Pod forcefully terminated after 90s grace period due to unreachable node `a1`"
    " (triggered by `kueue.x-k8s.io/safe-to-forcefully-delete` annotation)"
)


def world_with(*, failure_recovery_policy=True):
    gates = Gates(failure_recovery_policy=failure_recovery_policy)
    world = World(QueueingSettings(gates=gates))
    world.furnish(gpus=16)
    return world


def put_node(world, *taints):
    world.put(r.NODES, {**node("a1", "a", ready="Unknown"), "spec": {"taints": [*taints]}})


def put_pod(world, name="p", *, phase="Running", deleted=True, annotations=None, namespace="ns"):
    given = {SAFE: "true"} if annotations is None else annotations
    metadata = {"name": name, "namespace": namespace, "annotations": given}
    if deleted:  # the time that the API server writes is the end of the grace period
        ends = datetime.fromtimestamp(world.clock.now() + 30, UTC).isoformat()
        metadata |= {"deletionTimestamp": ends, "deletionGracePeriodSeconds": 30}
    spec = {"nodeName": "a1", "containers": [{"name": "c"}]}
    ready = {"type": "Ready", "status": "False"}
    status = {"phase": phase, "conditions": [ready]}
    world.put(r.PODS, {"metadata": metadata, "spec": spec, "status": status})


def last_seen(world):
    """Return the pod as it was before it was removed."""
    return [c.new for c in world.store.history if c.resource == r.PODS and c.new is not None][-1]


@pytest.mark.gate("FailureRecoveryPolicy")
@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
async def test_a_pod_on_an_unreachable_node_is_ended_by_force(on):
    world = world_with(failure_recovery_policy=on)
    put_node(world, UNREACHABLE)
    put_pod(world)
    async with running(world):
        await world.pass_time(88)
        assert names(world, r.PODS) == ["p"]
        assert last_seen(world)["status"]["phase"] == "Running"

        await world.pass_time(5)

        assert names(world, r.PODS) == ([] if on else ["p"])
        found = last_seen(world)
        assert found["status"]["phase"] == ("Failed" if on else "Running")
        assert condition(found, "Ready")
        ended = condition(found, "KueueFailureRecovery")
        assert (ended.get("reason"), ended.get("message")) == (
            ("KueueForcefullyDeleted", MESSAGE) if on else (None, None)
        )
        events = world.events("KueueForcefullyDeleted")
        assert [(each["type"], each["message"]) for each in events] == [("Warning", MESSAGE)] * on


@pytest.mark.parametrize(
    ("taint", "given"),
    [
        pytest.param(UNREACHABLE, {"deleted": False}, id="it-is-not-deleted"),
        pytest.param(UNREACHABLE, {"annotations": {}}, id="its-owner-does-not-say"),
        pytest.param(UNREACHABLE, {"annotations": {SAFE: "yes"}}, id="its-owner-says-something"),
        pytest.param({"key": "maintenance", "effect": "NoExecute"}, {}, id="the-node-answers"),
    ],
)
async def test_a_pod_is_left_to_kubernetes(taint, given):
    world = world_with()
    put_node(world, taint)
    put_pod(world, **given)
    async with running(world):
        await world.pass_time(300)

        assert last_seen(world)["status"]["phase"] == "Running"
        assert names(world, r.PODS) == ["p"]


async def test_a_node_that_is_lost_later_ends_the_pods_that_wait_there():
    world = world_with()
    put_node(world)
    put_pod(world)
    async with running(world):
        await world.pass_time(300)
        assert names(world, r.PODS) == ["p"]

        put_node(world, UNREACHABLE)
        await world.pass_time(2)

        assert names(world, r.PODS) == []


async def test_a_pod_that_is_deleted_later_is_ended_after_its_own_time():
    world = world_with()
    put_node(world, UNREACHABLE)
    put_pod(world, "early")
    put_pod(world, "late", deleted=False)
    async with running(world):
        await world.pass_time(50)
        put_pod(world, "late")
        await world.pass_time(50)
        assert names(world, r.PODS) == ["late"]

        await world.pass_time(45)

        assert names(world, r.PODS) == []


async def test_a_pod_that_has_ended_keeps_its_phase():
    world = world_with()
    put_node(world, UNREACHABLE)
    put_pod(world, phase="Succeeded")
    async with running(world):
        await world.pass_time(95)

        assert names(world, r.PODS) == []
        assert last_seen(world)["status"]["phase"] == "Succeeded"


async def test_a_pod_that_may_not_be_ended_keeps_no_other():
    world = world_with()
    put_node(world, UNREACHABLE)
    put_pod(world, "a")
    put_pod(world, "b")
    async with running(world):
        await world.pass_time(85)
        world.client.fail(ForbiddenError("no"), verb="patch", plural="pods")
        await world.pass_time(6)
        assert "b" not in names(world, r.PODS)

        await world.pass_time(60)

        assert names(world, r.PODS) == []
        assert len(world.events("KueueForcefullyDeleted")) == 2


async def test_a_controller_that_stopped_between_both_writes_is_continued():
    world = world_with()
    put_node(world, UNREACHABLE)
    put_pod(world)
    await world.start(writes=1, after=True)
    await world.pass_time(95)
    await world.kill()
    assert last_seen(world)["status"]["phase"] == "Failed"
    async with running(world):
        await world.pass_time(5)

        assert names(world, r.PODS) == []
