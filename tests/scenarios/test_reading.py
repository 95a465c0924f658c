"""A user reads the cluster by policyd's commands: jobs, nodes, places, and the past."""

import json
import signal
import subprocess

import pytest

from tests.scenarios.api import eventually
from tests.scenarios.clusters import COMMANDS
from tests.scenarios.objects import job
from tests.scenarios.test_queue import admitted, waiting

OWNER = "policyd.io/owner"


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


def test_a_watch_prints_changes_and_ends_when_interrupted(cluster, api, full, tmp_path):
    command = [COMMANDS / "policyd", "queue", "--watch", "-o", "json", "-n", "team-a"]
    printed = tmp_path / "printed"
    with printed.open("w") as out:
        watch = subprocess.Popen([*command, "--kubeconfig", cluster.kubeconfig], stdout=out)
    try:
        eventually(lambda: "Job/waits" in printed.read_text(), what="an answer is printed")
        api.delete("Job", "waits", "team-a")
        eventually(lambda: printed.read_text().endswith("[]\n"), what="the change is printed")
    finally:
        watch.send_signal(signal.SIGINT)
        code = watch.wait(timeout=10)

    first, _ = json.JSONDecoder().raw_decode(printed.read_text())
    assert [line["job"] for line in first] == ["Job/waits"]
    assert code == 130
