"""Groups of pods whose pods come, go and are replaced, and the finalizer by which they stay."""

import pytest

from policyd.api.kueue.names import MANAGED
from policyd.controller.retention import TimeLimits
from policyd.kube import resources as r
from policyd.workload.time_limits import ReadyRules
from tests.controller.world import QUEUE, World, gates, is_deleted, names, pod_spec, running

pytestmark = pytest.mark.anyio

RULES = ReadyRules(timeout=10.0, recovery=None, retries=1, first_wait=1, longest_wait=60)


@pytest.fixture
async def world():
    world = World()
    world.furnish()
    async with running(world):
        yield world


def ring(world, *names, total=2, **more):
    for name in names:
        world.pod(name, group="ring", total=total, **more)


def active(world, *, is_active):
    workload = world.workload_of("ring")
    world.put(r.WORKLOADS, {**workload, "spec": {**workload["spec"], "active": is_active}})


def uid(world):
    return world.workload_of("ring")["metadata"]["uid"]


def finalizers(world, name):
    return world.get(r.PODS, name)["metadata"]["finalizers"]


def reason(world, kind):
    return world.condition("ring", kind).get("reason")


async def test_a_group_that_is_not_ready_in_time_waits_for_replacements():
    world = World(limits=TimeLimits(ready=RULES))
    world.furnish()
    async with running(world):
        ring(world, "a", total=1)
        await world.pass_time(1)
        before = uid(world)
        assert gates(world.get(r.PODS, "a")) == []

        await world.pass_time(13)

        assert is_deleted(world.get(r.PODS, "a"))
        assert reason(world, "Evicted") == "PodsReadyTimeout"
        assert reason(world, "WaitingForReplacementPods") == "PodsReadyTimeout"
        assert not world.is_true("ring", "QuotaReserved")
        assert not world.is_true("ring", "Finished")

        ring(world, "b", total=1)
        await world.pass_time(2)

        assert uid(world) == before
        assert names(world, r.PODS) == ["b"]
        assert gates(world.get(r.PODS, "b")) == []

        await world.pass_time(13)

        assert world.workload_of("ring")["spec"]["active"] is False
        expected = "DeactivatedDueToRequeuingLimitExceeded"
        assert reason(world, "Evicted") == reason(world, "WaitingForReplacementPods") == expected


async def test_a_stopped_group_keeps_its_workload_and_holds_replacements(world):
    ring(world, "a", "b")
    await world.pass_time(1)
    before = uid(world)
    world.run_pods("Running")

    active(world, is_active=False)
    await world.pass_time(2)
    world.run_pods("Failed")
    ring(world, "c", "d")
    await world.pass_time(2)

    assert uid(world) == before
    assert [gates(world.get(r.PODS, name)) != [] for name in "cd"] == [True, True]
    assert not world.is_true("ring", "QuotaReserved")

    active(world, is_active=True)
    await world.pass_time(2)

    assert uid(world) == before
    assert names(world, r.PODS) == ["c", "d"] or gates(world.get(r.PODS, "a")) == []
    assert [gates(world.get(r.PODS, name)) for name in "cd"] == [[], []]


async def test_a_group_that_is_evicted_again_says_why_it_was_last(world):
    ring(world, "a", total=1)
    await world.pass_time(1)

    world.queue(stopPolicy="HoldAndDrain")
    await world.pass_time(2)
    assert reason(world, "WaitingForReplacementPods") == "ClusterQueueStopped"
    workload = world.workload_of("ring")
    conditions = [
        {**each, "reason": "Preempted", "message": "again"} if each["type"] == "Evicted" else each
        for each in workload["status"]["conditions"]
    ]
    world.set_status(r.WORKLOADS, "ring", conditions=conditions)
    await world.pass_time(2)

    assert world.condition("ring", "WaitingForReplacementPods")["reason"] == "Preempted"
    assert world.condition("ring", "WaitingForReplacementPods")["message"] == "again"


