"""What changes with a feature gate, where no other test flips it."""

import msgspec
import pytest
from msgspec.structs import replace

from policyd.alloc.queue import FlavorSpec, Fungibility, PreemptionPolicy
from policyd.alloc.settings import FairSharingRules, Gates, QueueingSettings
from policyd.alloc.state import CoreState
from policyd.alloc.topology.values import Placement, PlacementRequest, TopologyNode
from policyd.alloc.workload import PodSetFlavors, ReservedQuota
from policyd.api.configuration import decode_configuration
from policyd.api.configuration.validation import validate_configuration
from policyd.api.kueue import Workload
from policyd.api.kueue.gates import ValidationGates
from policyd.api.nodes import Node
from policyd.controller.queues.queue_settings import metrics_settings
from policyd.controller.watch.priorities import effective_priority
from policyd.jobs.injection import injections
from policyd.jobs.integrations import Integrations
from policyd.jobs.pod_groups import PodGroup
from policyd.jobs.pods import QueuedPod
from policyd.jobs.rules.surroundings import JobContext
from policyd.jobs.rules.validation import validate_job
from policyd.kube import resources as r
from policyd.workload.conversion import admission_object
from policyd.workload.node_health import Accepts, NodeHealth, health, seconds_left
from tests.admission.test_queues import decide, item
from tests.alloc.builders import admission, cohort, group, pod_set, put, queue, state, workload
from tests.alloc.test_cycle import run
from tests.alloc.test_cycle_preemption import ANY, held, made, summarize_plan
from tests.alloc.topology.builders import HOSTNAME, assignment, hosts, only, request
from tests.controller.topology import test_topologies as topologies
from tests.controller.world import World, running
from tests.workload.test_obstacles import reason_of as obstacle
from tests.workload.test_obstacles import workload as pending

QUEUE = "kueue.x-k8s.io/queue-name"
BOTH = pytest.mark.parametrize("on", [True, False], ids=["on", "off"])
NOW = 1_700_000_000.0
LOWER = PreemptionPolicy(within_cluster_queue="LowerPriority")


def configured(text):
    body = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **text}
    return decode_configuration(body)


# Jobs and pods.


@BOTH
@pytest.mark.gate("AssignQueueLabelsForPods")
def test_pods_get_their_queues(on):
    given = msgspec.convert(
        {
            "metadata": {"name": "w", "namespace": "ns"},
            "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 1}]},
            "status": {"admission": {"clusterQueue": "cq", "podSetAssignments": []}},
        },
        Workload,
    )

    (found,) = injections(given, {}, Gates(assign_queue_labels_for_pods=on))

    assert (found.labels.get("kueue.x-k8s.io/cluster-queue-name") == "cq") is on


@BOTH
@pytest.mark.gate("FastQuotaReleaseInPodIntegration")
def test_a_pod_that_is_to_stop_gives_its_quota_back_at_once(on):
    metadata = {
        "name": "p",
        "deletionTimestamp": "2023-11-14T22:13:20Z",
        "deletionGracePeriodSeconds": 60,
    }
    stops = msgspec.convert({"metadata": metadata, "status": {"phase": "Running"}}, QueuedPod)
    group = PodGroup(name="g", pods=(stops,))
    fast = Gates(fast_quota_release_in_pod_integration=on).fast_quota_release_in_pod_integration

    assert group.active(now=NOW, fast=fast) is not on


@BOTH
@pytest.mark.anyio
@pytest.mark.gate("PodIntegrationValidateGroupOwner")
async def test_a_group_of_pods_does_not_take_a_workload_that_is_no_groups(on):
    world = World(QueueingSettings(gates=Gates(pod_integration_validate_group_owner=on)))
    world.furnish()
    metadata = {"name": "g", "namespace": "ns"}
    async with running(world):
        world.put(r.WORKLOADS, {"metadata": metadata, "spec": {"queueName": "other"}})
        world.pod("a", group="g", total=1)
        await world.pass_time(2)

        assert bool(world.events("WorkloadNameConflict")) is on


