"""An administrator stops and resumes queues and jobs, by policyd's commands."""

import base64
import json
import subprocess
import time

import pytest
import yaml

from policyd.certificates import Authority
from tests.scenarios.api import condition, eventually
from tests.scenarios.clusters import COMMANDS
from tests.scenarios.objects import job
from tests.scenarios.test_queue import admitted, waiting, workload_of

GPU = "nvidia.com/gpu"
VALIDATING = "apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@pytest.fixture
def operate(cluster):
    """Run a command on the cluster; return its exit code, and what it prints as JSON."""

    def operate(*words):
        command = [COMMANDS / "policyd", *words, "--kubeconfig", cluster.kubeconfig, "-o", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    return operate


def test_a_queue_that_is_stopped_admits_nothing_until_it_is_resumed(api, operate):
    api.create(job("runs", run_for="120s"))
    eventually(lambda: admitted(api, "runs"), what="it runs")

    _, (held,) = operate("stop", "cq/team-a")
    api.create(job("later", gpus=1, run_for="1s"))
    reserved = eventually(lambda: waiting(api, "later"), what="it is pending")
    runs_on = admitted(api, "runs")
    _, (drained,) = operate("stop", "cq/team-a", "--drain")
    eventually(lambda: waiting(api, "runs"), what="it is evicted")
    code, (resumed,) = operate("resume", "cq/team-a")
    eventually(lambda: admitted(api, "runs"), what="it runs again")

    assert (held["before"], held["after"]) == ("None", "Hold")
    assert reserved["reason"] == "Suspended"
    assert runs_on
    assert drained["after"] == "HoldAndDrain"
    assert (code, resumed["after"]) == (0, "None")


def test_a_job_is_stopped_with_a_reason_for_its_user(api, operate):
    api.create(job("train", run_for="120s"))
    eventually(lambda: admitted(api, "train"), what="it runs")

    _, (trial,) = operate("stop", "job/train", "-n", "team-a", "--dry-run")
    untouched = workload_of(api, "train")["spec"].get("active", True)
    _, (stopped,) = operate("stop", "job/train", "-n", "team-a", "--reason", "its data moves")
    evicted = eventually(
        lambda: (
            (found := condition(workload_of(api, "train"), "Evicted")).get("status") == "True"
            and found
        ),
        what="it is evicted",
    )
    eventually(lambda: api.get("Job", "train", "team-a")["spec"]["suspend"], what="it is suspended")
    operate("resume", "job/train", "-n", "team-a")
    eventually(lambda: admitted(api, "train"), what="it runs again")

    assert (trial["dryRun"], untouched) == (True, True)
    assert (stopped["kind"], stopped["job"], stopped["after"]) == ("Workload", "Job/train", False)
    assert evicted["reason"] == "DeactivatedDueToUserRequest"
    assert evicted["message"] == "The workload is deactivated due to its data moves"


def test_the_usage_of_queues_and_what_happened_in_them_are_shown(api, ask):
    api.create(job("shown", run_for="120s"))
    eventually(lambda: admitted(api, "shown"), what="it runs")
    api.create(job("behind", run_for="1s"))
    eventually(lambda: waiting(api, "behind"), what="it is pending")

    first, *others = eventually(
        lambda: (found := ask("top")) and found[0]["pending"] and found, what="it is counted"
    )
    story = eventually(
        lambda: (found := reasons(ask("events", "job/shown"))) and "Started" in found and found,
        what="its events are written",
    )
    of_queue = ask("events", "--queue", "team-a")
    elsewhere = ask("events", "--queue", "team-b", namespace="team-b")

    assert (first["name"], first["running"], first["pending"]) == ("team-a", 1, 1)
    assert first["resources"][GPU] == {"nominal": 8, "used": 8, "pending": 8}
    assert [each["name"] for each in others] == ["team-b"]
    assert [each for each in story if each in {"QuotaReserved", "Started"}] == [
        "QuotaReserved", "Started"
    ]  # fmt: skip
    assert {each["object"] for each in of_queue} >= {"Job/shown", "Job/behind"}
    assert "Job/shown" not in {each["object"] for each in elsewhere}


def reasons(events):
    return [each["reason"] for each in events]


def test_the_doctor_finds_nothing_until_something_is_broken(api, operate):
    code, sound = eventually(
        lambda: (found := operate("doctor"))[0] == 0 and found, what="nothing is wrong"
    )
    empty = {"kind": "ClusterQueue", "apiVersion": "kueue.x-k8s.io/v1beta2"}
    api.create({**empty, "metadata": {"name": "empty"}, "spec": {"namespaceSelector": {}}})
    try:
        failed, broken = operate("doctor")
    finally:
        api.delete("ClusterQueue", "empty")

    assert (code, sound["findings"], sound["unchecked"]) == (0, [], [])
    assert failed == 1
    assert [(each["object"], each["fix"]) for each in broken["findings"]] == [
        ("ClusterQueue empty", "kubectl edit clusterqueue empty")
    ]
    assert not api.exists("ResourceFlavor", "policyd-doctor")


def test_the_doctor_sees_that_the_api_server_does_not_accept_the_webhooks(api, operate):
    path = f"{VALIDATING}/admission.policyd.io"
    webhooks = api.call("GET", path)["webhooks"]
    authority = Authority.create(now=time.time()).certificate_pem
    strange = [replace_authority(each, authority) for each in webhooks]
    merge = {"content_type": "application/merge-patch+json"}

    def look():
        # each time anew: the webhooks register themselves again once a minute, and after changes
        api.call("PATCH", path, {"webhooks": strange}, **merge)
        code, found = operate("doctor")
        checks = {each["check"] for each in found["findings"]}
        return {"registration", "calls"} <= checks and (code, found)

    try:
        code, found = eventually(look, what="it is found")
    finally:
        api.call("PATCH", path, {"webhooks": webhooks}, **merge)
    eventually(lambda: operate("doctor")[0] == 0, what="nothing is wrong any more")

    messages = {each["check"]: each["message"] for each in found["findings"]}
    assert code == 1
    assert messages["registration"].startswith("their webhooks have different CA bundles")
    assert messages["calls"].startswith(
        "the API server does not reach the webhooks: Internal error"
    )


def replace_authority(webhook, authority):
    called = {**webhook["clientConfig"], "caBundle": base64.b64encode(authority).decode()}
    return {**webhook, "clientConfig": called}


@pytest.mark.parametrize("cluster", [pytest.param("real", marks=pytest.mark.e2e)], indirect=True)
def test_without_rights_the_message_names_them_and_nothing_is_changed(cluster, api, tmp_path):
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    for each in config["users"]:
        each["user"] |= {"as": "nobody", "as-groups": ["system:authenticated"]}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(config))

    def run(*words):
        command = [COMMANDS / "policyd", *words, "--kubeconfig", kubeconfig]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    doctor, stop, events = run("doctor"), run("stop", "cq/team-a"), run("events", "-n", "team-a")

    assert [each.returncode for each in (doctor, stop, events)] == [2, 2, 2]
    assert "error: none of the checks could be made" in doctor.stderr
    assert 'queues: clusterqueues.kueue.x-k8s.io is forbidden: User "nobody"' in doctor.stderr
    assert 'User "nobody" cannot get resource "clusterqueues"' in stop.stderr
    assert "hint: a role that allows it must be bound to this user" in stop.stderr
    assert 'User "nobody" cannot list resource "workloads"' in events.stderr
    assert api.get("ClusterQueue", "team-a")["spec"].get("stopPolicy", "None") == "None"
