"""Two features at once, or a feature in the middle of a run: columns beside the single ones."""

import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from policyd.api.kueue.names import API_VERSION
from tests.matrix import features
from tests.matrix.cell import PRIORITY, URGENT, Cell
from tests.matrix.features import ELASTIC, PREBUILT, TAKES_PREBUILT, Feature, P
from tests.matrix.kinds import (
    ENDLESS,
    GPUS,
    KINDS,
    NAME,
    ONE_BY_ONE,
    PODS,
    RAYS,
    WITH_LEADER,
    Body,
    bodies,
    templates_in,
)
from tests.scenarios import foreign
from tests.scenarios.api import Refused, condition
from tests.scenarios.objects import job

ELASTIC_JOB = {f"{P}elastic-job": "true"}
RESEARCH = {PRIORITY: "research"}
PREEMPTING = {"preemption": {"withinClusterQueue": "LowerPriority"}}


def preempted(cell: Cell, count: int | None = None) -> None:
    """Have the job preempted, and wait until it runs again."""
    with cell.urgent():
        cell.wait(cell.is_held, "the job is preempted")
        cell.wait(lambda: features.runs(cell, URGENT), "the urgent job runs")
    if cell.kind in PODS:
        cell.submit_again()
    cell.starts(count)


def topology_priorities(cell: Cell) -> None:
    """Preempted, it gets another place in one rack."""
    cell.furnish(topology=True, **PREEMPTING)
    cell.submit(features.in_one_rack, labels=RESEARCH)
    cell.starts()
    preempted(cell)
    assert len(features.places(cell, features.RACK)) == 1, "all in one rack"
    cell.ends()


def partial_priorities(cell: Cell) -> None:
    """A Job that runs with three of four pods is preempted, and has its four again meanwhile."""
    cell.furnish(gpus=12, **PREEMPTING)
    cell.submit(_four, labels=RESEARCH, annotations={f"{P}job-min-parallelism": "3"})
    cell.starts(3)
    with cell.urgent():
        cell.wait(cell.is_held, "the job is preempted")
        cell.wait(lambda: cell.job()["spec"]["parallelism"] == 4, "it asks for four pods again")
    cell.starts(3)
    cell.ends()


def partial_topology(cell: Cell) -> None:
    """Four pods do not fit into a rack of which one node is gone, and two are enough."""
    cell.furnish(gpus=16, topology=True)
    for index in (0, 2):
        cell.api.delete("Node", f"{cell.name}-{index}")

    def four(body: Body) -> None:
        _four(body)
        features.in_one_rack(body)

    cell.submit(four, annotations={f"{P}job-min-parallelism": "2"})
    cell.starts(2)
    assert len(features.places(cell, features.RACK)) == 1, "all in one rack"
    cell.ends()


def partial_prebuilt(cell: Cell) -> None:
    """The workload of others says how few pods are enough."""
    cell.furnish(gpus=12)
    made = partial(cell.submit, _four)
    few = {f"{P}job-min-parallelism": "3"}
    features.build(cell, lambda: made(annotations=few))
    made(labels={PREBUILT: NAME}, annotations=few)
    cell.starts(3)
    assert [each["metadata"]["name"] for each in cell.workloads()] == [NAME]
    cell.ends()


def partial_retention(cell: Cell) -> None:
    """The workload goes, and the Job, which ran with fewer pods, gets no other."""
    partial_plain = features.FEATURES["partial"].story
    partial_plain(cell)
    gone(cell)


def gone(cell: Cell) -> None:
    """Wait until the workload is deleted, and see that none comes in its place."""
    cell.result.returned = False
    cell.wait(lambda: not cell.workloads(), "the workload is deleted")
    assert cell.kind in PODS or cell.job()
    cell.result.returned = True


def elastic_priorities(cell: Cell) -> None:
    """A job that grew is preempted, and runs again as big as it was."""
    head = _elastic(cell, **PREEMPTING)
    cell.resize(2)
    cell.starts(2 + head)
    preempted(cell, 2 + head)
    cell.wait(lambda: cell.used() == 4 * (2 + head), "all are charged")
    cell.ends()


def elastic_retention(cell: Cell) -> None:
    """Both slices go in the end."""
    head = _elastic(cell)
    cell.resize(2)
    cell.starts(2 + head)
    cell.ends()
    gone(cell)


