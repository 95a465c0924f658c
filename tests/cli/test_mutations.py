"""No file ends a command in a traceback: a few of those that `make mutations` makes up."""

import pytest
from click.testing import CliRunner

from policyd.cli import main
from tests.cli.given import GIVEN, POLICY
from tests.cli.mutations import CODES, try_all

TRIES = 25
DEEP = "[" * 5000
OLD = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: {kind}\nmetadata: {{name: a}}\n{rest}\n"


@pytest.mark.parametrize("name", GIVEN)
def test_nearly_right_files_end_no_command_in_a_traceback(name, tmp_path):
    lines = []

    assert try_all(name, tmp_path, TRIES, write_line=lines.append) == 0, lines


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(DEEP, id="open-lists"),
        pytest.param(DEEP + "]" * 5000, id="lists"),
        pytest.param('{"a":' * 5000 + "1" + "}" * 5000, id="objects"),
        pytest.param("- " * 5000 + "a", id="items"),
        pytest.param("kind: Pod\nmetadata: " + DEEP + "]" * 5000, id="in-an-object"),
    ],
)
def test_nesting_of_5000_is_reported_as_too_deep(name, text, tmp_path):
    file = tmp_path / GIVEN[name].file
    file.write_text(text)

    result = CliRunner().invoke(main, GIVEN[name].arguments(file))

    assert isinstance(result.exception, SystemExit)
    assert result.exit_code in CODES - {0}
    assert "Traceback" not in result.stderr


def test_a_deep_expression_is_reported_as_too_deep():
    result = CliRunner().invoke(main, ["cel", "eval", "[" * 5000 + "]" * 5000])

    assert (result.exit_code, isinstance(result.exception, SystemExit)) == (1, True)


@pytest.mark.parametrize("command", [["simulate"], ["convert"]], ids=" ".join)
@pytest.mark.parametrize(
    ("kind", "rest"),
    [
        pytest.param("ClusterQueue", "spec: text", id="spec"),
        pytest.param("ClusterQueue", "spec: {admissionChecks: 7}", id="checks"),
        pytest.param("ClusterQueue", "spec: {flavorFungibility: [1]}", id="fungibility"),
        pytest.param("LocalQueue", "status: [1]", id="status"),
        pytest.param("Workload", "spec: {podSets: {a: 1}}", id="pod-sets"),
        pytest.param("Workload", "status: {admission: [x]}", id="admission"),
    ],
)
def test_an_older_object_of_wrong_types_is_reported_as_none(command, kind, rest, tmp_path):
    (tmp_path / "old.yaml").write_text(OLD.format(kind=kind, rest=rest))

    result = CliRunner().invoke(main, [*command, str(tmp_path / "old.yaml")])

    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert result.exit_code in CODES


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["check"], id="check"),
        pytest.param(["export"], id="export"),
        pytest.param(["convert"], id="convert"),
        pytest.param(["simulate"], id="simulate"),
        pytest.param(["devices"], id="devices"),
        pytest.param(["apply", "-p", str(POLICY), "-f"], id="apply"),
        pytest.param(["report", "-p", str(POLICY), "-f"], id="report"),
        pytest.param(["explain", "-p", str(POLICY), "-f"], id="explain"),
        pytest.param(["cel", "eval", "object", "-f"], id="cel"),
        pytest.param(["replay", "-p", str(POLICY)], id="replay"),
        pytest.param(["test"], id="test"),
    ],
)
@pytest.mark.parametrize("text", ["a: [", "\x00"], ids=["open", "control"])
def test_invalid_yaml_has_one_exit_code_from_a_file_and_from_standard_input(
    command, text, tmp_path
):
    file = tmp_path / "cases.yaml"
    file.write_text(text)

    by_file = CliRunner().invoke(main, [*command, str(file)])
    by_input = CliRunner().invoke(main, [*command, "-"], input=text)

    assert (by_file.exit_code, by_input.exit_code) == (2, 2), by_file.stderr + by_input.stderr
    assert by_file.stdout == by_input.stdout
