"""HTTP as a part of a program: the socket, the TLS context, and uvicorn without its own ways."""

import asyncio
import contextlib
import errno
import socket
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn

from policyd.certificates import CertificatePair
from policyd.errors import ConfigurationError, system_reason

KEEP_ALIVE_SECONDS = 120
"""Longer than the 90 s after which the API server, as Go's clients do, closes an idle connection:
who closes first must not be us, or the close can cross a request on its way."""

BACKLOG = 2048
"""Connections that may wait to be accepted: a burst past 25 in flight opens one for each review."""


def listen(host: str, port: int) -> socket.socket:
    """Open the socket to serve on; port 0 lets the system choose.

    Raises:
        ConfigurationError: If the port is taken, or the address is not ours to listen on.
    """
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                f"port `{port}` on `{host}` is taken",
                hint="end the process that has it, or give another with `--port`",
            ) from error
        if error.errno == errno.EACCES:
            raise ConfigurationError(
                f"port `{port}` may only be opened by root",
                hint="give one above 1023 with `--port`",
            ) from error
        raise ConfigurationError(
            f"cannot listen on `{host}`: {system_reason(error)}",
            hint="give an address of this machine with `--host`",
        ) from error
    # With its protocol named, as asyncio turns Nagle's algorithm off for such sockets alone; with
    # it on, every answer would wait 40 ms for the caller's acknowledgement of its first half.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=made.detach())


def server_context(pair: CertificatePair | None) -> ssl.SSLContext:
    """Return a server's TLS context, with a certificate or to be given one later.

    Raises:
        ConfigurationError: If OpenSSL will not have the certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # The API server keeps no sessions: a ticket is signed for nobody, at a fifth of the handshake.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    if pair is not None:
        _load(context, pair)
    return context


def _load(context: ssl.SSLContext, pair: CertificatePair) -> None:
    # OpenSSL's binding reads from files only: these two are seen by nobody else, and at once gone.
    with tempfile.TemporaryDirectory(prefix="policyd-") as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        certificate.write_bytes(pair.certificate_pem)
        key.write_bytes(pair.key_pem)
        try:
            context.load_cert_chain(certificate, key)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigurationError(f"the certificate cannot be used: {error}") from error


class Server(uvicorn.Server):
    """uvicorn that serves until `stop` is set, and leaves signals to the program.

    Idle connections are closed `linger_seconds` later, so that what is on its way is read before.
    """

    def __init__(
        self, config: uvicorn.Config, *, stop: asyncio.Event, linger_seconds: float = 0.0
    ) -> None:
        super().__init__(config)
        self._stop = stop
        self._linger_seconds = linger_seconds
        self.ready = asyncio.Event()
        """Set once it answers."""

    async def serve_on(self, listener: socket.socket) -> None:
        """Serve until it is to stop, and let the requests in flight finish; closes `listener`."""
        try:
            await self.serve(sockets=[listener])
        finally:
            self._abandon()

    def _abandon(self) -> None:
        """Close what is left open if serving was cancelled; a regular end leaves nothing."""
        for listening in getattr(self, "servers", ()):
            listening.close()
        for connection in tuple(self.server_state.connections):
            connection.transport.abort()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so."""
        await super().startup(sockets)
        self.ready.set()

    async def main_loop(self) -> None:
        """Sleep until asked to stop, where uvicorn would look ten times a second."""
        await self._stop.wait()
        await asyncio.sleep(self._linger_seconds)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def server_config(
    app: Any,  # noqa: ANN401 - an ASGI application, of either framework
    *,
    context: ssl.SSLContext | None,
    grace_seconds: int,
    http: type[asyncio.Protocol] | str = "httptools",
) -> uvicorn.Config:
    """Return how uvicorn is to serve: HTTP/1.1, without logs of its own.

    Args:
        app: The application.
        context: TLS; None serves without it, for tests.
        grace_seconds: How long requests in flight may take when it stops.
        http: uvicorn's protocol.
    """
    return uvicorn.Config(
        app,
        http=http,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        # Its warnings are what clients do wrong: anybody could fill the log with them.
        log_level="error",
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=grace_seconds,
        ssl_context_factory=None if context is None else (lambda _config, _default: context),
    )
