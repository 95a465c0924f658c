"""StatefulSets and LeaderWorkerSets: their pods are held, and start and stop as groups."""

import msgspec
import pytest

from policyd.alloc.settings import DEFAULTS, Gates, QueueingSettings
from policyd.api.makers import Makers
from policyd.api.meta import ObjectMeta
from policyd.controller.watch.mirrors import job_resource
from policyd.jobs.integrations import Integrations
from policyd.jobs.kinds.leader_worker_set import LEADER_WORKER_SET
from policyd.jobs.kinds.stateful_set import STATEFUL_SET
from policyd.kube import resources as r
from policyd.testing.objects import refusal
from policyd.workload.records import job_of
from tests.controller.parents import make_pod, submit
from tests.controller.world import QUEUE, World, condition, gates, pod_spec, running

pytestmark = pytest.mark.anyio

SETS, LEADERS = job_resource(STATEFUL_SET), job_resource(LEADER_WORKER_SET)
P = "kueue.x-k8s.io/"
PRIORITY, GROUP = f"{P}priority-class", f"{P}pod-group-name"


@pytest.fixture
def makers():
    """Whose word counts for who owns what."""
    return Makers()


@pytest.fixture
def queueing():
    """How the queue decides."""
    return DEFAULTS


@pytest.fixture
async def world(makers, queueing):
    made = World(queueing)
    made.integrations = Integrations(makers=makers)
    made.furnish()
    made.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 10})
    made.queue(preemption={"withinClusterQueue": "LowerPriority"})
    async with running(made):
        yield made


def stateful_set(world, replicas=2, gpus=2, **labels):
    spec = {"replicas": replicas, "template": {"spec": pod_spec(gpus)}}
    return submit(world, STATEFUL_SET, spec, **labels)


def scale(world, name, replicas):
    found = world.get(SETS, name)
    new = {**found, "spec": {**found["spec"], "replicas": replicas}}
    world.store.replace(SETS, found, new)


async def test_pods_of_a_stateful_set_wait_for_quota_and_start_one_after_the_other(world):
    parent = stateful_set(world)
    await world.pass_time(2)
    workload = world.workload_of("serve")
    assert [each["count"] for each in workload["spec"]["podSets"]] == [2]
    assert world.is_true("serve", "Admitted")

    make_pod(world, parent, 0, parent["spec"]["template"])
    await world.pass_time(2)
    (first,) = world.all(r.PODS)
    assert gates(first) == []
    assert first["spec"]["nodeSelector"] == {"gpu": "h100"}

    world.run_pods("Running")
    make_pod(world, parent, 1, parent["spec"]["template"])
    await world.pass_time(2)
    assert [gates(pod) for pod in world.all(r.PODS)] == [[], []]


@pytest.mark.parametrize(
    ("name", "section"),
    [
        pytest.param("serve", "labels", id="as-labels-may-be"),
        pytest.param("s" * 52, "annotations", id="longer"),
    ],
)
async def test_pods_get_their_group_by_labels_where_they_are_to_be(name, section):
    world = World(queueing=QueueingSettings(gates=Gates(workload_identifier_annotations=False)))
    world.furnish()
    world.queue()
    async with running(world):
        parent = stateful_set(world, name=name)
        make_pod(world, parent, 0, parent["spec"]["template"])
        await world.pass_time(2)

    (pod,) = world.all(r.PODS)
    named = {each for each in ("labels", "annotations") if GROUP in pod["metadata"][each]}
    assert (named, gates(pod)) == ({section}, [])


@pytest.mark.parametrize("made", [0, 2])
async def test_a_stateful_set_that_is_preempted_holds_no_quota_without_pods(world, made):
    parent = stateful_set(world, gpus=4)
    await world.pass_time(2)
    for index in range(made):
        make_pod(world, parent, index, parent["spec"]["template"])
        await world.pass_time(2)
        world.run_pods("Running")

    world.job("urgent", **{PRIORITY: "high"})
    await world.pass_time(4)

    assert world.all(r.PODS) == []
    assert not world.is_true("serve", "QuotaReserved")
    assert not world.suspended("urgent")


async def test_a_stateful_set_that_is_preempted_starts_again_later(world):
    parent = stateful_set(world)
    make_pod(world, parent, 0, parent["spec"]["template"])
    await world.pass_time(2)
    world.run_pods("Running")
    assert not gates(world.get(r.PODS, "serve-0"))

    world.job("urgent", **{PRIORITY: "high"})
    await world.pass_time(2)
    assert world.all(r.PODS) == []
    make_pod(world, parent, 0, parent["spec"]["template"])
    await world.pass_time(2)
    assert not world.suspended("urgent")
    assert gates(world.get(r.PODS, "serve-0"))
    assert not world.is_true("serve", "QuotaReserved")

    world.end_job("urgent")
    await world.pass_time(2)
    assert not gates(world.get(r.PODS, "serve-0"))


