"""The webhooks follow the objects named `default`, once their kind is served."""

import asyncio
from contextlib import asynccontextmanager
from functools import partial

import pytest

from policyd.admission.jobs import DefaultClass
from policyd.kube.client import PartialObject
from policyd.kube.resources import LOCAL_QUEUES, WORKLOAD_PRIORITY_CLASSES
from policyd.testing import FakeClient, FakeClock
from webhooks.defaults import FIRST_LIST_SECONDS, DefaultQueues, DefaultsWatch, Followed, take_class

pytestmark = pytest.mark.anyio

QUEUE, MANAGED = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/managed"


class Late(FakeClient):
    """A server without Kueue's kinds, at first; or one that does not let us list them."""

    there = True
    hangs = False

    async def served(self, api_version):
        return await super().served(api_version) if self.there else ()

    async def page(self, *args, **options):
        if self.hangs:
            await asyncio.Event().wait()
        return await super().page(*args, **options)


def local_queue(namespace, name="default"):
    return {"metadata": {"name": name, "namespace": namespace}}


@asynccontextmanager
async def watching(**server):
    clock, changes = FakeClock(), []
    client = Late(resources=(LOCAL_QUEUES,))
    vars(client).update(server)
    client.store.create(LOCAL_QUEUES, local_queue("team-a"))
    client.store.create(LOCAL_QUEUES, local_queue("team-b", name="other"))
    queues = DefaultQueues(changed=lambda: changes.append(1))
    watch = DefaultsWatch(
        client, Followed(LOCAL_QUEUES, PartialObject, queues.take), pace=clock.pace()
    )
    running = asyncio.ensure_future(watch.run())
    try:
        yield client, clock, queues, watch, changes
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_namespaces_come_and_go_with_their_default_queue():
    async with watching() as (client, clock, queues, watch, changes):
        await watch.first_list()
        at_first, before = queues.namespaces, len(changes)
        client.store.create(LOCAL_QUEUES, local_queue("team-b"))
        await clock.advance(1)
        then = queues.namespaces
        old = client.store.get(LOCAL_QUEUES, "team-a", "default")
        client.store.replace(LOCAL_QUEUES, old, {**old, "spec": {"stopPolicy": "Hold"}})
        await clock.advance(1)
        after_change = len(changes)
        client.store.delete(LOCAL_QUEUES, old, dry_run=False)
        await clock.advance(1)

        assert (at_first, before) == ({"team-a"}, 1)
        assert (then, after_change) == ({"team-a", "team-b"}, 2)
        assert (queues.namespaces, len(changes)) == ({"team-b"}, 3)


async def test_a_kind_that_is_not_there_is_not_waited_for_and_found_when_it_comes():
    async with watching(there=False) as (client, clock, queues, watch, _):
        await watch.first_list()
        before = queues.namespaces
        client.there = True
        await clock.advance(60)

        assert (before, queues.namespaces) == (frozenset(), {"team-a"})


async def test_a_list_that_does_not_come_does_not_block_reviews():
    async with watching(hangs=True) as (_, clock, queues, watch, _):
        waiting = asyncio.ensure_future(watch.first_list())
        await clock.advance(FIRST_LIST_SECONDS + 1)

        assert waiting.done()
        assert queues.namespaces == frozenset()


async def test_the_class_of_default_comes_and_goes():
    clock, known = FakeClock(), DefaultClass()
    client = FakeClient(resources=(WORKLOAD_PRIORITY_CLASSES,))
    take = partial(take_class, known)
    watch = DefaultsWatch(
        client, Followed(WORKLOAD_PRIORITY_CLASSES, PartialObject, take), pace=clock.pace()
    )
    running = asyncio.ensure_future(watch.run())
    client.store.create(WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "other"}, "value": 1})
    await watch.first_list()
    at_first = known.there
    client.store.create(WORKLOAD_PRIORITY_CLASSES, {"metadata": {"name": "default"}, "value": 2})
    await clock.advance(1)
    then = known.there
    made = client.store.get(WORKLOAD_PRIORITY_CLASSES, "", "default")
    client.store.delete(WORKLOAD_PRIORITY_CLASSES, made, dry_run=False)
    await clock.advance(1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)

    assert (at_first, then, known.there) == (False, True, False)
