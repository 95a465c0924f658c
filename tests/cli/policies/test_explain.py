"""`policyd explain`: text for people, JSON for programs."""

import json

import pytest
from click.testing import CliRunner

from policyd.cli import main

POLICY = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: few-gpus}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: ["*"], operations: [CREATE], resources: [pods]}
  matchConditions: [{name: asks, expression: pod.gpus() > 0}]
  variables: [{name: most, expression: "1"}]
  inject: {labels: {team: vision}}
  validations: [{name: few, expression: pod.gpus() <= variables.most, message: too many}]
"""
UNBOUND = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: native}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*"]}
  validations: [{expression: "false"}]
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {containers: [{name: main, resources: {limits: {nvidia.com/gpu: 4}}}]}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY)
    (tmp_path / "pod.yaml").write_text(POD)
    return tmp_path


def run(folder, *more, policies="policy.yaml"):
    given = ["explain", "-p", folder / policies, "-f", folder / "pod.yaml", *more]
    return CliRunner().invoke(main, [str(argument) for argument in given])


def test_it_says_what_each_expression_is_and_what_is_changed(folder):
    result = run(folder)

    assert result.exit_code == 0
    for line in (
        "few-gpus (mutate): matches",
        "match condition `asks`: true",
        "pod.gpus()  →  4",
        'changes: add /metadata/labels = {"team": "vision"}',
        "few-gpus (validate): matches",
        "variables.most = 1",
        "validation `few`: false",
        "says: few-gpus: too many",
    ):
        assert line in result.stdout


def test_the_reason_of_an_exemption_is_shown(folder):
    lifted = f"{POLICY}  exceptions: [{{users: [someone], reason: agreed, owner: ada}}]\n"
    (folder / "policy.yaml").write_text(lifted)

    assert "few-gpus (validate): does not match\n    lifted: agreed (ada)" in run(folder).stdout
    (explained, *_) = json.loads(run(folder, "-o", "json").stdout)
    assert [policy["lifted"] for policy in explained["policies"]] == [["agreed (ada)"]] * 2


def test_it_says_why_a_policy_does_not_match(folder):
    result = run(folder, "--operation", "UPDATE")

    assert "does not match: no rule matches it: it is for operations `CREATE`" in result.stdout


def test_as_json_it_is_for_machines(folder):
    result = run(folder, "-o", "json")

    (answer,) = json.loads(result.stdout)
    mutate, validate = answer["policies"]
    assert (answer["kind"], answer["name"]) == ("Pod", "a")
    assert mutate["operations"][0]["path"] == "/metadata/labels"
    (asked,) = validate["seen"][0]["validations"]
    assert (asked["name"], asked["value"]) == ("few", False)
    assert asked["steps"][1]["value"] == 4
    assert validate["objections"][0]["message"] == "too many"


def test_a_policy_without_a_binding_is_named(folder):
    (folder / "native.yaml").write_text(UNBOUND)

    result = run(folder, policies="native.yaml")

    expected = "ValidatingAdmissionPolicy/native: has no effect: it has no binding here"
    assert expected in result.stdout


def test_a_policy_that_is_not_there_is_a_wrong_call(folder):
    result = run(folder, "--policy", "few-gpu")

    assert result.exit_code == 2
    assert "policy `few-gpu` not found: did you mean `few-gpus`?" in result.stderr


def test_other_values_than_objects_are_findings(folder):
    (folder / "pod.yaml").write_text("kind: Pod\n")

    result = run(folder)

    assert result.exit_code == 2
    assert "not a Kubernetes object" in result.stderr
