"""What is written of what cycles decide, and when."""

import pytest

from policyd.alloc.settings import FairSharingRules, QueueingSettings
from policyd.kube import resources as r
from tests.controller.world import GPU, World, plain, running

pytestmark = pytest.mark.anyio

CLASS = "kueue.x-k8s.io/priority-class"


@pytest.fixture
def world():
    """Two queues of 8 GPUs that share."""
    return furnished()


def furnished(**settings):
    made = World(QueueingSettings(**settings))
    for name, value in (("low", 1), ("high", 9)):
        made.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    rules = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
    made.furnish(cohort="all", preemption=rules)
    made.queue("other", cohort="all", preemption=rules)
    return made


def held_once(world):
    """The jobs whose workloads ever had quota."""
    admitted = [event["involvedObject"]["name"] for event in world.events("QuotaReserved")]
    return {name.split("-")[1] for name in admitted}


async def test_a_brief_borrower_has_lost_nothing(world):
    # One cycle has the first of each queue: `own1` fits, and `loan` borrows what is left. In the
    # next one comes `own2`, and takes that back.
    world.job("own1", gpus=4)
    world.job("own2", gpus=4)
    world.job("loan", gpus=12, queue="lq-other")

    async with running(world):
        await world.pass_time(2)

        assert held_once(world) == {"own1", "own2"}
        assert not world.events("Preempted")
        assert world.suspended("loan")
        reason = world.condition("loan", "QuotaReserved")["reason"]
        assert reason == "WaitingForQuota"
        for name in ("own1", "own2"):
            world.end_job(name)
        await world.pass_time(2)
        assert not world.suspended("loan")


async def test_written_workloads_are_preempted_as_usual(world):
    world.job("loan", gpus=12, queue="lq-other")
    async with running(world):
        await world.pass_time(2)
        assert not world.suspended("loan")

        world.job("own1", gpus=8)
        await world.pass_time(2)

        assert world.condition("loan", "Preempted")["reason"] == "InCohortReclamation"


async def test_a_moment_passes_before_what_came_free_goes_to_the_less_important(world):
    world.job("full", queue="lq-other")
    async with running(world):
        world.job("first", **{CLASS: "low"})
        await world.pass_time(2)
        world.job("runs", **{CLASS: "high"})
        await world.pass_time(2)
        assert world.suspended("first")
        assert not world.suspended("runs")

        world.end_job("runs")
        await world.pass_time(0.1)
        world.job("urgent", **{CLASS: "high"})
        await world.pass_time(2)

        assert held_once(world) == {"full", "first", "runs", "urgent"}
        assert world.suspended("first")
        (evictions,) = world.workload_of("first")["status"]["schedulingStats"]["evictions"]
        assert evictions["count"] == 1
        world.end_job("urgent")
        await world.pass_time(2)
        assert not world.suspended("first")


def lend(world, gpus):
    """Give the cohort quota of its own."""
    flavor = {"name": "h100", "resources": [{"name": GPU, "nominalQuota": str(gpus)}]}
    group = {"coveredResources": [GPU], "flavors": [flavor]}
    world.put(r.COHORTS, {"metadata": {"name": "all"}, "spec": {"resourceGroups": [group]}})


async def test_a_preemptor_that_waits_for_other_victims_does_not_take_turns_with_one():
    # `loan` would borrow 4, and `large` 6: so `loan` comes first. But `large` preempts `stops` of
    # its own queue: then it would borrow 2, and preempts `loan`, too. Kueue does so again and again
    # until `stops` has stopped; kubernetes-sigs/kueue#14543 is alike.
    world = furnished(fair_sharing=FairSharingRules())
    lend(world, 0)
    world.job("base", queue="lq-other")
    world.job("small", gpus=2, **{CLASS: "high"})
    world.job("stops", gpus=4, **{CLASS: "low"})
    async with running(world):
        await world.pass_time(2)
        world.set_status(r.JOBS, "stops", active=1)
        world.job("loan", gpus=4, queue="lq-other")
        world.job("large", gpus=8, **{CLASS: "high"})
        await world.pass_time(2)

        lend(world, 4)
        await world.pass_time(30)

        assert world.is_true("stops", "Evicted")
        assert held_once(world) == {"base", "small", "stops"}
        assert "no longer fits" in world.condition("loan", "QuotaReserved")["message"]
        world.set_status(r.JOBS, "stops", active=0)
        await world.pass_time(2)
        assert not world.suspended("large")
        assert held_once(world) == {"base", "small", "stops", "large"}


async def test_the_status_of_a_queue_wakes_no_cycle(world):
    async with running(world):
        await world.pass_time(2)
        cycles, bursts = world.controller.workloads.cycles, []
        burst = cycles.burst
        cycles.burst = lambda: bursts.append(world.clock.now()) or burst()
        queue = plain(world.store.get(r.CLUSTER_QUEUES, "", "cq"))

        status = {**queue["status"], "pendingWorkloads": 7}
        world.store.replace(r.CLUSTER_QUEUES, queue, {**queue, "status": status}, part="status")
        await world.pass_time(2)

        found = world.store.get(r.CLUSTER_QUEUES, "", "cq")["status"]
        assert not found.get("pendingWorkloads"), "the change was noticed"
        assert bursts == []


async def test_a_reason_that_is_written_wakes_no_cycle(world):
    # The search of a strict queue's head goes on where it stopped, and fails at another pod set
    # each time: a cycle for each reason would write another one, and so on for ever.
    world.job("holder")
    world.job("borrower", queue="lq-other")
    async with running(world):
        await world.pass_time(2)
        cycles, bursts = world.controller.workloads.cycles, []
        burst = cycles.burst
        world.job("waits")
        await world.pass_time(5)
        cycles.burst = lambda: bursts.append(world.clock.now()) or burst()
        workload = plain(world.workload_of("waits"))
        conditions = workload["status"]["conditions"]

        other = [{**each, "message": "another reason"} for each in conditions]
        status = {**workload["status"], "conditions": other}
        world.store.replace(r.WORKLOADS, workload, {**workload, "status": status}, part="status")
        await world.pass_time(2)

        assert bursts == []
        await world.pass_time(10)
        assert world.condition("waits", "QuotaReserved")["message"] != "another reason"
