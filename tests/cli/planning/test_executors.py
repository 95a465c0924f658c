"""Scenarios in several processes: one that is killed costs time, and no result."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from policyd.cli.planning.executors import RETRIES, Scenarios, run_here
from policyd.errors import PolicydError
from tests.cli.planning.test_sweeps import SWEEP, simulate_sweep, trace_of

PATIENCE_SECONDS = 120.0


def killed_once(folder: str, number: int) -> tuple[int, int]:
    """Square a number; the process that squares 3 is killed the first time."""
    file = Path(folder) / "killed"
    if number == 3 and not file.exists():
        file.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number, number**2


def always_killed(folder: str, number: int) -> int:
    """Note each attempt, and kill the process."""
    (Path(folder) / f"{number}-{time.monotonic_ns()}").touch()
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_what_a_killed_process_left_is_simulated_again(tmp_path):
    found = run_here(Scenarios(str(tmp_path), 6, killed_once), workers=2)

    assert (tmp_path / "killed").exists()
    assert found == [(number, number**2) for number in range(6)]


def test_processes_that_are_killed_again_and_again_are_an_error(tmp_path):
    with pytest.raises(PolicydError, match="processes of the sweep were killed in a row") as error:
        run_here(Scenarios(str(tmp_path), 2, always_killed), workers=2)

    assert "--workers 1" in error.value.hint
    assert len(list(tmp_path.iterdir())) >= RETRIES + 1


@pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc")
def test_a_sweep_has_the_same_results_after_a_worker_was_killed(tmp_path):
    trace = trace_of(tmp_path, jobs=200)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    here = simulate_sweep(trace, "--workers", 1)
    command = [sys.executable, "-m", "policyd", "simulate", "--trace", str(trace), "-o", "json"]
    command += ["--sweep", str(tmp_path / "sweep.yaml"), "--workers", "2"]

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        kill_one(running.pid)
        output, _ = running.communicate(timeout=PATIENCE_SECONDS)

    assert running.returncode == 0
    assert output == here.stdout


def kill_one(parent: int) -> None:
    """Kill a worker of a process, once it has computed for a moment."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for file in Path("/proc").glob("[0-9]*/stat"):
            try:
                of = file.read_text().rpartition(")")[2].split()
                title = (file.parent / "cmdline").read_text()
            except OSError:
                continue
            if int(of[1]) == parent and "spawn_main" in title and int(of[11]) > 40:
                os.kill(int(file.parent.name), signal.SIGKILL)
                return
        time.sleep(0.02)
    raise AssertionError("no worker computed")
