"""The controllers that are measured, each a process of its own."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMANDS = Path(sys.executable).parent
NULL = "null controller"
WAIT_SECONDS = 300
"""Until a controller has read all there is."""
CONFIGURATION = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
featureGates: {DisableWaitForPodsReady: true}
"""
"""There are no pods to wait for: Kueue's own harness has it off too."""


@contextmanager
def controller(who: str, kubeconfig: str, log: Path) -> Iterator[int]:
    """Run a controller from when it leads until the end of the block; yield its process id."""
    command = [sys.executable, "-m", "tests.bench_cluster.null", kubeconfig]
    if who != NULL:
        configuration = log.with_name("configuration.yaml")
        configuration.write_text(CONFIGURATION)
        command = [str(COMMANDS / "policyd"), "controller", "--kubeconfig", kubeconfig]
        command += ["--config", str(configuration)]
    with log.open("wb") as written, subprocess.Popen(command, stdout=written, stderr=written) as p:
        try:
            _until_leading(p, log)
            yield p.pid
        finally:
            p.kill()


def tail(log: Path) -> str:
    """Return the end of what a controller has logged."""
    return log.read_text(errors="replace")[-2000:]


def _until_leading(process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until a controller has begun its work."""
    deadline = time.monotonic() + WAIT_SECONDS
    while b"leading" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the controller does not start:\n{tail(log)}")
        time.sleep(0.1)
