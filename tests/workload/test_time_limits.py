"""What time does to workloads: pods that take too long, jobs that run too long, what is over."""

import msgspec
import pytest

from policyd.api.kueue import ClusterQueue, LocalQueue, Workload
from policyd.api.meta import find_condition, timestamp
from policyd.controller.retention import Retention, TimeLimits
from policyd.kube import resources as r
from policyd.workload.lifecycle import next_status
from policyd.workload.obstacles import StatusContext
from policyd.workload.time_limits import ReadyRules, ready_time_left
from policyd.workload.transitions import with_status
from tests.controller.world import World, pod_spec, running

pytestmark = pytest.mark.anyio


def furnished(**limits):
    world = World(limits=TimeLimits(**limits))
    world.furnish()
    return world


def requeue_state(world, name):
    return world.workload_of(name)["status"].get("requeueState") or {}


async def test_a_job_whose_pods_take_too_long_makes_room_and_comes_again():
    world = furnished(ready=ReadyRules(timeout=60, first_wait=30))
    async with running(world):
        world.job("stuck")
        await world.pass_time(2)
        ready = world.condition("stuck", "PodsReady")
        assert (ready["status"], ready["reason"]) == ("False", "WaitForStart")
        world.job("next")
        await world.pass_time(60)

        evicted = world.condition("stuck", "Evicted")
        assert evicted["reason"] == "PodsReadyTimeout"
        assert evicted["message"].startswith("Exceeded the PodsReady timeout ns/job-stuck-")
        assert world.suspended("stuck")
        assert not world.suspended("next")
        assert requeue_state(world, "stuck")["count"] == 1
        assert world.events("EvictedDueToPodsReadyTimeout")

        world.set_status(r.JOBS, "next", active=1, ready=1)
        await world.pass_time(2)
        assert world.condition("next", "PodsReady")["reason"] == "Started"
        world.end_job("next")
        await world.pass_time(40)
        assert world.condition("stuck", "Requeued")["reason"] == "BackoffFinished"
        assert not world.suspended("stuck")


async def test_the_start_of_pods_is_reported_with_the_next_write():
    counts = []
    for ready in (None, ReadyRules(timeout=60)):
        world = furnished(ready=ready)
        async with running(world):
            world.job("runs")
            world.job("waits")
            await world.pass_time(5)
            counts.append(sum(write.resource == r.WORKLOADS for write in world.client.writes))

            expected = "" if ready is None else "WaitForStart"
            assert world.condition("waits", "PodsReady").get("reason", "") == expected
            assert world.condition("runs", "PodsReady").get("reason", "") == expected
    assert counts[0] == counts[1]


async def test_after_the_last_retry_a_job_is_deactivated():
    world = furnished(ready=ReadyRules(timeout=10, first_wait=5, retries=1))
    async with running(world):
        world.job("stuck")
        await world.pass_time(40)

        assert world.workload_of("stuck")["spec"]["active"] is False
        reason = world.condition("stuck", "Evicted")["reason"]
        assert reason == "DeactivatedDueToRequeuingLimitExceeded"
        assert world.suspended("stuck")


async def test_pods_that_fail_later_have_their_own_time():
    world = furnished(ready=ReadyRules(timeout=10, recovery=30))
    async with running(world):
        world.job("train")
        await world.pass_time(2)
        world.set_status(r.JOBS, "train", active=1, ready=1)
        await world.pass_time(60)
        assert world.condition("train", "PodsReady")["status"] == "True"

        world.set_status(r.JOBS, "train", active=1, ready=0)
        await world.pass_time(20)
        assert world.condition("train", "PodsReady")["reason"] == "WaitForRecovery"
        assert not world.suspended("train")

        await world.pass_time(15)
        assert world.suspended("train")


