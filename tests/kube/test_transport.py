"""One request: what is retried and what is not, how long it may take, what its errors say."""

import asyncio
from contextlib import aclosing, asynccontextmanager, suppress

import msgspec
import pytest

from policyd.kube.connection import ApiConnection
from policyd.kube.errors import (
    LONGEST_MESSAGE,
    AlreadyExistsError,
    ApiError,
    ConflictError,
    DeadlineError,
    ForbiddenError,
    GoneError,
    InternalError,
    InvalidError,
    NotFoundError,
    ThrottledError,
    UnauthorizedError,
    UnavailableError,
    UndecodableError,
    UnreachableError,
)
from policyd.kube.http_client import HttpClient
from policyd.kube.pace import Pace
from policyd.kube.resources import NODES, PODS, SUBJECT_ACCESS_REVIEWS
from policyd.kube.transport import Limits
from policyd.testing import FakeClock
from tests.kube.fake_server import Answer, Drop, Hang, serving
from tests.kube.objects import Pod, add, pod

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def talking(**limits):
    clock = FakeClock()
    pace = Pace(clock=clock, sleep=clock.skip, jitter=lambda: 0.0)
    async with (
        serving() as server,
        HttpClient(server.connection, limits=Limits(**limits), pace=pace) as client,
    ):
        yield server, client, clock


def status(code, reason="", message="", **details):
    body = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return Answer(code, msgspec.json.encode(body | {"details": details or None}))


async def ask(client, **options):
    return await client.get(PODS, "a", namespace="ml", into=Pod, **options)


VERBS = {
    "get": ask,
    "page": lambda c: c.page(PODS, into=Pod),
    "replace": lambda c: c.replace(PODS, pod("a"), into=Pod),
    "merge-patch": lambda c: c.patch(PODS, "a", {}, namespace="ml", into=Pod),
    "delete": lambda c: c.delete(PODS, "a", namespace="ml"),
    "create": lambda c: c.create(PODS, pod("b"), into=Pod),
    "review": lambda c: c.create(SUBJECT_ACCESS_REVIEWS, {"metadata": {"name": "a"}}, into=dict),
    "dry-run": lambda c: c.create(PODS, pod("b"), into=Pod, dry_run=True),
    "json-patch": lambda c: c.patch(PODS, "a", [], namespace="ml", kind="json", into=Pod),
}
LATER = [
    pytest.param(status(429), ThrottledError, id="429"),
    pytest.param(status(503), UnavailableError, id="503"),
    pytest.param(Drop(), UnreachableError, id="dropped"),
]


@pytest.mark.parametrize(
    "verb", ["get", "page", "replace", "merge-patch", "delete", "review", "dry-run"]
)
@pytest.mark.parametrize(("fault", "error"), LATER)
async def test_idempotent_requests_are_retried(verb, fault, error):
    async with talking() as (server, client, clock):
        add(server.store, "a")
        server.faults.extend([fault, fault])

        await VERBS[verb](client)

    # The HTTP library tries a dropped connection once more itself, where the verb allows that.
    assert len(server.requests) == 3
    assert clock.slept in ([0.05, 0.1], [0.05])


@pytest.mark.parametrize("verb", ["create", "json-patch"])
@pytest.mark.parametrize(("fault", "error"), LATER)
async def test_other_requests_are_not_retried(verb, fault, error):
    async with talking() as (server, client, clock):
        add(server.store, "a")
        server.faults.append(fault)

        with pytest.raises(error):
            await VERBS[verb](client)

    assert len(server.requests) == 1
    assert clock.slept == []


@pytest.mark.parametrize("code", [400, 401, 403, 404, 409, 410, 422, 500, 504])
async def test_other_answers_are_final(code):
    async with talking() as (server, client, _):
        server.faults.append(status(code))

        with pytest.raises(ApiError) as caught:
            await ask(client)

    assert caught.value.code == code
    assert len(server.requests) == 1


async def test_tries_have_an_end():
    async with talking(tries=3) as (server, client, clock):
        server.faults.extend([status(429)] * 5)

        with pytest.raises(ThrottledError):
            await ask(client)

    assert len(server.requests) == 3
    assert clock.slept == [0.05, 0.1]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(429, headers={"Retry-After": "3"}), id="header"),
        pytest.param(status(429, retryAfterSeconds=3), id="status"),
        pytest.param(Answer(503, headers={"Retry-After": "3"}), id="503"),
    ],
)
async def test_the_server_says_how_long_to_wait(answer):
    async with talking() as (server, client, clock):
        add(server.store, "a")
        server.faults.append(answer)

        await ask(client)

    assert clock.slept == [3.0]


async def test_a_wait_that_is_too_long_is_the_caller_s():
    async with talking() as (server, client, clock):
        server.faults.append(Answer(429, headers={"Retry-After": "60"}))

        with pytest.raises(ThrottledError) as caught:
            await ask(client)

    assert caught.value.retry_after == 60.0
    assert clock.slept == []


