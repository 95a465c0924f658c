"""Changes of Kueue's objects that are refused, and those that are not."""

import msgspec
import pytest

from policyd.api.kueue import AdmissionCheck, ClusterQueue, ResourceFlavor, Topology, Workload
from policyd.api.kueue.gates import ValidationGates
from policyd.api.kueue.queue_validation import validate_cluster_queue
from policyd.api.kueue.queues import ConcurrentAdmissionPolicy, Migration
from policyd.api.kueue.validation import (
    validate_admission_check,
    validate_resource_flavor,
    validate_topology,
)
from policyd.api.kueue.workload_validation import validate_workload

HOSTNAME = "kubernetes.io/hostname"
GATED_BY = "kueue.x-k8s.io/admission-gated-by"
REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"


def paths(errors):
    return [(error.path, error.problem) for error in errors]


def levels(*labels):
    spec = {"levels": [{"nodeLabel": label} for label in labels]}
    return msgspec.convert({"spec": spec}, Topology)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(levels("a"), levels("a"), [], id="as-it-was"),
        pytest.param(
            levels("a"), levels("a", "b"), [("spec.levels", "Invalid")], id="another-level"
        ),
        pytest.param(levels("a", HOSTNAME), levels("a", "b", HOSTNAME), [], id="above-nodes"),
        pytest.param(
            levels("a", HOSTNAME), levels("a"), [("spec.levels", "Invalid")], id="without-nodes"
        ),
    ],
)
def test_levels_of_a_topology_stay_unless_nodes_are_the_lowest(old, new, expected):
    assert paths(validate_topology(new, old)) == expected


def test_a_refused_change_of_levels_says_when_they_are_mutable():
    (error,) = validate_topology(levels("a", "b"), levels("a"))

    assert error.message == (
        "levels are mutable only when kubernetes.io/hostname is the lowest level both before and"
        " after the change"
    )


def test_the_topology_of_a_flavor_stays_once_it_has_one():
    none, racks, zones = (
        msgspec.convert({"spec": {"nodeLabels": {"a": "b"}, "topologyName": name}}, ResourceFlavor)
        for name in ("", "racks", "zones")
    )

    assert validate_resource_flavor(racks, none) == []
    assert paths(validate_resource_flavor(zones, racks)) == [("spec.topologyName", "Invalid")]


def test_the_controller_of_a_check_stays():
    one, other, unowned = (
        msgspec.convert({"spec": {"controllerName": name}}, AdmissionCheck)
        for name in ("a/b", "c/d", "")
    )

    assert validate_admission_check(one, one) == []
    assert paths(validate_admission_check(other, one)) == [("spec.controllerName", "Invalid")]
    assert paths(validate_admission_check(unowned)) == [("spec.controllerName", "Required")]


def queue(flavors, check, *on):
    quotas = [{"name": "cpu", "nominalQuota": 1}]
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": name, "resources": quotas} for name in flavors],
    }
    checks = {"admissionChecks": [{"name": check, "onFlavors": list(on)}]}
    spec = {"resourceGroups": [group], "admissionChecksStrategy": checks}
    return msgspec.convert({"spec": spec}, ClusterQueue)


@pytest.mark.parametrize(
    ("old", "new", "strict", "mistakes"),
    [
        pytest.param(queue("a", "c", "x"), queue("a", "c", "x"), False, 0, id="as-it-was"),
        pytest.param(queue("a", "c", "x"), queue("a", "c", "x"), True, 1, id="as-the-gate-says"),
        pytest.param(queue("a", "c", "x"), queue("b", "c", "x"), False, 1, id="other-flavors"),
        pytest.param(queue("a", "c", "x"), queue("a", "c", "y"), False, 1, id="another-mistake"),
        pytest.param(queue("a", "c", "a"), queue("a", "c", "x"), False, 1, id="a-new-mistake"),
    ],
)
@pytest.mark.gate("RejectUpdatesToCQWithInvalidOnFlavors")
def test_an_update_has_checks_only_for_flavors_of_the_queue(old, new, strict, mistakes):
    gates = ValidationGates(reject_updates_to_cq_with_invalid_on_flavors=strict)

    assert len(validate_cluster_queue(new, old, gates=gates)) == mistakes


