"""Informers: the store equals the server, nothing is missed, and no failure makes a tight loop."""

import asyncio
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.kube.changes import Added, Deleted, Modified
from policyd.kube.errors import (
    ForbiddenError,
    GoneError,
    InternalError,
    ThrottledError,
    UnreachableError,
)
from policyd.kube.http_client import HttpClient
from policyd.kube.informer import Informer
from policyd.kube.pace import Pace
from policyd.kube.resources import PODS
from policyd.kube.transport import Limits
from policyd.testing import FakeClient, FakeClock
from policyd.testing.objects import refusal
from tests.kube.fake_server import Answer, Drop, bookmark_line, error_line, serving
from tests.kube.objects import Pod, add, change, pod, remove, stored

pytestmark = pytest.mark.anyio


class RecordedChanges:
    """What an informer told, checked against what it told before."""

    def __init__(self):
        self.changes = []
        self.objects = {}

    def __call__(self, change):
        key = change.object.metadata.key
        match change:
            case Added(new):
                assert key not in self.objects, "it was not known before"
                self.objects[key] = new
                self.changes.append(f"+{key}")
            case Modified(old, new):
                assert self.objects[key] == old, "`old` is what was told before"
                assert old != new, "a change changes something"
                self.objects[key] = new
                self.changes.append(f"~{key}")
            case Deleted(old):
                assert self.objects.pop(key) == old, "`object` is what was told before"
                self.changes.append(f"-{key}")


@asynccontextmanager
async def informing(reader, *, pace, listener=None, **selection):
    informer = Informer(
        reader, PODS, into=Pod, on_change=listener or RecordedChanges(), pace=pace, **selection
    )
    task = asyncio.ensure_future(informer.run())
    try:
        yield informer
    finally:
        task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        if not isinstance(outcome, asyncio.CancelledError):
            raise outcome


@asynccontextmanager
async def over_http():
    """A server that can go wrong, and a client whose waits take no time."""
    clock = FakeClock()
    pace = Pace(clock=clock, sleep=clock.skip, jitter=lambda: 0.0)
    async with (
        serving() as server,
        HttpClient(server.connection, limits=Limits(tries=1), pace=pace) as client,
    ):
        yield server, client, pace


async def eventually(is_so):
    """Let the loop turn until something is so."""
    for _ in range(5000):
        if is_so():
            return
        await asyncio.sleep(0.0005)
    assert is_so()


def page_requests(server):
    return [path for _, path, _, _ in server.requests if "watch=" not in path]


def watch_requests(server):
    return [path for _, path, _, _ in server.requests if "watch=" in path]


async def test_a_change_is_reported_with_the_old_and_the_new_object():
    client, clock, seen = FakeClient(), FakeClock(), []
    add(client.store, "a")

    async with informing(client, pace=clock.pace(), listener=seen.append):
        await clock.advance(0)
        change(client.store, "a", priority=5)
        await clock.advance(0)
        remove(client.store, "a")
        await clock.advance(0)

    added, modified, deleted = seen
    assert isinstance(added, Added)
    assert added.object.spec.priority == 0
    assert isinstance(modified, Modified)
    assert (modified.old.spec.priority, modified.object.spec.priority) == (0, 5)
    assert isinstance(deleted, Deleted)
    assert deleted.object.spec.priority == 5


async def test_a_list_is_read_in_pages_and_then_watched_from_its_version():
    async with over_http() as (server, client, pace):
        for number in range(1201):
            add(server.store, f"p{number}")

        async with informing(client, pace=pace) as informer:
            await informer.synced.wait()
            await server.watched()

        assert len(informer.store) == 1201
        assert len(page_requests(server)) == 3
        assert "resourceVersion=1201&" in watch_requests(server)[0]
        assert "allowWatchBookmarks=true" in watch_requests(server)[0]


async def test_the_next_page_is_asked_for_while_one_is_taken_in():
    asked = []
    async with over_http() as (server, client, pace):
        for number in range(501):
            add(server.store, f"p{number:03}")

        def note(change):
            asked.append((change.object.metadata.name, len(page_requests(server))))

        async with informing(client, pace=pace, listener=note) as informer:
            await informer.synced.wait()

    assert asked[0] == ("p000", 1)
    assert asked[499] == ("p499", 2)


async def test_a_running_list_has_no_known_version():
    async with over_http() as (server, client, pace):
        add(server.store, "a")
        informer = Informer(client, PODS, into=Pod, pace=pace)
        before = informer.has_reached(1), informer.version
        async with informing(client, pace=pace) as informer:
            await informer.synced.wait()

            assert before == (False, 0)
            assert informer.has_reached(1)
            assert informer.version >= 1


