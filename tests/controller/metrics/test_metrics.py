"""Kueue's metrics, by Kueue's names."""

import math

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from policyd import __version__
from policyd.alloc.plan import Plan
from policyd.alloc.settings import FairSharingRules, QueueingSettings
from policyd.api.configuration.kinds import CustomLabel
from policyd.api.kueue import Workload
from policyd.api.selectors import LabelSelector
from policyd.controller.metrics.counters import FAMILIES, ControllerMetrics, MetricsSettings
from policyd.controller.metrics.metric_families import COUNTED, MEASURED, ROLE
from policyd.jobs.copied import CopiedKeys
from policyd.kube import resources as r
from policyd.workload.transitions import execution_seconds, latest_eviction
from tests.controller.world import GATE, GPU, World, running

CQ = {"cluster_queue": "cq"}
LQ = {"name": "lq-cq", "namespace": "ns"}
NORMAL = {"priority_class": ""}
KINDS = ("Job", "Pod")

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world():
    made = World()
    made.furnish()
    async with running(made):
        yield made


async def finish(world, name):
    world.end_job(name)
    await world.pass_time(2)


async def test_a_life_is_counted(world):
    world.job("train")
    await world.pass_time(2)
    await finish(world, "train")

    for what in ("quota_reserved", "admitted", "finished"):
        name = f"{what}_workloads_total"
        assert world.value(name, **CQ, **NORMAL) == 1
        assert world.value(f"local_queue_{name}", **LQ, **NORMAL) == 1
    for what in ("quota_reserved_wait", "admission_wait", "admission_checks_wait", "execution"):
        assert world.value(f"{what}_time_seconds_count", **CQ, **NORMAL) == 1
    assert world.value("admission_attempts_total", result="success") == 1


async def test_pending_workloads_and_usage_are_looked_up(world):
    world.job("runs", gpus=6)
    await world.pass_time(2)
    world.job("waits", gpus=4)
    await world.pass_time(2)

    assert world.value("reserving_active_workloads", **CQ) == 1
    assert world.value("admitted_active_workloads", **CQ) == 1
    assert world.value("local_queue_admitted_active_workloads", **LQ) == 1
    pending = {
        s: world.value("pending_workloads", **CQ, status=s) for s in ("active", "inadmissible")
    }
    assert pending == {"active": 0, "inadmissible": 1}
    assert world.value("cluster_queue_resource_pending", **CQ, resource=GPU) == 4
    assert world.value("local_queue_resource_usage", **LQ, flavor="h100", resource=GPU) == 6
    assert world.value("cluster_queue_status", **CQ, status="active") == 1
    assert world.value("cluster_queue_status", **CQ, status="pending") == 0
    assert world.value("local_queue_status", **LQ, active="True") == 1


async def test_unadmitted_workloads_are_counted_by_reason_until_admitted(world):
    world.job("runs", gpus=6)
    await world.pass_time(2)
    for name in ("one", "two"):
        world.job(name, gpus=4)
    await world.pass_time(2)
    why = {"reason": "NoReservation", "underlying_cause": "WaitingForQuota"}
    bypassed = {**why, "underlying_cause": "PendingEvaluation"}
    waiting = [
        world.value("unadmitted_workloads", **CQ, **why),
        world.value("unadmitted_workloads", **CQ, **bypassed),
        world.value("local_queue_unadmitted_workloads", **LQ, **CQ, **why),
        world.value("pending_scheduling_hashes", **CQ, status="inadmissible"),
        world.value("pending_scheduling_hashes", **CQ, status="active"),
        world.value("finished_workloads", **CQ),
    ]

    await finish(world, "runs")
    await finish(world, "one")
    await finish(world, "two")

    assert waiting == [1, 1, 1, 1, 0, 0]
    assert world.value("unadmitted_workloads", **CQ, **why) is None
    assert world.value("finished_workloads", **CQ) == 3
    assert world.value("local_queue_finished_workloads", **LQ) == 3


