"""An upgrade from webhook configurations of the former name: pods are guarded at every moment."""

import json
import shutil
import sys
from contextlib import ExitStack

import pytest

from policyd.registration.configurations import FORMER_NAME, NAME
from tests.charts import release
from tests.charts.conftest import ReleaseBefore, installation
from tests.charts.release import CHART, RELEASE
from tests.charts.test_lifecycle import CONFIGURATIONS, refuse_all, refused
from tests.charts.test_upgrade import Load, done, roll_out
from tests.controlplane.programs import free_ports
from tests.scenarios.api import eventually
from tests.scenarios.clusters import find_failures

pytestmark = pytest.mark.e2e

VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


def chart_before(folder):
    """Copy the chart, with the former name in place of the name."""
    chart = folder / "chart"
    shutil.copytree(CHART, chart)
    for file in (chart / "templates").rglob("*"):
        if file.is_file():
            text = file.read_text().replace(FORMER_NAME, "older.policyd.io")
            file.write_text(text.replace(NAME, FORMER_NAME))
    return chart


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A release of the former name, and a policy that refuses."""
    folder = tmp_path_factory.mktemp("former")
    program = [sys.executable, "-m", "tests.charts.release_before"]
    before = ReleaseBefore(chart=chart_before(folder), webhooks=program)
    with installation(folder, before=before) as installed, ExitStack() as stack:
        installed.started = lambda each: stack.callback(each.stop)
        installed.api.create(refuse_all("closed"))
        eventually(lambda: "no pod may be made" in refused(installed.api), what="it holds")
        yield installed


def configurations(control_plane):
    """Return the number of webhooks in each configuration, by kind and name."""
    return {
        (kind.removesuffix("webhookconfigurations"), item["metadata"]["name"]): len(
            item.get("webhooks", [])
        )
        for kind in CONFIGURATIONS
        for item in release.objects(control_plane, kind)
    }


def guards_since(control_plane, version):
    """Yield, for each write since then, the names of the configurations that guard after it."""
    asked = f"{VALIDATING}?watch=1&resourceVersion={version}&timeoutSeconds=3"
    guards = {FORMER_NAME}
    for line in control_plane.kubectl("get", "--raw", asked).splitlines():
        event = json.loads(line)
        name = event["object"]["metadata"]["name"]
        fails = [w for w in event["object"].get("webhooks", []) if w["failurePolicy"] == "Fail"]
        guards.discard(name)
        if fails and event["type"] != "DELETED":
            guards.add(name)
        yield frozenset(guards)


def test_an_upgrade_replaces_the_former_configurations_without_a_gap(running):
    control_plane = running.control_plane
    ports = free_ports(["webhooks", "metrics", "health"])
    after = running.values | {
        "webhooks.port": ports["webhooks"],
        "webhooks.service.port": ports["webhooks"],
        "webhooks.metricsPort": ports["metrics"],
        "controller.healthPort": ports["health"],
    }
    registered = configurations(control_plane)
    assert {name for _, name in registered} == {FORMER_NAME}
    listed = json.loads(control_plane.kubectl("get", "--raw", VALIDATING))
    since = listed["metadata"]["resourceVersion"]

    with Load(running, "up")() as up:
        running.helm("upgrade", RELEASE, CHART, *release.set_values(after))
        installed = configurations(control_plane)
        assert all(installed.get(former) for former in registered), "helm leaves them"
        assert {installed[kind, NAME] for kind, _ in registered} == {0}
        eventually(lambda: len(up.jobs) > 5, what="the old webhooks answer for the former ones")
        last = roll_out(
            running,
            2,
            replaced=lambda: {name for _, name in configurations(control_plane)} == {NAME},
        )
        jobs = len(up.jobs)
        eventually(lambda: len(up.jobs) > jobs + 5, what="the new webhooks answer")
    done(running, up)

    guards = list(guards_since(control_plane, since))
    assert guards[-1] == {NAME}
    assert all(guards)
    assert all(configurations(control_plane).values())
    assert find_failures(*last) == []


def test_the_next_upgrade_and_the_end_know_nothing_of_them(running):
    running.helm("upgrade", RELEASE, CHART, *release.set_values(running.values))
    assert {name for _, name in configurations(running.control_plane)} == {NAME}

    running.helm("uninstall", RELEASE)

    assert configurations(running.control_plane) == {}