TERSE = msgspec.structs.replace(DEFAULTS, gates=Gates(unadmitted_workloads_observability=False))


@pytest.mark.parametrize("queueing", [DEFAULTS, TERSE], ids=["detailed", "without-detail"])
async def test_a_stateful_set_of_no_pods_gives_its_quota_back_and_asks_for_it_again(world):
    stateful_set(world)
    await world.pass_time(2)

    scale(world, "serve", 0)
    await world.pass_time(2)
    reserved = world.condition("serve", "QuotaReserved")
    assert reserved["reason"] == "OnHold"
    assert reserved["message"] == "StatefulSet scaled to zero; workload on hold"
    scale(world, "serve", 3)
    await world.pass_time(2)

    assert world.is_true("serve", "Admitted")
    assert [each["count"] for each in world.workload_of("serve")["spec"]["podSets"]] == [3]


async def test_a_stateful_set_scaled_to_zero_and_up_at_once_has_quota_for_what_it_is_now(world):
    stateful_set(world)
    await world.pass_time(2)
    assert world.is_true("serve", "Admitted")

    scale(world, "serve", 0)
    scale(world, "serve", 3)
    await world.pass_time(2)

    assert world.is_true("serve", "Admitted")
    (assigned,) = world.workload_of("serve")["status"]["admission"]["podSetAssignments"]
    assert assigned["count"] == 3


async def test_a_stateful_set_keeps_its_quota_while_pods_of_before_are_there(world):
    parent = stateful_set(world)
    make_pod(world, parent, 0, parent["spec"]["template"])
    await world.pass_time(2)

    scale(world, "serve", 0)
    scale(world, "serve", 3)
    await world.pass_time(2)
    (assigned,) = world.workload_of("serve")["status"]["admission"]["podSetAssignments"]
    assert assigned["count"] == 2


async def test_a_workload_says_whose_it_is_also_one_that_a_set_takes_over(world):
    parent = stateful_set(world)
    await world.pass_time(2)
    workload = world.workload_of("serve")
    notes = workload["metadata"]["annotations"]
    whose = {f"{P}job-owner-gvk": "apps/v1, Kind=StatefulSet", f"{P}job-owner-name": "serve"}
    assert notes == {f"{P}is-group-workload": "true", **whose}
    assert job_of(msgspec.convert(workload["metadata"], ObjectMeta)) == "StatefulSet/serve"

    lost = {"annotations": {}, "labels": {}, "ownerReferences": []}
    metadata = {**workload["metadata"], **lost}
    world.store.replace(r.WORKLOADS, workload, {**workload, "metadata": metadata})
    world.store.replace(SETS, parent, {**parent, "status": {"replicas": 0}}, part="status")
    await world.pass_time(2)

    taken = world.workload_of("serve")["metadata"]
    assert taken["annotations"] == whose
    assert job_of(msgspec.convert(taken, ObjectMeta)) == "StatefulSet/serve"


async def test_the_priority_of_a_stateful_set_is_that_of_its_workload(world):
    parent = stateful_set(world, **{PRIORITY: "high"})
    make_pod(world, parent, 0, parent["spec"]["template"])
    await world.pass_time(2)

    assert world.workload_of("serve")["spec"]["priority"] == 10


def groups(leader=0, worker=2):
    template = {"workerTemplate": {"spec": pod_spec(worker)}, "size": 2}
    return {**template, "leaderTemplate": {"spec": pod_spec(leader)}} if leader else template


def make_set(world, parent):
    """Make the StatefulSet that makes the pods of a LeaderWorkerSet, if it is not there."""
    if not world.all(SETS):
        own = {"metadata": {"name": parent["metadata"]["name"]}, "spec": {"replicas": 0}}
        world.create(SETS, {"apiVersion": "apps/v1", "kind": "StatefulSet", **own})


def make_group(world, parent, index):
    made = parent["spec"]["leaderWorkerTemplate"]
    labels = {
        "leaderworkerset.sigs.k8s.io/name": parent["metadata"]["name"],
        "leaderworkerset.sigs.k8s.io/group-index": str(index),
    }
    make_set(world, parent)
    leads = made.get("leaderTemplate") or made["workerTemplate"]
    make_pod(world, parent, f"{index}", leads, labels=labels)
    led = {"leaderworkerset.sigs.k8s.io/leader-name": f"serve-{index}"}
    make_pod(world, parent, f"{index}-1", made["workerTemplate"], labels=labels, annotations=led)


