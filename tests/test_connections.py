"""A listener's connections: their bounds, who is shed, and that whoever asks is answered."""

import asyncio
import contextlib
import math
from collections import Counter

import pytest

from policyd import connections as module
from policyd.connections import Bounds, Connections, Listening
from policyd.serving import listen

pytestmark = pytest.mark.anyio

GET = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


@pytest.fixture
def anyio_backend():
    return ("asyncio", {"use_uvloop": True})


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "SWEEP_SECONDS", 0.01)
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.05)


class AnsweringProtocol(asyncio.Protocol):
    """Answers each whole request by `ANSWER`, once it may."""

    def __init__(self, server):
        self.server = server
        self.data = b""

    def connection_made(self, transport):
        self.transport = transport
        self.server.inner.append(self)

    def data_received(self, data):
        self.data += data
        if self.server.answers:
            self.answer()

    def answer(self):
        while GET in self.data:
            self.data = self.data.replace(GET, b"", 1)
            self.transport.write(self.server.answer)


class Server:
    def __init__(self, **bounds):
        self.inner = []
        self.answers, self.answer = True, ANSWER
        self.ended = Counter()
        listening = Listening(bounds=Bounds(**bounds), count=lambda why: self.ended.update([why]))
        self.connections = Connections(lambda _: AnsweringProtocol(self), listening)
        self.listener = listen("127.0.0.1", 0)

    async def connect(self):
        return await asyncio.open_connection(*self.listener.getsockname())

    async def ask(self):
        reader, writer = await self.connect()
        writer.write(GET)
        async with asyncio.timeout(5):
            answer = await reader.readexactly(len(ANSWER))
        assert answer == ANSWER
        return reader, writer

    async def settled(self, holds):
        async with asyncio.timeout(5):
            while not holds():  # noqa: ASYNC110 - there is nothing to be told by
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(**bounds):
    server = Server(**bounds)
    serving = asyncio.create_task(server.connections.serve(server.listener))
    try:
        yield server
    finally:
        serving.cancel()
        await asyncio.wait({serving})
        server.listener.close()
        for inner in server.inner:
            inner.transport.abort()


async def closed(reader):
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(5):
            return await reader.read()
    return b""


@pytest.mark.parametrize(
    ("sent", "bounds", "reason"),
    [
        pytest.param(b"", {"first": 0.01}, "no_request", id="no-byte"),
        pytest.param(GET[:5], {"head": 0.01}, "head_slow", id="half-a-head"),
        pytest.param(GET + GET[:5], {"head": 0.01}, "head_slow", id="half-a-head-after-a-request"),
        pytest.param(
            b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nab",
            {"body": 0.01},
            "body_slow",
            id="body",
        ),
        pytest.param(
            b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n1\r\n",
            {"body": 0.01},
            "body_slow",
            id="chunks",
        ),
    ],
)
async def test_slow_connections_are_closed_and_counted(sent, bounds, reason):
    async with running(**bounds) as server:
        reader, writer = await server.connect()
        writer.write(sent)
        await closed(reader)

        assert server.ended == {reason: 1}
        assert len(server.connections) == 0
        writer.close()


async def test_requests_are_passed_on_one_after_the_other_is_answered():
    async with running() as server:
        server.answers = False
        reader, writer = await server.connect()
        writer.write(GET * 5)
        await server.settled(lambda: server.inner and server.inner[0].data)
        await asyncio.sleep(0.05)
        assert server.inner[0].data == GET

        server.answers = True
        server.inner[0].answer()
        async with asyncio.timeout(10):
            assert await reader.readexactly(len(ANSWER) * 5) == ANSWER * 5
        assert not server.ended
        writer.close()


async def test_connections_with_many_unanswered_requests_are_closed():
    async with running() as server:
        reader, writer = await server.connect()
        writer.write(GET * 2000)
        await closed(reader)

        assert server.ended == {"too_many_requests": 1}
        writer.close()


async def test_data_after_a_request_is_not_kept_without_end():
    async with running() as server:
        server.answers = False
        _, writer = await server.connect()
        writer.transport.set_write_buffer_limits(high=0)
        writer.write(GET + b"x" * 50_000_000)
        await server.settled(lambda: server.connections.at("busy"))
        await asyncio.sleep(0.1)

        (connection,) = server.connections.at("busy")
        assert len(connection._behind) < 1_000_000
        assert writer.transport.get_write_buffer_size() > 40_000_000
        writer.transport.abort()


async def test_a_continue_response_is_no_answer():
    go_on, half = b"HTTP/1.1 100 Continue\r\n\r\n", b"POST / HTTP/1.1\r\ncontent-length: 2\r\n\r\n"
    async with running() as server:
        server.answers = False
        _, writer = await server.connect()
        writer.write(half)
        await server.settled(lambda: server.inner and server.inner[0].data)
        server.inner[0].transport.write(go_on)
        writer.write(b"{}" + GET)
        await server.settled(lambda: server.connections.at("busy"))
        await asyncio.sleep(0.05)

        assert server.inner[0].data == half + b"{}"
        writer.close()


async def test_the_rest_of_a_body_that_was_answered_before_lets_the_next_request_through():
    half = b"POST / HTTP/1.1\r\ncontent-length: 4\r\n\r\n12"
    async with running() as server:
        reader, writer = await server.connect()
        writer.write(half)
        await server.settled(lambda: server.inner and server.inner[0].data)
        server.inner[0].transport.write(ANSWER)
        writer.write(b"34" + GET)

        async with asyncio.timeout(5):
            assert await reader.readexactly(2 * len(ANSWER)) == 2 * ANSWER
        writer.close()


