"""How commands behave in a terminal and in a pipe: ends, colours, words, JSON."""

import errno
import json
import os
import pty
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from policyd.cli import COMMANDS as NAMES
from policyd.cli import main
from tests.cli.given import CASES, GIVEN, POLICY
from tests.scenarios.clusters import COMMANDS

ESCAPE = "\x1b["
BROKEN = "apiVersion: policyd.io/v1alpha1\nkind: Policy\nmetadata: {name: a}\nspec: {x: 1}\n"


def policyd(*words, **options):
    return subprocess.Popen(
        [COMMANDS / "policyd", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def in_terminal(*words, **variables):
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [COMMANDS / "policyd", *words],
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm-256color", **variables},
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        written += part
    os.close(ours)
    process.wait()
    return written.decode()


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["check", "-"], id="check"),
        pytest.param(["simulate", "-"], id="simulate"),
        pytest.param(["cel", "eval", "-"], id="cel"),
    ],
)
def test_a_command_that_is_interrupted_exits_with_130_and_says_nothing(words):
    process = policyd(*words)
    while not _waits(process.pid):
        time.sleep(0.05)

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)

    assert (process.returncode, out, err.strip()) == (130, "", "")


def _waits(process):
    """Tell whether a process has nothing to do but to wait for standard input."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return fields[0] == "S" and int(fields[11]) > 10


@pytest.mark.parametrize(
    ("words", "variables", "coloured"),
    [
        pytest.param([], {}, True, id="terminal"),
        pytest.param([], {"NO_COLOR": "yes please"}, False, id="no-color"),
        pytest.param([], {"NO_COLOR": ""}, True, id="no-color-is-empty"),
        pytest.param(["--color=never"], {}, False, id="never"),
        pytest.param(["--color=always"], {"NO_COLOR": "1"}, True, id="always"),
        pytest.param(["--color=auto"], {"NO_COLOR": "1"}, False, id="auto"),
    ],
)
def test_colours_in_a_terminal(words, variables, coloured, tmp_path):
    (tmp_path / "p.yaml").write_text(BROKEN)
    variables = {"NO_COLOR": "", **variables}

    assert (
        ESCAPE in in_terminal("check", *words, str(tmp_path / "p.yaml"), **variables)
    ) is coloured


@pytest.mark.parametrize(
    ("before", "after", "coloured"),
    [
        pytest.param([], [], False, id="pipe"),
        pytest.param([], ["--color=always"], True, id="always"),
        pytest.param(["--color=always"], [], True, id="always-before-the-command"),
        pytest.param(["--color=always"], ["--color=never"], False, id="the-later-counts"),
    ],
)
def test_colours_in_a_pipe(before, after, coloured):
    given = GIVEN["devices"].texts[0]

    table = policyd(*before, "devices", *after, "-").communicate(given)[0]

    assert (ESCAPE in table) is coloured


@pytest.mark.parametrize("name", NAMES)
def test_every_command_says_when_it_uses_colours(name):
    assert "--color [auto|always|never]" in CliRunner().invoke(main, [name, "--help"]).stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["chek"], "`check`", id="command"),
        pytest.param(["cel", "evl"], "eval", id="command-of-a-group"),
        pytest.param(["check", "--outptu", "x"], "--output", id="option"),
        pytest.param(["library", "show", "cap-gpu-per-pod"], "`cap-gpus-per-pod`", id="policy"),
        pytest.param(["cel", "functions", "indexof"], "`indexOf`", id="function"),
    ],
)
def test_mistyped_words_are_guessed(words, expected):
    result = CliRunner().invoke(main, words)

    assert result.exit_code in (1, 2)
    assert "did you mean" in result.stderr.lower()
    assert expected in result.stderr


def keys(value):
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from keys(each)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        pytest.param(["check", "-o", "json", str(POLICY)], None, id="check"),
        pytest.param(["test", "-o", "json", "--branches", str(CASES)], None, id="test"),
        pytest.param(
            ["simulate", "-o", "json", "--explain", "--defragment", "1", "-"],
            "simulate",
            id="simulate",
        ),
        pytest.param(["devices", "-o", "json", "-"], "devices", id="devices"),
        pytest.param(["replay", "-o", "json", "-p", str(POLICY), "-"], "replay", id="replay"),
        pytest.param(["library", "list", "-o", "json"], None, id="library"),
        pytest.param(["cel", "explain", "-o", "json", "1 + 2"], None, id="cel"),
    ],
)
def test_fields_of_json_have_one_case(words, name):
    text = GIVEN[name].texts[0] if name else ""

    result = CliRunner().invoke(main, words, input=text)

    odd = {key for key in keys(json.loads(result.stdout)) if re.search(r"_|^[A-Z]|-", key)}
    assert odd == set()


def test_a_broken_policy_leaves_standard_output_empty(tmp_path):
    (tmp_path / "p.yaml").write_text(BROKEN)
    words = ["apply", "-p", str(tmp_path / "p.yaml"), "-f", "-"]

    for output in ("yaml", "json", "diff"):
        result = CliRunner().invoke(main, [*words, "-o", output], input=GIVEN["apply"].texts[0])
        assert (result.exit_code, result.stdout) == (1, "")
        assert "p.yaml:4:" in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words.split(), id=words)
        for words in (
            "explain -f",
            "explain -o json -f",
            "replay",
            "replay -o json",
            "replay -o markdown",
            "replay --summary",
            "report --summary -f",
        )
    ],
)
def test_no_answer_is_given_by_the_policies_that_are_left(words, tmp_path):
    """What the valid ones refuse, or leave as it was, is not what all would."""
    policies = tmp_path / "p.yaml"
    policies.write_text(f"{POLICY.read_text()}---\n{BROKEN}")
    text = GIVEN["replay" if words[0] == "replay" else "apply"].texts[0]

    result = CliRunner().invoke(main, [*words, "-", "-p", str(policies)], input=text)

    assert (result.exit_code, result.stdout) == (1, "")
    assert "field `matchConstraints` is missing" in result.stderr


@pytest.mark.parametrize("text", ["", "# made by a command that failed\n", "---\n---\n"])
@pytest.mark.parametrize(
    "words",
    [
        pytest.param([*words.split(), *options], id=words)
        for words, options in {
            "apply -f -": ["-p", str(POLICY)],
            "report -f -": ["-p", str(POLICY)],
            "explain -f -": ["-p", str(POLICY)],
            "convert -": [],
            "devices -": [],
            "simulate -": [],
            "check -": [],
            "export -": [],
            "migrate kyverno -": [],
            "migrate gatekeeper -": [],
        }.items()
    ],
)
def test_a_pipe_in_which_there_is_nothing_is_no_success(words, text):
    result = CliRunner().invoke(main, words, input=text)

    assert (result.exit_code, result.stdout) == (2, "")
    assert re.search(r"\bno \w+", result.stderr)


@pytest.mark.parametrize(
    "words",
    [
        "check",
        "convert",
        "devices",
        "export",
        "migrate gatekeeper",
        "migrate kyverno",
        "prove never-denies",
        "simulate",
        "test",
    ],
)
def test_a_file_without_anything_for_the_command_is_unusable_input(words, tmp_path):
    file = tmp_path / "odd.yaml"
    file.write_text("a: 1\n" if words == "convert" else "apiVersion: v1\nkind: ConfigMap\n")

    result = CliRunner().invoke(main, [*words.split(), str(file)])

    assert (result.exit_code, "cases passed" in result.stdout or result.stdout == "") == (2, True)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["test"], id="test"),
        pytest.param(["check"], id="check"),
        pytest.param(["convert"], id="convert"),
        pytest.param(["replay", "-p", str(POLICY)], id="replay"),
        pytest.param(["report", "-p", str(POLICY), "-f"], id="report"),
    ],
)
def test_a_folder_in_a_folder_that_cannot_be_read_is_no_success(words, tmp_path, monkeypatch):
    (tmp_path / "locked").mkdir()
    listed = os.scandir

    def scandir(folder):
        if Path(folder).name == "locked":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        return listed(folder)

    def iterdir(folder):
        return [folder / each.name for each in scandir(folder)]

    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(Path, "iterdir", iterdir)

    result = CliRunner().invoke(main, [*words, str(tmp_path)])

    assert result.exit_code == 2
    assert re.search("cannot read `?.*locked`?: permission denied", result.stderr)


def test_a_file_that_cannot_be_written_is_reported(tmp_path):
    result = CliRunner().invoke(
        main, ["export", str(POLICY), "-o", str(tmp_path / "none" / "out.yaml")]
    )

    assert result.exit_code == 2
    assert "no such file or directory" in result.stderr.lower()


def test_cases_may_come_from_standard_input(monkeypatch):
    monkeypatch.chdir(POLICY.parent)

    result = CliRunner().invoke(main, ["test", "-"], input=CASES.read_text())

    assert (result.exit_code, "cases passed" in result.stdout) == (0, True)


def test_a_terminal_is_shown_how_far_it_is(tmp_path):
    count = 12_000
    (tmp_path / "pods.yaml").write_text("---\n".join([GIVEN["apply"].texts[0]] * count))

    shown = in_terminal(
        *("report", "-p", str(POLICY), "--assume-labels", "-f", str(tmp_path / "pods.yaml"))
    )

    assert "reading" in shown
    assert "━" in shown