@pytest.mark.parametrize("leader", [pytest.param(0, id="alike"), pytest.param(2, id="led")])
async def test_groups_of_a_leader_worker_set_start_one_by_one_as_there_is_quota(world, leader):
    spec = {"replicas": 3, "leaderWorkerTemplate": groups(leader)}
    parent = submit(world, LEADER_WORKER_SET, spec)
    for index in range(3):
        make_group(world, parent, index)

    await world.pass_time(3)
    waiting = {pod["metadata"]["name"] for pod in world.all(r.PODS) if gates(pod)}

    assert len(world.all(r.WORKLOADS)) == 3
    assert waiting == {"serve-2", "serve-2-1"}


async def test_a_group_whose_workload_cannot_be_made_does_not_stop_the_others(world):
    world.client.fail(refusal(500, "InternalError", "no"), verb="create", plural="workloads")
    submit(world, LEADER_WORKER_SET, {"replicas": 3, "leaderWorkerTemplate": groups()})
    await world.pass_time(2)

    tried = [w.name for w in world.client.writes if (w.verb, w.resource) == ("create", r.WORKLOADS)]
    assert len(set(tried[:3])) == len(world.all(r.WORKLOADS)) == 3
    assert tried[3] == tried[0]


BELIEVING = pytest.mark.parametrize("makers", [Makers(trusted=True)], ids=["owners-are-believed"])
BOTH = pytest.mark.parametrize(
    "makers", [Makers(), Makers(trusted=True)], ids=["asked", "believed"]
)


@BOTH
async def test_pods_of_a_group_whose_maker_is_gone_stay_held_unless_owners_are_believed(
    world, makers
):
    spec = {"replicas": 1, "leaderWorkerTemplate": groups(2)}
    parent = submit(world, LEADER_WORKER_SET, {**spec, "replicas": 0})
    make_group(world, parent, 0)
    await world.pass_time(2)
    assert gates(world.get(r.PODS, "serve-0"))

    world.store.delete(SETS, world.get(SETS, "serve"), dry_run=False)
    found = world.get(LEADERS, "serve")
    world.store.replace(LEADERS, found, {**found, "spec": spec})
    await world.pass_time(2)

    left = world.get(r.PODS, "serve-0")
    assert bool(gates(left)) is not makers.trusted
    assert bool(world.events("HeldWithoutOwner")) is not makers.trusted
    assert "kueue.x-k8s.io/pod-group-name" not in left["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("makers", "gpus", "held"),
    [
        pytest.param(Makers(trusted=True), 2, False, id="goes-without-the-group-if-trusted"),
        pytest.param(Makers(), 16, True, id="is-held-like-the-others-as-it-may-stay"),
    ],
)
async def test_pods_of_an_old_version(world, gpus, held):
    parent = stateful_set(world, gpus=gpus)
    found = world.get(SETS, "serve")
    status = {"replicas": 2, "currentRevision": "old", "updateRevision": "new"}
    world.store.replace(SETS, found, {**found, "status": status}, part="status")
    make_pod(
        world, parent, 0, parent["spec"]["template"], labels={"controller-revision-hash": "old"}
    )

    await world.pass_time(2)

    pod = world.get(r.PODS, "serve-0")
    assert bool(gates(pod)) is held
    assert ("kueue.x-k8s.io/pod-group-name" in pod["metadata"]["annotations"]) is held


