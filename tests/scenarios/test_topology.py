"""Pods go into racks, and to other nodes of the same rack when theirs fail, as users see it."""

import pytest

from policyd.api.kueue.names import API_VERSION
from policyd.cli import demo
from tests.scenarios.api import condition, eventually
from tests.scenarios.conftest import clear
from tests.scenarios.objects import job
from tests.scenarios.test_queue import admitted, waiting, workload_of

HOSTNAME = "kubernetes.io/hostname"
INDEX = "batch.kubernetes.io/job-completion-index"
GATE = "kueue.x-k8s.io/topology"
QUOTA = {"cpu": "1000", "memory": "10Ti", "nvidia.com/gpu": "1000"}
RACKS = {
    each["metadata"]["name"]: each["metadata"]["labels"][demo.RACK_LABEL] for each in demo.nodes()
}


def cluster_object(kind, **spec):
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": "placed"}, "spec": spec}


@pytest.fixture(scope="module")
def placed(cluster):
    """A queue `placed` with more quota than there are nodes, whose flavor has a topology."""
    levels = [{"nodeLabel": label} for label in (demo.RACK_LABEL, HOSTNAME)]
    resources = [{"name": name, "nominalQuota": amount} for name, amount in QUOTA.items()]
    group = {
        "coveredResources": list(QUOTA),
        "flavors": [{"name": "placed", "resources": resources}],
    }
    local_queue = cluster_object("LocalQueue", clusterQueue="placed")
    local_queue["metadata"]["namespace"] = "team-a"
    flavor = {"nodeLabels": {demo.GPU_LABEL: demo.GPU_PRODUCT}, "topologyName": "placed"}
    created = [
        cluster_object("Topology", levels=levels),
        cluster_object("ResourceFlavor", tolerations=[demo.GPU_TOLERATION], **flavor),
        cluster_object("ClusterQueue", namespaceSelector={}, resourceGroups=[group]),
        local_queue,
    ]
    api = cluster.api
    for item in created:
        api.create(item)
    yield
    clear(api)
    for item in reversed(created):
        kind, namespace = item["kind"], item["metadata"].get("namespace", "default")
        api.delete(kind, "placed", namespace, missing_is_fine=True)
        eventually(lambda k=kind, n=namespace: not api.exists(k, "placed", n), what=f"no {kind}")


@pytest.fixture
def racks(api, placed):
    """The API, with that queue."""
    return api


def gang(name, pods, **annotations):
    """Return a Job of one pod a node, all in one rack, that runs until it is deleted."""
    body = job(name, gpus=8 * pods, pods=pods, run_for="3600s")
    body["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "placed"}
    body["spec"]["completionMode"] = "Indexed"
    asked = {"kueue.x-k8s.io/podset-required-topology": demo.RACK_LABEL}
    body["spec"]["template"]["metadata"]["annotations"] |= asked | annotations
    return body


def nodes_of(api, name):
    """Return where the pods of a Job run, in the order of their indices; none until all do."""
    pods = [
        each
        for each in api.find("Pod", "team-a", labelSelector=f"job-name={name}")
        if each["status"].get("phase") == "Running"
        and not each["metadata"].get("deletionTimestamp")
    ]
    body = api.get("Job", name, "team-a")
    if len(pods) < body["spec"]["parallelism"]:
        return []
    assert not any(each["spec"].get("schedulingGates") for each in pods)
    pods.sort(key=lambda each: int(each["metadata"]["annotations"][INDEX]))
    return [each["spec"]["nodeName"] for each in pods]


def racks_of(nodes):
    return {RACKS[name] for name in nodes}


def test_a_gang_runs_in_one_rack_in_order_and_the_next_waits_for_a_rack(racks):
    racks.create(gang("ring", 4))
    ring = eventually(lambda: nodes_of(racks, "ring"), what="all pods of the ring run")
    assert len(racks_of(ring)) == 1
    assert ring == sorted(ring)

    racks.create(gang("pair", 2))
    pair = eventually(lambda: nodes_of(racks, "pair"), what="both pods of the pair run")
    assert len(racks_of(ring) | racks_of(pair)) == 2

    racks.create(gang("next", 4))
    condition = eventually(lambda: waiting(racks, "next"), what="the next one waits")["message"]
    assert 'topology "placed" allows to fit only 2 out of 4 pod(s)' in condition
    assert not admitted(racks, "next")

    racks.delete("Job", "ring", "team-a")
    found = eventually(lambda: nodes_of(racks, "next"), what="the next one runs")
    assert racks_of(found) == racks_of(ring)


def test_pods_of_a_node_that_is_gone_go_to_another_of_the_same_rack(racks):
    racks.create(gang("ring", 2))
    before = eventually(lambda: nodes_of(racks, "ring"), what="the ring runs")
    lost = racks.get("Node", before[1])
    racks.delete("Node", before[1])
    try:
        for each in racks.find("Pod", "team-a", labelSelector="job-name=ring"):
            if each["spec"].get("nodeName") == before[1]:
                racks.delete("Pod", each["metadata"]["name"], "team-a", missing_is_fine=True)
        after = eventually(
            lambda: before[1] not in (now := nodes_of(racks, "ring")) and now,
            what="the ring runs elsewhere",
        )
    finally:
        for name in ("resourceVersion", "uid", "creationTimestamp", "managedFields"):
            lost["metadata"].pop(name, None)
        racks.create(lost)

    assert after[0] == before[0]
    assert racks_of(after) == racks_of(before)
    assert condition(workload_of(racks, "ring"), "Evicted") == {}


def test_an_elastic_job_keeps_the_nodes_where_its_pods_remain_when_it_shrinks(racks):
    racks.create(gang("first", 1))
    eventually(lambda: nodes_of(racks, "first"), what="the first job runs")
    body = anywhere(gang("ring", 1))
    body["metadata"]["annotations"] = {"kueue.x-k8s.io/elastic-job": "true"}
    racks.create(body)
    before = eventually(lambda: where(racks, "ring", 1), what="the ring runs")
    racks.delete("Job", "first", "team-a")

    for size in (2, 1):
        resized = {"spec": {"parallelism": size, "completions": size}}
        racks.patch("Job", "ring", resized, namespace="team-a")
        grown = eventually(lambda size=size: where(racks, "ring", size), what=f"{size} run")
        assert before <= grown
    racks.create(anywhere(gang("others", len(RACKS) - 1)))

    found = eventually(lambda: nodes_of(racks, "others"), what="the others run on all other nodes")
    assert {*found, *before} == set(RACKS)


def anywhere(body):
    asked = {"kueue.x-k8s.io/podset-unconstrained-topology": "true", "policyd.io/run-for": "3600s"}
    body["spec"]["template"]["metadata"]["annotations"] = asked
    return body


def where(api, name, size):
    """Return the nodes of a Job's pods once so many run, each on its own; none before."""
    found = api.find("Pod", "team-a", labelSelector=f"job-name={name}")
    there = [each for each in found if not each["metadata"].get("deletionTimestamp")]
    nodes = {p["spec"]["nodeName"] for p in there if p["status"].get("phase") == "Running"}
    return nodes if len(nodes) == len(there) == size else set()
