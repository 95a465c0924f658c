"""Preemption in the cluster: who is stopped, what is told, who comes back; whatever fails."""

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.alloc.settings import FairSharingRules, QueueingSettings
from policyd.api.kueue import Workload
from policyd.kube import resources as r
from policyd.workload.records import preemptor_of
from tests.controller.test_kills import (
    QUOTA,
    check_history,
    end_what_runs,
    ended,
    left_over,
    settle,
    stop_what_is_suspended,
)
from tests.controller.world import World, condition, gates, held_gpus, plain, running

pytestmark = pytest.mark.anyio

CLASS = "kueue.x-k8s.io/priority-class"


def furnish(world, **queue):
    for name, value in (("low", 1), ("high", 9)):
        world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    world.furnish(preemption={"withinClusterQueue": "LowerPriority"}, **queue)


@pytest.fixture
async def world():
    made = World()
    furnish(made)
    async with running(made):
        yield made


async def start(world, name, priority="low", **job):
    world.job(name, **{CLASS: priority}, **job)
    await world.pass_time(1)


async def test_a_pod_that_was_never_let_go_queues_again():
    world = World()
    furnish(world, admissionChecksStrategy={"admissionChecks": [{"name": "slow"}]})
    active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
    check = {"metadata": {"name": "slow"}, "spec": {"controllerName": "example.com/slow"}}
    world.put(r.ADMISSION_CHECKS, {**check, "status": {"conditions": [active]}})
    async with running(world):
        world.pod("waits", gpus=8)
        await world.pass_time(2)
        assert world.is_true("waits", "QuotaReserved")

        await start(world, "urgent", "high")
        await world.pass_time(2)

        assert world.is_true("waits", "Requeued")
        assert gates(world.get(r.PODS, "waits"))


@pytest.mark.parametrize("late", ["Retry", "Rejected"])
async def test_an_answer_of_a_check_that_comes_after_an_eviction_is_void(late):
    world = World()
    furnish(world, admissionChecksStrategy={"admissionChecks": [{"name": "slow"}]})
    active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
    check = {"metadata": {"name": "slow"}, "spec": {"controllerName": "example.com/slow"}}
    world.put(r.ADMISSION_CHECKS, {**check, "status": {"conditions": [active]}})

    def answer(state):
        workload = world.workload_of("victim")
        checks = [{**each, "state": state} for each in workload["status"]["admissionChecks"]]
        status = {**workload["status"], "admissionChecks": checks}
        world.store.replace(r.WORKLOADS, workload, {**workload, "status": status}, part="status")

    async with running(world):
        await start(world, "victim")
        answer("Ready")
        await world.pass_time(1)
        world.set_status(r.JOBS, "victim", active=1)
        await start(world, "urgent", "high")
        assert world.is_true("victim", "Evicted")

        answer(late)
        world.set_status(r.JOBS, "victim", active=0)
        await world.pass_time(1)
        assert not world.is_true("victim", "QuotaReserved")
        world.delete(r.JOBS, "urgent")
        await world.pass_time(5)

        assert world.is_true("victim", "QuotaReserved")


async def test_a_more_important_job_takes_the_place_of_another(world):
    await start(world, "victim")
    assert not world.suspended("victim")

    await start(world, "urgent", "high")

    assert not world.suspended("urgent")
    assert world.suspended("victim")
    victim = world.workload_of("victim")
    uid, job = (world.workload_of("urgent")["metadata"]["uid"], world.get(r.JOBS, "urgent"))
    message = (
        f"Preempted to accommodate a workload (UID: {uid}, JobUID: {job['metadata']['uid']})"
        " due to prioritization in the ClusterQueue; preemptor path: /cq; preemptee path: /cq"
    )
    assert condition_text(victim, "Evicted") == ("True", "Preempted", message)
    assert condition_text(victim, "Preempted") == ("True", "InClusterQueue", message)
    assert condition_text(victim, "Requeued") == ("True", "Preempted", message)
    assert condition(victim, "QuotaReserved")["status"] == "False"
    counted = victim["status"]["schedulingStats"]["evictions"]
    assert [(e["reason"], e["count"]) for e in counted] == [("Preempted", 1)]


def condition_text(workload, kind):
    found = condition(workload, kind)
    return found["status"], found["reason"], found["message"]


