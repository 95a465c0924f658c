"""Manners that all commands have: each test goes through every command that there is."""

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from policyd.cli import main
from policyd.cli.formats import progress
from policyd.standard_input import StoredFile
from tests.cli.given import (
    CASES,
    CONSTRAINT,
    GIVEN,
    KUEUE,
    LEGACY,
    NODES,
    POD,
    POLICY,
    PROVED,
    QUEUES,
    REVIEW,
    SNAPSHOT,
)
from webhooks.__main__ import main as webhooks


def leaves(command, words=()):
    """Every command that does something, by the words that call it."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from leaves(command.get_command(context, name), (*words, name))
    else:
        yield " ".join(words), command


COMMANDS = dict(leaves(main))
SERVICES = {"up", "controller", "dashboard"}
"""They run until they are ended; how, other tests say."""

EVERY = pytest.mark.parametrize("name", COMMANDS)
POLICIES = ["-p", str(POLICY), "--assume-labels"]
FEW = POD.replace("gpu: 9", "gpu: 1")
BROKEN = "apiVersion: policyd.io/v1alpha1\nkind: Policy\nmetadata: {name: a}\nspec: {x: 1}\n"
FAILING = CASES.read_text().replace("denied: a pod requests 9", "denied: a pod requests 7", 1)
PARTIAL = f"{LEGACY}  - {{name: g, generate: {{kind: ConfigMap}}}}\n"
OTHER_KIND = "apiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQeue\nmetadata: {name: a}\n"

ENDS = {
    "check": ([], POLICY.read_text(), BROKEN, "a: ["),
    "apply": ([*POLICIES, "-f"], FEW, POD, "a: ["),
    "explain": (["-p", str(POLICY), "-f"], POD, None, "a: ["),
    "test": ([], CASES.read_text(), FAILING, "a: ["),
    "replay": (["-p", str(POLICY)], REVIEW.replace("9}", "1}"), None, "a: ["),
    "report": ([*POLICIES, "-f"], FEW, POD, "a: ["),
    "cel eval": ([], "1 + 1", "1 +", None),
    "cel explain": ([], "1 + 1", "1 / 0", None),
    "simulate": ([], QUEUES, None, "a: ["),
    "devices": ([], NODES, None, "a: ["),
    "why": (["job/j", "-n", "team-a", "--snapshot"], SNAPSHOT, None, SNAPSHOT[:-20]),
    "queue": (["--snapshot"], SNAPSHOT, None, SNAPSHOT[:-20]),
    "quota": (["--snapshot"], SNAPSHOT, None, SNAPSHOT[:-20]),
    "what-if": (["--delete", "cohort/all", "-a", "--dump"], QUEUES, None, "a: ["),
    "priority": (["--snapshot"], SNAPSHOT, None, SNAPSHOT[:-20]),
    "nodes": (["--snapshot"], SNAPSHOT, None, SNAPSHOT[:-20]),
    "job": (["job/j", "-n", "team-a", "--snapshot"], SNAPSHOT, None, SNAPSHOT[:-20]),
    "top": (["--snapshot"], SNAPSHOT, None, SNAPSHOT[:-20]),
    "export": ([], POLICY.read_text(), BROKEN, "a: ["),
    "migrate gatekeeper": (
        [],
        CONSTRAINT,
        CONSTRAINT.replace("kind: Own", "kind: Other", 1),
        "a: [",
    ),
    "migrate kueue": (
        ["--from"],
        KUEUE,
        KUEUE.replace("PriorityBoost=true", "TimeTravel=true"),
        KUEUE[:-800],
    ),
    "migrate kyverno": ([], LEGACY, PARTIAL, "a: ["),
    "convert": ([], QUEUES, OTHER_KIND, "a: ["),
    "prove": (["never-denies"], PROVED, None, "a: ["),
}
"""What a command that reads standard input is given; what ends it with 0, with 1, with 2."""

OTHERS = {
    "cel functions": (["size"], ["sise"], ["--env", "none"]),
    "library list": ([], None, ["a"]),
    "library copy": (None, None, ["none"]),
    "library show": (["cap-gpus-per-pod"], None, ["cap-gpu-per-pod"]),
    "schema": ([], None, ["--odd"]),
    "crds": ([], None, ["a"]),
    "completion": (["bash"], None, ["fishy"]),
    "background": (None, None, ["--kubeconfig", "none"]),
    "release": (None, None, ["--kubeconfig", "none"]),
    "events": (None, None, ["--kubeconfig", "none"]),
    "doctor": (None, None, ["--kubeconfig", "none"]),
    "takeover start": (None, None, ["--kubeconfig", "none"]),
    "takeover back": (None, None, ["--kubeconfig", "none"]),
    "takeover status": (None, None, ["--kubeconfig", "none"]),
    "init": (["none", "--no-ask", "--dry-run"], None, ["none", "--policy", "none"]),
    "import": (None, None, ["--queue-label", "a", "--kubeconfig", "none"]),
    "stop": (None, None, ["job/j", "--kubeconfig", "none"]),
    "resume": (None, None, ["clusterqueue/a", "--kubeconfig", "none"]),
    "history": (None, None, ["--kubeconfig", "none"]),
    "usage idle": (None, None, ["--prometheus", "none"]),
    "usage rightsize": (None, None, ["--prometheus", "none"]),
    "usage fragmentation": (None, None, ["--prometheus", "none"]),
    "usage hours": (None, None, ["--kubeconfig", "none"]),
}
"""The same of what is given no file: the arguments."""


def run(name, *words, text=""):
    result = CliRunner().invoke(main, [*name.split(), *words], input=text)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert "Aborted!" not in result.output
    assert "Traceback" not in result.output
    return result


def test_the_tables_have_every_command():
    assert ENDS.keys() | OTHERS.keys() | SERVICES == COMMANDS.keys()


@pytest.mark.parametrize("name", ENDS)
@pytest.mark.parametrize("code", [0, 1, 2])
def test_success_findings_and_unusable_input_have_one_exit_code_each(name, code, monkeypatch):
    monkeypatch.chdir(POLICY.parent)
    words, *texts = ENDS[name]
    if texts[code] is None:
        return
    result = run(name, *words, "-", text=texts[code])

    assert result.exit_code == code, result.stderr


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_same_codes_without_a_file(name, code):
    words = OTHERS[name][code]
    if words is not None:
        assert run(name, *words).exit_code == code


@EVERY
def test_a_mistyped_option_ends_with_2_and_the_right_one(name):
    intended = next(o for p in COMMANDS[name].params for o in p.opts if o.startswith("--"))

    result = run(name, f"{intended}x")

    assert result.exit_code == 2
    assert "did you mean" in result.stderr.lower()
    assert intended in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("group", sorted({name.rpartition(" ")[0] for name in COMMANDS}))
def test_a_mistyped_command_ends_with_2_and_the_right_one(group):
    intended = next(n for n in COMMANDS if n.rpartition(" ")[0] == group).rpartition(" ")[2]

    result = run(group, f"{intended}x")

    assert result.exit_code == 2
    assert "did you mean" in result.stderr.lower()
    assert intended in result.stderr


class Interrupted(io.BytesIO):
    def read(self, size=-1):
        if size:
            raise KeyboardInterrupt
        return b""


@pytest.mark.parametrize("name", ENDS)
def test_ctrl_c_ends_with_130_and_without_a_word(name):
    result = CliRunner().invoke(main, [*name.split(), *ENDS[name][0], "-"], input=Interrupted())

    assert (result.exit_code, result.output.strip()) == (130, "")


@EVERY
def test_each_says_when_it_uses_colours_and_heeds_no_color(name):
    options = {option: each for each in COMMANDS[name].params for option in each.opts}

    assert options["--color"].type.choices == ("auto", "always", "never")
    assert options["--no-color"].envvar == "NO_COLOR"
    assert "--color [auto|always|never]" in run(name, "--help").stdout


@pytest.mark.parametrize("name", [name for name in ENDS if name != "apply"])
@pytest.mark.parametrize("wanted", ["always", "never"])
def test_colours_are_there_only_where_they_are_wanted(name, wanted, monkeypatch):
    monkeypatch.chdir(POLICY.parent)
    words, fine, findings, unusable = ENDS[name]
    text = findings or unusable or fine

    shown = CliRunner().invoke(
        main, [*name.split(), "--color", wanted, *words, "-"], input=text, color=True
    )

    assert ("\x1b[" in shown.output) is (wanted == "always")


def outputs(name):
    for each in COMMANDS[name].params:
        if "--output" in each.opts and isinstance(each.type, click.Choice):
            yield from each.type.choices


@pytest.mark.parametrize(
    "name",
    [
        *("why", "queue", "quota", "nodes", "priority", "job", "history", "what-if", "top"),
        *("events", "doctor", "stop", "resume"),
    ],
)
def test_commands_about_a_cluster_print_alike(name):
    options = {each for option in COMMANDS[name].params for each in option.opts}

    assert [*outputs(name)] == ["table", "wide", "json", "yaml"]
    assert ("--watch" in options) is (name not in {"stop", "resume"}), "these change something"


OF_CLUSTERS = {
    *("history", "stop", "resume", "doctor", "events", "import"),
    *("usage idle", "usage rightsize", "usage fragmentation", "usage hours"),
    "takeover status",
}
"""Commands that have nothing to say without a cluster: their output is tested on clusters."""
JSON = {
    name: ENDS.get(name) for name in COMMANDS if "json" in outputs(name) and name not in OF_CLUSTERS
}
KUBERNETES = {"apply", "report", "migrate kueue"}
"""What they write are objects of Kubernetes: labels, or feature gates, are named as they are."""


def members(value):
    if isinstance(value, dict):
        yield from value.items()
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, dict | list):
            yield from members(each)


@pytest.mark.parametrize("name", JSON)
def test_json_has_fields_of_one_case_and_numbers_as_numbers(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path if name == "init" else POLICY.parent)
    words, text = JSON[name][:2] if JSON[name] else ([], "")
    if name == "simulate":
        words = ["--explain", "--defragment", "1"]
    given = [*words, "-"] if JSON[name] else []

    result = run(name, "-o", "json", *given, text=text)

    read = list(members(json.loads(result.stdout)))
    assert read
    odd = [key for key, _ in read if re.search(r"_|^[A-Z]|-", key)]
    texts = [
        (key, text)
        for key, text in read
        if isinstance(text, str) and re.fullmatch(r"-?\d[\d.]*", text) and key != "value"
    ]
    assert name in KUBERNETES or (odd, texts) == ([], [])


WRITTEN = {
    ("up", "--kubeconfig"),
    ("up", "--state"),
    ("library copy", "--to"),
    ("init", "folder"),
    ("simulate", "--chart"),
    ("usage idle", "--chart"),
    ("usage rightsize", "--chart"),
    ("usage fragmentation", "--chart"),
    ("usage hours", "--chart"),
}
"""Files that a command writes, or goes on with."""


def file_parameters():
    """Every option and argument that names a file, of all programs."""
    for name, command in {**COMMANDS, "policyd-webhooks": webhooks}.items():
        for each in command.params:
            named = each.metavar in ("FILE", "PATH") or each.name in ("file", "paths", "policies")
            if named or isinstance(each.type, click.Path | StoredFile):
                yield name, each


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        pytest.param(name, each, id=f"{name} {each.opts[-1]}")
        for name, each in file_parameters()
        if (name, each.opts[-1]) not in WRITTEN
    ],
)
def test_a_dash_is_standard_input_wherever_a_file_is_asked_for(name, parameter):
    kind = parameter.type

    assert isinstance(kind, StoredFile) or (isinstance(kind, click.Path) and kind.allow_dash)


def test_the_files_that_are_written_are_those_that_there_are():
    assert {(name, each.opts[-1]) for name, each in file_parameters()} >= WRITTEN


STORED = [
    pytest.param(command, each.opts[-1], id=f"{name} {each.opts[-1]}")
    for name, each in file_parameters()
    for command in [COMMANDS.get(name, webhooks)]
    if isinstance(each.type, StoredFile)
]


def required_by(command):
    """Arguments without which a command is not called."""
    for each in command.params:
        if each.required:
            yield from (each.opts[-1],) if isinstance(each, click.Option) else ()
            yield str(POLICY) if isinstance(each.type, click.Path) else each.name


@pytest.mark.parametrize(("command", "option"), STORED)
def test_data_that_a_service_reads_again_is_stored_until_it_ends(command, option):
    name = option.lstrip("-").replace("-", "_")
    runner = CliRunner()
    with (
        runner.isolation(input="kind: Configuration"),
        command.make_context("it", [option, "-", *required_by(command)]) as context,
    ):
        (path,) = given if isinstance(given := context.params[name], tuple) else (given,)
        assert Path(path).read_text() == "kind: Configuration"
        assert (
            Path(path).stat().st_mode & 0o077 == 0 or Path(path).parent.stat().st_mode & 0o77 == 0
        )

    assert not Path(path).exists()


def test_standard_input_is_read_once():
    for words in (
        ["controller", "--config", "-", "--policies", "-"],
        ["up", *["--policies", "-"] * 2],
        ["check", "-", "-"],
        ["convert", "-", "-"],
        ["migrate", "kyverno", "-", "-"],
        ["simulate", "-", "--config", "-"],
    ):
        result = run(words[0], *words[1:], text="")
        assert (result.exit_code, "read only once" in result.stderr) == (2, True)


def test_a_broken_policy_on_standard_input_ends_up_at_once():
    result = run("up", "--policies", "-", text=BROKEN)

    assert result.exit_code == 2
    assert "stdin:4:" in result.stderr


def test_a_wrong_configuration_on_standard_input_is_reported():
    result = run("up", "--config", "-", text="apiVersion: a\nkind: Configuration\n")

    assert result.exit_code == 2
    assert "error: " in result.stderr


@pytest.mark.parametrize("name", [name for name in ENDS if name in GIVEN])
def test_a_file_and_standard_input_are_the_same(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = GIVEN[name].texts[0]
    file = tmp_path / GIVEN[name].file
    file.write_text(text)

    by_file = CliRunner().invoke(main, GIVEN[name].arguments(file))
    by_input = CliRunner().invoke(main, GIVEN[name].arguments(Path("-")), input=text)

    assert by_file.exit_code == by_input.exit_code
    assert by_file.stdout.replace(str(file), "stdin") == by_input.stdout


class Bar:
    """What is shown of how far a command is."""

    def __init__(self, shown):
        self.shown = shown

    def add_task(self, what, **_given):
        self.shown.append(what)

    def start(self):
        pass

    stop = start


AT_ONCE = {"cel eval", "cel explain", "job", "nodes", "priority", "queue", "quota", "top", "why"}
"""They go through nothing that takes long: 100,000 workloads are read in a tenth of a second."""


@pytest.mark.parametrize("name", [name for name in ENDS if name not in AT_ONCE])
def test_long_work_shows_progress(name, monkeypatch):
    """Whatever a command goes through is shown if it takes longer than a second."""
    shown = []
    monkeypatch.chdir(POLICY.parent)
    monkeypatch.setattr(progress, "_bar", lambda: Bar(shown))
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", -1)
    monkeypatch.setattr(progress, "sys", SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: 1)))
    words, text = ENDS[name][:2]

    run(name, *words, "-", text=text)

    assert set(shown) - {"reading", "loading"} or name == "devices"
    assert shown
