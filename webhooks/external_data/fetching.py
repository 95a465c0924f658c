"""Requests to others than the API server: bounded, timed, and led nowhere else.

The addresses of a host's name are checked when the connection is made. A proxy looks the name up
itself, and decides where it connects to.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NoReturn

import aiohttp
from aiohttp.abc import AbstractResolver
from yarl import URL

from policyd.errors import PolicydError
from policyd.http_sessions import open_session
from policyd.kube.proxies import proxy_for
from webhooks.external_data.addresses import CheckedResolver, literal_of, refused

MOST_BYTES: Final = 1024 * 1024
"""How long an answer may be."""

MOST_REQUESTS: Final = 32
"""Requests at the same time."""

SECONDS: Final = 10.0
"""How long one may take; a review that is out of time does not wait for it."""


LONGEST_BUNDLE: Final = 256 * 1024
"""How long a bundle of authorities to trust may be."""

_REDIRECTS: Final = frozenset((301, 302, 303, 307, 308))


class FetchError(PolicydError):
    """There is no answer, or none that is accepted."""


@dataclass(frozen=True, slots=True)
class FetchedResponse:
    """An answer with any status.

    Attributes:
        status: HTTP's.
        headers: Those of the answer.
        body: Its body.
        led: Whether it is from where a redirect led.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    led: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A request.

    Attributes:
        method: `GET`, `POST` or `PUT`.
        url: Where to.
        headers: Besides those of every request; not shown, as they may hold a password.
        body: Its body, if any.
        certificates: PEM of the authorities to trust; those of the machine if it is empty.
        redirects: How many redirects are followed, if it is a GET; only the header `Accept` is sent
            to other servers.
        named: The hosts that the operator named, by which the machine itself may be reached.
    """

    method: str
    url: URL
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = None
    certificates: str = ""
    redirects: int = 0
    named: frozenset[str] = frozenset()


class Fetcher:
    """Sends requests over pools of connections: one for each set of hosts that messages may name.

    A connection to a host that one message may reach is not there for another that may not.

    Args of the constructor:
        variables: The environment's, which may name a proxy.
        resolver: Knows the addresses of names; the machine's if left out.
    """

    def __init__(
        self, variables: Mapping[str, str], resolver: AbstractResolver | None = None
    ) -> None:
        self._variables = variables
        self._resolver = resolver
        self._free = asyncio.Semaphore(MOST_REQUESTS)
        self._pools: dict[frozenset[str], aiohttp.ClientSession] = {}

    async def run(self) -> NoReturn:
        """Keep the pools until cancelled, and close them then."""
        try:
            await asyncio.Event().wait()
        finally:
            for each in self._pools.values():
                await each.close()
        raise AssertionError("the event is never set")

    async def fetch(self, message: Message) -> FetchedResponse:
        """Send a request, once.

        Raises:
            FetchError: If there is no answer, or it is too long.
        """
        try:
            async with self._free:
                return await self._fetch(message)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise FetchError(f"{message.method} {message.url}: {reason}") from error

    async def _fetch(self, message: Message) -> FetchedResponse:
        url, headers, led = message.url, message.headers, False
        for _ in range(message.redirects + 1):
            status, answered, body = await self._send(message, url, headers)
            target = _target(url, status, answered) if message.redirects else None
            if target is None:
                return FetchedResponse(status, answered, body, led=led)
            if target.origin() != url.origin():
                headers = {name: value for name, value in headers.items() if name == "Accept"}
            url, led = target, True
        raise ValueError(f"more than {message.redirects} redirects")

    async def _send(
        self, message: Message, url: URL, headers: Mapping[str, str]
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a request to one address, and return status, headers and body of the answer."""
        proxy = proxy_for(str(url), self._variables)
        host = url.raw_host or ""
        why = refused(host, literal_of(host), message.named)
        if why:
            raise ValueError(why)
        # The environment names the proxy, whose address is all that is looked up.
        asked = message.named if proxy is None else frozenset({URL(proxy).raw_host or ""})
        async with self._pool(asked).request(
            message.method,
            url,
            headers=headers,
            data=message.body,
            ssl=_trusting(message.certificates) if message.certificates else True,
            proxy=proxy,
            allow_redirects=False,
        ) as response:
            return response.status, response.headers, await _read(response)

    def _pool(self, named: frozenset[str]) -> aiohttp.ClientSession:
        pool = self._pools.get(named)
        if pool is None:
            pool = self._pools[named] = open_session(
                resolver=CheckedResolver(named, self._resolver),
                most_connections=MOST_REQUESTS,
                keep_alive_seconds=15.0,
                seconds=SECONDS,
            )
        return pool


def _target(url: URL, status: int, headers: Mapping[str, str]) -> URL | None:
    """Return where an answer leads to; None if it is one itself.

    Raises:
        ValueError: If it leads to no server, or from an encrypted to an unencrypted one.
    """
    if status not in _REDIRECTS:
        return None
    target = url.join(URL(headers.get("Location", "")))
    plain = target.scheme in ("https", url.scheme) and target.raw_host and target.user is None
    if not plain:
        raise ValueError("it redirects to an address that must not be called")
    return target


async def _read(response: aiohttp.ClientResponse) -> bytes:
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise ValueError(f"the answer is encoded as `{encoding}`, which was not asked for")
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MOST_BYTES:
            raise ValueError(f"the answer has more than {MOST_BYTES} bytes")
    return bytes(body)


@lru_cache(maxsize=16)
def _trusting(certificates: str) -> ssl.SSLContext:
    """Return a context that trusts these authorities and no others."""
    if len(certificates) > LONGEST_BUNDLE:
        raise ValueError(f"the CA bundle has more than {LONGEST_BUNDLE} characters")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=certificates)
    except ssl.SSLError as error:
        raise ValueError(f"the CA bundle is not a list of PEM certificates: {error}") from error
    return context
