"""The features of the matrix: a story each, and the kinds that it is for."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from policyd.cli import demo
from tests.matrix.cell import HOSTNAME, PRIORITY, RACK, TOPOLOGY, URGENT, Cell
from tests.matrix.kinds import (
    ENDLESS,
    KINDS,
    NAME,
    ONE_BY_ONE,
    PODS,
    RAYS,
    WITH_LEADER,
    Body,
    templates_in,
)
from tests.scenarios.api import condition
from tests.scenarios.foreign import operator
from tests.scenarios.objects import job

P = "kueue.x-k8s.io/"
PREBUILT, TAKES_PREBUILT = (
    f"{P}prebuilt-workload-name",
    frozenset({"Job", *WITH_LEADER, "TrainJob", "AppWrapper", "PodGroup"} - {"SparkApplication"}),
)
LIMIT_SECONDS = 10
"""Time enough for pods to run on a busy machine, that come once their workload is admitted."""

CONFIGURATION = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "objectRetentionPolicies": {"workloads": {"afterFinished": "4s"}},
}
"""What both clusters run with; `frameworks` are added."""


@dataclass(frozen=True)
class Feature:
    """One column of the matrix."""

    story: Callable[[Cell], None]
    kinds: Iterable[str] = KINDS
    why_not: str = ""
    """Why it is not for other kinds."""


def plain(cell: Cell) -> None:
    cell.furnish()
    cell.submit()
    cell.starts()
    cell.ends()


def partial(cell: Cell) -> None:
    """Three of four pods fit, and three are enough; what runs so can be edited."""

    def four(body: Body) -> None:
        body["spec"] |= {"parallelism": 4, "completions": 4}

    cell.furnish(gpus=12)
    cell.submit(four, annotations={f"{P}job-min-parallelism": "3"})
    cell.starts(3)
    assert cell.job()["spec"]["parallelism"] == 3
    cell.patch({"metadata": {"labels": {"edited": "yes"}}})
    cell.ends()


def _elastic(cell: Cell, *, topology: bool) -> None:
    """Grows from one pod, or worker, to two, and shrinks again: usage follows, and so do pods."""
    head = 1 if cell.kind in RAYS else 0

    def one(body: Body) -> None:
        if not head:
            body["spec"] |= {"parallelism": 1, "completions": None}

    cell.furnish(gpus=12, topology=topology)
    cell.submit(one, annotations={f"{P}elastic-job": "true"})
    cell.starts(1 + head)
    for size in (2, 1):
        cell.resize(size)
        cell.starts(size + head)
        cell.wait(lambda size=size: cell.used() == 4 * (size + head), f"{size} are charged")
    cell.ends()


def elastic(cell: Cell) -> None:
    _elastic(cell, topology=False)


def elastic_topology(cell: Cell) -> None:
    _elastic(cell, topology=True)


def topology(cell: Cell) -> None:
    cell.furnish(topology=True)
    cell.submit(in_one_rack)
    cell.starts()
    assert len(places(cell, RACK)) == 1, "all in one rack"
    cell.ends()


def in_one_rack(body: Body) -> None:
    for template in templates_in(body):
        template["metadata"]["annotations"][f"{P}podset-required-topology"] = RACK


def places(cell: Cell, label: str) -> set[str]:
    names = {pod["spec"]["nodeName"] for pod in cell.pods()}
    return {cell.api.get("Node", name)["metadata"]["labels"][label] for name in names}


def groups(cell: Cell) -> None:
    """A leader and its workers are placed together."""

    cell.furnish(topology=True)
    cell.submit(paired)
    cell.starts()
    assert len(places(cell, RACK)) == 1, "both in one rack"
    cell.ends()


def paired(body: Body) -> None:
    """Have the pod sets of a job placed together."""
    if body["kind"] == "JobSet":
        (jobs,) = body["spec"]["replicatedJobs"]
        body["spec"]["replicatedJobs"] = [
            {**_copied(jobs), "name": name, "replicas": 1} for name in ("leader", "workers")
        ]
    in_one_rack(body)
    for template in templates_in(body):
        template["metadata"]["annotations"][f"{P}podset-group-name"] = "pair"


def _copied(body: Any) -> Any:
    if isinstance(body, dict):
        return {key: _copied(value) for key, value in body.items()}
    return [_copied(each) for each in body] if isinstance(body, list) else body


def prebuilt(cell: Cell) -> None:
    """The workload is there before its job: made from that of a job that was held."""
    cell.furnish()
    build(cell, cell.submit)
    cell.submit(labels={PREBUILT: NAME})
    cell.starts()
    assert [each["metadata"]["name"] for each in cell.workloads()] == [NAME]
    cell.ends()


def build(cell: Cell, submit: Callable[[], None]) -> None:
    """Create the workload of a job before it: a copy of that of one that was held."""
    hold = {"spec": {"stopPolicy": "Hold"}}
    cell.api.patch("LocalQueue", cell.name, hold, namespace=cell.name)
    submit()
    (workload,) = cell.wait(cell.workloads, "there is a workload to copy")
    cell.delete()
    for each in cell.workloads():
        cell.api.delete("Workload", each["metadata"]["name"], cell.name, missing_is_fine=True)
    cell.wait(lambda: not (cell.workloads() or cell.pods(alive=False)), "the held job is gone")
    cell.api.patch("LocalQueue", cell.name, {"spec": {"stopPolicy": "None"}}, namespace=cell.name)
    kept = ("queueName", "podSets", "priority", "priorityClassRef")
    spec = {name: workload["spec"][name] for name in kept if name in workload["spec"]}
    cell.api.create(
        {
            "apiVersion": workload["apiVersion"],
            "kind": "Workload",
            "metadata": {"name": NAME, "namespace": cell.name},
            "spec": spec,
        }
    )


def priorities(cell: Cell) -> None:
    """Preempted by a more important job, it runs again after that."""
    cell.furnish(preemption={"withinClusterQueue": "LowerPriority"})
    cell.submit(labels={PRIORITY: "research"})
    cell.starts()
    with cell.urgent():
        cell.wait(cell.is_held, "the job is preempted")
        cell.wait(lambda: runs(cell, URGENT), "the urgent job runs")
    if cell.kind in PODS:
        cell.submit_again()
    cell.starts()
    cell.ends()


def runs(cell: Cell, name: str) -> bool:
    pods = cell.api.find("Pod", cell.name)
    mine = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{name}-")]
    return [pod["status"].get("phase") for pod in mine] == ["Running"]


def retention(cell: Cell) -> None:
    """The workload is deleted some time after the end, and its job stays."""
    plain(cell)
    cell.result.returned = False
    cell.wait(lambda: not cell.workloads(), "the workload is deleted")
    assert cell.kind in PODS or cell.job()
    cell.result.returned = True


def time_limit(cell: Cell) -> None:
    """It may not run any longer: its workload is deactivated, and the job stopped."""
    cell.furnish()
    cell.submit(labels={f"{P}max-exec-time-seconds": str(LIMIT_SECONDS)})
    cell.starts()
    cell.result.finished = False
    cell.wait(lambda: _is_stopped(cell), "the job is stopped for good")
    cell.result.finished = True
    cell.gives_back()


def _is_stopped(cell: Cell) -> bool:
    deactivated = [each["spec"].get("active") is False for each in cell.workloads()]
    return all(deactivated) and (cell.kind in PODS or cell.is_held())


def node_replacement(cell: Cell) -> None:
    """The node of a pod fails: its pods get another one, in the same rack."""
    cell.furnish(topology=True)
    cell.submit(in_one_rack)
    cell.starts()
    rack, (lost, *_) = places(cell, RACK), sorted(places(cell, HOSTNAME))
    cell.api.delete("Node", lost)
    for each in cell.pods():
        if each["spec"].get("nodeName") == lost:
            name = each["metadata"]["name"]
            cell.api.delete("Pod", name, cell.name, missing_is_fine=True)
    cell.result.started = False
    cell.wait(lambda: cell.runs() and lost not in places(cell, HOSTNAME), "all run elsewhere")
    cell.result.started = True
    assert places(cell, RACK) == rack, "in the same rack"
    evicted = [condition(each, "Evicted").get("status") for each in cell.workloads()]
    assert "True" not in evicted, "nobody was evicted"
    cell.ends()


def children(cell: Cell) -> None:
    """A Job that the job's operator has made may not run until the job may."""
    cell.furnish()
    with cell.urgent():
        cell.wait(lambda: runs(cell, URGENT), "another job has all there is")
        cell.submit()
        cell.wait(cell.workloads, "the job queues")
        child = _child_of(cell.job())
        cell.api.acting_as(operator(cell.job())).create(child)
        cell.wait(lambda: _child(cell)["spec"]["suspend"], "its child is suspended")
    cell.starts()
    cell.api.acting_as(operator(cell.job())).patch(
        "Job", "child", {"spec": {"suspend": False}}, namespace=cell.name
    )
    cell.wait(lambda: runs(cell, "child"), "its child runs")
    assert not _child(cell)["spec"]["suspend"]
    cell.ends()


