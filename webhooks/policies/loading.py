"""Policies are loaded beside reviews, in a thread of their own, and put in force as a whole.

Reviews go on with what was in force until then. Of each policy the newest state alone is loaded,
however often it changes; namespaces take turns, so that nobody waits for all that another writes;
and after each policy there is a rest by what it took, so that reviews have most of the machine.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NoReturn, Protocol, TypeVar

import structlog

from policyd.api.meta import ObjectMeta
from policyd.errors import PolicydError
from policyd.kube.changes import Added, Change, Deleted, Modified
from policyd.kube.pace import RESTS, Pace
from webhooks.policies.in_force import PoliciesInForce

STACK_BYTES: Final = 64 * 1024 * 1024
"""Room for the stack of the thread: an expression may nest as deep as the language allows, and some
systems give a thread 128 KiB."""

LONGEST_REST: Final = 10.0
"""Seconds to rest after a policy, at most."""

SHOWN_SECONDS: Final = 1.0
"""How often, at most, what was loaded is put in force while there is more to load."""

T = TypeVar("T")
Take = Callable[[Any, Any], None]
"""Takes over an object: as it was, and as it is."""

log = structlog.get_logger(__name__)


class LoadedObject(Protocol):
    """An object of the API server."""

    @property
    def metadata(self) -> ObjectMeta:
        """Its name, and its namespace."""
        ...


_Key = tuple[Take, str, str]
"""What takes an object over, of which kind that is, and its name."""

_Change = tuple[LoadedObject | None, LoadedObject | None]
"""What became of an object since it was taken over: as it was then, and as it is."""


class Loading:
    """Loads policies in a thread of its own.

    Args of the constructor:
        policies: What they are put in force in.
        pace: Time.
    """

    def __init__(self, policies: PoliciesInForce, *, pace: Pace) -> None:
        self._policies = policies
        self._pace = pace
        self._waiting: dict[str, dict[_Key, _Change]] = {}
        self._reads: dict[str, Callable[[], None]] = {}
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_open = False
        self._thread = _one_thread()
        policies.beside = True

    def taking(
        self, take: Take, kind: Callable[[Any], str] = lambda _: ""
    ) -> Callable[[Change[LoadedObject]], None]:
        """Return what notes a change of an object, for `take` to be called in the thread.

        Args:
            take: Takes over an object: as it was when it was taken last, and as it is.
            kind: Returns what tells it from others of its name that are taken alike.
        """

        def note(change: Change[LoadedObject]) -> None:
            key = take, kind(change.object), change.object.metadata.name
            match change:
                case Added(new):
                    self._note(key, None, new)
                case Modified(old, new):
                    self._note(key, old, new)
                case Deleted(old):
                    self._note(key, old, None)

        return note

    def read(self, name: str, read: Callable[[], None]) -> None:
        """Have something read in the thread, once however often that is asked for meanwhile."""
        self._reads[name] = read
        self._wake()

    async def first(self, read: Callable[[], None]) -> None:
        """Read something in the thread before anything is reviewed.

        Raises:
            PolicydError: If it cannot be read.
        """
        await asyncio.get_running_loop().run_in_executor(self._thread, read)
        self._wake()

    async def settled(self) -> None:
        """Wait until all that was noted is in force. From now on, reviews come first."""
        await self._idle.wait()
        self._is_open = True

    async def run(self) -> NoReturn:
        """Load what is noted, until cancelled."""
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                await self._load_all()
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _note(self, key: _Key, old: LoadedObject | None, new: LoadedObject | None) -> None:
        given = new or old
        assert given is not None, "a change has an object before or after it"
        of_namespace = self._waiting.setdefault(given.metadata.namespace, {})
        before = of_namespace.pop(key, None)
        change = old if before is None else before[0], new
        if change != (None, None):  # else it came and went again
            of_namespace[key] = change
        if not of_namespace:
            del self._waiting[given.metadata.namespace]
        self._wake()

    def _wake(self) -> None:
        self._idle.clear()
        self._woken.set()

    def _next(self) -> Callable[[], None] | None:
        """Return what is next, of the namespace that waited the longest; None if nothing is."""
        if self._reads:
            return self._reads.pop(next(iter(self._reads)))
        if not self._waiting:
            return None
        namespace = next(iter(self._waiting))
        changes = self._waiting.pop(namespace)
        key = next(iter(changes))
        old, new = changes.pop(key)
        if changes:
            self._waiting[namespace] = changes  # at the end: the others come first
        return partial(key[0], old, new)

    async def _load_all(self) -> None:
        """Load what is noted, and put it in force at the end, and from time to time."""
        shown, assembling = self._pace.clock.monotonic(), 0.0
        while not self._idle.is_set():
            began = self._pace.clock.monotonic()
            work = self._next()
            if work is not None:
                await self._do(work)
            is_due = began - shown >= max(SHOWN_SECONDS, RESTS * assembling)
            if not (self._waiting or self._reads) or (self._is_open and is_due):
                assembling = await self._put_in_force()
                shown = self._pace.clock.monotonic()
            if self._is_open:
                await self._pace.rest(began, most=LONGEST_REST)
            if not (self._waiting or self._reads):
                self._idle.set()

    async def _put_in_force(self) -> float:
        """Put together what was loaded, in the thread, and put it in force; return what it took."""
        began = self._pace.clock.monotonic()
        assembled = await self._do(self._policies.assemble)
        if assembled is not None:
            self._policies.put_in_force(assembled)
        return self._pace.clock.monotonic() - began

    async def _do(self, work: Callable[[], T]) -> T | None:
        """Do something in the thread; return None if it goes wrong, which is logged."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        except PolicydError as error:
            log.warning("change_refused", reason=str(error), hint=error.hint)
        except Exception:  # a bug, which must not end what loads the others
            log.exception("change_not_loaded")
        return None


def _one_thread() -> ThreadPoolExecutor:
    """Return a thread with room on its stack, which begins to run at once."""
    before = threading.stack_size(STACK_BYTES)
    try:
        made = ThreadPoolExecutor(max_workers=1, thread_name_prefix="loading")
        made.submit(int).result()
    finally:
        threading.stack_size(before)
    return made
