"""Waiting: backoffs, and limits on what takes too long."""

import asyncio

import pytest

from policyd.kube.pace import Backoff
from policyd.testing import FakeClock

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("jitter", "expected"),
    [
        pytest.param(0.0, [0.5, 1.0, 2.0, 2.5], id="least"),
        pytest.param(1.0, [1.0, 2.0, 4.0, 5.0], id="most"),
    ],
)
def test_waits_double_up_to_the_longest_and_are_spread(jitter, expected):
    backoff = Backoff(1.0, 5.0, jitter=lambda: jitter)

    assert [backoff.next() for _ in range(4)] == expected


def test_many_failures_do_no_harm():
    backoff = Backoff(1.0, 5.0, jitter=lambda: 1.0)
    backoff.failures = 10**6

    assert backoff.next() == 5.0


def test_after_a_success_the_first_wait_comes_again():
    backoff = Backoff(1.0, 5.0, jitter=lambda: 1.0)
    backoff.next()
    backoff.reset()

    assert backoff.next() == 1.0


async def test_work_that_takes_too_long_is_cancelled():
    clock, cancelled = FakeClock(), []

    async def work():
        try:
            await clock.sleep(10)
        except asyncio.CancelledError:
            cancelled.append(clock.monotonic())
            raise

    waiting = asyncio.ensure_future(clock.pace().within(3, work()))
    await clock.advance(4)

    with pytest.raises(TimeoutError):
        await waiting
    assert cancelled == [3.0]


async def test_work_in_time_gives_its_result_or_its_error():
    clock = FakeClock()

    async def fail():
        raise LookupError("no")

    async def answer():
        return 7

    assert await clock.pace().within(3, answer()) == 7
    with pytest.raises(LookupError):
        await clock.pace().within(3, fail())


async def test_waiting_for_an_event_says_whether_it_came():
    clock, event = FakeClock(), asyncio.Event()
    waits = [asyncio.ensure_future(clock.pace().wait(event, seconds)) for seconds in (1, 9, None)]
    await clock.advance(2)
    event.set()
    await clock.advance(0)

    assert [wait.result() for wait in waits] == [False, True, True]
