"""The webhooks keep the latest snapshot of the queues, and do without one."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from policyd.kube.errors import NotFoundError, UnreachableError
from policyd.snapshot.latest import STALE_SECONDS, LatestSnapshot
from policyd.snapshot.reading import UNCHANGED
from policyd.snapshot.values import FORMAT, QueueSnapshot
from policyd.testing import FakeClock
from webhooks.queue_snapshots import LONGEST_WAIT_SECONDS, POLL_SECONDS, follow_queues

pytestmark = pytest.mark.anyio


class Controller:
    """Serves versions of a snapshot, or fails."""

    def __init__(self):
        self.version = "1"
        self.format = FORMAT
        self.error = None
        self.asked = []

    async def ask(self, version):
        self.asked.append(version)
        if self.error is not None:
            raise self.error
        if version == self.version:
            return msgspec.json.encode(UNCHANGED)
        snapshot = QueueSnapshot(format=self.format, taken_at=0.0, version=self.version)
        return msgspec.json.encode(snapshot)


@asynccontextmanager
async def following(**fields):
    clock, controller = FakeClock(), Controller()
    vars(controller).update(fields)
    latest = LatestSnapshot(clock.monotonic)
    work = follow_queues(latest, controller.ask, pace=clock.pace())
    running = asyncio.ensure_future(work)

    async def passes(seconds):
        for _ in range(round(seconds / POLL_SECONDS)):
            await clock.advance(POLL_SECONDS)
            await asyncio.sleep(0.02)  # a thread reads what came

    try:
        await passes(2)
        yield controller, latest, passes
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_newer_snapshot_is_there_after_a_poll():
    async with following() as (controller, latest, passes):
        first = latest.current().version
        controller.version = "2"
        await passes(2)

        assert (first, latest.current().version) == ("1", "2")


async def test_an_unchanged_one_stays_and_is_not_sent_again():
    async with following() as (controller, latest, passes):
        first = latest.current()
        await passes(STALE_SECONDS + 5)

        assert latest.current() is first
        assert set(controller.asked[1:]) == {"1"}


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param({"error": NotFoundError("not served")}, id="not-served"),
        pytest.param({"error": UnreachableError("down")}, id="down"),
        pytest.param({"version": "2", "format": FORMAT + 1}, id="of-another-format"),
    ],
)
async def test_one_that_nobody_confirms_is_soon_not_used_any_more(failure):
    async with following() as (controller, latest, passes):
        vars(controller).update(failure)
        await passes(STALE_SECONDS / 2)
        meanwhile = latest.current()
        await passes(STALE_SECONDS)

        assert meanwhile is not None
        assert latest.current() is None


async def test_it_is_asked_for_less_often_where_none_is_served_and_found_when_it_is():
    async with following(error=NotFoundError("not served")) as (controller, latest, passes):
        await passes(3 * LONGEST_WAIT_SECONDS)
        asked, before = len(controller.asked), latest.current()
        controller.error = None
        await passes(LONGEST_WAIT_SECONDS)

        assert asked < 20
        assert (before, latest.current().version) == (None, "1")
