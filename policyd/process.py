"""Long-running processes: their event loop, their end by a signal, their error messages."""

import asyncio
import ctypes
import gc
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

from policyd.program import GARBAGE, INTERRUPTED, in_words

if sys.platform == "win32":
    from asyncio import new_event_loop
else:
    from uvloop import new_event_loop

T = TypeVar("T")

_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1
"""As glibc's `mallopt` numbers them."""

KEPT_BYTES = 1 << 20
"""Smaller blocks stay with the process when freed. uvloop allocates 256 KiB for each read
of TLS, which glibc would have from the kernel and give back each time: 10 µs a read."""

LOADING_STACK_BYTES: Final = 64 * 1024 * 1024
"""Room for the stack of a thread that loads policies: an expression may nest as deep as the
language allows, and some systems give a thread 128 KiB."""


def run(
    main: Callable[[asyncio.Event], Coroutine[Any, Any, None]], *, keep_buffers: bool = True
) -> None:
    """Run `main` until it ends; the first signal sets the event it is given, the second cancels it.

    A PolicydError ends the process with one sentence, a hint, and exit code 2; a second signal
    with exit code 130, as a shell expects of an interrupted process, and so does a StoppedError.

    Args:
        main: The program.
        keep_buffers: Whether freed buffers stay with the process: faster, and some megabytes more.
    """
    gc.set_threshold(GARBAGE)
    if keep_buffers:
        _keep_buffers()
    with in_words(), asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            runner.run(_until_signalled(main))
        except (asyncio.CancelledError, StoppedError):
            sys.exit(INTERRUPTED)


class StoppedError(Exception):
    """Work was stopped before its end."""


async def unless_stopped(stop: asyncio.Event, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of work that may end anywhere, as it writes nothing.

    Args:
        stop: Ends the work.
        work: The work.

    Raises:
        StoppedError: If the event was set before the end of the work.
    """
    working, stopping = asyncio.create_task(work), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        if stop.is_set():
            raise StoppedError
        return await working
    finally:
        for task in (working, stopping):
            task.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


def _keep_buffers() -> None:
    with suppress(OSError, AttributeError):  # not glibc
        allocator = ctypes.CDLL(None)
        allocator.mallopt(_MMAP_THRESHOLD, KEPT_BYTES)
        allocator.mallopt(_TRIM_THRESHOLD, 16 * KEPT_BYTES)


def give_memory_back() -> None:
    """Give memory that was freed back to the system, after work that needed much of it."""
    with suppress(OSError, AttributeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)


def loading_thread() -> ThreadPoolExecutor:
    """Return an executor of one thread, with room on its stack to load policies."""
    before = threading.stack_size(LOADING_STACK_BYTES)
    try:
        made = ThreadPoolExecutor(max_workers=1, thread_name_prefix="loading")
        made.submit(int).result()  # the thread begins now, while the size counts
    finally:
        threading.stack_size(before)
    return made


def keep_for_good() -> None:
    """Leave all existing objects out of later garbage collections.

    A collection stops everything, and a thousand policies, or the objects of a large cluster, take
    it a tenth of a second.
    """
    gc.collect()
    gc.freeze()


async def _until_signalled(main: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> None:
    stop = asyncio.Event()
    loop, running = asyncio.get_running_loop(), asyncio.current_task()
    assert running is not None, "a coroutine runs in a task"

    def end() -> None:
        if stop.is_set():
            running.cancel()
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    await main(stop)
