"""Kueue's objects at admission: all kinds, created and changed."""

import pytest

from policyd.admission.queues import QueueAdmission
from policyd.api.admission import parse_review
from policyd.engine.model.decision import ALLOWED
from policyd.jobs.integrations import Integrations
from policyd.patch.json_patch import apply_json_patch
from tests.webhooks.reviews import review


def item(kind, spec, version="v1beta2", **more):
    metadata = {"name": "one", **more.pop("metadata", {})}
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
        **more,
    }


def decide(obj, old=None, *, operation=None, **gates):
    operation = operation or ("UPDATE" if old else "CREATE")
    body = review(obj, operation=operation, old=old, resource=f"{obj['kind'].lower()}s")
    return QueueAdmission(**gates).check(parse_review(body))


NEGATIVE = {
    "resourceGroups": [
        {
            "coveredResources": ["cpu"],
            "flavors": [{"name": "a", "resources": [{"name": "cpu", "nominalQuota": "-1"}]}],
        }
    ]
}
RESERVED = {
    "conditions": [{"type": "QuotaReserved", "status": "True"}],
    "admission": {"clusterQueue": "q", "podSetAssignments": [{"name": "main"}]},
}
CHECK = {"controllerName": "a.com/check"}


@pytest.mark.parametrize(
    ("obj", "old", "path"),
    [
        pytest.param(
            item("ClusterQueue", NEGATIVE),
            None,
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
            id="cluster-queue",
        ),
        pytest.param(
            item("Cohort", NEGATIVE),
            None,
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota",
            id="cohort",
        ),
        pytest.param(
            item("LocalQueue", {"clusterQueue": "b"}),
            item("LocalQueue", {"clusterQueue": "a"}),
            "spec.clusterQueue",
            id="local-queue",
        ),
        pytest.param(
            item("ResourceFlavor", {"nodeLabels": {"a": "b"}, "topologyName": "other"}),
            item("ResourceFlavor", {"nodeLabels": {"a": "b"}, "topologyName": "racks"}),
            "spec.topologyName",
            id="resource-flavor",
        ),
        pytest.param(
            item("Topology", {"levels": [{"nodeLabel": "a"}, {"nodeLabel": "a"}]}),
            None,
            "spec.levels[1].nodeLabel",
            id="topology",
        ),
        pytest.param(
            item("AdmissionCheck", {"controllerName": "a.com/other"}),
            item("AdmissionCheck", CHECK),
            "spec.controllerName",
            id="admission-check",
        ),
        pytest.param(
            item("Workload", {"podSets": [{"name": "main", "count": 2}]}, status=RESERVED),
            item("Workload", {"podSets": [{"name": "main", "count": 1}]}, status=RESERVED),
            "spec.podSets.0",
            id="workload",
        ),
    ],
)
def test_impossible_values_are_refused_with_their_place(obj, old, path):
    decision = decide(obj, old)

    assert [denial.path for denial in decision.denials] == [path]


@pytest.mark.parametrize(
    ("obj", "operation"),
    [
        pytest.param(item("ClusterQueue", {}), "CREATE", id="right"),
        pytest.param(item("ClusterQueue", NEGATIVE), "DELETE", id="deleted"),
        pytest.param(
            item("ClusterQueue", NEGATIVE, metadata={"deletionTimestamp": "2026-11-21T10:00:00Z"}),
            "UPDATE",
            id="on-its-way-out",
        ),
        pytest.param(item("ClusterQueue", NEGATIVE, "v1beta1"), "CREATE", id="another-version"),
        pytest.param(item("Unknown", {}), "CREATE", id="nothing-to-check"),
    ],
)
def test_the_rest_passes(obj, operation):
    assert decide(obj, operation=operation) is ALLOWED


FINALIZER = "kueue.x-k8s.io/resource-in-use"


