"""Processes of a control plane: none outlives the Python process that started it.

All of them join one process group, led by a small shell that waits for the end of its standard
input. That end comes when the group is closed, or when Python dies, however it dies: the shell
then kills its whole group, itself included.
"""

import os
import signal
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

POLL_SECONDS = 0.05
STOP_SECONDS = 5.0
"""The API server drains for up to a minute; nothing in a test waits for that."""

LOG_LINES = 25


class ControlPlaneError(Exception):
    """The control plane cannot be started, or one of its processes ended by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command to run, and where it says that it is ready."""

    name: str
    command: tuple[str, ...]
    health: str
    token: str | None = None


class ProcessGroup:
    """A process group that dies with this process."""

    def __init__(self) -> None:
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", 'trap "" HUP INT TERM; read -r _; kill -KILL 0'],
            stdin=subprocess.PIPE,
            process_group=0,
        )
        self.pid = self._guard.pid

    def close(self) -> None:
        """Kill what is left in the group."""
        assert self._guard.stdin is not None, "the guard reads a pipe"
        self._guard.stdin.close()
        self._guard.wait()


class Component:
    """One process of the control plane; it can end and be started again."""

    def __init__(self, program: Program, *, folder: Path, group: ProcessGroup) -> None:
        self.name = program.name
        self.log = folder / f"{program.name}.log"
        self._program = program
        self._folder = folder
        self._group = group
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process's id; it has been started."""
        assert self._process is not None, f"{self.name} has been started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def ended(self) -> bool:
        """Whether the process ended without having been asked to."""
        return self._process is not None and self._process.poll() is not None

    def start(self) -> None:
        """Start the process, appending to its log."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._program.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=environment(self._folder),
                process_group=self._group.pid,
            )

    def wait_ready(self, deadline: float) -> None:
        """Wait until the process says that it is ready.

        Raises:
            ControlPlaneError: If it ends, or is not ready at `deadline` (monotonic seconds).
        """
        answer = "no answer"
        while time.monotonic() < deadline:
            if self.ended:
                raise ControlPlaneError(self._trouble("ended while starting"))
            answer = probe(self._program)
            if answer == "ok":
                return
            time.sleep(POLL_SECONDS)
        raise ControlPlaneError(self._trouble(f"is not ready: {answer}"))

    def stop(self) -> None:
        """Ask the process to end, and kill it if it does not within `STOP_SECONDS`."""
        if self._process is None:
            return
        self.resume()
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process.wait()
        self._process = None

    def wait(self) -> int:
        """Wait until the process ends by itself, and return its exit code."""
        assert self._process is not None, f"{self.name} has been started"
        return self._process.wait()

    def kill(self) -> None:
        """End the process as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop the process's clock: its connections stay open, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.running:
            assert self._process is not None, "it runs"
            self._process.send_signal(number)

    def _trouble(self, what: str) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return "\n".join([f"{self.name} {what}; the end of its log:", *lines])


def probe(program: Program) -> str:
    """Ask a program whether it is ready: `ok`, or what it answered instead."""
    request = urllib.request.Request(program.health)
    if program.token is not None:
        request.add_header("Authorization", f"Bearer {program.token}")
    try:
        with urllib.request.urlopen(request, timeout=2, context=UNVERIFIED):
            return "ok"
    except urllib.error.HTTPError as error:
        with error:
            return f"status {error.code}"
    except OSError as error:
        return str(error)


def environment(folder: Path) -> Mapping[str, str]:
    """Return what a process needs of the environment: nobody's settings, and no proxy.

    Programs in Go collect garbage four times more rarely: that takes an eighth of the time of an
    API server that starts.
    """
    return {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(folder), "GOGC": "400"}


# The certificates are made by the processes themselves as they start.
UNVERIFIED = ssl._create_unverified_context()