def _child(cell: Cell) -> Body:
    return cell.api.get("Job", "child", cell.name)


def _child_of(owner: Body) -> Body:
    """Return a Job as operators make it: from a template that does not name the queue."""
    about = owner["metadata"]
    made = job("child", about["namespace"], gpus=0, run_for="3600s")
    (template,) = templates_in(made)
    template["metadata"]["annotations"][f"{P}workload"] = "of-its-owner"
    reference = {name: owner[name] for name in ("apiVersion", "kind")}
    reference |= {"name": about["name"], "uid": about["uid"], "controller": True}
    made["metadata"]["ownerReferences"] = [reference]
    return made


ELASTIC = ("Job", *RAYS)
FEATURES = {
    "plain": Feature(plain),
    "partial": Feature(partial, ("Job",), "only a Job says how few pods are enough"),
    "elastic": Feature(elastic, ELASTIC, "may not be elastic"),
    "elastic-topology": Feature(elastic_topology, ELASTIC, "may not be elastic"),
    "topology": Feature(topology),
    "groups": Feature(groups, (*WITH_LEADER, "LeaderWorkerSet"), "has no leader beside workers"),
    "prebuilt": Feature(prebuilt, TAKES_PREBUILT, "takes no workload of others"),
    "priorities": Feature(priorities),
    "retention": Feature(retention, [k for k in KINDS if k not in ENDLESS], "does not end"),
    "time-limit": Feature(
        time_limit, [k for k in KINDS if k not in ONE_BY_ONE], "gets other pods, with a time each"
    ),
    "children": Feature(
        children, ("JobSet", "MPIJob", "RayJob", "TrainJob"), "has no Jobs made for it"
    ),
    "node-replacement": Feature(
        node_replacement,
        [kind for kind in KINDS if kind not in {*PODS, *ONE_BY_ONE}],
        "nobody makes another pod of the same workload",
    ),
}


def topologies() -> Body:
    """Return the topology that all cells share: racks of nodes."""
    levels = [{"nodeLabel": label} for label in (RACK, HOSTNAME)]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": TOPOLOGY},
        "spec": {"levels": levels},
    }


assert RACK == demo.RACK_LABEL
