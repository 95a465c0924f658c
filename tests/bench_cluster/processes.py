"""The controllers that are measured, each a process of its own, and what is installed for them."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from tests.bench_cluster.loads import LOADS, workload
from tests.charts.release import CHART, NAMESPACE, RELEASE, accounts, helm
from tests.controlplane.credentials import User
from tests.controlplane.process import ControlPlaneError
from tests.controlplane.server import ControlPlane
from tests.scenarios.api import eventually

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
PORT = 443
"""Of webhooks that do not run: workloads are made by hand."""
MANAGED_FIELDS = "templates/controller/managedfields.yaml"
"""What saves the API server work, in policyd's chart; a null controller has none."""
MAKER = User(
    name=f"system:serviceaccount:{NAMESPACE}:{RELEASE}-controller", groups=("system:masters",)
)
"""Who makes the workloads: in a cluster it is the controller, from jobs."""


def install(who: str, control_plane: ControlPlane, folder: Path, *, bound: bool) -> Path:
    """Create Kueue's kinds, slim, and for policyd what its chart has for Workloads.

    Args:
        who: The controller that is to run.
        control_plane: Where.
        folder: For helm.
        bound: Whether policyd has its chart's account, with the roles and policies that bind it.

    Returns:
        The kubeconfig of the controller: an administrator's, unless it is bound.
    """
    crds = subprocess.run(
        [COMMANDS / "policyd", "crds"], capture_output=True, text=True, check=True
    ).stdout
    control_plane.kubectl("create", "-f", "-", stdin=crds)
    names = [document["metadata"]["name"] for document in yaml.safe_load_all(crds)]
    control_plane.wait_for("crd", *names, condition="condition=Established")
    if who != NULL:
        served = "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
        given = (f"--namespace={NAMESPACE}", f"--show-only={MANAGED_FIELDS}", served)
        done = helm("template", RELEASE, CHART, *given, folder=folder)
        control_plane.kubectl("create", "-f", "-", stdin=done.out)
        eventually(lambda: _notes_nothing(control_plane), what="the policy is in force")
        if bound:
            return accounts(control_plane, port=PORT).controller
    return control_plane.kubeconfig


def _notes_nothing(control_plane: ControlPlane) -> bool:
    """Tell whether the chart's policy is in force: for some seconds, such workloads are refused."""
    probe = json.dumps(workload("default", LOADS["baseline"].classes[0], 0))
    how = ("--dry-run=server", "--show-managed-fields", "-o=json")
    try:
        made = control_plane.kubectl("create", *how, "-f", "-", stdin=probe, user=MAKER.name)
    except ControlPlaneError as error:
        if "There can be a delay" in str(error):
            return False
        raise
    return "managedFields" not in json.loads(made)["metadata"]


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
