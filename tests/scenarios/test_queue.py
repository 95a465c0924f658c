"""The queue: what a user sees of quota, waiting and gangs."""

import copy
from contextlib import contextmanager

import pytest

from tests.scenarios.api import Refused, condition, eventually
from tests.scenarios.objects import job, pod


def workload_of(api, name, namespace="team-a"):
    """The workload of a job or pod group, once there is one."""
    for workload in api.find("Workload", namespace):
        owners = [o["name"] for o in workload["metadata"].get("ownerReferences", [])]
        if name in owners or workload["metadata"]["name"] == name:
            return workload
    return None


def finished(api, name, namespace="team-a"):
    return condition(api.get("Job", name, namespace), "Complete").get("status") == "True"


def waiting(api, name, namespace="team-a"):
    workload = workload_of(api, name, namespace) or {}
    reserved = condition(workload, "QuotaReserved")
    return reserved if reserved.get("status") == "False" else None


def admitted(api, name, namespace="team-a"):
    return condition(workload_of(api, name, namespace) or {}, "Admitted").get("status") == "True"


def test_a_job_runs_through(api):
    api.create(job("alone", run_for="1s"))

    eventually(lambda: finished(api, "alone"), what="the job is complete")
    eventually(
        lambda: condition(workload_of(api, "alone"), "Finished").get("status") == "True",
        what="its workload is finished",
    )
    workload = workload_of(api, "alone")
    assert workload["status"]["admission"]["clusterQueue"] == "team-a"


def test_claims_of_devices_are_refused_by_policies_and_held_by_the_queue(api):
    claims = [{"name": "gpu", "resourceClaimTemplateName": "whole-gpu"}]
    asks = job("claims", gpus=0)
    asks["spec"]["template"]["spec"]["resourceClaims"] = claims
    pod_set = {"name": "main", "count": 1, "template": copy.deepcopy(asks["spec"]["template"])}
    by_hand = named("Workload", "kueue.x-k8s.io/v1beta2", "claims", "team-a")
    by_hand["spec"] = {"queueName": "team-a", "podSets": [pod_set]}

    with pytest.raises(Refused, match="there is no ResourceClaimTemplate `whole-gpu`"):
        api.create(asks)
    api.create(by_hand)
    api.create(job("plain", gpus=0, run_for="1s"))

    condition = eventually(lambda: waiting(api, "claims"), what="it is told why it waits")
    eventually(lambda: finished(api, "plain"), what="who claims nothing goes on")
    assert condition["reason"] == "Misconfigured"
    assert "would get devices by `resourceClaims`, which no quota counts" in condition["message"]
    api.delete("Workload", "claims", "team-a")


def test_a_job_that_names_no_queue_is_put_into_the_default_one_where_there_is_one(api):
    api.create(named("Namespace", "v1", "team-c"))
    before, after = job("before", "team-c", gpus=0), job("after", "team-c", gpus=0)
    api.create(before)
    spec = {"clusterQueue": "team-a"}
    api.create(named("LocalQueue", "kueue.x-k8s.io/v1beta2", "default", "team-c") | {"spec": spec})

    eventually(lambda: queue_of(api.create(after, dry_run=True)), what="new jobs are put there")
    made = api.create(after)

    assert queue_of(made) == "default"
    assert made["spec"]["suspend"] is True
    assert queue_of(api.get("Job", "before", "team-c")) == ""
    eventually(lambda: admitted(api, "after", "team-c"), what="it is admitted")
    for name in ("before", "after"):
        api.delete("Job", name, "team-c")
    api.delete("LocalQueue", "default", "team-c")
    eventually(lambda: not queue_of(api.create(after, dry_run=True)), what="they are left alone")


def named(kind, api_version, name, namespace=""):
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def queue_of(item):
    return item["metadata"].get("labels", {}).get("kueue.x-k8s.io/queue-name", "")


def test_a_second_job_waits_says_why_and_starts_when_the_first_ends(api):
    api.create(job("first", run_for="60s"))
    eventually(lambda: admitted(api, "first"), what="the first job is admitted")

    api.create(job("second", run_for="1s"))

    reserved = eventually(lambda: waiting(api, "second"), what="the second job waits")
    assert "nvidia.com/gpu" in reserved["message"]
    assert "4 more needed" in reserved["message"]
    assert "first" in reserved["message"]
    assert api.get("Job", "second", "team-a")["spec"]["suspend"] is True
    assert not [p for p in api.find("Pod", "team-a") if p["metadata"]["name"].startswith("second")]

    api.delete("Job", "first", "team-a")

    eventually(lambda: finished(api, "second"), what="the second job is complete")


def test_idle_quota_of_the_cohort_is_lent(api):
    api.create(job("own", run_for="30s"))
    api.create(job("borrowed", gpus=4, run_for="30s"))

    eventually(lambda: admitted(api, "own") and admitted(api, "borrowed"), what="both are admitted")
    queue = eventually(lambda: usage(api, "team-a", "12"), what="usage is reported")
    assert queue["borrowed"] == "4"


def usage(api, queue, total):
    for flavor in api.get("ClusterQueue", queue).get("status", {}).get("flavorsUsage", []):
        for resource in flavor["resources"]:
            if resource["name"] == "nvidia.com/gpu" and resource.get("total") == total:
                return resource
    return None


