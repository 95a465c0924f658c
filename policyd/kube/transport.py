"""One request to the API server, and one answer: bounded, timed, and retried where it may be.

Only this may be retried: a request with the same effect when executed twice, after a broken
connection or an answer that says "later" (429, 503). The waits double, have random jitter, and
are never shorter than the server's Retry-After. The caller handles all other errors.
"""

import asyncio
import os
import re
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from policyd.http_sessions import open_session
from policyd.kube.calls import ApiCall
from policyd.kube.connection import ApiConnection
from policyd.kube.decoding import too_long
from policyd.kube.errors import (
    ApiError,
    ThrottledError,
    UnauthorizedError,
    UnavailableError,
    UnreachableError,
    error_from_answer,
)
from policyd.kube.pace import Backoff, Pace

UNREACHABLE = "unreachable"
"""In the place of a status, where there is no answer, or it breaks off."""
_WARNING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")

_LATER = (UnreachableError, ThrottledError, UnavailableError)

_CERTIFICATE_HINT = "check `certificate-authority-data` and `tls-server-name` of the kubeconfig"
_SERVER_HINT = "is the API server running, and the kubeconfig's `server` right?"

# The first class that fits decides: narrower ones come first.
_SENTENCES: tuple[tuple[type[Exception], str, str | None], ...] = (
    (
        aiohttp.ClientConnectorCertificateError,
        "the certificate of `{server}` is not trusted: {why}",
        _CERTIFICATE_HINT,
    ),
    (aiohttp.ClientConnectorSSLError, "no TLS connection to `{server}`: {why}", _SERVER_HINT),
    (aiohttp.ClientConnectorDNSError, "the host of `{server}` has no address", _SERVER_HINT),
    (aiohttp.ClientProxyConnectionError, "the proxy `{proxy}` cannot be reached", None),
    (aiohttp.ClientHttpProxyError, "the proxy `{proxy}` refuses: {why}", None),
    (aiohttp.ClientConnectorError, "cannot connect to `{server}`: {why}", _SERVER_HINT),
    (aiohttp.InvalidURL, "`{server}` is not a server URL", None),
    (TimeoutError, "no answer to `{asked}` in time", None),
    (Exception, "the connection broke during `{asked}`", None),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much is asked of the server at a time, and for how long."""

    in_flight: int = 64
    """Requests at the same time; watches are not counted."""
    timeout_seconds: float = 30.0
    """For one try of a request. The server's own limit is 60 s."""
    silence_seconds: float = 90.0
    """A watch without a byte for so long is ended, and resumed. Bookmarks come
    once a minute, but not for resources without changes since the server started: such a silent
    watch is not a failure, and a half-open connection shows when it is used."""
    watch_seconds: tuple[int, int] = (300, 600)
    """How long a watch is asked for: at least and at most, so that those that begin together do not
    end together."""
    tries: int = 5
    first_wait_seconds: float = 0.1
    longest_wait_seconds: float = 10.0
    """If the server asks for a longer one, the error is the caller's."""
    answer_bytes: int | None = None
    """Of one answer, or of one event of a watch; None for any number, from a trusted server."""


OF_WORKERS = Limits(timeout_seconds=20.0, tries=2, answer_bytes=32 * 1024 * 1024)
"""For servers of others: none of them may fill the memory, or hold up the work for another."""


CountRequest = Callable[[str, str], None]
"""Counts a request, by its method and by the status of its answer, or `unreachable`."""


def _not_counted(_method: str, _code: str) -> None:
    """Do nothing."""


class Transport:
    """Sends calls over one pool of connections. Open it before use: the pool belongs to a loop."""

    def __init__(
        self,
        connection: ApiConnection,
        *,
        limits: Limits | None = None,
        pace: Pace | None = None,
        count: CountRequest | None = None,
    ) -> None:
        self._connection = connection
        self._count = count or _not_counted
        self._limits = limits or Limits()
        self._pace = pace or Pace()
        self._in_flight = asyncio.Semaphore(self._limits.in_flight)
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make the pool, in the loop that is running."""
        self._session = open_session(
            tls=self._connection.tls,
            keep_alive_seconds=15.0,
            decompress=True,
            headers=(("Accept", "application/json"), *self._connection.impersonation),
        )

    async def close(self) -> None:
        """End all connections."""
        if self._session is not None:
            await self._session.close()

    async def send(self, call: ApiCall) -> bytes:
        """Send one call, again if that may help, and return the body of the answer.

        Raises:
            ApiError: If the answer is not a success, or there is none.
        """
        backoff = Backoff(
            self._limits.first_wait_seconds,
            self._limits.longest_wait_seconds,
            jitter=self._pace.jitter,
        )
        while True:
            try:
                async with self._in_flight:
                    return await self._authorized(call)
            except _LATER as error:
                wait = max(backoff.next(), error.retry_after or 0.0)
                tired = backoff.failures >= self._limits.tries
                if tired or not call.idempotent or wait > self._limits.longest_wait_seconds:
                    raise
            await self._pace.sleep(wait)

    async def stream(self, call: ApiCall) -> AsyncGenerator[bytes, None]:
        """Send one call, once, and iterate over the answer as it comes, until it is silent.

        Raises:
            ApiError: If the answer is not a success, breaks off, or does not begin in time.
        """
        limit = aiohttp.ClientTimeout(
            total=None,
            sock_connect=self._limits.timeout_seconds,
            sock_read=self._limits.silence_seconds,
        )
        try:
            async with await self._open(call, limit) as response:
                if response.status >= 400:
                    raise await self._refusal(call, response)
                with suppress(aiohttp.SocketTimeoutError):
                    async for chunk in response.content.iter_any():
                        yield chunk
        except UnauthorizedError:
            self._connection.credentials.forget()
            raise
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._count(call.method, UNREACHABLE)
            raise self._unreachable(call, error) from error

    async def _authorized(self, call: ApiCall) -> bytes:
        try:
            return await self._once(call)
        except UnauthorizedError:
            if not self._connection.credentials.forget():
                raise
            # The token was revoked, or its signing key renewed, before it expired.
            return await self._once(call)

    async def _once(self, call: ApiCall) -> bytes:
        limit = aiohttp.ClientTimeout(total=self._limits.timeout_seconds)
        try:
            async with await self._open(call, limit) as response:
                if call.warned is not None:
                    for each in response.headers.getall("Warning", ()):
                        call.warned(warning_text(each))
                if response.status >= 400:
                    raise await self._refusal(call, response)
                return await self._read(call, response)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._count(call.method, UNREACHABLE)
            raise self._unreachable(call, error) from error

    async def _read(self, call: ApiCall, response: aiohttp.ClientResponse) -> bytes:
        """Return the body of an answer.

        Raises:
            UndecodableError: If it is too long.
        """
        if self._limits.answer_bytes is None:
            return await response.read()
        parts, left = [], self._limits.answer_bytes
        async for part in response.content.iter_any():
            parts.append(part)
            left -= len(part)
            if left < 0:
                raise too_long(f"the answer to `{call}`", self._limits.answer_bytes)
        return b"".join(parts)

    async def _refusal(self, call: ApiCall, response: aiohttp.ClientResponse) -> ApiError:
        return error_from_answer(
            response.status,
            await self._read(call, response),
            asked=str(call),
            retry_after=response.headers.get("Retry-After", ""),
        )

    def _unreachable(self, call: ApiCall, error: Exception) -> UnreachableError:
        return unreachable(error, asked=str(call), connection=self._connection)

    async def _open(self, call: ApiCall, limit: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        assert self._session is not None, "a transport is opened before it is used"
        query = f"?{urlencode(call.query)}" if call.query else ""
        headers = {}
        if authorization := await self._connection.credentials.authorization():
            headers["Authorization"] = authorization
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        response = await self._session.request(
            call.method,
            URL(f"{self._connection.server}{call.path}{query}", encoded=True),
            data=call.body,
            headers=headers,
            timeout=limit,
            proxy=self._connection.proxy,
            server_hostname=self._connection.server_name,
            allow_redirects=False,
        )
        self._count(call.method, str(response.status))
        return response


def warning_text(header: str) -> str:
    """Return the text of a `Warning` header, such as `299 - "a text"`."""
    quoted = _WARNING.search(header)
    return header if quoted is None else _ESCAPED.sub(r"\1", quoted[1])


def unreachable(error: Exception, *, asked: str, connection: ApiConnection) -> UnreachableError:
    """Turn an exception of aiohttp or of the system into an error of ours."""
    _, sentence, hint = next(row for row in _SENTENCES if isinstance(error, row[0]))
    message = sentence.format(
        server=connection.server, proxy=connection.proxy, asked=asked, why=_reason(error)
    )
    return UnreachableError(message, hint=hint)


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        error = error.certificate_error
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"{error.status} {error.message}"
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return str(error)