@BELIEVING
@pytest.mark.parametrize(("revision", "held"), [("old", False), ("new", True)])
async def test_the_revision_counts_of_the_set_that_leads_its_groups(world, revision, held):
    template = {"size": 1, "workerTemplate": {"spec": pod_spec(16)}}
    parent = submit(world, LEADER_WORKER_SET, {"replicas": 1, "leaderWorkerTemplate": template})
    make_set(world, parent)
    made = world.get(SETS, "serve")
    status = {"replicas": 1, "currentRevision": "old", "updateRevision": "new"}
    world.store.replace(SETS, made, {**made, "status": status}, part="status")
    labels = {
        "leaderworkerset.sigs.k8s.io/name": "serve",
        "leaderworkerset.sigs.k8s.io/group-index": "0",
        "controller-revision-hash": revision,
    }
    template = parent["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    make_pod(world, parent, 0, template, labels=labels)
    await world.pass_time(2)

    assert bool(gates(world.get(r.PODS, "serve-0"))) is held


@BELIEVING
async def test_a_pod_of_an_old_version_that_was_let_go_gets_no_queue(world):
    template = {"size": 1, "workerTemplate": {"spec": pod_spec(16)}}
    parent = submit(world, LEADER_WORKER_SET, {"replicas": 1, "leaderWorkerTemplate": template})
    make_set(world, parent)
    made = world.get(SETS, "serve")
    status = {"replicas": 1, "currentRevision": "old", "updateRevision": "new"}
    world.store.replace(SETS, made, {**made, "status": status}, part="status")
    labels = {
        "leaderworkerset.sigs.k8s.io/name": "serve",
        "leaderworkerset.sigs.k8s.io/group-index": "0",
        "controller-revision-hash": "old",
    }
    make_pod(
        world, parent, 0, parent["spec"]["leaderWorkerTemplate"]["workerTemplate"], labels=labels
    )
    await world.pass_time(1)
    put_in_class(world, "high")
    await world.pass_time(2)

    left = world.get(r.PODS, "serve-0")["metadata"]
    assert PRIORITY not in left["labels"]
    assert GROUP not in left["annotations"]


def put_in_class(world, name):
    """Give the parent `serve`, which is a LeaderWorkerSet, a priority class."""
    found = world.get(LEADERS, "serve")
    labels = {**found["metadata"]["labels"], PRIORITY: name}
    world.store.replace(
        LEADERS, found, {**found, "metadata": {**found["metadata"], "labels": labels}}
    )


async def test_a_set_that_was_admitted_stays_in_its_queue_until_it_waits_again(world):
    world.queue("other")
    template = {"size": 1, "workerTemplate": {"spec": pod_spec(2)}}
    parent = submit(world, LEADER_WORKER_SET, {"replicas": 2, "leaderWorkerTemplate": template})
    make_group(world, parent, 0)
    await world.pass_time(2)

    found = world.get(LEADERS, "serve")
    labels = {**found["metadata"]["labels"], QUEUE: "lq-other"}
    world.store.replace(
        LEADERS, found, {**found, "metadata": {**found["metadata"], "labels": labels}}
    )
    make_group(world, parent, 1)
    await world.pass_time(2)

    assert {each["spec"]["queueName"] for each in world.all(r.WORKLOADS)} == {"lq-cq"}
    assert GROUP in world.get(r.PODS, "serve-1")["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("gpus", "expected"),
    [pytest.param(2, None, id="let-go"), pytest.param(16, "high", id="held")],
)
async def test_pods_of_a_leader_worker_set_get_its_class_only_while_they_are_held(
    world, gpus, expected
):
    template = {"size": 1, "workerTemplate": {"spec": pod_spec(gpus)}}
    parent = submit(world, LEADER_WORKER_SET, {"replicas": 1, "leaderWorkerTemplate": template})
    make_group(world, parent, 0)
    world.store.delete(r.PODS, world.get(r.PODS, "serve-0-1"), dry_run=False)
    await world.pass_time(2)
    assert bool(gates(world.get(r.PODS, "serve-0"))) is (expected is not None)

    put_in_class(world, "high")
    await world.pass_time(2)

    assert world.get(r.PODS, "serve-0")["metadata"]["labels"].get(PRIORITY) == expected


def running_set(world, kind, **labels):
    """Make a StatefulSet or LeaderWorkerSet of one pod, which queues."""
    if kind is STATEFUL_SET:
        parent = stateful_set(world, replicas=1, **labels)
        make_pod(world, parent, 0, parent["spec"]["template"])
        return
    made = {"size": 1, "workerTemplate": {"spec": pod_spec(2)}}
    spec = {"replicas": 1, "leaderWorkerTemplate": made}
    make_group(world, submit(world, kind, spec, **labels), 0)
    world.store.delete(r.PODS, world.get(r.PODS, "serve-0-1"), dry_run=False)


def relabel(world, kind, **labels):
    """Change labels of the parent `serve`."""
    resource = job_resource(kind)
    found = world.get(resource, "serve")
    metadata = {**found["metadata"], "labels": {**found["metadata"]["labels"], **labels}}
    world.store.replace(resource, found, {**found, "metadata": metadata})


async def is_at_rest(world):
    """Tell whether nothing is written any more."""
    await world.pass_time(3)
    before = world.client.counted
    await world.pass_time(5)
    return world.client.counted == before


@pytest.mark.parametrize("kind", [STATEFUL_SET, LEADER_WORKER_SET], ids=lambda kind: kind.kind)
async def test_a_running_set_gets_another_class_with_one_write(world, kind):
    world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "low"}, "value": 5})
    running_set(world, kind, **{PRIORITY: "high"})
    await world.pass_time(2)
    world.run_pods("Running")

    relabel(world, kind, **{PRIORITY: "low"})

    assert await is_at_rest(world)
    (workload,) = world.all(r.WORKLOADS)
    assert workload["spec"]["priority"] == 5
    (pod,) = world.all(r.PODS)
    assert pod["metadata"]["labels"][PRIORITY] == ("low" if kind.relabels else "high")


