"""Gangs that another scheduler starts: it is told of them before their pods go, and not after."""

import pytest

from policyd.api.kueue.names import API_VERSION
from policyd.controller.watch.mirrors import job_resource
from policyd.jobs.kinds.leader_worker_set import (
    GROUP_INDEX_LABEL,
    LEADER_NAME,
    LEADER_WORKER_SET,
    NAME_LABEL,
)
from policyd.jobs.kinds.registry import find_kind
from policyd.jobs.rules.defaults import default_on_create
from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError, NotFoundError
from policyd.kube.resources import Resource
from policyd.patch.draft import Draft
from tests.controller.test_parents import make_pod, make_set, stateful_set, submit
from tests.controller.world import GPU, QUEUE, World, condition, gates, pod_spec, running

pytestmark = pytest.mark.anyio

VOLCANO = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
COSCHEDULING = Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup")
NATIVE = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")
JOB_SETS = job_resource(find_kind("jobset.x-k8s.io", "JobSet"))
SCHEDULER = "policyd.io/gang-scheduler"


def hand_to(world, scheduler="Volcano", name="cq", **annotations):
    (queue,) = [q for q in world.all(r.CLUSTER_QUEUES) if q["metadata"]["name"] == name]
    annotated = {} if scheduler is None else {SCHEDULER: scheduler}
    meta = {"name": name, "annotations": {**annotated, **annotations}}
    world.put(r.CLUSTER_QUEUES, {"metadata": meta, "spec": queue["spec"]})


@pytest.fixture
async def world():
    made = World()
    made.furnish(gpus=16)
    hand_to(made, **{"policyd.io/gang-queue": "research"})
    async with running(made):
        yield made


def job(world, name="train", pods=4, scheduler="volcano", **metadata):
    template = {"metadata": metadata, "spec": {**pod_spec(2), "schedulerName": scheduler}}
    spec = {"suspend": True, "parallelism": pods, "completions": pods, "template": template}
    meta = {"name": name, "labels": {QUEUE: "lq-cq"}}
    body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
    return world.create(r.JOBS, body)


def job_set(world, *roles, name="train", **spec):
    jobs = [
        {
            "name": role,
            "template": {"spec": {"parallelism": pods, "template": {"spec": pod_spec(gpus)}}},
        }
        for role, pods, gpus in roles
    ]
    meta = {"name": name, "labels": {QUEUE: "lq-cq"}}
    body = {"suspend": True, "replicatedJobs": jobs, **spec}
    world.create(JOB_SETS, {"metadata": meta, "spec": body})


def groups(world, resource=VOLCANO):
    return {each["metadata"]["name"]: each for each in world.all(resource)}


def writes(world):
    """What was written of PodGroups and jobs, in order: verb and kind."""
    written = [(w.verb, w.resource.kind) for w in world.client.writes]
    return [each for each in written if each[1] in {"PodGroup", "Job"}]


