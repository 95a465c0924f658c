"""The network in memory: what a client sends reaches the API server's application, or does not.

It stands below the client's transport, so that calls, retries, limits and errors of the client are
the real ones, and bodies are bytes as on a wire. Latencies and faults come from the seed.
"""

import asyncio
from collections import deque
from contextlib import suppress
from functools import lru_cache
from urllib.parse import urlencode

import aiohttp
import msgspec
from multidict import CIMultiDict

from policyd.kube.transport import Transport
from tests.histories.accounts import OWN, missing_right
from tests.histories.loop import PROCESS
from tests.histories.record import FROM, WHO

FASTEST, SLOWEST = 0.0005, 0.02
"""Seconds that a message takes each way."""
LATEST = 2.0
"""Time-outs until a request is carried out whose answer is lost, at most."""

CUT_OFF = "cut off"
"""In a stream: the connection is gone."""


class Exchange:
    """One request, and its answer as far as it has arrived."""

    def __init__(self, network, process, path):
        self._network, self._loop = network, network.loop
        self.process, self.path = process, path
        self.chunks = deque()
        self.status, self.headers = None, ()
        self.started = self._loop.create_future()
        self._more = None
        self._under_way = deque()
        self._latest = 0.0
        self.gone = None
        """Done once the client has gone: only streams wait for that."""
        self.left = False

    async def send(self, message):
        """Take what the server sends; it arrives later, in the same order."""
        at = self._latest = max(self._latest, self._loop.time() + self._network.latency())
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], message["headers"]
            self._loop.call_at(at, self._start)
            return
        body, more = message.get("body", b""), message.get("more_body")
        if not (more or self._under_way or self.started.done()):
            self.chunks += (body, None)  # a plain answer, which arrives with its status
        else:
            self._under_way.append((body, more))
            self._loop.call_at(at, self._arrive)

    def _start(self):
        if not self.started.done():
            self.started.set_result(None)

    def _arrive(self):
        body, more = self._under_way.popleft()  # the loop may choose another order
        self.chunks.append(body)
        if not more:
            self.chunks.append(None)
        self._wake()

    def cut(self):
        """End the connection, from outside."""
        self.chunks.append(CUT_OFF)
        if not self.started.done():
            self.started.set_exception(aiohttp.ServerDisconnectedError())
        self._wake()

    def leave(self):
        """Let the server know that nobody listens."""
        self.left = True
        if self.gone is not None and not self.gone.done():
            self.gone.set_result(None)

    async def wait_gone(self):
        """Wait until the client has gone."""
        if not self.left:
            self.gone = self._loop.create_future()
            await self.gone

    def _wake(self):
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    async def next(self):
        """Return the next chunk; None at the end."""
        while not self.chunks:
            self._more = self._loop.create_future()
            await self._more
        return self.chunks.popleft()


class Response:
    """An answer, as aiohttp has it."""

    def __init__(self, exchange, network, limit):
        self._exchange, self._network, self._limit = exchange, network, limit
        self.status = exchange.status
        self.content = self

    @property
    def headers(self):
        return CIMultiDict((k.decode(), v.decode()) for k, v in self._exchange.headers)

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        self._network.forget(self._exchange)

    async def read(self):
        if CUT_OFF in self._exchange.chunks:
            raise aiohttp.ClientPayloadError("the connection is gone")
        return b"".join(chunk for chunk in self._exchange.chunks if isinstance(chunk, bytes))

    async def iter_any(self):
        """Iterate over a stream as it comes. One that is silent stays so: that is a fault."""
        while True:
            chunk = await self._exchange.next()
            if chunk == CUT_OFF:
                raise aiohttp.ClientPayloadError("the connection is gone")
            if chunk is None or not chunk:
                return
            fault = self._network.trouble.of_chunk(PROCESS.get(), self._exchange.path)
            if fault == "silence":
                await asyncio.sleep(self._limit.sock_read)
                raise aiohttp.SocketTimeoutError
            if fault == "loss":
                raise aiohttp.ClientPayloadError("the connection broke")
            if fault in {"delay", "late"}:
                await asyncio.sleep(self._network.trouble.seconds(fault))
            yield chunk
            if fault == "repeat" and chunk.count(b"\n") == 1:
                yield chunk


class Canned:
    """An answer of the server, or of one before it, that never came to the application."""

    def __init__(self, code, reason):
        self.status = code
        self.headers = CIMultiDict({"Retry-After": "1"} if code == 429 else {})
        self._body = {"kind": "Status", "code": code, "reason": reason, "message": "a fault"}

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        pass

    async def read(self):
        return msgspec.json.encode(self._body)


REASONS = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}


