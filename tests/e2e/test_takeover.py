"""The queues of a running cluster, taken over from Kueue itself and given back, under load.

There are jobs of the kinds that Kueue's users have, running and held, some of them placed by a
topology, and all of Kueue's objects are stored as v1beta1 at first. The operators of foreign kinds
do not run; the test makes their pods.

Kueue is built from its Go module when this test is run for the first time; where that cannot be
had, the test is skipped.
"""

import base64
import json
import signal
import subprocess
import threading
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack

import pytest
import yaml

from policyd.cli import demo
from policyd.kube.kueue_lease import HOLDER
from tests.charts import release
from tests.controlplane.programs import API_SERVER, ETCD, find_binaries, free_ports
from tests.controlplane.server import ControlPlane
from tests.docs.pages import KUEUE, blocks, commands, pages
from tests.docs.shell import Shell, path_with, project_copy
from tests.docs.test_consoles import check, run
from tests.e2e.kueue import NAMESPACE, Kueue
from tests.scenarios import api as driver
from tests.scenarios import foreign
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
from tests.scenarios.objects import container, job, member, placed, queued, serving, team_of_kinds

pytestmark = pytest.mark.e2e

PENDING = "apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/team-a/pendingworkloads"
STARTER = f"system:serviceaccount:{NAMESPACE}:kueue-controller-manager"
TEAMS = ("team-a", "team-c")
GROUPS = ("groups0", "groups1", "groups2")
"""The Workloads of a LeaderWorkerSet."""
PUBLISHED = {"JobSet": "jobset", "RayCluster": "rayclusters"}
SERVED = {"LeaderWorkerSet": "lws"}
OF_SET = "leaderworkerset.sigs.k8s.io/"
INDEX = "kueue.x-k8s.io/component-workload-index"
"""Annotation of the Workload of a group of a LeaderWorkerSet: the number of the group."""
KUEUES, KUEUES_END = b"/registry/kueue.x-k8s.io/", b"/registry/kueue.x-k8s.io0"
"""The keys of Kueue's objects in etcd: from, and up to."""
STATEFUL_SETS = "apis/apps/v1/namespaces/{namespace}/statefulsets"


def groups():
    """Return a LeaderWorkerSet of three groups, of which the quota has room for two."""
    rolling = {"maxUnavailable": 1, "maxSurge": 0, "partition": 0}
    spec = {
        "replicas": 3,
        "leaderWorkerTemplate": {"size": 2},
        "startupPolicy": "LeaderCreated",
        "rolloutStrategy": {"type": "RollingUpdate", "rollingUpdateConfiguration": rolling},
    }
    for part, memory in (("leader", "1Gi"), ("worker", "400Gi")):
        main = container(0)
        main["resources"]["limits"]["memory"] = memory
        spec["leaderWorkerTemplate"][f"{part}Template"] = {"spec": {"containers": [main]}}
    return queued(foreign.foreign("LeaderWorkerSet", "groups", spec), "team-c")


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


