"""What is not suspended itself: the pods of Deployments, StatefulSets and LeaderWorkerSets wait."""

import time
from functools import partial

import pytest

from tests.scenarios import api as driver
from tests.scenarios import foreign
from tests.scenarios.api import Refused, eventually
from tests.scenarios.objects import container, job
from tests.scenarios.test_queue import of_class, preempting

driver.PATHS["StatefulSet"] = "apis/apps/v1/namespaces/{namespace}/statefulsets"
QUEUE = {"kueue.x-k8s.io/queue-name": "team-a"}
WHO = {"app": "serve"}


@pytest.fixture(scope="module")
def operated(cluster):
    foreign.install(cluster.api)
    return cluster


@pytest.fixture
def maker(operated, api):
    """Makes the pods of parents, where no controller of their kind does."""
    made = Maker(api, embedded=operated.name == "embedded")
    yield made
    for kind in ("Job", "Deployment", "ReplicaSet", "StatefulSet", "LeaderWorkerSet", "VolcanoJob"):
        for item in api.find(kind, "team-a"):
            api.delete(kind, item["metadata"]["name"], "team-a", missing_is_fine=True)
    made.clear()
    eventually(lambda: not api.find("Workload", "team-a"), within=120, what="no workload is left")


class Maker:
    """The controllers of all kinds on the embedded server, and of those of others on both."""

    def __init__(self, api, *, embedded):
        self.api = api
        self.embedded = embedded

    def make(self, parent):
        """Make the pods of a parent that are not there."""
        kind = parent["kind"]
        if not self.embedded and kind not in {"LeaderWorkerSet", "Job"}:
            return
        for suffix, template, metadata in members(parent):
            try:
                pod = pod_of(parent, suffix, template, metadata)
                self.api.acting_as(foreign.operator(parent)).create(pod)
            except Refused as refusal:
                if refusal.code != 409:
                    raise

    def clear(self):
        for pod in pods(self.api):
            self.api.delete("Pod", pod["metadata"]["name"], "team-a", missing_is_fine=True)


def members(parent):
    """Yield suffix, template and metadata of each pod that a parent shall have."""
    spec = parent["spec"]
    if parent["kind"] == "LeaderWorkerSet":
        made = spec["leaderWorkerTemplate"]
        for index in range(spec["replicas"]):
            labels = {
                "leaderworkerset.sigs.k8s.io/name": parent["metadata"]["name"],
                "leaderworkerset.sigs.k8s.io/group-index": str(index),
            }
            leader = f"{parent['metadata']['name']}-{index}"
            led = {"leaderworkerset.sigs.k8s.io/leader-name": leader}
            yield f"{index}", made["leaderTemplate"], {"labels": labels}
            yield f"{index}-1", made["workerTemplate"], {"labels": labels, "annotations": led}
        return
    if "tasks" in spec:
        for task in spec["tasks"]:
            of_task = {"annotations": {"volcano.sh/task-spec": task["name"]}}
            for index in range(task["replicas"]):
                yield f"{task['name']}-{index}", task["template"], of_task
        return
    for index in range(spec["replicas"]):
        name = f"{parent['metadata']['name']}-{index}"
        numbered = {"statefulset.kubernetes.io/pod-name": name}
        yield str(index), spec["template"], {"labels": numbered}


def pod_of(parent, suffix, template, metadata):
    owner = {
        "apiVersion": parent["apiVersion"],
        "kind": parent["kind"],
        "name": parent["metadata"]["name"],
        "uid": parent["metadata"]["uid"],
        "controller": True,
    }
    given = template.get("metadata", {})
    both = {k: {**given.get(k, {}), **metadata.get(k, {})} for k in ("labels", "annotations")}
    name, namespace = parent["metadata"]["name"], parent["metadata"]["namespace"]
    names = {"name": f"{name}-{suffix}", "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**names, **both, "ownerReferences": [owner]},
        "spec": template["spec"],
    }


def template(gpus):
    return {"metadata": {"labels": WHO}, "spec": {"containers": [container(gpus)]}}


def deployment():
    selected = {"selector": {"matchLabels": WHO}, "template": template(4)}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 2, **selected}}


def replica_set():
    return {**deployment(), "kind": "ReplicaSet"}


def stateful_set():
    selected = {"selector": {"matchLabels": WHO}, "template": template(4)}
    more = {"serviceName": "serve", "podManagementPolicy": "Parallel", "replicas": 2}
    return {"apiVersion": "apps/v1", "kind": "StatefulSet", "spec": {**more, **selected}}


def leader_worker_set():
    made = {"size": 2, "leaderTemplate": template(2), "workerTemplate": template(2)}
    spec = {"replicas": 2, "leaderWorkerTemplate": made}
    version = "/".join(foreign.GROUPS["LeaderWorkerSet"])
    return {"apiVersion": version, "kind": "LeaderWorkerSet", "spec": spec}


def volcano_job():
    """Return a Volcano Job of two tasks, which starts again when a pod of it is evicted."""
    tasks = [{"name": name, "replicas": 1, "template": template(4)} for name in ("ps", "worker")]
    policies = [{"event": "PodEvicted", "action": "RestartJob"}]
    spec = {"minAvailable": 2, "schedulerName": "volcano", "policies": policies, "tasks": tasks}
    version = "/".join(foreign.GROUPS["VolcanoJob"])
    return {"apiVersion": version, "kind": "Job", "spec": spec}


def submit(maker, item, name="serve"):
    labels = {**QUEUE, "kueue.x-k8s.io/priority-class": "research"}
    item["metadata"] = {"name": name, "namespace": "team-a", "labels": labels}
    parent = maker.api.create(item)
    maker.make(parent)
    return parent


