"""Jobs on other clusters: a manager and two workers, each a real API server with policyd in it."""

import base64
import json
from contextlib import ExitStack

import pytest
import yaml

from policyd.api.kueue.names import MULTI_KUEUE
from tests.charts.release import NAMESPACE
from tests.scenarios import clusters
from tests.scenarios.api import authority, condition, eventually
from tests.scenarios.objects import job

pytestmark = pytest.mark.e2e

KUEUE = "kueue.x-k8s.io/v1beta2"
NAMES = ("east", "west")
QUEUE, GPU = "kueue.x-k8s.io/queue-name", "nvidia.com/gpu"


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A manager whose queue sends its jobs away, and the workers."""
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(clusters.real(tmp_path_factory.mktemp(name)))
            for name in NAMES
        }
        values = {"controller__multiKueue__enabled": True}
        folder = tmp_path_factory.mktemp("manager")
        manager = stack.enter_context(clusters.real(folder, values=values))
        connect(manager.api, workers)
        yield manager, workers


def connect(api, workers):
    for name, worker in workers.items():
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "data": {"kubeconfig": encoded(worker.kubeconfig)},
        }
        api.call("POST", f"api/v1/namespaces/{NAMESPACE}/secrets", secret)
        source = {"kubeConfig": {"location": name, "locationType": "Secret"}}
        make(api, "MultiKueueCluster", name, {"clusterSource": source})
    make(api, "MultiKueueConfig", "all", {"clusters": list(NAMES)})
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "MultiKueueConfig", "name": "all"}
    spec = {"controllerName": MULTI_KUEUE, "parameters": parameters}
    make(api, "AdmissionCheck", "away", spec)
    groups = api.find("ClusterQueue")[0]["spec"]["resourceGroups"]
    for quota in (q for g in groups for f in g["flavors"] for q in f["resources"]):
        quota.pop("borrowingLimit", None)
        quota.pop("lendingLimit", None)
    strategy = {"admissionChecks": [{"name": "away"}]}
    spec = {"namespaceSelector": {}, "resourceGroups": groups, "admissionChecksStrategy": strategy}
    make(api, "ClusterQueue", "away", spec)
    local = {"metadata": {"name": "away", "namespace": "team-a"}, "spec": {"clusterQueue": "away"}}
    api.create({"apiVersion": KUEUE, "kind": "LocalQueue", **local})
    for name in workers:
        eventually(lambda name=name: is_active(api, name), within=60, what=f"{name} is connected")
    for worker in workers.values():
        queue = worker.api.find("ClusterQueue")[0]["metadata"]["name"]
        spec = {"clusterQueue": queue}
        metadata = {"name": "away", "namespace": "team-a"}
        local = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": metadata, "spec": spec}
        worker.api.create(local)


def encoded(kubeconfig):
    """Return a kubeconfig that carries all it needs, as a Secret has it."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster = config["clusters"][0]["cluster"]
    pem = authority(cluster)
    carried = {
        "server": cluster["server"],
        "certificate-authority-data": base64.b64encode(pem.encode()).decode(),
    }
    token = config["users"][0]["user"]["token"]
    whole = {
        "clusters": [{"name": "worker", "cluster": carried}],
        "users": [{"name": "manager", "user": {"token": token}}],
        "contexts": [{"name": "worker", "context": {"cluster": "worker", "user": "manager"}}],
        "current-context": "worker",
    }
    return base64.b64encode(json.dumps(whole).encode()).decode()


