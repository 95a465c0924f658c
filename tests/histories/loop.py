"""An event loop in simulated time: the seed chooses what runs next, and nothing else does.

Time goes on only when nothing is ready. There are no threads and no sockets. Every callback
belongs to a simulated process, which may be frozen for a while (as by a slow machine) or be killed:
then nothing of it runs any more, not even what would clean up.
"""

import asyncio
import heapq
import itertools
from contextvars import ContextVar, copy_context
from random import Random

START = 1_767_571_200.0
"""Midnight of 5 January 2026."""


class StuckError(Exception):
    """Much runs and no time goes on, or nothing will ever run."""


class Process:
    """A simulated process: its callbacks, its clock, its life."""

    def __init__(self, loop, name):
        self.loop, self.name = loop, name
        self.alive = True
        self.frozen_until = 0.0
        self.skew = 0.0
        """How far its wall clock is ahead, in seconds."""
        self.parked = []
        self.kept = []
        """Its tasks: a dead one's must not be collected, as that would run their `finally`."""
        self.context = copy_context()
        self.context.run(PROCESS.set, self)

    def now(self):
        """Return its wall clock, in seconds since the epoch."""
        return START + self.loop.time() + self.skew

    def monotonic(self):
        """Return seconds that only go forward."""
        return self.loop.time()

    def start(self, work):
        """Run a coroutine in this process."""
        task = self.loop.create_task(work, context=self.context.copy())
        self.kept.append(task)
        return task

    def kill(self):
        """Let nothing of it run any more."""
        self.alive = False
        self.parked.clear()

    def freeze(self, seconds):
        """Let nothing of it run for so many seconds; then it goes on, and knows nothing of it."""
        self.frozen_until = self.loop.time() + seconds
        self.loop.call_at(self.frozen_until, self._thaw, context=THE_WORLD)

    def _thaw(self):
        if self.frozen_until <= self.loop.time():
            self.loop._ready.extend(self.parked)
            self.parked.clear()


THE_WORLD = copy_context()
"""Of callbacks that belong to no process."""

PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)


class _Numbered:
    """Is hashed by a number, so that sets have the same order in each run."""

    def __hash__(self):
        return self.number


class _Future(_Numbered, asyncio.Future):
    __slots__ = ("number",)


class _Task(_Numbered, asyncio.Task):
    __slots__ = ("number",)

    def __init__(self, *given, number, **named):
        self.number = number
        super().__init__(*given, **named)


class SimulatedLoop(asyncio.BaseEventLoop):
    """Runs what is ready in an order that the seed chooses.

    Args:
        seed: Chooses the order.
        most_turns: Callbacks that may run without time going on: more is a busy loop.
        most: Callbacks that may run in all: more is something that has no end.
    """

    def __init__(self, seed, *, most_turns=100_000, most=float("inf")):
        super().__init__()
        self._ready = []
        self._choose = Random(seed).random
        self._elapsed = 0.0
        self._most_turns, self._most = most_turns, most
        self._turns = 0
        self._numbers = itertools.count()
        self._order = itertools.count()
        self.over = False
        """Set at the end: what is collected afterwards can begin nothing."""
        self.callbacks = 0
        self.errors = []
        """Contexts of errors that no task has handled."""
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._note_error)
        self.call_soon_threadsafe = self.call_soon

    def _make_task(self, loop, work, **named):
        return _Task(work, loop=loop, number=next(self._numbers), **named)

    def _note_error(self, _loop, context):
        if not self.over:
            self.errors.append(context)

    def create_future(self):
        future = _Future(loop=self)
        future.number = next(self._numbers)
        return future

    def time(self):
        return self._elapsed

    def call_soon(self, callback, *args, context=None):
        handle = asyncio.Handle(callback, args, self, context)
        if not self.over:
            self._ready.append(handle)
        return handle

    def call_later(self, delay, callback, *args, context=None):
        return self.call_at(self._elapsed + delay, callback, *args, context=context)

    def call_at(self, when, callback, *args, context=None):
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, (when, next(self._order), handle))
        handle._scheduled = True
        return handle

    def _timer_handle_cancelled(self, _handle):
        """Do nothing: cancelled timers are dropped when their time comes."""

    def run_in_executor(self, _executor, function, *args):
        """Run it at once: what a thread would do takes no time, and no turn of others."""
        future = self.create_future()
        try:
            future.set_result(function(*args))
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        return future

    def _run_once(self):
        ready = self._ready
        if not ready:
            self._go_on()
        self._turns += 1
        if self._turns > self._most_turns:
            raise StuckError(f"{self._turns} callbacks at {self._elapsed:.3f} s: {self._samples()}")
        if len(ready) > 1:
            at = int(self._choose() * len(ready))
            ready[at], ready[-1] = ready[-1], ready[at]
        handle = ready.pop()
        if handle._cancelled:
            return
        process = handle._context.get(PROCESS)
        if process is not None and (not process.alive or process.frozen_until > self._elapsed):
            if process.alive:
                process.parked.append(handle)
            return
        self.callbacks += 1
        if self.callbacks > self._most:
            raise StuckError(f"{self._most} callbacks until {self._elapsed:.0f} s, and no end")
        handle._run()

    def _go_on(self):
        """Let time pass until something is due."""
        due = self._scheduled
        while due and due[0][2]._cancelled:
            heapq.heappop(due)
        if not due:
            raise StuckError("nothing will ever happen again")
        self._elapsed = max(self._elapsed, due[0][0])
        self._turns = 0
        while due and due[0][0] <= self._elapsed:
            handle = heapq.heappop(due)[2]
            if not handle._cancelled:
                self._ready.append(handle)

    def _samples(self):
        return "; ".join(repr(handle)[:120] for handle in self._ready[:4])

    def _process_events(self, _events):
        """There are no sockets."""

    def _write_to_self(self):
        """There is no selector to wake."""

    async def shutdown_default_executor(self, _timeout=None):
        """There are no threads."""
