"""Requests to others than the API server: bounded, timed, and led nowhere else."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

import aiohttp
from yarl import URL

from policyd import __version__
from policyd.errors import PolicydError
from policyd.kube.proxies import proxy_for

MOST_BYTES: Final = 1024 * 1024
"""How long an answer may be."""

MOST_REQUESTS: Final = 32
"""Requests at the same time."""

SECONDS: Final = 10.0
"""How long one may take; a review that is out of time does not wait for it."""


class FetchError(PolicydError):
    """There is no answer, or none that can be taken."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """An answer, whatever its status.

    Attributes:
        status: HTTP's.
        headers: Those of the answer.
        body: What it carries.
        led: Whether it is from where a redirect led.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    led: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is sent.

    Attributes:
        method: `GET`, `POST` or `PUT`.
        url: Where to.
        headers: Besides those of every request; not shown, as they may hold a password.
        body: What it carries; None for nothing.
        certificates: PEM of the authorities to trust; those of the machine if it is empty.
        redirects: To how many other addresses it may be led; its authorization stays here.
    """

    method: str
    url: URL
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = None
    certificates: str = ""
    redirects: int = 0


class Fetcher:
    """Sends requests over one pool of connections.

    Args of the constructor:
        variables: The environment's, which may name a proxy.
    """

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._free = asyncio.Semaphore(MOST_REQUESTS)
        self._session: aiohttp.ClientSession | None = None

    async def run(self) -> NoReturn:
        """Keep the pool until cancelled, and close it then."""
        try:
            await asyncio.Event().wait()
        finally:
            if self._session is not None:
                await self._session.close()
        raise AssertionError("the event is never set")

    async def fetch(self, message: Message) -> Fetched:
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

    async def _fetch(self, message: Message) -> Fetched:
        if self._session is None:
            limit = aiohttp.ClientTimeout(total=SECONDS)
            agent = {"User-Agent": f"policyd/{__version__}"}
            self._session = aiohttp.ClientSession(
                timeout=limit, headers=agent, cookie_jar=aiohttp.DummyCookieJar()
            )
        async with self._session.request(
            message.method,
            message.url,
            headers=message.headers,
            data=message.body,
            ssl=_trusting(message.certificates) if message.certificates else True,
            proxy=proxy_for(str(message.url), self._variables),
            allow_redirects=message.redirects > 0,
            max_redirects=message.redirects + 1,
        ) as response:
            body = await _read(response)
            return Fetched(response.status, response.headers, body, led=bool(response.history))


async def _read(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MOST_BYTES:
            raise ValueError(f"the answer has more than {MOST_BYTES} bytes")
    return bytes(body)


def _trusting(certificates: str) -> ssl.SSLContext:
    """Return a context that trusts these authorities and no others."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=certificates)
    except ssl.SSLError as error:
        raise ValueError(f"the authorities to trust are no PEM certificates: {error}") from error
    return context
