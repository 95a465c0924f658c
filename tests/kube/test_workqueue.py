"""The work queue: each key once, one worker a key, failures later and later."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policyd.kube.workqueue import WorkQueue
from policyd.testing import FakeClock

pytestmark = pytest.mark.anyio


def make(**waits):
    clock = FakeClock()
    return WorkQueue(pace=clock.pace(), **waits), clock


async def due(queue, clock):
    """What can be got now, in order, each given back."""
    keys = []
    while True:
        task = asyncio.ensure_future(queue.get())
        await clock.advance(0)
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return keys
        keys.append(task.result())
        queue.done(keys[-1])


async def test_a_key_is_given_out_once_however_often_it_was_added():
    queue, clock = make()
    for key in "abba":
        queue.add(key)

    assert await due(queue, clock) == ["a", "b"]


async def test_a_key_added_while_it_is_worked_on_comes_again_afterwards():
    queue, clock = make()
    queue.add("a")
    key = await queue.get()
    queue.add("a")
    queue.add("a")

    meanwhile = await due(queue, clock)
    queue.done(key)

    assert meanwhile == []
    assert await due(queue, clock) == ["a"]


async def test_keys_come_in_the_order_in_which_they_are_due():
    queue, clock = make()
    queue.add_after("late", 3)
    queue.add_after("soon", 1)
    queue.add("now")

    at_once = await due(queue, clock)
    await clock.advance(5)

    assert at_once == ["now"]
    assert await due(queue, clock) == ["soon", "late"]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        pytest.param(5, 2, [(2, "a")], id="earlier-wins"),
        pytest.param(2, 5, [(2, "a")], id="later-is-ignored"),
        pytest.param(5, 0, [(0, "a")], id="none-is-at-once"),
    ],
)
async def test_a_key_waits_for_the_earliest_of_its_moments(first, second, expected):
    queue, clock = make()
    queue.add_after("a", first)
    queue.add_after("a", second)

    came = []
    for _ in range(8):
        came += [(int(clock.monotonic()), key) for key in await due(queue, clock)]
        await clock.advance(1)

    assert came == expected


async def test_adding_a_key_at_once_makes_its_later_moment_void():
    queue, clock = make()
    queue.add_after("a", 2)
    queue.add("a")

    at_once = await due(queue, clock)
    await clock.advance(3)

    assert at_once == ["a"]
    assert await due(queue, clock) == []


async def test_waits_double_with_each_failure_until_the_key_is_forgotten():
    queue, _ = make(first_wait_seconds=1.0, longest_wait_seconds=6.0)

    waits = [queue.requeue("a") for _ in range(5)]
    failures = queue.failures("a")
    queue.forget("a")

    assert waits == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert failures == 5
    assert (queue.failures("a"), queue.requeue("a")) == (0, 0.5)


async def test_a_waiting_worker_wakes_for_a_new_key_and_for_one_that_falls_due():
    queue, clock = make()
    queue.add_after("later", 10)
    first = asyncio.ensure_future(queue.get())
    await clock.advance(1)
    queue.add("new")
    await clock.advance(0)
    second = asyncio.ensure_future(queue.get())
    await clock.advance(10)

    assert (first.result(), second.result()) == ("new", "later")


async def idle(queue, clock, count):
    """Workers that wait, each until it has a key."""
    workers = [asyncio.ensure_future(queue.get()) for _ in range(count)]
    await clock.advance(0)
    return workers


async def test_of_many_idle_workers_one_alone_looks_at_the_time():
    queue, clock = make()
    workers = await idle(queue, clock, 5)
    queue.add_after("later", 10)
    await clock.advance(0)
    clock.slept.clear()
    for key in "abc":
        queue.add(key)
        await clock.advance(0)
    slept, done = len(clock.slept), sorted(w.result() for w in workers if w.done())
    await clock.advance(10)

    assert (slept, done) == (0, ["a", "b", "c"])
    assert sorted(w.result() for w in workers if w.done()) == ["a", "b", "c", "later"]


async def test_the_time_is_looked_at_by_another_when_who_did_has_a_key():
    queue, clock = make()
    workers = await idle(queue, clock, 2)
    queue.add_after("later", 10)
    queue.add("a")
    queue.add_after("sooner", 5)
    await clock.advance(5)
    last = asyncio.ensure_future(queue.get())
    await clock.advance(5)

    assert {w.result() for w in workers} == {"a", "sooner"}
    assert last.result() == "later"


async def test_a_key_for_which_a_worker_was_woken_that_is_cancelled_goes_to_another():
    queue, clock = make()
    workers = await idle(queue, clock, 3)
    queue.add("a")
    workers[-1].cancel()
    await clock.advance(0)

    assert [w.result() for w in workers[:-1] if w.done()] == ["a"]


async def test_two_workers_never_have_the_same_key():
    queue, clock = make()
    workers = [asyncio.ensure_future(queue.get()) for _ in range(2)]
    await clock.advance(0)
    queue.add("a")
    await clock.advance(0)
    queue.add("a")
    await clock.advance(0)

    assert sorted(worker.done() for worker in workers) == [False, True]
    queue.done("a")
    await clock.advance(0)
    assert [worker.result() for worker in workers] == ["a", "a"]


async def test_swept_keys_take_turns_with_added_ones():
    queue, clock = make()
    queue.sweep("abcd")
    queue.add("x")
    queue.add("y")
    queue.add("d")

    assert await due(queue, clock) == ["a", "x", "b", "y", "c", "d"]


async def test_a_key_that_waits_already_is_not_swept_as_well():
    queue, clock = make()
    queue.add("a")
    queue.add_after("b", 5)
    queue.sweep("abb")

    at_once = await due(queue, clock)
    await clock.advance(9)

    assert at_once == ["b", "a"]
    assert await due(queue, clock) == []


async def test_the_length_counts_what_waits():
    queue, _ = make()
    queue.add("a")
    queue.add_after("b", 5)
    await queue.get()
    queue.add("a")
    queue.sweep("c")

    assert len(queue) == 3


class Model:
    """A queue, and what it owes: each key with the moment from which it may come."""

    def __init__(self):
        self.queue, self.clock = make()
        self.owed = {}
        self.working = []

    async def add(self, key):
        await self.after(key, None)

    async def sweep(self, key):
        self.owed[key] = min(self.owed.get(key, float("inf")), self.clock.monotonic())
        self.queue.sweep([key])

    async def after(self, key, seconds):
        due_at = self.clock.monotonic() + (seconds or 0)
        self.owed[key] = min(self.owed.get(key, due_at), due_at)
        if seconds is None:
            self.queue.add(key)
        else:
            self.queue.add_after(key, seconds)

    async def get(self):
        task = asyncio.ensure_future(self.queue.get())
        await self.clock.advance(0)
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            return False
        key = task.result()
        assert key not in self.working
        assert self.owed.pop(key) <= self.clock.monotonic()
        self.working.append(key)
        return True

    async def done(self):
        if self.working:
            self.queue.done(self.working.pop(0))

    async def wait(self, seconds):
        await self.clock.advance(seconds)


KEYS = st.sampled_from("abc")
STEPS = st.one_of(
    st.tuples(st.just(Model.add), KEYS),
    st.tuples(st.just(Model.sweep), KEYS),
    st.tuples(st.just(Model.after), KEYS, st.integers(0, 5)),
    st.tuples(st.just(Model.get)),
    st.tuples(st.just(Model.done)),
    st.tuples(st.just(Model.wait), st.integers(1, 5)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=30))
def test_added_keys_run_when_due_and_never_twice_at_once(steps):
    async def scenario():
        model = Model()
        for step, *details in steps:
            await step(model, *details)
        while model.working:
            await model.done()
        await model.wait(10)
        while await model.get():
            await model.done()

        assert model.owed == {}

    asyncio.run(scenario())


async def test_ranked_keys_come_by_rank_and_take_turns_with_the_others():
    queue, clock = make()
    for key, rank in (("low", 5), ("high", -9), ("same", 5), ("low", 7), ("rises", 8)):
        queue.add(key, rank=rank)
    queue.add("rises", rank=-10)
    queue.add("high")
    queue.sweep(["low", "w", "x"])
    for key in "ab":
        queue.add(key)

    came = await due(queue, clock)

    assert came == ["w", "rises", "a", "x", "high", "b", "low", "same"]


async def test_a_ranked_key_that_was_worked_on_keeps_its_rank_when_it_comes_again():
    queue, clock = make()
    queue.add("again")
    key = await queue.get()
    queue.add("again", rank=1)
    queue.add("again")
    queue.add("other", rank=2)
    queue.done(key)

    assert await due(queue, clock) == ["again", "other"]