@BOTH
@pytest.mark.anyio
@pytest.mark.gate("FinishOrphanedWorkloads")
async def test_a_workload_that_its_job_left_behind_is_finished(on):
    world = World(QueueingSettings(gates=Gates(finish_orphaned_workloads=on)))
    world.furnish()
    metadata = {"name": "left", "namespace": "ns", "labels": {"kueue.x-k8s.io/job-uid": "1"}}
    async with running(world):
        pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": []}}}
        spec = {"queueName": "lq-cq", "podSets": [pod_set]}
        world.put(r.WORKLOADS, {"metadata": metadata, "spec": spec})
        await world.pass_time(2)

        assert world.is_true("left", "Finished") is on


@BOTH
@pytest.mark.anyio
@pytest.mark.gate("WorkloadIdentifierAnnotations")
async def test_annotations_name_the_group_of_a_pod(on):
    world = World(QueueingSettings(gates=Gates(workload_identifier_annotations=on)))
    world.furnish()
    async with running(world):
        name = "kueue.x-k8s.io/pod-group-name"
        long = "a" * 64
        for pod, group_name in (("short", "g"), ("long", long)):
            total = {"kueue.x-k8s.io/pod-group-total-count": "1"}
            world.pod(pod, gpus=1, **{name: group_name}, **total)
        await world.pass_time(2)

        names = {each["metadata"]["name"] for each in world.all(r.WORKLOADS)}
        assert ("g" in names) is on
        assert long in names


@BOTH
@pytest.mark.gate("WorkloadIdentifierAnnotations")
def test_names_in_annotations_are_checked_if_set(on):
    notes = {"kueue.x-k8s.io/pod-group-name": "no name"}
    notes["kueue.x-k8s.io/pod-group-total-count"] = "1"
    pod = {"metadata": {"name": "a", "labels": {QUEUE: "q"}, "annotations": notes}}
    off = frozenset() if on else frozenset({"WorkloadIdentifierAnnotations"})
    around = JobContext(integrations=Integrations(off=off))

    found = validate_job(pod, None, group="", kind="Pod", surroundings=around)

    where = "metadata.annotations" if on else "metadata.labels"
    assert [each.path for each in found] == [f"{where}[kueue.x-k8s.io/pod-group-name]"]


@BOTH
@pytest.mark.gate("LWSImmutableGroupSize")
def test_a_leader_worker_set_keeps_the_size_of_its_groups(on):
    off = frozenset() if on else frozenset({"LWSImmutableGroupSize"})
    old, new = (
        {
            "metadata": {"name": "a", "labels": {QUEUE: "q"}},
            "spec": {"leaderWorkerTemplate": {"size": size, "workerTemplate": {}}},
        }
        for size in (2, 3)
    )

    found = validate_job(
        new, old, group="leaderworkerset.x-k8s.io", kind="LeaderWorkerSet",
        surroundings=JobContext(integrations=Integrations(off=off)),
    )  # fmt: skip

    assert ("spec.leaderWorkerTemplate.size" in [each.path for each in found]) is on


@BOTH
@pytest.mark.gate("ValidateRayAndSparkJobUpdates")
def test_a_ray_job_is_checked_when_it_loses_its_queue(on):
    off = frozenset() if on else frozenset({"ValidateRayAndSparkJobUpdates"})
    new, old = (
        {"metadata": {"name": "a", "labels": labels}, "spec": {"suspend": False}}
        for labels in ({}, {QUEUE: "q"})
    )

    found = validate_job(
        new, old, group="ray.io", kind="RayJob",
        surroundings=JobContext(integrations=Integrations(off=off)),
    )  # fmt: skip

    assert bool(found) is on


# Workloads and what they are told.


