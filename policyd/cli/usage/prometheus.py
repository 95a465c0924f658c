"""Questions to a Prometheus: bounded answers, limits of time, and sentences for all that fails."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import aiohttp
from yarl import URL

from policyd.errors import ConfigurationError, PolicydError, system_reason
from policyd.http_sessions import open_session
from policyd.kube.kubeconfig import read_file
from policyd.kube.tls import client_context
from policyd.usage.samples import AnswerError, QueryResult, Windows, quoted, read_matrix, read_time
from policyd.usage.samples import read_vector as read_values

MOST_BYTES: Final = 64 * 1024 * 1024
"""Of an answer: a page of five thousand GPUs has a tenth of it."""


class PrometheusError(PolicydError):
    """A Prometheus does not answer, or refuses."""


class TooLargeError(PrometheusError):
    """An answer is too large; one about less time may not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrometheusOptions:
    """How a Prometheus is reached.

    Attributes:
        address: The part before `/api/v1`.
        token_file: A file with a bearer token; None for none.
        ca_file: A file with the authorities to trust, as PEM; None for those of the machine.
        seconds: How long one answer may take.
        most_bytes: How large one answer may be.
    """

    address: str
    token_file: Path | None = None
    ca_file: Path | None = None
    seconds: float = 60.0
    most_bytes: int = MOST_BYTES


class Prometheus:
    """A Prometheus, asked over one pool of connections."""

    def __init__(
        self, session: aiohttp.ClientSession, address: URL, options: PrometheusOptions
    ) -> None:
        self._session, self._address, self._options = session, address, options

    async def time(self) -> float:
        """Return the time there, in seconds since the epoch.

        Raises:
            PolicydError: If it does not answer.
        """
        return read_time(await self._ask("query", {"query": "time()"}))

    async def values(self, query: str, at: float) -> list[tuple[Mapping[str, str], float]]:
        """Return labels and value of each series that a query has at a moment.

        Raises:
            PolicydError: If it does not answer, or refuses the query.
        """
        return read_values(await self._ask("query", {"query": query, "time": f"{at:.3f}"}))

    async def series(self, query: str, windows: Windows, first: int, last: int) -> QueryResult:
        """Return the values of a query at the ends of windows, from the first to the last.

        Raises:
            TooLargeError: If the answer is too large.
            PolicydError: If it does not answer, or refuses the query.
        """
        asked = {
            "query": query,
            "start": f"{windows.end_of(first):.3f}",
            "end": f"{windows.end_of(last):.3f}",
            "step": str(windows.seconds),
        }
        return read_matrix(await self._ask("query_range", asked), windows)

    async def _ask(self, path: str, asked: Mapping[str, str]) -> bytes:
        seconds = self._options.seconds
        try:
            async with self._session.post(
                self._address / "api/v1" / path, data=asked, allow_redirects=False
            ) as response:
                body = await self._read(response)
        except TimeoutError as error:
            raise PrometheusError(
                f"Prometheus at {self._named} did not answer within {seconds:g} s",
                hint="ask about less time with --since, or allow more with --timeout",
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise PrometheusError(
                f"Prometheus at {self._named} cannot be asked: {quoted(_reason(error))}",
                hint="check --prometheus; in a cluster, `kubectl port-forward` leads to it",
            ) from error
        self._check(response.status, body)
        return body

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        body = bytearray()
        async for chunk in response.content.iter_any():
            body += chunk
            if len(body) > self._options.most_bytes:
                raise TooLargeError(
                    f"an answer of Prometheus has more than {self._options.most_bytes >> 20} MiB",
                    hint="choose fewer GPUs with --match, such as --match 'Hostname=~\"a.*\"'",
                )
        return bytes(body)

    def _check(self, status: int, body: bytes) -> None:
        """Check the status of an answer; one that is about the query has a body.

        Raises:
            PolicydError: If it is none.
        """
        if status in {401, 403}:
            raise PrometheusError(
                f"Prometheus at {self._named} refuses access (status {status})",
                hint="give a token with --token-file",
            )
        if 300 <= status < 400 or status == 404:
            raise PrometheusError(
                f"{self._named} has no HTTP API of Prometheus (status {status})",
                hint="--prometheus is the address before /api/v1; redirects are not followed",
            )
        if status >= 400:
            try:
                read_time(body)
            except AnswerError as error:
                if "refuses the query" in str(error):
                    raise
            raise PrometheusError(f"Prometheus at {self._named} failed with status {status}")

    @property
    def _named(self) -> str:
        return f"`{self._address}`"


@asynccontextmanager
async def open_prometheus(options: PrometheusOptions) -> AsyncIterator[Prometheus]:
    """Yield a Prometheus; in the block, its connections are open.

    Raises:
        ConfigurationError: If the options cannot be meant.
    """
    address = read_address(options.address)
    headers = []
    if options.token_file is not None:
        if address.scheme == "http" and not _is_loopback(address.host or ""):
            raise ConfigurationError(
                f"the token of {options.token_file} would be sent unencrypted to {address}",
                hint="use https, or an address of this machine",
            )
        token = read_file(options.token_file, what="token file").decode(errors="replace").strip()
        if not token.isprintable() or not token or " " in token:
            raise ConfigurationError(f"token file `{options.token_file}` has no token")
        headers.append(("Authorization", f"Bearer {token}"))
    session = open_session(
        tls=_authorities(options.ca_file), most_connections=4, seconds=options.seconds,
        headers=headers,
    )  # fmt: skip
    async with session:
        yield Prometheus(session, address, options)
        await asyncio.sleep(0)


def read_address(text: str) -> URL:
    """Read the address of a Prometheus.

    Raises:
        ConfigurationError: If it is none.
    """
    try:
        address = URL(text.rstrip("/"))
        usable = address.scheme in {"http", "https"} and bool(address.host)
    except ValueError:
        address, usable = URL(), False
    if not usable or address.query_string or address.fragment:
        raise ConfigurationError(
            f"`{quoted(text)}` is not the address of a Prometheus",
            hint="write it as http://prometheus.monitoring:9090",
        )
    if address.user is not None or address.password is not None:
        raise ConfigurationError(
            "the address of a Prometheus has a password in it, which others on the machine see",
            hint="give a token with --token-file",
        )
    return address


def _authorities(file: Path | None) -> ssl.SSLContext | None:
    if file is None:
        return None
    try:
        return client_context(read_file(file, what="file of authorities"))
    except ConfigurationError as error:
        raise ConfigurationError(
            f"`{file}` has no certificate of an authority", hint="it is a PEM file"
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reason(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError | aiohttp.ClientSSLError):
        return f"its certificate is not trusted ({error})"
    if isinstance(error, OSError) and error.strerror:
        return system_reason(error)
    return str(error) or type(error).__name__