async def test_each_body_has_its_own_time():
    half = b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n1234"
    async with running(body=0.2) as server:
        reader, writer = await server.connect()
        writer.write(half)
        await server.settled(lambda: server.connections.at("body"))
        writer.write(b"56789")
        await server.settled(lambda: server.connections.at("busy"))
        server.inner[0].transport.write(ANSWER)
        writer.write(half)
        await closed(reader)

        assert server.ended == {"body_slow": 1}
        writer.close()


async def test_bytes_that_trickle_do_not_prolong_a_head():
    async with running(head=0.1) as server:
        _, writer = await server.connect()
        with contextlib.suppress(ConnectionError):
            while not writer.transport.is_closing():
                writer.write(b"x")
                await asyncio.sleep(0.005)

        assert server.ended == {"head_slow": 1}
        writer.close()


async def test_a_head_that_does_not_end_is_answered_and_closed_and_never_passed_on():
    async with running() as server:
        reader, writer = await server.connect()
        writer.write(b"GET / HTTP/1.1\r\na: " + b"x" * 100_000)
        answer = await closed(reader)

        assert answer.startswith(b"HTTP/1.1 431 ") or answer == b""
        assert server.ended == {"head_too_large": 1}
        assert [inner.data for inner in server.inner] == [b""]
        writer.close()


async def test_an_unread_answer_is_dropped():
    async with running(answer=0.05) as server:
        server.answer = b"x" * 10_000_000
        _, writer = await server.connect()
        writer.transport.pause_reading()
        writer.write(GET)

        await server.settled(lambda: server.ended == {"answer_slow": 1})
        writer.transport.abort()


async def test_a_connection_that_is_closed_for_its_answers_is_counted():
    async with running() as server:
        reader, writer = await server.ask()
        server.inner[0].transport.abort()
        await closed(reader)

        assert server.ended == {"shed": 1}
        assert len(server.connections) == 0
        writer.close()


async def test_idle_connections_lock_no_caller_out():
    async with running(connections=10) as server:
        silent = [await server.connect() for _ in range(50)]
        answered = [await server.ask() for _ in range(5)]

        assert len(server.connections) <= 10
        assert server.ended["shed"] >= 40
        for _, writer in (*silent, *answered):
            writer.close()


async def test_many_that_come_at_once_are_all_answered():
    async with running() as server:
        answered = await asyncio.gather(*(server.ask() for _ in range(20)))

        assert len(server.connections) == len(answered)
        assert not server.ended
        for _, writer in answered:
            writer.close()


async def test_those_at_rest_make_room_and_the_last_one_used_stays():
    async with running(connections=4) as server:
        first, *others = [await server.ask() for _ in range(4)]
        first[1].write(GET)
        await first[0].readexactly(len(ANSWER))
        last = await server.ask()

        assert await closed(others[0][0]) == b""
        first[1].write(GET)
        assert await first[0].readexactly(len(ANSWER)) == ANSWER
        for _, writer in (first, *others, last):
            writer.close()


async def test_no_waiting_body_is_dropped_for_a_new_one():
    async with running(connections=3) as server:
        server.answers = False
        asking = [await server.connect() for _ in range(3)]
        for _, writer in asking:
            writer.write(GET)
        await server.settled(lambda: len(server.connections.at("busy")) == 3)
        late = asyncio.create_task(server.ask())
        await asyncio.sleep(0.02)
        assert len(server.connections.at("busy")) == 3

        server.answers = True
        for inner in list(server.inner):
            inner.answer()
        await late
        for reader, _ in asking[1:]:
            assert await reader.readexactly(len(ANSWER)) == ANSWER
        for _, writer in (*asking, late.result()):
            writer.close()


async def test_the_oldest_body_is_dropped_at_last_if_none_is_answered():
    async with running(connections=2) as server:
        server.answers = False
        asking = [await server.connect() for _ in range(2)]
        for _, writer in asking:
            writer.write(GET)
        await server.settled(lambda: len(server.connections.at("busy")) == 2)
        server.answers = True
        late = await server.ask()

        assert server.ended == {"shed": 1}
        for _, writer in (*asking, late):
            writer.close()


class Fake:
    """A connection that says that it was shed."""

    def __init__(self, address, shed, since):
        self.address = address
        self.state, self.since = "waiting", since
        self._shed = shed

    def end(self, reason):
        self._shed.append((self.address, reason))


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        pytest.param("aaaab", "a", id="of-the-address-with-most"),
        pytest.param("baaaa", "a", id="even-if-another-is-older"),
        pytest.param("bacde", "b", id="the-oldest-if-none-has-most"),
        pytest.param("aabb", "a", id="the-oldest-if-two-have-as-many"),
        pytest.param("aaaa", "a", id="of-the-only-one"),
    ],
)
async def test_the_oldest_goes_of_the_address_that_has_more_than_half(addresses, expected):
    connections, shed = Connections(lambda _: asyncio.Protocol(), Listening()), []
    connections.all.update(Fake(address, shed, since) for since, address in enumerate(addresses))

    assert connections._shed()

    assert shed == [(expected, "shed")]


async def test_a_body_that_was_answered_before_its_end_may_be_shed():
    async with running() as server:
        reader, writer = await server.connect()
        writer.write(b"POST / HTTP/1.1\r\ncontent-length: 100\r\n\r\n" + GET)
        await reader.readexactly(len(ANSWER))

        (connection,) = server.connections.at("waiting")
        assert connection.ends_at < math.inf
        writer.close()
