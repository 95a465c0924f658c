"""Completion: what each shell is given, and what it is answered."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from policyd.cli import COMMANDS, main

POLICYD = Path(sys.executable).parent / "policyd"


@pytest.mark.parametrize(
    ("shell", "registers"),
    [
        pytest.param("bash", "complete -o nosort -F _policyd_completion policyd", id="bash"),
        pytest.param("zsh", "compdef _policyd_completion policyd", id="zsh"),
        pytest.param("fish", "complete --no-files --command policyd", id="fish"),
    ],
)
def test_the_script_registers_policyd_with_the_shell(shell, registers):
    printed = CliRunner().invoke(main, ["completion", shell])

    assert printed.exit_code == 0
    assert registers in printed.stdout
    assert f"_POLICYD_COMPLETE={shell}_complete" in printed.stdout


def test_an_unknown_shell_is_a_usage_error_that_lists_the_known():
    printed = CliRunner().invoke(main, ["completion", "csh"])

    assert printed.exit_code == 2
    assert "'bash', 'zsh', 'fish'" in printed.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_help_teaches_how_to_install_it(shell):
    printed = CliRunner().invoke(main, ["completion", "--help"])

    assert f"policyd completion {shell} > " in printed.stdout


def test_bash_takes_the_script_and_completes_by_it(tmp_path):
    script = f"""
        source <({POLICYD} completion bash)
        COMP_WORDS=(policyd che) COMP_CWORD=1
        _policyd_completion {POLICYD}
        printf '%s\\n' "${{COMPREPLY[@]}}"
    """

    printed = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)

    assert printed.stdout.split() == ["check"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        pytest.param("", list(COMMANDS), id="every-command"),
        pytest.param("c", [name for name in COMMANDS if name.startswith("c")], id="by-letter"),
        pytest.param("apply --operation ", ["CREATE", "UPDATE", "DELETE"], id="choices"),
        pytest.param("--ver", ["--version"], id="own-options"),
        pytest.param("cel eval --env m", ["map", "message"], id="places"),
        pytest.param("cel eval --env map-1.37", ["map-1.37"], id="versions"),
        pytest.param("cel functions isLe", ["isLessThan"], id="functions"),
    ],
)
def test_suggestions_match_the_typed_word(words, offered):
    assert complete(words) == offered


def test_no_command_is_imported_to_complete_its_name():
    shown = subprocess.run(
        [sys.executable, "-X", "importtime", POLICYD],
        env=asking(""),
        capture_output=True,
        text=True,
        check=True,
    )

    assert "policyd.cli" in shown.stderr
    modules = [place.partition(":")[0] for place, _ in COMMANDS.values()]
    assert [name for name in modules if f"{name}\n" in shown.stderr] == []


def complete(words):
    shown = subprocess.run([POLICYD], env=asking(words), capture_output=True, text=True, check=True)
    return [line.partition(",")[2] for line in shown.stdout.splitlines()]


def asking(words):
    typed = f"policyd {words}"
    return os.environ | {
        "_POLICYD_COMPLETE": "bash_complete",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split(" ")) - 1),
    }