def of_kind(kind, name):
    """Return a job of a foreign kind with two pods, which run until the end."""
    spec = json.loads(json.dumps(foreign.SPECS[kind](2)).replace('"60s"', '"10m"'))
    return queued(foreign.foreign(kind, name, spec), "team-c")


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
        driver.PATHS.update(foreign.paths(), StatefulSet=STATEFUL_SETS)
        for kind in (*PUBLISHED, *SERVED):
            api.create(foreign.definition(kind, {**PUBLISHED, **SERVED}))
        kueue.install()
        stack.enter_context(kueue.running())
        eventually(kueue.holder, what="Kueue leads")
        for item in (*demo.teams(), *team_of_kinds()):
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
        self.webhooks = None

    def install_policyd(self):
        """Run policyd's processes by the accounts of its chart, unless they run already."""
        if self.webhooks is not None:
            return
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
            owner["name"] + each["metadata"].get("annotations", {}).get(INDEX, ""): each
            for team in TEAMS
            for each in self.api.find("Workload", team)
            for owner in each["metadata"].get("ownerReferences", ())
        }

    def state(self):
        """What must not change: pods that run or are held, and the quota that workloads hold."""
        pods = {
            each["metadata"]["name"]: (
                each["metadata"]["uid"],
                each["status"].get("startTime"),
                each["spec"].get("nodeName"),
                each["spec"].get("schedulingGates"),
                each["metadata"].get("finalizers"),
            )
            for team in TEAMS
            for each in self.api.find("Pod", team)
        }
        quota = {
            name: (
                each["metadata"]["uid"],
                each["metadata"].get("finalizers"),
                each.get("status", {}).get("admission"),
            )
            for name, each in self.workloads().items()
        }
        return pods, quota

    def nodes(self, name, team="team-c"):
        """The nodes on which the pods of a job run, each as often as it has one."""
        return Counter(
            each["spec"]["nodeName"]
            for each in self.api.find("Pod", team)
            if each["metadata"]["name"].startswith(f"{name}-")
            and each["status"]["phase"] == "Running"
            and not each["metadata"].get("deletionTimestamp")
        )

    def runs(self, name, team="team-c"):
        return self.nodes(name, team).total() == 2

    def operate(self, kind, name):
        """Make the pods of a job of a foreign kind when it may run, as its operator would."""
        what = f"{name} is started"
        found = eventually(lambda: self.started(kind, name), within=60, what=what)
        foreign.operate(self.api, found)

    def operate_groups(self):
        """Make the StatefulSets of the LeaderWorkerSet, and label its leaders, as its operator."""
        made = self.api.get("LeaderWorkerSet", "groups", "team-c")
        spec, template = made["spec"], made["spec"]["leaderWorkerTemplate"]
        acting = self.api.acting_as(foreign.operator(made))
        labels = {f"{OF_SET}name": "groups", f"{OF_SET}worker-index": "0"}
        acting.create(
            stateful_set(made, "groups", spec["replicas"], template["leaderTemplate"], labels)
        )
        for index in range(spec["replicas"]):
            name = f"groups-{index}"
            leader = eventually(lambda name=name: self.found("Pod", name), what=f"{name} is made")
            of_group = {f"{OF_SET}group-index": str(index)}
            acting.patch("Pod", name, {"metadata": {"labels": of_group}}, namespace="team-c")
            labels = {f"{OF_SET}name": "groups", **of_group}
            workers = stateful_set(
                leader, name, template["size"] - 1, template["workerTemplate"], labels
            )
            workers["spec"]["ordinals"] = {"start": 1}
            led = workers["spec"]["template"]["metadata"].setdefault("annotations", {})
            led[f"{OF_SET}leader-name"] = name
            acting.create(workers)

    def found(self, kind, name):
        return self.api.get(kind, name, "team-c") if self.api.exists(kind, name, "team-c") else None

    def started(self, kind, name):
        found = self.api.get(kind, name, "team-c")
        return None if foreign.suspended(found) else found

    def stored(self):
        """The versions in which etcd has Kueue's objects."""
        start, end = (base64.b64encode(key).decode() for key in (KUEUES, KUEUES_END))
        body = json.dumps({"key": start, "range_end": end}).encode()
        address = f"http://127.0.0.1:{self.control_plane.site.ports[ETCD]}/v3/kv/range"
        asked = urllib.request.Request(address, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=30) as answer:
            found = json.load(answer)["kvs"]
        return {json.loads(base64.b64decode(each["value"]))["apiVersion"] for each in found}

    def usage(self):
        queue = self.api.get("ClusterQueue", "team-a")
        (flavor,) = queue["status"]["flavorsReservation"]
        return {each["name"]: each["total"] for each in flavor["resources"]}

    def waits(self, name):
        found = self.workloads().get(name)
        return found and condition(found, "QuotaReserved").get("status") == "False"

    def held(self):
        """The group of the LeaderWorkerSet that waits, if it is one."""
        (held, *more) = [name for name in GROUPS if self.waits(name)] or [None]
        return None if more else held

    def admitted(self, name):
        found = self.workloads().get(name)
        return found and condition(found, "Admitted").get("status") == "True"


def stateful_set(owner, name, replicas, template, labels):
    """Return a StatefulSet of an owner, whose pods have labels of their own."""
    given = template.get("metadata", {})
    metadata = {**given, "labels": {**given.get("labels", {}), **labels}}
    owned = {key: owner[key] for key in ("apiVersion", "kind")}
    owned |= {key: owner["metadata"][key] for key in ("name", "uid")}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {
            "name": name,
            "namespace": "team-c",
            "labels": labels,
            "ownerReferences": [{**owned, "controller": True}],
        },
        "spec": {
            "replicas": replicas,
            "serviceName": "groups",
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {**template, "metadata": metadata},
        },
    }


def test_there_and_back_under_load_and_stopped_midway(world):
    before = prepared(world)
    with Load(world.api) as load:
        world.install_policyd()
        eventually(lambda: "standing_by" in world.controller.tail(), what="policyd stands by")
        stopped_midway(world, before)
        back_again(world, there(world, before))
        made = len(load.names)

    def complete():
        jobs = world.api.find("Job", "team-b")
        return all(condition(each, "Complete").get("status") == "True" for each in jobs)

    eventually(complete, within=60, what="all short jobs are complete")
    assert not load.refused
    assert len(world.api.find("Job", "team-b")) >= made
    assert not find_failures(world.webhooks, world.controller)


def prepared(world):
    """Have Kueue start jobs of all kinds, and hold some; return what must not change."""
    start_jobs(world)
    api = world.api
    api.create(queued(job("large", gpus=12, pods=2, run_for="10m")))
    api.create(of_kind("JobSet", "next"))
    eventually(lambda: world.waits("next"), what="Kueue holds next")
    time.sleep(1.0)  # of workloads of the same second, none is before the other
    for index in range(2):
        api.create(member("last", index, "team-c"))
    for name in ("large", "next", "last-0"):
        eventually(lambda name=name: world.waits(name), what=f"Kueue holds {name}")
    eventually(lambda: world.usage()["nvidia.com/gpu"] == "6", what="Kueue reports the usage")
    assert world.stored() == {"kueue.x-k8s.io/v1beta1"}
    return world.state()