@pytest.mark.parametrize(
    ("old", "new", "mistakes"),
    [
        pytest.param(None, None, [], id="never-had-one"),
        pytest.param("TryPreferredFlavors", "TryPreferredFlavors", [], id="as-it-was"),
        pytest.param(None, "TryPreferredFlavors", ["Invalid"], id="new"),
        pytest.param("TryPreferredFlavors", None, ["Invalid"], id="gone"),
        pytest.param("TryPreferredFlavors", "RetainFirstAdmission", ["Invalid"], id="another"),
    ],
)
def test_whether_a_queue_tries_flavors_at_once_stays_as_it_was(old, new, mistakes):
    before, after = (
        msgspec.structs.replace(
            queue("a", "c"),
            spec=msgspec.structs.replace(
                queue("a", "c").spec,
                concurrent_admission_policy=mode
                and ConcurrentAdmissionPolicy(migration=Migration(mode=mode)),
            ),
        )
        for mode in (old, new)
    )
    errors = validate_cluster_queue(after, before, gates=ValidationGates(concurrent_admission=True))

    assert paths(errors) == [("spec.concurrentAdmissionPolicy", each) for each in mistakes]


def test_so_many_flavors_are_tried_at_once_and_no_more():
    policy = ConcurrentAdmissionPolicy()
    gates = ValidationGates(concurrent_admission=True)
    found = []
    for count in (16, 17):
        many = queue([f"f{number}" for number in range(count)], "c")
        spec = msgspec.structs.replace(many.spec, concurrent_admission_policy=policy)
        tried = msgspec.structs.replace(many, spec=spec)
        found.append(paths(validate_cluster_queue(tried, gates=gates)))

    assert found == [[], [("spec.resourceGroups[0].flavors", "Invalid")]]


RESERVED = {"type": "QuotaReserved", "status": "True"}
ADMITTED = {"type": "Admitted", "status": "True"}


def workload(count=2, *, conditions=(RESERVED,), annotations=None, status=None, **spec):
    admission = {
        "clusterQueue": "q",
        "podSetAssignments": [{"name": "main", "count": 2, "flavors": {"cpu": "a"}}],
    }
    return msgspec.convert(
        {
            "metadata": {"annotations": annotations or {}},
            "spec": {"podSets": [{"name": "main", "count": count}], "queueName": "l", **spec},
            "status": {"conditions": list(conditions), "admission": admission, **(status or {})},
        },
        Workload,
    )


PENDING = workload(conditions=(), status={"admission": None})
CLASS = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
POD_CLASS = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}
ELSEWHERE = {"admission": {"clusterQueue": "other", "podSetAssignments": [{"name": "main"}]}}


def reclaimed(count):
    return {"reclaimablePods": [{"name": "main", "count": count}]}


def placed(*labels):
    assignment = {"name": "main", "count": 2, "flavors": {"cpu": "a"}}
    if labels:
        assignment["topologyAssignment"] = {"levels": list(labels)}
    return {"admission": {"clusterQueue": "q", "podSetAssignments": [assignment]}}


