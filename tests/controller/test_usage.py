"""Pods that run on what queues give, and that no queue has let in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policyd.api.meta import rfc3339
from policyd.api.selectors import LabelSelector
from policyd.controller.usage import BEYOND, NO_QUOTA, NO_WORKLOAD, OUTSIDE
from policyd.controller.watch.mirrors import job_resource
from policyd.jobs.integrations import Integrations
from policyd.jobs.kinds.registry import find_kind
from policyd.jobs.rules.defaults import default_on_create
from policyd.kube import resources as r
from policyd.patch.draft import Draft
from policyd.workload import usage_book
from policyd.workload.usage_book import AdmittedUsage, PodUsage, UsageBook
from tests.controller.world import (
    GATE,
    GPU,
    QUEUE,
    World,
    gates,
    held_gpus,
    names,
    pod_spec,
    running,
)

ANYIO = pytest.mark.anyio
JOB_SETS = job_resource(find_kind("jobset.x-k8s.io", "JobSet"))
MANAGED, POD_SET = "kueue.x-k8s.io/managed", "kueue.x-k8s.io/podset"


@pytest.fixture
async def world():
    made = World()
    made.furnish(gpus=64)
    async with running(made):
        yield made


def bare(world, name, gpus=8, owner=None, labels=None, **spec):
    """Create a pod as it comes past the webhooks."""
    owners = [owner | {"controller": True}] if owner else []
    metadata = {"name": name, "labels": labels or {}, "ownerReferences": owners}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    return world.create(r.PODS, body | {"spec": pod_spec(gpus) | spec})


def owner_of(world, resource, name):
    found = world.get(resource, name)
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": name,
        "uid": found["metadata"]["uid"],
    }


def outside(world, resource=GPU, namespace="ns"):
    registry = world.controller.health.metrics.registry
    labels = {"namespace": namespace, "resource": resource}
    return registry.get_sample_value("policyd_usage_outside_quota", labels) or 0


def counted(world, reason):
    registry = world.controller.health.metrics.registry
    return registry.get_sample_value("policyd_pods_outside_quota_total", {"reason": reason}) or 0


def outside_quota(world):
    return {e["involvedObject"]["name"]: e["message"] for e in world.events(OUTSIDE)}


@ANYIO
async def test_a_pod_that_slipped_past_is_reported_within_ten_seconds(world):
    bare(world, "huge", gpus=64)
    await world.pass_time(3)
    assert outside_quota(world) == {}  # it may be on its way out

    await world.pass_time(6)

    message = f"takes 64 {GPU} that no queue has given it: it belongs to no workload"
    assert outside_quota(world) == {"huge": message}
    assert world.events(OUTSIDE)[0]["type"] == "Warning"
    assert outside(world) == 64
    assert counted(world, NO_WORKLOAD) == 1


@ANYIO
async def test_it_is_reported_once_and_no_longer_counted_when_it_is_gone(world):
    bare(world, "huge")
    await world.pass_time(300)

    (event,) = world.events(OUTSIDE)
    assert event["count"] == 1
    assert outside(world) == 8

    world.delete(r.PODS, "huge")
    await world.pass_time(1)

    assert outside(world) == 0


@ANYIO
@pytest.mark.parametrize(
    ("gpus", "spec"),
    [
        pytest.param(8, {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}, id="gated"),
        pytest.param(8, {"schedulingGates": [{"name": "mine"}]}, id="gated-by-others"),
        pytest.param(0, {}, id="takes-nothing"),
    ],
)
async def test_pods_without_usage_are_ignored(world, gpus, spec):
    bare(world, "a", gpus=gpus, **spec)
    await world.pass_time(20)

    assert (outside_quota(world), outside(world)) == ({}, 0)


@ANYIO
async def test_ended_pods_use_nothing(world):
    bare(world, "a")
    world.set_status(r.PODS, "a", phase="Failed")
    await world.pass_time(20)

    assert outside_quota(world) == {}


@ANYIO
async def test_pods_of_what_was_admitted_are_inside(world):
    world.job("train", gpus=8)
    world.pod("alone", gpus=2)
    for name in ("g-0", "g-1"):
        world.pod(name, gpus=2, group="g", total=2)
    await world.pass_time(2)
    bare(world, "train-0", owner=owner_of(world, r.JOBS, "train"), labels={POD_SET: "main"})
    await world.pass_time(30)

    assert not world.suspended("train")
    assert (outside_quota(world), outside(world)) == ({}, 0)


@ANYIO
async def test_an_owner_excuses_what_it_was_admitted_with_and_no_more(world):
    """The first pod is the Job's own, the others say so."""
    world.job("train", gpus=8)
    await world.pass_time(2)
    owner = owner_of(world, r.JOBS, "train")
    bare(world, "train-0", owner=owner)
    await world.pass_time(2)
    bare(world, "forged", gpus=16, owner=owner)
    bare(world, "stranger", gpus=1, owner=owner | {"uid": "x"})
    await world.pass_time(10)

    assert set(outside_quota(world)) == {"forged", "stranger"}
    assert outside_quota(world)["forged"].endswith("its workload was admitted with less")
    assert outside(world) == 17
    assert (counted(world, BEYOND), counted(world, NO_WORKLOAD)) == (1, 1)


