"""Running jobs and pods come under queues, and nothing restarts."""

import json
import subprocess

import pytest

from policyd.api.meta import OwnerReference
from policyd.jobs.workload import workload_name
from tests.scenarios import api as driver
from tests.scenarios import foreign
from tests.scenarios.api import Refused, condition, eventually
from tests.scenarios.clusters import COMMANDS
from tests.scenarios.objects import job, pod
from tests.scenarios.test_queue import admitted, waiting, workload_of

QUEUE, MANAGED = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/managed"
LEGACY, GATED = "legacy", "kueue.x-k8s.io/admission-gated-by"
KUEUE = "kueue.x-k8s.io/v1beta2"
RULES = """\
apiVersion: policyd.io/v1alpha1
kind: ImportRules
rules:
- name: scratch
  match: {condition: "object.metadata.name.startsWith('scratch')"}
  skip: true
- name: jobs
  match: {kinds: [Job, JobSet], namespaces: ["leg*"]}
  queue: batch
  priorityClass: production
- name: pods
  match: {kinds: [Pod], namespaces: [legacy]}
  queueLabel: project
  queues: {vision: batch}
"""


@pytest.fixture
def legacy(api):
    """A namespace with a queue, in which jobs have run since before there was one."""
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": LEGACY}})
    queue = {"apiVersion": KUEUE, "kind": "LocalQueue", "spec": {"clusterQueue": "team-a"}}
    api.create({**queue, "metadata": {"name": "batch", "namespace": LEGACY}})
    yield
    for kind in ("Job", "Pod", "Workload"):
        for item in api.find(kind, LEGACY):
            api.delete(kind, item["metadata"]["name"], LEGACY, missing_is_fine=True)
    for kind in ("Pod", "Workload"):
        eventually(lambda kind=kind: not api.find(kind, LEGACY), what=f"no {kind} is left")
    api.delete("LocalQueue", "batch", LEGACY)
    api.delete("Namespace", LEGACY)
    eventually(lambda: not api.exists("Namespace", LEGACY), what="the namespace is gone")


