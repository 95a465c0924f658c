"""A pending job that names no queue any more, as its user may have it: it holds no quota."""

import pytest

from policyd.jobs.integrations import Integrations
from policyd.jobs.kinds.ray_job import RAY_JOB
from policyd.kube import resources as r
from policyd.testing import FakeClient
from tests.controller.world import QUEUE, World, held_gpus, pod_spec, running

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


def owned(kind, *, controller):
    """Return a Workload that waits; one job of a kind controls it, or fifty own it."""
    owner = {"apiVersion": kind.api_version, "kind": kind.kind, "controller": controller}
    owners = [
        {**owner, "name": f"j{number}", "uid": f"u{number}"}
        for number in range(1 if controller else 50)
    ]
    metadata = {"name": "w", "namespace": "ns", "ownerReferences": owners}
    pod_sets = [{"name": "main", "count": 1, "template": {"spec": pod_spec(1)}}]
    return {"metadata": metadata, "spec": {"queueName": "lq-cq", "podSets": pod_sets}}


@pytest.mark.parametrize(
    ("kind", "on", "controller", "asked"),
    [
        pytest.param(RAY_JOB, True, True, {"j0"}, id="the-one-that-controls-it"),
        pytest.param(RAY_JOB, False, True, set(), id="of-a-kind-that-does-not-queue-here"),
        pytest.param(RAY_JOB, True, False, set(), id="owners-that-do-not-control-it"),
    ],
)
async def test_only_a_job_is_asked_for_that_may_have_left(monkeypatch, kind, on, controller, asked):
    found, world, get = set(), World(), FakeClient.get

    async def noted(self, resource, name, **options):
        if options["into"] is kind.type:  # not to see whether it is there: all of it
            found.add(name)
        return await get(self, resource, name, **options)

    monkeypatch.setattr(FakeClient, "get", noted)
    world.integrations = Integrations(
        kinds=frozenset({(kind.group, kind.kind)}) if on else frozenset()
    )
    world.furnish()
    async with running(world):
        world.put(r.WORKLOADS, owned(kind, controller=controller))
        await world.pass_time(5)

    assert found == asked