@ANYIO
async def test_a_place_that_becomes_free_is_taken_by_the_next(world):
    world.job("train", gpus=8)
    await world.pass_time(2)
    owner = owner_of(world, r.JOBS, "train")
    bare(world, "train-0", owner=owner)
    await world.pass_time(2)
    bare(world, "train-1", owner=owner)
    await world.pass_time(10)
    assert set(outside_quota(world)) == {"train-1"}

    world.delete(r.PODS, "train-0")
    await world.pass_time(2)

    assert outside(world) == 0


@ANYIO
async def test_pods_are_inside_through_what_stands_between(world):
    """A Job of an admitted Job has no workload; its owner's counts, which is looked up."""
    world.job("top", gpus=8)
    await world.pass_time(2)
    child = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "child",
            "ownerReferences": [owner_of(world, r.JOBS, "top") | {"controller": True}],
        },
        "spec": {"template": {"spec": pod_spec(8)}},
    }
    world.create(r.JOBS, child)
    bare(world, "child-0", owner=owner_of(world, r.JOBS, "child"))
    await world.pass_time(10)
    assert outside_quota(world) == {}

    bare(world, "child-1", owner=owner_of(world, r.JOBS, "child"))
    await world.pass_time(10)

    assert set(outside_quota(world)) == {"child-1"}


@ANYIO
async def test_pods_that_a_job_leaves_behind_are_found(world):
    """Who deletes a Job and keeps its pods has its quota given to others."""
    world.job("train", gpus=8)
    await world.pass_time(2)
    bare(world, "train-0", owner=owner_of(world, r.JOBS, "train"), nodeName="n")
    await world.pass_time(10)
    assert outside_quota(world) == {}

    world.delete(r.JOBS, "train")
    await world.pass_time(10)

    assert outside_quota(world)["train-0"].startswith(f"takes 8 {GPU} that no queue has given it")
    assert outside(world) == 8


@ANYIO
async def test_a_job_under_deletion_excuses_no_dependents(world):
    """A finalizer keeps the Job, nobody stops its pods, and its quota is given to others."""
    world.job("train", gpus=8)
    await world.pass_time(2)
    job = world.get(r.JOBS, "train")
    lingering = {**job["metadata"], "finalizers": ["example.com/keep"]}
    world.store.replace(r.JOBS, job, {**job, "metadata": lingering}, part="metadata")
    bare(world, "train-0", owner=owner_of(world, r.JOBS, "train"), nodeName="n")
    await world.pass_time(10)
    assert outside_quota(world) == {}

    world.delete(r.JOBS, "train")
    await world.pass_time(10)

    assert world.get(r.JOBS, "train")["metadata"]["deletionTimestamp"]
    holds = held_gpus(world.workload_of("train"))
    assert (holds, outside(world)) in {(0, 8), (8, 0)}


def deleted(world, name, seconds, owner=None):
    """Have a pod run that is being deleted, and has some seconds to end."""
    pod = bare(world, name, owner=owner, nodeName="n")
    leaving = {"deletionTimestamp": rfc3339(world.clock.now() + seconds)}
    leaving |= {"deletionGracePeriodSeconds": seconds}
    world.put(r.PODS, pod | {"metadata": pod["metadata"] | leaving})


