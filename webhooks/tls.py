"""The TLS socket: a certificate that can be replaced while connections go on."""

import asyncio
import contextlib
import errno
import socket
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from policyd.certificates import CertificateFacts, CertificatePair, check_pair
from policyd.errors import ConfigurationError, system_reason
from webhooks.files import read_file
from webhooks.gathering import GatheringProtocol

KEEP_ALIVE_SECONDS = 120
"""Longer than the 90 s after which the API server closes an idle connection: who closes first
must not be us, or the close can cross a request on its way."""

BACKLOG = 2048
"""Connections that may wait to be accepted: a burst past 25 in flight opens one for each review."""


class LiveContext:
    """A server's TLS context, whose certificate can be replaced at any time.

    Each certificate has a context of its own. A handshake is given the newest; connections that
    stand keep theirs. So a replacement is never seen half done, whatever the kind of its key.
    """

    def __init__(self, pair: CertificatePair) -> None:
        self._newest = _context(pair)
        self.front = _context(None)
        self.front.sni_callback = self._choose

    def replace(self, pair: CertificatePair) -> None:
        """Serve `pair` from the next handshake on.

        Raises:
            ConfigurationError: If OpenSSL will not have it; the old one stays.
        """
        self._newest = _context(pair)

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _front: ssl.SSLContext
    ) -> None:
        connection.context = self._newest


def _context(pair: CertificatePair | None) -> ssl.SSLContext:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """A certificate and its key, given as files."""

    certificate: Path
    key: Path

    @property
    def paths(self) -> tuple[Path, Path]:
        """Both files."""
        return self.certificate, self.key

    def read(self, *, now: float) -> tuple[CertificatePair, CertificateFacts]:
        """Read both, and check that they can be used at `now`.

        Raises:
            ConfigurationError: If a file cannot be read, or they cannot be used; by their paths.
        """
        pair = CertificatePair(
            certificate_pem=read_file(self.certificate), key_pem=read_file(self.key)
        )
        facts = check_pair(pair, now=now, certificate=str(self.certificate), key=str(self.key))
        return pair, facts


def listen(host: str, port: int) -> socket.socket:
    """Open the socket to serve on; port 0 lets the system choose.

    Raises:
        ConfigurationError: If the port is taken, or the address is not ours to listen on.
    """
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        return socket.create_server(address[:2], family=family, backlog=BACKLOG)
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


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the composition root decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(
    app: ASGIApp, listener: socket.socket, *, context: LiveContext | None, stop: asyncio.Event
) -> None:
    """Serve `app` until `stop` is set, and let the requests in flight finish.

    Args:
        app: The application.
        listener: A listening socket; it is closed at the end.
        context: The certificate; None serves without TLS, for tests.
        stop: Set it to end.
    """
    server = _Server(_uvicorn_config(app, context))
    async with asyncio.TaskGroup() as group:
        stopper = group.create_task(_stop(server, stop))
        try:
            await server.serve(sockets=[listener])
        finally:
            _abandon(server)
        stopper.cancel()


def _abandon(server: uvicorn.Server) -> None:
    """Close what is left open if serving was cancelled; after a regular end there is nothing."""
    for listening in getattr(server, "servers", ()):
        listening.close()
    for connection in tuple(server.server_state.connections):
        connection.transport.abort()


async def _stop(server: uvicorn.Server, stop: asyncio.Event) -> None:
    await stop.wait()
    server.should_exit = True


def _uvicorn_config(app: ASGIApp, context: LiveContext | None) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=GatheringProtocol,
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
        timeout_graceful_shutdown=30,
        ssl_context_factory=None if context is None else (lambda _config, _default: context.front),
    )
