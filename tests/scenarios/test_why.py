"""A user asks why a job waits, what is in line, and what the quotas give: by policyd's commands."""

import time

from tests.scenarios.api import Refused, eventually
from tests.scenarios.objects import job, pod
from tests.scenarios.test_queue import admitted, waiting

GPU = "nvidia.com/gpu"


def test_a_job_that_waits_gets_the_reason_and_remedies(api, ask):
    api.create(job("first", run_for="120s"))
    eventually(lambda: admitted(api, "first"), what="the first job is admitted")
    for name in ("second", "third"):
        api.create(job(name, run_for="1s"))
        eventually(lambda name=name: waiting(api, name), what=f"{name} waits")
        time.sleep(1)  # the order of those of one second is by chance

    second, third = (
        eventually(
            lambda name=name: (found := ask("why", f"job/{name}")) and found["missing"] and found,
            what="numbers",
        )
        for name in ("second", "third")
    )

    (missing,) = second["missing"]
    assert (second["state"], second["reason"], second["ahead"]) == (
        "Pending",
        "WaitingForQuota",
        0,
    )
    assert (missing["resource"], missing["missing"], missing["available"]) == (GPU, 4, 4)
    assert [each["name"] for each in missing["holders"]] == ["team-a/first"]
    assert second["user"].startswith("wait until team-a/first (8) ends")
    assert second["administrator"].startswith("raise the borrowingLimit of team-a")
    assert (third["ahead"], third["behind"]) == (1, "team-a/second")
    assert third["message"] == (
        "behind team-a/second, which needs 8 nvidia.com/gpu of h100; 4 are free"
    )


def test_a_pod_of_a_job_and_a_plain_pod_are_answered_for(api, ask):
    api.create(job("runs", run_for="120s"))
    created = eventually(
        lambda: [p for p in api.find("Pod", "team-a") if p["metadata"].get("ownerReferences")],
        what="the job has a pod",
    )
    api.create(pod("plain", gpus=8))

    name = created[0]["metadata"]["name"]
    of_job = eventually(
        lambda: (found := ask("why", f"pod/{name}"))["requests"] and found, what="it is known"
    )
    plain = eventually(
        lambda: (found := ask("why", "pod/plain"))["state"] == "Pending" and found, what="it waits"
    )

    assert (of_job["kind"], of_job["name"], of_job["state"]) == ("Job", "runs", "Admitted")
    assert of_job["requests"][GPU] == 8
    assert (plain["kind"], plain["localQueue"]) == ("Pod", "team-a")


def test_a_job_that_never_came_into_a_queue_gets_the_shortfall(api, ask):
    mistyped = job("mistyped")
    mistyped["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "taem-a"}
    api.create(mistyped)
    api.create(job("stray", "default", gpus=0, run_for="60s"))
    try:
        named, none = ask("why", "job/mistyped"), ask("why", "job/stray", namespace="default")
    finally:
        api.delete("Job", "stray")

    assert named["message"] == "LocalQueue taem-a doesn't exist; namespace team-a has team-a"
    assert named["user"] == "did you mean `team-a`?"
    assert none["state"] == "NotQueued"
    assert none["message"].startswith("it is in no queue: it has no label")


def test_the_line_and_the_quotas_are_those_of_the_cluster(api, ask):
    api.create(job("first", run_for="120s"))
    api.create(job("lent", gpus=4, run_for="120s"))
    for name in ("first", "lent"):
        eventually(lambda name=name: admitted(api, name), what=f"{name} is admitted")
    api.create(job("waits", "team-b", run_for="1s"))
    eventually(lambda: waiting(api, "waits", "team-b"), what="a job of the other team waits")

    def alone():
        lines = ask("queue")  # of a moment ago: jobs of before may still be there
        return lines if [each["job"] for each in lines] == ["Job/waits"] else None

    (line,) = eventually(alone, what="it is alone in line")
    quotas = {each["name"]: each for each in ask("quota", "--resource", GPU)}

    assert (line["clusterQueue"], line["job"], line["ahead"]) == ("team-b", "Job/waits", 0)
    assert line["requests"][GPU] == 8
    assert quotas["team-a"] == {
        **quotas["team-a"], "nominal": 8, "used": 12, "borrowed": 4, "lent": 0, "pending": 0
    }  # fmt: skip
    assert quotas["team-b"] == {
        **quotas["team-b"], "nominal": 8, "used": 0, "lent": 4, "available": 4, "pending": 8
    }  # fmt: skip
    assert quotas["research"]["used"] == 12


REFUSING = {
    "apiVersion": "policyd.io/v1alpha1",
    "kind": "Policy",
    "metadata": {"name": "no-drafts"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["pods"],
                }
            ],
            "objectSelector": {"matchLabels": {"stage": "draft"}},
        },
        "validations": [{"expression": "false", "message": "remove the label stage"}],
    },
}


def refused(api, item):
    try:
        api.create(item, dry_run=True)
    except Refused:
        return True
    return False


def obstacle(ask, words, kind):
    """Return what keeps the pods of a job from running, once that is known."""
    return eventually(
        lambda: next((o for o in ask("why", words)["obstacles"] if o["type"] == kind), None),
        within=60,
        what=f"its pods are {kind}",
    )


def test_a_job_with_quota_whose_pods_a_policy_refuses_names_the_policy(api, ask):
    draft = job("draft", gpus=1)
    draft["spec"]["template"]["metadata"]["labels"] = {"stage": "draft"}
    api.create(REFUSING)
    try:
        eventually(
            lambda: refused(api, pod("probe", labels={"stage": "draft"})), what="it is in force"
        )
        api.create(draft)
        found = obstacle(ask, "job/draft", "Refused")
        api.delete("Job", "draft", "team-a")
    finally:
        api.delete("Policy", "no-drafts")

    assert (found["what"], found["message"]) == ("no-drafts", "remove the label stage")


def test_a_job_with_quota_whose_pods_are_held_or_fit_no_node_says_so(api, ask):
    gated, lost = job("gated", gpus=1), job("lost", gpus=1)
    gated["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "example.com/later"}]
    lost["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "none-has-it"}
    for each in (gated, lost):
        api.create(each)

    held = obstacle(ask, "job/gated", "Gated")
    unscheduled = obstacle(ask, "job/lost", "Unschedulable")

    assert (held["what"], held["pods"]) == ("example.com/later", 1)
    assert "the component that added it has to remove it" in held["message"]
    assert "nodes are available" in unscheduled["message"]
    assert "disk=none-has-it" in unscheduled["message"]