@pytest.mark.gate("PriorityBoost")
def test_an_annotation_adds_to_the_priority():
    boosted = pending({"kueue.x-k8s.io/priority-boost": "7"}, priority=1)

    assert effective_priority(boosted, Gates(priority_boost=True)) == 8
    assert effective_priority(boosted, Gates()) == 1


@pytest.mark.gate("UnadmittedWorkloadsExplicitStatus")
def test_a_workload_that_was_not_considered_yet_says_so():
    explicit = Gates(unadmitted_workloads_explicit_status=True)

    assert obstacle(pending(), gates=explicit) == "PendingEvaluation"
    assert obstacle(pending()) is None


@pytest.mark.gate("UnadmittedWorkloadsObservability")
def test_reasons_are_reported_in_detail():
    terse = Gates(unadmitted_workloads_observability=False)
    given = pending(reason="Misconfigured")

    assert obstacle(given, local_queue=None) == "Misconfigured"
    assert obstacle(given, local_queue=None, gates=terse) == "Inadmissible"


@pytest.mark.gate("WorkloadValidationForPodSetMetadata")
def test_labels_of_pod_sets_are_checked():
    template = {"metadata": {"labels": {"a": "no label"}}}
    spec = {"queueName": "l", "podSets": [{"name": "main", "count": 1, "template": template}]}

    assert not decide(item("Workload", spec)).allowed
    off = ValidationGates(workload_validation_for_pod_set_metadata=False)
    assert decide(item("Workload", spec), gates=off).allowed


@pytest.mark.gate("TASValidateWorkloadSliceSize")
def test_the_size_of_slices_needs_their_topology():
    pod_set = {"name": "main", "count": 1, "topologyRequest": {"podSetSliceSize": 2}}
    spec = {"queueName": "l", "podSets": [pod_set]}

    assert not decide(item("Workload", spec)).allowed
    off = ValidationGates(tas_validate_workload_slice_size=False)
    assert decide(item("Workload", spec), gates=off).allowed


# What is decided.


@pytest.mark.gate("FairSharingPreemptWithinNominal")
def test_a_queue_takes_its_nominal_quota_back_whatever_the_shares_of_cohorts():
    def contested(**flips):
        return made(
            cohort("left", "all"), cohort("right", "all"), cohort("all"),
            queue("mine", "left", gpu=2, preemption=ANY), queue("greedy", "left", gpu=0),
            queue("other", "right", gpu=4),
            held("g", "greedy", 3), held("o", "other", 3),
            workload("m", "mine", gpu=2),
            fair_sharing=FairSharingRules(), **flips,
        )  # fmt: skip

    entitled = summarize_plan(run(contested()))
    contests = summarize_plan(run(contested(fair_sharing_preempt_within_nominal=False)))

    assert entitled[0] == ("preempt", "g", "InCohortReclamation")
    assert contests[0] == ("preempt", "g", "InCohortFairSharing")


@pytest.mark.gate("FlavorFungibility")
def test_a_queue_says_whether_it_preempts_before_it_tries_the_next_flavor():
    def between(**flips):
        return made(
            queue("a", groups=(group(one={"gpu": 4}, two={"gpu": 4}),),
                  preemption=LOWER, fungibility=Fungibility(when_can_preempt="MayStopSearch")),
            workload("low", "a", admission=admission("a", "one", gpu=4)),
            workload("high", "a", gpu=4, priority=1), flavors=("one", "two"), **flips,
        )  # fmt: skip

    assert summarize_plan(run(between()))[0] == ("preempt", "low", "InClusterQueue")
    assert summarize_plan(run(between(flavor_fungibility=False))) == [("admit", "high")]