async def test_a_group_says_that_it_waits_for_replacements(world):
    ring(world, "a", "b")
    await world.pass_time(1)
    world.run_pods("Running")
    world.queue(stopPolicy="HoldAndDrain")
    await world.pass_time(2)
    assert "is inactive" in world.condition("ring", "QuotaReserved")["message"]

    world.queue()
    await world.pass_time(2)

    lost = world.condition("ring", "WaitingForReplacementPods")["message"]
    wanted = f"{lost}; waiting for pods that replace the lost ones"
    assert world.condition("ring", "QuotaReserved")["message"] == wanted

    world.queue(gpus=0)
    ring(world, "c", "d")
    await world.pass_time(10)

    assert "it waits for" not in world.condition("ring", "QuotaReserved")["message"]


async def test_a_group_whose_pod_is_gone_before_it_was_let_go_waits_for_another(world):
    world.queue(gpus=0)
    ring(world, "a", "b")
    await world.pass_time(1)

    world.delete(r.PODS, "a")
    await world.pass_time(1)

    wanted = "Some Failed pods need replacement; waiting for pods that replace the lost ones"
    assert world.condition("ring", "QuotaReserved")["message"] == wanted


async def test_a_replacement_is_let_go_though_others_are_missing(world):
    ring(world, "a", "b", "c", total=3)
    await world.pass_time(1)
    world.run_pods("Running")
    for name in "ab":
        world.set_status(r.PODS, name, phase="Failed")
    await world.pass_time(1)

    ring(world, "d", total=3)
    await world.pass_time(1)

    assert gates(world.get(r.PODS, "d")) == []
    assert sorted(finalizers(world, "a") + finalizers(world, "b")) == [MANAGED]


async def test_a_group_that_was_made_for_is_let_go_pod_by_pod(world):
    prebuilt = {"kueue.x-k8s.io/prebuilt-workload-name": "ring"}
    notes = {**prebuilt, "kueue.x-k8s.io/role-hash": "main"}
    pod_set = {"name": "main", "count": 2, "template": {"spec": pod_spec(2)}}
    about = {"name": "ring", "annotations": {"kueue.x-k8s.io/is-group-workload": "true"}}
    body = {"metadata": about, "spec": {"queueName": "lq-cq", "podSets": [pod_set]}}
    world.create(r.WORKLOADS, body)
    world.pod("a", group="ring", total=2, **notes)
    await world.pass_time(2)
    assert gates(world.get(r.PODS, "a")) == []

    world.pod("b", group="ring", total=2, **notes)
    await world.pass_time(2)

    assert gates(world.get(r.PODS, "b")) == []
    assert len(world.workload_of("ring")["metadata"]["ownerReferences"]) == 2


@pytest.mark.parametrize("phase", ["", "Running"])
async def test_a_pod_alone_goes_as_soon_as_it_is_deleted(world, phase):
    world.pod("solo")
    await world.pass_time(1)
    if phase:
        world.run_pods(phase)

    world.delete(r.PODS, "solo")
    await world.pass_time(1)

    assert names(world, r.PODS) == []


async def test_a_group_all_of_whose_pods_are_deleted_is_called_off(world):
    ring(world, "a", "b")
    await world.pass_time(1)
    for name in "ab":
        world.delete(r.PODS, name)
    await world.pass_time(2)
    assert names(world, r.PODS) == ["a", "b"]

    await world.pass_time(10)
    world.collect_garbage()
    await world.pass_time(1)

    assert names(world, r.PODS) == names(world, r.WORKLOADS) == []


async def test_a_replaced_group_is_not_cancelled(world):
    ring(world, "a", "b")
    await world.pass_time(1)
    before = uid(world)
    for name in "ab":
        world.delete(r.PODS, name)
    await world.pass_time(5)

    ring(world, "c")
    await world.pass_time(20)

    assert uid(world) == before
    assert gates(world.get(r.PODS, "c")) == []


async def test_pods_of_a_group_go_with_its_workload_though_they_were_stopped(world):
    ring(world, "a", "b")
    await world.pass_time(1)
    world.queue(stopPolicy="HoldAndDrain")
    await world.pass_time(2)
    assert names(world, r.PODS) == ["a", "b"]

    world.delete(r.WORKLOADS, "ring")
    await world.pass_time(2)

    assert names(world, r.PODS) == names(world, r.WORKLOADS) == []


