"""What becomes of jobs: held, admitted, started, finished, evicted, in virtual time."""

import pytest

from policyd.alloc.settings import Gates, QueueingSettings
from policyd.api.kueue.names import MANAGED, TOPOLOGY_GATE
from policyd.controller.watch.keys import workload_key
from policyd.jobs.pod_groups import FAST_ADMISSION
from policyd.kube import resources as r
from tests.controller.world import (
    GATE,
    GPU,
    World,
    condition,
    gates,
    held_gpus,
    is_deleted,
    names,
    plain,
    running,
)

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world():
    made = World()
    made.furnish()
    async with running(made):
        yield made


async def test_a_job_is_admitted_started_and_finished(world):
    world.job("train")
    await world.pass_time(2)

    job = world.get(r.JOBS, "train")
    assert job["spec"]["suspend"] is False
    template = job["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"gpu": "h100"}
    assert template["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert template["metadata"]["labels"] == {
        "kueue.x-k8s.io/podset": "main",
        "kueue.x-k8s.io/local-queue-name": "lq-cq",
        "kueue.x-k8s.io/cluster-queue-name": "cq",
    }
    world.end_job("train")
    await world.pass_time(2)

    workload = world.workload_of("train")
    finished = condition(workload, "Finished")
    assert (finished["status"], finished["reason"]) == ("True", "Succeeded")
    assert finished["message"] == "the end"
    assert workload["metadata"]["finalizers"] == []


async def test_a_job_takes_three_writes_to_start_and_a_waiting_one_two(world):
    world.job("train")
    await world.pass_time(0.9)
    before = world.client.counted
    world.job("waits")
    await world.pass_time(0.9)

    # workload, reservation with admission, start
    assert before == 3
    # workload, why it waits
    assert world.client.counted - before == 2


def queue_writes(world):
    kinds = {"clusterqueues", "localqueues"}
    return sum(write.resource.plural in kinds for write in world.client.writes)


async def test_a_second_job_says_what_is_missing_and_who_holds_it(world):
    world.job("first")
    await world.pass_time(1)
    world.job("second", gpus=4)
    await world.pass_time(1)

    reserved = world.condition("second", "QuotaReserved")
    assert reserved["reason"] == "WaitingForQuota"
    assert reserved["message"] == (
        "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in "
        "flavor h100, 4 more needed; held by ns/first (8)"
    )
    assert world.condition("second", "Admitted")["reason"] == "NoReservation"
    requests = world.workload_of("second")["status"]["resourceRequests"]
    assert requests == [{"name": "main", "resources": {GPU: "4"}}]
    assert world.suspended("second")


async def test_a_change_of_holders_alone_corrects_the_reason(world):
    world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 9})
    world.job("first")
    await world.pass_time(1)
    world.job("waits")
    await world.pass_time(1)
    world.job("urgent", **{"kueue.x-k8s.io/priority-class": "high"})
    await world.pass_time(1)
    assert world.condition("waits", "QuotaReserved")["message"].endswith("held by ns/first (8)")

    world.end_job("first")
    await world.pass_time(12)

    assert not world.suspended("urgent")
    assert world.condition("waits", "QuotaReserved")["message"].endswith("held by ns/urgent (8)")


async def test_the_next_job_starts_when_quota_is_given_back(world):
    world.job("first")
    await world.pass_time(1)
    world.job("second")
    await world.pass_time(1)
    assert world.suspended("second")

    world.end_job("first")
    await world.pass_time(1)

    assert not world.suspended("second")


async def test_a_deleted_job_gives_its_quota_back(world):
    world.job("first")
    await world.pass_time(1)
    world.job("second")
    await world.pass_time(1)

    world.delete(r.JOBS, "first")
    await world.pass_time(1)

    assert not world.suspended("second")
    assert world.workload_of("first") is None


