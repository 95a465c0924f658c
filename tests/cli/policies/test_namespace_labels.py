"""Policies that ask for labels of a namespace: whether they apply is not guessed."""

import pytest
from click.testing import CliRunner

from policyd.cli import main
from tests.docs.pages import PROJECT

RESTRICTED = PROJECT / "policies" / "security" / "pod-security-restricted"
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: team-a}
spec: {containers: [{name: main, image: x, securityContext: {privileged: true}}]}
"""
ENFORCED = "policyd.io/pod-security=restricted"
NAMESPACE = f"""\
---
apiVersion: v1
kind: Namespace
metadata: {{name: team-a, labels: {{{ENFORCED.replace("=", ": ")}}}}}
"""
BY_NAME = """\
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: by-name}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
    namespaceSelector:
      matchLabels: {kubernetes.io/metadata.name: team-b}
      matchExpressions: [{key: tier, operator: Exists}]
  validations: [{expression: "false", message: never}]
"""
REVIEW = """\
{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u",
 "kind": {"group": "", "version": "v1", "kind": "Pod"},
 "resource": {"group": "", "version": "v1", "resource": "pods"},
 "name": "a", "namespace": "team-a", "operation": "CREATE", "userInfo": {},
 "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {}}}}
"""


@pytest.fixture
def run(tmp_path):
    def run(command, *more, policies=str(RESTRICTED), text=POD):
        (tmp_path / "objects.yaml").write_text(text)
        objects = str(tmp_path / "objects.yaml")
        return CliRunner().invoke(main, [command, "-p", policies, "-f", objects, *more])

    return run


@pytest.mark.parametrize("command", ["apply", "explain", "report"])
def test_labels_that_are_not_known_are_a_finding(run, command):
    result = run(command)

    assert result.exit_code == 1
    assert "namespace team-a: error: whether `pod-security-restricted` applies" in result.stderr
    assert "`policyd.io/pod-security`" in result.stderr
    assert "--namespace-labels" in result.stderr


@pytest.mark.parametrize("command", ["apply", "report"])
@pytest.mark.parametrize(
    ("more", "text", "code"),
    [
        pytest.param(["--namespace-labels", ENFORCED], POD, 1, id="labels"),
        pytest.param(["--namespace-labels", "a=b"], POD, 0, id="other-labels"),
        pytest.param([], POD + NAMESPACE, 1, id="namespace"),
        pytest.param(
            [], POD + NAMESPACE.replace("restricted", "privileged"), 0, id="other-labelled"
        ),
        pytest.param(["--assume-labels"], POD, 0, id="assumed"),
    ],
)
def test_labels_that_are_known_decide(run, command, more, text, code):
    result = run(command, *more, text=text)

    assert result.exit_code == code
    assert "applies is unknown" not in result.stderr


@pytest.mark.parametrize("more", [["--namespace-labels", "a=b"], ["--assume-labels"]])
def test_an_explanation_with_known_labels_is_whole(run, more):
    result = run("explain", *more)

    assert (result.exit_code, result.stderr) == (0, "")


def test_a_namespaces_name_is_known(run, tmp_path):
    (tmp_path / "policy.yaml").write_text(BY_NAME)
    policies = str(tmp_path / "policy.yaml")

    other = run("apply", policies=policies)
    same = run("apply", policies=policies, text=POD.replace("team-a", "team-b"))

    assert (other.exit_code, same.exit_code) == (0, 1)
    assert "`tier`" in same.stderr


def test_it_is_reported_once_for_each_policy_and_namespace(run):
    result = run("apply", text="---\n".join([POD, POD.replace("name: a,", "name: b,")]))

    assert result.stderr.count("applies is unknown") == 1


def test_requests_that_were_recorded_are_not_decided_either(tmp_path):
    (tmp_path / "review.json").write_text(REVIEW)

    result = CliRunner().invoke(
        main, ["replay", str(tmp_path / "review.json"), "-p", str(RESTRICTED)]
    )

    assert result.exit_code == 1
    assert "applies is unknown" in result.stderr