def elastic_time_limit(cell: Cell) -> None:
    """Its time is that of all slices."""
    head = _elastic(cell, labels={f"{P}max-exec-time-seconds": str(features.LIMIT_SECONDS)})
    cell.resize(2)
    cell.starts(2 + head)
    cell.result.finished = False
    cell.wait(cell.is_held, "the job is stopped for good")
    cell.result.finished = True
    cell.gives_back()


def _elastic(cell: Cell, labels: dict[str, str] = RESEARCH, **spec: Any) -> int:
    """Start an elastic job of one pod, or a head and a worker; return the number of heads."""
    head = 1 if cell.kind in RAYS else 0
    cell.furnish(gpus=12, **spec)
    cell.submit(_one, annotations=ELASTIC_JOB, labels=labels)
    cell.starts(1 + head)
    return head


def _one(body: Body) -> None:
    if body["kind"] == "Job":
        body["spec"] |= {"parallelism": 1, "completions": None}


def _four(body: Body) -> None:
    body["spec"] |= {"parallelism": 4, "completions": 4}


def groups_priorities(cell: Cell) -> None:
    """A leader and its workers are preempted together, and placed together again."""
    cell.furnish(topology=True, **PREEMPTING)
    cell.submit(features.paired, labels=RESEARCH)
    cell.starts()
    preempted(cell)
    assert len(features.places(cell, features.RACK)) == 1, "both in one rack"
    cell.ends()


def prebuilt_priorities(cell: Cell) -> None:
    """A job with the workload of others is preempted, and runs again with the same one."""
    cell.furnish(**PREEMPTING)
    features.build(cell, partial(cell.submit, labels=RESEARCH))
    cell.submit(labels={PREBUILT: NAME, **RESEARCH})
    cell.starts()
    preempted(cell)
    assert [each["metadata"]["name"] for each in cell.workloads()] == [NAME]
    cell.ends()


def prebuilt_topology(cell: Cell) -> None:
    cell.furnish(topology=True)
    features.build(cell, partial(cell.submit, features.in_one_rack))
    cell.submit(features.in_one_rack, labels={PREBUILT: NAME})
    cell.starts()
    assert len(features.places(cell, features.RACK)) == 1, "all in one rack"
    cell.ends()


def drained(cell: Cell) -> None:
    """Its queue is drained, and opened again."""
    cell.furnish()
    cell.submit()
    cell.starts()
    cell.api.patch("ClusterQueue", cell.name, {"spec": {"stopPolicy": "HoldAndDrain"}})
    cell.wait(cell.is_held, "the job is stopped")
    cell.wait(lambda: cell.used() == 0, "the quota is free")
    if cell.kind in PODS:
        cell.submit_again()
    cell.api.patch("ClusterQueue", cell.name, {"spec": {"stopPolicy": "None"}})
    cell.starts()
    cell.ends()


def deactivated(cell: Cell) -> None:
    """Its workload is deactivated, and activated again."""
    cell.furnish()
    cell.submit()
    cell.starts()
    activate(cell, active=False)
    cell.wait(cell.is_held, "the job is stopped")
    cell.wait(lambda: cell.used() == 0, "the quota is free")
    if cell.kind in PODS:
        cell.submit_again()
    activate(cell, active=True)
    cell.starts()
    cell.ends()


def activate(cell: Cell, *, active: bool) -> None:
    for each in cell.workloads():
        name = each["metadata"]["name"]
        cell.api.patch("Workload", name, {"spec": {"active": active}}, namespace=cell.name)


@contextmanager
def checked(cell: Cell) -> Iterator[None]:
    """Have an admission check before the queue; let go what waits for it when it ends."""
    kind = {"apiVersion": API_VERSION, "kind": "AdmissionCheck"}
    cell.api.create(
        {**kind, "metadata": {"name": cell.name}, "spec": {"controllerName": "example.com/by-hand"}}
    )
    active = {"type": "Active", "status": "True", "reason": "Active", "message": "it is"}
    active["lastTransitionTime"] = "2026-11-21T10:00:00Z"
    cell.api.patch("AdmissionCheck", f"{cell.name}/status", {"status": {"conditions": [active]}})
    yield