@pytest.mark.parametrize("total", [3, 0], ids=["contradicts", "says-no-number"])
async def test_no_pod_stays_of_a_group_that_cannot_be(world, total):
    ring(world, "a", total=2)
    ring(world, "b", total=total)
    await world.pass_time(1)

    for name in "ab":
        world.delete(r.PODS, name)
    await world.pass_time(1)

    assert names(world, r.PODS) == []


async def test_a_pod_that_names_another_size_holds_only_itself(world):
    """Whoever may create pods could keep a group from being preempted by one more."""
    ring(world, "a", "b")
    await world.pass_time(1)
    ring(world, "c", total=3)
    await world.pass_time(1)

    (event,) = world.events("ErrWorkloadCompose")
    assert event["involvedObject"]["name"] == "c"
    world.delete(r.PODS, "c")
    ring(world, "d", total=3)
    active(world, is_active=False)
    await world.pass_time(2)

    left = [pod for pod in world.all(r.PODS) if not is_deleted(pod)]
    assert [pod["metadata"]["name"] for pod in left] == ["d"]
    assert gates(left[0]) != []
    assert "c" not in names(world, r.PODS)


async def test_a_group_whose_oldest_pod_names_another_size_later_is_still_stopped(world):
    ring(world, "a", "b")
    await world.pass_time(1)
    pod = world.get(r.PODS, "a")
    annotations = {**pod["metadata"]["annotations"], "kueue.x-k8s.io/pod-group-total-count": "9"}
    world.put(r.PODS, {**pod, "metadata": {**pod["metadata"], "annotations": annotations}})

    active(world, is_active=False)
    await world.pass_time(2)

    assert all(is_deleted(pod) for pod in world.all(r.PODS))


async def test_no_pod_stays_that_is_in_no_queue_any_more(world):
    pod = world.pod("solo", gpus=100)
    await world.pass_time(1)
    labels = {k: v for k, v in pod["metadata"]["labels"].items() if k != QUEUE}
    found = world.get(r.PODS, "solo")
    world.put(r.PODS, {**found, "metadata": {**found["metadata"], "labels": labels}})

    world.delete(r.PODS, "solo")
    await world.pass_time(1)

    assert names(world, r.PODS) == []


async def test_gates_of_others_stay_on_a_pod(world):
    pod = world.pod("solo")
    both = [*pod["metadata"]["finalizers"], "example.com/mine"]
    world.put(r.PODS, {**pod, "metadata": {**pod["metadata"], "finalizers": both}})
    await world.pass_time(1)

    world.run_pods("Succeeded")
    await world.pass_time(1)

    assert finalizers(world, "solo") == ["example.com/mine"]


async def test_the_end_of_a_group_is_reported_once_and_its_pods_may_go(world):
    ring(world, "a", "b")
    await world.pass_time(1)

    world.run_pods("Succeeded")
    await world.pass_time(2)

    (event,) = world.events("FinishedWorkload")
    assert event["involvedObject"]["name"] == "a"
    assert [finalizers(world, name) for name in "ab"] == [[], []]


async def test_a_group_that_may_run_for_another_time_says_that_its_workload_is_updated(world):
    ring(world, "a", "b", gpus=16)
    await world.pass_time(1)

    for name in "ab":
        found = world.get(r.PODS, name)
        labels = {**found["metadata"]["labels"], "kueue.x-k8s.io/max-exec-time-seconds": "60"}
        world.put(r.PODS, {**found, "metadata": {**found["metadata"], "labels": labels}})
    await world.pass_time(1)

    assert world.workload_of("ring")["spec"]["maximumExecutionTimeSeconds"] == 60
    (event,) = world.events("UpdatedWorkload")
    assert event["involvedObject"]["name"] == "a"
    assert event["message"].startswith("Updated not matching Workload for suspended job: ")


async def test_a_group_whose_pods_are_few_says_so_on_its_first_pod(world):
    ring(world, "a", "b", total=3)
    await world.pass_time(6)

    (event,) = world.events("ErrWorkloadCompose")
    assert event["involvedObject"]["name"] == "a"
    assert event["message"] == "'ring' group has fewer runnable pods than expected"
