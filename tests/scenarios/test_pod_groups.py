"""Groups of pods that are stopped, replaced, called off, and left behind by the controller."""

import subprocess

from tests.scenarios.api import condition, eventually
from tests.scenarios.clusters import COMMANDS
from tests.scenarios.objects import pod
from tests.scenarios.test_queue import workload_of

QUEUE, KEPT = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/managed"


def member(name, *, total=2, run_for="600s"):
    annotations = {
        "kueue.x-k8s.io/pod-group-total-count": str(total),
        "policyd.io/run-for": run_for,
    }
    labels = {QUEUE: "team-a", "kueue.x-k8s.io/pod-group-name": "ring"}
    return pod(name, labels=labels, annotations=annotations)


def members(api, *names, **more):
    for name in names:
        api.create(member(name, **more))


def phases(api):
    """The phases of the pods that nobody has deleted, by name."""
    return {
        each["metadata"]["name"]: each["status"]["phase"]
        for each in api.find("Pod", "team-a")
        if "deletionTimestamp" not in each["metadata"]
    }


def condition_of(api, kind):
    found = condition(workload_of(api, "ring"), kind)
    return found.get("status"), found.get("reason")


def activate(api, *, active):
    api.patch("Workload", "ring", {"spec": {"active": active}}, namespace="team-a")


def test_a_stopped_group_keeps_its_workload_until_it_is_resumed(api):
    members(api, "a", "b")
    eventually(lambda: phases(api) == dict.fromkeys("ab", "Running"), what="the group runs")
    uid = workload_of(api, "ring")["metadata"]["uid"]

    activate(api, active=False)
    eventually(lambda: phases(api) == {}, what="its pods are stopped")
    eventually(
        lambda: condition_of(api, "QuotaReserved")[0] == "False", what="its quota is given back"
    )
    eventually(
        lambda: condition_of(api, "WaitingForReplacementPods") == ("True", "Deactivated"),
        what="it waits for replacements",
    )
    members(api, "c", "d", run_for="2s")
    eventually(
        lambda: condition_of(api, "WaitingForReplacementPods")[0] == "False",
        what="they are taken note of",
    )
    assert phases(api) == dict.fromkeys("cd", "Pending")
    assert all(each["spec"]["schedulingGates"] for each in api.find("Pod", "team-a") if live(each))

    activate(api, active=True)

    eventually(lambda: phases(api) == dict.fromkeys("cd", "Succeeded"), what="they run through")
    eventually(lambda: condition_of(api, "Finished")[0] == "True", what="the group is over")
    assert workload_of(api, "ring")["metadata"]["uid"] == uid
    eventually(
        lambda: not any(KEPT in each["metadata"].get("finalizers", ()) for each in pods(api)),
        what="its pods are let go",
    )


def pods(api):
    return api.find("Pod", "team-a")


def live(item):
    return "deletionTimestamp" not in item["metadata"]


def test_a_failed_member_is_replaced_while_the_others_run(api):
    members(api, "a", "b")
    eventually(lambda: phases(api) == dict.fromkeys("ab", "Running"), what="the group runs")

    api.delete("Pod", "a", "team-a")
    eventually(
        lambda: condition_of(api, "WaitingForReplacementPods") == ("True", "PodsFailed"),
        what="a member is missing",
    )
    members(api, "c")

    eventually(lambda: phases(api) == dict.fromkeys("bc", "Running"), what="it is replaced")
    eventually(lambda: not api.exists("Pod", "a", "team-a"), what="the lost one may go")
    assert condition_of(api, "Admitted")[0] == "True"


def test_a_group_all_of_whose_pods_are_deleted_leaves_nothing(api):
    members(api, "a", "b")
    eventually(lambda: phases(api) == dict.fromkeys("ab", "Running"), what="the group runs")

    for name in "ab":
        api.delete("Pod", name, "team-a")

    eventually(lambda: not pods(api), what="its pods are gone")
    eventually(lambda: workload_of(api, "ring") is None, within=120, what="so is its workload")


def test_no_pod_outlives_its_controller_for_good(cluster, api):
    members(api, "a", "b")
    eventually(lambda: phases(api) == dict.fromkeys("ab", "Running"), what="the group runs")
    if cluster.name == "real":
        cluster.controller.kill()
    try:
        for name in "ab":
            api.delete("Pod", name, "team-a")
        release = [COMMANDS / "policyd", "release", "--kubeconfig", cluster.kubeconfig]
        done = subprocess.run(
            [*release, "-n", "team-a"], capture_output=True, text=True, check=True
        )

        assert done.stdout.split() == ["pods/team-a/a", "pods/team-a/b"]
        eventually(lambda: not pods(api), what="its pods are gone")
    finally:
        if cluster.name == "real":
            cluster.controller.start()
