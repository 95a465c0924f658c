"""The TLS socket: a certificate that can be replaced while connections go on."""

import asyncio
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

from starlette.types import ASGIApp

from policyd.api.configuration.tls import SYSTEM, TlsRules
from policyd.certificates import CertificateFacts, CertificatePair, check_pair
from policyd.connections import Listening
from policyd.serving import Server, server_config, server_context
from webhooks.certificate.files import read_file
from webhooks.protocol import ReviewProtocol

GRACE_SECONDS = 15
"""How long reviews in flight, and callers that do not hang up, may hold the server when it stops.

A pod is killed 30 seconds after its termination begins, and by default 5 of them pass before this.
"""

LINGER_SECONDS = 0.1
"""How long a review that is on its way when the server stops may take to be read."""


class LiveContext:
    """A server's TLS context, whose certificate can be replaced at any time.

    Each certificate has a context of its own. A handshake is given the newest; existing
    connections keep theirs. So a replacement is never seen half done, for any kind of key.
    """

    def __init__(
        self, pair: CertificatePair, *, callers_pem: bytes = b"", rules: TlsRules = SYSTEM
    ) -> None:
        """Serve `pair`.

        Args:
            pair: The certificate.
            callers_pem: The authority of the callers' certificates; empty if callers need none.
            rules: Restrictions of versions and suites.

        Raises:
            ConfigurationError: If OpenSSL will not have one of them.
        """
        self._pair, self._callers_pem = pair, callers_pem
        self._rules = rules
        self._newest = self._made(pair, callers_pem)
        self.front = server_context(None, rules=rules)  # versions and suites are those of this one
        self.front.verify_mode = self._newest.verify_mode  # a handshake has it from the first one
        self.front.sni_callback = self._choose

    def replace(self, pair: CertificatePair) -> None:
        """Serve `pair` from the next handshake on.

        Raises:
            ConfigurationError: If OpenSSL will not have it; the old one stays.
        """
        self._newest = self._made(pair, self._callers_pem)
        self._pair = pair

    def trust(self, callers_pem: bytes) -> None:
        """Answer those whose certificates others sign, from the next handshake on.

        Raises:
            ConfigurationError: If OpenSSL will not have it; the old ones stay.
        """
        self._newest = self._made(self._pair, callers_pem)
        self._callers_pem = callers_pem

    def _made(self, pair: CertificatePair, callers_pem: bytes) -> ssl.SSLContext:
        return server_context(pair, callers_pem=callers_pem, rules=self._rules)

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _front: ssl.SSLContext
    ) -> None:
        connection.context = self._newest


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


async def serve(
    app: ASGIApp,
    listener: socket.socket,
    *,
    listening: Listening,
    stop: asyncio.Event,
    http: type[asyncio.Protocol] | str = ReviewProtocol,
) -> None:
    """Serve `app` until `stop` is set, and let the requests in flight finish.

    Args:
        app: The application.
        listener: A listening socket; it is closed at the end.
        listening: How its connections are treated.
        stop: Set it to end.
        http: uvicorn's protocol.
    """
    config = server_config(app, grace_seconds=GRACE_SECONDS, http=http)
    await Server(config, listening, stop=stop, linger_seconds=LINGER_SECONDS).serve_on(listener)
