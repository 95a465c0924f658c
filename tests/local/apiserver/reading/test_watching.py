import asyncio
import socket

import pytest

from policyd.local.apiserver import ApiServer, ServerOptions
from policyd.local.apiserver.reading.watch import BACKLOG, Watcher
from policyd.local.apiserver.store import StoreEvent
from tests.local.apiserver.client import CONFIG_MAPS, config_map, session_with

pytestmark = pytest.mark.anyio


async def test_a_watch_sends_what_is_there_and_then_what_changes(api):
    await api.create(CONFIG_MAPS, config_map("a"))

    async with api.watching(CONFIG_MAPS) as watch:
        assert await watch.names(1) == [("ADDED", "a")]
        await api.create(CONFIG_MAPS, config_map("b"))
        await api.patch(f"{CONFIG_MAPS}/b", {"data": {"k": "v"}})
        await api.delete(f"{CONFIG_MAPS}/a")

        assert await watch.names(3) == [("ADDED", "b"), ("MODIFIED", "b"), ("DELETED", "a")]


async def test_a_watch_resumes_after_a_version_without_a_gap(api):
    await api.create(CONFIG_MAPS, config_map("a"))
    listed = await api.get(CONFIG_MAPS)
    await api.create(CONFIG_MAPS, config_map("b"))
    version = listed.body["metadata"]["resourceVersion"]

    async with api.watching(CONFIG_MAPS, resourceVersion=version) as watch:
        await api.create(CONFIG_MAPS, config_map("c"))

        assert await watch.names(2) == [("ADDED", "b"), ("ADDED", "c")]


async def test_a_selector_turns_changes_into_coming_and_going(api):
    async with api.watching(CONFIG_MAPS, labelSelector="on=yes", resourceVersion="1") as watch:
        await api.create(CONFIG_MAPS, config_map("a"))
        await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"on": "yes"}}})
        await api.patch(f"{CONFIG_MAPS}/a", {"data": {"k": "v"}})
        await api.patch(f"{CONFIG_MAPS}/a", {"metadata": {"labels": {"on": "no"}}})

        assert await watch.names(3) == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]


async def test_a_forgotten_version_is_expired():
    server = ApiServer(ServerOptions(history=2))
    await server.start()
    async with session_with(server) as api:
        for name in "abcd":
            await api.create(CONFIG_MAPS, config_map(name))

        async with api.watching(CONFIG_MAPS, resourceVersion="1") as watch:
            event = await watch.next_event()

            assert event["type"] == "ERROR"
            assert event["object"]["code"] == 410
            assert event["object"]["reason"] == "Expired"
            assert event["object"]["message"].startswith("too old resource version: 1 (")
            assert await watch.next_event() is None
    await server.stop()


async def test_a_list_that_cannot_go_on_is_expired():
    server = ApiServer(ServerOptions(history=2))
    await server.start()
    async with session_with(server) as api:
        for name in "abc":
            await api.create(CONFIG_MAPS, config_map(name))
        first = await api.get(CONFIG_MAPS, limit="1")
        for name in "def":
            await api.create(CONFIG_MAPS, config_map(name))

        token = first.body["metadata"]["continue"]
        reply = await api.get(CONFIG_MAPS, **{"continue": token})

        assert (reply.code, reply.body["reason"]) == (410, "Expired")
    await server.stop()


async def test_a_watch_ends_when_its_time_is_up(api):
    async with api.watching(CONFIG_MAPS, timeoutSeconds="0") as watch:
        assert await watch.next_event() is None


async def test_a_streaming_list_ends_with_a_marked_bookmark(api):
    await api.create(CONFIG_MAPS, config_map("a"))

    query = {"sendInitialEvents": "true", "allowWatchBookmarks": "true"}
    async with api.watching(CONFIG_MAPS, resourceVersionMatch="NotOlderThan", **query) as watch:
        assert await watch.names(1) == [("ADDED", "a")]
        bookmark = await watch.next_event()

    assert bookmark["type"] == "BOOKMARK"
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_only_the_first_table_of_a_watch_has_headers(api):
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    async with api.watching(CONFIG_MAPS, headers=accept) as watch:
        await api.create(CONFIG_MAPS, config_map("a"))
        await api.create(CONFIG_MAPS, config_map("b"))
        first, second = await watch.next_event(), await watch.next_event()

    assert first["object"]["columnDefinitions"][0]["name"] == "Name"
    assert second["object"]["columnDefinitions"] is None
    assert second["object"]["rows"][0]["cells"][0] == "b"


async def test_the_server_stops_although_somebody_watches(server):
    async with session_with(server) as api, api.watching(CONFIG_MAPS) as watch:
        async with asyncio.timeout(5):
            await server.stop()

        assert await watch.next_event() is None


async def test_a_slow_client_is_cut_off():
    watcher = Watcher(lambda _value: True)
    value = config_map("a")

    for version in range(BACKLOG + 2):
        watcher.offer(StoreEvent("ADDED", "configmaps", value, None, version))

    assert watcher.closed
    assert len(await watcher.notices(0)) == BACKLOG + 1
    assert await watcher.notices(0) == []


async def test_answers_do_not_wait_for_acknowledgements(server):
    # asyncio turns Nagle's algorithm off only for sockets that name their protocol.
    assert server._socket.proto == socket.IPPROTO_TCP