async def test_a_group_is_made_before_its_job_is_let_go(world):
    job(world)
    await world.pass_time(2)

    ((name, group),) = groups(world).items()
    spec = world.get(r.JOBS, "train")["spec"]
    assert not spec["suspend"]
    assert spec["template"]["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == name
    assert group["spec"]["minMember"] == 4
    assert group["spec"]["minResources"] == {GPU: "8"}
    assert group["spec"]["queue"] == "research"
    assert writes(world) == [("create", "PodGroup"), ("patch", "Job")]
    (event,) = world.events("GangHandedOver")
    assert event["message"] == f"Handed over to Volcano as PodGroup {name}"


async def test_a_group_belongs_to_the_workload(world):
    job(world)
    await world.pass_time(2)

    (group,) = groups(world).values()
    (owner,) = group["metadata"]["ownerReferences"]
    assert owner["uid"] == world.workload_of("train")["metadata"]["uid"]


async def test_a_group_goes_when_its_job_is_stopped_and_comes_back_with_it(world):
    job(world)
    await world.pass_time(2)
    workload = world.workload_of("train")

    world.put(r.WORKLOADS, {**workload, "spec": {**workload["spec"], "active": False}})
    await world.pass_time(3)
    template = world.get(r.JOBS, "train")["spec"]["template"]
    assert groups(world) == {}
    assert "scheduling.k8s.io/group-name" not in template["metadata"].get("annotations", {})

    workload = world.workload_of("train")
    world.put(r.WORKLOADS, {**workload, "spec": {**workload["spec"], "active": True}})
    await world.pass_time(70)
    assert list(groups(world)) == [workload["metadata"]["name"]]
    assert not world.suspended("train")


async def test_a_group_goes_though_another_controller_made_it(world):
    job(world)
    await world.pass_time(2)
    await world.kill()
    await world.start()
    assert len(groups(world)) == 1

    workload = world.workload_of("train")
    world.put(r.WORKLOADS, {**workload, "spec": {**workload["spec"], "active": False}})
    await world.pass_time(3)

    assert groups(world) == {}


async def test_a_group_goes_when_its_job_has_ended(world):
    job(world)
    await world.pass_time(2)

    world.end_job("train")
    await world.pass_time(2)

    assert groups(world) == {}


async def test_a_job_with_pods_for_another_scheduler_starts_and_gets_an_event(world):
    job(world, scheduler="default-scheduler")
    await world.pass_time(2)

    assert groups(world) == {}
    assert not world.suspended("train")
    (event,) = world.events("GangNotHandedOver")
    assert event["type"] == "Warning"
    why = "the pods of `main` do not have `schedulerName: volcano`"
    assert event["message"] == f"Not handed over to Volcano: {why}"


@pytest.mark.parametrize(
    ("error", "why"),
    [
        pytest.param(
            NotFoundError("404"),
            "Cannot create the PodGroup: the API server has no PodGroups of scheduling.volcano.sh",
            id="no-such-kind",
        ),
        pytest.param(
            ForbiddenError("may not create podgroups"),
            "Cannot create the PodGroup: may not create podgroups",
            id="not-allowed",
        ),
    ],
)
async def test_a_job_waits_while_the_group_cannot_be_made(world, error, why):
    world.client.fail(error, verb="create", plural="podgroups")
    job(world)
    await world.pass_time(2)
    assert world.suspended("train")
    (event,) = world.events("GangNotHandedOver")
    assert event["message"] == why

    await world.pass_time(10)
    assert not world.suspended("train")
    assert len(groups(world)) == 1


async def test_a_group_of_another_manager_stays_unchanged(world):
    name = "mine"
    meta = {"name": name, "namespace": "ns"}
    world.put(VOLCANO, {"metadata": meta, "spec": {"minMember": 3}})
    job(world, annotations={"scheduling.k8s.io/group-name": name})
    await world.pass_time(2)
    assert not world.suspended("train")

    world.end_job("train")
    await world.pass_time(2)
    assert groups(world)[name]["spec"] == {"minMember": 3}


async def test_a_group_of_a_workload_that_is_gone_is_made_again(world):
    owner = {"apiVersion": API_VERSION, "kind": "Workload", "name": "old", "uid": "0"}
    meta = {"name": "mine", "namespace": "ns", "ownerReferences": [owner]}
    world.put(VOLCANO, {"metadata": meta, "spec": {"minMember": 4}})
    job(world, annotations={"scheduling.k8s.io/group-name": "mine"})
    await world.pass_time(2)

    (owner,) = groups(world)["mine"]["metadata"]["ownerReferences"]
    assert owner["uid"] == world.workload_of("train")["metadata"]["uid"]


@pytest.mark.parametrize("after", [False, True], ids=["before-a-write", "after-a-write"])
@pytest.mark.parametrize("writes_left", range(7))
async def test_a_controller_that_is_killed_leaves_a_gang_that_the_next_one_starts(
    writes_left, after
):
    world = World()
    world.furnish(gpus=16)
    hand_to(world)
    job(world)
    await world.start(writes=writes_left, after=after)
    await world.pass_time(3)
    await world.kill()

    async with running(world):
        await world.pass_time(3)
        assert not world.suspended("train")
        ((name, group),) = groups(world).items()
        template = world.get(r.JOBS, "train")["spec"]["template"]
        assert template["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == name
        assert group["spec"]["minMember"] == 4


async def test_a_group_that_says_something_else_is_made_again(world):
    job(world)
    await world.pass_time(2)
    name, group = next(iter(groups(world).items()))
    await world.kill()
    world.put(VOLCANO, {**group, "spec": {"minMember": 1}})
    world.set_status(r.JOBS, "train")
    body = world.get(r.JOBS, "train")
    world.put(r.JOBS, {**body, "spec": {**body["spec"], "suspend": True}})
    await world.start()
    await world.pass_time(3)

    assert groups(world)[name]["spec"]["minMember"] == 4
    assert not world.suspended("train")


async def test_a_queue_says_how_long_pods_wait_for_each_other(world):
    hand_to(world, "Coscheduling", **{"policyd.io/gang-wait": "2m"})
    await world.pass_time(1)
    job(world, scheduler="plugged-in")
    await world.pass_time(2)

    (group,) = groups(world, COSCHEDULING).values()
    assert group["spec"]["scheduleTimeoutSeconds"] == 120


async def test_a_queue_that_says_nothing_hands_nothing_over(world):
    hand_to(world, None)
    await world.pass_time(1)
    job(world)
    await world.pass_time(2)

    assert not world.suspended("train")
    assert groups(world) == {}
    assert world.events("GangHandedOver") == []


async def test_an_unknown_scheduler_is_reported_on_the_queue_and_nothing_starts(world):
    hand_to(world, "volcanic")
    await world.pass_time(2)
    job(world)
    await world.pass_time(2)

    (queue,) = world.all(r.CLUSTER_QUEUES)
    active = condition(queue, "Active")
    assert active["status"] == "False"
    assert "unknown scheduler `volcanic`" in active["message"]
    assert world.suspended("train")


async def test_the_newest_version_of_native_groups_that_is_served_is_written(world):
    hand_to(world, "Native")
    await world.pass_time(1)
    missing = NotFoundError("the server could not find the requested resource")
    world.client.fail(missing, verb="create", plural="podgroups")
    job(world, scheduler="")
    await world.pass_time(2)

    (group,) = groups(world, NATIVE).values()
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 4}}}
    assert group["apiVersion"] == "scheduling.k8s.io/v1alpha2"