@ANYIO
async def test_pods_that_are_deleted_slowly_are_outside_beside_their_replacements(world):
    """Whoever may delete a pod chooses its grace: a Job of one pod would run ever more of them."""
    world.job("train", gpus=8)
    await world.pass_time(2)
    owner = owner_of(world, r.JOBS, "train")
    for number in range(3):
        deleted(world, f"slow-{number}", 880, owner)
    deleted(world, "quick", 30, owner)
    deleted(world, "nobodys", 880)
    bare(world, "new", owner=owner, nodeName="n")
    await world.pass_time(10)

    assert outside_quota(world).keys() == {"slow-0", "slow-1", "slow-2", "nobodys"}
    assert outside(world) == 32


@ANYIO
@pytest.mark.parametrize(
    ("seconds", "reason", "reported"),
    [
        pytest.param(880, "Preempted", False, id="checkpoint"),
        pytest.param(1000, "Preempted", True, id="too-long"),
        pytest.param(880, "DeactivatedDueToMaximumExecutionTimeExceeded", True, id="time-limit"),
        pytest.param(880, "PodsReadyTimeout", True, id="never-ready"),
        pytest.param(880, "LocalQueueStopped", True, id="queue-of-the-namespace"),
        pytest.param(880, "ClusterQueueStopped", False, id="queue-of-the-cluster"),
        pytest.param(30, "PodsReadyTimeout", False, id="ends-soon"),
    ],
)
async def test_pods_of_an_evicted_workload_have_time_unless_users_caused_it(
    world, seconds, reason, reported
):
    world.job("big", gpus=64)
    world.job("waits", gpus=8)
    await world.pass_time(2)
    evicted = {"type": "Evicted", "status": "True", "reason": reason, "message": "it is"}
    evicted["lastTransitionTime"] = rfc3339(world.clock.now())
    name = world.workload_of("waits")["metadata"]["name"]
    world.set_status(r.WORKLOADS, name, conditions=[evicted])
    deleted(world, "saves", seconds, owner_of(world, r.JOBS, "waits"))
    await world.pass_time(10)

    assert (outside_quota(world).keys() == {"saves"}) is reported
    assert outside(world) == (8 if reported else 0)


@ANYIO
async def test_pods_that_run_while_their_job_waits_are_outside(world):
    world.job("big", gpus=64)
    world.job("waits", gpus=8)
    await world.pass_time(2)
    bare(world, "early", owner=owner_of(world, r.JOBS, "waits"))
    await world.pass_time(10)

    assert outside_quota(world)["early"].endswith("its workload holds no quota")
    assert counted(world, NO_QUOTA) == 1


@ANYIO
async def test_a_pod_that_says_it_was_admitted_is_stopped(world):
    """A pod in a queue that nobody let go: the queue deletes it, as Kueue does."""
    bare(world, "runs", labels={QUEUE: "lq-cq", MANAGED: "true"})
    await world.pass_time(10)

    assert world.all(r.PODS) == []


@ANYIO
async def test_a_forged_role_gives_no_access(world):
    """Which pods of a group are alike, they say themselves: what they ask for is compared."""
    annotations = {
        "kueue.x-k8s.io/role-hash": "a",
        "kueue.x-k8s.io/pod-group-fast-admission": "true",
    }
    world.pod("g-0", gpus=1, group="g", total=3, **annotations)
    await world.pass_time(2)
    assert gates(world.get(r.PODS, "g-0")) == []

    world.pod("g-1", gpus=1, group="g", total=3, **annotations)
    world.pod("g-2", gpus=8, group="g", total=3, **annotations)
    await world.pass_time(2)

    assert gates(world.get(r.PODS, "g-1")) == []
    assert GATE in gates(world.get(r.PODS, "g-2"))
    assert [e["involvedObject"]["name"] for e in world.events(BEYOND)] == ["g-2"]


@ANYIO
async def test_a_role_that_is_forged_gets_no_core_either(world):
    """What other webhooks add to pods is in the first of a group already."""
    cores = {"name": "h100", "resources": [{"name": "cpu", "nominalQuota": "1"}]}
    world.queue("cores", resourceGroups=[{"coveredResources": ["cpu"], "flavors": [cores]}])
    for number, cpu in enumerate(("1m", "1m", "1")):
        annotations = {"kueue.x-k8s.io/role-hash": "a", "kueue.x-k8s.io/pod-group-total-count": "3"}
        labels = {QUEUE: "lq-cores", "kueue.x-k8s.io/pod-group-name": "g"}
        requests = {"containers": [{"name": "m", "resources": {"requests": {"cpu": cpu}}}]}
        draft = Draft(
            {"metadata": {"name": f"g-{number}", "labels": labels, "annotations": annotations}}
            | {"spec": requests}
        )
        default_on_create(draft, group="", kind="Pod")
        world.create(r.PODS, draft.object)
        await world.pass_time(0.1)
    await world.pass_time(2)

    held = [name for name in names(world, r.PODS) if gates(world.get(r.PODS, name))]
    assert held == ["g-2"]
    assert [e["involvedObject"]["name"] for e in world.events(BEYOND)] == ["g-2"]


