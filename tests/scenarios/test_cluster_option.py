"""`--cluster`, and policies that read queues: in commands, and in the webhooks."""

import json
import subprocess

import pytest
import yaml

from tests.cli.test_every_command import POLICIES
from tests.engine.reviews import policy
from tests.scenarios.api import Refused, eventually
from tests.scenarios.clusters import COMMANDS
from tests.scenarios.objects import job, pod
from tests.scenarios.test_queue import admitted, waiting

QUEUE = "kueue.x-k8s.io/queue-name"
LABELLED = """
matchConditions: [{name: a, expression: "namespaceObject.metadata.labels['policyd.io/team'] != ''"}]
validations: [{expression: "false", message: a team's}]
"""
QUIET = """
validations:
- expression: clusterQueue.pending == 0 && cluster.cohorts['research'].pending == 0
  message: others wait
"""
CASES = """
cases:
- name: the namespace is that of the cluster
  object: {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: team-b}}
  expect: {denied: a team's}
"""


@pytest.fixture
def ask(cluster):
    """Run a command with `--cluster`; return how it ended."""

    def ask(*words, given=None):
        return subprocess.run(
            [COMMANDS / "policyd", *words, "--cluster", "--kubeconfig", cluster.kubeconfig],
            capture_output=True,
            text=True,
            check=False,
            input=None if given is None else yaml.safe_dump(given),
        )

    return ask


@pytest.fixture
def written(tmp_path):
    def write(spec):
        (tmp_path / "policy.yaml").write_text(policy(spec))
        return str(tmp_path / "policy.yaml")

    return write


def of_team(name="a", namespace="team-a"):
    return pod(name, namespace, labels={QUEUE: namespace})


def test_devices_are_those_of_the_nodes(api, ask):
    found = ask("devices", "-o", "json")

    assert [each["nodes"] for each in json.loads(found.stdout)] == [len(api.find("Node"))]


def test_a_simulation_goes_on_from_what_runs(api, ask):
    api.create(job("runs", run_for="120s"))
    eventually(lambda: admitted(api, "runs"), what="the job is admitted")
    api.create(job("waits"))
    eventually(lambda: waiting(api, "waits"), what="the job waits")

    found = ask("simulate", "--explain")

    assert found.returncode == 0, found.stderr
    (admission,) = [line for line in found.stdout.splitlines() if "admitted" in line]
    assert "team-a/job-waits" in admission  # once the other has run for its two minutes
    assert "still" not in found.stderr
    assert "Configuration" not in found.stderr  # it was read, from the controller


def test_labels_of_namespaces_are_read(ask, written):
    path = written(LABELLED)

    applied = ask("apply", "-p", path, "-f", "-", given=of_team())
    explained = ask("explain", "-p", path, "-f", "-", given=of_team())
    elsewhere = ask("apply", "-p", path, "-f", "-", given=of_team(namespace="default"))

    assert "denied: p: a team's" in applied.stderr
    assert "says: p: a team's" in explained.stdout
    assert "no such key: policyd.io/team" in elsewhere.stderr


def test_a_job_is_held_as_the_cluster_holds_it(api, ask, written):
    path = written("validations: [{expression: 'true'}]")
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "default", "namespace": "team-b"},
        "spec": {"clusterQueue": "team-b"},
    }
    api.create(queue)
    try:
        found = ask("apply", "-p", path, "-f", "-", given=job("new", "team-b"))
    finally:
        api.delete("LocalQueue", "default", "team-b")

    held = yaml.safe_load(found.stdout)
    assert held["metadata"]["labels"][QUEUE] == "default", found.stderr
    assert held["spec"]["suspend"] is True
    assert "warning" not in found.stderr


def test_a_report_is_about_what_exists(api, ask):
    api.create(job("counted", run_for="120s"))
    eventually(lambda: api.find("Pod", "team-a"), what="the job has a pod")

    found = ask("report", *POLICIES, "-o", "json")

    reports = json.loads(found.stdout)
    assert [each["metadata"]["namespace"] for each in reports] == ["team-a"]
    assert found.returncode == 0, found.stderr


def test_cases_get_the_labels_of_namespaces(ask, written, tmp_path):
    written(LABELLED)
    (tmp_path / "cases.yaml").write_text(CASES)

    found = ask("test", str(tmp_path))

    assert (found.returncode, found.stdout) == (0, "1 case passed\n"), found.stderr


@pytest.mark.parametrize("command", ["apply", "explain"])
def test_policies_read_the_queues(api, ask, written, command):
    path = written(QUIET)

    def refused():
        found = ask(command, "-p", path, "-f", "-", given=of_team())
        assert "unknown" not in found.stderr + found.stdout
        return "others wait" in found.stderr + found.stdout

    eventually(lambda: not refused(), what="the policy reads that nothing waits")
    api.create(job("first", run_for="120s"))
    eventually(lambda: admitted(api, "first"), what="the first job is admitted")
    api.create(job("second"))
    eventually(lambda: waiting(api, "second"), what="the second job waits")
    eventually(refused, what="the policy reads that it waits")


NOTEBOOKS = {
    "apiVersion": "policyd.io/v1alpha1",
    "kind": "Policy",
    "metadata": {"name": "gangs-before-notebooks"},
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
            "objectSelector": {"matchLabels": {"app": "notebook"}},
        },
        "inject": {
            "annotations": {
                "idle": {"expression": "string(cluster.cohorts['research'].idle['nvidia.com/gpu'])"}
            }
        },
        "validations": [
            {
                "expression": "!cluster.clusterQueues['team-a'].waiting.exists(w,"
                " w.namespace == 'team-a' && w.requests['nvidia.com/gpu'] >= 8)",
                "message": "a gang of team-a is waiting",
            }
        ],
    },
}


def test_a_policy_in_the_cluster_reads_the_queues(api):
    notebook = pod("notebook", "team-b", gpus=0, labels={"app": "notebook"})

    def apply_output():
        try:
            metadata = api.create(notebook, dry_run=True)["metadata"]
            return metadata.get("annotations", {}).get("idle", "none")
        except Refused as error:
            return error.message

    eventually(lambda: apply_output() == "none", what="a notebook is created without the policy")
    api.create(NOTEBOOKS)
    try:
        eventually(lambda: apply_output() == "16", what="all GPUs are idle")
        api.create(job("first", run_for="120s"))
        eventually(lambda: apply_output() == "8", what="the policy reads that some are used")
        api.create(job("second"))
        eventually(lambda: "a gang of team-a is waiting" in apply_output(), what="one waits")
        api.delete("Job", "first", "team-a")
        eventually(lambda: apply_output() in {"8", "16"}, what="notebooks start again")
    finally:
        api.delete("Policy", "gangs-before-notebooks")
