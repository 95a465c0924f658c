"""A new leader knows what the last one gave away, though the two stood side by side."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from policyd.controller.run import Controller
from policyd.controller.settings import ControllerSettings
from policyd.controller.writes import CATCH_UP_SECONDS
from policyd.kube import resources as r
from policyd.kube.errors import UnreachableError
from policyd.kube.resources import LEASES
from policyd.testing import FakeClient
from tests.controller.world import World, held_gpus, pod_spec

pytestmark = pytest.mark.anyio


class Slow(FakeClient):
    """A client whose writes to workloads take a while, and whose watch of them is behind."""

    write_seconds = 0.0
    behind_seconds = 0.0
    page_seconds = 0.0
    keeps_lease = True

    async def page(self, resource, **options):
        if resource == r.WORKLOADS:
            await self.store.clock.sleep(self.page_seconds)
        return await super().page(resource, **options)

    async def patch(self, resource, *args, **options):
        if resource == LEASES and not self.keeps_lease:
            raise UnreachableError("the server does not answer")
        if resource == r.WORKLOADS:
            await self.store.clock.sleep(self.write_seconds)
        return await super().patch(resource, *args, **options)

    async def watch(self, resource, **options):
        async for event in super().watch(resource, **options):
            if resource == r.WORKLOADS:
                await self.store.clock.sleep(self.behind_seconds)
            yield event


class Instance:
    """One of two controllers."""

    def __init__(self, world, identity):
        self.client = Slow(world.store)
        settings = ControllerSettings(identity=identity, policies=False)
        self.controller = Controller(self.client, settings, pace=world.clock.pace())
        self.task = asyncio.ensure_future(self.controller.run())


@asynccontextmanager
async def side_by_side(**leader):
    """A leader, a stand-by, and a queue with room for one of two jobs."""
    world = World()
    world.furnish(gpus=8)
    first = Instance(world, "first")
    vars(first.client).update(leader)
    await world.pass_time(2)
    second = Instance(world, "second")
    await world.pass_time(2)
    try:
        yield world, first, second
    finally:
        for instance in (first, second):
            instance.task.cancel()
        await world.pass_time(20)
        await asyncio.gather(first.task, second.task, return_exceptions=True)


def held(world):
    return sum(held_gpus(workload) for workload in world.all(r.WORKLOADS))


async def test_a_write_that_has_begun_ends_before_the_lease_is_given_up():
    async with side_by_side(write_seconds=1.0) as (world, first, _):
        world.job("one")
        await world.pass_time(0.5)
        begun = held(world)
        first.task.cancel()
        await world.pass_time(0.4)
        holder = world.store.get(LEASES, "policyd", "policyd-controller")["spec"]["holderIdentity"]
        world.job("two")
        await world.pass_time(5)

        assert (begun, holder) == (0, "first")
        assert held(world) == 8
        assert world.suspended("one") is False
        assert world.suspended("two") is True


async def test_a_new_leader_waits_until_its_watch_is_as_far_as_the_last_one_was():
    async with side_by_side() as (world, first, second):
        world.job("one")
        second.client.behind_seconds = 1.5
        world.job("two")
        await world.pass_time(0.5)
        before = held(world)
        first.task.cancel()
        await world.pass_time(8)

        assert (before, held(world)) == (8, 8)


async def test_a_word_that_cannot_be_true_is_not_waited_for_long():
    async with side_by_side() as (world, first, second):
        first.controller.writes.written = 10**9
        first.task.cancel()
        await world.pass_time(1)
        world.job("one")
        await world.pass_time(1)
        early = held(world)
        await world.pass_time(CATCH_UP_SECONDS)

        assert (early, held(world)) == (0, 8)
        assert second.controller.election.handed_over == str(10**9)


async def test_a_successor_of_a_lost_leader_reads_what_its_watch_lacks():
    async with side_by_side() as (world, first, second):
        second.client.behind_seconds = 300
        world.create(r.WORKLOADS, of_its_own("one"))
        await world.pass_time(1)
        first.client.keeps_lease = False
        await world.pass_time(30)
        world.job("two")
        await world.pass_time(10)

        assert second.controller.leading()
        assert held(world) == 8


def of_its_own(name, gpus=8):
    """A workload without a job, of which only its watch tells."""
    pods = {"name": "main", "count": 1, "template": {"spec": pod_spec(gpus)}}
    return {"metadata": {"name": name}, "spec": {"queueName": "lq-cq", "podSets": [pods]}}


async def test_a_hanging_write_is_cancelled_before_another_process_leads():
    async with side_by_side() as (world, first, second):
        first.client.write_seconds = 60
        world.job("one")
        await world.pass_time(1)
        first.client.keeps_lease = False
        await world.pass_time(30)

        assert second.controller.leading()
        assert held(world) == 8
        await world.pass_time(60)
        assert held(world) == 8
        writes = [w for w in first.client.writes if w.resource == r.WORKLOADS and w.verb == "patch"]
        assert writes == []


async def test_a_leader_that_loses_the_lease_during_catch_up_starts_over():
    async with side_by_side() as (world, first, second):
        second.client.page_seconds = 60
        first.client.keeps_lease = False
        await world.pass_time(18)
        took_over = second.controller.leading()
        second.client.keeps_lease = False
        await world.pass_time(15)
        second.client.page_seconds = 0
        second.client.keeps_lease = True
        world.job("one")
        await world.pass_time(30)

        assert took_over
        assert second.controller.leading()
        assert held(world) == 8
        assert world.suspended("one") is False


async def test_a_leader_that_wrote_nothing_passes_on_the_version_it_got():
    async with side_by_side() as (world, first, second):
        world.job("one")
        await world.pass_time(1)
        first.task.cancel()
        await world.pass_time(3)
        word = int(second.controller.election.handed_over)
        second.task.cancel()
        await world.pass_time(3)
        lease = world.store.get(LEASES, "policyd", "policyd-controller")

        assert word > 0
        assert int(lease["metadata"]["annotations"]["policyd.io/last-word"]) >= word


async def test_a_leader_that_does_not_know_what_became_of_a_write_leaves_no_version():
    async with side_by_side() as (world, first, second):
        first.client.fail(UnreachableError("no answer"), verb="patch", plural="workloads")
        world.job("one")
        await world.pass_time(1)
        first.task.cancel()
        await world.pass_time(3)

        assert second.controller.leading()
        assert second.controller.election.handed_over == ""
        assert held(world) == 8


async def test_a_returning_leader_does_not_report_reasons_of_its_first_term():
    async with side_by_side() as (world, first, second):
        world.job("one")
        await world.pass_time(2)
        first.client.write_seconds = 60
        for name, gpus in (("two", 8), ("three", 7), ("four", 6)):
            world.create(r.WORKLOADS, of_its_own(name, gpus))
        await world.pass_time(2)
        first.client.keeps_lease = False
        await world.pass_time(30)
        world.queue(gpus=4)
        await world.pass_time(5)
        before = world.events("WaitingForQuota")
        first.client.write_seconds, first.client.keeps_lease = 0.0, True
        second.task.cancel()
        await world.pass_time(10)

        assert first.controller.leading()
        assert len(before) == 3
        assert world.events("WaitingForQuota") == before
