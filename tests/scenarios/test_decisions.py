"""Decisions that Kueue's users know, with webhooks, controller and API server on."""

import pytest

from policyd.cli import demo
from tests.scenarios.api import Refused, condition, eventually
from tests.scenarios.objects import job, pod
from tests.scenarios.test_queue import (
    admitted,
    of_class,
    preempting,
    running_pods,
    waiting,
    workload_of,
)
from tests.scenarios.test_topology import gang, nodes_of, placed, racks

__all__ = ["placed", "racks"]

GATED_BY = "kueue.x-k8s.io/admission-gated-by"
NOW = "2026-01-01T00:00:00Z"


def test_a_gated_workload_does_not_keep_quota(api):
    gated = job("gated", run_for="2s")
    gated["metadata"]["annotations"] = {GATED_BY: "example.com/budget"}
    api.create(gated)
    condition = eventually(lambda: waiting(api, "gated"), what="it is gated")
    assert condition["reason"] == "AdmissionGated"

    workload = workload_of(api, "gated")["metadata"]["name"]
    flavors = dict.fromkeys(("cpu", "memory", "nvidia.com/gpu"), "h100")
    assigned = {
        "name": "main",
        "count": 1,
        "flavors": flavors,
        "resourceUsage": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "8"},
    }
    reserved = {
        "type": "QuotaReserved",
        "status": "True",
        "reason": "QuotaReserved",
        "message": "by hand",
        "lastTransitionTime": NOW,
    }
    status = {
        "admission": {"clusterQueue": "team-a", "podSetAssignments": [assigned]},
        "conditions": [reserved],
    }
    api.patch("Workload", f"{workload}/status", {"status": status}, namespace="team-a")
    condition = eventually(lambda: waiting(api, "gated"), what="the quota is taken back")
    assert condition["reason"] == "AdmissionGated"
    eventually(
        lambda: "admission" not in workload_of(api, "gated")["status"], what="nothing is left of it"
    )
    assert not admitted(api, "gated")

    api.patch("Job", "gated", {"metadata": {"annotations": {GATED_BY: None}}}, namespace="team-a")
    eventually(lambda: admitted(api, "gated"), what="without its gate it is admitted")


def test_workloads_of_a_queue_on_hold_are_not_preempted(api):
    api.create(of_class("research", job("held", "team-b", gpus=12, pods=2, run_for="600s")))
    eventually(lambda: admitted(api, "held", "team-b"), what="team-b borrows")
    api.patch("ClusterQueue", "team-b", {"spec": {"stopPolicy": "Hold"}})
    try:
        with preempting(api, "team-a", reclaimWithinCohort="Any"):
            api.create(of_class("production", job("urgent", gpus=8, run_for="600s")))
            quota_condition = eventually(
                lambda: waiting(api, "urgent"), what="the urgent one waits"
            )
            assert quota_condition["reason"] == "WaitingForQuota"
            assert not condition(workload_of(api, "held", "team-b"), "Preempted")

            api.patch("ClusterQueue", "team-b", {"spec": {"stopPolicy": "None"}})
            eventually(lambda: admitted(api, "urgent"), what="it reclaims its own")
    finally:
        api.patch("ClusterQueue", "team-b", {"spec": {"stopPolicy": "None"}})


def test_slices_that_do_not_divide_the_count_are_rounded(racks):
    slices = {
        "kueue.x-k8s.io/podset-slice-required-topology": demo.RACK_LABEL,
        "kueue.x-k8s.io/podset-slice-size": "2",
    }
    racks.create(gang("odd", 3, **slices))

    eventually(lambda: admitted(racks, "odd"), what="it is admitted")
    eventually(lambda: len(running_pods(racks, "odd")) == 2, what="the whole slice runs")


def test_a_pod_outside_of_the_queue_that_shrinks_wakes_who_waits_for_its_node(racks, request):
    nodes = [each["metadata"]["name"] for each in demo.nodes()]
    for name in nodes:
        racks.create(sized(f"other-{name}", name, cpu="60"))
        request.addfinalizer(
            lambda name=name: racks.delete("Pod", f"other-{name}", missing_is_fine=True)
        )
    wide = gang("wide", 1)
    wide["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "50"
    racks.create(wide)
    eventually(lambda: waiting(racks, "wide"), what="no node has room for it")

    smaller = sized(f"other-{nodes[0]}", nodes[0], cpu="10")["spec"]["containers"]
    if not resized(racks, f"other-{nodes[0]}", {"spec": {"containers": smaller}}):
        pytest.skip("the embedded cluster does not resize pods")

    assert eventually(lambda: nodes_of(racks, "wide"), what="it runs") == [nodes[0]]


def resized(api, name, patch):
    """Patch the size of a pod, as on a node that can; False where the API server does not know."""
    running = {"name": "main", "image": "", "imageID": "", "ready": True, "restartCount": 0}
    given = api.get("Pod", name)["spec"]["containers"][0]["resources"]
    status = {"phase": "Running", "containerStatuses": [{**running, "resources": given}]}
    api.patch("Pod", f"{name}/status", {"status": status})
    try:
        api.patch("Pod", f"{name}/resize", patch, by="strategic")
    except Refused as refusal:
        if refusal.code != 404:
            raise
        return False
    return True


def sized(name, node, cpu):
    """A pod that names no queue, on a node."""
    body = pod(name, "default", gpus=0)
    resources = {"cpu": cpu, "memory": "1Gi"}
    body["spec"]["containers"][0]["resources"] = {"limits": resources, "requests": resources}
    body["spec"]["nodeName"] = node
    body["spec"]["tolerations"] = [demo.GPU_TOLERATION]
    body["metadata"]["annotations"] = {"policyd.io/run-for": "600s"}
    return body