async def test_how_long_jobs_pods_and_cycles_take_is_observed(world):
    world.job("train", gpus=1)
    world.pod("single", gpus=1)
    for name in ("a", "b"):
        world.pod(name, gpus=1, group="gang", total=2)
    await world.pass_time(3)

    kinds = [world.value("workload_creation_latency_seconds_count", job_kind=k) for k in KINDS]
    gate = {"name": GATE, **CQ}
    grouped = [
        world.value("pod_scheduling_gate_removal_seconds_count", **gate, is_group=each)
        for each in ("false", "true")
    ]
    cycles = world.value("admission_attempts_total", result="success")
    assert kinds == [1, 2]
    assert grouped == [1, 2]
    assert world.value("admission_attempt_duration_seconds_count", result="success") == cycles


async def test_an_admission_counts_for_all_cohorts_above():
    world = World()
    world.put(r.COHORTS, {"metadata": {"name": "team"}, "spec": {"parentName": "all"}})
    world.furnish(cohort="team")
    async with running(world):
        world.job("train")
        await world.pass_time(2)

        for cohort in ("team", "all"):
            name = "cohort_subtree_admitted_workloads_total"
            assert world.value(name, cohort=cohort, **NORMAL) == 1


async def test_counts_of_a_cohort_are_dropped_with_its_last_reference():
    world = World()
    world.put(r.COHORTS, {"metadata": {"name": "team"}, "spec": {"parentName": "all"}})
    world.furnish(cohort="team")
    async with running(world):
        world.job("train")
        await world.pass_time(2)
        count, above = "cohort_subtree_admitted_workloads_total", {"cohort": "all", **NORMAL}
        counted = world.value(count, **above)
        team = world.store.get(r.COHORTS, "", "team")
        world.put(r.COHORTS, {**team, "spec": {}})
        await world.pass_time(1)

        assert counted == 1
        assert world.value(count, **above) is None
        assert world.value(count, cohort="team", **NORMAL) == 1


QUEUE, LOCAL = "cluster_queue ", "name namespace "
EVENTS = "quota_reserved_workloads_total admitted_workloads_total finished_workloads_total"
WAITS = "quota_reserved_wait admission_wait admission_checks_wait ready_wait"
WAITS += " admitted_until_ready_wait execution"
QUOTAS = "resource_reservation resource_usage nominal_quota borrowing_limit lending_limit"
WHY = "reason underlying_cause "
BUILD = "git_version git_commit build_date go_version compiler platform"
KUEUE = {
    "admission_attempts_total": "counter result",
    "admission_attempt_duration_seconds": "histogram result",
    "admission_cycle_preemption_skips": "gauge cluster_queue",
    "preemption_target_recomputations_total": "counter cluster_queue result",
    "build_info": f"gauge {BUILD}",
    **dict.fromkeys(EVENTS.split(), f"counter {QUEUE}priority_class"),
    **{f"local_queue_{name}": f"counter {LOCAL}priority_class" for name in EVENTS.split()},
    **{f"{each}_time_seconds": f"histogram {QUEUE}priority_class" for each in WAITS.split()},
    **{
        f"local_queue_{each}_time_seconds": f"histogram {LOCAL}priority_class"
        for each in WAITS.split()
    },
    "pods_ready_to_evicted_time_seconds": f"histogram {QUEUE}{WHY}",
    "workload_creation_latency_seconds": "histogram job_kind",
    "pod_scheduling_gate_removal_seconds": f"histogram name {QUEUE}is_group",
    "evicted_workloads_total": f"counter {QUEUE}{WHY}priority_class",
    "evicted_workloads_once_total": f"counter {QUEUE}{WHY}priority_class",
    "local_queue_evicted_workloads_total": f"counter {LOCAL}{WHY}priority_class",
    "preempted_workloads_total": "counter preempting_cluster_queue reason",
    "replaced_workload_slices_total": "counter cluster_queue",
    "workload_eviction_latency_seconds": f"histogram {QUEUE}reason",
    **{
        f"{prefix}{name}": f"gauge {labels}{more}"
        for prefix, labels in (("", QUEUE), ("local_queue_", LOCAL))
        for name, more in (
            ("pending_workloads", "status"),
            ("finished_workloads", ""),
            ("reserving_active_workloads", ""),
            ("admitted_active_workloads", ""),
        )
    },
    "pending_scheduling_hashes": f"gauge {QUEUE}status",
    "cluster_queue_status": f"gauge {QUEUE}status",
    "local_queue_status": f"gauge {LOCAL}active",
    "unadmitted_workloads": f"gauge {QUEUE}{WHY}",
    "local_queue_unadmitted_workloads": f"gauge {LOCAL}{QUEUE}{WHY}",
    **{
        f"cluster_queue_{name}": "gauge cohort cluster_queue flavor resource"
        for name in QUOTAS.split()
    },
    "cluster_queue_resource_pending": f"gauge {QUEUE}resource",
    "local_queue_resource_reservation": f"gauge {LOCAL}flavor resource",
    "local_queue_resource_usage": f"gauge {LOCAL}flavor resource",
    "local_queue_admission_fair_sharing_usage": f"gauge {LOCAL}{QUEUE}",
    "cluster_queue_weighted_share": "gauge cluster_queue cohort",
    "cohort_weighted_share": "gauge cohort",
    "cohort_subtree_quota": "gauge cohort flavor resource",
    "cohort_subtree_resource_reservations": "gauge cohort flavor resource",
    "cohort_subtree_admitted_workloads_total": "counter cohort priority_class",
    "cohort_subtree_admitted_active_workloads": "gauge cohort",
    "cohort_info": "gauge cohort parent_cohort root_cohort",
    "cluster_queue_info": "gauge cluster_queue parent_cohort root_cohort",
}
MULTIKUEUE = {
    "multikueue_workloads_dispatched_total": "counter cluster_queue cluster",
    "multikueue_workloads_admitted_total": "counter cluster_queue cluster",
}


