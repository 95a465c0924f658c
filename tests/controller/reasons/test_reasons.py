"""Each pending workload has a reason, and it stays true: in virtual time."""

import pytest
from msgspec.structs import replace

from policyd.alloc.settings import DEFAULTS, Gates
from policyd.controller.queues.pending_workloads import PendingPage, waiting_in_cluster_queue
from policyd.controller.reasons import refreshing as reasons
from policyd.controller.settings import ControllerSettings
from policyd.kube import resources as r
from policyd.kube.errors import UnreachableError
from policyd.status import pending_reasons
from policyd.workload.obstacles import BYPASSED, PENDING
from tests.controller.world import World, condition, pod_spec, running

pytestmark = pytest.mark.anyio

BEHIND = "behind ns/first-pending, which needs 8 nvidia.com/gpu of h100; 0 are free"


@pytest.fixture
async def world():
    made = World()
    made.furnish()
    async with running(made):
        yield made


def reason(world, name):
    found = world.condition(name, "QuotaReserved")
    return found.get("status"), found.get("reason"), found.get("message", "")


async def fill(world, names, *, queue="lq-cq", gpus=8):
    world.job("first", gpus=8)
    await world.pass_time(1)
    world.job("first-pending", queue=queue, gpus=gpus)
    await world.pass_time(1)
    for name in names:
        world.job(name, queue=queue, gpus=gpus)
        await world.pass_time(0.1)


async def test_of_equal_jobs_each_says_whom_it_is_behind(world):
    await fill(world, ["b", "c", "d"])
    await world.pass_time(8)

    assert reason(world, "first-pending")[1] == "WaitingForQuota"
    for name in "bcd":
        assert reason(world, name) == ("False", "WaitingForQuota", BEHIND)
        assert world.condition(name, "Admitted")["reason"] == "NoReservation"


async def test_behind_the_head_of_a_strict_queue_each_says_so_whatever_it_asks_for(world):
    world.queue(queueingStrategy="StrictFIFO")
    await fill(world, [])
    world.job("small", gpus=1)
    await world.pass_time(8)

    assert reason(world, "small") == ("False", "PendingEvaluation", BEHIND)


async def test_a_workload_admitted_within_a_moment_gets_no_reason(world):
    await fill(world, ["b"])
    world.end_job("first")
    await world.pass_time(1)
    world.end_job("first-pending")
    writes = len(world.client.writes)
    await world.pass_time(2)

    assert not world.suspended("b")
    written = [w for w in world.client.writes[writes:] if w.resource == r.WORKLOADS]
    assert not any("behind" in str(write) for write in written)


async def test_a_number_is_corrected_when_others_get_quota_and_nothing_wakes_anybody(world):
    """Others of the cohort take what was free: 4 more were needed, and then 7."""
    world.queue(gpus=4, cohort="all")
    world.queue("other", gpus=4, cohort="all")
    world.job("first", gpus=1)
    await world.pass_time(1)
    world.job("large", gpus=8)
    world.job("as-large", gpus=8)
    await world.pass_time(9)
    assert ", 1 more needed; held by ns/first (1)" in reason(world, "large")[2]
    assert reason(world, "as-large")[2].endswith("; 7 are free")

    world.job("third", queue="lq-other", gpus=3)
    await world.pass_time(25)

    assert ", 4 more needed; held by ns/third (3), ns/first (1)" in reason(world, "large")[2]
    assert reason(world, "as-large")[2] == (
        "behind ns/large, which needs 8 nvidia.com/gpu of h100; 4 are free"
    )


async def test_what_is_written_is_of_now_though_it_was_worked_out_a_moment_ago(world):
    world.job("first", gpus=4)
    world.job("second", gpus=2)
    await world.pass_time(1)
    world.job("large", gpus=8)
    world.job("as-large", gpus=8)
    await world.pass_time(15)
    assert reason(world, "as-large")[2].endswith("; 2 are free")

    world.end_job("second")
    await world.pass_time(1.2)
    world.job("third", gpus=3)
    for _ in range(30):
        await world.pass_time(0.1)
        assert not reason(world, "as-large")[2].endswith("; 4 are free")

    assert reason(world, "as-large")[2].endswith("; 1 is free")


