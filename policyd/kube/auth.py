"""The Authorization header of requests: tokens, and where they come from.

Static credentials are read here. Credentials from a credential plugin or an
identity provider are requested by the official client, loaded only then. Its answer is checked: it
would go on as the anonymous user when a plugin fails, and never ask for a second certificate.
"""

import asyncio
import base64
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from policyd.clock import Clock
from policyd.errors import ConfigurationError
from policyd.kube.errors import CredentialsError
from policyd.kube.kubeconfig import read_file

READ_AGAIN_SECONDS = 60.0
"""How old a token from a file, or of a provider, may become; the kubelet renews its own in time."""
EARLY_SECONDS = 300.0
"""A credential is renewed so long before it expires, or when a fifth of its life is left."""


class Header:
    """A header that does not change: a token, or a name and a password."""

    def __init__(self, value: str) -> None:
        self._value = value

    async def authorization(self) -> str:
        """Return the header."""
        return self._value

    def forget(self) -> bool:
        """There is nothing to renew."""
        return False


def bearer(token: str) -> Header:
    """Return the header for a token."""
    return Header(f"Bearer {token.strip()}")


def basic(username: str, password: str) -> Header:
    """Return the header for a name and a password."""
    pair = base64.b64encode(f"{username}:{password}".encode()).decode()
    return Header(f"Basic {pair}")


class TokenFile:
    """A token in a file that the kubelet keeps fresh."""

    def __init__(self, path: Path, *, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._token = self._read()
        self._read_at = clock.monotonic()

    async def authorization(self) -> str:
        """Return the header, reading the file again every minute.

        While the file cannot be read, the token from before is used: it may still be good.
        """
        if self._clock.monotonic() - self._read_at >= READ_AGAIN_SECONDS:
            self._read_at = self._clock.monotonic()
            with suppress(ConfigurationError):
                self._token = self._read()
        return f"Bearer {self._token}"

    def forget(self) -> bool:
        """Read the file at the next request; that helps if it has changed."""
        self._read_at = float("-inf")
        try:
            return self._read() != self._token
        except ConfigurationError:
            return False

    def _read(self) -> str:
        token = read_file(self._path, what="token file").decode(errors="replace").strip()
        if not token:
            raise ConfigurationError(f"token file `{self._path}` is empty")
        return token


class FetchedHeader:
    """A header that has to be asked for, now and then.

    `fetch` returns it with the moment when it expires, in seconds since the epoch, None for
    never. It may block; it is called in a thread, one call at a time.
    """

    def __init__(self, fetch: Callable[[], tuple[str, float | None]], *, clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._lock = asyncio.Lock()
        self._header: str | None = None
        self._renew_at: float | None = None

    def prime(self) -> None:
        """Ask for the first time, so that an error shows at once.

        Raises:
            ConfigurationError: If `fetch` fails.
        """
        self._keep(*self._fetch())

    async def authorization(self) -> str:
        """Return the header, asked for again if it is about to expire.

        Raises:
            CredentialsError: If `fetch` fails: the next request tries again.
        """
        async with self._lock:
            if self._header is None or self._is_due():
                try:
                    self._keep(*await asyncio.to_thread(self._fetch))
                except ConfigurationError as error:
                    raise CredentialsError(str(error), hint=error.hint) from error
        assert self._header is not None, "what was fetched is kept"
        return self._header

    def forget(self) -> bool:
        """Ask again at the next request."""
        self._header = None
        return True

    def _is_due(self) -> bool:
        return self._renew_at is not None and self._clock.now() >= self._renew_at

    def _keep(self, header: str, expires_at: float | None) -> None:
        self._header = header
        self._renew_at = None
        if expires_at is not None:
            # Never earlier than after four fifths: a short-lived token is not asked for each time.
            life = expires_at - self._clock.now()
            self._renew_at = expires_at - min(EARLY_SECONDS, life / 5)


def moment(text: str) -> float:
    """Return an RFC 3339 time as seconds since the epoch.

    Raises:
        ValueError: If it is none.
    """
    return datetime.fromisoformat(text).timestamp()
