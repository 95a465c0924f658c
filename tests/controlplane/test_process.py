"""No process of a control plane outlives the one that started it."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.controlplane.process import Component, ControlPlaneError, ProcessGroup, Program
from tests.controlplane.programs import find_binaries

ORPHAN = """
import os, signal, sys
from pathlib import Path
from tests.controlplane.process import Component, ProcessGroup, Program

program = Program(name="sleep", command=("/bin/sleep", "600"), health="http://127.0.0.1:1/")
sleep = Component(program, folder=Path(sys.argv[1]), group=ProcessGroup())
sleep.start()
print(sleep.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

ROOT = Path(__file__).parents[2]


@pytest.fixture
def group():
    group = ProcessGroup()
    yield group
    group.close()


@pytest.fixture
def component(group, tmp_path):
    """Start a command in the group, and stop it after the test."""
    started = []

    def start(*command):
        program = Program(name="program", command=command, health="http://127.0.0.1:1/")
        started.append(Component(program, folder=tmp_path, group=group))
        started[-1].start()
        return started[-1]

    yield start
    for component in started:
        component.stop()


def alive(pid):
    """Tell whether a process runs; one that ended and waits for its parent to notice does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_a_killed_parent_takes_its_processes_with_it(tmp_path):
    parent = subprocess.run(
        [sys.executable, "-c", ORPHAN, tmp_path], cwd=ROOT, capture_output=True, check=False
    )

    pid = int(parent.stdout)
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not alive(pid)


def test_closing_the_group_ends_what_is_left_in_it(component, group):
    sleep = component("/bin/sleep", "600")

    group.close()

    assert sleep.wait() < 0


def test_a_paused_process_can_be_stopped(component):
    sleep = component("/bin/sleep", "600")
    sleep.pause()

    sleep.stop()

    assert not sleep.running


def test_a_process_that_is_never_ready_is_an_error_with_its_log(component):
    talker = component("/bin/sh", "-c", "echo something is wrong; sleep 600")

    with pytest.raises(ControlPlaneError, match=r"is not ready.*refused"):
        talker.wait_ready(time.monotonic() + 0.2)


def test_a_process_sees_nobodys_settings(component):
    os.environ["HTTPS_PROXY"] = "http://proxy.invalid"
    try:
        printer = component("/usr/bin/env")
    finally:
        del os.environ["HTTPS_PROXY"]
    printer.wait()

    assert "proxy" not in printer.log.read_text()


def test_binaries_that_are_not_built_are_an_error_that_says_how(monkeypatch, tmp_path):
    monkeypatch.setenv("POLICYD_CACHE", str(tmp_path))

    with pytest.raises(ControlPlaneError, match=r"not built yet: etcd, .* run `make controlplane`"):
        find_binaries()
