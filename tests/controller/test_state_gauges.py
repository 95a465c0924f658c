"""policyd's own gauges of queues and pods: what alerts are about."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from policyd.api.pods import SchedulingGate
from policyd.controller.metrics.queue_metrics import own_samples
from tests.controller.world import GATE, GPU, World, running

pytestmark = pytest.mark.anyio

FREE = {"cluster_queue": "cq", "flavor": "h100", "resource": GPU}


@pytest.fixture
async def world():
    made = World()
    made.furnish()
    async with running(made):
        yield made


def own(world, name, **labels):
    return world.controller.health.metrics.registry.get_sample_value(f"policyd_{name}", labels)


async def test_quota_is_available_until_it_is_reserved_and_overdrawn_once_it_shrinks(world):
    before = own(world, "available_quota", **FREE)
    world.job("train", gpus=6)
    await world.pass_time(2)
    held = own(world, "available_quota", **FREE)
    world.queue(gpus=4)
    await world.pass_time(0.2)

    assert (before, held) == (8, 2)
    assert own(world, "available_quota", **FREE) == -2


async def test_the_longest_wait_grows_until_its_workload_gets_quota(world):
    world.job("first", gpus=8)
    await world.pass_time(2)
    world.job("second", gpus=8)
    await world.pass_time(60)
    waited = own(world, "longest_pending_seconds", cluster_queue="cq")
    world.end_job("first")
    await world.pass_time(3)

    assert 55 <= waited <= 61
    assert own(world, "longest_pending_seconds", cluster_queue="cq") == 0


async def test_a_gate_is_stuck_a_minute_after_the_admission(world):
    world.pod("held", gpus=1)
    await world.pass_time(2)
    (pod,) = world.controller.mirrors.pods
    gated = replace(pod, spec=replace(pod.spec, scheduling_gates=(SchedulingGate(name=GATE),)))
    cache, found = world.controller.cache, []
    for seconds in (30, 60):
        mirrors = SimpleNamespace(
            pods=[gated],
            placed=[],
            cluster_queues=SimpleNamespace(in_turns=lambda: ()),
            workloads=cache.mirrors.workloads,
        )
        seen = SimpleNamespace(
            mirrors=mirrors, index=cache.index, now=cache.now + seconds, state=cache.state
        )
        found.append({labels: number for _, labels, number in own_samples(seen)}["Admitted",])

    assert found == [0, 1]
    assert own(world, "stuck_gates", reason="Admitted") == 0


async def test_a_gated_pod_without_a_workload_is_stuck():
    world = World()
    world.furnish()
    async with running(world):
        world.pod("one", gpus=1, group="gang", total=2)  # its group is incomplete
        await world.pass_time(2)
        young = own(world, "stuck_gates", reason="NoWorkload")
        await world.pass_time(90)

        assert young == 0
        assert own(world, "stuck_gates", reason="NoWorkload") == 1


async def test_missing_reasons_are_counted_until_they_are_written(world):
    world.job("runs", gpus=8)
    await world.pass_time(2)
    world.job("waits", gpus=8)
    await world.pass_time(20)

    registry = world.controller.health.metrics.registry
    assert own(world, "stale_reasons", problem="missing") == 0
    assert own(world, "stale_reasons", problem="outdated") == 0
    complete = registry.get_sample_value("policyd_reason_checks_total", {"outcome": "complete"})
    assert complete > 0
    assert registry.get_sample_value("policyd_reason_checks_total", {"outcome": "failed"}) is None