async def test_both_sides_get_events(world):
    await start(world, "victim")
    await start(world, "urgent", "high")

    victim, urgent = (world.workload_of(name)["metadata"] for name in ("victim", "urgent"))
    events = {e["reason"]: (e["involvedObject"]["name"], e["message"]) for e in world.events()}
    priorities = (
        "preemptor effective priority: 9 (base: 9, boost: 0);"
        " preemptee effective priority: 1 (base: 1, boost: 0)"
    )
    assert events["EvictedDueToPreempted"][0] == victim["name"]
    assert events["Preempted"][0] == victim["name"]
    assert events["Preempted"][1].endswith(f"; {priorities}")
    assert events["PreemptedWorkload"] == (
        urgent["name"],
        f"Preempted workload ns/{victim['name']} (UID: {victim['uid']}) in ClusterQueue cq;"
        f" {priorities}",
    )


async def test_the_preemptor_says_whom_it_waits_for(world):
    await start(world, "victim")
    world.set_status(r.JOBS, "victim", active=1)

    await start(world, "urgent", "high")

    assert world.suspended("victim"), "it is being stopped, though its pod is still there"
    reserved = world.condition("urgent", "QuotaReserved")
    assert reserved["reason"] == "WaitingForPreemptedWorkloads"
    assert "8 more needed. Pending the preemption of 1 workload(s)" in reserved["message"]
    assert world.suspended("urgent")

    world.set_status(r.JOBS, "victim", active=0)
    await world.pass_time(1)

    assert not world.suspended("urgent")


async def test_the_victim_runs_again_when_there_is_room(world):
    await start(world, "victim")
    await start(world, "urgent", "high")

    world.end_job("urgent")
    await world.pass_time(2)

    assert not world.suspended("victim")
    victim = world.workload_of("victim")
    for kind in ("Evicted", "Preempted"):
        status, reason, message = condition_text(victim, kind)
        assert (status, reason) == ("False", "QuotaReserved")
        assert message.startswith("Previously: Preempted to accommodate")


async def test_a_group_of_pods_gives_way_as_a_whole(world):
    for index in range(2):
        world.pod(f"ring-{index}", gpus=4, group="ring", total=2)
    await world.pass_time(1)
    world.run_pods("Running")
    await world.pass_time(1)
    assert not any(gates(pod) for pod in world.all(r.PODS))

    await start(world, "urgent", "high")

    assert not world.suspended("urgent")
    assert all(pod["metadata"]["deletionTimestamp"] for pod in world.all(r.PODS))
    assert condition_text(world.workload_of("ring"), "Preempted")[:2] == ("True", "InClusterQueue")


async def test_a_plain_pod_may_preempt(world):
    await start(world, "victim")
    world.put(r.PRIORITY_CLASSES, {"metadata": {"name": "debug"}, "value": 100})
    pod = world.pod("shell", gpus=1, priority="debug")
    await world.pass_time(1)

    assert world.suspended("victim")
    assert not gates(world.get(r.PODS, pod["metadata"]["name"]))


async def test_quota_that_was_lent_is_taken_back():
    world = World()
    furnish(world, cohort="all")
    world.queue("lender", cohort="all", preemption={"reclaimWithinCohort": "Any"})
    async with running(world):
        await start(world, "own", "high")
        await start(world, "borrower", "high")
        assert not world.suspended("borrower")

        await start(world, "owner", queue="lq-lender")

        assert not world.suspended("owner")
        assert world.suspended("borrower")
        assert not world.suspended("own")
        preempted = world.condition("borrower", "Preempted")
        assert preempted["reason"] == "InCohortReclamation"
        assert "preemptor path: /all/lender; preemptee path: /all/cq" in preempted["message"]


