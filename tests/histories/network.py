"""The network in memory: what a client sends reaches the API server's application, or does not.

It stands in the place of aiohttp's session, so that calls, retries, time limits and errors of the
client are the real ones. Latencies and faults come from the seed.
"""

import asyncio
from collections import deque
from contextlib import suppress

import aiohttp
import msgspec
from multidict import CIMultiDict

from tests.histories.loop import PROCESS
from tests.histories.record import WHO

FASTEST, SLOWEST = 0.0005, 0.02
"""Seconds that a message takes each way."""

CUT_OFF = "cut off"
"""In a stream: the connection is gone."""


class Exchange:
    """One request, and its answer as far as the server has sent it."""

    def __init__(self, loop):
        self._loop = loop
        self.chunks = deque()
        self.status, self.headers = None, ()
        self.started = loop.create_future()
        self._more = None
        self.gone = loop.create_future()
        """Done once the client has gone."""

    async def send(self, message):
        """Take what the server sends."""
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], message["headers"]
            if not self.started.done():
                self.started.set_result(None)
            return
        self.chunks.append(message.get("body", b""))
        if not message.get("more_body"):
            self.chunks.append(None)
        self._wake()

    def cut(self):
        """End the connection, from outside."""
        self.chunks.append(CUT_OFF)
        if self.status is None:
            self.started.set_exception(aiohttp.ServerDisconnectedError())
        self.leave()
        self._wake()

    def leave(self):
        """Let the server know that nobody listens."""
        if not self.gone.done():
            self.gone.set_result(None)

    def _wake(self):
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    async def next(self, seconds):
        """Return the next chunk; None at the end. Raises TimeoutError if it does not come."""
        if not self.chunks:
            self._more = self._loop.create_future()
            async with asyncio.timeout(seconds):
                await self._more
        return self.chunks.popleft()


class Response:
    """An answer, as aiohttp has it."""

    def __init__(self, exchange, network, limit):
        self._exchange, self._network, self._limit = exchange, network, limit
        self.status = exchange.status
        self.headers = CIMultiDict((k.decode(), v.decode()) for k, v in exchange.headers)
        self.content = self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        self._network.forget(self._exchange)

    async def read(self):
        if CUT_OFF in self._exchange.chunks:
            raise aiohttp.ClientPayloadError("the connection is gone")
        return b"".join(chunk for chunk in self._exchange.chunks if isinstance(chunk, bytes))

    async def iter_any(self):
        """Iterate over a stream as it comes."""
        while True:
            try:
                chunk = await self._exchange.next(self._limit.sock_read)
            except TimeoutError:
                raise aiohttp.SocketTimeoutError from None
            if chunk == CUT_OFF:
                raise aiohttp.ClientPayloadError("the connection is gone")
            if chunk is None or not chunk:
                return
            fault = self._network.trouble.of_chunk(PROCESS.get())
            if fault == "silence":
                await asyncio.sleep(self._limit.sock_read)
                raise aiohttp.SocketTimeoutError
            if fault == "loss":
                raise aiohttp.ClientPayloadError("the connection broke")
            delay = self._network.trouble.seconds(fault) if fault == "delay" else 0.0
            await asyncio.sleep(delay + self._network.latency())
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
        self._random, self.trouble = random, trouble
        self._open = {}

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

    async def request(self, method, url, *, data, headers, **options):
        """Send a request, as a session of aiohttp does."""
        process, limit = PROCESS.get(), options["timeout"]
        fault = self.trouble.of_request(process, method, url.raw_path)
        doom = self.trouble.doom(process, method)
        if doom == "before":
            await self._crash(process)
        await asyncio.sleep(self.latency())
        if fault in REASONS:
            return Canned(fault, REASONS[fault])
        if fault == "unreachable" or self.trouble.server_is_down():
            raise aiohttp.ServerDisconnectedError
        seconds = limit.total or limit.sock_connect
        if fault == "time-out before":
            await _time_out(seconds)
        exchange = Exchange(self._server.loop)
        self._open[exchange] = process
        self._server.start(self._serve(method, url, data, headers, exchange))
        try:
            async with asyncio.timeout(seconds):
                await exchange.started
                if doom == "after":
                    await self._crash(process)
                await asyncio.sleep(self.latency())
            if fault == "time-out after":
                await _time_out(seconds)
        except BaseException:
            self.forget(exchange)
            raise
        return Response(exchange, self, limit)

    async def _crash(self, process):
        """Kill the process that runs this: nothing comes after it."""
        self.trouble.crash(process)
        await asyncio.Event().wait()

    async def _serve(self, method, url, data, headers, exchange):
        parts = [{"type": "http.request", "body": data or b"", "more_body": False}]

        async def receive():
            if parts:
                return parts.pop()
            await exchange.gone
            return {"type": "http.disconnect"}

        scope = {
            "type": "http",
            "method": method,
            "path": url.path,
            "query_string": url.raw_query_string.encode(),
            "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
        }
        WHO.set(headers["Authorization"].rpartition(" ")[2])
        with suppress(asyncio.CancelledError):
            await self._application(scope, receive, exchange.send)


async def _time_out(seconds):
    await asyncio.sleep(seconds)
    raise TimeoutError


class Session:
    """In the place of aiohttp's session, for one client."""

    def __init__(self, network, headers=()):
        self._network = network
        self._headers = {"Accept": "application/json", "User-Agent": "policyd", **dict(headers)}

    async def request(self, method, url, *, headers, **options):
        together = {**self._headers, **headers}
        return await self._network.request(method, url, headers=together, **options)

    async def close(self):
        """There is nothing to close."""
