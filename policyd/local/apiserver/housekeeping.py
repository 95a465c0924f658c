"""What happens by itself: namespaces, garbage, events that grow old."""

import asyncio
from contextlib import suppress

from policyd.local.apiserver.builtin import EVENTS
from policyd.local.apiserver.garbage import GarbageCollector
from policyd.local.apiserver.namespaces import NamespaceLifecycle
from policyd.local.apiserver.reading.ages import seconds_of
from policyd.local.apiserver.state import ServerState
from policyd.local.apiserver.store import StoreEvent

EVENT_SECONDS = 3600.0
"""How long an event is kept, as on the real server."""

SWEEP_SECONDS = 60.0


class Housekeeping:
    """Follows the store, and works whenever something calls for it."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._garbage = GarbageCollector(state.store, state.clock)
        self._namespaces = NamespaceLifecycle(state.store, state.registry, state.clock)
        self._called = asyncio.Event()
        self._swept_at = state.clock.monotonic()
        state.store.listen(self._notice)

    def _notice(self, event: StoreEvent) -> None:
        garbage = self._garbage.notice(event)
        if garbage or self._namespaces.concerns(event):
            self._called.set()

    def work(self) -> None:
        """Do all there is to do now."""
        self._called.clear()
        self._namespaces.work()
        self._garbage.work()

    async def run(self) -> None:
        """Work until cancelled."""
        self._called.set()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(SWEEP_SECONDS):
                    await self._called.wait()
            # Whoever wrote something is answered first.
            await asyncio.sleep(0)
            self.work()
            if self._state.clock.monotonic() - self._swept_at >= SWEEP_SECONDS:
                self.drop_old_events()

    def drop_old_events(self) -> None:
        """Drop the events that are older than an hour."""
        self._swept_at = self._state.clock.monotonic()
        oldest = self._state.clock.now() - EVENT_SECONDS
        for _, event in self._state.store.items(EVENTS):
            if seconds_of(event["metadata"]["creationTimestamp"]) < oldest:
                self._state.store.remove(EVENTS, event)
