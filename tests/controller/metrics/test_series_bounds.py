"""The number of series is bounded, however many queues, and whatever their users write."""

import asyncio
import time

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from policyd.api.configuration.kinds import CustomLabel
from policyd.controller.metrics.counters import FAMILIES, ControllerMetrics
from policyd.controller.metrics.metric_families import COUNTED, ROLE
from policyd.controller.metrics.series_bounds import OTHER, NamedValues, SeriesBounds
from policyd.exposition import Exposition
from policyd.health import OPENMETRICS, prefers_openmetrics
from policyd.kube import resources as r
from tests.controller.world import GPU, World, running
from webhooks.metrics import WebhookMetrics

HOSTILE = '"}\n# TYPE x counter\nx{a="\\'
MANY = 10_000

LOCAL = FAMILIES["local_queue_admitted_workloads_total"]
ADMITTED = FAMILIES["admitted_workloads_total"]


def few(**more):
    return NamedValues(SeriesBounds(**{"local_queues": 3, "of_namespace": 2, "values": 2} | more))


def test_local_queues_have_series_until_there_are_too_many():
    named = few()

    found = [named.labels(LOCAL, (f"q{i}", f"ns{i}", "")) for i in range(5)]

    assert found[:3] == [(f"q{i}", f"ns{i}", "") for i in range(3)]
    assert found[3:] == [(OTHER, OTHER, "")] * 2
    assert named.labels(LOCAL, ("q1", "ns1", "")) == ("q1", "ns1", "")


def test_one_namespace_takes_no_more_than_its_part():
    named = few()

    found = [named.labels(LOCAL, (f"q{i}", "greedy", "")) for i in range(5)]

    assert sum(OTHER in labels for labels in found) == 3
    assert named.labels(LOCAL, ("q", "modest", "")) == ("q", "modest", "")


def test_the_place_of_a_deleted_queue_goes_to_another():
    named = few(of_namespace=1)
    named.labels(LOCAL, ("a", "ns", ""))
    before = named.labels(LOCAL, ("b", "ns", ""))
    gone = [named.forget_local_queue("ns", name) for name in ("a", "never-named")]

    assert before == (OTHER, OTHER, "")
    assert gone == [True, False]
    assert named.labels(LOCAL, ("b", "ns", "")) == ("b", "ns", "")


def test_priority_classes_and_custom_labels_have_a_number_of_values():
    named = few()

    found = [named.labels(ADMITTED, ("cq", f"c{i}", f"t{i}"), ("custom_t",)) for i in range(3)]

    assert found == [("cq", "c0", "t0"), ("cq", "c1", "t1"), ("cq", OTHER, OTHER)]


def test_amounts_of_other_resources_are_left_out_and_those_with_quota_are_not():
    named, family = few(), FAMILIES["admitted_workloads_total"]._replace(labels=("resource",))

    found = [named.labels(family, (name,)) for name in ("a/1", "a/2", "a/3", GPU)]
    named.name("resource", {GPU})

    assert found == [("a/1",), ("a/2",), None, None]
    assert named.labels(family, (GPU,)) == (GPU,)


def test_shares_of_queues_beyond_the_bounds_are_not_added_up():
    named, skips = few(cluster_queues=1), FAMILIES["admission_cycle_preemption_skips"]

    assert named.labels(skips, ("a",)) == ("a",)
    assert named.labels(skips, ("b",)) is None


def test_a_full_metric_counts_the_rest_in_one_series():
    metrics = ControllerMetrics(bounds=SeriesBounds(series=4))

    for number in range(50):
        metrics.count("quota_reserved_workloads_total", f"queue-{number % 5}", f"c{number // 5}")

    family = metrics._families["kueue_quota_reserved_workloads_total"]
    samples = next(iter(family.collect())).samples
    assert len(samples) == 5
    assert sum(sample.value for sample in samples) == 50
    rest = {"cluster_queue": OTHER, "priority_class": OTHER, ROLE: "standalone"}
    assert metrics.registry.get_sample_value(family._name + "_total", rest) == 46


def test_a_full_metric_has_room_again_once_a_queue_is_gone():
    metrics = ControllerMetrics(bounds=SeriesBounds(series=1))
    metrics.count("replaced_workload_slices_total", "a")
    metrics.forget(cluster_queue="a")
    metrics.count("replaced_workload_slices_total", "b")

    value = metrics.registry.get_sample_value
    labels = {"cluster_queue": "b", ROLE: "standalone"}
    assert value("kueue_replaced_workload_slices_total", labels) == 1


