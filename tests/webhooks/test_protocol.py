"""Plain reviews are answered directly, byte for byte as by way of the application."""

import asyncio

import pytest
import uvicorn
from prometheus_client import CollectorRegistry
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from policyd.admission.unevaluated import HEAD_BYTES
from policyd.api.admission import MAXIMUM_REVIEW_BYTES, ReviewError
from policyd.connections import BoundedConnection as Framed
from policyd.connections import Connections, Listening
from policyd.framing import KNOWN
from webhooks import app, bodies, protocol
from webhooks.app import create_app
from webhooks.bodies import LIGHT_BYTES, NO_ROOM
from webhooks.metrics import WebhookMetrics
from webhooks.protocol import ReviewProtocol

pytestmark = pytest.mark.anyio


class FakeTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self):
        super().__init__()
        self.writes = []
        self.written = asyncio.Event()
        self.closed = False

    def write(self, data):
        assert not self.closed, "nothing is written to a connection that is closed"
        self.writes.append(bytes(data))
        self.written.set()

    def close(self):
        self.closed = True

    def is_closing(self):
        return self.closed

    def pause_reading(self):
        """Go on: what is given comes in anyway."""

    def resume_reading(self):
        """Go on."""

    def set_write_buffer_limits(self, high=None, low=None):
        """Keep to none."""

    def abort(self):
        self.closed = True


class Connection:
    """A connection to webhooks that answer with what it was sent, by one protocol or the other."""

    def __init__(self, kind, *, framed=False):
        self.metrics = WebhookMetrics(CollectorRegistry())
        self.go_on = asyncio.Event()
        self.go_on.set()
        made = create_app(
            {"/mutate": self.echo, "/validate": self.echo},
            metrics=self.metrics,
        )
        config = uvicorn.Config(made, lifespan="off", log_config=None, proxy_headers=False)
        self.room = made.endpoints[b"/mutate"].room
        self.state = ServerState()
        self.protocol = kind(config, self.state, {})
        self.transport = FakeTransport()
        self.outer = self.protocol
        if framed:
            self.listener = Connections(lambda _: self.protocol, Listening())
            self.outer = Framed(self.listener, "127.0.0.1")
        self.outer.connection_made(self.transport)

    def reconnect(self):
        """End the connection, and open another with the same listener."""
        self.end()
        self.protocol = type(self.protocol)(self.protocol.config, self.state, {})
        self.transport = FakeTransport()
        self.outer = Framed(self.listener, "127.0.0.1")
        self.outer.connection_made(self.transport)

    async def echo(self, body, _out_of_time):
        await self.go_on.wait()
        if body == b"nonsense":
            raise ReviewError("not an AdmissionReview")
        if body.endswith(b"deep"):
            raise ReviewError("the review is nested too deep")
        if body == b"bug":
            raise ZeroDivisionError("none")
        return body

    async def send(self, *pieces):
        for piece in pieces:
            self.outer.data_received(piece)
            await self.settle()
        return b"".join(self.transport.writes), self.transport.closed

    async def settle(self):
        for _ in range(20):
            await asyncio.sleep(0)

    def end(self):
        self.transport.closed = True
        self.outer.connection_lost(None)

    @property
    def refused(self):
        return self.metrics.reviews.labels("/mutate", "refused")._value.get()


@pytest.fixture
async def connect():
    opened = []

    def make(kind=ReviewProtocol, **how):
        opened.append(Connection(kind, **how))
        return opened[-1]

    yield make
    for connection in opened:
        connection.go_on.set()
        await connection.settle()
        connection.end()


def call(body=b"{}", *, head="POST /mutate HTTP/1.1", length=True, **more):
    lines = [
        head,
        "Host: webhooks",
        *(f"{name.replace('_', '-')}: {v}" for name, v in more.items()),
    ]
    lines += [f"Content-Length: {len(body)}"] if length else []
    return "\r\n".join([*lines, "", ""]).encode() + body


def review(body=b"{}", **more):
    return call(body, **{"Content_Type": "application/json", **more})


def chunked(body):
    given = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    return review(given, length=False, Transfer_Encoding="chunked")


