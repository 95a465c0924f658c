"""An admission counts from its decision until the outcome of its write is known."""

import asyncio

import pytest

from policyd.controller.writes import CARRIED_OUT_SECONDS
from policyd.kube import resources as r
from policyd.kube.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    ThrottledError,
    UnreachableError,
)
from tests.controller.test_faults import error_of
from tests.controller.topology.test_topologies import RACK, flavor, job, node, places, racks, start
from tests.controller.world import Mortal, World, held_gpus, pod_spec, running

pytestmark = pytest.mark.anyio


class Late(Mortal):
    """A client whose admissions reach the server late, and may be given up before that."""

    late = ""
    """Part of the name of the workload whose admission is late; empty for none."""
    gives_up = False
    """Whether the client gives up, though the server carries the write out all the same."""
    refusal = None
    """The error that refuses later tries of what the client has given up."""

    def __post_init__(self):
        super().__post_init__()
        self.arrives = asyncio.Event()
        self.refused = []
        self.tasks = []

    async def patch(self, resource, name, patch, **options):
        if not (self.late and self.late in name and is_admission(patch)):
            return await super().patch(resource, name, patch, **options)
        if self.refusal and self.tasks:
            raise self.refusal
        task = asyncio.create_task(self._arrive(super().patch(resource, name, patch, **options)))
        self.tasks.append(task)
        if self.gives_up:
            self.late = self.late if self.refusal else ""
            raise UnreachableError("no answer")
        return await task

    async def end(self):
        """Let all arrive."""
        self.arrives.set()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def _arrive(self, write):
        await self.arrives.wait()
        try:
            return await write
        except ApiError as error:
            self.refused.append(error)
            raise


def is_admission(patch):
    status = patch.get("status", {}) if isinstance(patch, dict) else {}
    return bool(status.get("admission"))


class LateWorld(World):
    client_type = Late


@pytest.fixture
async def world():
    """Two LocalQueues of one queue with 8 GPUs."""
    made = LateWorld()
    made.furnish()
    local = {"metadata": {"name": "lq-b", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}
    made.put(r.LOCAL_QUEUES, local)
    async with running(made):
        yield made
        await made.client.end()


def most_held(world):
    """The most GPUs that workloads held at any time."""
    held, most = {}, 0
    for change in world.store.history:
        if change.resource == r.WORKLOADS:
            held[change.last["metadata"]["uid"]] = held_gpus(change.new)
            most = max(most, sum(held.values()))
    return most


def hold_queue(world):
    change_queue(world, {"stopPolicy": "Hold"})


def change_queue(world, spec):
    queue = world.get(r.LOCAL_QUEUES, "lq-cq")
    world.store.replace(r.LOCAL_QUEUES, queue, {**queue, "spec": {**queue["spec"], **spec}})


def delete_queue(world):
    world.store.delete(r.LOCAL_QUEUES, world.get(r.LOCAL_QUEUES, "lq-cq"), dry_run=False)


def move_queue(world):
    change_queue(world, {"clusterQueue": "elsewhere"})


@pytest.mark.parametrize("disturb", [hold_queue, delete_queue, move_queue])
async def test_a_queue_that_changes_meanwhile_does_not_free_the_quota(world, disturb):
    world.client.late = "first"
    world.job("first")
    await world.pass_time(1)
    disturb(world)
    world.job("second", queue="lq-b")
    await world.pass_time(3)
    before = world.suspended("second")
    world.client.arrives.set()
    await world.pass_time(3)

    assert before
    assert most_held(world) == 8


async def test_a_write_that_the_server_carries_out_after_a_look_counts(world):
    world.client.late, world.client.gives_up = "first", True
    world.job("first")
    await world.pass_time(0.01)
    hold_queue(world)
    world.job("second", queue="lq-b")
    await world.pass_time(3)
    world.client.arrives.set()
    await world.pass_time(3)

    assert not world.suspended("first")
    assert most_held(world) == 8
    assert [type(error) for error in world.client.refused] == [ConflictError]


REFUSALS = [
    pytest.param(error_of(ForbiddenError, 403), id="by-a-webhook"),
    pytest.param(error_of(InvalidError, 422), id="as-invalid"),
    pytest.param(error_of(ConflictError, 409), id="by-a-conflict-of-something-else"),
    pytest.param(error_of(ThrottledError, 429), id="as-one-too-many"),
]


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_refused_try_does_not_free_what_an_unanswered_one_may_take(world, refusal):
    world.client.late, world.client.gives_up, world.client.refusal = "first", True, refusal
    world.job("first")
    await world.pass_time(0.01)
    world.job("second", queue="lq-b")
    await world.pass_time(3)
    before = world.suspended("second")
    world.client.arrives.set()
    await world.pass_time(3)

    assert before
    assert not world.suspended("first")
    assert world.suspended("second")
    assert most_held(world) == 8


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_what_was_never_carried_out_is_free_once_the_server_has_had_its_time(world, refusal):
    world.client.late, world.client.gives_up, world.client.refusal = "first", True, refusal
    world.job("first")
    await world.pass_time(0.01)
    world.job("second", queue="lq-b")
    await world.pass_time(CARRIED_OUT_SECONDS - 1)
    before = world.suspended("second")
    await world.pass_time(3 * CARRIED_OUT_SECONDS)

    assert before
    assert not world.suspended("second")


async def test_a_decision_is_not_written_once_its_workload_may_not_queue(world):
    world.client.late = "busy"
    for number in range(world.controller.settings.workers):
        submit(world, f"busy-{number}", gpus=1)
    await world.pass_time(1)
    submit(world, "first", gpus=4)
    await world.pass_time(1)
    hold_queue(world)
    submit(world, "second", gpus=4, queue="lq-b")
    await world.pass_time(1)
    world.client.arrives.set()
    await world.pass_time(3)

    held = {w["metadata"]["name"]: held_gpus(w) for w in world.all(r.WORKLOADS)}
    assert (held["first"], held["second"]) == (0, 4)
    assert most_held(world) == 8


def submit(world, name, gpus=8, queue="lq-cq"):
    pods = {"name": "main", "count": 1, "template": {"spec": pod_spec(gpus)}}
    spec = {"queueName": queue, "podSets": [pods]}
    world.create(r.WORKLOADS, {"metadata": {"name": name}, "spec": spec})


@pytest.fixture
async def placing():
    """A job on two nodes of a rack, and a third one that is free."""
    made = LateWorld()
    made.furnish(gpus=16)
    made.put(r.RESOURCE_FLAVORS, flavor())
    made.put(r.TOPOLOGIES, racks())
    for name in ("b1", "b2", "b3"):
        made.put(r.NODES, node(name, "b"))
    async with running(made):
        await start(made, **{"kueue.x-k8s.io/podset-required-topology": RACK})
        yield made
        await made.client.end()


async def test_places_are_held_while_a_job_is_placed_again(placing):
    world, client = placing, placing.client
    client.late = "ring"
    world.store.delete(r.NODES, world.store.get(r.NODES, "", "b2"), dry_run=False)
    for pod, host in places(world).items():
        if host == "b2":
            world.set_status(r.PODS, pod, phase="Failed")
    await world.pass_time(30)
    assert client.tasks
    change_queue(world, {"stopPolicy": "Hold"})
    change_queue(world, {"stopPolicy": "None"})
    job(world, "other", pods=1, gpus=4)
    await world.pass_time(5)
    before = world.suspended("other")
    client.arrives.set()
    await world.pass_time(5)

    assert before
    assert world.suspended("other")
