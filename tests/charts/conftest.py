"""The chart, installed by helm on a real control plane, with policyd's processes beside it."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from policyd.cli import demo
from policyd.engine.offline.report import APIS
from tests.charts import release
from tests.charts.release import CHART, CONTROLLER, NAMESPACE, RELEASE, WEBHOOKS
from tests.charts.rights import audit_flags
from tests.controlplane.programs import API_SERVER, COMPONENTS, ETCD, KWOK, free_ports
from tests.controlplane.server import ControlPlane
from tests.report_kinds import definitions
from tests.scenarios.api import Api, eventually
from tests.scenarios.clusters import Process, created, webhooks_are_ready

STRICT = "OwnerReferencesPermissionEnforcement"
"""What some distributions add: who makes an object that keeps its owner needs rights on that."""


@dataclass(kw_only=True)
class Installation:
    """A release, and the processes that its pods would run."""

    control_plane: ControlPlane
    api: Api
    folder: Path
    values: dict[str, object]
    webhooks: Process
    controller: Process

    def helm(self, *arguments: object) -> str:
        return release.on(self.control_plane, *arguments)


@dataclass(frozen=True, kw_only=True)
class ReleaseBefore:
    """What is installed of another release than this one.

    Attributes:
        chart: Its chart.
        webhooks: The command of its webhooks, before their options.
    """

    chart: Path
    webhooks: list[str]


@contextmanager
def installation(
    folder: Path,
    *,
    components=COMPONENTS,
    more: dict[str, object] | None = None,
    before: ReleaseBefore | None = None,
) -> Iterator[Installation]:
    """Install the chart on a new control plane, and run what it describes, as its accounts.

    Args:
        folder: Where the processes log.
        components: Of the control plane.
        more: Values of the chart besides those that its tests need.
        before: The chart and the webhooks of another release than this one.
    """
    flags = {API_SERVER: [*audit_flags(folder), f"--enable-admission-plugins={STRICT}"]}
    with ControlPlane(flags=flags, components=components) as control_plane, ExitStack() as stack:
        api = Api(control_plane.kubeconfig)
        chart = before.chart if before else CHART
        values = installed(control_plane, api, more or {}, chart=chart, wait=KWOK in components)
        release.lead_to_this_machine(control_plane, WEBHOOKS)
        webhooks, controller = (
            process(control_plane, name, folder) for name in (WEBHOOKS, CONTROLLER)
        )
        if before:
            webhooks.arguments[:1] = before.webhooks
        for each in (webhooks, controller):
            each.start()
            stack.callback(each.stop)
        for item in demo.teams():
            eventually(lambda item=item: created(api, item), what=f"{item['kind']} is served")
        eventually(
            lambda: webhooks_are_ready(api, (webhooks, controller)), what="the webhook is open"
        )
        yield Installation(
            control_plane=control_plane,
            api=api,
            folder=folder,
            values=values,
            webhooks=webhooks,
            controller=controller,
        )


def installed(
    control_plane: ControlPlane,
    api: Api,
    more: dict[str, object],
    *,
    chart: Path = CHART,
    wait: bool,
) -> dict[str, object]:
    """Run `helm install` for a namespace that takes no other pods than restricted ones."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    metadata = {"name": NAMESPACE, "labels": labels}
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    for definition in definitions(APIS[1]):
        api.create(definition)
    ports = free_ports(["webhooks", "metrics", "health"])
    values: dict[str, object] = {
        "policies.enabled": True,
        "webhooks.authorizer": True,
        "webhooks.paramKinds": [{"apiGroup": "", "resource": "configmaps"}],
        "reports.enabled": True,
        "reports.apiGroups": [APIS[1].group],
        "webhooks.port": ports["webhooks"],
        "webhooks.metricsPort": ports["metrics"],
        "webhooks.service.port": ports["webhooks"],
        "webhooks.drainSeconds": 0,
        "controller.healthPort": ports["health"],
        "controller.visibility.enabled": False,  # tests/charts/test_visibility.py has it on
        **more,
    }
    if wait:
        control_plane.add_nodes("system-1", "system-2")
        for node in demo.nodes():
            api.create(node)
    waiting = ["--wait", "--timeout=2m"] if wait else []
    release.on(control_plane, "install", RELEASE, chart, *release.set_values(values), *waiting)
    return values


def process(control_plane: ControlPlane, name: str, folder: Path, *, log: str = "") -> Process:
    """Return what a Deployment of the release runs, with its account's token, and where it logs."""
    command = release.deployed_command(control_plane, name)
    kubeconfig = release.account_kubeconfig(control_plane, name)
    return Process([*command, "--kubeconfig", str(kubeconfig)], folder / f"{log or name}.log")


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """The chart installed where pods run."""
    with installation(tmp_path_factory.mktemp("whole")) as running:
        yield running


@pytest.fixture(scope="session")
def bare(tmp_path_factory):
    """An API server that has the chart's kinds, and a namespace for a release."""
    with ControlPlane(components=(ETCD, API_SERVER)) as control_plane:
        control_plane.kubectl("apply", "-f", str(CHART / "crds"))
        control_plane.kubectl("create", "namespace", NAMESPACE)
        yield control_plane
