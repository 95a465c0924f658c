"""What an import writes into a cluster in memory: over quota, interrupted, and of JobSets."""

import asyncio
import json
import os
import signal
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from policyd.api.kueue.names import ADMISSION_GATED_BY, QUEUE_NAME
from policyd.api.pod_requests import amount
from policyd.cli import main
from policyd.cli.importing import command
from policyd.controller.watch.mirrors import job_resource
from policyd.jobs.kinds.registry import KINDS
from policyd.kube import resources as r
from policyd.questions.snapshots import OF_CLUSTER
from policyd.snapshot.values import API_VERSION, FORMAT, NAME
from policyd.testing import FakeClient

JOB_SETS = next(job_resource(kind) for kind in KINDS if kind.kind == "JobSet")
SET_NAME = "jobset.sigs.k8s.io/jobset-name"
ROLE_NAME = "jobset.sigs.k8s.io/replicatedjob-name"
GROUP_NAME, GROUP_SIZE = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"


class Signalled(FakeClient):
    """A cluster in memory: the process gets signals at a read, or after a number of writes."""

    reading = ""
    writes_before = 10**6
    signals = 0

    async def page(self, resource, **options):
        if resource.plural == self.reading:
            await self._signal()
        return await super().page(resource, **options)

    async def create(self, *given, **options):
        return await self._counted(super().create(*given, **options))

    async def patch(self, *given, **options):
        return await self._counted(super().patch(*given, **options))

    async def _counted(self, work):
        if self.writes_before == 0:
            work.close()
            await self._signal()
            raise AssertionError("no process goes on after a second signal")
        self.writes_before -= 1
        found = await work
        if self.writes_before == 0 and self.signals == 1:
            self.writes_before = 10**6
            await self._signal()
        return found

    async def _signal(self):
        for _ in range(self.signals):
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(0.05)


def containers(cpu):
    return [{"name": "main", "image": "a", "resources": {"requests": {"cpu": str(cpu)}}}]


