"""A tenant who wants out of the queue: every way to change an object, on both servers."""

import copy

import pytest

from tests.scenarios.api import Refused, eventually
from tests.scenarios.objects import job, pod

PODS = "api/v1/namespaces/team-a/pods"
JOBS = "apis/batch/v1/namespaces/team-a/jobs"
GATE, QUEUE = "kueue.x-k8s.io/admission", "kueue.x-k8s.io/queue-name"
MANAGED = "kueue.x-k8s.io/managed"


@pytest.fixture
def tenant(api):
    return api.acting_as("alice")


@pytest.fixture
def waits(api):
    """A pod that asks for more than there is, so that it waits."""
    api.create(huge(pod("waits", labels={QUEUE: "team-a"})))
    found = api.get("Pod", "waits", "team-a")
    assert GATE in gates(found)
    return found


def huge(item):
    """Have a pod, or each pod of a job, ask for more cores than there are."""
    spec = item["spec"].get("template", item)["spec"]
    spec["containers"][0]["resources"]["limits"]["cpu"] = "500"
    return item


def gates(item):
    return [gate["name"] for gate in item["spec"].get("schedulingGates", [])]


def refused(call, *args, **options):
    with pytest.raises(Refused) as raised:
        call(*args, **options)
    return raised.value


def escaped(name):
    return name.replace("/", "~1")


WITHOUT_GATES = {
    "json": [{"op": "remove", "path": "/spec/schedulingGates"}],
    "merge": {"spec": {"schedulingGates": None}},
    "strategic": {"spec": {"schedulingGates": [{"name": GATE, "$patch": "delete"}]}},
}


@pytest.mark.parametrize("by", WITHOUT_GATES)
def test_no_patch_takes_the_gate_away(api, tenant, waits, by):
    refusal = refused(tenant.patch, "Pod", "waits", WITHOUT_GATES[by], namespace="team-a", by=by)

    assert "only the queue's controller removes it" in refusal.message
    assert GATE in gates(api.get("Pod", "waits", "team-a"))


@pytest.mark.parametrize("label", [MANAGED, QUEUE])
@pytest.mark.parametrize("ungates", [True, False], ids=["with-its-gates", "label-alone"])
def test_no_patch_drops_what_it_is_found_by(api, tenant, waits, label, ungates):
    changes = [{"op": "remove", "path": f"/metadata/labels/{escaped(label)}"}]
    changes += WITHOUT_GATES["json"] if ungates else []

    refused(tenant.patch, "Pod", "waits", changes, namespace="team-a", by="json")

    assert label in api.get("Pod", "waits", "team-a")["metadata"]["labels"]


@pytest.mark.parametrize("bare", [True, False], ids=["labels-too", "gates-alone"])
def test_no_replacement_does(api, tenant, waits, bare):
    new = copy.deepcopy(waits)
    del new["spec"]["schedulingGates"]
    if bare:
        new["metadata"]["labels"] = {}

    refused(tenant.call, "PUT", f"{PODS}/waits", new)

    assert GATE in gates(api.get("Pod", "waits", "team-a"))


def test_no_field_manager_takes_over_what_it_is_found_by(api, tenant, waits):
    """Who applies labels for himself, and then no longer, takes them away."""
    manager = {"fieldManager": "mallory", "force": "true"}
    mine = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waits", "labels": {}}}
    mine["metadata"]["labels"][MANAGED] = "false"

    path, apply = f"{PODS}/waits", "application/apply-patch+yaml"
    refused(tenant.call, "PATCH", path, mine, content_type=apply, **manager)

    assert api.get("Pod", "waits", "team-a")["metadata"]["labels"][MANAGED] == "true"


def test_gated_pods_are_not_bound(tenant, waits):
    """The API server itself sees to it."""
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "waits"}}
    target = {"target": {"apiVersion": "v1", "kind": "Node", "name": "gpu-1"}}

    refusal = refused(tenant.call, "POST", f"{PODS}/waits/binding", binding | target)

    assert refusal.code in {400, 409, 422, 500}


def test_a_job_is_not_resumed_by_hand(api, tenant):
    api.create(huge(job("waits", gpus=1)))
    eventually(lambda: api.get("Job", "waits", "team-a")["spec"]["suspend"], what="it is held")

    for patch in (
        {"spec": {"suspend": False}},
        {"spec": {"suspend": None}},
        {"spec": {"suspend": False}, "metadata": {"labels": {QUEUE: None}}},
    ):
        refused(tenant.patch, "Job", "waits", patch, namespace="team-a")

    assert api.get("Job", "waits", "team-a")["spec"]["suspend"] is True


def test_a_job_does_not_get_another_owner(api, tenant):
    api.create(job("admitted", gpus=1, run_for="60s"))
    owner = eventually(
        lambda: (
            not api.get("Job", "admitted", "team-a")["spec"]["suspend"]
            and api.get("Job", "admitted", "team-a")
        ),
        what="it runs",
    )
    api.create(huge(job("waits", gpus=1)))
    reference = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": "admitted",
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }

    patch = {"metadata": {"ownerReferences": [reference]}}
    refused(tenant.patch, "Job", "waits", patch, namespace="team-a")

    assert "ownerReferences" not in api.get("Job", "waits", "team-a")["metadata"]