MORE = "; to help it: raise the nominalQuota of ClusterQueue cq for nvidia.com/gpu of flavor h100"


async def test_what_would_help_counts_those_ahead_and_is_corrected_when_they_change(world):
    """Once the first ends, two others take what it gives back first, and too little is left."""
    world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 9})
    await fill(world, ["b"], gpus=3)
    world.job("last", gpus=4)
    await world.pass_time(8)
    assert "to help it" not in reason(world, "first-pending")[2], "the end of the first is enough"
    assert f"{MORE} by 10, with 6 for those ahead of it" in reason(world, "last")[2]

    world.delete(r.JOBS, "b")
    await world.pass_time(25)
    assert "held by ns/first (8)" in reason(world, "last")[2]
    assert "to help it" not in reason(world, "last")[2]

    world.job("urgent", gpus=3, **{"kueue.x-k8s.io/priority-class": "high"})
    await world.pass_time(25)
    assert f"{MORE} by 10, with 6 for those ahead of it" in reason(world, "last")[2]


async def test_with_too_many_ahead_nothing_is_recommended_that_depends_on_them(world, monkeypatch):
    monkeypatch.setattr(pending_reasons, "MOST_AHEAD", 1)
    await fill(world, [], gpus=7)
    for name, gpus in (("third", 6), ("fourth", 5)):
        world.job(name, gpus=gpus)
        await world.pass_time(1)
    await world.pass_time(8)

    assert f"{MORE} by 6" in reason(world, "third")[2]
    assert "to help it" not in reason(world, "fourth")[2]


async def preempt(world):
    world.job("urgent", **{"kueue.x-k8s.io/priority-class": "high"})


async def stop_and_resume(world):
    for policy in ("Hold", "None"):
        world.queue(stopPolicy=policy, preemption=LOWER)
        await world.pass_time(3)


async def deactivate_and_activate(world):
    for active in (False, True):
        workload = world.workload_of("c")
        world.put(r.WORKLOADS, {**workload, "spec": {**workload["spec"], "active": active}})
        await world.pass_time(3)


async def delete_the_first(world):
    world.delete(r.JOBS, "first-pending")


async def admit_the_first(world):
    world.end_job("first")


async def take_quota(world):
    world.queue(gpus=4, preemption=LOWER)


async def restart(world):
    await world.kill()
    world.queue(gpus=4, preemption=LOWER)
    await world.start()


LOWER = {"withinClusterQueue": "LowerPriority"}


@pytest.mark.parametrize(
    "happens",
    [
        preempt,
        stop_and_resume,
        deactivate_and_activate,
        delete_the_first,
        admit_the_first,
        take_quota,
        restart,
    ],
    ids=lambda each: each.__name__,
)
@pytest.mark.parametrize("strategy", ["BestEffortFIFO", "StrictFIFO"])
async def test_each_of_equal_workloads_says_what_it_waits_for_whatever_happens(strategy, happens):
    world = World()
    world.furnish(preemption=LOWER, queueingStrategy=strategy)
    world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 9})
    async with running(world):
        await fill(world, ["b", "c"])
        await world.pass_time(8)

        await happens(world)
        await world.pass_time(9)

        soon = pending_messages(world)
        await world.pass_time(15)
        later = pending_messages(world)
        await world.kill()
        await world.start()
        await world.pass_time(20)

        assert len(later) >= 2
        assert later == pending_messages(world), "a new controller finds the same"
        assert not {BYPASSED, PENDING} & {*soon.values()}


def pending_messages(world):
    """Return what each job says that is pending."""
    found = {name: reason(world, name) for name in ("first", "first-pending", "b", "c")}
    return {name: message for name, (status, _, message) in found.items() if status == "False"}


async def test_a_preempted_workload_says_so_until_it_is_known_what_it_waits_for(world):
    world.queue(preemption=LOWER)
    world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 9})
    await fill(world, ["b"])
    await world.pass_time(8)
    before = len(world.store.history)

    await preempt(world)
    await world.pass_time(20)

    name = world.workload_of("first")["metadata"]["name"]
    changed = [c.new for c in world.store.history[before:] if c.resource == r.WORKLOADS and c.new]
    texts = [
        condition(w, "QuotaReserved")["message"] for w in changed if w["metadata"]["name"] == name
    ]
    assert [text.split()[0] for text in dict.fromkeys(texts)][-2:] == ["Preempted", "couldn't"], (
        texts
    )