async def test_a_request_without_an_answer_ends_in_time():
    async with talking(timeout_seconds=0.05, tries=1) as (server, client, _):
        server.faults.append(Hang())

        with pytest.raises(UnreachableError, match=r"no answer to `GET .*/pods/a` in time"):
            await ask(client)


async def test_a_silent_watch_ends_as_if_the_server_had_ended_it():
    async with (
        talking(silence_seconds=0.05) as (server, client, _),
        aclosing(client.watch(PODS, into=Pod, resource_version="0")) as events,
    ):
        add(server.store, "a")

        assert [event.object.metadata.name async for event in events] == ["a"]


async def test_a_watch_that_does_not_begin_in_time_is_a_failure():
    async with (
        talking(silence_seconds=0.05) as (server, client, _),
        aclosing(client.watch(PODS, into=Pod, resource_version="0")) as events,
    ):
        server.watch_faults.append(Hang())

        with pytest.raises(UnreachableError, match="in time"):
            await anext(events)


@pytest.mark.parametrize("code", [200, 403], ids=["answer", "error"])
async def test_an_answer_of_a_worker_is_read_up_to_a_number_of_bytes(code):
    async with talking(answer_bytes=10_000, tries=3) as (server, client, _):
        server.faults.append(Answer(code, b'{"a": "' + b"x" * 20_000 + b'"}'))

        with pytest.raises(UndecodableError, match="longer than 10000 bytes"):
            await ask(client)

        add(server.store, "a")
        assert (await ask(client)).metadata.name == "a"


async def test_an_event_of_a_watch_of_a_worker_is_read_up_to_a_number_of_bytes():
    async with talking(answer_bytes=10_000) as (server, client, _):
        version = add(server.store, "a")["metadata"]["resourceVersion"]
        for name in ("b", "c"):
            add(server.store, name, labels={"long": "x" * (20_000 if name == "c" else 10)})
        watch = client.watch(PODS, into=Pod, resource_version=version)
        async with aclosing(watch) as events:
            assert (await anext(events)).object.metadata.name == "b"
            with pytest.raises(UndecodableError, match="longer than 10000 bytes"):
                await anext(events)


async def test_the_message_of_an_error_is_cut():
    async with talking() as (server, client, _):
        server.faults.append(status(403, "Forbidden", "no " * 100_000))

        with pytest.raises(ForbiddenError) as caught:
            await ask(client)

        assert len(str(caught.value)) <= LONGEST_MESSAGE


async def test_requests_at_a_time_are_bounded_and_watches_not_counted():
    async with talking(in_flight=3) as (server, client, _):
        add(server.store, "a")
        server.delay_seconds = 0.002
        async with aclosing(client.watch(PODS, into=Pod, resource_version="0")) as events:
            await anext(events)
            await asyncio.gather(*(ask(client) for _ in range(12)))

    assert server.busiest == 3


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        pytest.param(status(409, "AlreadyExists"), AlreadyExistsError, None, id="already-exists"),
        pytest.param(status(409), ConflictError, None, id="409-without-reason"),
        pytest.param(status(410, "Expired"), GoneError, None, id="expired"),
        pytest.param(status(404, "NotFound", "no pods."), NotFoundError, "^no pods$", id="404"),
        pytest.param(status(504, "Timeout"), DeadlineError, None, id="timeout"),
        pytest.param(status(500, "InternalError"), InternalError, None, id="internal"),
        pytest.param(status(507), InternalError, None, id="any-5xx"),
        pytest.param(
            Answer(502, b"<html>Bad Gateway</html>"),
            InternalError,
            "`GET /api/v1/namespaces/ml/pods/a` was answered with status 502",
            id="not-a-status",
        ),
        pytest.param(Answer(418, b"{}"), ApiError, "was answered with status 418", id="unknown"),
    ],
)
async def test_answers_become_errors(answer, error, message):
    async with talking(tries=1) as (server, client, _):
        server.faults.append(answer)

        with pytest.raises(error, match=message) as caught:
            await ask(client)

    assert type(caught.value) is error


async def test_an_invalid_object_says_which_fields():
    causes = [{"field": "spec.a"}, {"field": "spec.b"}, {"field": "spec.a"}]
    async with talking() as (server, client, _):
        server.faults.append(status(422, "Invalid", "spec.a: bad", causes=causes))

        with pytest.raises(InvalidError) as caught:
            await ask(client)

    assert caught.value.fields == ("spec.a", "spec.b")


@pytest.mark.parametrize(
    ("answer", "error", "hint"),
    [
        pytest.param(status(401), UnauthorizedError, "log in again", id="unauthorized"),
        pytest.param(
            status(403, "Forbidden", 'user "x" cannot get pods'),
            ForbiddenError,
            "kubectl auth can-i",
            id="no-permission",
        ),
        pytest.param(
            status(403, "Forbidden", "exceeded quota"), ForbiddenError, None, id="no-quota"
        ),
    ],
)
async def test_hints(answer, error, hint):
    async with talking() as (server, client, _):
        server.faults.append(answer)

        with pytest.raises(error) as caught:
            await ask(client)

    assert (hint or "") in (caught.value.hint or "")
    assert (hint is None) == (caught.value.hint is None)


