"""Gangs that another scheduler starts whole, as users of it see them."""

import time

import pytest

from tests.scenarios import api as driver
from tests.scenarios import clusters
from tests.scenarios.api import Refused, condition, eventually
from tests.scenarios.objects import job
from tests.scenarios.test_queue import admitted, workload_of

VOLCANO = "scheduling.volcano.sh"
NATIVE = "apis/scheduling.k8s.io/v1alpha2/namespaces/team-a/podgroups"
GATES = ("GenericWorkload=true", "GangScheduling=true")
WATCHED_SECONDS = 5


def groups(api, path):
    try:
        return {each["metadata"]["name"]: each for each in api.call("GET", path)["items"]}
    except Refused as refusal:
        if refusal.code in {404, 429}:  # the kind is not there, or not yet
            return None
        raise


def hand_to(api, scheduler):
    change = {"metadata": {"annotations": {"policyd.io/gang-scheduler": scheduler}}}
    api.patch("ClusterQueue", "team-a", change)


SCHEDULERS = {
    "Volcano": (VOLCANO, "v1beta1", "volcano"),
    "KAI": ("scheduling.run.ai", "v2alpha2", "kai-scheduler"),
    "Coscheduling": ("scheduling.x-k8s.io", "v1alpha1", "scheduler-plugins-scheduler"),
}


@pytest.fixture(params=list(SCHEDULERS))
def gang_setup(request, api):
    """The API, a queue that hands its gangs over, where PodGroups are, and who schedules."""
    group, version, scheduler = SCHEDULERS[request.param]
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    served = {"name": version, "served": True, "storage": True}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"podgroups.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
            "scope": "Namespaced",
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    path = f"apis/{group}/{version}/namespaces/team-a/podgroups"
    api.create(crd)
    eventually(lambda: groups(api, path) is not None, what="PodGroup is served")
    hand_to(api, request.param)
    yield api, path, scheduler
    hand_to(api, None)
    api.delete("CustomResourceDefinition", f"podgroups.{group}")


def scheduled_by(name, item):
    item["spec"]["template"]["spec"]["schedulerName"] = name
    return item


def pods_of(api, name):
    return [p for p in api.find("Pod", "team-a") if p["metadata"]["name"].startswith(f"{name}-")]


def test_a_gang_is_published_before_its_pods_are_made(gang_setup):
    api, path, scheduler = gang_setup
    api.create(scheduled_by(scheduler, job("ring", pods=4)))

    pods = eventually(lambda: pods_of(api, "ring"), what="the job makes its pods")
    (group,) = groups(api, path).values()
    name = group["metadata"]["name"]
    assert group["spec"]["minMember"] == 4
    (owner,) = group["metadata"]["ownerReferences"]
    assert owner["name"] == workload_of(api, "ring")["metadata"]["name"]
    metadata = pods[0]["metadata"]
    assert name in {*metadata["annotations"].values(), *metadata["labels"].values()}

    api.delete("Job", "ring", "team-a")
    eventually(lambda: not groups(api, path), within=120, what="the group goes with the job")


def test_a_gang_waits_while_volcano_is_not_there(api):
    hand_to(api, "Volcano")
    try:
        api.create(scheduled_by("volcano", job("early", pods=2)))
        eventually(lambda: admitted(api, "early"), what="the job is admitted")
        reported_events = eventually(
            lambda: events(api, "GangNotHandedOver"), what="the job hears of it"
        )

        assert "no PodGroups of scheduling.volcano.sh" in reported_events[0]["message"]
        assert api.get("Job", "early", "team-a")["spec"]["suspend"] is True
    finally:
        hand_to(api, None)
    eventually(lambda: pods_of(api, "early"), within=30, what="it starts without")


def events(api, reason):
    return [event for event in api.find("Event", "team-a") if event["reason"] == reason]


@pytest.fixture(scope="module")
def gated(tmp_path_factory):
    """A real control plane with Kubernetes' own gang scheduling."""
    with clusters.real(
        tmp_path_factory.mktemp("gangs"),
        also=[clusters.PROJECT / "policies/queueing/native-gang/policy.yaml"],
        feature_gates=GATES,
        flags={"kube-apiserver": ["--runtime-config=api/all=true"]},
    ) as cluster:
        yield cluster.api


def bound(api, name):
    return [pod for pod in pods_of(api, name) if pod["spec"].get("nodeName")]


@pytest.mark.e2e
def test_kubernetes_own_scheduler_starts_a_gang_whole_or_not_at_all(gated):
    api = gated
    driver.PATHS["PodGroup"] = NATIVE
    hand_to(api, "Native")
    node = api.find("Node")[0]["metadata"]["name"]

    # There is quota for twelve GPUs, and eight of them on the node that it insists on.
    big = job("big", gpus=12, pods=3)
    big["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    api.create(big)

    pods = eventually(lambda: len(pods_of(api, "big")) == 3 and pods_of(api, "big"), what="pods")
    ((name, group),) = groups(api, NATIVE).items()
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    assert {pod["spec"]["schedulingGroup"]["podGroupName"] for pod in pods} == {name}
    unfit = eventually(
        lambda: condition(groups(api, NATIVE)[name], "PodGroupScheduled"), what="the group is tried"
    )
    assert (unfit["status"], unfit["reason"]) == ("False", "Unschedulable")
    deadline = time.monotonic() + WATCHED_SECONDS
    while time.monotonic() < deadline:
        assert bound(api, "big") == []
        time.sleep(0.5)

    api.delete("Job", "big", "team-a")
    eventually(lambda: not groups(api, NATIVE), within=120, what="the group goes with the job")
    small = job("small", gpus=8, pods=2, run_for="60s")
    small["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": node}
    api.create(small)
    eventually(lambda: len(bound(api, "small")) == 2, what="a gang that fits is bound")