async def test_a_pending_workload_that_is_edited_has_the_numbers_of_its_new_requests(world):
    world.queue(gpus=16)
    world.job("first", gpus=16)
    await world.pass_time(1)
    world.job("grows", gpus=4)
    await world.pass_time(9)
    assert ", 4 more needed" in reason(world, "grows")[2]

    job = world.get(r.JOBS, "grows")
    world.put(r.JOBS, {**job, "spec": {**job["spec"], "parallelism": 2}})

    for _ in range(5):
        await world.pass_time(6)
        assert ", 8 more needed" in reason(world, "grows")[2]


async def test_after_all_reasons_are_written_nothing_is_written_or_checked(world):
    await fill(world, ["b", "c"])
    await world.pass_time(30)
    writes, slept = len(world.client.writes), len(world.clock.slept)

    await world.pass_time(300)

    assert len(world.client.writes) == writes
    assert len(world.clock.slept) - slept < 50, "only hours and runtimes are looked at"


async def test_after_a_restart_nothing_is_reported_twice(world):
    await fill(world, ["b", "c"])
    await world.pass_time(30)
    await world.kill()

    await world.start()
    await world.pass_time(30)

    assert not [write for write in world.client.writes if write.resource == r.WORKLOADS]


async def test_of_many_pending_workloads_the_oldest_get_reasons_first_and_few_at_a_time(
    world, monkeypatch
):
    monkeypatch.setattr(reasons, "FEW", 3)
    monkeypatch.setattr(reasons, "SLOW", 1)
    await fill(world, ["b", "c", "d", "e"])
    await world.pass_time(3.5)

    explained = [name for name in "bcde" if reason(world, name)[0]]
    assert explained == list("bcde")[: len(explained)]
    assert 0 < len(explained) < 4
    await world.pass_time(10)
    assert all(reason(world, name)[0] for name in "bcde")


async def test_where_a_sweep_takes_long_each_has_its_reason_within_ten_seconds(world, monkeypatch):
    """As on a busy machine: it rests for a multiple of that, but not too long."""
    sweep = reasons.Reasons._compared

    def slowly(*args):
        world.clock._pass(0.5)
        return sweep(*args)

    monkeypatch.setattr(reasons.Reasons, "_compared", slowly)
    await fill(world, [])
    created = {}
    while len(created) < 8 or any(not reason(world, name)[0] for name in created):
        if len(created) < 8:
            created[f"job-{len(created)}"] = world.clock.now()
            world.job(f"job-{len(created) - 1}")
        await world.pass_time(1.5)
        late = [n for n, at in created.items() if world.clock.now() - at > 10]
        assert all(reason(world, name)[0] for name in late)


async def test_with_many_pending_a_refusal_waits_for_its_turn_too(world, monkeypatch):
    monkeypatch.setattr(reasons, "FEW", 2)
    await fill(world, ["b", "c"])
    await world.pass_time(4)

    world.job("other", gpus=7)
    await world.pass_time(1)
    at_once = reason(world, "other")[0]
    await world.pass_time(9)

    assert at_once is None
    assert reason(world, "other")[1] == "WaitingForQuota"


@pytest.mark.parametrize(
    ("others", "held", "behind"),
    [
        ("names", "held by theirs/train (8)", "behind theirs/waits, which"),
        ("team", "held by theirs (8)", "behind a job of theirs, which"),
        ("hidden", "held by other teams (8)", "behind a job of another team, which"),
    ],
)
async def test_jobs_of_other_teams_are_named_as_far_as_is_wanted(others, held, behind):
    world = World()
    world.other_teams = others
    world.furnish()
    world.put(r.NAMESPACES, {"metadata": {"name": "theirs", "labels": {}}})
    local = {"metadata": {"name": "lq", "namespace": "theirs"}, "spec": {"clusterQueue": "cq"}}
    world.put(r.LOCAL_QUEUES, local)
    async with running(world):
        for name in ("train", "waits"):
            world.job(name, queue="lq", namespace="theirs")
            await world.pass_time(1)
        world.job("mine")
        world.job("small", gpus=4)
        await world.pass_time(9)

    assert reason(world, "mine")[2].startswith(behind)
    assert held in reason(world, "small")[2]