@pytest.mark.gate("FlavorFungibilityPreserveScanProgress")
def test_a_workload_that_lost_its_flavor_continues_its_search():
    def racing(**flips):
        groups = (group(one={"gpu": 4}, two={"gpu": 4}),)
        return made(
            queue("a", "all", groups=groups), queue("b", "all", groups=groups),
            workload("a1", "a", gpu=8), workload("b1", "b", gpu=8, at=1),
            flavors=("one", "two"), **flips,
        )  # fmt: skip

    kept = run(racing()).actions[1]
    dropped = run(racing(flavor_fungibility_preserve_scan_progress=False)).actions[1]

    assert (kept.reason, kept.progress is None) == ("FailedAfterNomination", False)
    assert (dropped.reason, dropped.progress) == ("FailedAfterNomination", None)


@BOTH
@pytest.mark.gate("PrioritySortingWithinCohort")
def test_queues_of_a_cohort_take_turns_by_priority(on):
    of = made(
        cohort("all", gpu=4), queue("a", "all", gpu=0), queue("b", "all", gpu=0),
        workload("old", "a", gpu=4), workload("urgent", "b", gpu=4, at=1, priority=5),
        priority_sorting_within_cohort=on,
    )  # fmt: skip

    assert summarize_plan(run(of))[0] == ("admit", "urgent" if on else "old")


@pytest.mark.gate("QuotaCheckStrategy")
def test_resources_that_a_queue_does_not_declare_pass():
    def undeclared(**flips):
        of = CoreState(QueueingSettings(ignores_undeclared=True, gates=Gates(**flips)))
        of.put_flavor(FlavorSpec(name="default"))
        for thing in (queue("a", gpu=4), workload("w", "a", gpu=1, cpu=1)):
            put(of, thing)
        return summarize_plan(run(of))

    assert undeclared() == [("admit", "w")]
    assert undeclared(quota_check_strategy=False) == [("requeue", "w", "NoFit")]


@BOTH
@pytest.mark.gate("SchedulingEquivalenceHashing")
def test_equal_requests_are_not_tried_again(on):
    rules = QueueingSettings(gates=Gates(scheduling_equivalence_hashing=on))
    of = state(
        queue("a", gpu=4), workload("first", "a", gpu=8), workload("second", "a", gpu=8, at=1),
        rules=rules,
    )  # fmt: skip

    run(of)

    assert (of.queues["a"].pending.shared_refusal("second") is not None) is on


@BOTH
@pytest.mark.gate("SchedulingEquivalenceHashingIgnorePodSetName")
def test_requests_that_differ_in_names_of_pod_sets_alone_are_not_tried_again(on):
    gates = Gates(scheduling_equivalence_hashing_ignore_pod_set_name=on)
    wrapped = (
        workload(name, "a", replace(pod_set(gpu=gpu), name=f"{name}-0"), at=at)
        for at, (name, gpu) in enumerate({"first": 8, "second": 8, "x": 1, "y": 1}.items())
    )
    of = state(queue("a", gpu=4), *wrapped, rules=QueueingSettings(gates=gates))

    run(of)

    assert (of.queues["a"].pending.shared_refusal("second") is not None) is on
    for _ in range(3):
        run(of)
    admitted = of.queues["a"].holdings.values()
    assert [each.admission.pod_sets[0].name for each in admitted] == ["x-0", "y-0"]


@BOTH
@pytest.mark.gate("ReservedResourceNameValidation")
@pytest.mark.parametrize(
    ("resources", "path"),
    [
        pytest.param(
            {"transformations": [{"input": "pods", "strategy": "Replace"}]},
            "transformations[0].input",
            id="input",
        ),
        pytest.param(
            {"transformations": [{"input": "a/b", "strategy": "Retain", "outputs": {"pods": "2"}}]},
            "transformations[0].outputs[pods]",
            id="output",
        ),
        pytest.param(
            {"deviceClassMappings": [{"name": "pods", "deviceClassNames": ["gpu"]}]},
            "deviceClassMappings[0].name",
            id="device-class",
        ),
    ],
)
def test_the_queue_alone_counts_pods(on, resources, path):
    given = configured({"resources": resources})

    errors = validate_configuration(given, {"ReservedResourceNameValidation": on})

    assert [each.path for each in errors] == ([f"resources.{path}"] if on else [])
    mapped = "deviceClassMappings" in resources
    without = {"KueueDRAIntegration": False, "KueueDRAIntegrationExtendedResource": False,
               "KueueDRAIntegrationPartitionableDevices": False}  # fmt: skip
    assert not mapped or validate_configuration(given, without) == []