def check(cell: Cell) -> None:
    """An admission check changes the pods, and lets the job go."""
    with checked(cell):
        cell.furnish(admissionChecksStrategy={"admissionChecks": [{"name": cell.name}]})
        cell.submit()
        cell.wait(lambda: cell.is_held() and waiting(cell), "its workload waits for the check")
    cell.wait(lambda: answer(cell) or cell.runs(), "the job runs")
    cell.starts()
    for pod in cell.pods():
        assert pod["metadata"]["labels"].get("example.com/checked") == "yes", "updated by the check"
    cell.ends()


def waiting(cell: Cell) -> list[Body]:
    return [
        each
        for each in cell.api.find("Workload", cell.name)
        if condition(each, "QuotaReserved").get("status") == "True"
        and condition(each, "Finished").get("status") != "True"
        and [c["state"] for c in each["status"].get("admissionChecks", [])] == ["Pending"]
    ]


def answer(cell: Cell) -> None:
    """Say that the check is passed by everything that waits for it."""
    for each in waiting(cell):
        (state,) = each["status"]["admissionChecks"]
        updates = [
            {"name": pod_set["name"], "labels": {"example.com/checked": "yes"}}
            for pod_set in each["spec"]["podSets"]
        ]
        passed = {**state, "state": "Ready", "message": "go", "podSetUpdates": updates}
        _set_check(cell, each, passed)


def _set_check(cell: Cell, workload: Body, state: Body) -> None:
    path, status = f"{workload['metadata']['name']}/status", {"admissionChecks": [state]}
    with suppress(Refused):  # it is gone meanwhile
        cell.api.patch("Workload", path, {"status": status}, namespace=cell.name)


def elastic_check(cell: Cell) -> None:
    """A job that grows goes on while the check of its bigger slice is pending."""
    head = 1 if cell.kind in RAYS else 0
    with checked(cell):
        cell.furnish(gpus=12, admissionChecksStrategy={"admissionChecks": [{"name": cell.name}]})
        cell.submit(_one, annotations=ELASTIC_JOB)
        cell.wait(lambda: waiting(cell), "its workload waits for the check")
    answer(cell)
    cell.starts(1 + head)
    cell.resize(2)
    cell.wait(lambda: waiting(cell), "the bigger slice waits for the check")
    answer(cell)
    cell.starts(2 + head)
    cell.ends()


def check_priorities(cell: Cell) -> None:
    """A job that passed a check is preempted, and has to pass it again."""
    with checked(cell):
        strategy = {"admissionChecks": [{"name": cell.name}]}
        cell.furnish(admissionChecksStrategy=strategy, **PREEMPTING)
        cell.submit(labels=RESEARCH)
        cell.wait(lambda: answer(cell) or cell.runs(), "the job runs")
        with cell.urgent():
            cell.wait(cell.is_held, "the job is preempted")
            cell.wait(lambda: answer(cell) or features.runs(cell, URGENT), "the urgent one runs")
        if cell.kind in PODS:
            cell.submit_again()
        cell.wait(lambda: answer(cell) or cell.runs(), "the job runs again")
        cell.starts()
        cell.ends()


