"""The snapshot of the queues that the controller serves, kept current for reviews.

Where it cannot be had, there are no warnings: no review waits for it, and none fails for it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

import msgspec
import structlog

from policyd.kube.errors import ApiError
from policyd.kube.http_client import HttpClient
from policyd.kube.pace import Backoff, Pace
from policyd.snapshot.latest import LatestSnapshot
from policyd.snapshot.reading import SnapshotError, read_newer
from policyd.snapshot.values import ADMISSION_PLURAL, API_VERSION, NAME, QueueSnapshot

PATH: Final = f"/apis/{API_VERSION}/{ADMISSION_PLURAL}/{NAME}"
POLL_SECONDS: Final = 1.0
"""Between two polls. With what the controller lets pass between two snapshots and the way here, a
snapshot is a version behind for at most two seconds."""
FIRST_WAIT_SECONDS: Final = 0.1
LONGEST_WAIT_SECONDS: Final = 10.0
"""Between two polls of a cluster that serves no snapshots, at first and after some time."""
POLL_LIMIT_SECONDS: Final = 5.0

Ask = Callable[[str], Awaitable[bytes]]
"""Asks for the snapshot, unless it is of this version. Raises an ApiError."""

Took = Callable[[QueueSnapshot], None]


def unread(_snapshot: QueueSnapshot) -> None:
    """Prepare nothing."""


log = structlog.get_logger(__name__)


def asking(client: HttpClient) -> Ask:
    """Return what asks an API server."""

    async def ask(version: str) -> bytes:
        return bytes(await client.fetch(PATH, into=msgspec.Raw, unless=version))

    return ask


async def follow_queues(
    latest: LatestSnapshot,
    ask: Ask,
    *,
    pace: Pace,
    took: Took = unread,
) -> NoReturn:
    """Keep the latest snapshot current.

    Args:
        latest: Where it is kept.
        ask: Asks the controller.
        pace: Time.
        took: Called with each new one before it is kept, in a thread.
    """
    backoff = Backoff(FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, jitter=pace.jitter)
    unserved = False
    while True:
        wait = POLL_SECONDS
        try:
            body = await pace.within(POLL_LIMIT_SECONDS, ask(latest.version))
            snapshot = await asyncio.to_thread(_read, body, took)
        except (ApiError, SnapshotError, TimeoutError) as error:
            wait = backoff.next()
            if not unserved:
                log.info("queue_snapshots_not_served", reason=str(error))
            unserved = True
        else:
            if snapshot is None:
                latest.confirm()
            else:
                latest.put(snapshot)
            if unserved:
                log.info("queue_snapshots_served")
            backoff.reset()
            unserved = False
        await pace.sleep(wait)


def _read(body: bytes, took: Took) -> QueueSnapshot | None:
    snapshot = read_newer(body, ADMISSION_PLURAL)
    if snapshot is not None:
        took(snapshot)
    return snapshot
