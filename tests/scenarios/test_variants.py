"""Gates of Kueue's that are off by default, on: variants by flavor, pods on lost nodes."""

import pytest

from policyd.api.kueue.names import ALLOWED_FLAVORS as ALLOWED
from policyd.api.kueue.names import API_VERSION, SAFE_TO_DELETE
from policyd.cli import demo
from tests.scenarios import clusters
from tests.scenarios.api import condition, eventually
from tests.scenarios.objects import job, pod
from tests.scenarios.test_queue import admitted, waiting, workload_of

CONFIGURATION = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {ConcurrentAdmission: true, FailureRecoveryPolicy: true}
"""
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
HELD = "example.com/held"


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.e2e)])
def api(request, tmp_path_factory):
    """A cluster with these gates, and a queue `choosy` of two flavors of 8 GPUs each."""
    folder = tmp_path_factory.mktemp(request.param)
    config = folder / "config.yaml"
    config.write_text(CONFIGURATION)
    options = ("--config", str(config))
    embedded = request.param == "embedded"
    start = clusters.embedded(folder, *options) if embedded else clusters.real(folder, both=options)
    with start as running:
        for item in furniture():
            running.api.create(item)
        yield running.api


def cluster_object(kind, name, **spec):
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def furniture():
    flavor = {"nodeLabels": {demo.GPU_LABEL: demo.GPU_PRODUCT}}
    amounts = {"cpu": "1000", "memory": "10Ti", "nvidia.com/gpu": "8"}
    flavors = []
    for name in ("better", "worse"):
        yield cluster_object("ResourceFlavor", name, tolerations=[demo.GPU_TOLERATION], **flavor)
        quotas = [{"name": each, "nominalQuota": amount} for each, amount in amounts.items()]
        flavors.append({"name": name, "resources": quotas})
    groups = [{"coveredResources": list(amounts), "flavors": flavors}]
    policy = {"migration": {"mode": "TryPreferredFlavors"}}
    more = {"namespaceSelector": {}, "concurrentAdmissionPolicy": policy}
    yield cluster_object("ClusterQueue", "choosy", resourceGroups=groups, **more)
    local = cluster_object("LocalQueue", "choosy", clusterQueue="choosy")
    local["metadata"]["namespace"] = "team-a"
    yield local


def choosy(name, **options):
    body = job(name, **options)
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "choosy"}
    return body


def variants(api, name):
    """Return the variants of a job, by flavor."""
    uid = workload_of(api, name)["metadata"]["uid"]
    return {
        each["metadata"]["annotations"][ALLOWED]: each
        for each in api.find("Workload", "team-a")
        if any(owner["uid"] == uid for owner in each["metadata"].get("ownerReferences", ()))
    }


def flavor(api, name):
    """Return the flavor that a job runs with."""
    status = (workload_of(api, name) or {}).get("status", {})
    assigned = status.get("admission", {}).get("podSetAssignments", [{}])
    return assigned[0].get("flavors", {}).get("nvidia.com/gpu")


def test_a_job_takes_what_is_free_and_moves_on_to_what_is_better(api):
    api.create(choosy("first", run_for="300s"))
    eventually(lambda: flavor(api, "first") == "better", what="the first job has the better flavor")
    api.create(choosy("second", run_for="300s"))
    eventually(lambda: flavor(api, "second") == "worse", what="the second job has what is left")
    api.create(choosy("third", run_for="300s"))
    eventually(
        lambda: "; variant worse: " in (waiting(api, "third") or {}).get("message", ""),
        what="the third job says why each variant waits",
    )
    assert set(variants(api, "third")) == {"better", "worse"}
    assert condition(variants(api, "second")["worse"], "Admitted")["status"] == "True"

    api.delete("Job", "third", "team-a")
    eventually(lambda: workload_of(api, "third") is None, what="the third job is gone")
    api.delete("Job", "first", "team-a")

    eventually(lambda: flavor(api, "second") == "better", what="the second job has moved on")
    eventually(lambda: admitted(api, "second"), what="and runs again")
    mine = {workload_of(api, "second")["metadata"]["name"]}
    mine |= {each["metadata"]["name"] for each in variants(api, "second").values()}
    eventually(
        lambda: {each["metadata"]["name"] for each in api.find("Workload", "team-a")} == mine,
        what="variants of jobs that are gone are gone",
    )
    api.delete("Job", "second", "team-a")


@pytest.mark.e2e  # a minute is a minute here
def test_a_pod_on_a_lost_node_is_ended_by_force(api):
    name = api.find("Node")[0]["metadata"]["name"]
    body = pod("lost", gpus=0, annotations={SAFE_TO_DELETE: "true"}, finalizers=[HELD])
    body["spec"]["nodeName"] = name
    api.create(body)
    api.delete("Pod", "lost", "team-a")

    def lost():
        # The node controller takes the taint from nodes that answer, as all do here.
        api.patch("Node", name, {"spec": {"taints": [UNREACHABLE]}})
        return condition(api.get("Pod", "lost", "team-a"), "KueueFailureRecovery")

    ended = eventually(lost, within=120, what="the pod has failed")

    assert ended["reason"] == "KueueForcefullyDeleted"
    assert api.get("Pod", "lost", "team-a")["status"]["phase"] == "Failed"
    api.patch("Pod", "lost", {"metadata": {"finalizers": None}}, namespace="team-a")
    eventually(lambda: not api.exists("Pod", "lost", "team-a"), what="the pod is gone")
    api.patch("Node", name, {"spec": {"taints": None}})