async def test_a_job_that_ran_for_as_long_as_it_may_is_stopped_for_good():
    world = furnished()
    async with running(world):
        world.job("long", **{"kueue.x-k8s.io/max-exec-time-seconds": "60"})
        await world.pass_time(50)
        assert not world.suspended("long")

        await world.pass_time(15)

        assert world.suspended("long")
        reason = world.condition("long", "Evicted")["reason"]
        assert reason == "DeactivatedDueToMaximumExecutionTimeExceeded"
        (event,) = world.events("MaximumExecutionTimeExceeded")
        assert event["message"] == "The maximum execution time (60s) exceeded"


async def test_a_job_that_waits_may_run_for_ever_again():
    world = furnished()
    async with running(world):
        world.job("first")
        world.job("long", **{"kueue.x-k8s.io/max-exec-time-seconds": "60"})
        await world.pass_time(2)
        assert world.workload_of("long")["spec"]["maximumExecutionTimeSeconds"] == 60

        job = world.get(r.JOBS, "long")
        del job["metadata"]["labels"]["kueue.x-k8s.io/max-exec-time-seconds"]
        world.store.replace(r.JOBS, world.get(r.JOBS, "long"), job)
        await world.pass_time(2)

        assert "maximumExecutionTimeSeconds" not in world.workload_of("long")["spec"]
        (event,) = world.events("UpdatedWorkload")
        assert event.get("count", 1) == 1


async def test_finished_workloads_are_deleted_after_their_retention():
    world = furnished(retention=Retention(after_finished=60))
    async with running(world):
        world.job("done")
        await world.pass_time(2)
        world.end_job("done")
        await world.pass_time(50)
        assert world.workload_of("done")

        await world.pass_time(15)

        assert not world.workload_of("done")
        assert world.events("Deleted")


@pytest.mark.parametrize(
    ("kept", "there"),
    [pytest.param(5.0, False, id="over"), pytest.param(None, True, id="for-ever")],
)
async def test_the_job_of_a_workload_that_was_deactivated_goes_too(kept, there):
    rules = ReadyRules(timeout=5, first_wait=1, retries=0)
    world = furnished(ready=rules, retention=Retention(after_deactivated=kept))
    async with running(world):
        world.job("stuck")

        await world.pass_time(30)

        assert bool(world.all(r.JOBS)) is there
        deleted = [w.body for w in world.client.writes if (w.verb, w.name) == ("delete", "stuck")]
        assert deleted == ([] if there else [{"propagationPolicy": "Background"}])


async def test_a_job_that_a_user_deactivates_is_kept():
    world = furnished(retention=Retention(after_deactivated=5))
    async with running(world):
        world.job("train")
        await world.pass_time(2)
        workload = world.workload_of("train")
        world.put(r.WORKLOADS, {**workload, "spec": {**workload["spec"], "active": False}})

        await world.pass_time(30)

        assert world.suspended("train")


async def test_a_job_that_is_admitted_in_part_runs_as_many_pods_and_gets_its_number_back():
    world = furnished()
    world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 9})
    world.queue(preemption={"withinClusterQueue": "LowerPriority"})
    async with running(world):
        body = world.job("shrinks", gpus=2)
        spec = {**body["spec"], "parallelism": 6, "completions": 6}
        annotations = {
            "kueue.x-k8s.io/job-min-parallelism": "2",
            "kueue.x-k8s.io/job-completions-equal-parallelism": "true",
        }
        metadata = {**body["metadata"], "annotations": annotations}
        world.put(r.JOBS, {**body, "metadata": metadata, "spec": spec})
        await world.pass_time(3)

        job = world.get(r.JOBS, "shrinks")["spec"]
        assert (job["suspend"], job["parallelism"], job["completions"]) == (False, 4, 4)

        world.job("urgent", **{"kueue.x-k8s.io/priority-class": "high"})
        await world.pass_time(3)
        job = world.get(r.JOBS, "shrinks")["spec"]
        assert (job["suspend"], job["parallelism"], job["completions"]) == (True, 6, 6)
        assert not world.suspended("urgent")


