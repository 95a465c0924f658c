"""Texts of tenants reach a terminal as they are written, and move nothing on it."""

import io
import sys

import pytest
from click.testing import CliRunner

from policyd.cli import main
from policyd.terminal import VisibleControls, unfiltered, visible_controls, without_controls
from tests.scenarios.clusters import PROJECT

TITLE = "\x1b]0;owned\x07\x1b[2J\x1b[1A\x9b2K\x1b[8mall good"
VISIBLE = "^[]0;owned^G^[[2J^[[1A\\x9b2K^[[8mall good"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(TITLE, VISIBLE, id="sequences"),
        pytest.param("a\rb\x7f\0", "a^Mb^?^@", id="lines-that-are-written-over"),
        pytest.param("a\tb\r\nc\n", "a\tb\r\nc\n", id="tabs-and-line-ends-stay"),
        pytest.param("\x1b[31mno\x1b[0m \x1b[1myes\x1b[22m", None, id="colours-stay"),
        pytest.param("\x1b[30m\x1b[38;5;0m\x1b[40m", "^[[30m^[[38;5;0m^[[40m", id="not-all"),
        pytest.param("a\u202eb\u2066c\u2028d", r"a\u202eb\u2066c\u2028d", id="reversed-letters"),
        pytest.param("Zürich 東京 👩‍💻", None, id="letters-stay"),
    ],
)
def test_control_characters_are_written_visibly(text, expected):
    assert without_controls(text) == (text if expected is None else expected)


def test_a_stream_is_itself_otherwise(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    with visible_controls():
        assert sys.stdout.write("a\x1b") == 2
        sys.stdout.writelines(["b\a", "c"])
        assert sys.stdout.getvalue() == "a^[b^Gc"
        assert unfiltered(sys.stdout) is stream
    assert sys.stdout is stream
    assert unfiltered(stream) is stream
    assert VisibleControls(stream).isatty() is False


@pytest.mark.parametrize("color", ["always", "never"])
def test_a_command_shows_what_a_tenant_wrote(tmp_path, color):
    manifest = f"""\
apiVersion: v1
kind: Pod
metadata:
  name: a
  annotations: {{policyd.io/max-cents-per-hour: "{TITLE.encode("unicode_escape").decode()}"}}
spec: {{containers: [{{name: main, resources: {{limits: {{nvidia.com/gpu: 1}}}}}}]}}
"""
    file = tmp_path / "pod.yaml"
    file.write_text(manifest)
    policy = PROJECT / "policies/placement/price-ceiling/policy.yaml"
    words = ["apply", "-p", str(policy), "-f", str(file), "--color", color]

    output = CliRunner().invoke(main, words, color=True).output

    assert "is not a whole number of cents: ^[]0;owned^G" in output
    assert "\x1b]" not in output
    assert "\x1b[2J" not in output
    assert "\x07" not in output