def test_ten_thousand_namespaces_with_hostile_classes_stay_within_bounds():
    metrics = ControllerMetrics((CustomLabel(name="t", source_kind="Workload"),))
    for number in range(MANY):
        queue, namespace, kind = f"q{number}", f"ns{number}", f"{HOSTILE}{number}"
        metrics.count("local_queue_admitted_workloads_total", queue, namespace, kind, HOSTILE)
        for name in ("admission_wait", "quota_reserved_wait", "execution"):
            labels = queue, namespace, kind, HOSTILE
            metrics.observe(f"local_queue_{name}_time_seconds", 5.0, *labels)
        metrics.count("admitted_workloads_total", f"cq{number}", kind, HOSTILE)
        metrics.observe("admission_wait_time_seconds", 5.0, f"cq{number}", kind, HOSTILE)
    began = time.process_time()
    text = generate_latest(metrics.registry)
    took = time.process_time() - began

    for family in COUNTED:
        assert len(metrics._made[family.name]) <= metrics.named.bounds.series + 1
    assert len(text) < 24e6
    assert took < 5, "a scrape of all that there may be"
    assert b"\nx{" not in text
    total = sum(
        sample.value
        for each in metrics.registry.collect()
        if each.name == "kueue_local_queue_admitted_workloads"
        for sample in each.samples
    )
    assert total == MANY


@pytest.mark.anyio
async def test_queues_beyond_the_bounds_are_summed_up_in_gauges():
    world = World()
    world.furnish()
    for number in range(MANY):
        namespace = "ns" if number < 60 else f"ns{number}"
        queue = {"metadata": {"name": f"q{number}", "namespace": namespace}}
        world.put(r.LOCAL_QUEUES, {**queue, "spec": {"clusterQueue": "cq"}})
    async with running(world):
        world.job("train")
        await world.pass_time(2)
        for _ in range(MANY):  # page by page
            await asyncio.sleep(0)
        registry = world.controller.health.metrics.registry
        began = time.process_time()
        text = await Exposition(registry).text()
        took = time.process_time() - began
        families = {family.name: family for family in registry.collect()}

    statuses = families["kueue_local_queue_status"].samples
    named = {(each.labels["namespace"], each.labels["name"]) for each in statuses}
    assert len(named) == SeriesBounds().local_queues + 1
    assert len([name for namespace, name in named if namespace == "ns"]) == 20
    assert sum(sample.value for sample in statuses) == MANY + 1
    assert len(text) < 1e6
    assert took < 2
    fair = families.get("kueue_local_queue_admission_fair_sharing_usage")
    assert fair is None or OTHER not in {sample.labels["name"] for sample in fair.samples}


@pytest.mark.anyio
async def test_a_class_that_does_not_exist_is_not_named():
    world = World()
    world.furnish()
    async with running(world):
        metrics = world.controller.health.metrics
        world.job("train")
        await world.pass_time(2)
        (workload,) = world.controller.mirrors.workloads
        forged = workload.spec.priority_class_ref
        counts = world.controller.cache.hooks.ungated.__self__

        assert forged is None
        assert counts._class_of(workload) == ""
        assert counts._class_of(_with_class(workload, HOSTILE)) == OTHER
        assert HOSTILE not in str(list(metrics.registry.collect()))


def _with_class(workload, name):
    import msgspec  # noqa: PLC0415

    from policyd.api.kueue import Workload  # noqa: PLC0415

    body = msgspec.to_builtins(workload)
    ref = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": name}
    body["spec"]["priorityClassRef"] = ref
    return msgspec.convert(body, Workload)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        pytest.param("", False, id="not-said"),
        pytest.param("*/*", False, id="anything"),
        pytest.param("text/plain;version=0.0.4", False, id="classic"),
        pytest.param("application/openmetrics-text", True, id="openmetrics"),
        pytest.param(
            f"{OPENMETRICS};version=1.0.0,{OPENMETRICS};version=0.0.1;q=0.75,"
            "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            True,
            id="prometheus-2.42",
        ),
        pytest.param(f"{OPENMETRICS};q=0.3, text/plain;q=0.9", False, id="weighed"),
        pytest.param(f"{OPENMETRICS};q=0", False, id="refused"),
        pytest.param(f"{OPENMETRICS};q=nan", False, id="no-number"),
        pytest.param(",;;,q=,;q=" + "," * 10_000, False, id="nonsense"),
    ],
)
def test_the_format_is_the_one_that_the_caller_prefers(accept, expected):
    assert prefers_openmetrics(accept) is expected


@pytest.mark.anyio
async def test_counters_have_no_series_of_their_creation():
    metrics = ControllerMetrics()
    metrics.cycle(admitted=1, seconds=0.1)

    assert b"_created" not in await Exposition(metrics.registry).text()


def test_namespaces_beyond_the_bound_are_summed_up_outside_of_quota():
    metrics = ControllerMetrics()
    metrics.outside_quota({(f"ns{number}", GPU): 1 for number in range(MANY)})

    registry = metrics.registry
    families = {family.name: family for family in registry.collect()}
    samples = families["policyd_usage_outside_quota"].samples
    assert len(samples) == SeriesBounds().local_queues + 1
    assert sum(sample.value for sample in samples) == MANY


def test_labels_of_the_webhooks_have_closed_sets_of_values():
    closed = {"path", "outcome", "reason", "phase", "method", "code", "result"}
    bounded = {"policy"}  # the first 300; tests/webhooks look at it
    metrics = vars(WebhookMetrics(CollectorRegistry())).values()

    assert {label for each in metrics for label in getattr(each, "_labelnames", ())} == (
        closed | bounded
    )