@pytest.mark.parametrize(
    ("others", "event", "listed"),
    [
        ("names", "Preempted workload theirs/job-", ("theirs", True)),
        ("team", "Preempted a job of theirs in ClusterQueue cq", ("theirs", False)),
        ("hidden", "Preempted a job of another team in ClusterQueue cq", (None, False)),
    ],
)
async def test_nowhere_are_jobs_of_other_teams_named_but_as_far_as_is_wanted(others, event, listed):
    """One team's job waits behind, is preempted by, and preempts another's: all of it is told."""
    world = World()
    world.other_teams = others
    world.furnish(preemption={"withinClusterQueue": "LowerPriority"})
    world.put(r.NAMESPACES, {"metadata": {"name": "theirs", "labels": {}}})
    local = {"metadata": {"name": "lq", "namespace": "theirs"}, "spec": {"clusterQueue": "cq"}}
    world.put(r.LOCAL_QUEUES, local)
    for name, value in (("middle", 5), ("high", 9)):
        world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    urgent = {"kueue.x-k8s.io/priority-class": "high"}
    async with running(world):
        world.job("train", queue="lq", namespace="theirs")
        await world.pass_time(1)
        world.job("mine", **{"kueue.x-k8s.io/priority-class": "middle"})
        await world.pass_time(3)
        world.job("rival", queue="lq", namespace="theirs", **urgent)
        await world.pass_time(12)
        world.job("behind")
        await world.pass_time(12)
        pages = [
            waiting_in_cluster_queue(world.controller.cache, "cq", PendingPage(), who)
            for who in ("", "ns")
        ]

    texts = {
        namespace: [
            text
            for item in (*world.events(), *world.all(r.WORKLOADS))
            if item["metadata"]["namespace"] == namespace
            for text in messages(item)
        ]
        for namespace in ("ns", "theirs")
    }
    assert any(event in text for text in texts["ns"])
    for namespace, names in (("ns", ("train", "rival")), ("theirs", ("mine", "behind"))):
        named = [text for text in texts[namespace] if any(each in text for each in names)]
        assert bool(named) is (others == "names")
    (theirs,) = (item for item in pages[1] if item.metadata.namespace != "ns")
    assert (theirs.metadata.namespace or None, bool(theirs.metadata.name)) == listed
    assert bool(theirs.metadata.owner_references or theirs.local_queue_name) is listed[1]
    assert all(item.metadata.name for item in pages[1] if item.metadata.namespace == "ns")
    assert any(item.metadata.name for item in pages[0]) is (others == "names")


def messages(item):
    """What an event or the conditions of an object say."""
    yield item.get("message", "")
    for each in item.get("status", {}).get("conditions", ()):
        yield each["message"]


def test_the_settings_name_everybody_unless_configured_otherwise():
    assert ControllerSettings().other_teams == "names"


def events_of(world, name, kind="Job"):
    """The events on a job, without those of its life."""
    usual = {"CreatedWorkload", "Started", "Stopped", "FinishedWorkload"}
    return [
        (event["type"], event["reason"], event["message"])
        for event in world.events()
        if event["involvedObject"]["kind"] == kind
        and event["involvedObject"]["name"] == name
        and event["reason"] not in usual
    ]


async def test_a_job_says_itself_why_it_waits_once_for_each_change_of_the_reason(world):
    await fill(world, ["b"])
    await world.pass_time(10)

    (first,) = events_of(world, "first-pending")
    assert first[:2] == ("Normal", "WaitingForQuota")
    assert first[2].endswith("8 more needed; held by ns/first (8)")
    assert events_of(world, "b") == [("Normal", "WaitingForQuota", BEHIND)]

    world.end_job("first")
    await world.pass_time(30)

    assert events_of(world, "b") == [("Normal", "WaitingForQuota", BEHIND)]
    assert "held by ns/first-pending (8)" in reason(world, "b")[2]


