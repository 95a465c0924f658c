"""A user reads the cluster by policyd's commands: jobs, nodes, places, and the past."""

import json
import signal
import subprocess

import pytest

from tests.scenarios.api import eventually
from tests.scenarios.clusters import COMMANDS, answer
from tests.scenarios.objects import job
from tests.scenarios.test_queue import admitted, of_class, preempting, waiting

OWNER = "policyd.io/owner"
GPU = "nvidia.com/gpu"


def owned(name, owner, **fields):
    made = job(name, **fields)
    made["spec"]["template"]["metadata"]["annotations"][OWNER] = owner
    return made


@pytest.fixture
def full(api):
    """A job that holds what the team can have, and one of Ann's that waits for it."""
    api.create(owned("runs", "bob", run_for="300s"))
    eventually(lambda: admitted(api, "runs"), what="the first job is admitted")
    api.create(owned("waits", "ann", run_for="1s"))
    eventually(lambda: waiting(api, "waits"), what="the second waits")


def test_the_line_can_be_asked_for_one_person(full, ask):
    (line,) = eventually(lambda: ask("queue", "--user", "ann"), what="it is in line")

    assert (line["job"], line["owner"]) == ("Job/waits", "ann")
    assert ask("queue", "--user", "bob") == []


@pytest.mark.parametrize(
    ("question", "states"),
    [
        pytest.param(["queue"], ('"Job/waits"', ["[]"]), id="queue"),
        # It runs for a second: the watch may look only when it has ended.
        pytest.param(["why", "job/waits"], ('"Pending"', ['"Admitted"', '"Finished"']), id="why"),
    ],
)
def test_a_watch_prints_changes_and_ends_when_interrupted(
    cluster, full, tmp_path, question, states
):
    before, after = states
    # Answers may be some seconds old: until then, this is the job of the last test.
    eventually(
        lambda: before in json.dumps(answer(cluster, *question)), what="its snapshot is read"
    )
    command = [COMMANDS / "policyd", *question, "--watch", "-o", "json", "-n", "team-a"]
    printed = tmp_path / "printed"
    with printed.open("w") as out:
        watch = subprocess.Popen([*command, "--kubeconfig", cluster.kubeconfig], stdout=out)
    try:
        eventually(lambda: before in printed.read_text(), what="an answer is printed")
        assert not any(state in printed.read_text() for state in after)
        cluster.api.delete("Job", "runs", "team-a")
        eventually(
            lambda: any(state in printed.read_text() for state in after),
            what="the change is printed",
        )
    finally:
        watch.send_signal(signal.SIGINT)
        code = watch.wait(timeout=10)

    first, end = json.JSONDecoder().raw_decode(printed.read_text())
    assert "Job/waits" in str(first) or first["name"] == "waits"
    assert not any(state in printed.read_text()[:end] for state in after)
    assert code == 130


def test_places_are_made_up_of_priority_and_time(full, ask):
    lines = eventually(lambda: ask("priority")["workloads"], what="it is in line")

    (line,) = [each for each in lines if each["namespace"] == "team-a"]
    assert (line["job"], line["ahead"], line["decidedBy"]) == ("Job/waits", 0, "first")
    assert line["backsOff"] is False


def test_everything_about_a_job_that_runs(full, ask):
    answer = eventually(
        lambda: (found := ask("job", "job/runs"))["pods"] and found, what="its pod has a node"
    )

    (pod_set,) = answer["podSets"]
    assert (answer["why"]["state"], answer["record"]["owner"]) == ("Admitted", "bob")
    assert (pod_set["count"], pod_set["flavors"]["nvidia.com/gpu"]) == (1, "h100")
    assert [each["pods"] for each in answer["pods"]] == [1]
    assert {"QuotaReserved", "Admitted"} <= {each["type"] for each in answer["conditions"]}
    assert answer["leftOut"] == []


def test_the_past_says_what_ran_and_who_preempted_whom(api, ask):
    api.create(job("ended", gpus=1, run_for="2s"))
    eventually(
        lambda: "Succeeded" in {each["outcome"] for each in ask("history")}, what="it has ended"
    )
    with preempting(api, "team-a", withinClusterQueue="LowerPriority"):
        api.create(of_class("research", owned("victim", "ann", run_for="300s")))
        eventually(lambda: admitted(api, "victim"), what="the job of low priority runs")
        api.create(of_class("production", job("urgent", run_for="300s")))
        eventually(lambda: admitted(api, "urgent"), what="the urgent one runs")

        found = {each["job"]: each for each in ask("history", "--since", "1h")}

    assert found["Job/victim"]["preemptedBy"] == f"team-a/{found['Job/urgent']['workload']}"
    assert found["Job/victim"]["evictions"] == {"Preempted": 1}
    assert found["Job/ended"]["times"]["ranSeconds"] >= 2
    assert [each["job"] for each in ask("history", "--user", "ann")] == ["Job/victim"]


def test_nodes_say_which_jobs_strand_their_devices(full, ask):
    def placed():
        found = ask("nodes")
        return found if any(line["pods"] for line in found["nodes"]) else None

    answer = eventually(placed, what="a pod has a node")
    (used,) = [line for line in answer["nodes"] if line["pods"]]

    assert [(each["job"], each["pods"]) for each in used["pods"]] == [("team-a/Job/runs", 1)]
    assert (used["free"][GPU], used["state"], used["domain"][:5]) == (0, "Ready", "")
    (total,) = answer["devices"]
    assert (total["total"], total["free"], total["stranded"]) == (64, 56, 0)
    assert answer["asked"] == ["team-a/waits"]


def test_a_small_job_strands_a_node_until_it_moves(api, ask):
    api.create(job("small", gpus=1, run_for="300s"))
    eventually(lambda: admitted(api, "small"), what="a small job runs")
    found = eventually(
        lambda: (found := ask("nodes", "--stranded"))["nodes"] and found, what="it has a node"
    )

    (line,) = found["nodes"]
    (stranded,) = line["stranded"]
    assert (stranded["amount"], stranded["by"]) == (7, ["team-a/Job/small"])
    assert found["moves"] == [], "other nodes are empty: a pod of a whole node fits there"