async def test_the_higher_priority_goes_first(world):
    for name, value in (("low", 1), ("high", 9)):
        world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    world.job("holder")
    await world.pass_time(1)
    world.job("later", **{"kueue.x-k8s.io/priority-class": "low"})
    await world.pass_time(1)
    world.job("sooner", **{"kueue.x-k8s.io/priority-class": "high"})
    await world.pass_time(1)

    world.end_job("holder")
    await world.pass_time(1)

    assert not world.suspended("sooner")
    assert world.suspended("later")
    spec = world.workload_of("sooner")["spec"]
    assert spec["priority"] == 9
    assert spec["priorityClassRef"]["name"] == "high"


async def test_a_missing_class_of_pods_is_not_called_one_of_workloads(world):
    job = world.job("train")
    job["spec"]["template"]["spec"]["priorityClassName"] = "gone"
    world.put(r.JOBS, job)
    await world.pass_time(2)

    assert world.events("PriorityClassNotFound")
    assert not world.events("WorkloadPriorityClassNotFound")


@pytest.mark.parametrize("ends", [True, False], ids=["it-ends", "it-is-evicted"])
async def test_a_job_whose_priority_class_is_gone_still_gives_its_quota_back(world, ends):
    world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "gold"}, "value": 5})
    world.job("train", **{"kueue.x-k8s.io/priority-class": "gold"})
    await world.pass_time(2)
    assert not world.suspended("train")

    gone = world.store.get(r.WORKLOAD_PRIORITY_CLASSES, "", "gold")
    world.store.delete(r.WORKLOAD_PRIORITY_CLASSES, gone, dry_run=False)
    if ends:
        world.end_job("train")
    else:
        world.queue(stopPolicy="HoldAndDrain")
    await world.pass_time(2)

    assert world.suspended("train") is not ends
    assert world.is_true("train", "Finished") is ends
    assert ends or not world.is_true("train", "QuotaReserved")


async def test_a_missing_priority_class_is_reported_and_waited_for(world):
    world.job("train", **{"kueue.x-k8s.io/priority-class": "gold"})
    await world.pass_time(2)
    assert world.workload_of("train") is None
    assert world.events("WorkloadPriorityClassNotFound")

    world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "gold"}, "value": 5})
    await world.pass_time(3)

    assert not world.suspended("train")


async def test_a_job_that_runs_without_admission_is_suspended(world):
    world.job("holder")
    await world.pass_time(1)
    body = world.job("wild")
    world.put(r.JOBS, {**body, "spec": {**body["spec"], "suspend": False}})
    await world.pass_time(2)

    assert world.suspended("wild")
    assert world.condition("wild", "QuotaReserved")["status"] == "False"
    assert world.events("Stopped")


async def test_events_record_the_steps_of_a_workload(world):
    world.job("train")
    await world.pass_time(2)
    world.end_job("train")
    await world.pass_time(2)

    events = {(e["involvedObject"]["kind"], e["reason"]): e["message"] for e in world.events()}
    name = world.workload_of("train")["metadata"]["name"]
    assert events == {
        ("Job", "CreatedWorkload"): f"Created Workload: ns/{name}",
        ("Workload", "QuotaReserved"): (
            "Quota reserved in ClusterQueue cq, wait time since queued was 0s"
        ),
        ("Workload", "Admitted"): (
            "Admitted by ClusterQueue cq, wait time since reservation was 0s"
        ),
        ("Job", "Started"): "Admitted by clusterQueue cq",
        ("Job", "FinishedWorkload"): f"Workload 'ns/{name}' is declared finished",
    }


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({"queue": "nowhere"}, "LocalQueue nowhere doesn't exist", id="no-local-queue"),
        pytest.param({"queue": "lq-off"}, "ClusterQueue off is inactive", id="inactive-queue"),
        pytest.param({"queue": "lq-lost"}, "ClusterQueue lost doesn't exist", id="no-queue"),
        pytest.param(
            {"queue": "lq-picky"},
            "workload namespace doesn't match ClusterQueue selector",
            id="namespace-not-selected",
        ),
        pytest.param(
            {"gpus": 9},
            "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in "
            "flavor h100, previously considered podsets requests (0) + current podset request (9) "
            "> maximum capacity (8); to help it: ask for at most 8 nvidia.com/gpu: that fits",
            id="more-than-there-is",
        ),
    ],
)
async def test_a_command_that_cannot_run_states_the_reason(world, spec, message):
    world.queue("off", stopPolicy="Hold")
    world.queue("lost")
    world.store.delete(
        r.CLUSTER_QUEUES, world.store.get(r.CLUSTER_QUEUES, "", "lost"), dry_run=False
    )
    world.queue("picky", namespaceSelector={"matchLabels": {"team": "b"}})
    await world.pass_time(1)

    world.job("train", **spec)
    await world.pass_time(2)

    assert world.condition("train", "QuotaReserved")["message"] == message
    assert world.suspended("train")