def declared(length, body=b""):
    """A call that says that its body has `length` bytes, and the first of them."""
    head = review(b"", length=False, Content_Length=str(length))
    return head + body.ljust(HEAD_BYTES + 1)


UID = b'{"request": {"uid": "u-1", "object": "'
WHOLE = review(b'{"a": 1}')

CALLS = [
    pytest.param([WHOLE], id="whole"),
    pytest.param([WHOLE[:-4], WHOLE[-4:]], id="body-in-pieces"),
    pytest.param([WHOLE[:30], WHOLE[30:]], id="head-in-pieces"),
    pytest.param([bytes([byte]) for byte in WHOLE], id="byte-by-byte"),
    pytest.param([WHOLE, WHOLE, review(b"[]")], id="one-after-another"),
    pytest.param([WHOLE + WHOLE + review(b"[]")], id="pipelined"),
    pytest.param([WHOLE + WHOLE[:-3], WHOLE[-3:]], id="pipelined-in-pieces"),
    pytest.param([WHOLE + call(head="GET /livez HTTP/1.1")], id="pipelined-with-another-path"),
    pytest.param([call(head="GET /livez HTTP/1.1") + WHOLE], id="pipelined-after-another-path"),
    pytest.param([review(b"[1]", head="POST /mutate?timeout=5s HTTP/1.1")], id="with-a-timeout"),
    pytest.param([review(b"[1]", head="POST /mut%61te HTTP/1.1")], id="escaped-path"),
    pytest.param([review(b"nonsense")], id="no-review"),
    pytest.param([review(b"bug")], id="bug"),
    pytest.param([review(b"")], id="no-body"),
    pytest.param([review(b"", length=False)], id="no-length"),
    pytest.param([review(b" " * LIGHT_BYTES)], id="as-large-as-is-gathered"),
    pytest.param([review(b" " * (LIGHT_BYTES + 1))], id="larger"),
    pytest.param([review(b" " * 3_000_000)[:-1], b" "], id="larger-in-pieces"),
    pytest.param([declared(MAXIMUM_REVIEW_BYTES + 1)], id="too-large"),
    pytest.param([declared(MAXIMUM_REVIEW_BYTES + 1, UID)], id="too-large-with-a-uid"),
    pytest.param([review(UID + b"deep")], id="not-to-be-judged"),
    pytest.param([chunked(b"[1]")], id="chunks"),
    pytest.param([chunked(UID.ljust(LIGHT_BYTES + 70_000))], id="many-chunks"),
    pytest.param([call(b"{}", Content_Type="text/plain")], id="not-json"),
    pytest.param([call(b"{}", Content_Type="application/json; charset=utf-8")], id="parameters"),
    pytest.param([call(b"{}")], id="no-type"),
    pytest.param([review(content_type="text/plain")], id="two-types"),
    pytest.param([review(head="PUT /mutate HTTP/1.1")], id="not-a-post"),
    pytest.param([review(head="POST /mutate HTTP/1.0")], id="http-1.0"),
    pytest.param([review(Connection="close")], id="last-on-its-connection"),
    pytest.param([review(Expect="100-continue")], id="expects-to-be-told-to-go-on"),
    pytest.param([review(Connection="upgrade", Upgrade="websocket")], id="upgrade"),
    pytest.param([b"%x\r\n" % 7], id="not-http"),
    pytest.param([call(head="GET /nowhere HTTP/1.1")], id="another-path"),
]


@pytest.mark.parametrize("pieces", CALLS)
async def test_the_answer_is_that_of_the_application(connect, pieces):
    direct, usual = connect(), connect(HttpToolsProtocol)

    assert await direct.send(*pieces) == await usual.send(*pieces)
    assert direct.refused == usual.refused


@pytest.mark.parametrize("pieces", CALLS)
async def test_the_answer_is_the_same_once_a_head_is_known(connect, pieces):
    """Behind what cuts off requests, which gives the bodies of such alone to what answers."""
    direct, usual = connect(framed=True), connect(HttpToolsProtocol, framed=True)
    sent = [WHOLE, *pieces, WHOLE, *pieces]

    assert await direct.send(*sent) == await usual.send(*sent)
    assert direct.refused == usual.refused
    assert direct.room.taken == 0


