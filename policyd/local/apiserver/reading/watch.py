"""Watching: the changes for one client, filtered, in order, and bounded in number."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from policyd.clock import Clock
from policyd.local.apiserver.status import Object
from policyd.local.apiserver.store import Change, StoreEvent

BACKLOG = 2000
"""Changes that wait for one client; one that is slower than this is cut off, and lists again."""

BOOKMARK_SECONDS = 30.0
"""How often a quiet watch that asked for bookmarks learns the current version."""

Selects = Callable[[Object], bool]


@dataclass(frozen=True, slots=True)
class WatchLine:
    """One line of a watch: a change, or a bookmark (with no object, only a version)."""

    type: str
    object: Object | None
    version: int


class Watcher:
    """The changes that wait to be sent to one client."""

    def __init__(self, selects: Selects) -> None:
        self._selects = selects
        self._waiting: deque[WatchLine] = deque()
        self._changed = asyncio.Event()
        self.closed = False

    def offer(self, event: StoreEvent) -> None:
        """Take a change, if it concerns the client; close when too many wait."""
        change = seen_as(event, self._selects)
        if change is None or self.closed:
            return
        self._waiting.append(notice_of(event, change))
        self.closed = len(self._waiting) > BACKLOG
        self._changed.set()

    def close(self) -> None:
        """End the watch once the waiting changes are sent."""
        self.closed = True
        self._changed.set()

    async def notices(self, seconds: float) -> list[WatchLine]:
        """Return the pending changes, or wait up to `seconds` for one; empty if none came."""
        if not self._waiting and not self.closed:
            self._changed.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                return []
        taken = list(self._waiting)
        self._waiting.clear()
        return taken


def notice_of(event: StoreEvent, change: Change) -> WatchLine:
    """Encode a change; an object that leaves a selection is shown as it was in it."""
    shown = event.object
    if change == "DELETED" and event.type != "DELETED" and event.previous is not None:
        about = {**event.previous["metadata"], "resourceVersion": str(event.version)}
        shown = {**event.previous, "metadata": about}
    return WatchLine(change, shown, event.version)


def seen_as(event: StoreEvent, selects: Selects) -> Change | None:
    """Return the type of a change for a client that gets only objects that `selects` accepts.

    An object that begins to match is new to them, one that ceases to match is gone.
    """
    now = event.type != "DELETED" and selects(event.object)
    before = event.previous is not None and selects(event.previous)
    match (before, now):
        case (False, True):
            return "ADDED"
        case (True, True):
            return "MODIFIED"
        case (True, False):
            return "DELETED"
        case _:
            return None


def changes(events: list[StoreEvent], selects: Selects) -> list[WatchLine]:
    """Return the past changes for a client that gets only objects that `selects` accepts."""
    seen = ((seen_as(event, selects), event) for event in events)
    return [notice_of(event, change) for change, event in seen if change]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchTerms:
    """How long a watch lasts (seconds), and whether the client wants bookmarks."""

    seconds: float
    bookmarks: bool


async def follow(
    watcher: Watcher, terms: WatchTerms, *, clock: Clock, version: Callable[[], int]
) -> AsyncIterator[list[WatchLine]]:
    """Yield batches of changes until the time is up or the watcher is closed."""
    end = clock.monotonic() + terms.seconds
    while (left := end - clock.monotonic()) > 0:
        notices = await watcher.notices(min(left, BOOKMARK_SECONDS))
        if not notices and watcher.closed:
            return
        if notices:
            yield notices
        elif terms.bookmarks:
            yield [WatchLine("BOOKMARK", None, version())]