async def test_a_misplaced_workload_is_admitted_once_it_fits(world):
    world.job("train", queue="lq-late")
    await world.pass_time(1)
    assert world.condition("train", "QuotaReserved")["reason"] == "Misconfigured"

    world.queue("late")
    await world.pass_time(2)

    assert not world.suspended("train")


# Eviction.


STARTED = "2026-01-01T00:00:00Z"


def after_suspension(world, act):
    """Have something else happen as soon as a job is suspended."""
    patch = world.client.patch

    async def patched(resource, name, *args, **options):
        stored = await patch(resource, name, *args, **options)
        if resource == r.JOBS and "subresource" not in options:
            world.client.patch = patch
            act()
        return stored

    world.client.patch = patched


async def test_a_job_that_ends_as_it_is_stopped_keeps_when_it_started(world):
    world.job("train")
    await world.pass_time(1)
    world.set_status(r.JOBS, "train", active=1, startTime=STARTED)
    await world.pass_time(1)

    after_suspension(world, lambda: world.end_job("train"))
    world.queue(stopPolicy="HoldAndDrain")
    await world.pass_time(5)

    assert world.get(r.JOBS, "train")["status"]["startTime"] == STARTED
    assert world.is_true("train", "Finished")


async def test_a_job_that_changes_as_it_is_stopped_gets_its_template_back_without_pods(world):
    world.job("train")
    await world.pass_time(1)
    world.set_status(r.JOBS, "train", active=2, startTime=STARTED)
    await world.pass_time(1)

    after_suspension(world, lambda: world.set_status(r.JOBS, "train", active=1))
    world.queue(stopPolicy="HoldAndDrain")
    await world.pass_time(5)

    job = world.get(r.JOBS, "train")
    assert "startTime" not in job["status"]
    assert "nodeSelector" in job["spec"]["template"]["spec"], "a pod still runs"

    world.set_status(r.JOBS, "train", active=0)
    await world.pass_time(2)

    job = world.get(r.JOBS, "train")
    assert "nodeSelector" not in job["spec"]["template"]["spec"]
    assert "kueue.x-k8s.io/stopping" not in job["metadata"].get("annotations", {})


async def test_a_job_gives_no_quota_back_for_places_that_never_have_pods(world):
    job = world.job("train", gpus=1)
    spec = {**job["spec"], "parallelism": 8, "completions": 4}
    world.store.replace(r.JOBS, world.get(r.JOBS, "train"), {**plain(job), "spec": spec})
    await world.pass_time(2)
    world.set_status(r.JOBS, "train", active=3, succeeded=1, startTime=STARTED)
    await world.pass_time(1)

    assert held_gpus(world.workload_of("train")) == 3


