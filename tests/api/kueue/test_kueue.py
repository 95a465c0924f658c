"""Kueue's objects: trimmed reading, whole writing, and what is wrong with them."""

import msgspec
import pytest

from policyd.api.kueue import (
    ClusterQueue,
    Cohort,
    LocalQueue,
    PodSet,
    ResourceFlavor,
    Topology,
    Workload,
    WorkloadSpec,
    workload_body,
)
from policyd.api.kueue.queue_validation import (
    validate_cluster_queue,
    validate_cohort,
    validate_local_queue,
)
from policyd.api.kueue.validation import (
    validate_resource_flavor,
    validate_topology,
)
from policyd.api.kueue.workload_validation import validate_workload

TEMPLATE = {
    "metadata": {"labels": {"app": "train"}},
    "spec": {"containers": [{"name": "main", "image": "train:1", "command": ["run"]}]},
}


def flavor(name, **quotas):
    return {"name": name, "resources": [{"name": r, **quota} for r, quota in quotas.items()]}


def group(*flavors, resources=("cpu",)):
    return {"coveredResources": list(resources), "flavors": list(flavors)}


def cluster_queue(*groups, **spec):
    return msgspec.convert({"spec": {"resourceGroups": list(groups), **spec}}, ClusterQueue)


def cohort(*groups, **spec):
    return msgspec.convert({"spec": {"resourceGroups": list(groups), **spec}}, Cohort)


def workload(*pod_sets, status=None, **spec):
    body = {"spec": {"podSets": list(pod_sets), **spec}, "status": status or {}}
    return msgspec.convert(body, Workload)


def pod_set(requests=None, **fields):
    container = {"name": "main", "resources": {"requests": requests or {}}}
    return {"template": {"spec": {"containers": [container]}}, **fields}


def paths(errors):
    return [(error.path, error.problem) for error in errors]


def test_defaults_of_the_api_server_are_set_on_reading():
    queue = msgspec.json.decode(b'{"spec": {}}', type=ClusterQueue)

    assert queue.spec.queueing_strategy == "BestEffortFIFO"
    assert queue.spec.flavor_fungibility.when_can_preempt == "TryNextFlavor"
    assert queue.spec.preemption.reclaim_within_cohort == "Never"
    assert queue.spec.namespace_selector is None


def test_a_selector_that_is_there_but_empty_is_not_a_missing_one():
    queue = msgspec.json.decode(b'{"spec": {"namespaceSelector": {}}}', type=ClusterQueue)

    assert queue.spec.namespace_selector is not None


def test_quotas_may_be_numbers_or_text():
    queue = cluster_queue(group(flavor("spot", cpu={"nominalQuota": 8})))

    assert queue.spec.resource_groups[0].flavors[0].resources[0].nominal_quota == 8


def test_a_template_is_trimmed_on_reading():
    pod = workload({"template": TEMPLATE}).spec.pod_sets[0].template

    assert pod.metadata.labels == {"app": "train"}
    assert msgspec.json.encode(pod.spec) == b'{"containers":[{"name":"main"}]}'


def test_a_template_is_whole_in_the_body_of_a_new_workload():
    new = Workload(spec=WorkloadSpec(pod_sets=(PodSet(name="main", count=2),), queue_name="gpu"))

    body = msgspec.json.decode(msgspec.json.encode(workload_body(new, [TEMPLATE])))

    assert body == {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "spec": {"queueName": "gpu", "podSets": [{"count": 2, "template": TEMPLATE}]},
    }


def test_encoded_templates_are_taken_as_they_are():
    new = Workload(spec=WorkloadSpec(pod_sets=(PodSet(),)))

    body = workload_body(new, [msgspec.Raw(b'{"spec": {}}')])

    assert b'"template":{"spec": {}}' in msgspec.json.encode(body)


def test_as_many_templates_as_pod_sets_are_needed():
    with pytest.raises(ValueError, match="shorter"):
        workload_body(Workload(spec=WorkloadSpec(pod_sets=(PodSet(),))), [])


CPU = {"nominalQuota": "4"}
QUOTA = "spec.resourceGroups[0].flavors[0].resources[0]"