async def test_a_job_of_a_job_that_waits_is_suspended_and_has_no_workload():
    world = furnished()
    async with running(world):
        world.job("holder")
        await world.pass_time(1)
        parent = world.job("parent")
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "parent", "controller": True}
        child = world.job("child")
        references = [{**owner, "uid": parent["metadata"]["uid"]}]
        metadata = {**child["metadata"], "ownerReferences": references}
        running_spec = {**child["spec"], "suspend": False}
        world.put(r.JOBS, {**child, "metadata": metadata, "spec": running_spec})
        await world.pass_time(2)

        assert world.suspended("child")
        (event,) = world.events("Suspended")
        assert event["message"] == "Kueue managed child job suspended"


def owned(world, parent, name, resource=r.JOBS, **spec):
    """Make an object of a job, as its operator does: without the label of a queue."""
    reference = {**OWNER, "name": parent["metadata"]["name"], "uid": parent["metadata"]["uid"]}
    metadata = {"name": name, "ownerReferences": [reference]}
    template = {"spec": pod_spec(8)}
    body = {"template": template, "suspend": False, **spec}
    kinds = {"apiVersion": resource.api_version, "kind": resource.kind}
    return world.create(resource, {**kinds, "metadata": metadata, "spec": body})


OWNER = {"apiVersion": "batch/v1", "kind": "Job", "controller": True}


async def test_a_job_without_a_queue_of_a_job_that_waits_or_is_evicted_is_suspended():
    world = furnished()
    world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 9})
    world.queue(preemption={"withinClusterQueue": "LowerPriority"})
    async with running(world):
        world.job("holder")
        await world.pass_time(1)
        parent = world.job("parent")
        owned(world, parent, "early")
        await world.pass_time(1)
        assert world.suspended("early")

        world.end_job("holder")
        await world.pass_time(2)
        child = owned(world, parent, "child")
        owned(world, child, "grandchild")
        strangers = {**child["metadata"], "name": "stranger", "ownerReferences": []}
        world.create(r.JOBS, {**child, "metadata": strangers})
        await world.pass_time(1)
        assert not any(world.suspended(name) for name in ("child", "grandchild"))

        world.job("urgent", **{"kueue.x-k8s.io/priority-class": "high"})
        await world.pass_time(2)
        assert world.suspended("child")
        assert world.suspended("grandchild")
        assert not world.suspended("stranger")
        assert {
            each["metadata"]["ownerReferences"][0]["name"] for each in world.all(r.WORKLOADS)
        } == {
            "holder",
            "parent",
            "urgent",
        }
        assert {each.metadata.name for each in world.controller.mirrors.jobs["Job"]} == {
            "holder",
            "parent",
            "urgent",
        }


@pytest.mark.parametrize(
    ("pods", "by_itself"),
    [pytest.param(1, False, id="as-much-as-its-owner"), pytest.param(3, True, id="more")],
)
async def test_a_job_of_a_job_that_runs_queues_by_itself_if_it_is_too_large_for_a_part(
    pods, by_itself
):
    world = furnished()
    async with running(world):
        parent = world.job("parent", gpus=2)
        await world.pass_time(1)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "parent", "controller": True}
        child = world.job("child", gpus=2)
        references = [{**owner, "uid": parent["metadata"]["uid"]}]
        metadata = {**child["metadata"], "ownerReferences": references}
        spec = {**child["spec"], "suspend": False, "parallelism": pods}
        world.put(r.JOBS, {**child, "metadata": metadata, "spec": spec})
        await world.pass_time(2)

        names = {each["metadata"]["ownerReferences"][0]["name"] for each in world.all(r.WORKLOADS)}
        assert ("child" in names) is by_itself
        assert bool(world.events("NotOfItsOwner")) is by_itself


NOW = 1_700_000_000.0


