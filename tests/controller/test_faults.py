"""What goes wrong between the controller and the API server, and what comes of it."""

import asyncio
from types import SimpleNamespace

import pytest

from policyd.controller.run import Controller
from policyd.controller.settings import ControllerSettings
from policyd.kube import resources as r
from policyd.kube.errors import (
    ApiError,
    ConflictError,
    GoneError,
    InternalError,
    InvalidError,
    NotFoundError,
    UnavailableError,
    UnreachableError,
)
from policyd.testing import FakeClient
from tests.controller.world import World, condition, held_gpus, pod_spec, running

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world():
    made = World()
    made.furnish()
    async with running(made):
        yield made


def error_of(kind, code):
    error = kind("no")
    error.code = code
    return error


async def begin_anew(world, client):
    """Kill the controller, and start another that reaches the API server by a client."""
    await world.kill()
    controller = Controller(client, ControllerSettings(policies=False), pace=world.clock.pace())
    world.task = asyncio.create_task(controller.run())
    return controller


class Deaf(FakeClient):
    """Carries out patches of workloads, but the answers to some of them are lost."""

    lost = 0

    async def patch(self, resource, *args, **options):
        answer = await super().patch(resource, *args, **options)
        if resource == r.WORKLOADS and self.lost:
            self.lost -= 1
            raise UnreachableError("the connection broke")
        return answer


class Ailing(FakeClient):
    """Answers its first lists with an error."""

    error: ApiError
    left = 3

    async def page(self, resource, **options):
        if self.left:
            self.left -= 1
            raise self.error
        return await super().page(resource, **options)


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(error_of(GoneError, 410), id="gone"),
        pytest.param(error_of(InternalError, 500), id="broken"),
        pytest.param(error_of(UnavailableError, 503), id="starting"),
    ],
)
async def test_a_controller_that_meets_an_ailing_server_begins_when_that_is_well(error):
    world = World()
    world.furnish()
    async with running(world):
        ailing = Ailing(store=world.store)
        ailing.error = error
        await begin_anew(world, ailing)
        world.job("a")
        await world.pass_time(15)

        assert ailing.left == 0
        assert not world.suspended("a")


class Growing(FakeClient):
    """Does not serve TFJobs at first, and cannot be reached when it is asked for them again."""

    def __post_init__(self):
        super().__post_init__()
        self.answers = [error_of(NotFoundError, 404), UnreachableError("the connection broke")]

    async def page(self, resource, **options):
        if resource.plural == "tfjobs" and self.answers:
            raise self.answers.pop(0)
        return await super().page(resource, **options)


async def test_an_outage_while_a_kind_is_not_served_yet_ends_nothing():
    world = World()
    world.furnish()
    async with running(world):
        controller = await begin_anew(world, Growing(store=world.store))
        await world.pass_time(25)

        assert not world.task.done()
        assert controller.mirrors.jobs["TFJob"].informer.synced.is_set()


async def test_a_leader_that_wakes_up_after_its_term_leaves_the_statuses_to_the_next(world):
    world.controller.election = SimpleNamespace(leading=False)
    world.controller.statuses.note("cq")
    await world.pass_time(5)

    assert not world.task.done()


async def test_the_reason_is_written_though_another_client_wrote_first(world):
    world.job("a")
    await world.pass_time(5)
    original = world.controller.writes.status
    failed = []

    async def status(mirror, workload, new):
        if not failed:
            failed.append(workload.metadata.key)
            raise ConflictError("it changed")
        return await original(mirror, workload, new)

    world.controller.writes.status = status
    world.job("b")
    await world.pass_time(5)

    waits = next(w for w in world.all(r.WORKLOADS) if not held_gpus(w))
    assert failed == [f"ns/{waits['metadata']['name']}"]
    assert condition(waits, "QuotaReserved")["reason"] == "WaitingForQuota"


async def test_an_admission_whose_answer_is_lost_counts():
    world = World()
    world.furnish()
    async with running(world):
        deaf = Deaf(store=world.store)
        deaf.lost = 1
        await begin_anew(world, deaf)
        await world.pass_time(0.1)
        for name in ("a", "b"):
            world.job(name)
        await world.pass_time(5)

        started = [not world.suspended(name) for name in ("a", "b")]
        assert sorted(started) == [False, True]
        assert sum(held_gpus(w) for w in world.all(r.WORKLOADS)) == 8


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(error_of(UnreachableError, 0), id="not-answered"),
        pytest.param(error_of(ConflictError, 409), id="conflict"),
        pytest.param(error_of(InvalidError, 422), id="refused-once"),
    ],
)
async def test_an_admission_that_fails_once_is_tried_again(world, error):
    world.job("train")
    await world.clock.advance(0)
    world.client.fail(error, verb="patch", plural="workloads")
    await world.pass_time(5)

    assert not world.suspended("train")
    assert held_gpus(world.workload_of("train")) == 8