@pytest.mark.parametrize(
    ("obj", "finalizers"),
    [
        pytest.param(item("ClusterQueue", {}), [FINALIZER], id="queue"),
        pytest.param(item("ResourceFlavor", {}), [FINALIZER], id="flavor"),
        pytest.param(item("Topology", {}), [FINALIZER], id="topology"),
        pytest.param(
            item("ClusterQueue", {}, metadata={"finalizers": ["a/b"]}),
            ["a/b", FINALIZER],
            id="beside-another",
        ),
        pytest.param(
            item("ClusterQueue", {}, metadata={"finalizers": [FINALIZER]}),
            [FINALIZER],
            id="once",
        ),
        pytest.param(item("LocalQueue", {}), None, id="another-kind"),
    ],
)
def test_objects_that_may_be_in_use_stay_until_they_are_not(obj, finalizers):
    request = parse_review(review(obj, resource=f"{obj['kind'].lower()}s"))

    decision = QueueAdmission().change(request, ALLOWED)

    made = apply_json_patch(obj, list(decision.operations))
    assert made["metadata"].get("finalizers") == finalizers


def test_fields_that_the_api_server_ignores_may_be_unreadable():
    odd = item("Workload", {"podSets": [{"name": "main", "template": {"spec": "none"}}]})

    [denial] = decide(odd).denials

    assert "cannot be read" in denial.message
    assert "template.spec" in denial.message


def asking(quantity, **annotations):
    container = {"name": "c", "resources": {"requests": {"cpu": quantity}}}
    pod_set = {"name": "main", "count": 1, "template": {"spec": {"containers": [container]}}}
    metadata = {"annotations": {f"kueue.x-k8s.io/{k}": v for k, v in annotations.items()}}
    return item("Workload", {"podSets": [pod_set], "queueName": "l"}, metadata=metadata)


BOOSTED = asking("1", **{"priority-boost": "high"})


@pytest.mark.parametrize(
    ("obj", "integrations", "allowed"),
    [
        pytest.param(asking("-1"), Integrations(), False, id="on-by-default"),
        pytest.param(
            asking("-1"),
            Integrations(off=frozenset({"WorkloadValidateResourcesAreNonNegative"})),
            True,
            id="set-to-off",
        ),
        pytest.param(BOOSTED, Integrations(), True, id="off-by-default"),
        pytest.param(
            BOOSTED, Integrations(on=frozenset({"PriorityBoost", "Other"})), False, id="set-to-on"
        ),
    ],
)
@pytest.mark.gate("WorkloadValidateResourcesAreNonNegative", "PriorityBoost")
def test_feature_gates_say_what_is_checked(obj, integrations, allowed):
    assert decide(obj, gates=QueueAdmission.of(integrations).gates).allowed is allowed


BUDGET = {"policyd.io/budget-gpu-hours": "1000", "policyd.io/budget-time-zone": "Europe/Berlin"}
WRONG = {**BUDGET, "policyd.io/budget-time-zone": "Berlin"}


def annotated(kind, annotations):
    spec = {"clusterQueue": "q"} if kind == "LocalQueue" else {"namespaceSelector": {}}
    return item(kind, spec, metadata={"annotations": annotations})


@pytest.mark.parametrize("kind", ["ClusterQueue", "LocalQueue"])
def test_a_budget_that_cannot_be_meant_is_refused_when_it_is_given(kind):
    assert decide(annotated(kind, BUDGET)) is ALLOWED

    for old in (None, annotated(kind, BUDGET)):
        (denial,) = decide(annotated(kind, WRONG), old).denials
        assert denial.path == "metadata.annotations"
        assert "`Berlin` is not a time zone" in denial.message

    # One from before these annotations were checked must not prevent other changes.
    assert decide(annotated(kind, WRONG), annotated(kind, WRONG)) is ALLOWED


def test_shared_gpus_that_a_flavor_cannot_mean_are_refused_when_they_are_given():
    def flavor(replicas):
        shared = {"policyd.io/shared-gpus": "mps", "policyd.io/shared-gpu-memory": "16000"}
        annotations = {**shared, "policyd.io/shared-gpu-replicas": replicas}
        return item("ResourceFlavor", {}, metadata={"annotations": annotations})

    assert decide(flavor("4")) is ALLOWED
    for old in (None, flavor("4")):
        (denial,) = decide(flavor("0"), old).denials
        assert denial.path == "metadata.annotations[policyd.io/shared-gpu-replicas]"
        assert "a whole number from 2 to 1000" in denial.message
    assert decide(flavor("0"), flavor("0")) is ALLOWED