class Cluster:
    """A cluster with a queue of two flavors, for whose nodes they are, and the command."""

    def __init__(self, monkeypatch, quota=8, cohort=0):
        self.client = Signalled()
        monkeypatch.setattr(command, "connection_for", lambda _: SimpleNamespace())
        monkeypatch.setattr(command, "HttpClient", lambda _: nullcontext(self.client))
        self.put(r.NAMESPACES, "ns")
        flavors = []
        for name in ("fast", "slow"):
            self.put(r.NODES, f"{name}-1", labels={"kind": name})
            self.put(r.RESOURCE_FLAVORS, name, {"nodeLabels": {"kind": name}})
            cpu = {"name": "cpu", "nominalQuota": quota}
            flavors.append({"name": name, "resources": [cpu]})
        for name, nominal in (("q", quota), ("lender", cohort)) if cohort else (("q", quota),):
            given = [
                {**each, "resources": [{"name": "cpu", "nominalQuota": nominal}]}
                for each in flavors
            ]
            spec = {
                "namespaceSelector": {},
                "resourceGroups": [{"coveredResources": ["cpu"], "flavors": given}],
            }
            self.put(r.CLUSTER_QUEUES, name, {**spec, "cohortName": "c"} if cohort else spec)
        self.put(r.LOCAL_QUEUES, "lq", {"clusterQueue": "q"})

    def put(self, resource, name, spec=None, **metadata):
        namespace = {"namespace": "ns"} if resource.namespaced else {}
        metadata = {"uid": f"{resource.plural}-{name}", "name": name, **namespace, **metadata}
        self.client.store.put(resource, {"metadata": metadata, "spec": spec or {}, "status": {}})

    def pod(self, name, node="fast-1", *, cpu=1, owner=None, labels=None, **metadata):
        spec = {"containers": containers(cpu), "nodeName": node}
        owners = [] if owner is None else [{**owner, "controller": True}]
        labels = {"team": "lq", **(labels or {})}
        self.put(r.PODS, name, spec, labels=labels, ownerReferences=owners, **metadata)

    def job(self, name, *, cpu, node="fast-1", priority="", **pod):
        pod = {"containers": containers(cpu), "priorityClassName": priority, **pod}
        template = {"spec": pod}
        spec = {"parallelism": 1, "completions": 1, "template": template}
        self.put(r.JOBS, name, spec, labels={"team": "lq"})
        self.pod(f"{name}-0", node, owner=_owner("batch/v1", "Job", name, f"jobs-{name}"))

    def group(self, name, *, b="fast-1", cpu=1):
        """Add a group of two pods: the second on a node, with processors, that may be others."""
        about = {"labels": {GROUP_NAME: name}, "annotations": {GROUP_SIZE: "2"}}
        self.pod(f"{name}-a", **about)
        self.pod(f"{name}-b", b, cpu=cpu, **about)

    def job_set(self, name, **roles):
        """Add a JobSet with a Job of a pod for each role, on the node that is given."""
        replicated = []
        owner = _owner("jobset.x-k8s.io/v1alpha2", "JobSet", name, f"jobsets-{name}")
        for role, node in roles.items():
            template = {"spec": {"containers": containers(2)}}
            spec = {"parallelism": 1, "completions": 1, "template": template}
            replicated.append({"name": role, "replicas": 1, "template": {"spec": spec}})
            made = f"{name}-{role}-0"
            labels = {SET_NAME: name, ROLE_NAME: role}
            owners = [{**owner, "controller": True}]
            self.put(r.JOBS, made, spec, labels=labels, ownerReferences=owners)
            of = _owner("batch/v1", "Job", made, f"jobs-{made}")
            self.pod(f"{made}-0", node, cpu=2, owner=of, labels=labels)
        self.put(JOB_SETS, name, {"replicatedJobs": replicated}, labels={"team": "lq"})

    def run(self, *words):
        """Return the exit code, and what became of each job."""
        result = CliRunner().invoke(
            main, ["import", "--queue-label", "team", "-o", "json", *words], catch_exceptions=False
        )
        if not result.stdout:
            return result.exit_code, {}
        found = json.loads(result.stdout)
        return result.exit_code, {each["name"]: each for each in found["jobs"]}

    def stop(self, *, signals, writes=10**6, reading=""):
        self.client.signals, self.client.writes_before = signals, writes
        self.client.reading = reading

    def stored(self, resource):
        return self.client.store.select(resource, {})

    def labelled(self, resource):
        found = self.stored(resource)
        return {
            each["metadata"]["name"]
            for each in found
            if QUEUE_NAME in (each["metadata"].get("labels") or {})
        }

    def charged(self):
        """The processors that Workloads have quota for, by flavor; each has it once."""
        found = Counter()
        for workload in self.stored(r.WORKLOADS):
            assert ADMISSION_GATED_BY not in (workload["metadata"].get("annotations") or {})
            for each in workload["status"]["admission"]["podSetAssignments"]:
                cpu = amount("cpu", each["resourceUsage"]["cpu"]) // 1000
                found[each["flavors"]["cpu"]] += cpu
        return dict(found)


def _owner(api_version, kind, name, uid):
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid}


@pytest.fixture
def cluster(monkeypatch):
    return Cluster(monkeypatch)


def test_jobs_that_exceed_the_quota_are_imported_only_on_request(cluster):
    for name, priority in (("less", ""), ("more", "high")):
        cluster.job(name, cpu=6, priority=priority)
    cluster.client.store.put(r.PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 10})

    code, found = cluster.run("--apply")

    assert code == 1
    assert {name: each["state"] for name, each in found.items()} == {
        "more": "imported",
        "less": "left",
    }
    assert "it needs 6 cpu, and 2 is free" in found["less"]["reason"]
    assert found["less"]["hint"].endswith("--over-quota")
    assert cluster.labelled(r.JOBS) == {"more"}

    planned_code, planned = cluster.run("--over-quota")
    unchanged = cluster.labelled(r.JOBS)
    code, found = cluster.run("--over-quota", "--apply")

    assert (planned_code, code) == (0, 0)
    assert unchanged == {"more"}
    assert planned["less"]["state"] == "planned"
    assert found["less"]["state"] == "imported"
    assert "it needs 6 cpu, and 2 is free" in found["less"]["overQuota"]
    assert cluster.charged() == {"fast": 12}
    assert cluster.labelled(r.JOBS) == {"less", "more"}