def test_all_of_kueues_metrics_exist_with_their_types_and_labels():
    expected = {f"kueue_{name}": about.split() for name, about in KUEUE.items()}
    expected |= {name: about.split() for name, about in MULTIKUEUE.items()}
    families = {f.name: f for f in (*COUNTED, *MEASURED) if not f.name.startswith("policyd_")}

    assert len(expected) == 64
    assert families.keys() == expected.keys()
    for name, family in families.items():
        kind, *labels = expected[name]
        role = [] if name == "kueue_build_info" else [ROLE]
        assert family.kind == kind
        assert sorted(family.label_names()) == sorted(labels + role)


def test_a_workload_whose_victims_others_took_gets_the_reason_of_the_latest_cycle():
    metrics = ControllerMetrics()
    first = Plan(actions=(), revision=1, skipped=("a", "a", "b"), recomputed=(("a", "skipped"),))
    metrics.rivals(first)
    metrics.rivals(Plan(actions=(), revision=2, skipped=("b",)))

    value = metrics.registry.get_sample_value
    skips = [
        value(
            "kueue_admission_cycle_preemption_skips", {"cluster_queue": queue, ROLE: "standalone"}
        )
        for queue in ("a", "b")
    ]
    again = {"cluster_queue": "a", "result": "skipped", ROLE: "standalone"}
    assert skips == [0, 1]
    assert value("kueue_preemption_target_recomputations_total", again) == 1


def test_running_pods_are_reported():
    families = {family.name: family for family in ControllerMetrics().registry.collect()}

    (sample,) = families["kueue_build_info"].samples

    assert sample.labels["git_version"] == __version__
    assert ROLE not in sample.labels


@pytest.mark.parametrize(
    ("name", "count", "largest"),
    [
        pytest.param("admission_wait_time_seconds", 16, 2.5 * 2**14, id="admission"),
        pytest.param("local_queue_admission_wait_time_seconds", 14, 2.5 * 2**12, id="of-local"),
        pytest.param("local_queue_execution_time_seconds", 16, 2.5 * 2**14, id="execution"),
        pytest.param("workload_creation_latency_seconds", 11, 10.24, id="creation"),
        pytest.param("admission_attempt_duration_seconds", 11, 10, id="cycle"),
    ],
)
def test_histograms_have_the_buckets_of_kueue(name, count, largest):
    registry = CollectorRegistry()

    histogram = FAMILIES[name].make(registry)

    bounds = histogram._upper_bounds[:-1]
    assert (len(bounds), bounds[-1]) == (count, largest)


