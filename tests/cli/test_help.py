"""Help: every command explains itself, with examples that can be copied."""

import pytest
from click.testing import CliRunner

from policyd.cli import COMMANDS, main


def help_of(*command):
    return CliRunner().invoke(main, [*command, "--help"]).stdout


def test_the_overview_lists_every_command_with_a_line():
    shown = help_of()

    for name, (_, line) in COMMANDS.items():
        assert name in shown
        assert line in " ".join(shown.split())


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_has_no_trace_of_its_layout(name):
    shown = help_of(name)

    assert shown.startswith("Usage: ")
    assert "\\b" not in shown
    assert "\b" not in shown


@pytest.mark.parametrize("name", ["check", "apply", "test", "schema", "up"])
def test_each_example_has_a_line_of_its_own(name):
    lines = help_of(name).splitlines()

    examples = lines[lines.index("  Examples:") + 1 :]
    assert examples[0].startswith(f"    policyd {name}")
    assert examples[1].startswith("    ")