async def test_a_drained_queue_stops_its_jobs_and_a_restarted_one_starts_them_again(world):
    world.job("train")
    await world.pass_time(1)
    world.set_status(r.JOBS, "train", active=1, startTime="2026-01-01T00:00:00Z")
    await world.pass_time(1)

    world.queue(stopPolicy="HoldAndDrain")
    await world.pass_time(2)

    job = world.get(r.JOBS, "train")
    assert job["spec"]["suspend"] is True
    assert world.condition("train", "Evicted")["reason"] == "ClusterQueueStopped"
    assert world.is_true("train", "QuotaReserved"), "its pods still run"
    given = job["spec"]["template"]["spec"]["nodeSelector"]
    assert given == {"gpu": "h100"}, "the API server refuses another template while pods run"
    world.set_status(r.JOBS, "train", active=0)
    await world.pass_time(2)

    job = world.get(r.JOBS, "train")
    assert "nodeSelector" not in job["spec"]["template"]["spec"]
    assert "tolerations" not in job["spec"]["template"]["spec"]
    assert "startTime" not in job["status"]
    assert "kueue.x-k8s.io/stopping" not in job["metadata"].get("annotations", {})
    workload = world.workload_of("train")
    assert "admission" not in workload["status"]
    assert condition(workload, "Requeued")["status"] == "False"
    evictions = workload["status"]["schedulingStats"]["evictions"]
    assert evictions == [{"reason": "ClusterQueueStopped", "underlyingCause": "", "count": 1}]

    world.queue()
    await world.pass_time(2)

    assert world.is_true("train", "Admitted")
    assert not world.suspended("train")
    evicted = world.condition("train", "Evicted")
    assert (evicted["status"], evicted["message"]) == (
        "False",
        "Previously: The ClusterQueue is stopped",
    )


async def test_a_queue_that_was_inactive_says_since_when_it_is_stopped(world):
    def local_queue(**spec):
        metadata = {"name": "lost", "namespace": "ns"}
        world.put(r.LOCAL_QUEUES, {"metadata": metadata, "spec": {"clusterQueue": "no", **spec}})

    local_queue()
    await world.pass_time(2)
    before = condition(world.get(r.LOCAL_QUEUES, "lost"), "Active")
    await world.pass_time(60)
    local_queue(stopPolicy="Hold")
    await world.pass_time(2)

    after = condition(world.get(r.LOCAL_QUEUES, "lost"), "Active")
    assert (before["reason"], after["reason"]) == ("ClusterQueueDoesNotExist", "Stopped")
    assert before["lastTransitionTime"] < after["lastTransitionTime"]


async def test_a_held_queue_lets_run_what_runs(world):
    world.job("train")
    await world.pass_time(1)

    world.queue(stopPolicy="Hold")
    await world.pass_time(2)

    assert not world.suspended("train")
    status = world.store.get(r.CLUSTER_QUEUES, "", "cq")["status"]
    assert condition({"status": status}, "Active")["reason"] == "Stopped"


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        pytest.param({"metadata": {"annotations": {}}}, 1, id="its-gate-is-cleared"),
        pytest.param({"spec": {"active": False}}, 0, id="it-is-deactivated"),
    ],
)
async def test_only_a_gate_that_is_cleared_is_reported_as_cleared(world, change, reported):
    gates = {"kueue.x-k8s.io/admission-gated-by": "example.com/gate"}
    made = world.job("a", gpus=2)
    world.store.replace(
        r.JOBS, made, {**made, "metadata": {**made["metadata"], "annotations": gates}}
    )
    await world.pass_time(2)
    assert world.condition("a", "QuotaReserved")["reason"] == "AdmissionGated"

    kind, old = (
        (r.JOBS, world.get(r.JOBS, "a")) if reported else (r.WORKLOADS, world.workload_of("a"))
    )
    changed = {part: {**old[part], **change.get(part, {})} for part in ("metadata", "spec")}
    world.store.replace(kind, old, {**old, **changed})
    await world.pass_time(3)

    assert world.condition("a", "QuotaReserved").get("reason") != "AdmissionGated"
    assert len(world.events("AdmissionGateCleared")) == reported


