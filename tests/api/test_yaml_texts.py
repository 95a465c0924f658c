"""YAML that is read as a whole: what cannot be read has one kind of error."""

import pytest
import yaml
from click.testing import CliRunner

from policyd.api.yaml_texts import plain_yaml
from policyd.cli import main

DEEP = "[" * 5000 + "]" * 5000


def test_values_are_read():
    assert plain_yaml(b"a: [1, x]") == {"a": [1, "x"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: [", "expected the node content", id="syntax"),
        pytest.param(DEEP, "it is nested too deep", id="deep"),
        pytest.param(b"a: \xff", "invalid start byte", id="no-utf-8"),
        pytest.param("2026-99-99", "month must be in", id="no-date"),
        pytest.param("9" * 5000, "digits", id="no-number"),
    ],
)
def test_what_cannot_be_read_is_no_yaml(text, message):
    with pytest.raises(yaml.YAMLError, match=message):
        plain_yaml(text)


@pytest.mark.parametrize("text", [DEEP, f"kind: Configuration\na: {DEEP}", "a: 2026-99-99"])
@pytest.mark.parametrize(
    "words",
    [
        ["controller", "--config"],
        ["up", "--config"],
        ["queue", "--kubeconfig"],
        ["controller", "--kubeconfig"],
        ["simulate", "--trace", "-", "--sweep"],
    ],
    ids=" ".join,
)
def test_no_file_of_settings_ends_a_command_in_a_traceback(words, text, tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text(text)

    result = CliRunner().invoke(main, [*words, str(file)], input="submit\n")

    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == 2
    assert "error" in result.stderr.lower()