def test_a_namespace_that_does_not_exist_is_mentioned(cluster):
    words = ["import", "--queue-label", "team", "-n", "ns", "-n", "nosuch"]

    result = CliRunner().invoke(main, words, catch_exceptions=False)

    assert result.exit_code == 0
    lines = result.stderr.splitlines()
    assert "warning: namespace `nosuch` doesn't exist" in lines
    assert lines[-1] == "0 jobs would be imported"
    assert not any("`ns`" in line or "--config" in line for line in lines)


def test_over_quota_a_job_still_has_the_flavor_of_its_nodes(cluster):
    cluster.job("big", cpu=20, node="slow-1")

    code, found = cluster.run("--over-quota", "--apply")

    assert (code, found["big"]["flavors"]) == (0, ["slow"])
    assert (
        "flavor slow of ClusterQueue q: it needs 20 cpu, and 8 is free" in found["big"]["overQuota"]
    )
    assert cluster.charged() == {"slow": 20}


def test_over_quota_does_not_import_what_has_no_quota_at_all(cluster):
    cluster.put(r.NODES, "other-1", labels={"kind": "other"})
    cluster.job("elsewhere", cpu=1, node="other-1")

    code, found = cluster.run("--over-quota", "--apply")

    assert (code, found["elsewhere"]["state"]) == (1, "left")
    assert cluster.stored(r.WORKLOADS) == []


def test_devices_of_claims_need_quota_too(cluster):
    mapping = {"name": "example.com/gpu", "deviceClassNames": ["gpus"]}
    configuration = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    configuration["resources"] = {"deviceClassMappings": [mapping]}
    body = {"apiVersion": API_VERSION, "kind": "QueueSnapshot", "format": FORMAT}
    body |= {"metadata": {"name": NAME}, "otherTeams": "names"}
    cluster.client.store.put(OF_CLUSTER, body | {"configuration": configuration})
    exactly = {"deviceClassName": "gpus", "allocationMode": "ExactCount", "count": 2}
    devices = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    cluster.put(r.DEVICE_CLASSES, "gpus")
    cluster.put(r.RESOURCE_CLAIM_TEMPLATES, "two", {"spec": devices})
    asked = {"name": "gpu", "resourceClaimTemplateName": "two"}
    cluster.job("claims", cpu=1, resourceClaims=[asked])

    code, found = cluster.run("--over-quota", "--apply")

    assert (code, found["claims"]["state"]) == (1, "left")
    assert "example.com/gpu" in found["claims"]["reason"]


def test_a_job_borrows_what_its_cohort_has_before_it_exceeds_the_quota(monkeypatch):
    cluster = Cluster(monkeypatch, quota=4, cohort=6)
    cluster.job("first", cpu=7)
    cluster.job("second", cpu=7)

    code, found = cluster.run("--over-quota", "--apply")

    assert code == 0
    assert found["first"]["overQuota"] == ""
    assert "it needs 7 cpu, and 3 is free" in found["second"]["overQuota"]


def test_a_job_set_has_the_flavors_of_the_nodes_of_each_of_its_roles(cluster):
    cluster.job_set("train", leader="slow-1", train="fast-1")

    code, found = cluster.run("--apply")

    assert (code, found["train"]["state"]) == (0, "imported"), found
    (workload,) = cluster.stored(r.WORKLOADS)
    assert [
        (each["name"], each["flavors"]["cpu"])
        for each in workload["status"]["admission"]["podSetAssignments"]
    ] == [("leader", "slow"), ("train", "fast")]
    assert workload["metadata"]["ownerReferences"][0]["kind"] == "JobSet"
    assert cluster.labelled(JOB_SETS) == {"train"}
    assert cluster.labelled(r.JOBS) == cluster.labelled(r.PODS) == set()
    assert cluster.run("--apply") == (0, {})