@pytest.mark.parametrize(
    ("queue", "expected"),
    [
        pytest.param(cluster_queue(group(flavor("a", cpu=CPU))), [], id="valid"),
        pytest.param(cluster_queue(), [], id="without-quota"),
        pytest.param(
            cluster_queue(group(flavor("a", cpu={"nominalQuota": "-1"}))),
            [(f"{QUOTA}.nominalQuota", "Invalid")],
            id="negative-quota",
        ),
        pytest.param(
            cluster_queue(group(flavor("a", cpu={"nominalQuota": "many"}))),
            [(f"{QUOTA}.nominalQuota", "Invalid")],
            id="quota-that-is-no-quantity",
        ),
        pytest.param(
            cluster_queue(group(flavor("a", cpu=CPU | {"borrowingLimit": 1}))),
            [(f"{QUOTA}.borrowingLimit", "Invalid")],
            id="limit-without-cohort",
        ),
        pytest.param(
            cluster_queue(group(flavor("a", cpu=CPU | {"lendingLimit": 5})), cohortName="all"),
            [(f"{QUOTA}.lendingLimit", "Invalid")],
            id="lends-more-than-it-has",
        ),
        pytest.param(
            cluster_queue(group(flavor("a", memory=CPU))),
            [(f"{QUOTA}.name", "Invalid")],
            id="resources-in-another-order",
        ),
        pytest.param(
            cluster_queue(group(flavor("a"))),
            [("spec.resourceGroups[0].flavors[0].resources", "Invalid")],
            id="resource-without-quota",
        ),
        pytest.param(
            cluster_queue(group(flavor("a", memory=CPU, cpu=CPU))),
            [
                ("spec.resourceGroups[0].flavors[0].resources", "Invalid"),
                (f"{QUOTA}.name", "Invalid"),
            ],
            id="resource-too-many-in-another-order",
        ),
        pytest.param(
            cluster_queue(group(flavor("a", cpu=CPU)), group(flavor("b", cpu=CPU))),
            [("spec.resourceGroups[1].coveredResources[0]", "Duplicate")],
            id="resource-in-two-groups",
        ),
        pytest.param(
            cluster_queue(
                group(flavor("a", cpu=CPU)), group(flavor("a", gpu=CPU), resources=["gpu"])
            ),
            [("spec.resourceGroups[1].flavors[0].name", "Duplicate")],
            id="flavor-in-two-groups",
        ),
        pytest.param(
            cluster_queue(group(flavor("a", **{"@cpu": CPU}), resources=["@cpu"])),
            [("spec.resourceGroups[0].coveredResources[0]", "Invalid")],
            id="resource-that-is-no-name",
        ),
        pytest.param(
            cluster_queue(flavorFungibility={"preference": "PreemptionOverBorrowing"}),
            [("spec.flavorFungibility.preference", "Invalid")],
            id="preference-that-is-never-looked-at",
        ),
        pytest.param(
            cluster_queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
            [("spec.preemption", "Invalid")],
            id="preempts-while-borrowing-but-never-reclaims",
        ),
        pytest.param(cluster_queue(fairSharing={"weight": "0"}), [], id="weighs-nothing"),
        pytest.param(
            cluster_queue(fairSharing={"weight": "1n"}),
            [("spec.fairSharing", "Invalid")],
            id="weighs-as-good-as-nothing",
        ),
        pytest.param(
            cluster_queue(
                group(flavor("a", cpu=CPU)),
                admissionChecksStrategy={"admissionChecks": [{"name": "c", "onFlavors": ["x"]}]},
            ),
            [("spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]", "NotSupported")],
            id="check-on-a-flavor-of-others",
        ),
        pytest.param(
            cluster_queue(group(*(flavor(f"f{n}", cpu=CPU) for n in range(257)))),
            [("spec.resourceGroups", "Invalid")],
            id="too-many-flavors",
        ),
    ],
)
def test_cluster_queues_are_checked(queue, expected):
    assert paths(validate_cluster_queue(queue)) == expected


def test_too_many_resources_and_combinations_are_named():
    resources = [f"r{n}" for n in range(257)]
    quotas = dict.fromkeys(resources, CPU)
    queue = cluster_queue(group(flavor("a", **quotas), flavor("b", **quotas), resources=resources))

    assert paths(validate_cluster_queue(queue)) == [
        ("spec.resourceGroups", "Invalid"),
        ("spec.resourceGroups[0]", "Invalid"),
    ]


@pytest.mark.parametrize(
    ("cohort_", "expected"),
    [
        pytest.param(cohort(group(flavor("a", cpu=CPU | {"lendingLimit": 9})), parentName="p"), [],
                     id="may-lend-more-than-its-own"),
        pytest.param(
            cohort(group(flavor("a", cpu=CPU | {"lendingLimit": 1}))),
            [(f"{QUOTA}.lendingLimit", "Invalid")],
            id="limit-without-parent",
        ),
    ],
)  # fmt: skip
def test_cohorts_are_checked(cohort_, expected):
    assert paths(validate_cohort(cohort_)) == expected


