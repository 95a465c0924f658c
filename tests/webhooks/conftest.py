"""The webhooks on a real TLS socket of loopback, and a client that tells their certificate."""

import asyncio
import contextlib
import ssl
import time
from collections import Counter

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from policyd.api.configuration.tls import SYSTEM
from policyd.certificates import Authority
from policyd.connections import Listening
from policyd.serving import listen
from webhooks.app import create_app
from webhooks.certificate.tls import LiveContext, serve
from webhooks.metrics import WebhookMetrics
from webhooks.protocol import ReviewProtocol

AUTHORITY = Authority.create(now=time.time())


@pytest.fixture
def anyio_backend():
    return ("asyncio", {"use_uvloop": True})  # as in production: its TLS differs from asyncio's


def issue(*names):
    return AUTHORITY.issue(["127.0.0.1", *names], now=time.time())


class Connection:
    """One kept-alive connection, as the API server holds it."""

    def __init__(self, reader, writer):
        self._reader = reader
        self._writer = writer

    @property
    def certificate_names(self):
        peer = self._writer.get_extra_info("ssl_object").getpeercert()
        return {value for kind, value in peer["subjectAltName"] if kind == "DNS"}

    @property
    def tls(self):
        return self._writer.get_extra_info("ssl_object")

    async def write(self, text):
        self._writer.write(text)
        await self._writer.drain()

    async def send_head(self, length, path="/mutate"):
        head = f"POST {path} HTTP/1.1\r\nhost: server\r\ncontent-type: application/json\r\n"
        await self.write(f"{head}content-length: {length}\r\n\r\n".encode())

    async def receive(self):
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length: ")[1].split("\r\n")[0])
        return int(head.split()[1]), await self._reader.readexactly(length)

    async def post(self, body, path="/mutate"):
        await self.send_head(len(body), path)
        await self.write(body)
        return await self.receive()

    async def line(self):
        return await self._reader.readline()

    async def ended(self):
        return await self._reader.read() == b""

    async def close(self):
        self._writer.close()
        with contextlib.suppress(OSError, ssl.SSLError):
            await self._writer.wait_closed()


class RunningServer:
    """A served application."""

    def __init__(self, port, context=None, stop=None):
        self.ended = Counter()
        self.reviews = 0
        self.port = port
        self.context = context
        self.stop = stop

    @contextlib.asynccontextmanager
    async def connection(self, *, shown=None, **settings):
        trust = ssl.create_default_context(cadata=AUTHORITY.certificate_pem.decode())
        trust.set_alpn_protocols(["h2", "http/1.1"])
        for name, value in settings.items():
            setattr(trust, name, value)
        if shown:
            trust.load_cert_chain(*shown)
        connection = Connection(*await asyncio.open_connection("127.0.0.1", self.port, ssl=trust))
        try:
            yield connection
        finally:
            await connection.close()


def figures(registry):
    """What `/metrics` says."""
    return generate_latest(registry).decode()


def app_for(answer):
    metrics = WebhookMetrics(CollectorRegistry())
    answers = {"/mutate": answer, "/validate": answer}
    return create_app(answers, metrics=metrics)


@contextlib.asynccontextmanager
async def running_server(
    answer, *, pair=None, callers_pem=b"", names=(), http=ReviewProtocol, rules=SYSTEM
):
    listener = listen("127.0.0.1", 0)
    context = LiveContext(pair or issue("first"), callers_pem=callers_pem, rules=rules)
    server = RunningServer(listener.getsockname()[1], context, asyncio.Event())

    async def counted(body, out_of_time):
        server.reviews += 1
        return await answer(body, out_of_time)

    listening = Listening(
        tls=context.front, count=lambda why: server.ended.update([why]), names=frozenset(names)
    )
    app = app_for(counted)
    async with asyncio.timeout(20), asyncio.TaskGroup() as group:
        group.create_task(serve(app, listener, listening=listening, stop=server.stop, http=http))
        yield server
        server.stop.set()