async def test_an_unreachable_address_is_reported():
    async with HttpClient(
        ApiConnection(server="http://127.0.0.1:1"), limits=Limits(tries=1)
    ) as client:
        with pytest.raises(
            UnreachableError, match=r"cannot connect to `http://127.0.0.1:1`: .*"
        ) as caught:
            await client.fetch("/version", into=dict)

    assert "is the API server running" in caught.value.hint


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        pytest.param(
            lambda c: c.get(NODES, "n", into=dict, namespace="x"),
            ("GET", "/api/v1/nodes/n"),
            id="cluster-scoped",
        ),
        pytest.param(
            lambda c: c.get(PODS, "a/../b?c#d", into=dict, namespace="ml"),
            ("GET", "/api/v1/namespaces/ml/pods/a%2F..%2Fb%3Fc%23d"),
            id="odd-name",
        ),
        pytest.param(
            lambda c: c.page(PODS, into=dict, label_selector="a in (b,c)", limit=0),
            ("GET", "/api/v1/pods?labelSelector=a+in+%28b%2Cc%29"),
            id="selector",
        ),
        pytest.param(
            lambda c: c.patch(
                PODS, "a", {}, namespace="ml", kind="apply", force=True, into=dict, dry_run=True
            ),
            (
                "PATCH",
                "/api/v1/namespaces/ml/pods/a?fieldManager=policyd&fieldValidation=Ignore&dryRun=All&force=true",
            ),
            id="apply",
        ),
        pytest.param(
            lambda c: c.create(PODS, pod("a"), into=dict, subresource="binding"),
            (
                "POST",
                "/api/v1/namespaces/ml/pods/a/binding?fieldManager=policyd&fieldValidation=Ignore",
            ),
            id="create-subresource",
        ),
    ],
)
async def test_paths_and_queries(call, expected):
    async with talking(tries=1) as (server, client, _):
        server.faults.append(Answer(200, b'{"items": []}'))

        await call(client)

    assert server.requests[0][:2] == expected


async def test_the_server_gets_the_user():
    async with talking() as (server, client, _):
        await client.fetch("/version", into=dict)

    assert server.requests[0][2]["User-Agent"].startswith("policyd/")


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda c: c.get(PODS, "", namespace="ml", into=dict), id="no-name"),
        pytest.param(lambda c: c.get(PODS, "a", into=dict), id="no-namespace"),
        pytest.param(lambda c: c.delete(PODS, "", namespace="ml"), id="delete-without-name"),
        pytest.param(lambda c: c.get(PODS, "..", namespace="ml", into=dict), id="dots"),
        pytest.param(lambda c: c.create(PODS, {"metadata": {}}, into=dict), id="create-nowhere"),
    ],
)
async def test_a_path_that_would_lead_elsewhere_is_never_asked(call):
    async with talking() as (server, client, _):
        with pytest.raises(ValueError, match=r"needs a|is not a valid"):
            await call(client)

    assert server.requests == []


async def test_a_cancelled_request_gives_its_place_to_the_next():
    async with talking(in_flight=1) as (server, client, _):
        add(server.store, "a")
        server.faults.append(Hang())
        hanging = asyncio.ensure_future(ask(client))
        await server.asked.wait()
        hanging.cancel()

        got = await ask(client)

    assert got.metadata.name == "a"


async def test_every_request_is_counted_by_method_and_status():
    counted = []
    pace = FakeClock().pace()
    async with serving() as server:
        add(server.store, "a")

        def note(*labels):
            counted.append(labels)

        async with HttpClient(server.connection, pace=pace, count=note) as client:
            server.faults.append(status(500))
            with pytest.raises(InternalError):
                await VERBS["json-patch"](client)
            server.faults.append(Drop())
            with pytest.raises(UnreachableError):
                await VERBS["create"](client)
            await ask(client)

    assert counted == [("PATCH", "500"), ("POST", "unreachable"), ("GET", "200")]


@pytest.mark.parametrize(
    ("header", "text"),
    [
        pytest.param('299 - "would start now"', "would start now", id="plain"),
        pytest.param(r'299 - "a \"quoted\" \\ text"', r'a "quoted" \ text', id="escaped"),
        pytest.param("nothing that is quoted", "nothing that is quoted", id="other"),
    ],
)
@pytest.mark.parametrize("code", [201, 403], ids=["created", "refused"])
async def test_warnings_are_passed_on(header, text, code):
    warned = []
    async with talking() as (server, client, _):
        server.faults.append(Answer(code, b"{}", {"Warning": header}))
        with suppress(ForbiddenError):
            await client.create(
                PODS, pod("b"), into=dict, namespace="ml", dry_run=True, warned=warned.append
            )
        _, path, *_ = server.requests[-1]

    assert warned == [text]
    assert "fieldValidation=Warn" in path