async def test_lent_quota_is_shared_by_weight():
    world = World(QueueingSettings(fair_sharing=FairSharingRules()))
    policy = {"reclaimWithinCohort": "Any"}
    furnish(world)
    world.queue("lender", cohort="all", gpus=12)
    world.queue("a", cohort="all", gpus=0, preemption=policy)
    weighs = {"fairSharing": {"weight": "2"}}
    world.queue("b", cohort="all", gpus=0, preemption=policy, **weighs)
    async with running(world):
        for n in range(6):
            await start(world, f"a{n}", queue="lq-a", gpus=2)
        for n in range(6):
            await start(world, f"b{n}", queue="lq-b", gpus=2)
        await world.pass_time(5)

        held = {team: holding(world, team) for team in ("a", "b")}
        assert held == {"a": 4, "b": 8}
        assert condition_text(world.workload_of("a5"), "Preempted")[1] == "InCohortFairSharing"
        shares = {
            name: world.store.get(r.CLUSTER_QUEUES, "", name)["status"]["fairSharing"]
            for name in ("a", "b", "lender")
        }
        weighted = {name: share.get("weightedShare", 0) for name, share in shares.items()}
        assert weighted == {"a": 334, "b": 334, "lender": 0}


async def test_a_cohort_has_a_share_though_no_queue_is_below_it():
    world = World(QueueingSettings(fair_sharing=FairSharingRules()))
    furnish(world)
    world.put(r.COHORTS, {"metadata": {"name": "empty"}, "spec": {}})
    async with running(world):
        await world.pass_time(2)

        assert "fairSharing" in world.store.get(r.COHORTS, "", "empty")["status"]


async def test_a_cohort_reports_its_share_if_shares_decide():
    world = World(QueueingSettings(fair_sharing=FairSharingRules()))
    furnish(world)
    for name, spec in (("all", {}), ("team", {"parentName": "all"})):
        world.put(r.COHORTS, {"metadata": {"name": name}, "spec": spec})
    world.queue("lender", cohort="all", gpus=12)
    world.queue("a", cohort="team", gpus=0)
    async with running(world):
        for n in range(2):
            await start(world, f"a{n}", queue="lq-a", gpus=3)
        await world.pass_time(5)

        shares = {
            name: world.store.get(r.COHORTS, "", name)["status"]["fairSharing"]
            for name in ("all", "team")
        }
        assert shares == {"all": {"weightedShare": 0}, "team": {"weightedShare": 500}}


def holding(world, team):
    jobs = [j["metadata"]["name"] for j in world.all(r.JOBS)]
    return sum(held_gpus(world.workload_of(name)) for name in jobs if name.startswith(team))


async def test_no_more_workloads_are_preempted_while_a_victim_is_being_stopped(world):
    for name in ("a", "b"):
        await start(world, name, gpus=4)
        world.set_status(r.JOBS, name, active=1)

    await start(world, "urgent", "high", gpus=4)
    await start(world, "next", "high", gpus=2)
    await world.pass_time(5)

    assert [name for name in ("a", "b") if world.suspended(name)] == ["b"]
    assert evictions(world, "b") == [1]

    world.set_status(r.JOBS, "b", active=0)
    await world.pass_time(1)

    assert not world.suspended("urgent")
    assert world.suspended("a"), "now it is the turn of the next one"
    assert evictions(world, "b") == [1]


def evictions(world, name):
    stats = world.workload_of(name)["status"].get("schedulingStats", {})
    return [each["count"] for each in stats.get("evictions", ())]


@pytest.mark.parametrize("after", [False, True], ids=["before-it-is-written", "after-it"])
@pytest.mark.parametrize("writes", range(12))
async def test_a_preemption_survives_a_kill_at_any_write(writes, after):
    world = World()
    furnish(world)
    async with running(world):
        await start(world, "victim")
    await world.start(writes=writes, after=after)
    await start(world, "urgent", "high")
    await world.pass_time(2)
    await world.kill()

    async with running(world):
        await world.pass_time(3)

        assert not world.suspended("urgent")
        assert world.suspended("victim")
        for change in world.store.history:
            if change.resource == r.WORKLOADS and change.new is not None:
                assert held_gpus(change.new) in {0, 8}
        assert sum(held_gpus(w) for w in world.all(r.WORKLOADS)) == 8


async def test_a_recent_start_keeps_its_place_by_its_queues_setting():
    world = World()
    furnish(world)
    queue = world.store.get(r.CLUSTER_QUEUES, "", "cq")
    annotations = {"policyd.io/preempt-min-runtime": "1m"}
    metadata = {**queue["metadata"], "annotations": annotations}
    world.store.replace(r.CLUSTER_QUEUES, queue, {**queue, "metadata": metadata})
    async with running(world):
        await start(world, "victim")
        await start(world, "urgent", "high")
        await world.pass_time(50)
        assert world.suspended("urgent")

        await world.pass_time(15)

        assert not world.suspended("urgent")
        assert world.suspended("victim")


