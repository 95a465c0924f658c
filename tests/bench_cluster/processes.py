"""The controllers that are measured, each a process of its own, and what is installed for them."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.charts.release import CHART, RELEASE, helm
from tests.controlplane.server import ControlPlane

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
MANAGED_FIELDS = "templates/controller/managedfields.yaml"
"""What saves the API server work, in policyd's chart; a null controller has none."""


def install(who: str, control_plane: ControlPlane, folder: Path) -> None:
    """Create Kueue's kinds, slim, and for policyd what its chart has for Workloads on request."""
    crds = subprocess.run(
        [COMMANDS / "policyd", "crds"], capture_output=True, text=True, check=True
    ).stdout
    control_plane.kubectl("create", "-f", "-", stdin=crds)
    names = [document["metadata"]["name"] for document in yaml.safe_load_all(crds)]
    control_plane.wait_for("crd", *names, condition="condition=Established")
    if who != NULL:
        served = "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
        given = ("--set=controller.managedFields=false", f"--show-only={MANAGED_FIELDS}", served)
        done = helm("template", RELEASE, CHART, *given, folder=folder)
        control_plane.kubectl("create", "-f", "-", stdin=done.out)


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
