"""What counts against quota, and whose turn it is by what was used, end to end."""

import msgspec
import pytest

from policyd.alloc.settings import Gates, QueueingSettings, UsageBasedOrder
from policyd.api.configuration.kinds import ResourcesConfiguration
from policyd.api.quantity import parse_quantity
from policyd.kube import resources as r
from tests.controller.world import GPU, World, held_gpus, running

pytestmark = pytest.mark.anyio


async def test_a_job_beyond_the_limits_of_its_namespace_says_so_until_they_are_gone():
    world = World()
    world.furnish()
    limits = [{"type": "Container", "max": {GPU: "4"}}]
    world.put(
        r.LIMIT_RANGES,
        {"metadata": {"name": "small", "namespace": "ns"}, "spec": {"limits": limits}},
    )
    async with running(world):
        world.job("big")
        await world.pass_time(2)
        refused = world.condition("big", "QuotaReserved")

        world.delete(r.LIMIT_RANGES, "small")
        await world.pass_time(2)

        assert refused["reason"] == "Misconfigured"
        assert "requests must not be above the limitRange max" in refused["message"]
        assert world.suspended("big") is False


async def test_resources_count_as_what_the_administrator_says():
    transformation = {"input": GPU, "strategy": "Replace", "outputs": {"example.com/credits": "3"}}
    world = World(
        resources=msgspec.convert({"transformations": [transformation]}, ResourcesConfiguration)
    )
    world.furnish()
    quota = {"name": "example.com/credits", "nominalQuota": "8"}
    group = {
        "coveredResources": ["example.com/credits"],
        "flavors": [{"name": "h100", "resources": [quota]}],
    }
    world.queue(resourceGroups=[group])
    async with running(world):
        world.job("small", gpus=2)
        world.job("big", gpus=3)
        await world.pass_time(2)

        (assignment,) = world.workload_of("small")["status"]["admission"]["podSetAssignments"]
        assert assignment["resourceUsage"] == {"example.com/credits": "6"}
        assert world.suspended("big") is True


async def test_a_local_queue_with_less_recent_usage_goes_first():
    sharing = UsageBasedOrder(half_life_seconds=600, sampling_seconds=60)
    world = World(QueueingSettings(admission_fair_sharing=sharing))
    world.furnish(admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"})
    world.put(
        r.LOCAL_QUEUES,
        {"metadata": {"name": "idle", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}},
    )
    async with running(world):
        world.job("first")
        await world.pass_time(121)
        world.job("again")
        await world.pass_time(2)
        world.job("late", queue="idle")
        await world.pass_time(2)
        world.end_job("first")
        await world.pass_time(2)

        assert held_gpus(world.workload_of("late")) == 8
        assert held_gpus(world.workload_of("again")) == 0
        status = world.get(r.LOCAL_QUEUES, "lq-cq")["status"]["fairSharing"]
        past = status["admissionFairSharingStatus"]
        assert parse_quantity(past["consumedResources"][GPU]).sign() > 0
        assert past["lastUpdate"]


@pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
@pytest.mark.parametrize("by_usage", [True, False], ids=["by-usage", "by-age"])
@pytest.mark.gate("AdmissionFairSharingAnchorAtQuotaReservation")
async def test_quota_that_waits_for_checks_counts_as_usage_from_its_reservation(on, by_usage):
    sharing = UsageBasedOrder(half_life_seconds=600, sampling_seconds=60)
    gates = Gates(admission_fair_sharing_anchor_at_quota_reservation=on)
    world = World(QueueingSettings(gates=gates, admission_fair_sharing=sharing))
    mode = "UsageBasedAdmissionFairSharing" if by_usage else "NoAdmissionFairSharing"
    checks = {"admissionChecks": [{"name": "never"}]}
    world.furnish(admissionScope={"admissionMode": mode}, admissionChecksStrategy=checks)
    active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
    check = {"metadata": {"name": "never"}, "spec": {"controllerName": "example.com/by-hand"}}
    world.put(r.ADMISSION_CHECKS, {**check, "status": {"conditions": [active]}})
    async with running(world):
        world.job("waits")
        await world.pass_time(2)
        history = world.controller.cache.state.history
        await world.pass_time(600)

        assert held_gpus(world.workload_of("waits")) == 8
        used = history.entries["ns/lq-cq"].consumed.get(GPU, 0) / 10**9
        assert (used > 3) is (on and by_usage)
        assert bool(history.entries["ns/lq-cq"].penalties) is (by_usage and not on)


async def test_usage_before_a_restart_counts_after_it():
    sharing = UsageBasedOrder(half_life_seconds=6_000, sampling_seconds=60)
    world = World(QueueingSettings(admission_fair_sharing=sharing))
    world.furnish(admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"})
    async with running(world):
        world.job("first")
        await world.pass_time(182)
        before = world.controller.cache.state.local_usage["ns/lq-cq"]
    async with running(world):
        after = world.controller.cache.state.local_usage["ns/lq-cq"]

    assert after == pytest.approx(before, rel=0.05)


@pytest.mark.parametrize("scope", [{}, {"admissionMode": "UsageBasedAdmissionFairSharing"}])
async def test_an_idle_queue_shows_that_it_used_nothing(scope):
    sharing = UsageBasedOrder(half_life_seconds=600, sampling_seconds=60)
    world = World(QueueingSettings(admission_fair_sharing=sharing))
    world.furnish(**({"admissionScope": scope} if scope else {}))
    async with running(world):
        await world.pass_time(2)

        status = world.get(r.LOCAL_QUEUES, "lq-cq")["status"]["fairSharing"]
        assert status["admissionFairSharingStatus"]["consumedResources"] == {GPU: "0"}