@pytest.fixture
def imports(cluster, tmp_path):
    """Run the command; return its exit code, and what it prints as JSON, by job."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)

    def imports(*words):
        given = ["import", "--rules", str(rules), "--kubeconfig", cluster.kubeconfig]
        command = [COMMANDS / "policyd", *given, "-n", LEGACY, "-o", "json", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        found = json.loads(done.stdout)
        return done.returncode, {each["name"]: each for each in found["jobs"]}, found

    return imports


def asking(spec, cpu):
    """Have pods ask for processors, which may be used without a queue, on the nodes there are."""
    spec["containers"][0]["resources"] = {"limits": {"cpu": str(cpu), "memory": "1Gi"}}
    spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]


def long(name, *, cpu, pods=1):
    made = job(name, LEGACY, gpus=0, pods=pods, run_for="900s")
    asking(made["spec"]["template"]["spec"], cpu)
    return made


def member(name, group="", **labels):
    annotations = {"policyd.io/run-for": "900s"}
    if group:
        labels = {**labels, "kueue.x-k8s.io/pod-group-name": group}
        annotations["kueue.x-k8s.io/pod-group-total-count"] = "2"
    made = pod(name, LEGACY, gpus=0, labels=labels, annotations=annotations)
    asking(made["spec"], 1)
    return made


def running(api):
    """The UIDs of the pods that run, by name: a pod that is restarted has another."""
    return {
        each["metadata"]["name"]: each["metadata"]["uid"]
        for each in api.find("Pod", LEGACY)
        if each["status"].get("phase") == "Running" and "deletionTimestamp" not in each["metadata"]
    }


def used(api):
    """The processors in use of the ClusterQueue, as it says itself."""
    for flavor in api.get("ClusterQueue", "team-a")["status"].get("flavorsUsage", ()):
        for resource in flavor["resources"]:
            if resource["name"] == "cpu":
                return int(resource["total"])
    return 0


def test_what_runs_comes_under_queues_without_a_restart(api, legacy, imports):
    for each in (long("train", cpu=10, pods=2), long("huge", cpu=80, pods=2)):
        api.create(each)
    for each in (
        member("notebook", project="vision"),
        member("scratch-1", project="vision"),
        member("ring-a", "ring", project="vision"),
        member("ring-b", "ring", project="vision"),
        member("other", project="none"),
    ):
        api.create(each)
    before = eventually(lambda: len(found := running(api)) == 9 and found, what="all pods run")
    with pytest.raises(Refused, match="policyd import"):
        api.patch("Job", "train", {"metadata": {"labels": {QUEUE: "batch"}}}, namespace=LEGACY)

    code, planned, trial = imports()
    untouched = api.find("Workload", LEGACY)
    done, imported, _ = imports("--apply")
    again, seen, second = imports("--apply")

    assert (code, untouched, trial["applied"]) == (1, [], False)
    assert {name: each["state"] for name, each in planned.items()} == {
        "train": "planned", "notebook": "planned", "ring": "planned",
        "huge": "left", "other": "left",
    }  # fmt: skip
    assert "it needs 160 cpu, and " in planned["huge"]["reason"]
    assert planned["other"]["reason"].startswith("LocalQueue `none` doesn't exist")
    assert {"reason": "skipped by a rule", "objects": 1} in trial["skipped"]
    assert done == again == 1
    assert {n for n, each in imported.items() if each["state"] == "imported"} == {
        "train", "notebook", "ring"
    }  # fmt: skip
    assert imported["train"]["flavors"] == ["h100"]
    assert imported["train"]["requests"]["cpu"] == "20"
    assert set(seen) == {"huge", "other"}
    assert {"reason": "in a queue already", "objects": 4} in second["skipped"]

    eventually(lambda: used(api) == 20 + 1 + 2, what="their quota is counted")
    assert running(api) == before
    assert api.get("Job", "train", LEGACY)["spec"].get("suspend") in {None, False}
    for name, priority in (("train", 1000), ("notebook", 0), ("ring", 0)):
        workload = workload_of(api, name, LEGACY)
        assert condition(workload, "Admitted")["reason"] == "Imported"
        assert workload["spec"]["priority"] == priority
        assert GATED not in workload["metadata"].get("annotations", {})


def test_what_was_imported_is_a_job_of_its_queue_like_any_other(api, legacy, imports):
    api.create(long("train", cpu=90))
    eventually(lambda: len(running(api)) == 1, what="its pod runs")
    assert imports("--apply")[0] == 0

    later = job("later", gpus=0, run_for="1s")
    asking(later["spec"]["template"]["spec"], 90)
    api.create(later)
    eventually(
        lambda: waiting(api, "later"),
        what="others wait for its quota",
    )
    uid = running(api)
    api.patch(
        "Workload",
        workload_of(api, "train", LEGACY)["metadata"]["name"],
        {"spec": {"active": False}},
        namespace=LEGACY,
    )

    eventually(lambda: api.get("Job", "train", LEGACY)["spec"]["suspend"], what="it is stopped")
    eventually(
        lambda: admitted(api, "later"),
        what="its quota goes to others",
    )
    assert len(uid) == 1


def test_an_import_that_was_stopped_midway_continues(api, legacy, imports):
    api.create(long("train", cpu=2))
    before = eventually(lambda: running(api), what="its pod runs")
    assert imports("--apply")[0] == 0
    api.delete("Job", "train", LEGACY)
    eventually(lambda: not api.find("Workload", LEGACY), what="it is gone, with its quota")

    # As it is left between the two writes: a Workload that waits for its quota, and no label.
    api.create(long("train", cpu=2))
    before = eventually(lambda: set(now := running(api)) - set(before) and now, what="its pod runs")
    owner = api.get("Job", "train", LEGACY)
    template = owner["spec"]["template"]
    uid = owner["metadata"]["uid"]
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "controller": True}
    made = workload_name(OwnerReference("batch/v1", "Job", "train", uid))
    workload = {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {
            "name": made,
            "namespace": LEGACY,
            "annotations": {GATED: "policyd.io/import"},
            "ownerReferences": [{**reference, "uid": uid}],
        },
        "spec": {
            "queueName": "batch",
            "podSets": [{"name": "main", "count": 1, "template": {"spec": template["spec"]}}],
        },
    }
    api.create(workload)
    code, found, _ = imports("--apply")

    assert (code, found["train"]["state"]) == (0, "imported")
    assert running(api) == before
    assert [each["metadata"]["name"] for each in api.find("Workload", LEGACY)] == [made]
    eventually(lambda: used(api) == 2, what="its quota is counted once")


def test_a_job_set_comes_under_a_queue_while_it_runs(api, legacy, imports):
    driver.PATHS["JobSet"] = foreign.paths()["JobSet"]
    definition = foreign.definition("JobSet")
    if not api.exists("CustomResourceDefinition", definition["metadata"]["name"]):
        api.create(definition)
    eventually(lambda: foreign.served(api, "JobSet"), what="JobSets are served")
    template = long("", cpu=3)["spec"]["template"]
    spec = {"parallelism": 1, "completions": 1, "template": template}
    roles = [{"name": "workers", "replicas": 2, "template": {"spec": spec}}]
    made = foreign.foreign("JobSet", "workers", {"replicatedJobs": roles})
    made["metadata"] |= {"namespace": LEGACY, "labels": {}}
    made = api.create(made)
    try:
        foreign.operate(api, made)
        before = eventually(lambda: len(found := running(api)) == 2 and found, what="pods run")

        code, found, _ = imports("--apply")

        assert (code, found["workers"]["state"]) == (0, "imported"), found
        eventually(lambda: used(api) == 6, what="its quota is counted")
        assert running(api) == before
        stored = api.get("JobSet", "workers", LEGACY)
        assert not stored["spec"].get("suspend")
        assert stored["metadata"]["labels"][QUEUE] == "batch"
    finally:
        api.delete("JobSet", "workers", LEGACY)


def test_the_label_of_a_queue_gives_no_quota_to_a_running_job(api, legacy):
    """A user that owns a Workload, but may not write its status, stays outside."""
    api.create(long("mine", cpu=8))
    eventually(lambda: running(api), what="its pod runs")
    uid = api.get("Job", "mine", LEGACY)["metadata"]["uid"]
    patch = {"metadata": {"labels": {QUEUE: "batch"}}}
    labels = {"kueue.x-k8s.io/job-uid": uid}
    template = api.get("Job", "mine", LEGACY)["spec"]["template"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "mine", "uid": uid}
    forged = {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": "forged", "namespace": LEGACY, "labels": labels,
                     "ownerReferences": [{**owner, "controller": True}]},
        "spec": {"queueName": "none", "podSets": [
            {"name": "main", "count": 1, "template": {"spec": template["spec"]}}]},
        "status": {"conditions": [{"type": "QuotaReserved", "status": "True", "reason": "Forged",
                                   "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }  # fmt: skip
    api.create(forged)

    with pytest.raises(Refused, match="field is immutable while the job runs"):
        api.patch("Job", "mine", patch, namespace=LEGACY)

    assert len(running(api)) == 1