async def test_a_victim_gets_the_name_of_its_preemptor(world):
    world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 9})
    world.queue(preemption={"withinClusterQueue": "LowerPriority"})
    world.job("low")
    await world.pass_time(1)
    world.job("urgent", **{"kueue.x-k8s.io/priority-class": "high"})
    await world.pass_time(3)

    text = "preempted by ns/urgent, due to prioritization in the ClusterQueue"
    assert ("Normal", "PreemptedBy", text) in events_of(world, "low")
    workload = world.workload_of("low")["metadata"]["name"]
    assert ("Normal", "PreemptedBy", text) in events_of(world, workload, "Workload")


@pytest.mark.parametrize("waits", [0, 60], ids=["new", "waits-for-a-minute"])
async def test_a_stopped_queue_is_reported_with_who_and_since_when(world, waits):
    """Also if the status of the queue is written after the condition of the workload."""
    world.job("first")
    await world.pass_time(3)
    world.job("train")
    await world.pass_time(waits)
    world.client.fail(UnreachableError("slow"), verb="patch", plural="clusterqueues", times=2)
    world.queue(stopPolicy="Hold")
    await world.pass_time(12)

    *_, (kind, why, text) = events_of(world, "train")
    assert (kind, why) == ("Warning", "Suspended")
    assert text.startswith("an administrator stopped ClusterQueue cq at 2")
    assert text.endswith("Z: its stopPolicy is Hold")


async def test_a_wrong_queue_is_reported_with_those_that_there_are(world):
    world.queue("other")
    world.job("train", queue="lq-cp")
    await world.pass_time(3)

    assert events_of(world, "train") == [
        (
            "Warning",
            "Misconfigured",
            "LocalQueue lq-cp doesn't exist; namespace ns has lq-cq, lq-other",
        )
    ]


async def test_a_queue_that_lacks_a_flavor_is_reported_with_its_name(world):
    flavor = world.store.get(r.RESOURCE_FLAVORS, "", "h100")
    flavor["metadata"]["finalizers"] = []
    world.store.delete(r.RESOURCE_FLAVORS, flavor, dry_run=False)
    await world.pass_time(3)
    world.job("train")
    await world.pass_time(8)

    ((_, why, text),) = events_of(world, "train")
    assert (why, text) == (
        "Suspended",
        "ClusterQueue cq is inactive: Can't admit new workloads: references missing"
        " ResourceFlavor(s): h100.",
    )


@pytest.mark.parametrize(("detailed", "shown"), [(True, "AdmissionGated"), (False, "Pending")])
async def test_a_closed_gate_of_preemption_is_the_reason_only_in_detail(detailed, shown):
    gates = Gates(
        multi_kueue_orchestrated_preemption=True, unadmitted_workloads_observability=detailed
    )
    world = World(replace(DEFAULTS, gates=gates))
    world.furnish(preemption={"withinClusterQueue": "LowerPriority"})
    async with running(world):
        world.job("first", gpus=8)
        await world.pass_time(1)
        pod_set = {"name": "main", "count": 1, "template": {"spec": pod_spec(8)}}
        spec = {"priority": 1, "preemptionGates": [{"name": "gate"}], "podSets": [pod_set]}
        body = {"metadata": {"name": "gated"}, "spec": {"queueName": "lq-cq", **spec}}
        world.create(r.WORKLOADS, body)
        await world.pass_time(2)

        gated = ("False", shown, "Workload requires preemption, but it's gated")
        assert reason(world, "gated") == gated
        assert world.condition("gated", "BlockedOnPreemptionGates")["reason"] == "PreemptionGated"
        assert not world.is_true("first", "Evicted")


async def test_what_waits_in_a_queue_that_becomes_inactive_says_so(world):
    await fill(world, ["a"])
    world.job("b")
    await world.pass_time(0.5)
    queue = world.store.get(r.CLUSTER_QUEUES, "", "cq")
    spec = {**queue["spec"], "cohortName": "one"}
    world.store.replace(r.CLUSTER_QUEUES, queue, {**queue, "spec": spec})
    await world.pass_time(0.5)
    for name, parent in (("one", "two"), ("two", "one")):
        world.put(r.COHORTS, {"metadata": {"name": name}, "spec": {"parentName": parent}})
    await world.pass_time(15)

    inactive = ("False", "Suspended", "ClusterQueue cq is inactive")
    assert [reason(world, name) for name in ("b", "first-pending")] == [inactive] * 2