@ANYIO
async def test_no_flood_of_events(world):
    for number in range(120):
        bare(world, f"p{number}", gpus=1)
    await world.pass_time(9)

    assert 50 <= len(world.events(OUTSIDE)) <= 60
    assert outside(world) == 120


@ANYIO
@pytest.mark.parametrize("later", [0, 40])
async def test_small_pods_do_not_hide_large_ones(world, later):
    for number in range(120):
        bare(world, f"p{number}", gpus=1)
    await world.pass_time(later)
    for name in ("z-large", "z-larger"):
        bare(world, name, gpus=32)
    await world.pass_time(9)

    reported = {each["involvedObject"]["name"] for each in world.events(OUTSIDE)}
    assert {"z-large", "z-larger"} <= reported


@ANYIO
async def test_pods_that_wait_for_their_events_are_reported_together_within_ten_seconds(world):
    for number in range(300):
        bare(world, f"decoy-{number:03}", gpus=1)
    for number in range(80):
        bare(world, f"large-{number:02}", gpus=32)
    await world.pass_time(10)

    assert counted(world, NO_WORKLOAD) == 380
    (found,) = summaries(world)
    assert found["involvedObject"]["name"] == "ns"
    assert found["type"] == "Warning"
    assert found["message"].startswith(
        f"380 pods take 2860 {GPU} that no queue has given them;"
        f" the largest: large-00 (32 {GPU}); large-01 (32 {GPU}); "
    )
    assert found["message"].count("large-") == 5


@ANYIO
async def test_they_are_reported_together_again_once_they_are_many_more(world):
    for number in range(100):
        bare(world, f"decoy-{number:03}", gpus=1)
    await world.pass_time(10)
    bare(world, "one-more", gpus=1)
    await world.pass_time(10)
    assert [(e["count"], e["message"][:8]) for e in summaries(world)] == [(1, "100 pods")]

    for number in range(30):
        bare(world, f"large-{number:02}", gpus=8)
    await world.pass_time(10)
    assert [(e["count"], e["message"][:8]) for e in summaries(world)] == [(2, "131 pods")]


@ANYIO
async def test_pods_that_all_have_events_are_not_reported_together(world):
    for number in range(52):
        bare(world, f"p{number}", gpus=1)
    await world.pass_time(60)

    assert len(outside_quota(world)) == 52
    assert summaries(world) == []


def summaries(world):
    return [e for e in world.events(OUTSIDE) if e["involvedObject"]["kind"] == "Namespace"]


@ANYIO
@pytest.mark.parametrize(("team", "found"), [("a", 8), ("b", 0)])
async def test_namespaces_whose_jobs_do_not_queue_are_left_alone(team, found):
    world = World()
    world.furnish()
    world.integrations = Integrations(namespaces=LabelSelector(match_labels={"team": team}))
    async with running(world):
        bare(world, "a")
        await world.pass_time(20)

        assert outside(world) == found


@ANYIO
@pytest.mark.parametrize(("everything", "found"), [(True, 8), (False, 0)])
async def test_cores_are_counted_where_all_pods_queue(everything, found):
    """A web server in a namespace where queues are for who asks takes nobody's quota."""
    world = World()
    world.furnish()
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "h100", "resources": [{"name": "cpu", "nominalQuota": "64"}]}],
    }
    world.queue("cores", resourceGroups=[group])
    world.integrations = Integrations(manages_all=everything)
    async with running(world):
        body = {"containers": [{"name": "m", "resources": {"requests": {"cpu": "8"}}}]}
        world.create(r.PODS, {"metadata": {"name": "web"}, "spec": body})
        await world.pass_time(20)

        assert outside(world, "cpu") == found


@ANYIO
@pytest.mark.parametrize("placed", [False, True])
async def test_it_is_deleted_where_that_is_chosen_unless_it_has_a_node(placed):
    world = World()
    world.deletes_outside_quota = True
    world.furnish()
    async with running(world):
        bare(world, "a", **({"nodeName": "n"} if placed else {}))
        await world.pass_time(10)

        assert bool(world.all(r.PODS)) == placed
        assert set(outside_quota(world)) == {"a"}


