"""Reviews that take long are decided by workers; all others at once, on the loop."""

import asyncio
import gc
import threading
import weakref
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

import msgspec
import pytest

from policyd.admission.decisions import PendingError
from policyd.admission.handler import HEAVY_BYTES, AdmissionHandler
from policyd.engine.model.deadline import never
from policyd.engine.model.decision import ALLOWED
from policyd.engine.remember.remembering import Remembering
from policyd.testing.clock import FakeClock
from tests.engine.reviews import pod, policies, policy, request
from tests.webhooks.reviews import review
from webhooks.deadlines import Deadlines
from webhooks.external_data.lookups import ExternalAnswer, ExternalLookups
from webhooks.turns import FREE_SECONDS
from webhooks.workers import BRIEF_SECONDS, LOOP_SECONDS, TooLongError, Workers, size_of

pytestmark = pytest.mark.anyio
HEAVY = request({**pod(), "data": "x" * HEAVY_BYTES})
LIGHT = request(pod())


class Later(Executor):
    """Runs what it is given when it is told to."""

    def __init__(self):
        self.given = []

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        self.given.append((future, fn))
        return future

    def run_next(self):
        future, work = self.given.pop(0)
        if future.cancelled():
            return
        try:
            future.set_result(work())
        except BaseException as error:  # noqa: BLE001 - as executors have it
            future.set_exception(error)


class Ticking:
    """A clock that is moved by hand."""

    seconds = 0.0

    def monotonic(self):
        return self.seconds


def workers_of(executor, clock=None, *, busy=True):
    """Return workers of a machine that has nothing else to do, or does not get to this at all."""
    clock = clock or FakeClock()
    return Workers(executor, clock=clock, spent=clock.monotonic if busy else lambda: 0.0)


def taking(clock, seconds):
    """Return a decision that takes so many seconds, and reads the clock in the end."""

    def decide(_request, out_of_time):
        clock.seconds += seconds
        out_of_time()
        return ALLOWED

    return decide


def allow(_request, _out_of_time):
    return ALLOWED


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_light_review_needs_no_worker():
    executor = Later()

    assert await workers_of(executor).decide(allow, LIGHT, never) is ALLOWED
    assert not executor.given


async def test_a_heavy_review_is_decided_by_a_worker_while_others_are_on_the_loop():
    executor = Later()
    workers = workers_of(executor)

    heavy = asyncio.ensure_future(workers.decide(allow, HEAVY, never))
    await turns()
    assert await workers.decide(allow, LIGHT, never) is ALLOWED
    assert not heavy.done()
    executor.run_next()

    assert await heavy is ALLOWED


async def test_long_work_on_the_loop_is_restarted_by_a_worker():
    executor, clock = Later(), Ticking()
    began = []

    def decide(request, out_of_time):
        began.append(request)
        return taking(clock, LOOP_SECONDS * 2)(request, out_of_time)

    deciding = asyncio.ensure_future(workers_of(executor, clock).decide(decide, LIGHT, never))
    await turns()
    executor.run_next()

    assert await deciding is ALLOWED
    assert len(began) == 2


async def test_a_long_review_leaves_the_worker_for_brief_ones():
    executor, clock = Later(), Ticking()
    workers = workers_of(executor, clock)

    decided = [
        asyncio.ensure_future(workers.decide(taking(clock, seconds), LIGHT, never))
        for seconds in (BRIEF_SECONDS * 2, LOOP_SECONDS * 2)
    ]
    await turns()
    assert len(executor.given) == 1  # the worker for brief reviews
    executor.run_next()
    await turns()
    assert len(executor.given) == 2
    executor.run_next()
    executor.run_next()

    assert await asyncio.gather(*decided) == [ALLOWED] * 2


async def test_a_namespace_that_took_its_part_of_the_loop_has_its_reviews_decided_beside():
    executor, clock = Later(), Ticking()
    workers = workers_of(executor, clock)
    of_another = request({**pod(), "metadata": {"name": "a", "namespace": "another"}})

    while not executor.given:
        deciding = workers.decide(taking(clock, LOOP_SECONDS - 0.001), LIGHT, never)
        waiting = asyncio.ensure_future(deciding)
        await turns()
        assert clock.seconds < 1
    assert not waiting.done()
    assert await workers.decide(allow, of_another, never) is ALLOWED
    clock.seconds += 10
    assert await workers.decide(allow, LIGHT, never) is ALLOWED
    executor.run_next()
    await waiting


async def test_a_light_review_of_a_namespace_that_took_its_part_waits_for_no_long_one():
    executor, clock = Later(), Ticking()
    workers = workers_of(executor, clock)
    long = taking(clock, 10 * LOOP_SECONDS)
    waiting = [asyncio.ensure_future(workers.decide(long, LIGHT, never)) for _ in range(4)]
    await turns()

    light = workers.decide(taking(clock, FREE_SECONDS / 2), LIGHT, never)
    assert await asyncio.wait_for(light, 5) is ALLOWED
    assert not any(each.done() for each in waiting)
    for each in waiting:
        each.cancel()