def evicted(reason, *conditions, active=True, wait=0.0):
    """Return a workload without quota that was evicted, with so many seconds to wait."""
    conditions_before = [("Evicted", "True", reason), ("Requeued", "False", reason), *conditions]
    status = {
        "requeueState": {"count": 1, "requeueAt": timestamp(NOW + wait).isoformat()},
        "conditions": [
            {"type": kind, "status": status, "reason": why, "message": "m"}
            for kind, status, why in conditions_before
        ],
    }
    metadata = {"name": "w", "namespace": "ns"}
    body = {"metadata": metadata, "spec": {"queueName": "lq", "active": active}, "status": status}
    return msgspec.convert(body, Workload)


LOCAL = {"metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}
AROUND = StatusContext(
    local_queue=msgspec.convert(LOCAL, LocalQueue),
    cluster_queue=msgspec.convert({"metadata": {"name": "cq"}}, ClusterQueue),
)


@pytest.mark.parametrize(
    ("given", "requeued", "waits"),
    [
        pytest.param(evicted("PodsReadyTimeout"), "BackoffFinished", False, id="time-is-up"),
        pytest.param(
            evicted("PodsReadyTimeout", wait=9), "PodsReadyTimeout", True, id="time-is-not-up"
        ),
        pytest.param(
            evicted("PodsReadyTimeout", ("QuotaReserved", "True", "r"), wait=9),
            "PodsReadyTimeout",
            True,
            id="time-is-not-up-with-quota",
        ),
        pytest.param(
            evicted("LocalQueueStopped"), "LocalQueueRestarted", False, id="queue-goes-on"
        ),
        pytest.param(evicted("Deactivated"), "Reactivated", False, id="active-again"),
        pytest.param(
            evicted("PodsReadyTimeout", active=False, wait=9),
            "PodsReadyTimeout",
            False,
            id="who-is-not-active-waits-for-no-turn",
        ),
        pytest.param(
            evicted("ClusterQueueStopped", active=False),
            "ClusterQueueRestarted",
            False,
            id="queue-goes-on-for-who-is-not-active-too",
        ),
    ],
)
def test_an_evicted_workload_queues_again_when_what_kept_it_is_over(given, requeued, waits):
    for _ in range(9):  # one change at a time
        given = with_status(given, next_status(given, AROUND, now=NOW))

    state = given.status.requeue_state
    assert find_condition(given.status.conditions, "Requeued").reason == requeued
    assert (state is not None and state.requeue_at is not None) is waits


async def test_finished_workloads_are_not_deactivated():
    world = furnished()
    conditions = [
        {"type": kind, "status": "True", "reason": "r", "message": "m"}
        for kind in ("Finished", "DeactivationTarget")
    ]
    metadata = {"name": "done", "namespace": "ns"}
    spec = {"queueName": "lq-cq", "podSets": []}
    body = {"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}
    world.put(r.WORKLOADS, body)

    async with running(world):
        await world.pass_time(2)

    assert world.workload_of("done")["spec"].get("active", True)


@pytest.mark.parametrize(
    ("ready", "found"),
    [
        pytest.param(None, ("WaitForStart", 50.0), id="nobody-knows-yet"),
        pytest.param(("False", "WaitForStart"), ("WaitForStart", 50.0), id="they-begin"),
        pytest.param(("False", "WaitForRecovery"), ("WaitForRecovery", 20.0), id="one-failed"),
        pytest.param(("True", "Started"), None, id="all-run"),
        pytest.param(("True", "ByTest"), None, id="all-run-whoever-says-it"),
    ],
)
def test_pods_are_waited_for_until_all_run(ready, found):
    states = [("Admitted", "True", "Admitted")] + ([("PodsReady", *ready)] if ready else [])
    conditions = [
        {"type": kind, "status": status, "reason": why, "lastTransitionTime": timestamp(NOW - 10)}
        for kind, status, why in states
    ]
    body = {"metadata": {"name": "w"}, "status": {"conditions": conditions}}
    rules = ReadyRules(timeout=60, recovery=30)

    assert ready_time_left(msgspec.convert(body, Workload), rules, now=NOW) == found