def pods(api, name="serve"):
    found = api.find("Pod", "team-a")
    return [pod for pod in found if pod["metadata"]["name"].startswith(f"{name}-")]


def phases(api):
    return sorted(pod["status"].get("phase", "") for pod in pods(api))


def gated(api):
    return [bool(pod["spec"].get("schedulingGates")) for pod in pods(api)]


KINDS = [
    pytest.param(deployment, 2, id="deployment"),
    pytest.param(stateful_set, 2, id="stateful-set"),
    pytest.param(leader_worker_set, 4, id="leader-worker-set"),
    pytest.param(volcano_job, 2, id="volcano-job"),
]


@pytest.mark.parametrize(("item", "count"), KINDS)
def test_pods_are_held_placed_stopped_and_resumed(maker, item, count):
    api = maker.api
    parent = submit(maker, item())
    eventually(lambda: phases(api) == ["Running"] * count, what="the pods are bound and run")
    assert all(pod["spec"]["nodeSelector"] for pod in pods(api))

    with preempting(api, "team-a", withinClusterQueue="LowerPriority"):
        urgent = of_class("production", job("urgent", run_for="600s"))
        api.create(urgent)
        eventually(
            partial(stopped, maker, parent, count), within=60, what="the pods are held again"
        )
    api.delete("Job", "urgent", "team-a")

    eventually(
        lambda: resumed(maker, parent, count), within=60, what="the pods are bound and run again"
    )


def test_the_pod_of_a_notebook_queues_by_the_label_in_the_template(maker):
    """As Kubeflow makes it: the labels of the Notebook are copied to the template alone."""
    api = maker.api
    api.create(job("first", gpus=12, pods=2, run_for="600s"))  # all that may be had
    eventually(lambda: api.get("Job", "first", "team-a")["spec"]["suspend"] is False)
    notebook = stateful_set()
    notebook["spec"]["replicas"] = 1
    notebook["spec"]["template"]["metadata"]["labels"] = {**WHO, **QUEUE}
    notebook["metadata"] = {"name": "serve", "namespace": "team-a"}
    parent = api.create(notebook)
    maker.make(parent)
    eventually(lambda: gated(api) == [True], what="its pod is held")

    api.delete("Job", "first", "team-a")
    eventually(lambda: phases(api) == ["Running"], what="its pod runs")
    api.patch("StatefulSet", "serve", {"spec": {"replicas": 0}}, namespace="team-a")
    if maker.embedded:
        maker.clear()
    eventually(partial(nothing_but, api, "first"), within=120, what="its workload is gone")


def stopped(maker, parent, count):
    """Tell whether pods have been stopped, as few as make room, and those in their place wait."""
    maker.make(parent)
    held = gated(maker.api)
    return len(held) == count and any(held)


def resumed(maker, parent, count):
    maker.make(parent)
    return phases(maker.api) == ["Running"] * count


@pytest.mark.parametrize(("item", "count"), KINDS)
def test_deleted_while_its_pods_wait_it_leaves_nothing_behind(maker, item, count):
    api = maker.api
    api.create(job("first", gpus=12, pods=2, run_for="600s"))  # all that may be had
    eventually(lambda: api.get("Job", "first", "team-a")["spec"]["suspend"] is False)
    parent = submit(maker, item())
    eventually(lambda: gated(api) == [True] * count, what="its pods are held")

    api.delete(driver.kind_of(parent), "serve", "team-a")
    maker.clear()

    eventually(partial(nothing_but, api, "first"), within=120, what="its workloads are gone")
    api.delete("Job", "first", "team-a")


def nothing_but(api, name):
    owners = [w["metadata"]["ownerReferences"][0]["name"] for w in api.find("Workload", "team-a")]
    return set(owners) <= {name}


def test_a_stateful_set_that_is_scaled_to_zero_makes_room(maker):
    api = maker.api
    parent = submit(maker, stateful_set())
    eventually(lambda: phases(api) == ["Running"] * 2, what="its pods run")

    api.patch("StatefulSet", "serve", {"spec": {"replicas": 0}}, namespace="team-a")
    if maker.embedded:
        maker.clear()
    api.create(job("next", run_for="1s"))
    eventually(lambda: not api.get("Job", "next", "team-a")["spec"]["suspend"], what="room is made")

    eventually(lambda: not pods(api), what="no pod is left")
    api.patch("StatefulSet", "serve", {"spec": {"replicas": 2}}, namespace="team-a")
    eventually(lambda: resumed(maker, parent, 2), within=60, what="it runs again")


@pytest.mark.parametrize("item", [deployment, replica_set, stateful_set, leader_worker_set])
def test_the_pods_that_come_of_a_scale_queue(maker, item):
    """The webhooks are asked about the pods, and not about the subresource."""
    api, quota = maker.api, 24
    kind = submit(maker, item())["kind"]
    eventually(lambda: set(phases(api)) == {"Running"}, within=60, what="its pods run")

    path = f"{driver.PATHS[kind].format(namespace='team-a')}/serve/scale"
    merge = driver.PATCH_TYPES["merge"]
    api.acting_as("alice").call("PATCH", path, {"spec": {"replicas": 12}}, content_type=merge)
    maker.make(api.get(kind, "serve", "team-a"))

    eventually(lambda: gpus(pods(api)) == 12 * 4, within=60, what="all pods are there")
    for _ in range(20):
        assert gpus(p for p in pods(api) if not p["spec"].get("schedulingGates")) <= quota
        time.sleep(0.1)


def gpus(found):
    limits = (each["spec"]["containers"][0]["resources"]["limits"] for each in found)
    return sum(int(each["nvidia.com/gpu"]) for each in limits)
