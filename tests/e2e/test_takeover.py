"""The queues of a running cluster, taken over from Kueue itself and given back, under load.

Kueue is built from its Go module when this test is run for the first time; where that cannot be
had, the test is skipped.
"""

import json
import signal
import subprocess
import threading
from contextlib import ExitStack

import pytest
import yaml

from policyd.cli import demo
from policyd.kube.kueue_lease import HOLDER
from tests.charts import release
from tests.controlplane.programs import API_SERVER, free_ports
from tests.controlplane.server import ControlPlane
from tests.e2e.kueue import NAMESPACE, Kueue
from tests.scenarios.api import Api, Refused, condition, eventually
from tests.scenarios.clusters import (
    COMMANDS,
    Process,
    accounts_on,
    controller_command,
    created,
    find_failures,
    webhooks_are_ready,
    webhooks_command,
)
from tests.scenarios.objects import job, pod

pytestmark = pytest.mark.e2e

QUEUE = "kueue.x-k8s.io/queue-name"
PENDING = "apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/team-a/pendingworkloads"
GROUP = "kueue.x-k8s.io/pod-group-name"
STARTER = f"system:serviceaccount:{NAMESPACE}:kueue-controller-manager"


class Load:
    """Short jobs, created one after the other from the beginning to the end."""

    def __init__(self, api):
        self.api = api
        self.names = []
        self.refused = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._create)

    def _create(self):
        while not self._ended.wait(0.5):
            name = f"short-{len(self.names)}"
            try:
                self.api.create(queued(job(name, gpus=1, run_for="1s"), "team-b"))
            except Refused as refusal:
                self.refused.append(f"{name}: {refusal}")
            self.names.append(name)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()


def queued(item, team="team-a"):
    item["metadata"]["namespace"] = team
    item["metadata"].setdefault("labels", {})[QUEUE] = team
    return item


def member(name, index):
    made = queued(pod(name, gpus=1))
    made["metadata"]["name"] = f"{name}-{index}"
    made["metadata"]["labels"][GROUP] = name
    made["metadata"]["annotations"] = {
        "kueue.x-k8s.io/pod-group-total-count": "2",
        "policyd.io/run-for": "10m",
    }
    return made


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("takeover")
    flags = {API_SERVER: release.front_proxy(folder)}
    with ControlPlane(flags=flags) as control_plane, ExitStack() as stack:
        api = Api(control_plane.kubeconfig)
        try:
            kueue = Kueue(control_plane, folder)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"Kueue cannot be built here: {error}")
        for node in demo.nodes():
            api.create(node)
        kueue.install()
        stack.enter_context(kueue.running())
        eventually(kueue.holder, what="Kueue leads")
        for item in demo.teams():
            eventually(lambda item=item: could_create(api, item), what=f"{item['kind']} is served")
        yield World(api, kueue, control_plane, folder, stack)


def could_create(api, item):
    """Create an object, unless Kueue's webhooks do not answer yet."""
    try:
        return created(api, item)
    except Refused as refusal:
        if refusal.code == 500:
            return False
        raise


