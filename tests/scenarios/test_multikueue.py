"""Jobs on other clusters: a manager and two workers, each a real API server with policyd in it."""

import base64
import threading
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product

import pytest
import yaml

from policyd.api.kueue.names import MULTI_KUEUE
from policyd.multikueue.settings import ORIGIN
from tests.charts.release import NAMESPACE
from tests.scenarios import api as driver
from tests.scenarios import clusters, foreign
from tests.scenarios.api import authority, condition, eventually
from tests.scenarios.objects import job, pod
from tests.scenarios.test_parents import Maker, leader_worker_set, stateful_set
from tests.scenarios.workers import (
    EXEC,
    by_secret,
    carried,
    is_active,
    make,
    manager_and_workers,
    packed,
)

pytestmark = pytest.mark.e2e

QUEUE, GPU = "kueue.x-k8s.io/queue-name", "nvidia.com/gpu"


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """A manager whose queue sends its jobs away, and the workers."""
    with manager_and_workers(tmp_path_factory.mktemp, ("exec", *ANSWERS)) as running:
        yield running


def submitted(api, name, **how):
    body = job(name, **how)
    body["metadata"]["labels"] = {QUEUE: "away"}
    return api.create(body)


def cluster_of(api, name):
    """Return the worker that a job was sent to; empty before."""
    return next(iter(clusters_of(api, name)), "")


def clusters_of(api, name):
    """Return the workers that the workloads of a job were sent to; empty for one that was not."""
    return [
        workload.get("status", {}).get("clusterName", "")
        for workload in api.find("Workload", "team-a")
        if any(o["name"] == name for o in workload["metadata"].get("ownerReferences", ()))
    ]


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

    right = carried(workers[chosen].kubeconfig)
    point(manager.api, chosen, elsewhere(right))
    eventually(lambda: not is_active(manager.api, chosen), within=60, what="it is cut off")
    assert cluster_of(manager.api, "long") == chosen
    point(manager.api, chosen, right)
    eventually(lambda: is_active(manager.api, chosen), within=60, what="it is back")
    manager.api.delete("Job", "long", "team-a")

    eventually(lambda: not jobs(workers[chosen]), within=60, what="it is deleted there, too")


def test_a_job_whose_worker_stays_away_moves_and_its_first_copy_goes_once_that_is_back(three):
    manager, workers = three
    submitted(manager.api, "moved", gpus=1, run_for="600s")
    chosen = eventually(lambda: cluster_of(manager.api, "moved"), within=60, what="it is sent")
    (other,) = workers.keys() - {chosen}
    eventually(lambda: jobs(workers[chosen]), what="it is there")

    right = carried(workers[chosen].kubeconfig)
    point(manager.api, chosen, elsewhere(right))
    eventually(lambda: jobs(workers[other]), within=90, what="it is on the other worker")
    eventually(lambda: cluster_of(manager.api, "moved") == other, what="it runs there")
    assert jobs(workers[chosen]) == ["moved"]
    point(manager.api, chosen, right)

    eventually(lambda: not jobs(workers[chosen]), within=60, what="the first copy is gone")
    eventually(lambda: not workers[chosen].api.find("Workload", "team-a"), what="and its workload")
    assert jobs(workers[other]) == ["moved"]
    manager.api.delete("Job", "moved", "team-a")
    nothing_is_left(three, "Job")


def point(api, worker, kubeconfig):
    """Replace the kubeconfig that leads to a worker."""
    secret = f"api/v1/namespaces/{NAMESPACE}/secrets/{worker}"
    api.call("PATCH", secret, {"data": {"kubeconfig": packed(kubeconfig)}}, **MERGE)


def elsewhere(kubeconfig):
    """Return a kubeconfig that leads to where nothing answers."""
    (cluster,) = kubeconfig["clusters"]
    nowhere = {**cluster["cluster"], "server": "https://127.0.0.1:1"}
    return {**kubeconfig, "clusters": [{**cluster, "cluster": nowhere}]}


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


LASTING = {"policyd.io/run-for": "600s"}
MERGE = {"content_type": "application/merge-patch+json"}


def test_pods_and_groups_run_on_a_worker_and_their_status_comes_back(three):
    manager, _ = three
    group = {QUEUE: "away", "kueue.x-k8s.io/pod-group-name": "ring"}
    counted = {"kueue.x-k8s.io/pod-group-total-count": "2", **LASTING}
    manager.api.create(pod("solo", labels={QUEUE: "away"}, annotations=LASTING))
    for name in ("ring-a", "ring-b"):
        manager.api.create(pod(name, labels=group, annotations=counted))

    for names in (("solo",), ("ring-a", "ring-b")):
        there = sent_to(three, "Pod", names[0])
        for api, name in product((there, manager.api), names):
            eventually(partial(runs, api, name), within=60, what=f"{name} runs")
            assert gated(api, name) is (api is manager.api)

    for name in ("solo", "ring-a", "ring-b"):
        manager.api.delete("Pod", name, "team-a")
    nothing_is_left(three, "Pod")


@pytest.mark.parametrize(
    ("kind", "spec", "field", "value"),
    [
        pytest.param("JobSet", foreign.job_set(2), "restarts", 3, id="job-set"),
        pytest.param("AppWrapper", foreign.app_wrapper(2), "phase", "Running", id="app-wrapper"),
    ],
)
def test_a_job_of_an_operator_gets_the_status_that_it_has_there(three, kind, spec, field, value):
    manager, _ = three
    serve_kind(three, kind)
    item = foreign.foreign(kind, "operated", spec)
    item["metadata"]["labels"] = {QUEUE: "away"}
    manager.api.create(item)
    there = sent_to(three, kind, "operated")

    path = f"{driver.PATHS[kind].format(namespace='team-a')}/operated/status"
    there.call("PATCH", path, {"status": {field: value}}, **MERGE)

    def status():
        return manager.api.get(kind, "operated", "team-a").get("status", {}).get(field)

    eventually(lambda: status() == value, within=60, what="the status comes back")
    manager.api.delete(kind, "operated", "team-a")
    nothing_is_left(three, kind)


