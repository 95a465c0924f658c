"""Roll-outs and shadows off line: `apply`, `explain` and `replay` say what the webhook would."""

import json

import pytest
from click.testing import CliRunner

from policyd.cli import main

POLICY = """
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: named}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations: [{expression: "object.metadata.name != 'a'", message: a better name}]
  enforcement: Audit
  rollout:
  - {enforcement: Skip, namespaces: [quiet]}
  - {enforcement: Warn, namespaces: [team-a]}
---
apiVersion: policyd.io/v1alpha1
kind: Policy
metadata: {name: named-2}
spec:
  shadowOf: named
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations: [{expression: "object.metadata.name != 'b'", message: another name}]
"""


def pod(name, namespace):
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"containers": [{"name": "main", "image": "registry.local/train:1"}]},
        }
    )


@pytest.fixture
def run(tmp_path):
    """Run a command on the policies, and one pod."""

    def run(command, name, namespace, *more):
        policies, pods = tmp_path / "policies.yaml", tmp_path / "pod.json"
        policies.write_text(POLICY)
        pods.write_text(pod(name, namespace))
        files = ["-p", str(policies), "-f", str(pods)]
        return CliRunner().invoke(main, [command, *files, *more])

    return run


@pytest.mark.parametrize(
    ("name", "namespace", "expected"),
    [
        pytest.param("a", "team-a", "warning: named: a better name", id="step-that-warns"),
        pytest.param("a", "team-a", "rolled out: named: Warn: rollout[1]", id="says-which-step"),
        pytest.param("b", "b", "named-2, shadow of named, would deny", id="shadow"),
        pytest.param("a", "b", "would differ: Audit: a better name", id="no-longer"),
    ],
)
def test_apply_says_how_strictly_and_what_shadows_would_do(run, name, namespace, expected):
    result = run("apply", name, namespace)

    assert result.exit_code == 0
    assert expected in result.stderr


@pytest.mark.parametrize(
    ("namespace", "expected"),
    [
        pytest.param("team-a", "  rolled out: Warn: rollout[1], team-a/a is at ", id="step"),
        pytest.param("quiet", "does not match: left out: Skip: rollout[0]", id="left-out"),
        pytest.param("b", "rolled out: Audit: no step matches it", id="none"),
        pytest.param("b", "named-2 (validate, shadow of named): matches", id="shadow"),
    ],
)
def test_explain_says_which_step_and_why(run, namespace, expected):
    assert expected in run("explain", "a", namespace).output


def test_explain_as_json_has_the_step(run):
    [explained] = json.loads(run("explain", "a", "team-a", "-o", "json").stdout)

    staged, shadow = explained["policies"]
    assert staged["rollout"][0].startswith("Warn: rollout[1]")
    assert shadow["shadowOf"] == "named"


@pytest.fixture
def replay(tmp_path):
    """Replay reviews of pods with these names."""

    def replay(*names, more=()):
        policies, reviews = tmp_path / "policies.yaml", tmp_path / "reviews.jsonl"
        policies.write_text(POLICY)
        reviews.write_text("\n".join(map(review, names)))
        return CliRunner().invoke(main, ["replay", str(reviews), "-p", str(policies), *more])

    return replay


def review(name):
    kind = {"group": "", "version": "v1", "kind": "Pod"}
    request = {
        "uid": name,
        "kind": kind,
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": name,
        "namespace": "b",
        "operation": "CREATE",
        "userInfo": {"username": "alice"},
        "object": json.loads(pod(name, "b")),
    }
    document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(document)


def test_replay_says_what_shadows_would_answer(replay):
    result = replay("a", "b", "c")

    assert "CREATE Pod b/b: named-2, shadow of named, would deny: Deny: another name" in (
        result.stdout
    )
    assert "shadow named-2: 1 answer denied" in result.stdout
    assert "shadow named-2: 1 answer changed" in result.stdout
    assert result.exit_code == 0


def test_replay_says_that_shadows_agree(replay):
    assert "shadows would answer the same" in replay("c").stdout


def test_replay_as_json_has_the_shadows(replay):
    shown = json.loads(replay("b", more=("-o", "json")).stdout)

    [one] = shown["shadows"]
    assert one["request"] == "CREATE Pod b/b"
    assert one["differences"][0]["outcome"] == "denied"


CASES = """
cases:
- name: another name
  object: {apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: main}]}}
  expect: {denied: [named-2]}
"""


def test_a_shadow_that_is_alone_is_tested_as_if_it_were_in_force(tmp_path):
    (tmp_path / "policy.yaml").write_text(POLICY.split("---")[1])
    (tmp_path / "cases.yaml").write_text(CASES)

    result = CliRunner().invoke(main, ["test", str(tmp_path)])

    assert result.exit_code == 0, result.output