class World:
    def __init__(self, api, kueue, control_plane, folder, stack):
        self.api, self.kueue, self.stack = api, kueue, stack
        self.control_plane, self.folder = control_plane, folder

    def install_policyd(self):
        """Run policyd's processes by the accounts of its chart."""
        crds = subprocess.run(
            [COMMANDS / "policyd", "crds"], capture_output=True, text=True, check=True
        ).stdout
        for crd in yaml.safe_load_all(crds):
            if crd["spec"]["group"] == "policyd.io":
                self.api.create(crd)
        accounts = accounts_on(
            self.control_plane,
            controller__visibility__enabled=True,
            controller__visibility__kueueApi=False,
        )
        port = free_ports(["visibility"])["visibility"]
        release.lead_to_this_machine(self.control_plane, f"{release.CONTROLLER}-visibility")
        patch = json.dumps({"spec": {"service": {"port": port}}})
        self.control_plane.kubectl(
            "patch", "apiservice", "v1alpha1.visibility.policyd.io", "--patch", patch
        )
        command = [*webhooks_command(accounts), "--starters", STARTER]
        self.webhooks = Process(command, self.folder / "webhooks.log")
        command = [*controller_command(accounts), "--visibility-port", str(port)]
        self.controller = Process(command, self.folder / "controller.log")
        for process in (self.webhooks, self.controller):
            process.start()
            self.stack.callback(process.stop)
        eventually(
            lambda: webhooks_are_ready(self.api, (self.webhooks, self.controller)),
            what="policyd's webhooks are registered",
        )

    def takeover(self, *words, code=0):
        done = subprocess.run(
            [COMMANDS / "policyd", "takeover", *words, "--kubeconfig", self.kueue_config],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    @property
    def kueue_config(self):
        return str(self.control_plane.kubeconfig)

    def stopped_after(self, step, *words):
        """Run a command of takeover, and kill it when a step is done."""
        command = [COMMANDS / "policyd", "takeover", *words, "--kubeconfig", self.kueue_config]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
            for line in running.stdout:
                if line.split() == [step, "done"]:
                    running.send_signal(signal.SIGKILL)
                    break
        assert running.returncode == -signal.SIGKILL

    def workloads(self):
        return {
            each["metadata"]["ownerReferences"][0]["name"]: each
            for each in self.api.find("Workload", "team-a")
            if each["metadata"].get("ownerReferences")
        }

    def state(self):
        """What must not change: the pods that run, and the quota that their workloads hold."""
        pods = {
            each["metadata"]["name"]: (
                each["metadata"]["uid"],
                each["status"].get("startTime"),
                each["spec"].get("nodeName"),
            )
            for each in self.api.find("Pod", "team-a")
            if each["status"]["phase"] == "Running"
        }
        quota = {
            name: (each["metadata"]["uid"], each["status"]["admission"])
            for name, each in self.workloads().items()
            if each.get("status", {}).get("admission")
        }
        return pods, quota

    def usage(self):
        queue = self.api.get("ClusterQueue", "team-a")
        (flavor,) = queue["status"]["flavorsReservation"]
        return {each["name"]: each["total"] for each in flavor["resources"]}

    def waits(self, name):
        found = self.workloads().get(name)
        return found and condition(found, "QuotaReserved").get("status") == "False"

    def admitted(self, name):
        found = self.workloads().get(name)
        return found and condition(found, "Admitted").get("status") == "True"


def test_there_and_back_under_load_and_stopped_midway(world):
    before = prepared(world)
    with Load(world.api) as load:
        world.install_policyd()
        eventually(lambda: "standing_by" in world.controller.tail(), what="policyd stands by")
        stopped_midway(world, before)
        there(world, before)
        back_again(world, before)
        made = len(load.names)

    def complete():
        jobs = world.api.find("Job", "team-b")
        return all(condition(each, "Complete").get("status") == "True" for each in jobs)

    eventually(complete, within=60, what="all short jobs are complete")
    assert not load.refused
    assert len(world.api.find("Job", "team-b")) >= made
    assert not find_failures(world.webhooks, world.controller)


def prepared(world):
    """Have Kueue start a job and a group, and hold a job; return what must not change."""
    api = world.api
    api.create(queued(job("long", gpus=4, pods=2, run_for="10m")))
    for index in range(2):
        api.create(member("group", index))
    eventually(lambda: world.admitted("long"), what="Kueue starts a job")
    eventually(lambda: len(world.state()[0]) == 4, what="two pods of a job and of a group run")
    api.create(queued(job("large", gpus=12, pods=2, run_for="10m")))
    eventually(lambda: world.waits("large"), what="Kueue holds a job that does not fit")
    eventually(lambda: world.usage()["nvidia.com/gpu"] == "6", what="Kueue reports the usage")
    return world.state()


def stopped_midway(world, before):
    assert world.kueue.holder() != HOLDER
    world.stopped_after("stop", "start")
    world.takeover("status", code=1)

    world.takeover("back")

    assert world.kueue.holder() not in ("", None, HOLDER)
    assert world.state() == before


def there(world, before):
    api = world.api

    world.takeover("start")

    assert world.kueue.holder() == HOLDER
    assert json.loads(world.takeover("status", "-o", "json"))["done"] is True
    eventually(lambda: world.waits("large"), what="policyd holds the job that does not fit")
    assert world.state() == before
    assert world.usage()["nvidia.com/gpu"] == "6"
    api.create(queued(job("ours", gpus=1, run_for="10m")))
    eventually(lambda: world.admitted("ours"), what="policyd starts a job")
    assert len(api.call("GET", PENDING)["items"]) == 1


def back_again(world, before):
    world.kueue.scale(1)  # as an upgrade of its release would
    eventually(lambda: world.kueue.process.running.poll() is None, what="Kueue runs")
    world.takeover("status", code=1)

    world.takeover("back")

    assert world.kueue.holder() not in ("", None, HOLDER)
    pods, quota = world.state()
    assert before[0].items() <= pods.items()
    assert before[1].items() <= quota.items()
    world.api.create(queued(job("theirs", gpus=1, run_for="10m")))
    eventually(lambda: world.admitted("theirs"), what="Kueue starts a job")