async def test_a_machine_that_does_something_else_meanwhile_has_no_review_begun_twice():
    executor, clock = Later(), Ticking()
    late = []

    def decide(_request, out_of_time):
        clock.seconds += LOOP_SECONDS * 2
        late.append(out_of_time())
        return ALLOWED

    workers = workers_of(executor, clock, busy=False)
    assert await workers.decide(decide, LIGHT, never) is ALLOWED
    out_of_time = iter([False, True]).__next__
    assert await workers.decide(decide, LIGHT, out_of_time) is ALLOWED

    assert late == [False, True]
    assert not executor.given


def test_expressions_end_where_a_review_takes_too_long_on_the_loop():
    """Nothing that policies handle errors with holds it up."""
    text = policy("validations: [{expression: '[1].all(x, true) || true', message: never}]")

    def too_long():
        raise TooLongError

    with pytest.raises(TooLongError):
        policies(text).validate(LIGHT, too_long)


async def test_a_few_heavy_reviews_are_decided_at_a_time():
    executor = Later()
    workers = workers_of(executor)

    deciding = [asyncio.ensure_future(workers.decide(allow, HEAVY, never)) for _ in range(5)]
    await turns()
    assert len(executor.given) == 2
    while not all(each.done() for each in deciding):
        executor.run_next()
        await turns()

    assert [each.result() for each in deciding] == [ALLOWED] * 5


async def test_an_exception_of_a_worker_is_raised():
    def fail(_request, _out_of_time):
        raise ValueError("a bug")

    executor = Later()
    deciding = asyncio.ensure_future(workers_of(executor).decide(fail, HEAVY, never))
    await turns()
    executor.run_next()

    with pytest.raises(ValueError, match="a bug"):
        await deciding


async def test_reading_is_done_by_a_worker_if_there_is_much():
    executor = Later()
    answer = AdmissionHandler(phase="validate", policies=allow, run=workers_of(executor).run).answer
    text = review()
    short, long = text.ljust(HEAVY_BYTES), text.ljust(HEAVY_BYTES + 1)

    assert b'"allowed":true' in await answer(short, never)
    reading = asyncio.ensure_future(answer(long, never))
    await turns()
    executor.run_next()
    await turns()
    assert not reading.done()
    executor.run_next()

    assert b'"allowed":true' in await reading


async def test_questions_of_reviews_that_are_decided_at_once_are_not_confused():
    lookups = ExternalLookups(clock=FakeClock())
    meet = threading.Barrier(2, timeout=10)

    def asking(name):
        async def ask():
            return ExternalAnswer(f"to {name}", 0.0)

        def decide(_request, _out_of_time):
            meet.wait()
            try:
                answered = lookups.answer(name.encode(), ask)
            except PendingError:
                answered = ""
            meet.wait()
            return replace(ALLOWED, warnings=(answered,))

        return decide

    with ThreadPoolExecutor(2) as executor:
        workers = workers_of(executor)
        workers.lookups = lookups
        decisions = await asyncio.gather(
            *(workers.decide(asking(name), HEAVY, never) for name in ("a", "b"))
        )

    assert [decision.warnings for decision in decisions] == [("to a",), ("to b",)]


def test_threads_share_policies_and_what_is_remembered():
    texts = [
        policy("inject: {labels: {a: there}}", name="a"),
        policy("validations: [{expression: 'pod.gpus() < 5', message: many}]", name="b"),
    ]
    together = policies(*texts)
    deciders = [Remembering(together, phase, most=3).decide for phase in ("mutate", "validate")]
    asked = [request(pod(gpus=count)) for count in range(10)]
    wanted = [[decide(each) for each in asked] for decide in deciders]
    wrong = []

    def decide_often():
        for _ in range(30):
            for decide, decisions in zip(deciders, wanted, strict=True):
                for each, decision in zip(asked, decisions, strict=True):
                    found = decide(each)
                    if _messages(found) != _messages(decision):
                        wrong.append((each, found))

    threads = [threading.Thread(target=decide_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def _messages(decision):
    return decision.operations, decision.denials, decision.failures


def test_sizes_are_those_of_both_objects():
    both = msgspec.structs.replace(HEAVY, old_object=HEAVY.object)

    assert size_of(both) == 2 * len(bytes(HEAVY.object)) > 2 * HEAVY_BYTES


async def test_an_error_is_forgotten_at_once_with_all_that_it_is_about():
    seen = []

    class NotedError(Exception):
        def __init__(self):
            seen.append(weakref.ref(self))

    def fail():
        raise NotedError

    gc.disable()
    try:
        with ThreadPoolExecutor(1) as executor:
            for _ in range(3):
                with suppress(NotedError):
                    await Deadlines().within(60, workers_of(executor).run(fail))
    finally:
        gc.enable()

    assert [each() for each in seen[:-1]] == [None, None]  # the loop may hold the last
