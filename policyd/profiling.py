"""Profiles of a running process over HTTP, at the paths of Go's pprof.

Profiles name functions, types and threads, and contain no values. One is taken at a time, and each
has a limit. Processor time is charged to the stack that a thread has when it is looked at.
"""

import asyncio
import gc
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

import structlog
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from policyd.clock import Clock, SystemClock
from policyd.connections import Bounds, Listening
from policyd.errors import ConfigurationError
from policyd.serving import served

log = structlog.get_logger()

Take = Callable[[Request], Awaitable[str]]
"""Takes a profile, and returns its text.

Raises ValueError if the request asks for what is not to be had."""

BOUNDS: Final = Bounds(connections=8, first=10.0, body=5.0)
"""Of the connections to these paths: a person and a tool."""

LOOPBACK: Final = "127.0.0.1"
DEFAULT_SECONDS: Final = 30
MOST_SECONDS: Final = 60
PAUSE_SECONDS: Final = 0.01
"""Between two looks at all threads."""

MOST_STACKS: Final = 10_000
DEEPEST: Final = 128
MOST_TYPES: Final = 200
MOST_TASKS: Final = 10_000
BATCH: Final = 20_000
"""How many objects are counted before other work has its turn."""

_THREADS: Final = Path("/proc/self/task")
_OTHERS: Final = "(other stacks)"
_INDEX: Final = f"""\
/debug/pprof/profile?seconds={DEFAULT_SECONDS}  microseconds of processor time by stack, folded
/debug/pprof/heap  objects by type, with their own bytes
/debug/pprof/goroutine  stacks of all threads and tasks
"""


@asynccontextmanager
async def profiles(address: str) -> AsyncIterator[int | None]:
    """Serve profiles while the block runs; give the port, None if they are not served.

    Args:
        address: `pprofBindAddress` of Kueue's Configuration. Without a host, only the machine
            itself, or the pod, can connect.

    Raises:
        ConfigurationError: If it is not an address, or its port is taken.
    """
    found = address_of(address)
    if found is None:
        yield None
        return
    host, port = found
    app, listening = create_profiling_app(SystemClock()), Listening(bounds=BOUNDS)
    serving = served(app, listening, host=host, port=port, option="pprofBindAddress")
    async with serving as given:
        log.info("profiles_served", host=host, port=given)
        yield given


def address_of(text: str) -> tuple[str, int] | None:
    """Return the host and port to listen on; None if profiles are not to be served.

    Raises:
        ConfigurationError: If it is not an address.
    """
    if text in {"", "0"}:
        return None
    host, colon, port = text.rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    bracketed = host == f"[{bare}]"
    number = int(port) if port.isascii() and port.isdigit() and len(port) < 6 else 1 << 16
    if (
        not colon
        or number >= 1 << 16
        or any(each in host for each in "/ ")
        or (":" in bare and not bracketed)
    ):
        raise ConfigurationError(
            f"`pprofBindAddress` is `{text}`, which is not an address",
            hint="write `HOST:PORT`, or `:6060` for connections from the machine itself only",
        )
    return bare or LOOPBACK, number


def create_profiling_app(clock: Clock) -> Starlette:
    """Return the application with the paths of profiles."""

    async def profile(request: Request) -> str:
        seconds, stop = _seconds_of(request), threading.Event()
        try:
            return await asyncio.to_thread(cpu_profile, seconds, clock, stop)
        finally:
            stop.set()

    async def heap(_request: Request) -> str:
        return await heap_summary()

    async def stacks(_request: Request) -> str:
        return "\n\n".join((*_thread_stacks(), *_task_stacks())) + "\n"

    async def index(_request: Request) -> Response:
        return PlainTextResponse(_INDEX)

    busy = asyncio.Lock()
    taken = {"profile": profile, "heap": heap, "goroutine": stacks}
    return Starlette(
        routes=[
            Route("/debug/pprof/", index),
            *(Route(f"/debug/pprof/{name}", _alone(take, busy)) for name, take in taken.items()),
        ]
    )


def _alone(take: Take, busy: asyncio.Lock) -> Callable[[Request], Awaitable[Response]]:
    """Return a handler that refuses while another profile is being taken."""

    async def answer(request: Request) -> Response:
        if busy.locked():
            return PlainTextResponse(
                "another profile is being taken: try again once it has ended\n", 429
            )
        async with busy:
            try:
                return PlainTextResponse(await take(request))
            except ValueError as error:
                return PlainTextResponse(f"{error}\n", 400)

    return answer


