"""What pages show in a console is what happens: every command runs, and prints what is shown.

Commands of a page run in order, in one shell. YAML whose fence names a file is written there, as
the page asks its reader to. A page that uses kubectl gets an embedded cluster of its own, or a bare
real one if its fences say `real cluster`; the test of takeovers runs those that say `Kueue`. What
is shown below a command is all that it prints; `…` stands for anything.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from policyd.cli import demo
from tests.docs.pages import KUEUE, PROJECT, Block, Command, blocks, commands, matches, pages
from tests.docs.shell import Printed, Shell, path_with, project_copy
from tests.usage.loopback import FakePrometheus, serving

NOT_RUN = "no-run"
REAL = "real cluster"
NOT_RUN_AT_MOST = 15
PATIENCE_SECONDS = 20.0
WITHOUT_GPUS = {"cpu": "16", "memory": "64Gi", "pods": "110"}
"""What a node offers that is there for everything else."""

READING = ("kubectl get", "kubectl describe", "kubectl events", "kubectl policyd", "curl")
"""Commands that are repeated until they print what is shown: readers are slower than tests."""


def consoles(page) -> list[Block]:
    return [block for block in blocks(page) if block.language == "console"]


def is_run(block: Block) -> bool:
    return block.language == "console" and not block.remark.startswith((NOT_RUN, KUEUE))


def run_consoles(page) -> list[Block]:
    return [block for block in blocks(page) if is_run(block)]


def page_commands(page) -> list[Command]:
    return [command for block in run_consoles(page) for command in commands(block)]


def needs_cluster(page) -> bool:
    return any("kubectl" in command.line for command in page_commands(page))


def page_params():
    for page in pages():
        if run_consoles(page):
            marks = [pytest.mark.e2e] if needs_cluster(page) else []
            yield pytest.param(page, id=str(page.relative_to(PROJECT)), marks=marks)


@pytest.mark.parametrize("page", list(page_params()))
def test_commands_print_what_the_page_shows(page, tmp_path):
    with ExitStack() as stack:
        programs, variables = [], {"HOME": str(tmp_path), "COLUMNS": "100"}
        if needs_cluster(page):
            programs, added = stack.enter_context(cluster(page, tmp_path))
            variables |= added
        if any("$PROMETHEUS" in command.line for command in page_commands(page)):
            variables["PROMETHEUS"] = stack.enter_context(serving(FakePrometheus()))
        variables["PATH"] = path_with(tmp_path / "bin", *programs)
        root = project_copy(tmp_path)
        shell = stack.enter_context(Shell(root, variables))
        for block in blocks(page):
            follow(block, shell, root)


def follow(block: Block, shell: Shell, root: Path) -> None:
    """Do what a block asks the reader to: save a file, or type commands."""
    if block.language in ("yaml", "yml") and block.remark:  # `yml` has mistakes that are meant
        file = root / block.remark
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block.text)
    elif is_run(block):
        for command in commands(block):
            check(command, run(shell, command))


@contextmanager
def cluster(page, folder) -> Iterator[tuple[list, dict[str, str]]]:
    """A cluster for one page: its programs, and the variables that lead to it."""
    from tests.controlplane.programs import find_binaries  # noqa: PLC0415 - built for e2e only
    from tests.controlplane.server import ControlPlane  # noqa: PLC0415
    from tests.scenarios import clusters  # noqa: PLC0415

    kubectl, helm = (find_binaries() / name for name in ("kubectl", "helm"))
    if any(block.remark.startswith(REAL) for block in consoles(page)):
        with ControlPlane() as control_plane:
            for node in demo.nodes():
                clusters.Api(control_plane.kubeconfig).create(node)
            control_plane.add_nodes("cpu-1", "cpu-2", allocatable=WITHOUT_GPUS)
            yield [kubectl, helm], {"KUBECONFIG": str(control_plane.kubeconfig)}
        return
    with clusters.embedded(folder) as embedded:
        yield [kubectl], {"KUBECONFIG": str(embedded.kubeconfig)}


def run(shell: Shell, command: Command) -> Printed:
    """Run a command; one that only reads, until it prints what is shown."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        printed = shell.run(command.line)
        settled = not command.line.startswith(READING) or fits(command, printed)
        if settled or time.monotonic() > deadline:
            return printed
        time.sleep(0.2)


def fits(command: Command, printed: Printed) -> bool:
    """Tell whether the output is as shown; a command shown without output must succeed."""
    if not command.shown:
        return printed.code == 0
    return matches(command.shown, printed.text)


def check(command: Command, printed: Printed) -> None:
    shown = command.shown or "(nothing: it has to succeed)"
    assert fits(command, printed), (
        f"{command.place}: $ {command.line}\n--- printed, exit code {printed.code}\n{printed.text}"
        f"\n--- shown\n{shown}"
    )


@pytest.mark.parametrize(
    "block", [pytest.param(b, id=b.place) for page in pages() for b in consoles(page)]
)
def test_a_console_block_has_commands_and_a_reason_if_it_is_not_run(block):
    assert commands(block), "no line begins with `$ `"
    reason = block.remark.removeprefix(NOT_RUN).strip(" —:")
    assert reason or not block.remark, "`no-run` says why"


def test_few_blocks_are_not_run():
    every = [block for page in pages() for block in consoles(page)]
    left_out = [block.place for block in every if block.remark.startswith(NOT_RUN)]

    assert len(left_out) <= NOT_RUN_AT_MOST, left_out


@pytest.mark.parametrize(
    ("shown", "printed", "alike"),
    [
        pytest.param("a  b", "a b", True, id="columns-may-move"),
        pytest.param("a\nb", "a   \nb\n", True, id="spaces-at-the-end-do-not-count"),
        pytest.param("a … c", "a b c", True, id="anything-within-a-line"),
        pytest.param("a\n…\nd", "a\nb\nc\nd", True, id="any-lines"),
        pytest.param("a", "a\nb", False, id="more-than-is-shown"),
        pytest.param("b", "a\nb", False, id="less-at-the-top-is-shown"),
        pytest.param("a\nb", "b\na", False, id="another-order"),
    ],
)
def test_output_is_compared_as_a_whole(shown, printed, alike):
    assert matches(shown, printed) is alike


def test_a_shell_keeps_folder_variables_and_exit_code(tmp_path):
    with Shell(tmp_path, {}) as shell:
        shell.run("mkdir inner && cd inner && export WORD=said")
        failed = shell.run("false")

        assert failed.code == 1
        assert shell.run("echo $? $WORD $(basename $PWD)").text == "1 said inner"


def test_a_shell_takes_heredocs_and_shows_stderr(tmp_path):
    with Shell(tmp_path, {}) as shell:
        printed = shell.run("cat <<'EOF' >&2\n$ not a prompt\nEOF")

    assert printed.text == "$ not a prompt"