class UnevaluatedReviews:
    """A parser that is asked nothing."""


@pytest.mark.parametrize("size", [len(WHOLE), len(WHOLE) - 3, 4096, 1000, 300])
async def test_heads_like_one_before_are_not_parsed(connect, size):
    connection = connect(framed=True)
    longer = review(b'"%b"' % (b"x" * 9_000))
    await connection.send(WHOLE)
    connection.protocol.parser = UnevaluatedReviews()
    connection.transport.writes.clear()

    pieces = [longer[at : at + size] for at in range(0, len(longer), size)]
    written, closed = await connection.send(*pieces, WHOLE)

    assert written.count(b"HTTP/1.1 200 OK") == 2
    assert written.endswith(b'\r\n\r\n{"a": 1}')
    assert not closed


async def test_heads_like_one_of_another_connection_are_not_parsed(connect):
    connection = connect(framed=True)
    first = await connection.send(WHOLE)
    connection.reconnect()
    connection.protocol.parser = UnevaluatedReviews()

    assert await connection.send(WHOLE[:-2], WHOLE[-2:]) == first


async def test_the_heads_that_connections_share_are_few_and_only_of_reviews(connect):
    connection = connect(framed=True)
    for number in range(3 * KNOWN):
        await connection.send(review(b"{}", head=f"POST /validate?timeout={number}s HTTP/1.1"))
        await connection.send(call(head=f"GET /nowhere{number} HTTP/1.1"))

    assert len(connection.listener.heads) == KNOWN
    assert all(head.route is not None for head in connection.listener.heads)


async def test_another_head_is_parsed(connect):
    connection = connect(framed=True)
    await connection.send(WHOLE, review(b"{}", head="POST /validate HTTP/1.1"))

    written, _ = await connection.send(call(head="GET /nowhere HTTP/1.1"), WHOLE)

    assert [line.split()[1] for line in written.split(b"HTTP/1.1")[1:]].count(b"Not") == 1
    assert written.endswith(b'\r\n\r\n{"a": 1}')


async def test_a_review_that_waits_for_nothing_is_answered_before_anything_else_happens(connect):
    connection = connect(framed=True)

    connection.outer.data_received(WHOLE)
    connection.outer.data_received(WHOLE)

    assert len(connection.transport.writes) == 2
    assert connection.state.tasks == set()


async def test_one_that_waits_takes_room_meanwhile(connect):
    connection = connect(framed=True)
    await connection.send(WHOLE)
    connection.go_on.clear()

    connection.outer.data_received(WHOLE)
    assert connection.room.taken == len(b'{"a": 1}')
    assert len(connection.state.tasks) == 1
    connection.go_on.set()
    await connection.settle()

    assert connection.room.taken == 0
    assert len(connection.transport.writes) == 2


async def test_one_that_waits_and_has_no_room_is_not_judged(connect, monkeypatch):
    connection = connect(framed=True)
    await connection.send(WHOLE)
    connection.go_on.clear()
    monkeypatch.setattr(connection.room, "_light", 100)

    written, _ = await connection.send(review(b'{"request": {"uid": "u"}}'.ljust(200)))

    assert connection.state.tasks == set()
    assert b'"allowed":false' in written
    assert NO_ROOM.encode() in written
    assert connection.room.taken == 0


@pytest.mark.parametrize(
    ("rested", "in_flight", "closed"),
    [
        pytest.param(1.0, False, True, id="long-enough"),
        pytest.param(0.0, False, False, id="answered-since"),
        pytest.param(1.0, True, False, id="in-flight"),
    ],
)
async def test_a_connection_at_rest_is_closed(connect, rested, in_flight, closed):
    connection = connect(framed=True)
    await connection.send(WHOLE, WHOLE)
    protocol, timer = connection.protocol, connection.protocol.timeout_keep_alive_task
    if in_flight:
        connection.go_on.clear()
        await connection.send(WHOLE)
    protocol._answered_at -= rested * protocol.timeout_keep_alive

    protocol.timeout_keep_alive_handler()

    assert connection.transport.closed is closed
    assert closed or protocol.timeout_keep_alive_task not in (None, timer)


