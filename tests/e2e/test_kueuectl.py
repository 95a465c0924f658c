"""Kueue's own client, unmodified, on both clusters.

It is built from Kueue's Go module when this test is run for the first time: `tests/controlplane`
says how. Where that module cannot be had, the suite is skipped. Its requests and the objects that
it reads are those of Kueue, whatever answers them.
"""

import json
import os
import subprocess

import pytest

from tests.controlplane import programs
from tests.scenarios.api import condition, eventually
from tests.scenarios.clusters import embedded, real
from tests.scenarios.conftest import clear
from tests.scenarios.objects import job
from tests.scenarios.test_queue import admitted, waiting, workload_of

pytestmark = pytest.mark.e2e

GPU = "nvidia.com/gpu"


@pytest.fixture(scope="module", params=[real, embedded])
def cluster(request, tmp_path_factory):
    with request.param(tmp_path_factory.mktemp("kueuectl")) as running:
        yield running


@pytest.fixture
def api(cluster):
    yield cluster.api
    clear(cluster.api)


@pytest.fixture(scope="module")
def kueuectl(cluster):
    """Run kueuectl; return what it prints. The commands that it passes on, kubectl carries out."""
    try:
        program = programs.build_kueuectl()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"kueuectl cannot be built here: {error}")
    path = os.pathsep.join([str(programs.find_binaries()), os.environ["PATH"]])
    environment = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "PATH": path}

    def kueuectl(*words):
        done = subprocess.run(
            [program, *words], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return kueuectl


def rows(printed):
    """The rows of a table as words, the first the names of the columns."""
    return [line.split() for line in printed.splitlines()]


def test_its_version_is_printed_and_no_manager_of_kueue_is_needed(kueuectl):
    assert kueuectl("version") == f"Client Version: v{programs.KUEUE}\n"


def test_it_makes_a_flavor_and_queues_that_a_job_runs_in(api, kueuectl):
    made = [
        kueuectl("create", "resourceflavor", "spot", "--node-labels", "kubernetes.io/os=linux",
                 "--node-taints", "spot=true:NoSchedule",
                 "--tolerations", f"spot=true:NoSchedule,{GPU}:NoSchedule"),
        kueuectl("create", "clusterqueue", "spare", "--cohort", "research",
                 "--queuing-strategy", "StrictFIFO", "--reclaim-within-cohort", "Any",
                 "--preemption-within-cluster-queue", "LowerPriority",
                 "--nominal-quota", f"spot:{GPU}=8;cpu=64;memory=512Gi",
                 "--borrowing-limit", f"spot:{GPU}=2;cpu=8;memory=1Gi",
                 "--lending-limit", f"spot:{GPU}=4;cpu=8;memory=1Gi"),
        kueuectl("create", "localqueue", "spare", "-c", "spare", "-n", "team-a"),
    ]  # fmt: skip
    try:
        queue = api.get("ClusterQueue", "spare")
        spec, (group,) = queue["spec"], queue["spec"]["resourceGroups"]
        eventually(
            lambda: condition(api.get("ClusterQueue", "spare"), "Active").get("status") == "True",
            what="the queue is active",
        )
        api.create(in_queue(job("spare", gpus=1, run_for="1s"), "spare"))
        eventually(lambda: admitted(api, "spare"), what="its job is admitted")
        listed = [
            rows(kueuectl("list", kind, *more))
            for kind, *more in (
                ("clusterqueue",), ("localqueue", "-n", "team-a"), ("resourceflavor",)
            )
        ]  # fmt: skip
    finally:
        clear(api)
        for kind, *more in (
            ("localqueue", "-n", "team-a"), ("clusterqueue",), ("resourceflavor",)
        ):  # fmt: skip
            name = "spot" if kind == "resourceflavor" else "spare"
            kueuectl("delete", kind, name, *more)

    assert [line.split()[-1] for line in made] == ["created"] * 3
    assert spec["cohortName"] == "research"
    assert (spec["queueingStrategy"], spec["preemption"]["reclaimWithinCohort"]) == (
        "StrictFIFO", "Any"
    )  # fmt: skip
    quota = group["flavors"][0]["resources"][group["coveredResources"].index(GPU)]
    assert quota == {
        "name": GPU, "nominalQuota": "8", "borrowingLimit": "2", "lendingLimit": "4"
    }  # fmt: skip
    queues, locals_, flavors = listed
    assert queues[0][:2] == ["NAME", "COHORT"]
    assert ["spare", "research"] in [row[:2] for row in queues]
    assert ["spare", "spare"] in [row[:2] for row in locals_]
    assert "spot" in [row[0] for row in flavors]


def in_queue(item, name):
    item["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": name}
    return item


def test_it_creates_nothing_with_a_dry_run_of_the_server(api, kueuectl):
    kueuectl("create", "clusterqueue", "never", "--dry-run", "server")
    kueuectl("create", "resourceflavor", "never", "--dry-run", "server")

    assert not api.exists("ClusterQueue", "never")
    assert not api.exists("ResourceFlavor", "never")


def test_it_lists_workloads_with_their_state_and_position_and_the_pods_of_a_job(api, kueuectl):
    api.create(job("first", pods=2, run_for="120s"))
    eventually(lambda: admitted(api, "first"), what="it runs")
    for name in ("second", "third"):
        api.create(job(name, run_for="1s"))
        eventually(lambda name=name: waiting(api, name), what=f"{name} waits")

    printed = eventually(
        lambda: (
            (found := kueuectl("list", "workload", "-n", "team-a")).count("PENDING") == 2 and found
        ),
        what="they are listed",
    )
    of_job = rows(kueuectl("list", "workload", "-n", "team-a", "--for", "job/first"))
    pending = rows(kueuectl("list", "workload", "-n", "team-a", "--status", "pending"))
    pods = rows(kueuectl("list", "pods", "-n", "team-a", "--for", "job/first"))

    known = {row[2]: row for row in rows(printed)[1:]}
    assert known["first"][1:6] == ["job", "first", "team-a", "team-a", "ADMITTED"]
    assert {known[name][6] for name in ("second", "third")} == {"0", "1"}
    assert known["second"][3:6] == ["team-a", "team-a", "PENDING"]
    assert [row[2] for row in of_job[1:]] == ["first"]
    assert {row[2] for row in pending[1:]} == {"second", "third"}
    assert len(pods) == 3
    assert all(row[0].startswith("first-") for row in pods[1:])


def test_it_stops_and_resumes_queues(api, kueuectl):
    api.create(job("runs", run_for="120s"))
    eventually(lambda: admitted(api, "runs"), what="it runs")

    kueuectl("stop", "clusterqueue", "team-a", "--keep-already-running")
    held = api.get("ClusterQueue", "team-a")["spec"]["stopPolicy"]
    eventually(
        lambda: condition(api.get("ClusterQueue", "team-a"), "Active").get("reason") == "Stopped",
        what="it is stopped",
    )
    runs_on = admitted(api, "runs")
    kueuectl("stop", "clusterqueue", "team-a")
    eventually(lambda: waiting(api, "runs"), what="it is evicted")
    kueuectl("resume", "clusterqueue", "team-a")
    eventually(lambda: admitted(api, "runs"), what="it runs again")
    kueuectl("stop", "localqueue", "team-a", "-n", "team-a")
    eventually(lambda: waiting(api, "runs"), what="it is evicted by its LocalQueue")
    kueuectl("resume", "localqueue", "team-a", "-n", "team-a")
    eventually(lambda: admitted(api, "runs"), what="it runs once more")

    assert held == "Hold"
    assert runs_on


def test_it_stops_resumes_and_deletes_a_workload_with_its_job(api, kueuectl):
    api.create(job("train", run_for="120s"))
    eventually(lambda: admitted(api, "train"), what="it runs")
    name = workload_of(api, "train")["metadata"]["name"]

    kueuectl("stop", "workload", name, "-n", "team-a")
    eventually(lambda: api.get("Job", "train", "team-a")["spec"]["suspend"], what="it is suspended")
    kueuectl("resume", "workload", name, "-n", "team-a")
    eventually(lambda: admitted(api, "train"), what="it runs again")
    kueuectl("delete", "workload", name, "-n", "team-a", "--yes")
    eventually(lambda: not api.exists("Job", "train", "team-a"), what="the job is gone")
    eventually(lambda: not workload_of(api, "train"), what="the workload is gone")


def test_what_it_passes_on_to_kubectl_is_answered(api, kueuectl):
    api.create(job("shown", run_for="120s"))
    eventually(lambda: admitted(api, "shown"), what="it runs")
    name = workload_of(api, "shown")["metadata"]["name"]

    found = eventually(
        lambda: (
            (got := json.loads(kueuectl("get", "clusterqueue", "team-a", "-o", "json")))
            and got["status"]["admittedWorkloads"] == 1
            and got
        ),
        what="the status of its queue is written",
    )
    described = kueuectl("describe", "workload", name, "-n", "team-a")
    patch = json.dumps({"metadata": {"labels": {"by": "kueuectl"}}})
    kueuectl("patch", "localqueue", "team-a", "-n", "team-a", "--type", "merge", "-p", patch)
    short = [kueuectl("get", word, "-A") for word in ("kwl", "cq", "lq", "rf")]

    assert found["metadata"]["name"] == "team-a"
    assert f"Name:         {name}" in described
    assert "Quota reserved in ClusterQueue team-a" in described
    assert api.get("LocalQueue", "team-a", "team-a")["metadata"]["labels"]["by"] == "kueuectl"
    assert all(len(rows(each)) > 1 for each in short)