def ready(**update):
    updates = [{"name": "main", **update}]
    return {"admissionChecks": [{"name": "c", "state": "Ready", "podSetUpdates": updates}]}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        pytest.param(workload(), workload(), [], id="as-it-was"),
        pytest.param(workload(), workload(3), [("spec.podSets.0", "Invalid")], id="more-pods"),
        pytest.param(workload(), workload(1), [], id="fewer-pods"),
        pytest.param(PENDING, workload(3), [], id="more-pods-before"),
        pytest.param(
            workload(), workload(podSets=[]), [("status.admission.podSetAssignments", "Invalid"),
            ("status.admission.podSetAssignments[0].name", "NotFound"),
            ("spec.podSets", "Invalid")], id="no-pods",
        ),
        pytest.param(
            workload(), workload(queueName="m"), [("spec.queueName", "Invalid")], id="queue"
        ),
        pytest.param(PENDING, workload(queueName="m"), [], id="queue-before"),
        pytest.param(
            workload(priorityClassRef=CLASS, priority=1),
            workload(priorityClassRef={**CLASS, "name": "low"}, priority=1),
            [],
            id="class-of-workloads",
        ),
        pytest.param(
            workload(priorityClassRef=POD_CLASS, priority=1),
            workload(priorityClassRef={**POD_CLASS, "name": "low"}, priority=1),
            [("spec.priorityClassRef.name", "Invalid")],
            id="class-of-pods",
        ),
        pytest.param(
            workload(),
            workload(priorityClassRef=CLASS, priority=1),
            [("spec.priorityClassRef", "Invalid")],
            id="a-class-at-last",
        ),
        pytest.param(
            workload(status=reclaimed(2)),
            workload(status=reclaimed(1)),
            [("status.reclaimablePods[main].count", "Invalid")],
            id="claims-again",
        ),
        pytest.param(
            workload(status=reclaimed(1)),
            workload(),
            [("status.reclaimablePods[main]", "Required")],
            id="claims-all-again",
        ),
        pytest.param(
            workload(),
            workload(status=reclaimed(3)),
            [("status.reclaimablePods[main].count", "Invalid")],
            id="gives-back-more-than-it-has",
        ),
        pytest.param(
            workload(), workload(status=ELSEWHERE), [("status.admission", "Invalid")], id="moved"
        ),
        pytest.param(
            workload(status=placed()), workload(status=placed("rack")), [], id="placed-later"
        ),
        pytest.param(workload(), PENDING, [], id="evicted"),
        pytest.param(
            workload(conditions=(RESERVED, ADMITTED)),
            workload(conditions=(RESERVED, ADMITTED), maximumExecutionTimeSeconds=1),
            [("spec.maximumExecutionTimeSeconds", "Invalid")],
            id="time-limit-while-running",
        ),
        pytest.param(workload(), workload(maximumExecutionTimeSeconds=1), [], id="time-limit"),
        pytest.param(
            workload(status=ready()),
            workload(status=ready(labels={"a": "b"})),
            [("status.admissionChecks[0].podSetUpdates", "Invalid")],
            id="a-check-that-changes-its-mind",
        ),
        pytest.param(
            workload(status={"nominatedClusterNames": ["a"]}),
            workload(status={"clusterName": "b"}),
            [("status.clusterName", "Invalid")],
            id="cluster-nobody-named",
        ),
        pytest.param(
            workload(annotations={REPLACES: "ns/a"}),
            workload(annotations={REPLACES: "ns/a"}, status={"clusterName": "b"}),
            [],
            id="cluster-of-the-slice-before",
        ),
        pytest.param(
            workload(status={"clusterName": "a"}),
            workload(status={"clusterName": "b"}),
            [("status.clusterName", "Invalid")],
            id="another-cluster",
        ),
        pytest.param(
            workload(),
            workload(annotations={GATED_BY: "a.com/b"}),
            [(f"metadata.annotations[{GATED_BY}]", "Forbidden")],
            id="gated-too-late",
        ),
        pytest.param(
            workload(annotations={GATED_BY: "a.com/b"}),
            workload(annotations={GATED_BY: "a.com/b,c.com/d"}),
            [(f"metadata.annotations[{GATED_BY}]", "Forbidden")],
            id="one-more-gate",
        ),
        pytest.param(workload(annotations={GATED_BY: "a.com/b"}), workload(), [], id="ungated"),
    ],
)  # fmt: skip
def test_changes_of_a_workload_are_checked(old, new, expected):
    assert paths(validate_workload(new, old)) == expected


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        pytest.param("", [], id="nobody"),
        pytest.param("a.com/b, c.com/d ", [], id="two"),
        pytest.param("gate", ["Invalid"], id="no-domain"),
        pytest.param("a b.com/c", ["Invalid"], id="a-space"),
        pytest.param("a.com/b c", ["Invalid"], id="a-space-in-the-path"),
        pytest.param("a.com/b/c", [], id="a-longer-path"),
        pytest.param("a.com/b,,", ["Invalid", "Invalid"], id="nothing-between-commas"),
        pytest.param("a.com/b,a.com/b", ["Invalid"], id="one-twice"),
        pytest.param(f"a.com/{'b' * 57}", [], id="as-long-as-may-be"),
        pytest.param(f"a.com/{'b' * 58}", ["TooLong"], id="too-long"),
    ],
)
def test_a_gate_has_the_name_of_a_controller(text, mistakes):
    gated = workload(annotations={GATED_BY: text})
    where = f"metadata.annotations[{GATED_BY}]"

    assert paths(validate_workload(gated)) == [(where, each) for each in mistakes]