async def test_an_eviction_is_counted_with_its_reason(world):
    world.job("train")
    await world.pass_time(2)
    queue = world.get(r.CLUSTER_QUEUES, "cq")
    world.put(r.CLUSTER_QUEUES, {**queue, "spec": {**queue["spec"], "stopPolicy": "HoldAndDrain"}})
    await world.pass_time(3)

    why = {"reason": "ClusterQueueStopped", "underlying_cause": ""}
    assert world.value("evicted_workloads_total", **CQ, **why, **NORMAL) == 1
    assert world.value("evicted_workloads_once_total", **CQ, **why, **NORMAL) == 1
    ended = world.value(
        "workload_eviction_latency_seconds_count", **CQ, reason="ClusterQueueStopped"
    )
    assert ended == 1
    assert world.value("pending_workloads", **CQ, status="inadmissible") == 1
    assert world.value("cluster_queue_status", **CQ, status="pending") == 1


async def test_deleted_queues_have_no_metrics(world):
    world.job("train")
    await world.pass_time(2)
    await finish(world, "train")
    world.store.delete(r.LOCAL_QUEUES, world.get(r.LOCAL_QUEUES, "lq-cq"), dry_run=False)
    queue = world.get(r.CLUSTER_QUEUES, "cq")
    world.put(r.CLUSTER_QUEUES, {**queue, "metadata": {**queue["metadata"], "finalizers": []}})
    world.store.delete(r.CLUSTER_QUEUES, world.get(r.CLUSTER_QUEUES, "cq"), dry_run=False)
    await world.pass_time(2)

    families = list(world.controller.health.metrics.registry.collect())
    named = {s.labels.get(k) for f in families for s in f.samples for k in (*CQ, *LQ)}
    assert named & {"cq", "lq-cq"} == set()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, True, id="by-default"),
        pytest.param({"local_queues": False}, False, id="off"),
        pytest.param({"selector": LabelSelector(match_labels={"a": "b"})}, False, id="not-chosen"),
    ],
)
async def test_local_queues_have_metrics_where_they_are_to(settings, expected):
    world = World()
    world.furnish()
    world.metrics = MetricsSettings(**settings)
    async with running(world):
        world.job("train")
        await world.pass_time(2)

        counted = world.value("local_queue_admitted_workloads_total", **LQ, **NORMAL)
        looked_up = world.value("local_queue_admitted_active_workloads", **LQ)

    assert (counted, looked_up) == ((1, 1) if expected else (None, None))


async def test_quotas_and_cohorts_are_published_where_configured():
    world = World(queueing=QueueingSettings(fair_sharing=FairSharingRules()))
    world.furnish(cohort="all")
    world.queue("other", gpus=4, cohort="all", limits={"lendingLimit": "1"})
    world.metrics = MetricsSettings(resources=True)
    async with running(world):
        world.job("train", gpus=9)
        await world.pass_time(2)
        labels = {"cohort": "all", **CQ, "flavor": "h100", "resource": GPU}
        cohort = {"cohort": "all", "flavor": "h100", "resource": GPU}

        assert world.value("cluster_queue_resource_usage", **labels) == 9
        assert world.value("cluster_queue_nominal_quota", **labels) == 8
        assert world.value("cluster_queue_borrowing_limit", **labels) == math.inf
        lent = world.value("cluster_queue_lending_limit", **{**labels, "cluster_queue": "other"})
        assert lent == 1
        assert world.value("cluster_queue_weighted_share", **CQ, cohort="all") > 0
        assert world.value("cohort_subtree_quota", **cohort) == 9  # what one of 4 lends counts
        assert world.value("cohort_subtree_resource_reservations", **cohort) == 9
        assert world.value("cohort_subtree_admitted_active_workloads", cohort="all") == 1
        assert world.value("cohort_info", cohort="all", parent_cohort="", root_cohort="all") == 1
        assert world.value("cohort_weighted_share", cohort="all") is None  # it has no object
        info = {"parent_cohort": "all", "root_cohort": "all"}
        assert world.value("cluster_queue_info", **CQ, **info) == 1


@pytest.mark.parametrize(
    ("role", "leading", "expected"),
    [
        pytest.param("standalone", True, "standalone", id="alone"),
        pytest.param("follower", True, "leader", id="elected"),
        pytest.param("leader", False, "follower", id="not-any-more"),
    ],
)
async def test_metrics_say_what_the_process_is(role, leading, expected):
    metrics = ControllerMetrics()
    metrics.role = role
    metrics.lead(leading=leading)
    metrics.cycle(admitted=0)

    labels = {"result": "inadmissible", ROLE: expected}
    assert metrics.registry.get_sample_value("kueue_admission_attempts_total", labels) == 1


