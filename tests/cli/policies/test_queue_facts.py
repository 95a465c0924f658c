"""Commands get the queues that policies read from a file: of a case, or as `--snapshot`."""

import pytest
import yaml
from click.testing import CliRunner

from policyd.cli import main
from tests.cli.given import POD, SNAPSHOT
from tests.engine.reviews import policy

WAITS = """
validations:
- expression: queue.pending == 0
  messageExpression: "string(queue.pending) + ' wait in ' + queue.name"
"""
CASES = """
queueSnapshot: {first}
cases:
- name: as in the file
  object: {{apiVersion: v1, kind: Pod, metadata: &m {{name: a, namespace: team-a, labels: {{
    kueue.x-k8s.io/queue-name: lq}}}}}}
  expect: {{denied: 1 wait in lq}}
- name: as nothing is known
  queueSnapshot: ""
  object: {{apiVersion: v1, kind: Pod, metadata: *m}}
  expect: {{denied: "the queues are unknown: no snapshot of them was given"}}
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "policy.yaml").write_text(policy(WAITS))
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "queues.json").write_text(SNAPSHOT)
    (tmp_path / "queues.yaml").write_text(yaml.safe_dump(yaml.safe_load(SNAPSHOT)))
    return tmp_path


def run(*words, text=None):
    return CliRunner().invoke(main, [str(word) for word in words], input=text)


def given(files, *more):
    return ["-p", files / "policy.yaml", "-f", files / "pod.yaml", "--assume-labels", *more]


@pytest.mark.parametrize("name", ["queues.json", "queues.yaml"])
def test_cases_read_the_file_beside_them(files, name):
    (files / "cases.yaml").write_text(CASES.format(first=name))

    result = run("test", files)

    assert (result.exit_code, result.stdout) == (0, "2 cases passed\n"), result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(None, "cannot read", id="not-there"),
        pytest.param(SNAPSHOT[:-9], "not a whole QueueSnapshot", id="cut"),
        pytest.param("a: [", "damaged.yaml:", id="no-yaml"),
        pytest.param("a: 1\n---\nb: 2", "2 documents, and should have one", id="two"),
        pytest.param("kind: Pod\napiVersion: v1", "is not a QueueSnapshot", id="another-kind"),
    ],
)
def test_a_file_that_is_no_snapshot_is_a_sentence(files, text, message):
    damaged = files / "queues" / "damaged.yaml"
    damaged.parent.mkdir()
    if text is not None:
        damaged.write_text(text)
    (files / "cases.yaml").write_text(CASES.format(first="queues/damaged.yaml"))

    result = run("test", files)

    assert message in result.stderr
    assert result.exit_code == 1
    if text is not None:
        assert message in run("apply", *given(files, "--snapshot", damaged)).stderr


def test_apply_and_explain_read_a_snapshot(files):
    known = given(files, "--snapshot", files / "queues.json")

    assert "1 wait in lq" in run("apply", *known).stderr
    assert "1 wait in lq" in run("explain", *known).stdout
    assert "the queues are unknown" in run("apply", *given(files)).stderr
    assert "1 wait in lq" in run("apply", *given(files, "--snapshot", "-"), text=SNAPSHOT).stderr


@pytest.mark.parametrize(
    ("words", "value"),
    [
        pytest.param(["cluster.pending", "--snapshot", "queues.json"], "2", id="of-the-cluster"),
        pytest.param(
            ["queue.pending", "--snapshot", "queues.json", "-f", "pod.yaml"], "1", id="an-object's"
        ),
        pytest.param(["cluster.known"], "false", id="not-given"),
    ],
)
def test_expressions_are_tried_on_a_snapshot(files, words, value):
    words = [files / each if (files / each).exists() else each for each in words]

    result = run("cel", "eval", *words, "--env", "policy", "-o", "value")

    assert result.stdout == f"{value}\n", result.stderr


@pytest.mark.parametrize("command", ["apply", "explain"])
def test_standard_input_is_one_file(files, command):
    result = run(command, "-p", files / "policy.yaml", "-f", "-", "--snapshot", "-", text=POD)

    assert "read only once" in result.stderr
    assert result.exit_code == 2
