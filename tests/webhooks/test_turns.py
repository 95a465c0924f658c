"""Namespaces take turns for workers, and have a part of the loop's time each."""

import asyncio

import pytest

from tests.webhooks.test_workers import Later, Ticking, turns
from webhooks.turns import FREE_SECONDS, MOST_NAMESPACES, MOST_SECONDS, Lane, LoopTime

pytestmark = pytest.mark.anyio


def begin(lane, name, namespace=""):
    return asyncio.ensure_future(lane.run(lambda: name, namespace))


async def test_namespaces_take_turns():
    executor, done = Later(), []
    lane = Lane(executor, 1)

    for namespace, count in (("a", 3), ("b", 1), ("c", 2)):
        for number in range(count):
            running = begin(lane, f"{namespace}{number}", namespace)
            running.add_done_callback(lambda each: done.append(each.result()))
    await turns()
    while executor.given:
        assert len(executor.given) == 1
        executor.run_next()
        await turns()

    assert done == ["a0", "a1", "b0", "c0", "a2", "c1"]


async def test_a_cancelled_caller_frees_a_worker_only_at_its_end():
    executor = Later()
    lane = Lane(executor, 1)
    first = begin(lane, "first")
    await turns()
    executor.given[0][0].set_running_or_notify_cancel()

    first.cancel()
    second = begin(lane, "second")
    await turns()
    assert len(executor.given) == 1
    executor.run_next()
    await turns()
    executor.run_next()

    assert await second == "second"


@pytest.mark.parametrize("waits", [True, False], ids=["while-it-waits", "at-its-turn"])
async def test_a_caller_that_is_cancelled_takes_no_turn(waits):
    executor = Later()
    lane = Lane(executor, 1)
    first, cancelled, last = (begin(lane, name) for name in ("first", "cancelled", "last"))
    await turns()

    if waits:
        cancelled.cancel()
        await turns()
    executor.run_next()
    await first
    if not waits:
        cancelled.cancel()
    await turns()
    while executor.given:
        executor.run_next()
        await turns()

    assert await last == "last"


async def test_a_worker_that_cannot_begin_is_free_again():
    class Closed(Later):
        def submit(self, fn, /, *args, **kwargs):
            raise RuntimeError("closed")

    lane = Lane(Closed(), 1)

    for _ in range(2):
        with pytest.raises(RuntimeError, match="closed"):
            await asyncio.wait_for(lane.run(lambda: None), 5)


def test_a_namespace_gets_its_time_back():
    clock = Ticking()
    time = LoopTime(clock.monotonic)

    time.take("a", MOST_SECONDS)
    assert not time.is_left("a")
    assert time.is_left("b")
    clock.seconds += 0.1
    assert time.is_left("a")


def test_reviews_that_end_soon_are_free():
    time = LoopTime(Ticking().monotonic)

    for _ in range(1_000):
        time.take("a", FREE_SECONDS)

    assert time.is_left("a")


def test_the_number_of_known_namespaces_is_bounded():
    time = LoopTime(Ticking().monotonic)

    for number in range(MOST_NAMESPACES + 1):
        time.take(str(number), MOST_SECONDS)

    assert time.is_left("0")
    assert not time.is_left("1")