@pytest.mark.parametrize("label", [{PRIORITY: "high"}, {QUEUE: "lq-other"}], ids=["class", "queue"])
@pytest.mark.parametrize("kind", [STATEFUL_SET, LEADER_WORKER_SET], ids=lambda kind: kind.kind)
async def test_running_pods_of_a_set_get_its_labels_and_the_webhooks_allow_it(world, kind, label):
    world.queue("other")
    running_set(world, kind)
    await world.pass_time(2)
    world.run_pods("Running")
    (before,) = world.all(r.PODS)

    relabel(world, kind, **label)

    assert await is_at_rest(world)
    (pod,) = world.all(r.PODS)
    passed_on = label if kind.relabels else {}
    assert pod["metadata"]["labels"] == before["metadata"]["labels"] | passed_on
    assert world.workload_of("serve")["spec"].get("priority", 0) == 0
    assert world.workload_of("serve")["spec"]["queueName"] == "lq-cq"


@pytest.mark.parametrize("kind", [STATEFUL_SET, LEADER_WORKER_SET], ids=lambda kind: kind.kind)
async def test_a_set_that_waits_for_a_check_stays_in_its_queue_as_it_has_quota(world, kind):
    active = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
    check = {"metadata": {"name": "check"}, "spec": {"controllerName": "example.com/check"}}
    world.put(r.ADMISSION_CHECKS, {**check, "status": {"conditions": [active]}})
    world.queue(admissionChecksStrategy={"admissionChecks": [{"name": "check"}]})
    world.queue("other")
    running_set(world, kind)
    await world.pass_time(2)
    assert world.is_true("serve", "QuotaReserved")
    assert not world.is_true("serve", "Admitted")

    relabel(world, kind, **{QUEUE: "lq-other"})

    assert await is_at_rest(world)
    assert world.workload_of("serve")["spec"]["queueName"] == "lq-cq"
    world.queue(stopPolicy="HoldAndDrain")
    await world.pass_time(3)
    assert world.workload_of("serve")["spec"]["queueName"] == "lq-other"
    assert world.is_true("serve", "Admitted")


async def test_a_leader_is_placed_by_no_index(world):
    annotations = {f"{P}podset-required-topology": "rack"}
    made = groups(2)
    for name in ("leaderTemplate", "workerTemplate"):
        made[name] = {**made[name], "metadata": {"annotations": annotations}}
    submit(world, LEADER_WORKER_SET, {"replicas": 1, "leaderWorkerTemplate": made})
    await world.pass_time(2)

    (workload,) = world.all(r.WORKLOADS)
    leader, worker = (each["topologyRequest"] for each in workload["spec"]["podSets"])
    assert leader == {"required": "rack"}
    assert worker == {**leader, "podIndexLabel": "leaderworkerset.sigs.k8s.io/worker-index"}


async def test_groups_that_are_no_more_lose_their_workloads(world):
    spec = {"replicas": 2, "leaderWorkerTemplate": groups()}
    submit(world, LEADER_WORKER_SET, spec)
    await world.pass_time(2)

    found = world.get(LEADERS, "serve")
    world.store.replace(LEADERS, found, {**found, "spec": {**spec, "replicas": 1}})
    await world.pass_time(2)

    (left,) = world.all(r.WORKLOADS)
    assert condition(left, "Admitted")["status"] == "True"


@BOTH
async def test_pods_whose_parent_is_gone_stay_held_unless_owners_are_believed(world, makers):
    parent = stateful_set(world, gpus=16)
    make_pod(world, parent, 0, parent["spec"]["template"])
    await world.pass_time(1)
    world.store.delete(SETS, world.get(SETS, "serve"), dry_run=False)
    make_pod(world, parent, 1, parent["spec"]["template"])

    await world.pass_time(2)

    assert bool(gates(world.get(r.PODS, "serve-1"))) is not makers.trusted