async def test_it_is_synced_when_the_last_page_is_read_and_not_before():
    client, clock = FakeClient(), FakeClock()
    for number in range(501):
        add(client.store, f"p{number}")
    page, release = client.page, asyncio.Event()

    class Slow(FakeClient):
        async def page(self, resource, **options):
            if options.get("continue_"):
                await release.wait()
            return await page(resource, **options)

    async with informing(Slow(client.store), pace=clock.pace()) as informer:
        await clock.advance(0)
        halfway = (len(informer.store), informer.synced.is_set())
        release.set()
        await clock.advance(0)

        assert halfway == (500, False)
        assert (len(informer.store), informer.synced.is_set()) == (501, True)


async def test_a_watch_that_ends_is_resumed_without_a_list():
    async with over_http() as (server, client, pace):
        async with informing(client, pace=pace) as informer:
            await server.watched()
            server.end_watches()
            add(server.store, "a")
            await eventually(lambda: "ml/a" in informer.store)

        assert len(page_requests(server)) == 1


async def test_a_watch_is_resumed_from_the_last_event():
    async with over_http() as (server, client, pace):
        async with informing(client, pace=pace) as informer:
            await server.watched()
            add(server.store, "a")
            change(server.store, "a", priority=1)
            await eventually(lambda: informer.store.get("ml/a", Pod()).spec.priority == 1)
            server.end_watches()
            await eventually(lambda: len(watch_requests(server)) > 1)

        assert "resourceVersion=2&" in watch_requests(server)[1]


async def test_a_watch_is_resumed_from_the_last_bookmark():
    async with over_http() as (server, client, pace):
        async with informing(client, pace=pace):
            await server.watched()
            await server.send_line(bookmark_line(0))
            server.store.version = 40
            await server.send_line(bookmark_line(40))
            server.end_watches()
            await eventually(lambda: len(watch_requests(server)) > 1)

        assert "resourceVersion=40&" in watch_requests(server)[1]


async def test_an_unseen_deletion_is_reported_after_the_next_list():
    client, clock, changes = FakeClient(), FakeClock(), RecordedChanges()
    add(client.store, "a")
    add(client.store, "b")

    async with informing(client, pace=clock.pace(), listener=changes) as informer:
        await clock.advance(0)
        client.end_watches()
        await clock.advance(0)
        remove(client.store, "a")
        add(client.store, "c")
        client.store.compact()
        await clock.advance(5)

        assert changes.changes == ["+ml/a", "+ml/b", "+ml/c", "-ml/a"]
        assert changes.objects == informer.store == stored(client.store)


async def test_an_object_made_anew_meanwhile_is_reported_as_gone_and_new():
    client, clock, changes = FakeClient(), FakeClock(), RecordedChanges()
    add(client.store, "a")

    async with informing(client, pace=clock.pace(), listener=changes):
        await clock.advance(0)
        client.end_watches()
        await clock.advance(0)
        remove(client.store, "a")
        add(client.store, "a")
        client.store.compact()
        await clock.advance(5)

    assert changes.changes == ["+ml/a", "-ml/a", "+ml/a"]


@pytest.mark.parametrize(
    "after_an_event", [pytest.param(False, id="at-once"), pytest.param(True, id="after-an-event")]
)
async def test_an_error_event_that_says_gone_leads_to_a_list(after_an_event):
    async with over_http() as (server, client, pace):
        async with informing(client, pace=pace) as informer:
            await server.watched()
            if after_an_event:
                add(server.store, "a")
                await eventually(lambda: "ml/a" in informer.store)
            await server.send_line(error_line(refusal(410, "Expired", "too old")))
            await eventually(lambda: len(page_requests(server)) == 2)
            await server.watched()

        assert pace.clock.slept == [0.25]


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(InternalError("failed"), id="500"),
        pytest.param(ForbiddenError("no"), id="403"),
        pytest.param(ThrottledError("later"), id="429"),
        pytest.param(GoneError("too old"), id="410"),
        pytest.param(UnreachableError("cut"), id="cut"),
    ],
)
@pytest.mark.parametrize(
    "verb", [pytest.param("page", id="list"), pytest.param("watch", id="watch")]
)
async def test_failures_are_waited_out_longer_each_time(verb, error):
    client, clock = FakeClient(), FakeClock()
    client.fail(error, verb=verb, times=1000)

    async with informing(client, pace=clock.pace()):
        await clock.advance(120)

    assert clock.slept[:8] == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]


class EndsAtOnce(FakeClient):
    """Accepts watches, and ends them cleanly with nothing sent."""

    async def watch(self, *_, **__):
        for nothing in ():
            yield nothing


