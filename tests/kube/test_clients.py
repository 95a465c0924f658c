"""What a client does, whichever it is: one set of behaviours, checked on memory and over HTTP."""

from contextlib import aclosing, asynccontextmanager

import msgspec
import pytest

from policyd.kube.client import Bookmark, PartialObject
from policyd.kube.errors import (
    AlreadyExistsError,
    ConflictError,
    GoneError,
    InvalidError,
    NotFoundError,
    UndecodableError,
)
from policyd.kube.http_client import HttpClient
from policyd.kube.resources import NODES, PODS
from policyd.testing import FakeClient
from tests.kube.fake_server import bookmark_line, serving
from tests.kube.objects import Pod, add, change, pod, remove

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def in_memory():
    client = FakeClient()
    yield client, client.store


@asynccontextmanager
async def over_http():
    async with serving() as server, HttpClient(server.connection) as client:
        yield client, server.store


@pytest.fixture(params=[pytest.param(in_memory, id="memory"), pytest.param(over_http, id="http")])
async def world(request):
    async with request.param() as world:
        yield world


async def test_created_objects_can_be_read(world):
    client, _ = world

    created = await client.create(PODS, pod("a", priority=7), into=Pod)
    got = await client.get(PODS, "a", namespace="ml", into=Pod)

    assert got == created
    assert got.spec.priority == 7
    assert got.metadata.generation == 1
    assert got.metadata.uid


async def test_a_struct_is_stored_with_the_kind_that_it_leaves_out(world):
    client, store = world

    await client.create(PODS, msgspec.convert(pod("a"), Pod), into=PartialObject)

    assert store.get(PODS, "ml", "a")["kind"] == "Pod"


async def test_plain_json_can_be_asked_for(world):
    client, store = world
    add(store, "a", labels={"team": "x"})

    got = await client.get(PODS, "a", namespace="ml", into=dict)

    assert got["metadata"]["labels"] == {"team": "x"}


async def test_a_dry_run_stores_nothing(world):
    client, store = world
    add(store, "b")

    await client.create(PODS, pod("a"), into=Pod, dry_run=True)
    await client.patch(PODS, "b", {"spec": {"priority": 3}}, namespace="ml", into=Pod, dry_run=True)
    await client.delete(PODS, "b", namespace="ml", dry_run=True)

    assert [obj["metadata"]["name"] for obj in store.select(PODS, {})] == ["b"]
    assert store.get(PODS, "ml", "b")["spec"]["priority"] == 0


async def test_a_name_is_given_once(world):
    client, store = world
    add(store, "a")

    with pytest.raises(AlreadyExistsError, match='pods "a" already exists') as caught:
        await client.create(PODS, pod("a"), into=Pod)

    assert (caught.value.code, caught.value.reason) == (409, "AlreadyExists")


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(lambda c: c.get(PODS, "no", namespace="ml", into=Pod), id="get"),
        pytest.param(lambda c: c.patch(PODS, "no", {}, namespace="ml", into=Pod), id="patch"),
        pytest.param(lambda c: c.replace(PODS, pod("no"), into=Pod), id="replace"),
        pytest.param(lambda c: c.delete(PODS, "no", namespace="ml"), id="delete"),
    ],
)
async def test_missing_objects_are_not_found(world, ask):
    client, _ = world

    with pytest.raises(NotFoundError, match='pods "no" not found'):
        await ask(client)


@pytest.mark.parametrize(
    ("patch", "kind", "expected"),
    [
        pytest.param({"spec": {"priority": 3}}, "merge", (3, {"a": "1"}), id="merge-sets"),
        pytest.param({"metadata": {"labels": {"a": None}}}, "merge", (0, {}), id="merge-removes"),
        pytest.param(
            [{"op": "add", "path": "/metadata/labels/b", "value": "2"}],
            "json",
            (0, {"a": "1", "b": "2"}),
            id="json",
        ),
    ],
)
async def test_patches(world, patch, kind, expected):
    client, store = world
    add(store, "a", labels={"a": "1"})

    got = await client.patch(PODS, "a", patch, namespace="ml", kind=kind, into=Pod)

    assert (got.spec.priority, got.metadata.labels) == expected
    assert got == await client.get(PODS, "a", namespace="ml", into=Pod)