async def test_a_plain_review_is_answered_by_one_write(connect):
    connection = connect()

    await connection.send(WHOLE[:-4], WHOLE[-4:])

    (written,) = connection.transport.writes
    assert written.startswith(b"HTTP/1.1 200 OK\r\n")
    assert written.endswith(b'\r\n\r\n{"a": 1}')


@pytest.mark.parametrize("kind", [ReviewProtocol, HttpToolsProtocol])
async def test_a_body_that_does_not_come_in_is_not_waited_for(connect, kind, monkeypatch):
    for module in (app, bodies, protocol):
        monkeypatch.setattr(module, "LATE", 0.001)
    connection = connect(kind)

    await connection.send(WHOLE[:-4])
    async with asyncio.timeout(5):
        await connection.transport.written.wait()
    await connection.settle()
    late, _ = await connection.send(WHOLE[-4:], WHOLE)

    assert late.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
    assert b"the review did not come in within 0.01 s" in late
    assert late.endswith(b'\r\n\r\n{"a": 1}')
    assert late.count(b"HTTP/1.1") == 2
    assert connection.refused == 1


async def test_a_body_that_came_in_is_waited_for_no_more(connect):
    connection = connect()

    await connection.send(WHOLE[:-4])
    coming = connection.protocol._incoming
    await connection.send(WHOLE[-4:])

    assert coming._late.cancelled()
    assert connection.protocol._incoming is None


@pytest.mark.parametrize("kind", [ReviewProtocol, HttpToolsProtocol])
async def test_a_caller_that_hangs_up_is_not_answered(connect, kind):
    connection = connect(kind)
    connection.go_on.clear()

    await connection.send(WHOLE)
    connection.end()
    connection.go_on.set()
    await connection.settle()

    assert connection.transport.writes == []
    assert connection.state.tasks == set()


async def test_a_caller_that_hangs_up_amid_a_body_leaves_nothing_behind(connect):
    connection = connect()

    await connection.send(WHOLE[:-4])
    connection.end()

    assert connection.protocol._incoming is None
    assert connection.state.connections == set()
    assert connection.room.taken == 0


@pytest.mark.parametrize("kind", [ReviewProtocol, HttpToolsProtocol])
async def test_a_review_in_flight_is_the_last_where_the_server_ends(connect, kind):
    connection = connect(kind)
    connection.go_on.clear()

    await connection.send(WHOLE)
    connection.protocol.shutdown()
    connection.go_on.set()
    await connection.settle()

    written = b"".join(connection.transport.writes)
    assert b"connection: close\r\n" in written
    assert written.endswith(b'{"a": 1}')
    assert connection.transport.closed


async def test_an_idle_connection_is_closed_where_the_server_ends(connect):
    connection = connect()

    await connection.send(WHOLE)
    connection.protocol.shutdown()

    assert connection.transport.closed


async def test_a_request_body_is_not_kept_after_the_answer(connect):
    connection = connect()

    await connection.send(WHOLE)
    assert connection.room.taken == 0
    await connection.send(WHOLE[:-4])
    assert connection.room.taken == 4
    connection.end()

    assert connection.room.taken == 0


async def test_a_review_that_breaks_is_answered_and_closes_its_connection(connect, monkeypatch):
    async def broken(*_given):
        raise MemoryError

    monkeypatch.setattr(app.Endpoint, "answer", broken)
    connection = connect()

    connection.protocol.data_received(WHOLE)
    (task,) = connection.state.tasks
    with pytest.raises(MemoryError):
        await task

    assert connection.transport.writes[0].startswith(b"HTTP/1.1 500 ")
    assert connection.transport.closed


async def test_an_answer_that_is_not_taken_is_noted_until_it_is(connect):
    connection = connect()
    connection.transport.write = lambda _data: connection.protocol.pause_writing()
    owed = connection.room._owed

    await connection.send(WHOLE)
    assert list(owed.values()) == [len(b'{"a": 1}')]
    connection.protocol.resume_writing()
    assert owed == {}

    await connection.send(WHOLE)
    connection.end()
    assert owed == {}