def test_a_group_has_the_flavors_of_the_nodes_of_each_of_its_roles(cluster):
    cluster.group("ring", b="slow-1", cpu=3)

    code, found = cluster.run("--apply")

    assert (code, found["ring"]["state"]) == (0, "imported"), found
    assert cluster.charged() == {"fast": 1, "slow": 3}


def test_a_job_set_fits_as_a_whole_or_not(cluster):
    cluster.job_set("wide", a="fast-1", b="fast-1", c="fast-1", d="fast-1", e="fast-1")

    code, found = cluster.run("--apply")

    assert (code, found["wide"]["state"]) == (1, "left")
    assert "is free" in found["wide"]["reason"]
    assert cluster.stored(r.WORKLOADS) == []
    code, found = cluster.run("--apply", "--over-quota")
    assert (code, found["wide"]["state"]) == (0, "imported")
    assert cluster.charged() == {"fast": 10}


def everything(cluster):
    cluster.job("train", cpu=2)
    cluster.pod("notebook")
    cluster.group("ring")
    cluster.job_set("set", leader="slow-1", workers="fast-1")


IMPORTED = {"train", "notebook", "ring", "set"}


def assert_all_is_imported(cluster):
    assert cluster.labelled(r.JOBS) == {"train"}
    assert cluster.labelled(r.PODS) == {"notebook", "ring-a", "ring-b"}
    assert cluster.labelled(JOB_SETS) == {"set"}
    assert len(cluster.stored(r.WORKLOADS)) == len(IMPORTED)
    assert cluster.charged() == {"fast": 2 + 1 + 2 + 2, "slow": 2}


@pytest.mark.parametrize("reading", ["jobs", "pods", "clusterqueues"])
@pytest.mark.parametrize("words", [[], ["--apply"]])
def test_a_signal_before_the_first_write_leaves_all_as_it_was(cluster, reading, words):
    everything(cluster)
    cluster.stop(signals=1, reading=reading)

    code, found = cluster.run(*words)

    assert (code, found) == (130, {})
    assert cluster.client.writes == []
    cluster.stop(signals=0)
    code, found = cluster.run("--apply")
    assert (code, set(found)) == (0, IMPORTED)
    assert_all_is_imported(cluster)


def test_a_signal_while_the_plan_is_made_ends_the_command_before_it_writes(cluster, monkeypatch):
    everything(cluster)
    plan = command.planned

    def interrupted(*given, **options):
        for number, each in enumerate(plan(*given, **options)):
            if number == 1:
                os.kill(os.getpid(), signal.SIGINT)
            yield each

    monkeypatch.setattr(command, "planned", interrupted)

    code, found = cluster.run("--apply")

    assert (code, found) == (130, {})
    assert cluster.client.writes == []


@pytest.mark.parametrize("writes", [1, 5, 11])
def test_a_signal_lets_jobs_that_were_begun_be_finished(cluster, writes):
    for number in range(20):
        cluster.pod(f"p-{number:02}", "slow-1" if number % 2 else "fast-1", cpu="500m")
    cluster.stop(signals=1, writes=writes)

    code, found = cluster.run("--apply")

    assert code == 130
    imported = cluster.labelled(r.PODS)
    assert 0 < len(imported) < 20
    assert {n for n, each in found.items() if each["state"] == "imported"} == imported
    with_quota = {
        workload["metadata"]["ownerReferences"][0]["name"]
        for workload in cluster.stored(r.WORKLOADS)
        if workload["status"].get("admission")
    }
    assert with_quota == imported
    code, found = cluster.run("--apply")
    assert code == 0
    assert len(found) == 20 - len(imported)
    assert len(cluster.stored(r.WORKLOADS)) == 20


def test_after_a_second_signal_at_any_write_the_next_import_goes_on(cluster):
    everything(cluster)
    runs = 0
    while True:
        # Each import does one write more than the one before, and is cut off at the next.
        cluster.stop(signals=2, writes=1)
        runs += 1
        code, _ = cluster.run("--apply")
        if code != 130:
            break
        assert runs < 40

    assert code == 0
    assert runs > 12
    assert_all_is_imported(cluster)
    cluster.stop(signals=0)
    assert cluster.run("--apply") == (0, {})