def reclaimed(cell: Cell) -> None:
    """What ends first gives back its quota, which another job gets."""
    cell.furnish()
    cell.submit()
    cell.starts()
    first = cell.pods()[0]["metadata"]["name"]
    cell.api.patch(
        "Pod", f"{first}/status", {"status": {"phase": "Succeeded"}}, namespace=cell.name
    )
    cell.wait(lambda: cell.used() == GPUS // 2, "a half is given back")
    made = job(URGENT, cell.name, gpus=GPUS // 2, run_for="3600s")
    made["metadata"]["labels"] = {f"{P}queue-name": cell.name}
    cell.api.create(made)
    cell.wait(lambda: features.runs(cell, URGENT), "another job has it")
    cell.api.delete("Job", URGENT, cell.name)
    cell.ends()


def check_retried(cell: Cell) -> None:
    """A check takes a job that runs back, and lets it go once more."""
    with checked(cell):
        cell.furnish(admissionChecksStrategy={"admissionChecks": [{"name": cell.name}]})
        cell.submit()
        cell.wait(lambda: answer(cell) or cell.runs(), "the job runs")
        for each in cell.workloads():
            (state,) = each["status"]["admissionChecks"]
            _set_check(cell, each, {**state, "state": "Retry", "message": "once more"})
        cell.wait(cell.is_held, "the job is stopped")
        if cell.kind in PODS:
            cell.submit_again()
    cell.wait(lambda: answer(cell) or cell.runs(), "the job runs again")
    cell.starts()
    cell.ends()


def elastic_reclaimed(cell: Cell) -> None:
    """A job of which some pods have ended shrinks: what still runs is charged, no more or less."""

    cell.furnish(gpus=16)
    cell.submit(_four, annotations=ELASTIC_JOB)
    cell.starts(4)
    for pod in cell.pods()[:2]:
        path = f"{pod['metadata']['name']}/status"
        cell.api.patch("Pod", path, {"status": {"phase": "Succeeded"}}, namespace=cell.name)
    cell.wait(lambda: cell.used() == 8, "two pods are charged")
    cell.resize(3)
    cell.wait(lambda: _reclaimable(cell) == [1], "one of three is given back")
    assert cell.used() == 8
    cell.resize(2)
    cell.wait(lambda: _reclaimable(cell) in ([], [0]), "none of two is given back")
    assert cell.used() == 8
    cell.ends()


def _reclaimable(cell: Cell) -> list[int]:
    (workload,) = [w for w in cell.workloads() if not condition(w, "Finished")]
    return [each["count"] for each in workload["status"].get("reclaimablePods", [])]


def replaced_by_hand(cell: Cell) -> None:
    """The node of a pod of a group fails: a pod that its user makes gets another in the rack."""
    cell.furnish(topology=True)
    cell.submit(features.in_one_rack)
    cell.starts()
    rack = features.places(cell, features.RACK)
    lost = min(features.places(cell, features.HOSTNAME))
    cell.api.delete("Node", lost)
    there = {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in cell.pods()}
    for body in [each for each in cell.submitted if there[each["metadata"]["name"]] == lost]:
        name = body["metadata"]["name"]
        cell.api.delete("Pod", name, cell.name, missing_is_fine=True, at_once=True)
        # Until then, one more pod of its group is too many.
        cell.wait(partial(_has_failed, cell, name), f"pod {name} has failed, or is gone")
        body["metadata"]["name"] += "-again"
        cell.api.create(body)
    cell.result.started = False
    cell.wait(
        lambda: cell.runs() and lost not in features.places(cell, features.HOSTNAME),
        "all run elsewhere",
    )
    cell.result.started = True
    assert features.places(cell, features.RACK) == rack, "in the same rack"
    cell.ends()


def _has_failed(cell: Cell, name: str) -> bool:
    pods = {each["metadata"]["name"]: each for each in cell.api.find("Pod", cell.name)}
    return name not in pods or pods[name]["status"]["phase"] == "Failed"


def reprioritised(cell: Cell) -> None:
    """A job that waits gets another priority class, and goes before one that came earlier."""
    cell.furnish()
    with cell.urgent():
        cell.wait(lambda: features.runs(cell, URGENT), "another job has all there is")
        cell.submit(labels=RESEARCH)
        cell.wait(lambda: cell.is_held() and cell.workloads(), "the job queues")
        before = {each["spec"]["priority"] for each in cell.workloads()}
        _label(cell, PRIORITY, "production")
        cell.wait(
            lambda: all(each["spec"]["priority"] > max(before) for each in cell.workloads()),
            "its workload has the new priority",
        )
    cell.starts()
    _label(cell, PRIORITY, "research")
    cell.wait(
        lambda: {each["spec"]["priority"] for each in cell.workloads()} == before,
        "its workload has the old priority",
    )
    cell.starts()
    cell.wait(lambda: _is_at_rest(cell), "its workload is not written again and again")
    cell.ends()


def _is_at_rest(cell: Cell) -> bool:
    versions = [each["metadata"]["resourceVersion"] for each in cell.workloads()]
    time.sleep(1)
    return versions == [each["metadata"]["resourceVersion"] for each in cell.workloads()]


def moved(cell: Cell) -> None:
    """A job that waits goes to another queue, which has room."""
    cell.furnish()
    other = f"{cell.name}-other"
    spec = cell.api.get("ClusterQueue", cell.name)["spec"]
    for kind, body in (("ClusterQueue", spec), ("LocalQueue", {"clusterQueue": other})):
        about = {"name": other, "namespace": cell.name}
        cell.api.create({"apiVersion": API_VERSION, "kind": kind, "metadata": about, "spec": body})
    with cell.urgent():
        cell.wait(lambda: features.runs(cell, URGENT), "another job has all there is")
        cell.submit()
        cell.wait(lambda: cell.is_held() and cell.workloads(), "the job queues")
        _label(cell, f"{P}queue-name", other)
        cell.starts()
    cell.ends()


def _label(cell: Cell, name: str, value: str) -> None:
    """Put a label on the job, or on all of its pods."""
    change = {"metadata": {"labels": {name: value}}}
    if cell.kind not in PODS:
        cell.patch(change)
        return
    for each in cell.pods():
        cell.api.patch("Pod", each["metadata"]["name"], change, namespace=cell.name)


def edited(cell: Cell) -> None:
    """A job that asks for more than there is gets less to do while it waits."""
    cell.furnish(gpus=GPUS // 2)
    cell.submit()
    cell.wait(lambda: cell.is_held() and cell.workloads(), "the job queues")
    (first,) = cell.workloads()
    made = foreign.foreign(cell.kind, NAME, foreign.SPECS[cell.kind](GPUS // 2))
    for template in templates_in(made):
        template["metadata"]["annotations"]["policyd.io/run-for"] = "3600s"
        template["metadata"]["labels"] = {"ray.io/cluster": NAME}
    cell.patch({"spec": made["spec"]})
    cell.starts()
    assert first["metadata"]["uid"] == cell.workloads()[0]["metadata"]["uid"], "it is updated"
    cell.ends()


def fast(cell: Cell) -> None:
    """A group that need not be whole is admitted with its first pod, and runs as pods come."""
    cell.furnish()
    made = [*bodies(cell.kind)]
    for count, body in enumerate(made, start=1):
        body["metadata"]["namespace"] = cell.name
        body["metadata"]["labels"][f"{P}queue-name"] = cell.name
        body["metadata"]["annotations"][f"{P}pod-group-fast-admission"] = "true"
        cell.api.create(body)
        cell.starts(count)
        cell.wait(lambda: cell.used() == GPUS, "all are charged")
    cell.ends()


def scaled(cell: Cell) -> None:
    """Created without pods, it is scaled up, down to none, and up again: usage follows."""
    cell.furnish()
    cell.submit(lambda body: body["spec"].update(replicas=0))
    for replicas in (2, 0, 2):
        cell.patch({"spec": {"replicas": replicas}})
        if not replicas and cell.cluster.name == "embedded":
            cell.clear_pods()  # there is no controller that does it
        cell.starts()
        cell.wait(lambda size=4 * replicas: cell.used() == size, f"{replicas} replicas are charged")
    cell.ends()


def executors(cell: Cell) -> None:
    """A driver makes executors, and ends them again, within the quota that is held for the most."""

    def dynamic(body: Body) -> None:
        body["spec"]["dynamicAllocation"] = {"enabled": True, "minExecutors": 1, "maxExecutors": 3}

    cell.furnish(gpus=2 * GPUS, **PREEMPTING)
    cell.submit(dynamic, labels=RESEARCH, annotations={"policyd.io/elastic-executors": "true"})
    cell.starts()
    cell.wait(lambda: cell.used() == 2 * GPUS, "a driver and three executors are charged")
    made = cell.job()
    foreign.operate(cell.api, made, first=2, templates_of=[foreign.templates(made)[-1]])
    cell.wait(lambda: _running(cell) == 3, "another executor runs")
    cell.api.delete("Pod", f"{NAME}-2", cell.name)
    cell.wait(lambda: cell.runs() and cell.used() == 2 * GPUS, "its quota stays for the next one")
    preempted(cell)
    cell.ends()


def _running(cell: Cell) -> int:
    return [each["status"].get("phase") for each in cell.pods()].count("Running")


def scheduled(cell: Cell) -> None:
    """A Job of a CronJob queues where that says, is preempted like any other, and runs again."""
    cell.furnish(**PREEMPTING)
    (made,) = bodies(cell.kind)
    about = {"name": "nightly", "namespace": cell.name}
    owner = cell.api.create(
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {**about, "labels": {f"{P}queue-name": cell.name, **RESEARCH}},
            "spec": {
                "schedule": "0 3 * * *",
                "suspend": True,
                "jobTemplate": {"spec": made["spec"]},
            },
        }
    )
    template = owner["spec"]["jobTemplate"]
    reference = {name: owner[name] for name in ("apiVersion", "kind")}
    reference |= {"name": "nightly", "uid": owner["metadata"]["uid"], "controller": True}
    metadata = {**template["metadata"], "name": NAME, "namespace": cell.name}
    cell.api.acting_as("system:serviceaccount:kube-system:cronjob-controller").create(
        {**made, "metadata": {**metadata, "ownerReferences": [reference]}, "spec": template["spec"]}
    )
    cell.starts()
    preempted(cell)
    cell.ends()


def classless(cell: Cell) -> None:
    """Its priority class goes while it runs: it is preempted, runs again, and ends all the same."""
    kind = {"apiVersion": API_VERSION, "kind": "WorkloadPriorityClass"}
    cell.api.create({**kind, "metadata": {"name": cell.name}, "value": 100})
    cell.furnish(**PREEMPTING)
    cell.submit(labels={PRIORITY: cell.name})
    cell.starts()
    cell.api.delete("WorkloadPriorityClass", cell.name)
    preempted(cell)
    cell.ends()


def joined(cell: Cell) -> None:
    """A pod that names another size than its group waits alone: the others are preempted."""
    cell.furnish(**PREEMPTING)
    cell.submit(labels=RESEARCH)
    cell.starts()
    other = copy.deepcopy(cell.submitted[0])
    other["metadata"]["name"] = "other"
    other["metadata"]["annotations"][f"{P}pod-group-total-count"] = "9"
    cell.api.create(other)
    with cell.urgent():
        cell.wait(cell.is_held, "the group is preempted")
        cell.wait(lambda: features.runs(cell, URGENT), "the urgent job runs")
        cell.api.delete("Pod", "other", cell.name, missing_is_fine=True)
    cell.submit_again()
    cell.starts()
    cell.ends()


PAIRS = {
    "topology-priorities": Feature(topology_priorities),
    "partial-priorities": Feature(partial_priorities, ("Job",), "only a Job says how few"),
    "partial-topology": Feature(partial_topology, ("Job",), "only a Job says how few"),
    "partial-prebuilt": Feature(partial_prebuilt, ("Job",), "only a Job says how few"),
    "partial-retention": Feature(partial_retention, ("Job",), "only a Job says how few"),
    "elastic-priorities": Feature(elastic_priorities, ELASTIC, "may not be elastic"),
    "elastic-retention": Feature(
        elastic_retention, [k for k in ELASTIC if k not in ENDLESS], "is not elastic, or endless"
    ),
    "elastic-time-limit": Feature(elastic_time_limit, ELASTIC, "may not be elastic"),
    "elastic-check": Feature(elastic_check, ELASTIC, "may not be elastic"),
    "groups-priorities": Feature(groups_priorities, WITH_LEADER, "has no leader beside workers"),
    "prebuilt-priorities": Feature(
        prebuilt_priorities, TAKES_PREBUILT - {"PodGroup"}, "takes none"
    ),
    "prebuilt-topology": Feature(prebuilt_topology, TAKES_PREBUILT, "takes none"),
    "drained": Feature(drained),
    "deactivated": Feature(deactivated, [k for k in KINDS if k not in {"Pod", *ONE_BY_ONE}]),
    "check": Feature(check),
    "check-priorities": Feature(check_priorities),
    "reclaimed": Feature(reclaimed, ("Job", "PodGroup"), "its operator reports what has ended"),
    "check-retried": Feature(check_retried),
    "elastic-reclaimed": Feature(elastic_reclaimed, ("Job",), "gives nothing back, or not elastic"),
    "replaced-by-hand": Feature(replaced_by_hand, ("PodGroup",), "its operator makes its pods"),
    "reprioritised": Feature(
        reprioritised, [k for k in KINDS if k not in ONE_BY_ONE], "gets other pods for that"
    ),
    "moved": Feature(moved, [k for k in KINDS if k not in ONE_BY_ONE], "gets other pods for that"),
    "edited": Feature(edited, foreign.SPECS, "its templates may not change"),
    "fast": Feature(fast, ("PodGroup",), "is whole"),
    "scaled": Feature(
        scaled,
        ("Deployment", "ReplicaSet", "StatefulSet", "LeaderWorkerSet"),
        "is not scaled to zero",
    ),
    "executors": Feature(executors, ("SparkApplication",), "has no executors"),
    "classless": Feature(
        classless, [k for k in KINDS if k not in {"Pod", *ONE_BY_ONE}], "gets other pods for that"
    ),
    "joined": Feature(joined, ("PodGroup",), "its operator makes its pods"),
    "scheduled": Feature(scheduled, ("Job",), "is not made by a CronJob"),
}
EVERY = {**features.FEATURES, **PAIRS}