async def test_quota_is_taken_back_from_a_job_that_is_gated_after_all(world):
    world.job("train")
    world.job("next")
    await world.pass_time(2)
    assert [world.suspended(name) for name in ("train", "next")] == [False, True]

    gated = {"annotations": {"kueue.x-k8s.io/admission-gated-by": "example.com/gate"}}
    for resource, obj in (
        (r.JOBS, world.get(r.JOBS, "train")),
        (r.WORKLOADS, world.workload_of("train")),
    ):
        world.store.replace(resource, obj, {**obj, "metadata": {**obj["metadata"], **gated}})
    await world.pass_time(2)

    assert [world.suspended(name) for name in ("train", "next")] == [True, False]
    reserved = world.condition("train", "QuotaReserved")
    assert (reserved["status"], reserved["reason"]) == ("False", "AdmissionGated")
    assert "admission" not in world.workload_of("train")["status"]
    assert world.events("AdmissionGated")

    world.end_job("next")
    job = world.get(r.JOBS, "train")
    world.store.replace(r.JOBS, job, {**job, "metadata": {**job["metadata"], "annotations": {}}})
    await world.pass_time(2)

    assert not world.suspended("train")


async def test_a_deactivated_workload_stops_and_a_reactivated_one_queues_again(world):
    world.job("train")
    await world.pass_time(1)
    set_active(world, value=False)
    await world.pass_time(2)

    assert world.suspended("train")
    assert world.condition("train", "Evicted")["reason"] == "Deactivated"
    assert world.condition("train", "QuotaReserved")["reason"] == "Deactivated"
    set_active(world, value=True)
    await world.pass_time(2)

    assert not world.suspended("train")
    assert world.condition("train", "Requeued")["reason"] == "Reactivated"


def set_active(world, *, value):
    workload = world.workload_of("train")
    world.put(r.WORKLOADS, {**workload, "spec": {**workload["spec"], "active": value}})


# Pods.


async def test_a_pod_alone_is_let_go(world):
    world.pod("solo")
    await world.pass_time(2)

    pod = world.get(r.PODS, "solo")
    assert gates(pod) == []
    assert pod["spec"]["nodeSelector"] == {"gpu": "h100"}
    assert pod["metadata"]["finalizers"] == [MANAGED]
    world.run_pods("Succeeded")
    await world.pass_time(1)

    assert world.condition("solo", "Finished")["reason"] == "Succeeded"
    assert world.get(r.PODS, "solo")["metadata"]["finalizers"] == []


async def test_a_queue_whose_quota_cannot_be_read_says_so(world):
    world.queue("odd", gpus="many")
    await world.pass_time(3)

    status = world.get(r.CLUSTER_QUEUES, "odd")["status"]
    active = condition({"status": status}, "Active")
    assert (active["status"], active["reason"]) == ("False", "Misconfigured")
    assert "a quota cannot be read" in active["message"]


async def test_nothing_is_created_in_a_namespace_that_is_being_deleted(world):
    metadata = {"name": "ns", "finalizers": ["kubernetes"]}
    world.put(r.NAMESPACES, {"metadata": {**metadata, "deletionTimestamp": "2023-11-14T22:13:20Z"}})
    world.job("train")
    await world.pass_time(2)

    assert world.workload_of("train") is None
    assert world.suspended("train")


async def test_a_job_whose_workload_does_not_name_it_any_more_stops_and_queues_again(world):
    world.job("train")
    await world.pass_time(1)
    workload = world.workload_of("train")
    metadata = {**workload["metadata"], "ownerReferences": [], "finalizers": []}
    world.put(r.WORKLOADS, {**workload, "metadata": metadata})
    await world.pass_time(1)

    assert world.events("Stopped")
    await world.pass_time(2)
    assert not world.suspended("train")
    assert world.workload_of("train")["metadata"]["uid"] != workload["metadata"]["uid"]


async def test_a_group_waits_until_all_pods_exist(world):
    for index in range(3):
        world.pod(f"ring-{index}", group="ring", total=4)
    await world.pass_time(2)
    assert world.workload_of("ring") is None

    world.pod("ring-3", group="ring", total=4)
    await world.pass_time(2)

    assert [gates(pod) for pod in world.all(r.PODS)] == [[]] * 4
    workload = world.workload_of("ring")
    assert [p["count"] for p in workload["spec"]["podSets"]] == [4]
    assert len(workload["metadata"]["ownerReferences"]) == 4