async def test_a_server_that_ends_watches_at_once_is_not_asked_without_pause():
    clock = FakeClock()

    async with informing(EndsAtOnce(), pace=clock.pace()):
        await clock.advance(60)

    assert clock.slept[:5] == [0.25, 0.5, 1.0, 2.0, 4.0]


async def test_a_watch_that_lived_a_while_is_resumed_at_once():
    client, clock = FakeClient(), FakeClock()

    async with informing(client, pace=clock.pace()) as informer:
        await clock.advance(300)
        client.end_watches()
        await clock.advance(0)
        add(client.store, "a")
        await clock.advance(0)

        assert "ml/a" in informer.store
    assert clock.slept == []


async def test_waits_begin_anew_after_an_event():
    client, clock = FakeClient(), FakeClock()
    client.fail(InternalError("failed"), verb="watch", times=3)

    async with informing(client, pace=clock.pace()):
        await clock.advance(10)
        add(client.store, "a")
        await clock.advance(0)
        client.fail(InternalError("failed"), verb="watch")
        client.end_watches()
        await clock.advance(1)

    assert clock.slept[:4] == [0.25, 0.5, 1.0, 0.25]


async def test_the_server_s_wish_for_a_longer_wait_is_obeyed():
    client, clock = FakeClient(), FakeClock()
    error = ThrottledError("later")
    error.retry_after = 17.0
    client.fail(error, verb="page")

    async with informing(client, pace=clock.pace()) as informer:
        await clock.advance(16)
        early = informer.synced.is_set()
        await clock.advance(2)

        assert (early, informer.synced.is_set()) == (False, True)


async def test_a_connection_cut_within_an_event_loses_nothing():
    async with over_http() as (server, client, pace):
        changes = RecordedChanges()
        async with informing(client, pace=pace, listener=changes) as informer:
            await server.watched()
            server.cut_next_event_after = 100
            add(server.store, "a")
            add(server.store, "b")
            await eventually(lambda: len(informer.store) == 2)

        assert changes.changes == ["+ml/a", "+ml/b"]
        assert len(page_requests(server)) == 1


async def test_events_are_whole_however_they_are_cut_into_chunks():
    async with over_http() as (server, client, pace):
        server.slice_bytes = 7
        async with informing(client, pace=pace) as informer:
            await server.watched()
            add(server.store, "a", labels={"umlaut": "ä"})
            add(server.store, "b")
            await eventually(lambda: len(informer.store) == 2)

        assert dict(informer.store) == stored(server.store)


async def test_a_list_that_outlives_its_pages_is_read_whole():
    async with over_http() as (server, client, pace):
        for number in range(501):
            add(server.store, f"p{number}")
        gone = msgspec.json.encode({"reason": "Expired", "code": 410, "message": "too old"})
        server.faults.extend([None, Answer(410, gone)])

        async with informing(client, pace=pace) as informer:
            await informer.synced.wait()

        assert len(informer.store) == 501
        assert "limit" not in page_requests(server)[-1]


async def test_an_object_that_cannot_be_read_keeps_no_other_waiting():
    client, clock, changes = FakeClient(), FakeClock(), RecordedChanges()
    client.store.put(PODS, pod("bad") | {"spec": {"priority": "high"}})
    add(client.store, "a")

    async with informing(client, pace=clock.pace(), listener=changes) as informer:
        await clock.advance(0)
        client.store.put(PODS, pod("a") | {"spec": {"priority": []}})
        add(client.store, "b")
        await clock.advance(0)
        invalid = {key: problem.partition(": ")[2] for key, problem in informer.invalid.items()}
        client.store.put(PODS, pod("bad"))
        remove(client.store, "a")
        await clock.advance(0)

        assert invalid == {
            "ml/bad": "Expected `int`, got `str` - at `$.spec.priority`",
            "ml/a": "Expected `int`, got `array` - at `$.object.spec.priority`",
        }
        assert informer.invalid == {}
        assert changes.changes == ["+ml/a", "-ml/a", "+ml/b", "+ml/bad"]
        assert clock.slept == []


async def test_a_watch_that_sends_what_is_no_event_leads_to_a_list():
    async with over_http() as (server, client, pace), informing(client, pace=pace) as informer:
        await server.watched()
        await server.send_line(b"<html>")
        add(server.store, "a")
        await eventually(lambda: len(page_requests(server)) == 2)
        await eventually(lambda: "ml/a" in informer.store)


async def test_only_what_is_selected_is_kept():
    client, clock = FakeClient(), FakeClock()
    add(client.store, "a", labels={"team": "x"})
    add(client.store, "b", labels={"team": "x"}, namespace="web")

    selection = {"namespace": "ml", "label_selector": "team=x"}
    async with informing(client, pace=clock.pace(), **selection) as informer:
        await clock.advance(0)
        add(client.store, "c", labels={"team": "x"})
        add(client.store, "d")
        await clock.advance(0)

        assert set(informer.store) == {"ml/a", "ml/c"}