async def test_an_annotation_that_cannot_be_read_is_named_in_the_condition(world):
    queue = world.store.get(r.CLUSTER_QUEUES, "", "cq")
    metadata = {**queue["metadata"], "annotations": {"policyd.io/reclaim-min-runtime": "soon"}}
    world.store.replace(r.CLUSTER_QUEUES, queue, {**queue, "metadata": metadata})
    await world.pass_time(5)

    status = plain(world.store.get(r.CLUSTER_QUEUES, "", "cq"))
    active = condition(status, "Active")
    assert (active["status"], active["reason"]) == ("False", "Misconfigured")
    assert "policyd.io/reclaim-min-runtime: `soon` is not a duration" in active["message"]


async def test_its_preemptor_is_read_from_its_status_afterwards(world):
    await start(world, "victim")
    await start(world, "urgent", "high")
    uid = world.workload_of("urgent")["metadata"]["uid"]
    assert preempted_by(world, "victim") == uid

    world.end_job("urgent")
    await world.pass_time(2)

    assert not world.suspended("victim")
    assert preempted_by(world, "victim") == uid
    assert preempted_by(world, "urgent") == ""


def preempted_by(world, name):
    return preemptor_of(msgspec.convert(world.workload_of(name), Workload))


ACTIONS = st.one_of(
    st.tuples(st.just("job"), st.integers(1, 8), st.sampled_from(["low", "high"])),
    st.tuples(st.just("kill"), st.integers(0, 9), st.just("")),
    st.tuples(st.sampled_from(["run", "stop", "end", "wait"]), st.just(0), st.just("")),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(ACTIONS, min_size=4, max_size=16), st.booleans())
def test_any_history_of_preemptions_keeps_quota_and_loses_nothing(actions, after):
    async def main():
        world = World()
        furnish(world, gpus=QUOTA)
        await world.start()
        for number, (verb, size, priority) in enumerate(actions):
            await act(world, verb, size, name=f"{priority}-{number}", after=after)
        for _ in range(40):
            stop_what_is_suspended(world)
            if await end_what_runs(world):
                break
        await world.kill()
        check_history(world, evicts=True)
        assert not left_over(world)

    asyncio.run(main())


async def act(world, verb, size, *, name, after):
    match verb:
        case "job":
            world.job(name, gpus=size, **{CLASS: name.partition("-")[0]})
            await world.pass_time(0.3)
        case "kill":
            await world.kill()
            await world.start(writes=size, after=after)
        case "run":
            run_what_started(world)
        case "stop":
            stop_what_is_suspended(world)
        case "end":
            await end_what_runs(world)
        case "wait":
            await settle(world)


def run_what_started(world):
    """Let the jobs that are not suspended have pods, which must be stopped first."""
    for job in world.all(r.JOBS):
        if not job["spec"]["suspend"] and not ended(job):
            world.set_status(r.JOBS, job["metadata"]["name"], active=1)


async def test_a_decision_that_came_to_nothing_hides_no_deletion(world, monkeypatch):
    """A second preemption of an evicted workload writes nothing; its job is deleted meanwhile."""
    cycles, taken, again = world.controller.workloads.cycles, {}, []
    take = cycles.take

    def taking(key):
        action = take(key)
        if action is None and again and key == again[0]:
            return taken[again.pop()]
        taken[key] = action or taken.get(key)
        return action

    monkeypatch.setattr(cycles, "take", taking)
    await start(world, "victim")
    world.set_status(r.JOBS, "victim", active=1)
    await start(world, "urgent", "high")
    key = f"ns/{world.workload_of('victim')['metadata']['name']}"
    assert world.is_true("victim", "Evicted")
    assert world.is_true("victim", "QuotaReserved"), "its pods still run"

    again.append(key)
    world.delete(r.JOBS, "victim")
    world.collect_garbage()
    await world.pass_time(2)

    assert again == [], "the decision was made again"
    assert world.controller.cache.mirrors.workloads.get(key) is None
    assert world.is_true("urgent", "Admitted")