async def test_a_group_that_stays_incomplete_says_how_many_pods_are_missing(world):
    for index in range(3):
        world.pod(f"ring-{index}", group="ring", total=4)

    await world.pass_time(1)
    assert world.events("ErrWorkloadCompose") == []

    await world.pass_time(5)
    (event,) = world.events("ErrWorkloadCompose")
    assert event["message"] == "'ring' group has fewer runnable pods than expected"

    await world.pass_time(5)
    (event,) = (e for e in world.events("ErrWorkloadCompose") if e != event)
    assert event["message"].endswith("than expected: 3 of 4 pods are there")


async def test_a_group_that_need_not_be_whole_waits_for_quota_only(world):
    world.job("first")
    await world.pass_time(2)
    world.pod("driver", group="ring", total=4, **{FAST_ADMISSION: "true"})
    await world.pass_time(2)
    assert gates(world.get(r.PODS, "driver"))

    world.end_job("first")
    await world.pass_time(2)

    assert not gates(world.get(r.PODS, "driver"))


async def test_a_group_starts_whole_or_not_at_all(world):
    world.job("holder", gpus=2)
    await world.pass_time(1)
    for index in range(4):
        world.pod(f"ring-{index}", group="ring", total=4)
    await world.pass_time(2)
    assert [gates(pod) for pod in world.all(r.PODS)] == [[GATE, TOPOLOGY_GATE]] * 4

    world.end_job("holder")
    await world.pass_time(2)

    assert [gates(pod) for pod in world.all(r.PODS)] == [[]] * 4


@pytest.mark.gate("ReclaimablePods")
async def test_nothing_is_given_back_before_the_end_where_that_is_off():
    world = World(QueueingSettings(gates=Gates(reclaimable_pods=False)))
    world.furnish()
    async with running(world):
        for index in range(2):
            world.pod(f"ring-{index}", group="ring", total=2)
        job = world.job("train", gpus=1)
        spec = {**job["spec"], "parallelism": 2, "completions": 2}
        world.store.replace(r.JOBS, world.get(r.JOBS, "train"), {**plain(job), "spec": spec})
        await world.pass_time(2)
        world.set_status(r.PODS, "ring-0", phase="Succeeded")
        world.set_status(r.JOBS, "train", succeeded=1)
        await world.pass_time(1)

        reclaimable = [each["status"].get("reclaimablePods") for each in world.all(r.WORKLOADS)]
        assert reclaimable == [None, None]


async def test_a_group_ends_when_all_its_pods_have_succeeded(world):
    for index in range(2):
        world.pod(f"ring-{index}", group="ring", total=2)
    await world.pass_time(2)
    world.set_status(r.PODS, "ring-0", phase="Succeeded")
    await world.pass_time(1)

    assert world.workload_of("ring")["status"]["reclaimablePods"][0]["count"] == 1
    world.delete(r.PODS, "ring-0")
    world.set_status(r.PODS, "ring-1", phase="Succeeded")
    await world.pass_time(1)

    finished = world.condition("ring", "Finished")
    assert finished["reason"] == "Succeeded"


async def test_a_waiting_group_that_loses_a_pod_does_not_start(world):
    world.job("holder")
    await world.pass_time(1)
    for index in range(2):
        world.pod(f"ring-{index}", group="ring", total=2)
    await world.pass_time(1)
    world.delete(r.PODS, "ring-0")
    await world.pass_time(1)
    assert world.is_true("ring", "WaitingForReplacementPods")

    world.end_job("holder")
    await world.pass_time(1)
    assert gates(world.get(r.PODS, "ring-1")) == [GATE, TOPOLOGY_GATE]
    world.pod("ring-2", group="ring", total=2)
    await world.pass_time(2)

    assert names(world, r.PODS) == ["ring-1", "ring-2"]
    assert [gates(pod) for pod in world.all(r.PODS)] == [[]] * 2


async def test_an_evicted_group_loses_its_running_pods(world):
    for index in range(2):
        world.pod(f"ring-{index}", group="ring", total=2)
    await world.pass_time(1)
    world.run_pods("Running")

    world.queue(stopPolicy="HoldAndDrain")
    await world.pass_time(2)

    assert [is_deleted(pod) for pod in world.all(r.PODS)] == [True, True]
    assert world.condition("ring", "WaitingForReplacementPods")["reason"] == "ClusterQueueStopped"