async def test_a_workload_that_is_refused_for_ever_does_not_hold_up_others(world):
    world.job("bad")
    await world.pass_time(1)
    assert not world.suspended("bad")
    world.end_job("bad")
    await world.pass_time(1)
    bad = refusing(world, "ugly")
    world.job("ugly")
    await world.pass_time(20)
    reserved = condition(world.workload_of("ugly"), "QuotaReserved")
    assert (reserved["status"], reserved["reason"]) == ("False", "Misconfigured")
    assert reserved["message"] == "the admission is refused: no"
    assert world.events("AdmissionRefused")
    assert 5 < bad.refused < 15

    world.job("good")
    await world.pass_time(5)

    assert not world.suspended("good")


async def test_a_workload_that_another_client_always_changes_first_has_a_reason(world):
    await world.pass_time(1)
    refusing(world, "busy", error_of(ConflictError, 409))
    world.job("busy")
    await world.pass_time(20)

    reserved = condition(world.workload_of("busy"), "QuotaReserved")
    assert (reserved["status"], reserved["reason"]) == ("False", "PendingEvaluation")
    assert reserved["message"] == "the admission is refused: no"
    assert not world.events("AdmissionRefused")


async def test_a_reason_whose_write_failed_is_written_again_at_once(world):
    for name in ("a", "b"):
        world.job(name)
    await world.pass_time(5)
    original = world.controller.writes.status
    failed = asyncio.Event()

    async def status(mirror, workload, new):
        if not failed.is_set():
            failed.set()
            raise ConflictError("it changed")
        return await original(mirror, workload, new)

    world.controller.writes.status = status
    world.job("behind")
    while not failed.is_set():
        await world.pass_time(0.1)
    await world.pass_time(0.1)

    reserved = condition(world.workload_of("behind"), "QuotaReserved")
    assert reserved["reason"] == "WaitingForQuota"


async def test_a_job_whose_workload_is_refused_says_so(world):
    error = error_of(InvalidError, 422)
    world.client.fail(error, verb="create", plural="workloads", times=2)
    world.job("train")
    await world.pass_time(1)
    (event,) = world.events("ErrWorkloadCompose")
    assert event["involvedObject"]["name"] == "train"
    assert event["message"].endswith("is refused: no")

    await world.pass_time(10)
    assert not world.suspended("train")


async def test_a_queue_of_more_flavors_than_its_definition_takes_reports_those_in_use(world):
    names = [f"f{number:02}" for number in range(70)] + ["h100"]
    quotas = [{"name": "nvidia.com/gpu", "nominalQuota": "8"}]
    flavors = [{"name": name, "resources": quotas} for name in names]
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}]
    few = refusing_many(world)
    world.queue(resourceGroups=groups)
    await world.pass_time(3)

    found = world.get(r.CLUSTER_QUEUES, "cq")["status"]
    assert len(found["flavorsUsage"]) == len(found["flavorsReservation"]) == 64
    assert condition({"status": found}, "Active")
    (event,) = [e for e in world.events("FlavorsLeftOut") if e["message"].count("clusterqueues")]
    assert "usage of 64 of 71 flavors" in event["message"]
    refused = few.refused

    world.job("train")
    await world.pass_time(30)
    assert few.refused == refused


def refusing_many(world):
    """Have statuses of more than 64 flavors refused, as Kueue's own definitions do."""
    client = world.client

    class Refusing:
        refused = 0

    counter, original = Refusing(), client.patch

    async def patch(resource, key, body, **options):
        if isinstance(body, dict) and len(body.get("status", {}).get("flavorsUsage", ())) > 64:
            counter.refused += 1
            raise error_of(InvalidError, 422)
        return await original(resource, key, body, **options)

    world.controller.writes.client = Patched(client, patch)
    return counter


def refusing(world, name, error=None):
    """Have every reservation of one job's workload refused, as a webhook might."""
    client, error = world.client, error or error_of(InvalidError, 422)

    class Refusing:
        refused = 0

    counter, original = Refusing(), client.patch

    async def patch(resource, key, body, **options):
        about = resource == r.WORKLOADS and name in key
        if about and isinstance(body, dict) and "admission" in body.get("status", {}):
            counter.refused += 1
            raise error
        return await original(resource, key, body, **options)

    world.controller.writes.client = Patched(client, patch)
    return counter


class Patched:
    """A client with another way to patch."""

    def __init__(self, client, patch):
        self._client = client
        self.patch = patch

    def __getattr__(self, name):
        return getattr(self._client, name)


