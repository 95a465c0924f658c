"""Pods, groups of pods, and the objects that make them, on other clusters."""

import pytest

from policyd.api.kueue.names import ADMISSION_GATE, ORIGIN_UID
from policyd.controller.watch.mirrors import job_resource
from policyd.jobs.kinds.leader_worker_set import LEADER_WORKER_SET
from policyd.jobs.kinds.stateful_set import STATEFUL_SET
from policyd.kube import resources as r
from policyd.multikueue.settings import ORIGIN
from tests.controller.clusters import Manager, clusters, where
from tests.controller.parents import make_pod, submit
from tests.controller.world import gates, names, pod_spec

pytestmark = pytest.mark.anyio

SETS, LEADERS = job_resource(STATEFUL_SET), job_resource(LEADER_WORKER_SET)


def is_held(pod):
    return ADMISSION_GATE in gates(pod)


async def test_a_pod_runs_on_the_worker_that_has_room_and_its_status_comes_back():
    manager = Manager(0, 8)
    manager.pod("train")
    async with clusters(manager):
        west = manager.workers["west"]
        assert where(manager, "train") == "west"
        (sent,) = west.all(r.PODS)
        assert sent["metadata"]["labels"][ORIGIN] == "multikueue"
        assert gates(sent) == []
        west.run_pods("Running")
        await manager.pass_time(5)
        here = manager.get(r.PODS, "train")
        assert here["status"]["phase"] == "Running"
        assert is_held(here)
        assert manager.is_true("train", "Admitted")
        (check,) = manager.workload_of("train")["status"]["admissionChecks"]
        assert (check["state"], check["message"]) == (
            "Ready",
            'The workload was admitted on "west"',
        )
        await manager.kill()
        await manager.start()
        await manager.pass_time(5)
        assert is_held(manager.get(r.PODS, "train"))
        west.run_pods("Succeeded")
        await manager.pass_time(10)
        assert manager.is_true("train", "Finished")
        assert names(west, r.PODS) == names(west, r.WORKLOADS) == []


async def test_a_pod_that_runs_elsewhere_stays_gated_if_its_queue_has_no_check_any_more():
    manager = Manager(0, 8)
    manager.pod("train")
    async with clusters(manager):
        manager.queue(gpus=64)
        await manager.pass_time(5)
        assert manager.workload_of("train")["status"].get("admissionChecks", []) == []
        assert is_held(manager.get(r.PODS, "train"))


async def test_a_pod_that_is_deleted_here_is_deleted_there():
    manager = Manager(8, 0)
    manager.pod("train")
    async with clusters(manager):
        east = manager.workers["east"]
        east.run_pods("Running")
        await manager.pass_time(5)
        manager.delete(r.PODS, "train")
        await manager.pass_time(5)
        manager.collect_garbage()
        await manager.pass_time(5)
        assert manager.workload_of("train") is None
        assert names(east, r.PODS) == names(east, r.WORKLOADS) == []


async def test_a_pod_that_its_worker_evicts_waits_here_and_is_sent_again():
    manager = Manager(8, 0)
    manager.pod("train")
    async with clusters(manager):
        east = manager.workers["east"]
        east.run_pods("Running")
        await manager.pass_time(5)
        east.queue(gpus=8, stopPolicy="HoldAndDrain")
        await manager.pass_time(10)
        assert where(manager, "train") is None
        east.queue(gpus=8)
        await manager.pass_time(90)
        assert where(manager, "train") == "east"
        assert [gates(pod) for pod in east.all(r.PODS)] == [[]]
        assert is_held(manager.get(r.PODS, "train"))


async def test_a_pod_of_a_worker_that_stays_away_runs_on_another():
    manager = Manager(8, 8)
    manager.pod("train")
    async with clusters(manager):
        first = where(manager, "train")
        second = next(name for name in manager.workers if name != first)
        manager.workers[first].run_pods("Running")
        await manager.pass_time(5)
        manager.cut.add(first)
        await manager.pass_time(500)
        assert where(manager, "train") == second
        manager.cut.clear()
        await manager.pass_time(400)
        assert where(manager, "train") == second
        assert names(manager.workers[first], r.PODS) == []
        assert names(manager.workers[second], r.PODS) == ["train"]


async def test_pods_of_a_group_go_to_one_worker_together():
    manager = Manager(2, 8)
    for name in ("one", "two"):
        manager.pod(name, group="ring", total=2)
    async with clusters(manager):
        west = manager.workers["west"]
        assert where(manager, "ring") == "west"
        assert [gates(pod) for pod in west.all(r.PODS)] == [[], []]
        assert names(manager.workers["east"], r.PODS) == []
        west.run_pods("Running")
        await manager.pass_time(5)
        west.run_pods("Succeeded")
        await manager.pass_time(10)
        assert manager.is_true("ring", "Finished")
        assert names(west, r.PODS) == []


async def test_a_pod_of_a_group_that_failed_is_replaced_on_the_worker():
    manager = Manager(8, 0)
    for name in ("one", "two"):
        manager.pod(name, group="ring", total=2)
    async with clusters(manager):
        east = manager.workers["east"]
        east.run_pods("Running")
        await manager.pass_time(5)
        east.set_status(r.PODS, "one", phase="Failed")
        await manager.pass_time(5)
        assert manager.get(r.PODS, "one")["status"]["phase"] == "Failed"
        manager.pod("three", group="ring", total=2)
        await manager.pass_time(10)
        assert "three" in names(east, r.PODS)
        assert gates(east.get(r.PODS, "three")) == []


async def test_a_pod_of_the_same_name_that_others_made_is_left_alone():
    manager = Manager(8, 0)
    manager.workers["east"].pod("train", gpus=1)
    manager.pod("train")
    async with clusters(manager):
        manager.delete(r.PODS, "train")
        await manager.pass_time(100)
        (left,) = manager.workers["east"].all(r.PODS)
        assert ORIGIN not in left["metadata"]["labels"]


async def test_a_stateful_set_runs_on_one_worker():
    manager = Manager(0, 8)
    spec = {"replicas": 2, "template": {"spec": pod_spec(2)}}
    parent = submit(manager, STATEFUL_SET, spec)
    async with clusters(manager):
        west = manager.workers["west"]
        make_pod(manager, parent, 0, parent["spec"]["template"])
        await manager.pass_time(5)
        assert where(manager, "serve") == "west"
        copy = west.get(SETS, "serve")
        assert copy["metadata"]["annotations"][ORIGIN_UID] == parent["metadata"]["uid"]
        for index in (0, 1):
            make_pod(west, copy, index, copy["spec"]["template"])
        await manager.pass_time(5)
        assert [gates(pod) for pod in west.all(r.PODS)] == [[], []]
        assert all(map(is_held, manager.all(r.PODS)))
        assert len(west.all(r.WORKLOADS)) == 1
        manager.delete(SETS, "serve")
        for name in names(manager, r.PODS):
            manager.delete(r.PODS, name)
        await manager.pass_time(5)
        manager.collect_garbage()
        await manager.pass_time(5)
        assert names(west, SETS) == names(west, r.WORKLOADS) == []


async def test_a_stateful_set_that_is_deleted_before_its_pods_is_deleted_there():
    """As the garbage collector does: it takes the set off the owners while pods are among them."""
    manager = Manager(8, 0)
    spec = {"replicas": 1, "template": {"spec": pod_spec(2)}}
    parent = submit(manager, STATEFUL_SET, spec)
    async with clusters(manager):
        east = manager.workers["east"]
        make_pod(manager, parent, 0, parent["spec"]["template"])
        await manager.pass_time(5)
        assert names(east, SETS) == ["serve"]
        manager.delete(SETS, "serve")
        (found,) = manager.all(r.WORKLOADS)
        kept = [each for each in found["metadata"]["ownerReferences"] if each["kind"] == "Pod"]
        new = {**found, "metadata": {**found["metadata"], "ownerReferences": kept}}
        manager.store.replace(r.WORKLOADS, found, new)
        await manager.pass_time(5)
        assert kept
        assert names(east, SETS) == names(east, r.WORKLOADS) == []


def leaders(manager, replicas):
    template = {"size": 1, "workerTemplate": {"spec": pod_spec(2)}}
    spec = {"replicas": replicas, "leaderWorkerTemplate": template}
    return submit(manager, LEADER_WORKER_SET, spec)


def clusters_of(manager):
    return [w["status"].get("clusterName") for w in manager.all(r.WORKLOADS)]


async def test_all_groups_of_a_leader_worker_set_go_to_the_worker_of_the_first():
    manager = Manager(4, 8)
    leaders(manager, 3)
    async with clusters(manager):
        await manager.pass_time(20)
        chosen = clusters_of(manager)
        assert len(set(chosen)) == 1 or None in chosen
        first = next(filter(None, chosen))
        other = next(name for name in manager.workers if name != first)
        assert names(manager.workers[first], LEADERS) == ["serve"]
        assert names(manager.workers[other], LEADERS) == []
        assert names(manager.workers[other], r.WORKLOADS) == []
        assert len(manager.workers[first].all(r.WORKLOADS)) == 3


async def test_groups_that_are_no_more_leave_the_others_running():
    manager = Manager(8, 0)
    leaders(manager, 3)
    async with clusters(manager):
        await manager.pass_time(20)
        east = manager.workers["east"]
        assert clusters_of(manager) == ["east"] * 3
        found = manager.get(LEADERS, "serve")
        new = {**found, "spec": {**found["spec"], "replicas": 1}}
        manager.store.replace(LEADERS, found, new)
        await manager.pass_time(320)
        assert names(east, LEADERS) == ["serve"]
        assert east.get(LEADERS, "serve")["spec"]["replicas"] == 1
        assert len(east.all(r.WORKLOADS)) == 1
        manager.delete(LEADERS, "serve")
        await manager.pass_time(10)
        assert names(east, LEADERS) == names(east, r.WORKLOADS) == []
