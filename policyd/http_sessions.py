"""HTTP clients: the one place that makes their sessions, so that all have the same limits.

No session keeps cookies, reads proxies or passwords from the environment, or asks for compressed
answers. aiohttp's `trust_env` would read `~/.netrc`, and does not know networks in `NO_PROXY`: a
request names its proxy, as `policyd.kube.proxies` chooses it.
"""

import ssl
from collections.abc import Iterable
from typing import Final

import aiohttp
from aiohttp.abc import AbstractResolver

from policyd import __version__

MOST_HEADERS: Final = 128
"""Headers of an answer, each of up to 8 KiB."""


def open_session(  # noqa: PLR0913 - all that differs between the servers
    *,
    tls: ssl.SSLContext | None = None,
    resolver: AbstractResolver | None = None,
    most_connections: int = 0,
    keep_alive_seconds: float = 90.0,
    seconds: float | None = None,
    decompress: bool = False,
    headers: Iterable[tuple[str, str]] = (),
) -> aiohttp.ClientSession:
    """Open a session in the running event loop; the caller closes it.

    Args:
        tls: Verifies servers; with the authorities of the machine if left out.
        resolver: Finds the addresses of names; the machine's if left out.
        most_connections: Connections at a time; 0 does not limit them.
        keep_alive_seconds: How long an idle connection is kept.
        seconds: How long a request may take; each request says so itself if left out.
        decompress: Whether compressed answers are read, which are not asked for.
        headers: Headers of every request, besides those that all sessions send.
    """
    connector = aiohttp.TCPConnector(
        ssl=tls or True,
        resolver=resolver,
        limit=most_connections,
        keepalive_timeout=keep_alive_seconds,
    )
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=seconds),
        # Compressed lists cost both sides more time than they save on a cluster's network.
        headers=(
            ("Accept-Encoding", "identity"),
            ("User-Agent", f"policyd/{__version__}"),
            *headers,
        ),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=decompress,
        max_headers=MOST_HEADERS,
    )