async def test_roles_of_a_job_set_in_order_are_gangs_of_their_own(world):
    hand_to(world, "Native")
    await world.pass_time(1)
    in_order = {"startupPolicy": {"startupPolicyOrder": "InOrder"}}
    job_set(world, ("driver", 1, 0), ("worker", 4, 2), **in_order)
    await world.pass_time(2)

    found = groups(world, NATIVE)
    counts = {
        name.rpartition("-")[2]: each["spec"]["schedulingPolicy"]["gang"]["minCount"]
        for name, each in found.items()
    }
    assert counts == {"driver": 1, "worker": 4}
    (event,) = world.events("GangHandedOver")
    assert "; not supported: the gang as a whole (its roles start in order" in event["message"]


async def test_nothing_is_written_for_a_gang_of_which_one_role_fits(world):
    job_set(world, ("driver", 1, 2), ("worker", 4, 8))
    await world.pass_time(2)

    workload = world.workload_of("train")
    assert condition(workload, "QuotaReserved")["status"] == "False"
    assert "admission" not in workload["status"]
    job_writes = [w for w in world.client.writes if w.resource in {JOB_SETS, r.PODS, VOLCANO}]
    assert job_writes == []


async def test_no_workload_is_preempted_for_a_gang_that_would_not_fit_whole():
    world = World()
    world.furnish(gpus=16, preemption={"withinClusterQueue": "LowerPriority"})
    meta = {"metadata": {"name": "high"}, "value": 10}
    world.put(r.WORKLOAD_PRIORITY_CLASSES, meta)
    async with running(world):
        world.job("small", gpus=8)
        await world.pass_time(2)
        job_set(world, ("driver", 1, 8), ("worker", 2, 8))
        body = world.get(JOB_SETS, "train")
        labels = {**body["metadata"]["labels"], "kueue.x-k8s.io/priority-class": "high"}
        world.put(JOB_SETS, {**body, "metadata": {**body["metadata"], "labels": labels}})
        await world.pass_time(3)

        assert world.is_true("small", "Admitted")
        assert not world.is_true("small", "Evicted")
        assert not world.is_true("train", "QuotaReserved")