class Network:
    """Carries requests to an application that runs in the server's process.

    Args:
        server: The process.
        application: Of ASGI.
        random: Of latencies.
        trouble: Tells which faults there are.
    """

    def __init__(self, server, application, random, trouble):
        self._server, self._application = server, application
        self.loop = server.loop
        self._random, self.trouble = random, trouble
        self._open = {}
        self.refused = []
        """What an account may not do: the account, the request, and what the server says."""

    def latency(self):
        return FASTEST + (SLOWEST - FASTEST) * self._random() ** 4

    def cut(self, process=None):
        """Cut the connections of a process, or all."""
        for exchange, owner in list(self._open.items()):
            if process is None or owner is process:
                exchange.cut()
                self.forget(exchange)

    def forget(self, exchange):
        exchange.leave()
        self._open.pop(exchange, None)

    async def request(self, call, limit, headers):
        """Send a request, and return the answer once it begins."""
        process = PROCESS.get()
        fault = self.trouble.of_request(process, call.method, call.path)
        doom = self.trouble.doom(process, call)
        fault = "time-out after" if doom == "unanswered" else fault
        if doom == "before":
            await self._crash(process)
        if fault in REASONS:
            await asyncio.sleep(self.latency())
            return Canned(fault, REASONS[fault])
        await self._prevent(fault, limit)
        lost = fault == "time-out after" and doom in {"", "unanswered"}
        after = LATEST * self._random() * _seconds(limit) if lost and not doom else self.latency()
        exchange = self._send(process, call, headers, after)
        try:
            if lost:
                exchange.started.cancel()  # no answer, and no end of the connection, arrives
                await _time_out(limit)
            await exchange.started
            if doom == "after":
                await self._crash(process)
            if doom == "frozen":
                self.trouble.freeze(process)
                await asyncio.sleep(0)  # until it thaws
        except BaseException:
            self.forget(exchange)
            raise
        if exchange.status == 403:
            self.refused.append((headers.account, f"{call}", exchange.chunks[0].decode()))
        return Response(exchange, self, limit)

    def _send(self, process, call, headers, after):
        """Send a request, which arrives after so many seconds."""
        exchange = Exchange(self, process.name if process else "", call.path)
        self._open[exchange] = process
        context = self._server.context.copy()
        self.loop.call_later(after, self._reach, exchange, call, headers, context, context=context)
        return exchange

    async def _prevent(self, fault, limit):
        """Raise what becomes of a request that does not arrive, if that is its fault."""
        if fault == "unreachable":
            await asyncio.sleep(self.latency())
            raise aiohttp.ServerDisconnectedError
        if fault == "time-out before":
            await _time_out(limit)

    async def _crash(self, process):
        """Kill the process that runs this: nothing comes after it."""
        self.trouble.crash(process)
        await asyncio.Event().wait()

    def _reach(self, exchange, call, headers, context):
        """Begin to answer a request, in the server's process."""
        if self.trouble.server_is_down():
            exchange.cut()
            return
        self.loop.create_task(self._serve(exchange, call, headers), context=context)

    async def _serve(self, exchange, call, headers):
        parts = [{"type": "http.request", "body": call.body or b"", "more_body": False}]

        async def receive():
            if parts:
                return parts.pop()
            await exchange.wait_gone()
            return {"type": "http.disconnect"}

        scope = {
            "type": "http",
            "method": call.method,
            "path": call.path,
            "query_string": _encoded(tuple(call.query.items())) if call.query else b"",
            "headers": headers.encoded(call.content_type if call.body is not None else ""),
        }
        if headers.account == OWN and (lacking := missing_right(call)):
            self.refused.append((OWN, f"{call}", f"no right to {lacking}"))
        WHO.set(headers.account)
        FROM.set(exchange.process)
        with suppress(asyncio.CancelledError):
            await self._application(scope, receive, exchange.send)


@lru_cache(maxsize=1024)
def _encoded(query):
    return urlencode(query).encode()


def _seconds(limit):
    return limit.total or limit.sock_connect


async def _time_out(limit):
    await asyncio.sleep(_seconds(limit))
    raise TimeoutError


class Headers:
    """What all requests of an account say of it."""

    def __init__(self, account):
        self.account = account
        self._same = [
            (b"accept", b"application/json"),
            (b"user-agent", b"policyd"),
            (b"authorization", f"Bearer {account}".encode()),
        ]

    def encoded(self, content_type):
        """Return all headers of a request whose body has this type; empty without a body."""
        if not content_type:
            return self._same
        return [*self._same, (b"content-type", content_type.encode())]


class MemoryTransport(Transport):
    """The client's transport with this network in the place of connections."""

    def __init__(self, network, account, connection, **options):
        super().__init__(connection, **options)
        self._network, self._headers = network, Headers(account)

    async def _open(self, call, limit):
        response = await self._network.request(call, limit, self._headers)
        self._count(call.method, str(response.status))
        return response
