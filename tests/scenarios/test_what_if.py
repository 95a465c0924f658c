"""A user asks what a change would change, and then makes it."""

import json
import subprocess

import pytest

from tests.scenarios.api import eventually
from tests.scenarios.clusters import COMMANDS
from tests.scenarios.objects import job
from tests.scenarios.test_queue import admitted, waiting


@pytest.fixture
def what_if(cluster, tmp_path):
    def what_if(*words, submit=None):
        options = ["--kubeconfig", cluster.kubeconfig, "-n", "team-a", "-o", "json", *words]
        if submit is not None:
            (tmp_path / "submit.json").write_text(json.dumps(submit))
            options += ["--submit", tmp_path / "submit.json"]
        done = subprocess.run(
            [COMMANDS / "policyd", "what-if", *options], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return {each["job"]: each for each in json.loads(done.stdout)["differences"]}

    return what_if


def test_what_would_start_starts_when_the_change_is_made(api, what_if):
    api.create(job("first", run_for="10m"))
    eventually(lambda: admitted(api, "first"), what="the first job is admitted")
    api.create(job("second", run_for="10m"))
    eventually(lambda: waiting(api, "second"), what="the second job waits")

    gone = what_if("--delete", "job/first")
    small, large = (what_if(submit=job("new", gpus=n, run_for="1s")) for n in (4, 8))

    assert gone["Job/second"]["change"] == "Earlier"
    assert gone["Job/second"]["after"]["seconds"] == 0
    assert small["Job/new"]["after"]["seconds"] == 0
    assert large["Job/new"]["after"]["seconds"] > 10 * 60  # behind the second
    api.create(job("new", gpus=4, run_for="1s"))
    eventually(lambda: admitted(api, "new"), what="the small job is admitted")
    assert waiting(api, "second")
    api.delete("Job", "first", "team-a")
    eventually(lambda: admitted(api, "second"), what="the second job is admitted")