def member(world, name, *, order="", total=3, **metadata):
    """A pod of the group `ring`, as the webhook leaves it."""
    annotations = {"kueue.x-k8s.io/pod-group-total-count": str(total)}
    annotations |= {"kueue.x-k8s.io/role-hash": f"role{order}"} if order else {}
    annotations |= {"policyd.io/start-order": order} if order else {}
    labels = {QUEUE: "lq-cq", "kueue.x-k8s.io/pod-group-name": "ring", **metadata.pop("labels", {})}
    meta = {"name": name, "labels": labels, "annotations": {**annotations, **metadata}}
    spec = {**pod_spec(1), "schedulerName": "volcano"}
    draft = Draft({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    default_on_create(draft, group="", kind="Pod")
    return world.create(r.PODS, draft.object)


def let_go(world):
    return [pod["metadata"]["name"] for pod in world.all(r.PODS) if not gates(pod)]


def make_ready(world, name):
    world.set_status(
        r.PODS, name, phase="Running", conditions=[{"type": "Ready", "status": "True"}]
    )


async def test_pods_start_when_those_of_lower_numbers_are_ready(world):
    for name, order in (("worker-a", "1"), ("worker-b", "1"), ("leader", "")):
        member(world, name, order=order)
    await world.pass_time(2)
    assert world.is_true("ring", "Admitted")
    assert let_go(world) == ["leader"]

    await world.pass_time(5)
    world.set_status(r.PODS, "leader", phase="Running")
    await world.pass_time(2)
    assert let_go(world) == ["leader"]

    make_ready(world, "leader")
    await world.pass_time(2)
    assert sorted(let_go(world)) == ["leader", "worker-a", "worker-b"]


async def test_pods_that_wait_for_others_stay_when_these_are_stopped(world):
    for name, order in (("worker-a", "1"), ("worker-b", "1"), ("leader", "")):
        member(world, name, order=order)
    await world.pass_time(2)
    workload = world.workload_of("ring")

    world.put(r.WORKLOADS, {**workload, "spec": {**workload["spec"], "active": False}})
    await world.pass_time(3)

    stay = [pod for pod in world.all(r.PODS) if "deletionTimestamp" not in pod["metadata"]]
    assert sorted(pod["metadata"]["name"] for pod in stay) == ["worker-a", "worker-b"]
    assert not any(pod["metadata"]["name"] in let_go(world) for pod in stay)


async def test_a_group_of_pods_is_handed_over_before_they_go(world):
    for name in ("a", "b", "c"):
        member(world, name)
    await world.pass_time(2)

    assert groups(world)["ring"]["spec"]["minMember"] == 3
    assert let_go(world) == ["a", "b", "c"]
    written = [w for w in world.client.writes if w.resource in {VOLCANO, r.PODS}]
    assert written[0].resource == VOLCANO
    (pod, *_) = world.all(r.PODS)
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "ring"


async def test_pods_that_volcano_took_for_single_ones_come_into_one_group(world):
    for name in ("a", "b", "c"):
        member(world, name, **{"scheduling.k8s.io/group-name": f"podgroup-{name}"})
    await world.pass_time(2)

    named = {
        pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] for pod in world.all(r.PODS)
    }
    assert named == set(groups(world)) == {"ring"}


async def test_pods_may_say_which_group_they_belong_to(world):
    for name in ("a", "b", "c"):
        member(world, name, **{"scheduling.k8s.io/group-name": "mine"})
    await world.pass_time(2)

    assert list(groups(world)) == ["mine"]


async def test_roles_of_pods_that_start_in_order_are_gangs_of_their_own(world):
    for name, order in (("worker-a", "1"), ("worker-b", "1"), ("leader", "")):
        member(world, name, order=order)
    await world.pass_time(2)

    found = {name: each["spec"]["minMember"] for name, each in groups(world).items()}
    assert sorted(found.values()) == [1, 2]


async def test_pods_cannot_join_a_native_group_any_more_and_start_without(world):
    hand_to(world, "Native")
    await world.pass_time(1)
    for name in ("a", "b", "c"):
        member(world, name)
    await world.pass_time(2)

    assert let_go(world) == ["a", "b", "c"]
    assert groups(world, NATIVE) == {}
    assert "only new pods" in world.events("GangNotHandedOver")[0]["message"]


@pytest.mark.parametrize(
    ("policy", "workers", "made"),
    [
        pytest.param("LeaderCreated", 2, [3], id="all-at-once"),
        pytest.param("LeaderReady", 0, [1, 2], id="workers-after-their-leader"),
    ],
)
async def test_a_leader_and_its_workers_are_handed_over_as_they_are_made(
    world, policy, workers, made
):
    hand_to(world, "Coscheduling")
    await world.pass_time(1)
    templates = {"leaderTemplate": {"spec": pod_spec(1)}, "workerTemplate": {"spec": pod_spec(2)}}
    spec = {"startupPolicy": policy, "leaderWorkerTemplate": {"size": 3, **templates}}
    parent = submit(world, LEADER_WORKER_SET, {"replicas": 1, **spec})
    leader = parent["spec"]["leaderWorkerTemplate"]["leaderTemplate"]
    labels = {NAME_LABEL: "serve", GROUP_INDEX_LABEL: "0"}
    make_set(world, parent)
    make_pod(world, parent, 0, leader, labels=labels)
    for number in range(workers):
        worker, led = parent["spec"]["leaderWorkerTemplate"]["workerTemplate"], {LEADER_NAME: "0"}
        make_pod(world, parent, f"0-{number}", worker, labels=labels, annotations=led)
    await world.pass_time(3)

    found = [each["spec"]["minMember"] for each in groups(world, COSCHEDULING).values()]
    assert sorted(found) == made
    assert len(let_go(world)) == 1 + workers


async def test_pods_that_are_made_one_by_one_are_no_gang(world):
    hand_to(world, "Coscheduling")
    await world.pass_time(1)
    parent = stateful_set(world)
    make_pod(world, parent, 0, parent["spec"]["template"])
    await world.pass_time(3)

    assert groups(world, COSCHEDULING) == {}
    assert let_go(world) == ["serve-0"]
    assert "each pod is created only" in world.events("GangNotHandedOver")[0]["message"]