def test_the_oldest_pods_have_the_share():
    book, share = UsageBook(), AdmittedUsage(count=2, amounts={"gpu/x": 4})
    for name, since, amount in (("c", 3.0, 1), ("a", 1.0, 2), ("b", 2.0, 4)):
        book.put(name, PodUsage(since=since, amounts={"gpu/x": amount}), "w")

    assert book.beyond("w", share).pods == {"b"}
    assert book.beyond("w", AdmittedUsage(count=1, amounts={"gpu/x": 9})).pods == {"b", "c"}
    assert book.forget("b") == ""
    assert book.forget("a") == "w"
    assert book.is_within("w", share)


_AMOUNTS = st.dictionaries(st.sampled_from(("gpu/x", "cpu")), st.integers(0, 9_000), max_size=2)
_TAKERS = st.builds(
    PodUsage,
    since=st.integers(0, 4).map(float),
    amounts=_AMOUNTS,
    claims=st.dictionaries(st.sampled_from("cd"), st.just({"gpu/x": 2_000}), max_size=2),
)
_SHARES = st.builds(AdmittedUsage, count=st.integers(1, 4), amounts=_AMOUNTS)


@given(st.lists(st.tuples(st.sampled_from("klmnopq"), st.none() | _TAKERS | _SHARES), max_size=40))
def test_pods_that_come_and_go_are_beyond_a_share_as_in_a_new_book(events):
    book, pods, seen = UsageBook(), dict[str, PodUsage](), set[str]()
    share = AdmittedUsage(count=2, amounts={"gpu/x": 4_000})
    for name, what in events:
        if isinstance(what, AdmittedUsage):
            share = what
        elif what is None:
            pods.pop(name, None)
            book.forget(name)
        else:
            pods[name] = what
            book.put(name, what, "w")
        fresh = UsageBook()
        for pod, taker in pods.items():
            fresh.put(pod, taker, "w")

        found, oracle = book.beyond("w", share), fresh.beyond("w", share)

        assert set(found.pods) == oracle.pods
        assert (seen - {name}) ^ (oracle.pods - {name}) == found.changed - {name}
        seen = set(oracle.pods)


def test_pods_beyond_a_share_come_and_go_without_a_look_at_the_others(monkeypatch):
    divided, divide = [], usage_book._divide
    monkeypatch.setattr(usage_book, "_divide", lambda *given: divided.append(1) or divide(*given))
    book, share = UsageBook(), AdmittedUsage(count=8, amounts={"gpu/x": 8})
    for number in range(500):
        book.put(f"p{number:03}", PodUsage(since=float(number // 9), amounts={"gpu/x": 1}), "w")
        book.beyond("w", share)
    for number in range(8, 500):
        book.forget(f"p{number:03}")

    assert len(divided) == 1


@pytest.mark.parametrize(
    ("cpu", "within"), [(1_000, True), (3_000, True), (3_001, False), (64_000, False)]
)
def test_others_may_add_a_sidecar_but_not_a_machine(cpu, within):
    book, share = UsageBook(), AdmittedUsage(count=1, amounts={"cpu": 1_000})
    book.put("a", PodUsage(since=0.0, amounts={"cpu": cpu}), "w")

    assert book.is_within("w", share) is within


@ANYIO
async def test_a_job_of_an_admitted_one_that_was_made_bigger_is_reported(world):
    jobs = [
        {"name": "a", "template": {"spec": {"parallelism": 2, "template": {"spec": pod_spec(4)}}}}
    ]
    body = {"metadata": {"name": "set", "labels": {QUEUE: "lq-cq"}}}
    world.create(JOB_SETS, body | {"spec": {"suspend": True, "replicatedJobs": jobs}})
    await world.pass_time(2)
    owner = owner_of(world, JOB_SETS, "set") | {"controller": True}
    spec = {"parallelism": 16, "template": {"spec": pod_spec(4)}}
    world.create(r.JOBS, {"metadata": {"name": "child", "ownerReferences": [owner]}, "spec": spec})

    child = owner_of(world, r.JOBS, "child")
    for index in range(4):
        bare(world, f"p{index}", gpus=4, owner=child, labels={POD_SET: "a"})
    await world.pass_time(10)

    assert set(outside_quota(world)) == {"p2", "p3"}
    assert outside(world) == 8
