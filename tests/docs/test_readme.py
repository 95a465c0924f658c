"""The README's first commands: what the tests of its other lines leave out."""

import os
import signal
import subprocess

from tests.docs.pages import PROJECT, blocks, commands
from tests.docs.shell import project_copy
from tests.scenarios.api import eventually

README = PROJECT / "README.md"


def lines_not_run():
    left_out = (b for b in blocks(README) if b.language == "console" and b.remark)
    return [command.line for block in left_out for command in commands(block)]


def test_the_readme_leaves_nothing_out_but_what_is_run_here():
    assert lines_not_run() == ["make run", "make test"]


def test_make_test_runs_the_tests():
    planned = subprocess.run(
        ["make", "-n", "test"], cwd=PROJECT, capture_output=True, text=True, check=True
    )

    assert "pytest" in planned.stdout


def test_make_run_is_ready_and_ends_with_ctrl_c(tmp_path):
    root = project_copy(tmp_path)
    (root / ".venv").mkdir()
    (root / ".venv" / "bin").symlink_to(PROJECT / ".venv" / "bin")
    (root / ".venv" / ".installed").touch()
    log = tmp_path / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            ["make", "run"], cwd=root, stdout=out, stderr=out, start_new_session=True
        )
    try:
        eventually(lambda: "export KUBECONFIG=" in log.read_text(), what="`make run` is ready")
    finally:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(timeout=30)

    output = log.read_text()
    assert f"export KUBECONFIG={root}/.policyd/kubeconfig" in output
    assert "Ctrl-C ends it." in output
    assert "[warning" not in output
    assert "Traceback" not in output