async def test_contact_and_trouble_can_be_asked_for():
    client, clock = FakeClient(), FakeClock()
    client.fail(InternalError("failed"), verb="page", times=2)

    async with informing(client, pace=clock.pace()) as informer:
        await clock.advance(0)
        in_trouble = (informer.last_contact, str(informer.last_error))
        await clock.advance(10)

        assert in_trouble == (None, "failed")
        assert (informer.last_contact, informer.last_error) == (0.75, None)


async def test_an_exception_of_a_listener_ends_the_informer():
    client, clock = FakeClient(), FakeClock()
    add(client.store, "a")

    def fail(_change):
        raise LookupError("a bug")

    with pytest.raises(LookupError, match="a bug"):
        async with informing(client, pace=clock.pace(), listener=fail):
            await clock.advance(0)


async def test_a_cancelled_informer_leaves_no_watch_behind():
    async with over_http() as (server, client, pace):
        async with informing(client, pace=pace):
            await server.watched()

        add(server.store, "wakes-the-watch")
        await eventually(lambda: not server.watches)


NAMES = st.sampled_from("abc")
GONE = msgspec.json.encode({"reason": "Expired", "code": 410})
STEPS = st.one_of(
    st.tuples(st.just("add"), NAMES),
    st.tuples(st.just("change"), NAMES, st.integers(1, 9)),
    st.tuples(st.just("remove"), NAMES),
    st.tuples(st.just("spoil"), NAMES),
    st.tuples(st.just("compact")),
    st.tuples(st.just("cut")),
    st.tuples(st.just("cut-within"), st.integers(0, 120)),
    st.tuples(st.just("end")),
    st.tuples(st.just("bookmark")),
    st.tuples(st.just("error-event"), st.sampled_from([410, 500])),
    st.tuples(st.just("list-fails"), st.sampled_from([403, 410, 429, 500])),
    st.tuples(st.just("watch-fails"), st.sampled_from([403, 410, 429, 500])),
    st.tuples(st.just("list-drops")),
    st.tuples(st.just("watch-drops")),
    st.tuples(st.just("let-it-work")),
)


def names(server):
    return {obj["metadata"]["name"] for obj in server.store.select(PODS, {})}


def spoil(server, name):
    server.store.put(PODS, pod(name) | {"spec": {"priority": "high"}})


def cut_within(server, size):
    server.cut_next_event_after = size


async def send_bookmark(server):
    await asyncio.sleep(0.002)  # it is true only when all before it has been sent
    await server.send_line(bookmark_line(server.store.version))


async def send_error(server, code):
    await server.send_line(error_line(refusal(code, "", "trouble")))


def failure(code):
    return Answer(code, GONE if code == 410 else b"")


DO = {
    "add": lambda server, name: name in names(server) or add(server.store, name),
    "change": lambda server, name, priority: (
        name in names(server) and change(server.store, name, priority=priority)
    ),
    "remove": lambda server, name: name in names(server) and remove(server.store, name),
    "spoil": spoil,
    "compact": lambda server: server.store.compact(),
    "cut": lambda server: server.cut_watches(),
    "cut-within": cut_within,
    "end": lambda server: server.end_watches(),
    "bookmark": send_bookmark,
    "error-event": send_error,
    "list-fails": lambda server, code: server.faults.append(failure(code)),
    "watch-fails": lambda server, code: server.watch_faults.append(failure(code)),
    "list-drops": lambda server: server.faults.append(Drop()),
    "watch-drops": lambda server: server.watch_faults.append(Drop()),
    "let-it-work": lambda _: asyncio.sleep(0.002),
}


async def take_step(server, kind, *details):
    done = DO[kind](server, *details)
    if asyncio.iscoroutine(done):
        with suppress(ConnectionError):
            await done


def readable(store):
    return {
        f"ml/{obj['metadata']['name']}": msgspec.convert(obj, Pod)
        for obj in store.select(PODS, {})
        if obj["spec"]["priority"] != "high"
    }


@settings(max_examples=80, deadline=None)
@given(st.lists(STEPS, max_size=25))
def test_the_store_always_converges_to_the_server(steps):
    async def scenario():
        async with over_http() as (server, client, pace):
            changes = RecordedChanges()
            async with informing(client, pace=pace, listener=changes) as informer:
                for each in steps:
                    await take_step(server, *each)
                await eventually(lambda: dict(informer.store) == readable(server.store))
                await server.watched()
                server.cut_next_event_after = None
                add(server.store, "last")
                await eventually(lambda: "ml/last" in informer.store)

                assert dict(informer.store) == readable(server.store) == changes.objects

    asyncio.run(scenario())