def _seconds_of(request: Request) -> float:
    text = request.query_params.get("seconds", str(DEFAULT_SECONDS))
    if not (text.isascii() and text.isdigit() and len(text) < 4 and 0 < int(text) <= MOST_SECONDS):
        raise ValueError(
            f"`seconds` is `{text[:40]}`: give a whole number from 1 to {MOST_SECONDS}"
        )
    return float(text)


def cpu_profile(seconds: float, clock: Clock, stop: threading.Event) -> str:
    """Sample where processor time goes; return lines of a stack and its microseconds, folded.

    Args:
        seconds: For how long.
        clock: The clock.
        stop: Ends it early.

    Raises:
        ValueError: If the system does not count the time of threads.
    """
    spent: Counter[str] = Counter()
    before, end, own = _nanoseconds(), clock.monotonic() + seconds, threading.get_ident()
    while clock.monotonic() < end and not stop.wait(PAUSE_SECONDS):
        now, frames = _nanoseconds(), sys._current_frames()  # noqa: SLF001 - it is documented
        for thread in threading.enumerate():
            ident, frame = thread.ident, frames.get(thread.ident or 0)
            if frame is None or ident is None or ident == own:
                continue
            used = now.get(ident, 0) - before.get(ident, 0)
            if used > 0:
                stack = ";".join((_plain(thread.name), *_stack(frame)))
                known = stack in spent or len(spent) < MOST_STACKS
                spent[stack if known else _OTHERS] += used
        del frames
        before = now
    return "".join(f"{stack} {ns // 1000}\n" for stack, ns in spent.most_common() if ns >= 1000)


def _nanoseconds() -> dict[int, int]:
    """Return the processor time of each thread so far, by its identity."""
    found = {}
    for thread in threading.enumerate():
        if thread.ident is None:
            continue
        try:
            text = (_THREADS / str(thread.native_id) / "schedstat").read_text()
        except FileNotFoundError:
            continue  # it has just ended
        found[thread.ident] = int(text.split()[0])
    if not found:
        raise ValueError(f"this system does not count the processor time of threads in {_THREADS}")
    return found


def _stack(frame: FrameType | None) -> list[str]:
    """Return the functions of a stack, the outermost first; of a deep one, the innermost."""
    found: list[str] = []
    while frame is not None and len(found) < DEEPEST:
        found.append(_function(frame.f_code))
        frame = frame.f_back
    return found[::-1]


def _function(code: CodeType) -> str:
    path = "/".join(Path(code.co_filename).parts[-3:])
    return _plain(f"{path}:{code.co_firstlineno}:{code.co_qualname}")


def _plain(text: str) -> str:
    """Return a name without what separates names in a profile."""
    return "".join("_" if each in "; " or not each.isprintable() else each for each in text)


async def heap_summary() -> str:
    """Return the number and bytes of objects by type, of those that may refer to others."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    objects = gc.get_objects()
    total = len(objects)
    while objects:
        for each in objects[-BATCH:]:
            kind = type(each)
            name = f"{kind.__module__}.{kind.__qualname__}"
            counts[name] += 1
            sizes[name] += sys.getsizeof(each, 0)
        del objects[-BATCH:]
        await asyncio.sleep(0)
    lines = [f"{sizes[name]:>14,}  {counts[name]:>10,}  {name}" for name, _ in sizes.most_common()]
    head = [f"{total:,} objects, {sum(sizes.values()):,} bytes", "         bytes       count  type"]
    return "\n".join((*head, *lines[:MOST_TYPES])) + "\n"


def _thread_stacks() -> Iterator[str]:
    frames = sys._current_frames()  # noqa: SLF001 - it is documented
    for thread in threading.enumerate():
        lines = _stack(frames.get(thread.ident or 0))
        yield "\n    ".join((f"thread {_plain(thread.name)}", *lines[::-1]))


def _task_stacks() -> Iterator[str]:
    tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    for task in tasks[:MOST_TASKS]:
        lines = [_function(frame.f_code) for frame in task.get_stack(limit=DEEPEST)]
        name = getattr(task.get_coro(), "__qualname__", "")
        yield "\n    ".join((f"task {_plain(task.get_name())} {_plain(name)}", *lines[::-1]))
    if len(tasks) > MOST_TASKS:
        yield f"and {len(tasks) - MOST_TASKS} more tasks"