def test_the_cluster_queue_of_a_local_queue_stays():
    old, new = (
        msgspec.convert({"spec": {"clusterQueue": name}}, LocalQueue) for name in ("a", "b")
    )

    assert validate_local_queue(old) == []
    assert validate_local_queue(old, old) == []
    assert paths(validate_local_queue(new, old)) == [("spec.clusterQueue", "Invalid")]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"nodeLabels": {"cloud/zone": "a", "empty": ""}}, [], id="valid"),
        pytest.param({"nodeLabels": {"@a": "b"}}, [("spec.nodeLabels", "Invalid")], id="key"),
        pytest.param({"nodeLabels": {"a": "@b"}}, [("spec.nodeLabels", "Invalid")], id="value"),
        pytest.param({"nodeLabels": {"A_/b": "c"}}, [("spec.nodeLabels", "Invalid")], id="prefix"),
        pytest.param(
            {"topologyName": "racks"}, [("spec.nodeLabels", "Required")], id="topology-of-no-nodes"
        ),
        pytest.param(
            {"nodeTaints": [{"key": "a", "effect": "NoSchedule"}] * 2},
            [("spec.nodeTaints[1]", "Duplicate")],
            id="taint-twice",
        ),
    ],
)
def test_flavors_are_checked(spec, expected):
    assert paths(validate_resource_flavor(msgspec.convert({"spec": spec}, ResourceFlavor))) == (
        expected
    )


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param(["block", "kubernetes.io/hostname"], [], id="valid"),
        pytest.param(["a", "a"], [("spec.levels[1].nodeLabel", "Duplicate")], id="level-twice"),
        pytest.param(
            ["kubernetes.io/hostname", "a"],
            [("spec.levels[0].nodeLabel", "Invalid")],
            id="node-above-others",
        ),
    ],
)
def test_topologies_are_checked(labels, expected):
    levels = [{"nodeLabel": label} for label in labels]
    topology = msgspec.convert({"spec": {"levels": levels}}, Topology)

    assert paths(validate_topology(topology)) == expected


REQUESTS = "spec.podSets[0].template.spec.containers[0].resources.requests"
RESERVED = [{"type": "QuotaReserved", "status": "True"}]


@pytest.mark.parametrize(
    ("workload_", "expected"),
    [
        pytest.param(workload(pod_set({"cpu": 1})), [], id="valid"),
        pytest.param(
            workload(pod_set({"cpu": "-1"})), [(f"{REQUESTS}[cpu]", "Invalid")], id="negative"
        ),
        pytest.param(
            workload(pod_set({"pods": 1})), [(f"{REQUESTS}[pods]", "Invalid")], id="reserved-name"
        ),
        pytest.param(
            workload({"template": {"spec": {"resources": {"limits": {"cpu": "?"}}}}}),
            [("spec.podSets[0].template.spec.resources.limits[cpu]", "Invalid")],
            id="pod-level-limit-that-is-no-quantity",
        ),
        pytest.param(
            workload(pod_set(minCount=3, count=2)),
            [("spec.podSets[0].minCount", "Invalid")],
            id="minimum-above-count",
        ),
        pytest.param(
            workload(pod_set(minCount=1), pod_set(name="b", minCount=1)),
            [("spec.podSets", "Invalid")],
            id="two-with-minimum",
        ),
        pytest.param(
            workload(
                priorityClassRef={
                    "group": "scheduling.k8s.io",
                    "kind": "PriorityClass",
                    "name": "high",
                }
            ),
            [("spec.priority", "Required")],
            id="priority-class-without-priority",
        ),
        pytest.param(
            workload(pod_set(), status={"conditions": RESERVED}),
            [("status.admission", "Required")],
            id="reserved-without-admission",
        ),
        pytest.param(
            workload(
                pod_set(), status={"admission": {"clusterQueue": "q"}, "conditions": RESERVED}
            ),
            [("status.admission.podSetAssignments", "Invalid")],
            id="admission-without-pod-sets",
        ),
        pytest.param(
            workload(
                pod_set(),
                status={
                    "admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "other"}]},
                    "conditions": RESERVED,
                },
            ),
            [("status.admission.podSetAssignments[0].name", "NotFound")],
            id="admission-of-another-pod-set",
        ),
    ],
)
def test_workloads_are_checked(workload_, expected):
    assert paths(validate_workload(workload_)) == expected


def test_an_error_says_where_what_and_why():
    error = validate_cluster_queue(cluster_queue(group(flavor("a", cpu={"nominalQuota": "-1"}))))[0]

    assert str(error) == (
        f'{QUOTA}.nominalQuota: Invalid value: "-1": must be greater than or equal to 0'
    )
