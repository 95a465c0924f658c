"""Who says that an object belongs to a job is believed only if it is that job's controller."""

import copy

import pytest

from tests.scenarios import foreign
from tests.scenarios.api import Refused, eventually
from tests.scenarios.objects import job, pod
from tests.scenarios.test_queue import admitted

QUEUE = "kueue.x-k8s.io/queue-name"


@pytest.fixture
def owner(api):
    """A reference to a Job of no GPU that runs."""
    made = api.create(job("small", gpus=0, run_for="600s"))
    eventually(lambda: admitted(api, "small"), what="the small job is admitted")
    return reference(made)


def reference(obj):
    metadata = obj["metadata"]
    return {
        "apiVersion": obj["apiVersion"],
        "kind": obj["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def of(owner, item):
    owned = copy.deepcopy(item)
    owned["metadata"]["ownerReferences"] = [owner]
    return owned


def test_a_pod_of_eight_gpus_that_names_an_admitted_job_is_refused(api, owner):
    with pytest.raises(Refused, match="does not make what a Job owns"):
        api.create(of(owner, pod("greedy", gpus=8)))

    assert not api.exists("Pod", "greedy", "team-a")


def test_a_job_that_names_an_admitted_job_is_refused(api, owner):
    with pytest.raises(Refused, match="does not make what a Job owns"):
        api.create(of(owner, job("greedy", gpus=8)))


def test_the_account_of_a_namespace_is_not_believed_either(api, owner):
    with pytest.raises(Refused, match="does not make what a Job owns"):
        api.acting_as("system:serviceaccount:team-a:job-controller").create(
            of(owner, pod("greedy", gpus=8))
        )


def test_a_pod_that_waits_gets_no_owner(api, owner):
    api.create(job("holder", gpus=12, pods=2, run_for="600s"))
    eventually(lambda: admitted(api, "holder"), what="the queue is full")
    waits = api.create(pod("waits", gpus=8))
    assert waits["spec"]["schedulingGates"]

    change = {"metadata": {"ownerReferences": [owner]}}
    with pytest.raises(Refused, match="does not make what a Job owns"):
        api.patch("Pod", "waits", change, namespace="team-a")


def test_the_pods_of_the_job_itself_run_without_gates(api, owner):
    def running():
        found = [p for p in api.find("Pod", "team-a") if p["metadata"].get("ownerReferences")]
        return [p for p in found if p["status"].get("phase") == "Running"]

    (own,) = eventually(running, what="the pod of the job runs")

    assert own["metadata"]["ownerReferences"][0]["uid"] == owner["uid"]
    assert not own["spec"].get("schedulingGates")


def test_gpus_of_unknown_kinds_are_queued_for(api):
    unknown = {"apiVersion": "example.com/v1", "kind": "Cron", "name": "a", "uid": "b"}

    made = api.create(of({**unknown, "controller": True}, pod("of-nothing", gpus=1)))

    assert made["metadata"]["labels"][QUEUE] == "team-a"
    assert made["spec"]["schedulingGates"]


def test_the_pod_of_a_replica_set_without_a_queue_is_queued_for(api):
    made_by = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "b"}
    account = "system:serviceaccount:kube-system:replicaset-controller"

    made = api.acting_as(account).create(of({**made_by, "controller": True}, pod("bare", gpus=1)))

    assert made["metadata"]["labels"][QUEUE] == "team-a"
    assert made["spec"]["schedulingGates"]


def test_a_queue_that_holds_nothing_is_warned_of(cluster, api):
    foreign.install(api)
    definition = foreign.anything("batch.volcano.sh", "v1alpha1", "Heap")
    if not api.exists("CustomResourceDefinition", definition["metadata"]["name"]):
        api.create(definition)
    item = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Heap",
        "metadata": {"name": "a", "namespace": "team-a", "labels": {QUEUE: "team-a"}},
        "spec": {"tasks": [{"template": foreign.template(1)}]},
    }
    path = "apis/batch.volcano.sh/v1alpha1/namespaces/team-a/heaps"

    def warned():
        try:
            api.call("POST", path, item, dryRun="All")
        except Refused as refusal:
            if refusal.code not in {404, 429}:  # the kind is not there yet
                raise
        return " ".join(api.warnings)

    assert "spec.tasks[0].template.metadata.labels" in eventually(warned, what="it is warned of")
