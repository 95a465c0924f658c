"""Policies are loaded beside reviews, in a thread of their own, and put in force as a whole.

Reviews use the policies in force until then. Of each policy the newest state alone is loaded,
however often it changes; namespaces take turns, so that none waits for all that another writes;
and a rest in proportion follows each policy, so that reviews have most of the processor.
"""

import asyncio
from collections.abc import Callable
from typing import Final, NoReturn, TypeVar

import structlog

from policyd.errors import PolicydError
from policyd.kube.pace import RESTS, Pace
from policyd.process import loading_thread
from webhooks.policies.in_force import PoliciesInForce
from webhooks.policies.stored import PolicyKey

LONGEST_REST: Final = 10.0
"""Seconds to rest after a policy, at most."""

SHOWN_SECONDS: Final = 1.0
"""How often, at most, loaded policies are put in force while there is more to load."""

T = TypeVar("T")

log = structlog.get_logger(__name__)


class Loading:
    """Loads policies in a thread of its own.

    Args of the constructor:
        policies: Where they are put in force.
        pace: Time.
    """

    def __init__(self, policies: PoliciesInForce, *, pace: Pace) -> None:
        self._policies = policies
        self._pace = pace
        self._waiting: dict[str, dict[PolicyKey, Callable[[], None]]] = {}
        self._woken = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_open = False
        self._thread = loading_thread()
        policies.beside = True

    def note(self, key: PolicyKey, load: Callable[[], None]) -> None:
        """Have a policy loaded in the thread, in the place of an earlier call for the same key."""
        of_namespace = self._waiting.setdefault(key.namespace, {})
        of_namespace.pop(key, None)
        of_namespace[key] = load
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
        """Load the noted policies, until cancelled."""
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                await self._load_all()
        finally:
            self._thread.shutdown(wait=False, cancel_futures=True)

    def _wake(self) -> None:
        self._idle.clear()
        self._woken.set()

    def _next(self) -> Callable[[], None] | None:
        """Return the next load, of the namespace that waited the longest; None if there is none."""
        if not self._waiting:
            return None
        namespace = next(iter(self._waiting))
        noted = self._waiting.pop(namespace)
        load = noted.pop(next(iter(noted)))
        if noted:
            self._waiting[namespace] = noted  # at the end: the others come first
        return load

    async def _load_all(self) -> None:
        """Load the noted policies, and put them in force at the end, and from time to time."""
        shown, assembling = self._pace.clock.monotonic(), 0.0
        while not self._idle.is_set():
            began = self._pace.clock.monotonic()
            load = self._next()
            if load is not None:
                await self._do(load)
            is_due = began - shown >= max(SHOWN_SECONDS, RESTS * assembling)
            if not self._waiting or (self._is_open and is_due):
                assembling = await self._put_in_force()
                shown = self._pace.clock.monotonic()
            if self._is_open:
                await self._pace.rest(began, most=LONGEST_REST)
            if not self._waiting:
                self._idle.set()

    async def _put_in_force(self) -> float:
        """Assemble the loaded policies in the thread, and put them in force; return the seconds."""
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
        except Exception:  # a bug, which must not keep others from being loaded
            log.exception("change_not_loaded")
        return None