# Topologies.


@BOTH
@pytest.mark.gate("TASAssignmentsEncodingByHostnamePrefix")
def test_nodes_are_identified_by_the_prefixes_of_their_names(on):
    names = (
        f"nodes-of-the-{side}-hall-{index}" for side in ("left", "right") for index in range(9)
    )
    placed = assignment(**dict.fromkeys(names, 1))
    given = PodSetFlavors(name="main", count=18, flavors={}, usage={}, placement=placed)
    admitted = ReservedQuota(cluster_queue="cq", pod_sets=(given,))
    flips = Gates(tas_assignments_encoding_by_hostname_prefix=on)

    found = admission_object(admitted, by_prefix=flips.tas_assignments_encoding_by_hostname_prefix)

    slices = found.pod_set_assignments[0].topology_assignment.slices
    assert len(slices) == (2 if on else 1)


@pytest.mark.gate("TASProfileMixed")
def test_pods_that_may_go_anywhere_fill_what_is_nearly_full():
    nodes = hosts(b1_r1_x1=1, b1_r1_x2=1, b1_r2_x3=2)

    assert only(nodes, request(3)) == {"x1": 1, "x2": 1, "x3": 1}
    assert only(nodes, request(3), gates=Gates(tas_profile_mixed=False)) == {"x1": 1, "x3": 2}


def racked(**flips):
    """Two nodes of a topology with one GPU each, and two queues with quota for both."""
    of = CoreState(QueueingSettings(gates=Gates(**flips)))
    for name in ("default", "other"):
        of.put_flavor(FlavorSpec(name=name, topology="racks", levels=(HOSTNAME,)))
    for host in ("x1", "x2"):
        labels = {HOSTNAME: host}
        spec = TopologyNode(name=host, labels=labels, allocatable={"gpu": 1, "pods": 9})
        of.ledger.nodes.put(spec)
    for name in ("a", "b"):
        put(of, queue(name, gpu=2))
    return of


def placed(key, queue_name):
    asks = {"gpu": 1}
    place = PlacementRequest(
        pod_set="main", count=1, requests=asks, mode="Required", level=HOSTNAME
    )
    return workload(key, queue_name, replace(pod_set(gpu=1), placed=True, place=place))


@pytest.mark.gate("TASRecomputeAssignmentWithinSchedulingCycle")
def test_a_workload_that_lost_its_place_in_a_cycle_gets_another_in_it():
    def racing(**flips):
        of = racked(**flips)
        put(of, placed("a1", "a"))
        put(of, placed("b1", "b"))
        return summarize_plan(run(of))

    assert racing() == [("admit", "a1"), ("admit", "b1")]
    off = racing(tas_recompute_assignment_within_scheduling_cycle=False)
    assert off == [("admit", "a1"), ("requeue", "b1", "FailedAfterNomination")]


@BOTH
@pytest.mark.gate("TASHandleOverlappingFlavors")
def test_flavors_of_the_same_nodes_know_of_each_others_usage(on):
    of = racked(tas_handle_overlapping_flavors=on)
    there = Placement(flavor="other", assignment=assignment(x1=1, x2=1), requests={"gpu": 1})
    of.ledger.nodes.hold("ns/other", [there])
    put(of, placed("a1", "a"))

    assert summarize_plan(run(of))[0][0] == ("requeue" if on else "admit")


