"""A shell that runs a page's commands one after the other, as a reader's does."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.docs.pages import PROJECT

LONGEST_SECONDS = 240
"""What a command may take before the shell is killed."""

COPIED = ("docs", "policies")
"""Folders that a page may change, so that it gets its own."""

CANCELLED_WATCH = re.compile(r"I\d{4} \S+ +\d+ reflector\.go:\d+\] .*context canceled")
"""What `kubectl wait` prints now and then as it ends."""


@dataclass(frozen=True)
class Printed:
    """What a command printed, on stdout and stderr, and what it exited with."""

    text: str
    code: int


class Shell:
    """Bash in a copy of the project: folder, variables and exit code last from line to line."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            cwd=folder,
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        _at: TracebackType | None,
    ) -> None:
        self._kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()

    def run(self, line: str) -> Printed:
        """Run a command, which may have several lines."""
        mark = "--- ended with"
        script = (
            f"{{ {line}\n}} </dev/null\n_code=$?; printf '\\n{mark} %s\\n' $_code; (exit $_code)\n"
        )
        watchdog = threading.Timer(LONGEST_SECONDS, self._kill)
        watchdog.start()
        try:
            self._process.stdin.write(script)
            self._process.stdin.flush()
            return self._read(mark)
        finally:
            watchdog.cancel()

    def _read(self, mark: str) -> Printed:
        lines = []
        for line in self._process.stdout:
            ended = re.fullmatch(rf"{mark} (\d+)\n", line)
            if ended:
                return Printed("".join(lines).strip("\n"), int(ended[1]))
            if not CANCELLED_WATCH.match(line):
                lines.append(line)
        raise AssertionError(f"the shell ended: {''.join(lines)}")

    def _kill(self) -> None:
        """End the shell and all that runs in its background."""
        try:
            os.killpg(self._process.pid, signal.SIGTERM)
        except ProcessLookupError:
            return


def project_copy(folder: Path) -> Path:
    """Return a folder that looks like the project's root, and may be changed."""
    copy = folder / "policyd"
    copy.mkdir()
    for entry in PROJECT.iterdir():
        if entry.name in COPIED:
            shutil.copytree(entry, copy / entry.name)
        elif not entry.name.startswith("."):
            (copy / entry.name).symlink_to(entry)
    return copy


def path_with(folder: Path, *programs: Path) -> str:
    """Return a PATH on which policyd's commands and `programs` come first."""
    folder.mkdir()
    for program in programs:
        (folder / program.name).symlink_to(program)
    return os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