async def test_a_patch_that_does_not_fit_is_invalid(world):
    client, store = world
    add(store, "a")

    with pytest.raises(InvalidError):
        await client.patch(
            PODS,
            "a",
            [{"op": "remove", "path": "/spec/nothing"}],
            namespace="ml",
            kind="json",
            into=Pod,
        )


async def test_an_outdated_write_is_a_conflict(world):
    client, store = world
    old = add(store, "a")
    change(store, "a", priority=1)
    patch = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}}

    with pytest.raises(ConflictError):
        await client.patch(PODS, "a", patch, namespace="ml", into=Pod)
    with pytest.raises(ConflictError):
        await client.replace(PODS, old, into=Pod)


async def test_the_generation_counts_changes_of_the_spec_only(world):
    client, store = world
    add(store, "a")

    labelled = await client.patch(
        PODS, "a", {"metadata": {"labels": {"x": "y"}}}, namespace="ml", into=Pod
    )
    changed = await client.patch(PODS, "a", {"spec": {"priority": 1}}, namespace="ml", into=Pod)

    assert (labelled.metadata.generation, changed.metadata.generation) == (1, 2)


async def test_the_status_is_written_by_its_subresource_alone(world):
    client, store = world
    add(store, "a")
    both = {"spec": {"priority": 9}, "status": {"phase": "Running"}}

    plain = await client.patch(PODS, "a", both, namespace="ml", into=Pod)
    both["spec"]["priority"] = 1
    status = await client.patch(PODS, "a", both, namespace="ml", subresource="status", into=Pod)

    assert (plain.spec.priority, plain.status.phase) == (9, "")
    assert (status.spec.priority, status.status.phase) == (9, "Running")


async def test_a_write_that_changes_nothing_makes_no_new_version(world):
    client, store = world
    before = add(store, "a")

    after = await client.patch(PODS, "a", {"spec": {"priority": 0}}, namespace="ml", into=Pod)

    assert after.metadata.resource_version == before["metadata"]["resourceVersion"]


async def test_finalizers_hold_a_deletion_until_they_are_gone(world):
    client, store = world
    add(store, "a", finalizers=["policyd.io/quota"])

    await client.delete(PODS, "a", namespace="ml")
    held = await client.get(PODS, "a", namespace="ml", into=Pod)
    await client.patch(PODS, "a", {"metadata": {"finalizers": None}}, namespace="ml", into=Pod)

    assert held.metadata.deletion_timestamp is not None
    assert store.select(PODS, {}) == []


@pytest.mark.parametrize(
    "precondition",
    [
        pytest.param({"uid": "other"}, id="uid"),
        pytest.param({"resource_version": "0"}, id="version"),
    ],
)
async def test_a_deletion_may_depend_on_which_object_it_is(world, precondition):
    client, store = world
    add(store, "a")

    with pytest.raises(ConflictError):
        await client.delete(PODS, "a", namespace="ml", **precondition)

    assert store.get(PODS, "ml", "a")


async def test_pages_are_of_one_moment(world):
    client, store = world
    for name in "abcde":
        add(store, name)

    first = await client.page(PODS, namespace="ml", into=Pod, limit=2)
    remove(store, "a")
    add(store, "f")
    second = await client.page(PODS, namespace="ml", into=Pod, limit=10, continue_=first.continue_)

    names = [item.metadata.name for page in (first, second) for item in page.items]
    assert names == list("abcde")
    assert second.resource_version == first.resource_version
    assert not second.continue_


