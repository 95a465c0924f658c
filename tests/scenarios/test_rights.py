"""Users who may read nothing get a sentence from each command, and no number."""

import subprocess

import pytest
import yaml

from tests.scenarios.api import eventually
from tests.scenarios.clusters import COMMANDS
from tests.scenarios.objects import job
from tests.scenarios.test_queue import admitted

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.parametrize("cluster", ["real"], indirect=True, scope="session"),
]
"""Users of the embedded cluster may do everything."""


@pytest.fixture
def without_rights(cluster, tmp_path):
    """A kubeconfig of an account that may read nothing."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nothing"}}
    accounts = "api/v1/namespaces/team-a/serviceaccounts"
    cluster.api.call("POST", accounts, account)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = cluster.api.call("POST", f"{accounts}/nothing/token", asked)["status"]["token"]
    config = yaml.safe_load(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    config["contexts"][0]["context"]["namespace"] = "team-a"
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    yield file
    cluster.api.call("DELETE", f"{accounts}/nothing")


@pytest.mark.parametrize(
    "words",
    [
        ["why", "job/first"], ["queue"], ["queue", "-A"], ["quota"], ["quota", "-A"], ["nodes"],
        ["priority"], ["job", "first"], ["history"], ["top"], ["events"],
        ["what-if", "--delete", "job/first"], ["devices", "--cluster"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_user_without_rights_gets_a_sentence_and_no_number(api, without_rights, words):
    api.create(job("first", run_for="300s"))
    eventually(lambda: admitted(api, "first"), what="it is admitted")
    done = subprocess.run(
        [COMMANDS / "policyd", *words, "--kubeconfig", without_rights],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip

    assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
    assert "system:serviceaccount:team-a:nothing" in done.stderr
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr
