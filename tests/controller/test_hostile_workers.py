"""Workers whose owners mean no good, and users of the manager who do not either."""

import pytest
from structlog.testing import capture_logs

from policyd.kube import resources as r
from policyd.kube.errors import ForbiddenError, NotFoundError, UndecodableError, UnreachableError
from policyd.multikueue.settings import ORIGIN
from tests.controller.clusters import MANAGER, Manager, clusters, job, where
from tests.controller.world import QUEUE, names, pod_spec

pytestmark = pytest.mark.anyio


def refusing(*kinds, error=ForbiddenError):
    async def lie(resource, *_args, **_kwargs):
        if not kinds or resource in kinds:
            raise error("no")

    return lie


def counting(calls):
    async def lie(resource, name, *_args, **_kwargs):
        calls.append((resource.kind, name))

    return lie


@pytest.mark.parametrize("error", [ForbiddenError, UndecodableError])
async def test_a_worker_that_does_not_show_its_copy_keeps_no_job_from_another(error):
    manager = Manager(8, 8)
    manager.lies["east", "get"] = refusing(r.WORKLOADS, error=error)
    job(manager, "train")
    async with clusters(manager):
        assert where(manager, "train") == "west"
        west = manager.workers["west"]
        assert not west.suspended("train")
        west.end_job("train")
        await manager.pass_time(10)
        assert manager.is_true("train", "Finished")


async def test_a_worker_that_no_longer_shows_its_copy_loses_the_job_as_if_it_were_out_of_reach():
    manager = Manager(8, 8)
    job(manager, "train")
    async with clusters(manager):
        first = where(manager, "train")
        manager.lies[first, "get"] = refusing(r.WORKLOADS)
        manager.put(r.WORKLOADS, manager.workload_of("train"))
        manager.workers[first].set_status(r.JOBS, "train", active=1)
        await manager.pass_time(250)
        assert where(manager, "train") == first
        await manager.pass_time(200)
        assert where(manager, "train") not in {None, first}


async def test_a_worker_that_removes_nothing_keeps_no_job_from_another():
    manager = Manager(0, 8)
    manager.lies["east", "delete"] = refusing()
    job(manager, "train")
    async with clusters(manager):
        assert where(manager, "train") == "west"
        assert not manager.workers["west"].suspended("train")
        manager.delete(r.JOBS, "train")
        await manager.pass_time(10)
        assert names(manager.workers["west"], r.JOBS) == []
        assert names(manager.workers["west"], r.WORKLOADS) == []


async def test_a_worker_that_does_not_answer_holds_up_no_work_here():
    async def lie(*_args, **_kwargs):
        await manager.clock.pace().sleep(100_000)

    manager = Manager(8, 8)
    manager.queue("here")
    for number in range(20):
        job(manager, f"away-{number}")
    async with clusters(manager):
        manager.lies["east", "get"] = lie
        for number in range(20):
            manager.put(r.WORKLOADS, manager.workload_of(f"away-{number}"))
        await manager.pass_time(1)
        manager.job("local", queue="lq-here")
        await manager.pass_time(5)
        assert not manager.suspended("local")


async def test_a_worker_that_reports_without_end_is_asked_once_a_second():
    manager = Manager(8, 0)
    job(manager, "train")
    async with clusters(manager):
        east, calls = manager.workers["east"], []
        manager.lies["east", "get"] = counting(calls)
        for number in range(50):
            east.set_status(r.JOBS, "train", active=number)
            await manager.pass_time(0.1)
        asked = calls.count(("Workload", manager.workload_of("train")["metadata"]["name"]))
        assert 1 <= asked <= 10


async def test_what_a_worker_reports_about_workloads_that_are_not_here_is_not_looked_at():
    manager = Manager(8, 8)
    async with clusters(manager):
        service = manager.controller.multikueue
        service._changed_there("ns", "unknown")
        assert service._reported == set()


@pytest.mark.parametrize(
    "answer",
    [
        {"metadata": {"labels": ["a"]}},
        {"spec": {}},
        {"metadata": {"labels": {ORIGIN: "multikueue"}}, "status": ["active"]},
        {"metadata": {"labels": {ORIGIN: "multikueue"}}, "status": {"conditions": [1]}},
    ],
)
async def test_a_copy_with_values_of_wrong_types_is_an_error_about_it_alone(answer):
    async def lie(resource, *_args, **_kwargs):
        return dict(answer) if resource == r.JOBS else None

    manager = Manager(8, 0)
    job(manager, "train")
    async with clusters(manager):
        manager.lies["east", "get"] = lie
        with capture_logs() as logs:
            manager.workers["east"].set_status(r.JOBS, "train", active=1)
            await manager.pass_time(5)
        assert "active" not in manager.get(r.JOBS, "train").get("status", {})
        assert {each["event"] for each in logs} >= {"reconcile_failed"}
        assert "reconcile_error" not in {each["event"] for each in logs}
        manager.lies.clear()
        manager.workers["east"].end_job("train")
        await manager.pass_time(400)
        assert manager.is_true("train", "Finished")


async def test_a_worker_that_is_lost_at_once_each_time_is_connected_to_more_and_more_rarely():
    manager = Manager(8, 8)
    async with clusters(manager):
        remotes = manager.controller.multikueue.remotes
        connected = 0
        for _ in range(600):
            if remotes.connected("east") is not None:
                connected += 1
                remotes.lose("east", "again")
            await manager.pass_time(1)
        assert 3 <= connected <= 10


async def test_a_worker_that_ends_each_watch_at_once_is_asked_once_a_second():
    async def lie(resource, **_options):
        watches.append(resource)
        return ""

    manager, watches = Manager(8, 8), []
    manager.lies["east", "watch"] = lie
    async with clusters(manager):
        watches.clear()
        await manager.pass_time(10)
        assert 5 <= watches.count(r.WORKLOADS) <= 11


# What users of the manager can try.


async def test_a_kind_that_a_worker_does_not_serve_costs_no_other_job_its_connection():
    manager = Manager(8, 0)
    manager.lies["east", "page"] = refusing(r.JOBS, error=NotFoundError)
    manager.pod("other")
    job(manager, "train")
    async with clusters(manager):
        await manager.pass_time(20)
        remote = manager.controller.multikueue.remotes.by_name["east"]
        assert remote.state.connected
        assert remote.before == remote.failures == 0
        manager.lies.clear()
        await manager.pass_time(400)
        manager.workers["east"].run_pods("Succeeded")
        await manager.pass_time(10)
        assert manager.is_true("other", "Finished")


def prebuilt(manager, kind, name, **spec):
    """Create a small Workload whose owner is another object of its user."""
    owner = manager.get(kind, name)["metadata"]
    version = "batch/v1" if kind == r.JOBS else "v1"
    reference = {"apiVersion": version, "kind": kind.kind, "name": name, "uid": owner["uid"]}
    template = {"spec": pod_spec(1)}
    body = {
        "metadata": {"name": "forged", "ownerReferences": [reference | spec.pop("owner", {})]},
        "spec": {
            "queueName": "lq-cq",
            "podSets": [{"name": "main", "count": 1, "template": template}],
        },
    }
    manager.create(r.WORKLOADS, body)


async def test_a_job_that_names_no_queue_is_not_sent_by_a_workload_of_its_user():
    manager = Manager(8, 8)
    spec = {"parallelism": 9, "template": {"spec": pod_spec(8)}, "managedBy": MANAGER}
    manager.create(r.JOBS, {"metadata": {"name": "big"}, "spec": spec})
    prebuilt(manager, r.JOBS, "big")
    async with clusters(manager):
        await manager.pass_time(30)
        assert manager.is_true("forged", "QuotaReserved")
        assert [names(each, r.JOBS) for each in manager.workers.values()] == [[], []]


async def test_a_pod_without_a_gate_is_not_sent_by_a_workload_of_its_user():
    manager = Manager(8, 8)
    metadata = {"name": "big", "labels": {QUEUE: "lq-cq"}}
    manager.create(r.PODS, {"metadata": metadata, "spec": {**pod_spec(8), "nodeName": "n"}})
    prebuilt(manager, r.PODS, "big")
    async with clusters(manager):
        await manager.pass_time(30)
        assert [names(each, r.PODS) for each in manager.workers.values()] == [[], []]


async def test_another_object_of_the_name_of_an_owner_is_not_sent():
    manager = Manager(8, 8)
    job(manager, "train")
    prebuilt(manager, r.JOBS, "train", owner={"uid": "of-another"})
    async with clusters(manager):
        await manager.pass_time(30)
        sent = [each for world in manager.workers.values() for each in world.all(r.JOBS)]
        assert "forged" not in str(sent)


async def test_an_unreachable_worker_does_not_count_as_one_that_has_no_copy():
    manager = Manager(8, 8)
    job(manager, "train")
    async with clusters(manager):
        first = where(manager, "train")
        manager.lies[first, "get"] = refusing(r.WORKLOADS, error=UnreachableError)
        manager.put(r.WORKLOADS, manager.workload_of("train"))
        await manager.pass_time(60)
        assert where(manager, "train") == first