async def test_a_workload_that_another_client_changes_meanwhile_is_read_again(world):
    world.job("first")
    await world.pass_time(1)
    world.job("second")
    await world.pass_time(1)
    workload = world.workload_of("second")
    world.put(r.WORKLOADS, {**workload, "spec": {**workload["spec"], "priority": 7}})

    world.end_job("first")
    await world.pass_time(3)

    assert not world.suspended("second")


async def test_a_blocked_strict_queue_waits_without_turning_round(world):
    world.queue(queueingStrategy="StrictFIFO")
    world.job("first")
    await world.pass_time(1)
    world.job("second")
    await world.pass_time(1)
    writes, slept = len(world.client.writes), len(world.clock.slept)

    await world.pass_time(60)

    assert len(world.client.writes) == writes
    assert len(world.clock.slept) - slept < 20, (
        "forecasts and hours are refreshed, and no cycles run"
    )
    assert condition(world.workload_of("second"), "QuotaReserved")["reason"] == "WaitingForQuota"


async def test_custom_resources_are_waited_for():
    world = World()
    client = FakeClient(store=world.store)
    missing = error_of(NotFoundError, 404)
    client.fail(missing, verb="page", plural="workloads", times=3)
    controller = Controller(client, ControllerSettings(policies=False), pace=world.clock.pace())
    world.task = asyncio.create_task(controller.run())
    await world.pass_time(0.5)
    assert controller.health.missing == ("workloads.kueue.x-k8s.io",)
    assert not controller.health.ready

    await world.pass_time(5)

    assert controller.health.ready
    await world.kill()


# Two controllers.


async def test_a_stand_by_takes_over_where_the_leader_stopped():
    world = World()
    world.furnish()
    first, second = (contender(world, name) for name in ("one", "two"))
    task = asyncio.create_task(first.run())
    await world.pass_time(3)
    stand_by = asyncio.create_task(second.run())
    await world.pass_time(3)
    world.job("a")
    world.job("b")
    await world.pass_time(1)
    assert first.leading()
    assert not second.leading()
    assert second.writes.count == 0

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await world.pass_time(3)
    running_one = next(name for name in ("a", "b") if not world.suspended(name))
    world.end_job(running_one)
    await world.pass_time(3)

    assert second.leading()
    assert [world.suspended(name) for name in ("a", "b")] == [False, False]
    stand_by.cancel()
    await asyncio.gather(stand_by, return_exceptions=True)


def contender(world, identity):
    settings = ControllerSettings(policies=False, identity=identity, namespace="ns")
    client = FakeClient(store=world.store)
    return Controller(client, settings, pace=world.clock.pace())


class Slow(FakeClient):
    """Takes its time for patches of workloads."""

    async def patch(self, resource, *args, **options):
        if resource == r.WORKLOADS:
            await self.clock.sleep(10)
        return await super().patch(resource, *args, **options)


def on_a_slow_server():
    world = World()
    world.furnish(gpus=8)
    client = Slow(store=world.store)
    client.clock = world.clock
    settings = ControllerSettings(policies=False, workers=1)
    world.task = asyncio.create_task(Controller(client, settings, pace=world.clock.pace()).run())
    return world, client


def submit_workload(world, name, *, priority=0):
    pods = {"metadata": {}, "spec": pod_spec(1)}
    spec = {"queueName": "lq-cq", "priority": priority, "active": True}
    spec["podSets"] = [{"name": "main", "count": 1, "template": pods}]
    world.create(r.WORKLOADS, {"metadata": {"name": name}, "spec": spec})


async def test_a_slow_server_gets_first_the_workloads_of_high_priority():
    world, client = on_a_slow_server()
    try:
        await world.pass_time(0.1)
        for name, priority in (("a", 0), ("b", 0), ("c", 0), ("urgent", 100), ("d", 0)):
            submit_workload(world, name, priority=priority)
            await world.pass_time(1)
        await world.pass_time(60)
    finally:
        await world.kill()

    admitted = [w.name for w in client.writes if w.resource == r.WORKLOADS]
    assert admitted == ["a", "urgent", "b", "c", "d"]


async def test_a_workload_that_asks_for_more_by_now_is_not_admitted_as_what_it_was():
    world, _ = on_a_slow_server()
    try:
        await world.pass_time(0.1)
        for name in ("first", "grows"):
            submit_workload(world, name)
        await world.pass_time(2)
        grown = world.get(r.WORKLOADS, "grows")
        grown["spec"]["podSets"][0]["count"], grown["metadata"]["generation"] = 2, 2
        world.put(r.WORKLOADS, grown)
        await world.pass_time(60)
    finally:
        await world.kill()

    assert held_gpus(world.get(r.WORKLOADS, "grows")) == 2