@pytest.mark.parametrize(
    ("flips", "reason"),
    [
        pytest.param({}, "NodeFailures", id="on"),
        pytest.param({"tas_failed_node_replacement": False}, None, id="nothing-is-replaced"),
        pytest.param({"tas_failed_node_replacement_fail_fast": False}, None, id="it-waits"),
    ],
)
@pytest.mark.anyio
@pytest.mark.gate("TASFailedNodeReplacement", "TASFailedNodeReplacementFailFast")
async def test_a_workload_without_a_place_but_that_of_a_failed_node_is_requeued(flips, reason):
    world = World(QueueingSettings(gates=Gates(**flips)))
    world.furnish(gpus=16)
    world.put(r.RESOURCE_FLAVORS, topologies.flavor())
    world.put(r.TOPOLOGIES, topologies.racks())
    for name in ("b1", "b2"):
        world.put(r.NODES, topologies.node(name, "b"))
    async with running(world):
        await topologies.start(world)
        world.store.delete(r.NODES, world.store.get(r.NODES, "", "b1"), dry_run=False)
        await world.pass_time(5)

        assert world.condition("ring", "Evicted").get("reason") == reason
        unhealthy = world.workload_of("ring")["status"].get("unhealthyNodes")
        assert bool(unhealthy) is ("tas_failed_node_replacement_fail_fast" in flips)


def tainted(ready="True"):
    since = {"type": "Ready", "status": ready, "lastTransitionTime": "2023-11-14T22:13:10Z"}
    return msgspec.convert({"metadata": {"name": "n"}, "status": {"conditions": [since]}}, Node)


POD = msgspec.convert({"metadata": {"name": "p"}, "status": {"phase": "Running"}}, QueuedPod)


@pytest.mark.gate("TASReplaceNodeDueToNotReadyOverFixedTime")
def test_a_node_that_is_not_ready_fails_after_a_time():
    by_time = Gates(tas_replace_node_due_to_not_ready_over_fixed_time=True)

    assert seconds_left(tainted("False"), by_time, now=NOW) == 20
    assert seconds_left(tainted("False"), Gates(), now=NOW) == 0
    assert health(tainted("False"), Accepts.ALWAYS, [POD], by_time, left=0) is NodeHealth.FAILED
    assert health(tainted("False"), Accepts.ALWAYS, [POD], Gates(), left=0) is NodeHealth.WAITS


@pytest.mark.gate("TASReplaceNodeOnNodeTaints")
def test_a_node_that_keeps_pods_away_fails():
    off = Gates(tas_replace_node_on_node_taints=False)

    assert health(tainted(), Accepts.NEVER, [], Gates(), left=0) is NodeHealth.FAILED
    assert health(tainted(), Accepts.NEVER, [], off, left=0) is NodeHealth.FINE


@pytest.mark.gate("TASReplaceNodeOnPodTermination")
def test_a_node_fails_when_its_pods_have_ended():
    off = Gates(tas_replace_node_on_pod_termination=False)

    assert health(tainted(), Accepts.NEVER, [POD], Gates(), left=0) is NodeHealth.WAITS
    assert health(tainted(), Accepts.NEVER, [POD], off, left=0) is NodeHealth.FAILED


# What is measured.


@pytest.mark.gate("CustomMetricLabels")
def test_metrics_have_labels_of_the_administrators():
    labels = {"metrics": {"customLabels": [{"name": "team", "sourceLabelKey": "team"}]}}

    on = metrics_settings(configured({**labels, "featureGates": {"CustomMetricLabels": True}}))
    assert [each.name for each in on.custom] == ["team"]
    assert metrics_settings(configured(labels)).custom == ()


@pytest.mark.gate("LocalQueueMetrics")
def test_local_queues_are_measured():
    measured = {"metrics": {"localQueueMetrics": {"enable": True}}}
    off = {**measured, "featureGates": {"LocalQueueMetrics": False}}

    assert metrics_settings(configured(measured)).local_queues
    assert not metrics_settings(configured(off)).local_queues