@pytest.mark.parametrize(
    ("parent", "names"),
    [
        pytest.param(stateful_set(), ["serve-0", "serve-1"], id="stateful-set"),
        pytest.param(
            leader_worker_set(),
            ["serve-0", "serve-0-1", "serve-1", "serve-1-1"],
            id="leader-worker-set",
        ),
    ],
)
def test_pods_of_a_parent_run_on_one_worker_and_stay_gated_here(three, parent, names):
    manager, _ = three
    kind = parent["kind"]
    if kind == "LeaderWorkerSet":
        serve_kind(three, kind)
    metadata = {"name": "serve", "namespace": "team-a", "labels": {QUEUE: "away"}}
    here = Maker(manager.api, embedded=False)
    here.make(manager.api.create({**parent, "metadata": metadata}))

    there = Maker(sent_to(three, kind, "serve"), embedded=False)
    there.make(there.api.get(kind, "serve", "team-a"))

    for name in names:
        eventually(partial(runs, there.api, name), within=60, what=f"{name} runs there")
        assert gated(manager.api, name)
    # A worker may run the pods before the manager has looked at what it reports of all groups.
    eventually(
        lambda: len(set(clusters_of(manager.api, "serve"))) == 1,
        within=60,
        what="all are on one worker",
    )
    manager.api.delete(kind, "serve", "team-a")
    here.clear()
    eventually(
        lambda: not there.api.exists(kind, "serve", "team-a"), within=90, what="it is gone there"
    )
    there.clear()
    nothing_is_left(three, kind)


def sent_to(three, kind, name):
    """Return the API of the worker that a job was sent to, and is on."""
    manager, workers = three
    chosen = eventually(partial(cluster_of, manager.api, name), within=60, what="it is sent")
    eventually(partial(workers[chosen].api.exists, kind, name, "team-a"), what="it is there")
    return workers[chosen].api


def nothing_is_left(three, kind):
    _, workers = three
    for worker, each in product(workers.values(), (kind, "Pod", "Workload")):
        left = partial(worker.api.find, each, "team-a")
        eventually(lambda left=left: not left(), within=90, what=f"no {each} is left")


def serve_kind(three, kind):
    """Have all clusters serve a kind whose operator is the test."""
    manager, workers = three
    driver.PATHS[kind] = foreign.paths()[kind]
    for cluster in (manager, *workers.values()):
        cluster.api.create(foreign.definition(kind))
    for cluster in (manager, *workers.values()):
        eventually(partial(foreign.served, cluster.api, kind), what=f"{kind} is served")


def runs(api, name):
    """Tell whether a pod runs."""
    if not api.exists("Pod", name, "team-a"):
        return False
    return api.get("Pod", name, "team-a").get("status", {}).get("phase") == "Running"


def gated(api, name):
    return bool(api.get("Pod", name, "team-a")["spec"].get("schedulingGates"))


def test_a_job_that_others_made_on_both_workers_is_left_alone(three):
    manager, workers = three
    uids = {}
    for name, worker in workers.items():
        body = job("twin", gpus=1, run_for="600s")
        body["metadata"]["labels"] = {QUEUE: "away"}
        uids[name] = worker.api.create(body)["metadata"]["uid"]
    submitted(manager.api, "twin", gpus=1)
    eventually(lambda: any(copies(w.api) for w in workers.values()), within=60, what="a copy")

    manager.api.delete("Job", "twin", "team-a")

    for name, worker in workers.items():
        eventually(lambda w=worker: not copies(w.api), within=60, what="the copy is gone")
        assert worker.api.get("Job", "twin", "team-a")["metadata"]["uid"] == uids[name]
        worker.api.delete("Job", "twin", "team-a")


def copies(api):
    """Return the workloads that the manager made."""
    found = [w for w in api.find("Workload", "team-a") if "twin" in w["metadata"]["name"]]
    return [each for each in found if ORIGIN in each["metadata"].get("labels", {})]


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
    "moved": (302, b"", "text/plain"),
    "long": (200, b" " * 40_000_000 + b'{"items": []}', "application/json"),
}


@contextmanager
def answering():
    """A server that answers every request wrongly, in the way that the path begins with."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            code, body, kind = ANSWERS[self.path.split("/")[1]]
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Location", "/garbage")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(ConnectionError):  # who does not read it all hangs up
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
    config = carried(workers["east"].kubeconfig)
    (user,), (cluster,) = config["users"], config["clusters"]
    with answering() as server:
        by_secret(manager.api, "exec", {**config, "users": [{**user, "user": {"exec": exec_of}}]})
        for name in ANSWERS:
            wrong = {**cluster, "cluster": {"server": f"{server}/{name}"}}
            by_secret(manager.api, name, {**config, "clusters": [wrong]})

        for name in ("exec", *ANSWERS):
            why = "InsecureKubeConfig" if name == "exec" else "ClientConnectionFailed"
            eventually(lambda n=name, w=why: reason(manager.api, n) == w, within=60, what=name)
        assert not stolen.exists()
        submitted(manager.api, "still", gpus=1)
        eventually(lambda: ended(manager.api, "still"), within=90, what="jobs still run")
    for name in ("exec", *ANSWERS):
        manager.api.delete("MultiKueueCluster", name)


def reason(api, name):
    return condition(api.get("MultiKueueCluster", name), "Active").get("reason")