def start_jobs(world):
    api = world.api
    api.create(placed())
    api.create(queued(job("long", gpus=4, pods=2, run_for="10m")))
    for index in range(2):
        api.create(member("group", index))
    eventually(lambda: world.runs("placed"), what="Kueue places a job by a topology")
    for kind in PUBLISHED:
        api.create(of_kind(kind, kind.lower()))
    for kind in ("Deployment", "StatefulSet"):
        api.create(serving(kind, kind.lower()))
    api.create(groups())
    world.operate_groups()
    for kind in PUBLISHED:
        world.operate(kind, kind.lower())
    for name in (*map(str.lower, PUBLISHED), "deployment", "statefulset"):
        eventually(lambda name=name: world.runs(name), what=f"Kueue starts a {name}")
    for name in ("long", "group"):
        eventually(lambda name=name: world.runs(name, "team-a"), what=f"Kueue starts {name}")
    eventually(lambda: world.nodes("groups").total() == 4, what="Kueue starts two groups")
    eventually(world.held, what="Kueue holds the third group")


def stopped_midway(world, before):
    assert world.kueue.holder() != HOLDER
    world.stopped_after("stop", "start")
    world.takeover("status", code=1)

    world.takeover("back")

    assert world.kueue.holder() not in ("", None, HOLDER)
    assert world.state() == before


def there(world, before):
    """Take over; return what must not change from then on."""
    api = world.api

    world.takeover("start")

    assert world.kueue.holder() == HOLDER
    assert json.loads(world.takeover("status", "-o", "json"))["done"] is True
    for name in ("large", "next", "last-0", world.held()):
        eventually(lambda name=name: world.waits(name), what=f"policyd holds {name}")
    assert world.state() == before
    assert world.stored() == {"kueue.x-k8s.io/v1beta2"}
    assert world.usage()["nvidia.com/gpu"] == "6"
    api.create(queued(job("ours", gpus=1, run_for="10m")))
    eventually(lambda: world.admitted("ours"), what="policyd starts a job")
    assert len(api.call("GET", PENDING)["items"]) == 1
    return taken_on(world)


def taken_on(world):
    """Have policyd go on with what Kueue began; return what must not change from then on."""
    api, nodes = world.api, world.nodes("placed")
    (lost, _) = (
        each["metadata"]["name"]
        for each in api.find("Pod", "team-c")
        if each["metadata"]["name"].startswith("placed-")
    )
    api.delete("Pod", lost, "team-c")
    api.delete("Pod", "statefulset-0", "team-c")
    api.patch("Deployment", "deployment", {"spec": {"replicas": 0}}, namespace="team-c")
    running = next(name for name in GROUPS if name != world.held())
    api.delete("Pod", f"groups-{GROUPS.index(running)}-1", "team-c")
    queue = next(each for each in team_of_kinds() if each["kind"] == "ClusterQueue")
    quotas = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"]
    next(each for each in quotas if each["name"] == "memory")["nominalQuota"] = "2Ti"
    api.patch("ClusterQueue", queue["metadata"]["name"], {"spec": queue["spec"]})

    world.operate("JobSet", "next")

    eventually(lambda: world.runs("next"), what="a job set that Kueue held runs")
    eventually(
        lambda: world.nodes("placed") == nodes,
        within=60,
        what="another pod runs where Kueue's topology assignment has one",
    )
    eventually(lambda: world.runs("statefulset"), what="a StatefulSet has all its pods again")
    eventually(lambda: world.nodes("groups").total() == 6, within=60, what="all groups run")
    eventually(lambda: world.nodes("ours", "team-a").total() == 1, what="a job of policyd's runs")
    # What is left of the Deployment goes whenever the garbage collector finds it.
    return tuple(
        {name: each for name, each in part.items() if not name.startswith("deployment")}
        for part in world.state()
    )


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
    world.api.delete("StatefulSet", "statefulset", "team-c")
    world.api.delete("Pod", "groups-2-1", "team-c")
    eventually(lambda: world.admitted("theirs"), what="Kueue starts a job")
    eventually(lambda: world.runs("last"), within=120, what="Kueue starts a group that was held")
    eventually(lambda: world.nodes("groups").total() == 6, within=60, what="all groups run again")


def test_the_guide_shows_what_happens(world, tmp_path):
    """Kueue leads, be it again, and policyd stands by."""
    world.install_policyd()
    log = world.controller.log
    eventually(lambda: "standing_by" in log.read_text(), what="policyd stands by")
    shown = [
        command
        for page in pages()
        for block in blocks(page)
        if block.remark == KUEUE
        for command in commands(block)
    ]
    path = path_with(tmp_path / "bin", find_binaries() / "kubectl")
    variables = {"HOME": str(tmp_path), "KUBECONFIG": world.kueue_config, "PATH": path}
    with Shell(project_copy(tmp_path), variables) as shell:
        for command in shown:
            check(command, run(shell, command))

    assert [each.line.split()[:3] for each in shown[-2:]] == [
        ["policyd", "takeover", "start"],
        ["policyd", "takeover", "back"],
    ]
    assert world.kueue.holder() not in ("", None, HOLDER)
