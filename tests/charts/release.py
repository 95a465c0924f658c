"""helm as its users run it, and policyd's processes as the installed Deployments describe them."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.controlplane.process import environment
from tests.controlplane.programs import find_binaries
from tests.controlplane.server import ControlPlane
from tests.kube.test_connection import pair

CHART = Path(__file__).parents[2] / "charts" / "policyd"
NAMESPACE = "policyd-system"
RELEASE = "policyd"
WEBHOOKS, CONTROLLER = f"{RELEASE}-webhooks", f"{RELEASE}-controller"

VISIBILITY_APIS = ("v1beta2.visibility.kueue.x-k8s.io", "v1alpha1.visibility.policyd.io")
"""APIServices that the controller answers."""

RUN_BY_HAND = {"Deployment", "PodDisruptionBudget", "NetworkPolicy", "Policy"}
"""Kinds of a release that a test does without which runs the processes itself."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """How a run of helm ended."""

    code: int
    out: str
    err: str


def helm(*arguments: object, folder: Path, kubeconfig: Path | None = None) -> Done:
    """Run helm with settings of nobody's, and return how it ended."""
    to = [f"--kubeconfig={kubeconfig}"] if kubeconfig else []
    done = subprocess.run(
        [find_binaries() / "helm", *map(str, arguments), *to],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment(folder),
        cwd=folder,
    )
    return Done(code=done.returncode, out=done.stdout, err=done.stderr)


def on(control_plane: ControlPlane, *arguments: object) -> str:
    """Run helm on a control plane, in policyd's namespace, and return what it prints."""
    folder = control_plane.site.folder
    done = helm(
        *arguments, f"--namespace={NAMESPACE}", folder=folder, kubeconfig=control_plane.kubeconfig
    )
    assert done.code == 0, done.err
    return done.out


def set_values(values: dict[str, object]) -> list[str]:
    """Return the options that set values, of any type."""
    return [f"--set-json={key}={json.dumps(value)}" for key, value in values.items()]


def objects(control_plane: ControlPlane, *arguments: str) -> list[dict[str, Any]]:
    """Return what kubectl finds."""
    return json.loads(control_plane.kubectl("get", *arguments, "-o=json"))["items"]


def deployed_command(control_plane: ControlPlane, name: str) -> list[str]:
    """Return what a Deployment of the release has its container run."""
    found = control_plane.kubectl("get", "deployment", name, "-n", NAMESPACE, "-o=json")
    container = json.loads(found)["spec"]["template"]["spec"]["containers"][0]
    program, *more = container["command"]
    return [str(Path(sys.executable).parent / program), *more, *container["args"]]


def account_kubeconfig(
    control_plane: ControlPlane, account: str, namespace: str = NAMESPACE
) -> Path:
    """Write a kubeconfig with a token of one of a release's accounts."""
    asked = ("create", "token", account, "-n", namespace, "--duration=24h")
    token = control_plane.kubectl(*asked).strip()
    config = json.loads(control_plane.kubeconfig.read_text())
    config["users"] = [{"name": account, "user": {"token": token}}]
    context = {"cluster": config["clusters"][0]["name"], "user": account, "namespace": namespace}
    config["contexts"] = [{"name": account, "context": context}]
    config["current-context"] = account
    file = control_plane.site.folder / f"{account}.kubeconfig"
    file.write_text(json.dumps(config))
    return file


@dataclass(frozen=True, kw_only=True)
class Accounts:
    """Who policyd's processes are on a control plane: kubeconfigs of its two accounts."""

    webhooks: Path
    controller: Path
    port: int
    """Of the webhooks on this machine, which their Service leads to."""


def accounts(control_plane: ControlPlane, *, port: int, **values: object) -> Accounts:
    """Give a control plane what a release has beside its pods: accounts, with all that binds them.

    Args:
        control_plane: The control plane; policyd's kinds are there.
        port: Where the webhooks will listen on this machine.
        values: Of the chart, a dot of their names written as `__`.
    """
    given = {name.replace("__", "."): value for name, value in values.items()}
    given["webhooks.service.port"] = port
    # What nothing answers keeps namespaces from being deleted, and makes kubectl complain.
    given.setdefault("controller.visibility.enabled", False)
    found = [item for item in rendered(given) if item["kind"] not in RUN_BY_HAND]
    control_plane.kubectl("create", "namespace", NAMESPACE)
    control_plane.kubectl("create", "-f", "-", stdin=yaml.safe_dump_all(found))
    lead_to_this_machine(control_plane, WEBHOOKS)
    return Accounts(
        webhooks=account_kubeconfig(control_plane, WEBHOOKS),
        controller=account_kubeconfig(control_plane, CONTROLLER),
        port=port,
    )


def rendered(values: dict[str, object], chart: Path = CHART) -> list[dict[str, Any]]:
    """Return the objects that helm makes of a chart."""
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--namespace={NAMESPACE}", *set_values(values)]
        done = helm("template", RELEASE, chart, *options, folder=Path(folder))
    assert done.code == 0, done.err
    return [item for item in yaml.safe_load_all(done.out) if item]


def lead_to_this_machine(
    control_plane: ControlPlane, service: str, namespace: str = NAMESPACE
) -> None:
    """Have a Service mean this machine, as kube-proxy would have it mean the pods."""
    here: dict[str, object] = {"type": "ExternalName", "externalName": "localhost"}
    spec = here | {"clusterIP": None, "clusterIPs": None}
    patch = json.dumps({"spec": spec})
    control_plane.kubectl("patch", "service", service, "-n", namespace, "--patch", patch)


def front_proxy(folder: Path) -> list[str]:
    """Return the flags by which an API server passes requests on, as all but bare ones have."""
    certificate, key = (folder / f"front-proxy.{what}" for what in ("crt", "key"))
    for file, text in zip((certificate, key), pair("front-proxy"), strict=True):
        file.write_bytes(text)
    return [
        f"--requestheader-client-ca-file={certificate}",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={certificate}",
        f"--proxy-client-key-file={key}",
    ]


def lead_visibility_to_this_machine(control_plane: ControlPlane, port: int) -> None:
    """Have the APIServices of the controller mean a port of this machine."""
    lead_to_this_machine(control_plane, f"{CONTROLLER}-visibility")
    patch = json.dumps({"spec": {"service": {"port": port}}})
    for name in VISIBILITY_APIS:
        control_plane.kubectl("patch", "apiservice", name, "--patch", patch)


def names(items: Sequence[dict[str, Any]]) -> set[str]:
    """Return the objects' names."""
    return {item["metadata"]["name"] for item in items}
