"""HTTP as a part of a program: the socket, the TLS context, and uvicorn's server for ASGI.

All listeners of policyd are served by this. The methods that uvicorn calls of its server
(`startup`, `main_loop`, `shutdown`, `capture_signals`) and the state of its protocols are private
to it: tests state the parts that are used.
"""

import asyncio
import contextlib
import errno
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from starlette.types import ASGIApp

from policyd.api.configuration.tls import SYSTEM, TlsRules
from policyd.connections import Connections, Listening
from policyd.errors import ConfigurationError, system_reason

if TYPE_CHECKING:
    from policyd.certificates import CertificatePair  # ten megabytes, which not all servers need

KEEP_ALIVE_SECONDS = 120
"""Longer than the 90 s after which the API server, as Go's clients do, closes an idle connection:
the server must not close first, or the close can cross a request on its way."""

BACKLOG = 2048
"""Connections that may wait to be accepted: a burst past 25 in flight opens one for each review."""

CALLER_NAMES = "caller_names"
"""The key in the state of an ASGI scope of the names in the caller's certificate."""

GRACE_SECONDS = 5
"""How long requests in flight may take when a listener closes."""

RECEIVE_BYTES = 32 * 1024
"""Bytes from a caller that the kernel may hold: more than a review has, so that most arrive at
once, and no more, as each connection has buffers of the size of its largest piece."""


def listen(host: str, port: int, *, option: str = "--port") -> socket.socket:
    """Open the socket to serve on; port 0 lets the system choose.

    Args:
        host: The address.
        port: The port.
        option: By which the user gave the port.

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
                hint=f"stop the process that uses it, or choose another with `{option}`",
            ) from error
        if error.errno == errno.EACCES:
            raise ConfigurationError(
                f"port `{port}` may only be opened by root",
                hint=f"give one above 1023 with `{option}`",
            ) from error
        raise ConfigurationError(
            f"cannot listen on `{host}`: {system_reason(error)}",
            hint="give an address of this machine with `--host`",
        ) from error
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    # With its protocol named, as asyncio turns Nagle's algorithm off for such sockets alone; with
    # it on, every answer would wait 40 ms for the caller's acknowledgement of its first half.
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno=made.detach())


def server_context(
    pair: "CertificatePair | None", *, callers_pem: bytes = b"", rules: TlsRules = SYSTEM
) -> ssl.SSLContext:
    """Return a server's TLS context, with a certificate or to be given one later.

    Args:
        pair: The certificate.
        callers_pem: The authority of the callers' certificates; empty if they need none.
        rules: Restrictions of versions and suites.

    Raises:
        ConfigurationError: If OpenSSL will not have one of them.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, rules)
    context.set_alpn_protocols(["http/1.1"])
    # The API server keeps no sessions: a ticket is of no use, at a fifth of the handshake.
    context.num_tickets = 0
    context.options |= ssl.OP_NO_TICKET
    if pair is not None:
        _load(context, pair)
    if callers_pem:
        _require(context, callers_pem)
    return context


def _restrict(context: ssl.SSLContext, rules: TlsRules) -> None:
    versions = ssl.TLSVersion
    context.minimum_version = versions.TLSv1_3 if rules.newest_only else versions.TLSv1_2
    if not rules.ciphers:
        return
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    try:
        context.set_ciphers(":".join(rules.ciphers))
    except ssl.SSLError as error:
        raise ConfigurationError(
            "the system's TLS library has none of the suites in `tls.cipherSuites`:"
            f" {', '.join(rules.ciphers)}",
            hint="give suites such as `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`",
        ) from error


def _require(context: ssl.SSLContext, callers_pem: bytes) -> None:
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(cadata=callers_pem.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise ConfigurationError(
            f"the authority of the callers cannot be used: {error}",
            hint="give a file of certificates, PEM, with `--client-ca`",
        ) from error


def _load(context: ssl.SSLContext, pair: "CertificatePair") -> None:
    # OpenSSL's binding reads from files only: these two are private, and deleted at once.
    with tempfile.TemporaryDirectory(prefix="policyd-") as folder:
        certificate, key = Path(folder, "tls.crt"), Path(folder, "tls.key")
        certificate.write_bytes(pair.certificate_pem)
        key.write_bytes(pair.key_pem)
        try:
            context.load_cert_chain(certificate, key)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigurationError(f"the certificate cannot be used: {error}") from error


class Server(uvicorn.Server):
    """uvicorn that serves until `stop` is set, and leaves sockets and signals to the program.

    Idle connections are closed `linger_seconds` later, so that requests on their way are read.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        listening: Listening,
        *,
        stop: asyncio.Event,
        linger_seconds: float = 0.0,
    ) -> None:
        super().__init__(config)
        self._connections = Connections(self._protocol, listening)
        self._stop = stop
        self._linger_seconds = linger_seconds
        self._accepting: asyncio.Task[None] | None = None
        self.ready = asyncio.Event()
        """Set once it answers."""

    def _protocol(self, names: frozenset[str]) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg]
            config=self.config,
            server_state=self.server_state,
            app_state={CALLER_NAMES: names},
            _loop=asyncio.get_running_loop(),
        )
        return made

    async def serve_on(self, listener: socket.socket) -> None:
        """Serve until it is to stop, and let the requests in flight finish; closes `listener`."""
        try:
            await self.serve(sockets=[listener])
        finally:
            await self._stop_accepting()
            listener.close()
            for connection in tuple(self.server_state.connections):
                connection.transport.abort()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections, and say so."""
        assert sockets, "the socket is opened before"
        self.servers = []  # uvicorn's own listeners
        self._accepting = asyncio.create_task(self._connections.serve(sockets[0]))
        self.started = True
        self.ready.set()

    async def main_loop(self) -> None:
        """Sleep until asked to stop, where uvicorn would look ten times a second."""
        assert self._accepting is not None, "it has begun to accept"
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({stopped, self._accepting}, return_when=asyncio.FIRST_COMPLETED)
            if self._accepting.done():
                self._accepting.result()
        finally:
            stopped.cancel()
        await asyncio.sleep(self._linger_seconds)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, and let the requests in flight finish."""
        await self._stop_accepting()
        await super().shutdown(sockets)

    async def _stop_accepting(self) -> None:
        """Accept no more; connections before their handshake are closed."""
        if self._accepting is not None and not self._accepting.done():
            self._accepting.cancel()
            await asyncio.wait({self._accepting})

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def server_config(
    app: ASGIApp,
    *,
    grace_seconds: int,
    http: type[asyncio.Protocol] | str = "httptools",
) -> uvicorn.Config:
    """Return how uvicorn is to serve: HTTP/1.1, without logs of its own, nor TLS.

    Args:
        app: The application.
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
        # Its warnings are mistakes of clients: any client could fill the log with them.
        log_level="error",
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=grace_seconds,
    )


@contextlib.asynccontextmanager
async def served(
    app: ASGIApp, listening: Listening, *, host: str, port: int, option: str
) -> AsyncIterator[int]:
    """Serve an application while the block runs; give the port.

    Args:
        app: The application.
        listening: The bounds of its connections, and their TLS.
        host: The address.
        port: The port; 0 lets the system choose.
        option: The option that the user gave the port by.

    Raises:
        ConfigurationError: If the port is taken.
    """
    listener, stop = listen(host, port, option=option), asyncio.Event()
    given: int = listener.getsockname()[1]
    server = Server(server_config(app, grace_seconds=GRACE_SECONDS), listening, stop=stop)
    serving = asyncio.create_task(server.serve_on(listener))
    try:
        await server.ready.wait()
        yield given
    finally:
        stop.set()
        await serving
