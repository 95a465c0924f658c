"""Policies on our own accounts come with an upgrade, and go with a rollback, while jobs run.

Until they came, a release was what it is with them switched off. Old processes run on under new
policies, and new ones without any, as long as Deployments are rolled out.
"""

import itertools
import json
import threading
from contextlib import ExitStack, contextmanager
from urllib.error import URLError

import pytest

from tests.charts import release
from tests.charts.conftest import installation, process
from tests.charts.release import CHART, CONTROLLER, RELEASE, WEBHOOKS
from tests.charts.test_lifecycle import CONFIGURATION_NAME, refuse_all, refused
from tests.controlplane.programs import free_ports
from tests.scenarios.api import Refused, eventually
from tests.scenarios.clusters import find_failures
from tests.scenarios.objects import job
from tests.scenarios.test_queue import finished

pytestmark = pytest.mark.e2e

RESTRICTIONS = "validatingadmissionpolicies,validatingadmissionpolicybindings"


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    """A release as it was before there were such policies, and a policy that refuses."""
    before = {"selfRestriction.enabled": False}
    folder = tmp_path_factory.mktemp("upgrade")
    with installation(folder, more=before) as installed, ExitStack() as stack:
        installed.started = lambda each: stack.callback(each.stop)
        installed.api.create(refuse_all("closed"))
        eventually(lambda: "no pod may be made" in refused(installed.api), what="it holds")
        yield installed


class Load:
    """Jobs that come all the time, and tries to get past a policy."""

    def __init__(self, running, name):
        self._api, self._name = running.api, name
        self._over = threading.Event()
        self.jobs = []
        self.unguarded = []
        self.faults = []

    @contextmanager
    def __call__(self):
        threads = [threading.Thread(target=each) for each in (self._submit, self._try)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _submit(self):
        for number in itertools.count():
            if self._over.wait(0.5):
                return
            name = f"{self._name}-{number}"
            try:
                self._api.create(job(name, gpus=1, run_for="1s"))
                self.jobs.append(name)
            except (Refused, URLError) as error:
                self.faults.append(f"{name} is not taken: {error}")

    def _try(self):
        while not self._over.wait(0.05):
            if not refused(self._api):
                self.unguarded.append("a pod got past the policy")


def restrictions(running):
    return release.names(release.objects(running.control_plane, RESTRICTIONS))


def roll_out(running, number, *, replaced=lambda: True):
    """Replace the processes by what the Deployments say now: new ones come before old ones go.

    In a cluster, a Service sends requests for the old ones' port to the new ones. Nothing does
    here, so the old ones stay until no configuration names their port: until they are `replaced`.
    """
    pairs = []
    for name, old in ((WEBHOOKS, running.webhooks), (CONTROLLER, running.controller)):
        new = process(running.control_plane, name, running.folder, log=f"{name}-{number}")
        new.start()
        running.started(new)
        pairs.append((old, new))
    (_, webhooks), (_, controller) = pairs
    eventually(
        lambda: called_port(running) == port_of(webhooks), within=60, what="it has registered"
    )
    eventually(replaced, within=60, what="nothing is sent to the old ones")
    eventually(lambda: "mirrors_synced" in controller.log.read_text(), what="it stands by")
    for old, _ in pairs:
        old.stop()
    running.webhooks, running.controller = webhooks, controller
    return [webhooks, controller]


def port_of(webhooks):
    service = next(a for a in webhooks.arguments if a.startswith("--service="))
    return int(service.rpartition(":")[2])


def called_port(running):
    found = running.control_plane.kubectl(
        "get", "validatingwebhookconfiguration", CONFIGURATION_NAME, "-o=json"
    )
    ports = {w["clientConfig"]["service"]["port"] for w in json.loads(found).get("webhooks", [])}
    return ports.pop() if len(ports) == 1 else None


def test_an_upgrade_under_load_and_back(running):
    ports = free_ports(["webhooks", "metrics", "health"])
    after = running.values | {
        "selfRestriction.enabled": True,
        "webhooks.port": ports["webhooks"],
        "webhooks.service.port": ports["webhooks"],
        "webhooks.metricsPort": ports["metrics"],
        "controller.healthPort": ports["health"],
    }
    old = [running.webhooks, running.controller]
    assert not any(name.startswith(RELEASE) for name in restrictions(running))

    with Load(running, "up")() as up:
        running.helm("upgrade", RELEASE, CHART, *release.set_values(after))
        assert any(name.startswith(RELEASE) for name in restrictions(running))
        eventually(lambda: len(up.jobs) > 10, what="old processes work on under new policies")
        new = roll_out(running, 2)
        eventually(lambda: len(up.jobs) > 20, within=60, what="new processes work")
    done(running, up)

    with Load(running, "back")() as back:
        running.helm("rollback", RELEASE, "1")
        eventually(lambda: len(back.jobs) > 10, what="new processes work on without policies")
        last = roll_out(running, 3)
        eventually(lambda: len(back.jobs) > 20, within=60, what="old processes work again")
    done(running, back)

    assert not any(name.startswith(RELEASE) for name in restrictions(running))
    assert find_failures(*old, *new, *last) == []


def done(running, load):
    """See that all jobs have come to their end, and that nothing got past the policy meanwhile."""
    for name in load.jobs:
        eventually(lambda name=name: finished(running.api, name), within=120, what=f"{name} ends")
    assert load.unguarded == []
    assert load.faults == []
