"""The counts that the webhooks serve as metrics, read from all processes and added up."""

import asyncio
import socket
from typing import Final

import aiohttp

from policyd.dashboard.views.review_counts import (
    CountsError,
    ReviewCounts,
    Reviewed,
    counts_of_text,
    together,
)
from policyd.errors import ConfigurationError, system_reason
from policyd.http_sessions import open_session

READ_SECONDS: Final = 3.0
"""How long one process may take to answer."""
MOST_BYTES: Final = 4 * 1024 * 1024
"""Of an answer: with all series that there may be, it has a fourth of it."""
MOST_WEBHOOKS: Final = 32
"""Processes that are asked."""


class WebhookCounts:
    """Asks all webhooks that a name stands for.

    Args of the constructor:
        addresses: `host:port` of their metrics; a name may have many addresses.

    Raises:
        ConfigurationError: If one of them is none.
    """

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self._places = tuple(map(_place, addresses))

    async def __call__(self) -> Reviewed:
        """Return the counts of all that answer, and why others are missing."""
        found, missing = await self._addresses()
        async with open_session(seconds=READ_SECONDS, most_connections=MOST_WEBHOOKS) as session:
            answers = await asyncio.gather(*(_read(session, *each) for each in found))
        parts = [each for each in answers if isinstance(each, dict)]
        missing += [each for each in answers if isinstance(each, str)]
        return Reviewed(together(parts), len(parts), tuple(missing))

    async def _addresses(self) -> tuple[list[tuple[str, int]], list[str]]:
        """Return the addresses that the names have now, and why some have none."""
        found: dict[tuple[str, int], None] = {}
        missing: list[str] = []
        loop = asyncio.get_running_loop()
        for host, port in self._places:
            try:
                async with asyncio.timeout(READ_SECONDS):
                    known = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError as error:  # a TimeoutError is one, too
                missing.append(f"`{host}` has no address: {system_reason(error)}")
                continue
            found |= dict.fromkeys((str(address[0]), port) for *_, address in known)
        if len(found) > MOST_WEBHOOKS:
            missing.append(f"only {MOST_WEBHOOKS} of {len(found)} webhooks are asked")
        return [*found][:MOST_WEBHOOKS], missing


async def _read(
    session: aiohttp.ClientSession, address: str, port: int
) -> dict[str, ReviewCounts] | str:
    """Return the counts of one process, or why there are none."""
    host = f"[{address}]" if ":" in address else address
    where = f"the webhook at {host}:{port}"
    try:
        async with session.get(f"http://{host}:{port}/metrics", allow_redirects=False) as answer:
            if answer.status != 200:
                return f"{where} answers with status {answer.status}"
            body = bytearray()
            async for chunk in answer.content.iter_any():
                body += chunk
                if len(body) > MOST_BYTES:
                    return f"{where} answers with more than {MOST_BYTES >> 20} MiB"
        return counts_of_text(body.decode("utf-8", "replace").split("\n"))
    except CountsError as error:
        return f"{where}: {error}"
    except TimeoutError:
        return f"{where} did not answer within {READ_SECONDS:g} s"
    except (aiohttp.ClientError, OSError):
        return f"{where} cannot be reached"


def _place(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if (
        not host
        or not (port.isascii() and port.isdecimal())
        or not 0 < int(port) < 65536
        or "/" in host
    ):
        raise ConfigurationError(
            f"`{text}` is not an address of metrics of webhooks",
            hint="write it as HOST:PORT, such as `policyd-webhooks-counts:9444`",
        )
    return host, int(port)
