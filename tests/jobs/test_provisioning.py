"""What an autoscaler is asked, and what its answers mean, beyond what Kueue's tables say."""

import msgspec
import pytest

from policyd.api.kueue import (
    ProvisioningRequest,
    ProvisioningRequestConfig,
    ResourceFlavor,
    Workload,
)
from policyd.jobs.provisioning import request_body, request_name, templates
from policyd.jobs.provisioning_answers import answered

FLAVORS = {
    name: msgspec.convert({"spec": {"nodeLabels": {"gpu": name}}}, ResourceFlavor)
    for name in ("a100", "h100")
}
CONTAINER = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}


def stored(flavors=("h100", "h100"), retries=0):
    """Return a workload of a leader and two workers that are like it."""
    sets = [("leader", 1), ("workers", 2)]
    given = [
        {"name": name, "count": count, "flavors": {"nvidia.com/gpu": flavor}}
        for (name, count), flavor in zip(sets, flavors, strict=True)
    ]
    check = {"name": "nodes", "state": "Pending", "retryCount": retries}
    return {
        "metadata": {"name": "train", "namespace": "ns"},
        "spec": {
            "podSets": [
                {"name": name, "count": count, "template": {"spec": {"containers": [CONTAINER]}}}
                for name, count in sets
            ]
        },
        "status": {
            "admission": {"clusterQueue": "cq", "podSetAssignments": given},
            "admissionChecks": [check],
        },
    }


def config(**spec):
    return msgspec.convert({"spec": spec}, ProvisioningRequestConfig)


def request_with(kind, name="train-nodes-1", **spec):
    conditions = [{"type": kind, "status": "True", "message": "so"}]
    status = {"conditions": conditions, "provisioningClassDetails": {"pool": "p7"}}
    body = {"metadata": {"name": name}, "spec": spec, "status": status}
    return msgspec.convert(body, ProvisioningRequest)


def asked(body, config):
    workload = msgspec.convert(body, Workload)
    made = templates("train-nodes-1", workload, config, stored=body, flavors=FLAVORS)
    return made, request_body("train-nodes-1", workload, config, made)["spec"]["podSets"]


def state_after(body, config, request):
    workload = msgspec.convert(body, Workload)
    (state,) = workload.status.admission_checks
    return answered(state, workload, config, request)


def test_pods_that_are_alike_are_asked_for_together_and_all_are_reported():
    merging = config(
        podSetMergePolicy="IdenticalPodTemplates",
        podSetUpdates={
            "nodeSelector": [{"key": "pool", "valueFromProvisioningClassDetail": "pool"}]
        },
    )
    _, pods = asked(stored(), merging)
    assert pods == [{"podTemplateRef": {"name": "ppt-train-nodes-1-leader"}, "count": 3}]
    state = state_after(stored(), merging, request_with("Provisioned", podSets=pods))
    assert [each.name for each in state.pod_set_updates] == ["leader", "workers"]
    assert {each.node_selector["pool"] for each in state.pod_set_updates} == {"p7"}


def test_pods_of_different_flavors_are_not_alike():
    merging = config(podSetMergePolicy="IdenticalWorkloadSchedulingRequirements")
    _, pods = asked(stored(("h100", "a100")), merging)
    assert [each["count"] for each in pods] == [1, 2]


def test_a_template_goes_to_its_flavor_and_requests_what_it_may_use():
    (made, _), _ = asked(stored(), config())
    assert made.body["spec"]["nodeSelector"] == {"gpu": "h100"}
    (container,) = made.body["spec"]["containers"]
    assert container["resources"]["requests"] == {"nvidia.com/gpu": "1"}
    assert "requests" not in CONTAINER["resources"]


def test_a_name_that_is_too_long_ends_in_its_hash():
    long, longer = (request_name("w" * n, "nodes", 1) for n in (250, 251))
    assert len(long) == len(longer) == 253
    assert long != longer


@pytest.mark.parametrize(("retries", "seconds"), [(0, 60), (2, 240), (9, 1800)])
def test_each_wait_is_twice_as_long_up_to_the_longest(retries, seconds):
    often = config(retryStrategy={"backoffLimitCount": 20})
    state = state_after(stored(retries=retries), often, request_with("Failed"))
    assert (state.state, state.requeue_after_seconds) == ("Retry", seconds)


def test_nodes_that_were_taken_away_end_a_workload_even_if_it_runs():
    body = stored()
    body["status"]["conditions"] = [{"type": "Admitted", "status": "True"}]
    assert state_after(body, config(), request_with("CapacityRevoked")).state == "Rejected"
    assert state_after(body, config(), request_with("BookingExpired")).state == "Pending"
