"""A namespace that was created a moment ago is asked for, once, and not for long."""

import asyncio

import pytest
from msgspec import structs

from policyd.api.admission import parse_review
from policyd.kube.changes import Added, Deleted
from policyd.kube.errors import UnreachableError
from policyd.kube.resources import NAMESPACES
from policyd.testing import FakeClient, FakeClock
from tests.webhooks.reviews import POD, review
from webhooks import namespaces as module
from webhooks.namespaces import MOST_ASKED, UNKNOWN_SECONDS, Namespace, Namespaces

pytestmark = pytest.mark.anyio

ABOUT_A_POD = parse_review(review())
TEAM_A = {"metadata": {"name": "team-a", "labels": {"team": "vision"}}}
ABOUT_A_NAMESPACE = parse_review(
    review({"apiVersion": "v1", "kind": "Namespace", **TEAM_A}, resource="namespaces")
)
ABOUT_A_NODE = parse_review(
    review({**POD, "kind": "Node", "metadata": {"name": "n"}}, resource="nodes")
)


class CountingClient(FakeClient):
    """Counts what is read, and answers when it is let."""

    def __init__(self, *, answering=True):
        super().__init__()
        self.gets = 0
        self.let = asyncio.Event()
        if answering:
            self.let.set()

    async def get(self, resource, name, *, into, namespace="", subresource=""):
        self.gets += 1
        await self.let.wait()
        return await super().get(resource, name, into=into, namespace=namespace)


async def client_with_team_a(**settings):
    client = CountingClient(**settings)
    await client.create(NAMESPACES, TEAM_A, into=dict)
    return client


def labels(known):
    found = known.find("team-a")
    return found and found["metadata"]["labels"]


async def test_a_namespace_that_the_informer_does_not_know_yet_is_asked_for():
    client, known = await client_with_team_a(), Namespaces()

    await known.fetch(client, ABOUT_A_POD)
    await known.fetch(client, ABOUT_A_POD)

    assert labels(known) == {"team": "vision"}
    assert client.gets == 1


async def test_the_informers_objects_count_from_then_on():
    client, known = await client_with_team_a(), Namespaces()
    await known.fetch(client, ABOUT_A_POD)
    new = await client.get(NAMESPACES, "team-a", into=Namespace)

    known.take(Added(new))
    known.take(Deleted(new))

    assert known.find("team-a") is None


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(ABOUT_A_NAMESPACE, id="a-namespace-that-is-being-created"),
        pytest.param(ABOUT_A_NODE, id="what-belongs-to-the-cluster"),
    ],
)
async def test_cluster_objects_request_no_namespace(request_):
    client = CountingClient()

    await Namespaces().fetch(client, request_)

    assert client.gets == 0


async def test_concurrent_readers_ask_once():
    client, known = await client_with_team_a(answering=False), Namespaces()

    async with asyncio.TaskGroup() as group:
        for _ in range(20):
            group.create_task(known.fetch(client, ABOUT_A_POD))
        await asyncio.sleep(0)
        client.let.set()

    assert (client.gets, labels(known)) == (1, {"team": "vision"})


async def test_one_that_is_not_there_stays_unknown_and_is_asked_for_again():
    client, clock = CountingClient(), FakeClock()
    known = Namespaces(clock=clock)

    await known.fetch(client, ABOUT_A_POD)
    assert known.find("team-a") is None

    await client.create(NAMESPACES, TEAM_A, into=dict)
    await clock.advance(UNKNOWN_SECONDS)
    await known.fetch(client, ABOUT_A_POD)
    assert labels(known) == {"team": "vision"}


def about_a_pod_in(namespace):
    return structs.replace(ABOUT_A_POD, namespace=namespace)


async def test_one_that_is_not_there_is_asked_for_once_in_a_while_however_often_it_is_named():
    client, known = CountingClient(), Namespaces(clock=FakeClock())

    for _ in range(1000):
        await known.fetch(client, ABOUT_A_POD)

    assert client.gets == 1


async def test_no_more_than_so_many_are_asked_for_whoever_names_them():
    client, clock = await client_with_team_a(), FakeClock()
    known = Namespaces(clock=clock)

    for number in range(10 * MOST_ASKED):
        await known.fetch(client, about_a_pod_in(f"made-up-{number}"))
    await known.fetch(client, ABOUT_A_POD)
    assert (client.gets, known.find("team-a")) == (MOST_ASKED, None)

    await clock.advance(UNKNOWN_SECONDS)
    await known.fetch(client, ABOUT_A_POD)
    assert labels(known) == {"team": "vision"}
    assert len(known._asked) == 1


async def test_of_those_that_were_asked_for_the_oldest_is_forgotten(monkeypatch):
    monkeypatch.setattr(module, "MOST_FETCHED", 2)
    client, known = await client_with_team_a(), Namespaces(clock=FakeClock())
    names = ["team-a", "team-b", "team-c"]

    for name in names:
        if name != "team-a":
            await client.create(NAMESPACES, {"metadata": {"name": name}}, into=dict)
        await known.fetch(client, about_a_pod_in(name))

    assert [known.find(name) is not None for name in names] == [False, True, True]


async def test_an_api_server_that_fails_leaves_it_unknown():
    client, known = await client_with_team_a(), Namespaces()
    client.fail(UnreachableError("no route"), verb="get")

    await known.fetch(client, ABOUT_A_POD)

    assert known.find("team-a") is None


async def test_an_api_server_that_does_not_answer_is_not_waited_for():
    client, known = await client_with_team_a(answering=False), Namespaces(fetch_seconds=0.01)

    await known.fetch(client, ABOUT_A_POD)

    assert known.find("team-a") is None