def test_a_higher_priority_goes_first(api):
    api.create(job("holder", run_for="60s"))
    eventually(lambda: admitted(api, "holder"), what="the holder is admitted")
    low, high = job("low", run_for="60s"), job("high", run_for="60s")
    low["metadata"]["labels"] = {"kueue.x-k8s.io/priority-class": "research"}
    high["metadata"]["labels"] = {"kueue.x-k8s.io/priority-class": "production"}
    for item in (low, high):
        api.create(item)
        eventually(lambda item=item: waiting(api, item["metadata"]["name"]), what="both wait")

    api.delete("Job", "holder", "team-a")

    eventually(lambda: admitted(api, "high"), what="the higher priority is admitted")
    assert not admitted(api, "low")


@contextmanager
def preempting(api, queue, **policy):
    """Let the workloads of a queue preempt, for the time being."""
    api.patch("ClusterQueue", queue, {"spec": {"preemption": policy}})
    try:
        yield
    finally:
        api.patch("ClusterQueue", queue, {"spec": {"preemption": None}})


def of_class(name, item):
    item["metadata"]["labels"] = {"kueue.x-k8s.io/priority-class": name}
    return item


def running_pods(api, name):
    pods = [p for p in api.find("Pod", "team-a") if p["metadata"]["name"].startswith(f"{name}-")]
    return [p for p in pods if p["status"].get("phase") == "Running"]


def test_an_important_job_preempts_and_the_victim_runs_again_afterwards(api):
    with preempting(api, "team-a", withinClusterQueue="LowerPriority"):
        api.create(of_class("research", job("victim", gpus=12, pods=2, run_for="600s")))
        eventually(lambda: len(running_pods(api, "victim")) == 2, what="the victim runs")

        api.create(of_class("production", job("urgent", run_for="2s")))

        evicted = eventually(lambda: preempted(api, "victim"), what="the victim is preempted")
        assert "due to prioritization in the ClusterQueue" in evicted["message"]
        assert "preemptor path: /research/team-a" in evicted["message"]
        eventually(lambda: finished(api, "urgent"), what="the important job is complete")
        eventually(lambda: len(running_pods(api, "victim")) == 2, what="the victim runs again")
    reasons = {e["reason"] for e in api.find("Event", "team-a")}
    assert {"EvictedDueToPreempted", "Preempted", "PreemptedWorkload"} <= reasons


def preempted(api, name):
    """The condition of a workload that is or was preempted."""
    found = condition(workload_of(api, name) or {}, "Preempted")
    return found if found.get("message") else None


def gang(name, count, *, of):
    """Some members of a group that has `of` of them."""
    for index in range(count):
        item = pod(f"{name}-{index}", gpus=2)
        item["metadata"]["labels"] = {"kueue.x-k8s.io/pod-group-name": name}
        item["metadata"]["annotations"] = {
            "kueue.x-k8s.io/pod-group-total-count": str(of),
            "policyd.io/run-for": "2s",
        }
        yield item


def phases(api, name):
    return [
        p["status"]["phase"]
        for p in api.find("Pod", "team-a")
        if p["metadata"]["name"].startswith(f"{name}-")
    ]


def test_a_group_of_pods_starts_whole_or_not_at_all(api):
    members = list(gang("ring", 4, of=4))
    for item in members[:3]:
        api.create(item)
    eventually(lambda: phases(api, "ring") == ["Pending"] * 3, what="three members wait")
    assert workload_of(api, "ring") is None
    assert all(
        "kueue.x-k8s.io/admission" in [g["name"] for g in p["spec"].get("schedulingGates", [])]
        for p in api.find("Pod", "team-a")
    )

    api.create(members[3])

    eventually(lambda: phases(api, "ring") == ["Succeeded"] * 4, what="all four have run")
    workload = workload_of(api, "ring")
    eventually(
        lambda: condition(workload_of(api, "ring"), "Finished").get("status") == "True",
        what="the group's workload is finished",
    )
    assert sum(p["count"] for p in workload["spec"]["podSets"]) == 4


def test_the_events_of_a_job_record_its_steps(api):
    api.create(job("story", run_for="1s"))
    eventually(lambda: finished(api, "story"), what="the job is complete")

    reasons = eventually(
        lambda: {"QuotaReserved", "Admitted"} & {e["reason"] for e in api.find("Event", "team-a")},
        what="events tell of the admission",
    )
    assert "QuotaReserved" in reasons


def test_a_deleted_job_gives_its_quota_back(api):
    api.create(job("gone", run_for="60s"))
    eventually(lambda: admitted(api, "gone"), what="the job is admitted")

    api.delete("Job", "gone", "team-a")
    api.create(job("next", run_for="1s"))

    eventually(lambda: finished(api, "next"), what="the next job is complete")


def test_a_flavor_in_use_stays_until_its_queue_is_gone(api):
    kinds = {"apiVersion": "kueue.x-k8s.io/v1beta2", "metadata": {"name": "short-lived"}}
    quotas = [{"name": "cpu", "nominalQuota": "1"}]
    flavors = [{"name": "short-lived", "resources": quotas}]
    spec = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}]}
    flavor = api.create({**kinds, "kind": "ResourceFlavor", "spec": {}})
    api.create({**kinds, "kind": "ClusterQueue", "spec": spec})
    assert flavor["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]

    api.delete("ResourceFlavor", "short-lived")
    assert api.exists("ResourceFlavor", "short-lived")
    api.delete("ClusterQueue", "short-lived")

    for kind in ("ClusterQueue", "ResourceFlavor"):
        eventually(lambda kind=kind: not api.exists(kind, "short-lived"), what=f"{kind} is gone")