async def test_pods_beyond_the_total_are_deleted(world):
    for index in range(3):
        world.pod(f"ring-{index}", group="ring", total=2)
    await world.pass_time(2)

    left = [pod["metadata"]["name"] for pod in world.all(r.PODS)]
    assert left == ["ring-0", "ring-1"]


async def test_pods_go_with_their_workload_though_they_wait(world):
    for index in range(2):
        world.pod(f"ring-{index}", gpus=8, group="ring", total=2)
    await world.pass_time(2)
    assert gates(world.get(r.PODS, "ring-0"))

    world.delete(r.WORKLOADS, "ring")
    await world.pass_time(2)

    assert world.all(r.PODS) == world.all(r.WORKLOADS) == []
    assert {event["message"] for event in world.events("Stopped")} == {"Workload is deleted"}


# Queues.


async def test_queues_say_what_they_hold(world):
    world.queue(cohort="all")
    world.queue("other", cohort="all")
    await world.pass_time(1)
    world.job("own")
    world.job("borrowed", gpus=4)
    await world.pass_time(3)

    status = world.store.get(r.CLUSTER_QUEUES, "", "cq")["status"]
    usage = status["flavorsUsage"][0]["resources"][0]
    assert usage == {"name": GPU, "total": "12", "borrowed": "4"}
    assert (status["admittedWorkloads"], status["reservingWorkloads"]) == (2, 2)
    local = world.store.get(r.LOCAL_QUEUES, "ns", "lq-cq")["status"]
    assert local["flavorsUsage"][0]["resources"][0] == {"name": GPU, "total": "12"}
    assert condition({"status": local}, "Active")["message"] == (
        "Can submit new workloads to localQueue"
    )


async def test_an_event_says_which_flavors_did_not_simply_fit(world):
    world.queue(cohort="all")
    world.queue("other", cohort="all")
    await world.pass_time(1)
    world.job("borrows", gpus=12)
    await world.pass_time(1)

    (message,) = (e["message"] for e in world.events() if e["reason"] == "QuotaReserved")
    assert message == (
        "Quota reserved in ClusterQueue cq, wait time since queued was 0s;"
        " Flavors considered: main: h100(Fit;borrow=1)"
    )


async def test_only_the_biggest_holders_are_named(world):
    for index in range(5):
        world.job(f"small-{index}", gpus=1)
    await world.pass_time(1)
    world.job("big", gpus=8)
    await world.pass_time(1)

    message = world.condition("big", "QuotaReserved")["message"]
    assert message.endswith("; held by ns/small-0 (1), ns/small-1 (1), ns/small-2 (1) and 2 more")


async def test_statuses_of_queues_are_gathered(world):
    await world.pass_time(3)
    before = queue_writes(world)
    for index in range(8):
        world.job(f"small-{index}", gpus=1)
    await world.pass_time(3)

    assert queue_writes(world) - before <= 4, "two queues, twice at most for a burst"


async def test_changes_are_applied_without_a_new_decision(world):
    world.job("holder")
    await world.pass_time(1)
    world.job("waits")
    await world.pass_time(5)
    await world.kill()
    controller, name = world.controller, world.workload_of("waits")["metadata"]["name"]
    mirror = controller.mirrors.workloads
    workload, queue = mirror.get(f"ns/{name}"), controller.mirrors.cluster_queues.get("cq")
    changed = {"spec": {"queueingStrategy": "StrictFIFO"}}
    await controller.writes.patch(controller.mirrors.cluster_queues, queue, changed)
    controller.workloads.cycles.cycle()  # it waits on, for the same reason
    await controller.writes.patch(mirror, workload, {"spec": {"active": False}})

    again = await controller.workloads.reconcile(workload_key(workload))
    assert again == 0.0
    await controller.workloads.reconcile(workload_key(workload))

    assert world.condition("waits", "Evicted")["reason"] == "Deactivated"
