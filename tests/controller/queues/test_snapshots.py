"""Snapshots of the queues, as the controller serves them: to whom, how old, and how large."""

import asyncio
import gzip

import aiohttp
import pytest

from policyd.controller.queues.snapshots import APART_SECONDS
from policyd.kube import resources as r
from policyd.snapshot.reading import find, read, read_newer
from policyd.snapshot.values import ADMISSION_PLURAL, API_VERSION, CLUSTER_PLURAL, NAME, PLURAL
from tests.controller.queues.test_visibility import Caller, app_of, plainly
from tests.controller.world import World
from webhooks.queue_snapshots import POLL_SECONDS

ROOT = f"/apis/{API_VERSION}"
CLUSTER = f"{ROOT}/{CLUSTER_PLURAL}/{NAME}"
ADMISSION = f"{ROOT}/{ADMISSION_PLURAL}/{NAME}"
OF_NS = f"{ROOT}/namespaces/ns/{PLURAL}/{NAME}"

pytestmark = pytest.mark.anyio


@pytest.fixture
async def world():
    """One job runs and two wait; a queue stands apart."""
    world = World()
    world.furnish(gpus=8)
    world.queue("apart", gpus=4)
    apart = {"metadata": {"name": "lq-apart", "namespace": "ns"}, "spec": {"clusterQueue": "cq"}}
    world.put(r.LOCAL_QUEUES, apart)
    await world.start()
    for name in ("runs", "first", "second"):
        world.job(name)
        await world.pass_time(2)
    yield world
    await world.kill()


async def asked(port, path, **headers):
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.get(f"http://127.0.0.1:{port}{path}", headers=headers) as answer,
    ):
        assert answer.status == 200
        return answer.headers, await answer.read()


async def seen(port, path=OF_NS, **headers):
    _, body = await asked(port, path, **{"Accept-Encoding": "identity", **headers})
    return read(body, path)


def app(world):
    return app_of(world, pace=world.clock.pace())


async def test_a_namespace_gets_its_queues_with_jobs_in_order(world):
    async with plainly(app(world)) as port:
        found = await seen(port)

    (queue,) = found.cluster_queues
    assert [row.job for row in queue.pending] == ["Job/first", "Job/second"]
    assert find(found, "ns", "Job", "first").reason.lacking[0].missing == 8
    assert [row.job for row in queue.holding] == ["Job/runs"]
    assert int(found.resource_version) > 0


async def test_the_whole_cluster_is_another_resource(world):
    async with plainly(app(world)) as port:
        found = await seen(port, CLUSTER)

    assert [queue.name for queue in found.cluster_queues] == ["apart", "cq"]


async def test_it_is_compressed_for_those_that_take_it(world):
    async with plainly(app(world)) as port:
        headers, body = await asked(port, OF_NS, **{"Accept-Encoding": "gzip, deflate"})
        _, plain = await asked(port, OF_NS, **{"Accept-Encoding": "identity"})

    assert headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(body) == plain


async def test_it_is_made_when_somebody_asks_and_at_most_every_two_seconds(world):
    async with plainly(app(world)) as port:
        first = await seen(port)
        world.job("third")
        await world.pass_time(1.5)
        same = await seen(port)
        await world.pass_time(1)
        newer = await seen(port)

    assert (same.generation, same.taken_at) == (first.generation, first.taken_at)
    assert newer.generation > first.generation
    assert find(newer, "ns", "Job", "third").place == 2


async def test_those_that_ask_together_get_the_same(world):
    async with plainly(app(world)) as port:
        found = await asyncio.gather(*(seen(port) for _ in range(5)))

    assert len({each.generation for each in found}) == 1


@pytest.mark.parametrize(
    ("path", "user", "named"),
    [
        pytest.param(OF_NS, "alice", True, id="its-own-namespace"),
        pytest.param(CLUSTER, "alice", False, id="the-cluster"),
        pytest.param(CLUSTER, "system:serviceaccount:ns:ci", True, id="as-a-service-account"),
    ],
)
async def test_jobs_of_other_teams_are_hidden_where_that_is_wanted(world, path, user, named):
    world.controller.cache.other_teams = "hidden"
    async with plainly(app(world)) as port:
        found = await seen(port, path, **{"X-Remote-User": user})

    queue = next(each for each in found.cluster_queues if each.name == "cq")
    assert [bool(row.key) for row in queue.pending] == [named] * 2


async def test_it_can_be_discovered(world):
    async with plainly(app(world)) as port:
        _, found = await Caller(port)(ROOT)
        _, group = await Caller(port)("/apis/visibility.policyd.io")

    assert group["preferredVersion"]["groupVersion"] == API_VERSION
    assert {each["name"]: each["namespaced"] for each in found["resources"]} == {
        CLUSTER_PLURAL: False,
        ADMISSION_PLURAL: False,
        PLURAL: True,
    }


async def for_webhooks(port, version=""):
    _, body = await asked(port, f"{ADMISSION}?unless={version}", **{"Accept-Encoding": "identity"})
    return read_newer(body, ADMISSION)


async def test_the_webhooks_get_the_rules_and_all_names(world):
    world.controller.cache.other_teams = "hidden"
    async with plainly(app(world)) as port:
        found = await for_webhooks(port)

    queue = next(each for each in found.cluster_queues if each.name == "cq")
    assert found.other_teams == "hidden"
    assert [row.job for row in queue.pending] == ["Job/first", "Job/second"]
    assert [(line.count, line.requests) for line in queue.lines] == [(2, {"nvidia.com/gpu": 16})]
    assert [(each.name, each.cluster_queue) for each in found.rules.local_queues] == [
        ("lq-apart", "cq"),
        ("lq-cq", "cq"),
    ]
    assert [each.spec.name for each in found.rules.queues] == ["apart", "cq"]
    assert [each.name for each in found.rules.flavors] == ["h100"]


async def test_the_webhooks_get_nothing_while_nothing_changes(world):
    async with plainly(app(world)) as port:
        await world.pass_time(5)
        first = await for_webhooks(port)
        await world.pass_time(60)
        unchanged = await for_webhooks(port, first.version)
        anew = await for_webhooks(port)

    assert unchanged is None
    assert (anew.version, anew.taken_at) == (first.version, first.taken_at)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda world: world.job("third"), id="a-job"),
        pytest.param(
            lambda world: world.put(
                r.LOCAL_QUEUES,
                {
                    "metadata": {"name": "lq-cq", "namespace": "ns"},
                    "spec": {"clusterQueue": "cq", "stopPolicy": "Hold"},
                },
            ),
            id="a-local-queue",
        ),
        pytest.param(
            lambda world: world.put(
                r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 5}
            ),
            id="a-priority-class",
        ),
    ],
)
async def test_the_webhooks_get_each_change_within_two_seconds(world, change):
    async with plainly(app(world)) as port:
        first = await for_webhooks(port)
        change(world)
        await world.pass_time(APART_SECONDS + POLL_SECONDS)
        newer = await for_webhooks(port, first.version)

    assert APART_SECONDS + POLL_SECONDS < 2
    assert newer.rules != first.rules or newer.cluster_queues != first.cluster_queues


async def test_the_class_of_a_priority_is_reported(world):
    world.put(r.WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 9})
    await world.pass_time(1)
    world.job("urgent", **{"kueue.x-k8s.io/priority-class": "high"})
    await world.pass_time(3)
    async with plainly(app(world)) as port:
        found = find(await seen(port), "ns", "Job", "urgent")

    assert (found.place, found.row.priority) == (0, 9)
    assert found.queue.origins[found.row.origin].priority_class == "WorkloadPriorityClass/high"