def make(api, kind, name, spec):
    body = {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": name}, "spec": spec}
    return api.create(body)


def is_active(api, name):
    return condition(api.get("MultiKueueCluster", name), "Active").get("status") == "True"


def submitted(api, name, **how):
    body = job(name, **how)
    body["metadata"]["labels"] = {QUEUE: "away"}
    return api.create(body)


def cluster_of(api, name):
    """Return the worker that a job was sent to; empty before."""
    for workload in api.find("Workload", "team-a"):
        if any(o["name"] == name for o in workload["metadata"].get("ownerReferences", ())):
            return workload.get("status", {}).get("clusterName", "")
    return ""


def jobs(worker):
    return [each["metadata"]["name"] for each in worker.api.find("Job", "team-a")]


def test_a_job_runs_on_one_worker_and_its_status_comes_back(three):
    manager, workers = three

    created = submitted(manager.api, "train", gpus=1)

    assert created["spec"]["managedBy"] == MULTI_KUEUE
    chosen = eventually(lambda: cluster_of(manager.api, "train"), within=60, what="it is sent")
    assert "train" in eventually(lambda: jobs(workers[chosen]), what="it is there")
    eventually(lambda: ended(manager.api, "train"), within=60, what="it ended here, too")
    for worker in workers.values():
        eventually(lambda w=worker: not jobs(w), within=60, what="its copies are gone")
        eventually(
            lambda w=worker: not w.api.find("Workload", "team-a"), what="its workloads are gone"
        )
    assert not [p for p in manager.api.find("Pod", "team-a") if "train" in p["metadata"]["name"]]


def ended(api, name):
    return condition(api.get("Job", name, "team-a"), "Complete").get("status") == "True"


def test_a_worker_that_is_cut_off_midway_finishes_its_job_once_it_is_back(three):
    manager, workers = three
    submitted(manager.api, "long", gpus=1, run_for="600s")
    chosen = eventually(lambda: cluster_of(manager.api, "long"), within=60, what="it is sent")
    eventually(lambda: jobs(workers[chosen]), what="it is there")
    there = eventually(
        lambda: (
            (found := clusters.answer(manager, "why", "job/long"))["state"] == "Admitted" and found
        ),
        what="why knows that it runs",
    )
    assert (there["clusterQueue"], there["requests"][GPU]) == ("away", 1)
    assert clusters.answer(manager, "job", "long")["record"]["cluster"] == chosen

    secret = f"api/v1/namespaces/{NAMESPACE}/secrets/{chosen}"
    right = manager.api.call("GET", secret)["data"]
    unreachable = {"kubeconfig": elsewhere(right["kubeconfig"])}
    merge = {"content_type": "application/merge-patch+json"}
    manager.api.call("PATCH", secret, {"data": unreachable}, **merge)
    eventually(lambda: not is_active(manager.api, chosen), within=60, what="it is cut off")
    assert cluster_of(manager.api, "long") == chosen
    manager.api.call("PATCH", secret, {"data": right}, **merge)
    eventually(lambda: is_active(manager.api, chosen), within=60, what="it is back")
    manager.api.delete("Job", "long", "team-a")

    eventually(lambda: not jobs(workers[chosen]), within=60, what="it is deleted there, too")


def test_a_job_that_waits_for_quota_before_it_is_sent_gets_the_reason(three):
    manager, workers = three
    submitted(manager.api, "first", run_for="600s")
    chosen = eventually(lambda: cluster_of(manager.api, "first"), within=60, what="it is sent")
    submitted(manager.api, "second", run_for="600s")

    found = eventually(
        lambda: (found := clusters.answer(manager, "why", "job/second"))["missing"] and found,
        what="numbers",
    )
    (missing,) = found["missing"]
    assert (missing["resource"], missing["missing"], missing["available"]) == (GPU, 8, 0)
    assert [each["name"] for each in missing["holders"]] == ["team-a/first"]
    assert found["user"].startswith("wait until team-a/first (8) ends")
    for name in ("first", "second"):
        manager.api.delete("Job", name, "team-a")
    eventually(lambda: not jobs(workers[chosen]), within=60, what="the copy is gone")


def elsewhere(kubeconfig):
    """Return a kubeconfig that leads to where nothing answers."""
    config = json.loads(base64.b64decode(kubeconfig))
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    return base64.b64encode(json.dumps(config).encode()).decode()