CUSTOM = (
    CustomLabel(name="team", source_label_key="example.com/team"),
    CustomLabel(name="tier", source_kind="LocalQueue", source_annotation_key="example.com/tier"),
    CustomLabel(name="project", source_kind="Workload", tracked_values=("a", "b")),
)


@pytest.mark.parametrize(
    ("project", "expected"),
    [
        pytest.param("a", "a", id="tracked"),
        pytest.param("c", "kueue.x-k8s.io/_UNTRACKED_VALUE_", id="not-tracked"),
        pytest.param("", "", id="without"),
    ],
)
async def test_metrics_have_labels_of_objects_where_they_are_to(project, expected):
    world = World()
    world.furnish()
    for resource, name, more in (
        (r.CLUSTER_QUEUES, "cq", {"labels": {"example.com/team": "red"}}),
        (r.LOCAL_QUEUES, "lq-cq", {"annotations": {"example.com/tier": "gold"}}),
    ):
        queue = world.get(resource, name)
        world.put(resource, {**queue, "metadata": {**queue["metadata"], **more}})
    world.metrics = MetricsSettings(custom=CUSTOM)
    world.copied = CopiedKeys(labels=("project",))
    async with running(world):
        world.job("train", project=project)
        await world.pass_time(2)
        of_queue, of_local = {**CQ, "custom_team": "red"}, {**LQ, "custom_tier": "gold"}
        workload = {**NORMAL, "custom_project": expected}

        assert world.value("admitted_workloads_total", **of_queue, **workload) == 1
        assert world.value("local_queue_admitted_workloads_total", **of_local, **workload) == 1
        own = {"custom_project": expected}
        assert world.value("admitted_active_workloads", **of_queue, **own) == 1
        assert world.value("local_queue_admitted_active_workloads", **of_local, **own) == 1
        assert world.value("reserving_active_workloads", **of_queue) == 1

        world.job("waits", project=project)
        await world.pass_time(2)

        waits = {**own, "status": "inadmissible"}
        assert world.value("pending_workloads", **of_queue, **waits) == 1
        assert world.value("local_queue_pending_workloads", **of_local, **waits) == 1


def workload(*conditions, **status):
    given = [
        {"type": kind, "status": "True", "lastTransitionTime": f"2026-01-02T03:04:{at:02}Z"}
        for kind, at in conditions
    ]
    return msgspec.convert(
        {"metadata": {"name": "w"}, "status": {"conditions": given, **status}}, Workload
    )


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        pytest.param(workload(("Admitted", 5)), None, id="runs-still"),
        pytest.param(workload(("Admitted", 5), ("Finished", 15)), 10, id="once"),
        pytest.param(
            workload(("Admitted", 5), ("Finished", 15), accumulatedPastExecutionTimeSeconds=7),
            17,
            id="with-earlier-runs",
        ),
        pytest.param(workload(("Finished", 15)), None, id="never-ran"),
        pytest.param(
            workload(("Finished", 15), accumulatedPastExecutionTimeSeconds=7), 7, id="earlier-only"
        ),
    ],
)
def test_how_long_a_workload_ran(given, seconds):
    assert execution_seconds(given) == seconds


def evictions(*counts):
    given = [{"reason": r_, "underlyingCause": c, "count": n} for r_, c, n in counts]
    return workload(schedulingStats={"evictions": given})


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        pytest.param([], [("Preempted", "", 1)], ("Preempted", "", 1), id="the-first"),
        pytest.param(
            [("Preempted", "", 1), ("PodsReadyTimeout", "WaitForStart", 1)],
            [("Preempted", "", 1), ("PodsReadyTimeout", "WaitForStart", 2)],
            ("PodsReadyTimeout", "WaitForStart", 2),
            id="one-more-with-its-cause",
        ),
        pytest.param([("Preempted", "", 1)], [("Preempted", "", 1)], None, id="none"),
    ],
)
def test_an_eviction_is_the_count_that_grew(before, after, found):
    counted = latest_eviction(evictions(*before), evictions(*after))

    given = counted and (counted.reason, counted.underlying_cause, counted.count)
    assert given == found