async def test_a_continuation_that_is_too_old_is_gone(world):
    client, store = world
    for name in "abc":
        add(store, name)
    first = await client.page(PODS, into=Pod, limit=1)
    store.compact()

    with pytest.raises(GoneError):
        await client.page(PODS, into=Pod, limit=1, continue_=first.continue_)


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        pytest.param({}, {"ml/a", "ml/b", "web/c"}, id="everything"),
        pytest.param({"namespace": "ml"}, {"ml/a", "ml/b"}, id="namespace"),
        pytest.param({"label_selector": "team in (x)"}, {"ml/a", "web/c"}, id="labels"),
        pytest.param({"field_selector": "metadata.name=b"}, {"ml/b"}, id="field"),
        pytest.param({"field_selector": "metadata.name!=b"}, {"ml/a", "web/c"}, id="not-field"),
        pytest.param(
            {"namespace": "ml", "label_selector": "team=x"}, {"ml/a"}, id="namespace-and-labels"
        ),
    ],
)
async def test_selections(world, selection, expected):
    client, store = world
    add(store, "a", labels={"team": "x"})
    add(store, "b")
    add(store, "c", namespace="web", labels={"team": "x"})

    page = await client.page(PODS, into=Pod, **selection)

    assert {item.metadata.key for item in page.items} == expected


async def test_an_empty_collection_is_an_empty_page(world):
    client, _ = world

    page = await client.page(NODES, into=dict)

    assert page.items == ()


async def test_an_object_of_another_type_says_which_it_is(world):
    client, store = world
    store.put(PODS, pod("a") | {"spec": {"priority": "high"}})

    with pytest.raises(
        UndecodableError, match=r"`ml/a` cannot be read: .*spec\.priority"
    ) as caught:
        await client.get(PODS, "a", namespace="ml", into=Pod)

    assert caught.value.key == "ml/a"


async def take(watch, count):
    async with aclosing(watch) as events:
        return [await anext(events) for _ in range(count)]


async def test_a_watch_sends_what_came_after_its_version(world):
    client, store = world
    version = add(store, "a")["metadata"]["resourceVersion"]
    change(store, "a", priority=1)
    add(store, "b")
    remove(store, "a")

    events = await take(client.watch(PODS, into=Pod, resource_version=version), 3)

    assert [(event.type, event.object.metadata.name) for event in events] == [
        ("MODIFIED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
    ]
    assert int(events[-1].object.metadata.resource_version) == store.version


async def test_a_watch_waits_for_what_comes(world):
    client, store = world
    async with aclosing(client.watch(PODS, into=Pod, resource_version="0")) as events:
        add(store, "a")
        first = await anext(events)
        add(store, "b")
        second = await anext(events)

    assert [first.object.metadata.name, second.object.metadata.name] == ["a", "b"]


async def test_to_a_watch_with_a_selector_what_ceases_to_match_is_deleted(world):
    client, store = world
    add(store, "a", labels={"team": "x"})
    old = store.get(PODS, "ml", "a")
    store.replace(PODS, old, old | {"metadata": old["metadata"] | {"labels": {}}})
    add(store, "other")
    add(store, "b", labels={"team": "x"})

    watch = client.watch(PODS, into=Pod, resource_version="0", label_selector="team=x")
    events = await take(watch, 3)

    assert [(event.type, event.object.metadata.name) for event in events] == [
        ("ADDED", "a"),
        ("DELETED", "a"),
        ("ADDED", "b"),
    ]


async def test_a_watch_from_a_version_that_is_too_old_is_gone(world):
    client, store = world
    add(store, "a")
    store.compact()

    with pytest.raises(GoneError):
        await take(client.watch(PODS, into=Pod, resource_version="0"), 1)


async def test_bookmarks_are_no_events():
    async with (
        serving() as server,
        HttpClient(server.connection) as client,
        aclosing(client.watch(PODS, into=Pod, resource_version="0")) as events,
    ):
        add(server.store, "a")
        await anext(events)
        await server.send_line(bookmark_line(77))

        assert await anext(events) == Bookmark("77")
