"""A pending job that names no queue any more, as its user may have it: it holds no quota."""

import pytest

from policyd.kube import resources as r
from tests.controller.world import QUEUE, World, held_gpus, running

pytestmark = pytest.mark.anyio


def relabel(world, name, queue):
    """Change the queue of a job; None takes it away."""
    job = world.get(r.JOBS, name)
    job["metadata"]["labels"] = {QUEUE: queue} if queue else {}
    world.store.replace(r.JOBS, world.store.get(r.JOBS, "ns", name), job)


@pytest.fixture
async def behind():
    """A world in which the job `b` waits behind `a`."""
    world = World()
    world.furnish()
    async with running(world):
        world.job("a")
        await world.pass_time(2)
        world.job("b")
        await world.pass_time(2)
        yield world


async def test_it_leaves_no_workload_behind_that_would_get_quota(behind):
    relabel(behind, "b", None)
    await behind.pass_time(2)
    behind.job("c")
    behind.end_job("a")
    await behind.pass_time(5)

    assert behind.workload_of("b") is None
    assert held_gpus(behind.workload_of("c")) == 8


async def test_nor_if_the_controller_was_killed_meanwhile(behind):
    await behind.kill()
    relabel(behind, "b", None)
    await behind.start()
    await behind.pass_time(5)

    assert behind.workload_of("b") is None


async def test_it_may_come_back(behind):
    relabel(behind, "b", None)
    await behind.pass_time(2)
    relabel(behind, "b", "lq-cq")
    await behind.pass_time(2)
    behind.end_job("a")
    await behind.pass_time(5)

    assert held_gpus(behind.workload_of("b")) == 8


async def test_a_job_that_runs_keeps_its_quota(behind):
    relabel(behind, "a", None)  # as can be while the webhooks are away
    await behind.pass_time(5)

    assert held_gpus(behind.workload_of("a")) == 8
