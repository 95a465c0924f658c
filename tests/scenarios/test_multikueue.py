"""Jobs on other clusters: a manager and two workers, each a real API server with policyd in it."""

import base64
import json
import sys
import threading
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from policyd.api.kueue.names import MULTI_KUEUE
from tests.charts.release import NAMESPACE
from tests.scenarios import clusters, foreign
from tests.scenarios.api import authority, condition, eventually
from tests.scenarios.objects import job

pytestmark = pytest.mark.e2e

KUEUE = "kueue.x-k8s.io/v1beta2"
NAMES = ("east", "west")
QUEUE, GPU = "kueue.x-k8s.io/queue-name", "nvidia.com/gpu"
EXEC = "client.authentication.k8s.io/v1"


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
        both = ["--config", str(configuration(folder, workers["west"].kubeconfig))]
        manager = stack.enter_context(clusters.real(folder, values=values, both=both))
        connect(manager.api, workers)
        yield manager, workers


def configuration(folder, kubeconfig):
    """Write a Configuration whose program answers with the token of a worker, if it is asked so."""
    token = yaml.safe_load(kubeconfig.read_text())["users"][0]["user"]["token"]
    answer = {"apiVersion": EXEC, "kind": "ExecCredential", "status": {"token": token}}
    program = folder / "credentials"
    program.write_text(
        f"#!{sys.executable} -I\nimport json, os\n"
        "asked = json.loads(os.environ['KUBERNETES_EXEC_INFO'])\n"
        "assert asked['spec']['cluster']['config'] == {'account': 'manager'}\n"
        f"print({json.dumps(json.dumps(answer))})\n"
    )
    program.chmod(0o700)
    run = {
        "apiVersion": EXEC,
        "command": str(program),
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    file = folder / "configuration.yaml"
    given = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "featureGates": {"MultiKueueClusterProfile": True},
        "multiKueue": {
            "clusterProfile": {"accessProviders": [{"name": "test", "execConfig": run}]}
        },
    }
    file.write_text(yaml.safe_dump(given))
    return file


def connect(api, workers):
    for name, worker in workers.items():
        by_secret(api, name, encoded(worker.kubeconfig))
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


def by_secret(api, name, kubeconfig):
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "data": {"kubeconfig": kubeconfig},
    }
    api.call("POST", f"api/v1/namespaces/{NAMESPACE}/secrets", secret)
    source = {"kubeConfig": {"location": name, "locationType": "Secret"}}
    make(api, "MultiKueueCluster", name, {"clusterSource": source})


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


MERGE = {"content_type": "application/merge-patch+json"}


def test_a_cluster_profile_leads_to_a_worker_by_a_program_of_the_configuration(three):
    manager, workers = three
    manager.api.create(foreign.anything("multicluster.x-k8s.io", "v1alpha1", "ClusterProfile"))
    cluster = yaml.safe_load(workers["west"].kubeconfig.read_text())["clusters"][0]["cluster"]
    pem = base64.b64encode(authority(cluster).encode()).decode()
    passed = {"name": "client.authentication.k8s.io/exec", "extension": {"account": "manager"}}
    found = {
        "server": cluster["server"],
        "certificate-authority-data": pem,
        "extensions": [passed],
    }
    source = {"clusterProfileRef": {"name": "west"}}
    make(manager.api, "MultiKueueCluster", "by-profile", {"clusterSource": source})
    profiles = f"apis/multicluster.x-k8s.io/v1alpha1/namespaces/{NAMESPACE}/clusterprofiles"
    body = {
        "apiVersion": "multicluster.x-k8s.io/v1alpha1",
        "kind": "ClusterProfile",
        "metadata": {"name": "west"},
        "spec": {},
    }
    eventually(lambda: clusters.found(manager.api, profiles), what="profiles are served")
    manager.api.call("POST", profiles, body)
    status = {"status": {"accessProviders": [{"name": "test", "cluster": found}]}}
    manager.api.call("PATCH", f"{profiles}/west/status", status, **MERGE)

    eventually(lambda: is_active(manager.api, "by-profile"), within=90, what="it is connected")


ANSWERS = {
    "garbage": (200, b"\x00{]", "text/plain"),
    "failing": (500, b'{"kind": "Status", "message": "etcd is gone"}', "application/json"),
    "older": (404, b"404 page not found", "text/plain"),
    "forbidden": (403, b"<html>no</html>", "text/html"),
}


@contextmanager
def answering():
    """A server that answers every request wrongly, in the way that the path begins with."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            code, body, kind = ANSWERS[self.path.split("/")[1]]
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_workers_that_answer_wrongly_or_have_programs_are_refused_and_others_go_on(three, tmp_path):
    manager, workers = three
    stolen = tmp_path / "stolen"
    exec_of = {"apiVersion": EXEC, "command": "/bin/touch", "args": [str(stolen)]}
    right = json.loads(base64.b64decode(encoded(workers["east"].kubeconfig)))
    right["users"][0]["user"] = {"exec": exec_of}
    with answering() as server:
        by_secret(manager.api, "exec", packed(right))
        for name in ANSWERS:
            wrong = json.loads(base64.b64decode(encoded(workers["east"].kubeconfig)))
            wrong["clusters"][0]["cluster"] = {"server": f"{server}/{name}"}
            by_secret(manager.api, name, packed(wrong))

        for name in ("exec", *ANSWERS):
            why = "InsecureKubeConfig" if name == "exec" else "ClientConnectionFailed"
            eventually(lambda n=name, w=why: reason(manager.api, n) == w, within=60, what=name)
        assert not stolen.exists()
        submitted(manager.api, "still", gpus=1)
        eventually(lambda: ended(manager.api, "still"), within=90, what="jobs still run")
    for name in ("exec", *ANSWERS):
        manager.api.delete("MultiKueueCluster", name)


def packed(kubeconfig):
    return base64.b64encode(json.dumps(kubeconfig).encode()).decode()


def reason(api, name):
    return condition(api.get("MultiKueueCluster", name), "Active").get("reason")