def test_a_workload_that_grows_while_running_queues_again(api, tenant):
    """The pods that came too soon are gone with the others, until there is quota for all."""
    grows = job("grows", gpus=2, pods=2, run_for="60s")
    del grows["spec"]["completions"]
    api.create(grows)
    eventually(lambda: not api.get("Job", "grows", "team-a")["spec"]["suspend"], what="it runs")

    tenant.patch("Job", "grows", {"spec": {"parallelism": 64}}, namespace="team-a")

    eventually(
        lambda: api.get("Job", "grows", "team-a")["spec"]["suspend"],
        within=10,
        what="it is suspended",
    )
    eventually(
        lambda: all(p["metadata"].get("deletionTimestamp") for p in api.find("Pod", "team-a")),
        what="its pods stop",
    )


def test_the_replicas_of_a_scaled_deployment_queue(cluster, api, tenant):
    """Its scale is no part of it that the webhooks see; the pods that come of it are."""
    if cluster.name == "embedded":
        pytest.skip("the embedded cluster has no controller of Deployments")
    labels = {"app": "serve"}
    spec = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": huge(pod("x"))["spec"]},
    }
    spec["template"]["spec"]["restartPolicy"] = "Always"
    metadata = {"name": "serve", "namespace": "team-a", "labels": {QUEUE: "team-a"}}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}
    api.create(body)
    path = "apis/apps/v1/namespaces/team-a/deployments/serve"
    merge = "application/merge-patch+json"
    try:
        tenant.call("PATCH", f"{path}/scale", {"spec": {"replicas": 3}}, content_type=merge)
        found = eventually(
            lambda: len(api.find("Pod", "team-a")) == 3 and api.find("Pod", "team-a"),
            what="there are three pods",
        )
        assert all(GATE in gates(each) for each in found)
    finally:
        api.call("DELETE", path, {"propagationPolicy": "Foreground"})


def test_the_queue_lets_go_what_it_admits(api):
    """The controller's account may do all of that."""
    api.create(pod("goes", gpus=1, annotations={"policyd.io/run-for": "60s"}))

    eventually(lambda: not gates(api.get("Pod", "goes", "team-a")), what="its gates are gone")


def test_nothing_grows_while_it_waits(cluster, api, tenant):
    """The API server resizes what is gated, too; what runs, only on nodes that can do it."""
    if cluster.name == "embedded":
        pytest.skip("the embedded server has no pods/resize")
    api.create(huge(pod("grows")))
    resources = {"requests": {"cpu": "600"}, "limits": {"cpu": "600"}}
    patch = {"spec": {"containers": [{"name": "main", "resources": resources}]}}
    strategic = "application/strategic-merge-patch+json"

    path = f"{PODS}/grows/resize"
    refusal = refused(tenant.call, "PATCH", path, patch, content_type=strategic)

    assert "requests more `cpu` than it was queued with" in refusal.message


def test_the_pod_of_a_job_does_not_grow_once_it_was_started(cluster, api, tenant):
    """It has no gate, and names no queue."""
    if cluster.name == "embedded":
        pytest.skip("the embedded server has no pods/resize")
    body = job("grows", gpus=1)
    body["spec"]["template"]["spec"]["nodeSelector"] = {"there-is-no": "such-node"}
    api.create(body)
    (found,) = eventually(
        lambda: api.find("Pod", "team-a", labelSelector="job-name=grows"), what="it has its pod"
    )
    resources = {"requests": {"cpu": "600"}, "limits": {"cpu": "600"}}
    patch = {"spec": {"containers": [{"name": "main", "resources": resources}]}}

    path = f"{PODS}/{found['metadata']['name']}/resize"
    strategic = "application/strategic-merge-patch+json"
    refusal = refused(tenant.call, "PATCH", path, patch, content_type=strategic)

    assert not gates(found)
    assert "requests more `cpu` than it was queued with" in refusal.message


def test_an_editor_of_a_namespace_writes_no_status(cluster, api):
    """Labels can be changed by way of a status; Kubernetes' roles for users do not give that."""
    if cluster.name == "embedded":
        pytest.skip("the embedded server asks nobody for rights")
    role = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{role}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "alice", "namespace": "team-a"},
        "roleRef": {"apiGroup": role, "kind": "ClusterRole", "name": "admin"},
        "subjects": [{"apiGroup": role, "kind": "User", "name": "alice"}],
    }
    api.call("POST", f"apis/{role}/v1/namespaces/team-a/rolebindings", binding)
    alice = api.acting_as("alice", "system:authenticated")
    api.create(huge(pod("waits")))
    api.create(huge(job("waits", gpus=1)))
    merge = "application/merge-patch+json"
    without = {"metadata": {"labels": None}}
    eventually(lambda: alice.find("Pod", "team-a"), what="alice may list pods")

    workload = eventually(lambda: api.find("Workload", "team-a"), what="there is a workload")[0]
    queues = "apis/kueue.x-k8s.io/v1beta2/namespaces/team-a"
    of_workload = f"{queues}/workloads/{workload['metadata']['name']}"
    for path in (
        f"{PODS}/waits/status",
        f"{JOBS}/waits/status",
        f"{PODS}/waits/binding",
        of_workload,
        f"{of_workload}/status",
        f"{queues}/localqueues/team-a/status",
        "api/v1/namespaces/team-a",
    ):
        method = "POST" if path.endswith("binding") else "PATCH"
        refusal = refused(alice.call, method, path, without, content_type=merge)
        assert (refusal.code, refusal.reason) == (403, "Forbidden")
