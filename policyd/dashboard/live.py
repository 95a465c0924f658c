"""Changes of views, sent to browsers as they happen: server-sent events.

All viewers of one view, scope and query share a channel. It renders once for all of them, and only
while there are some; it sends a fragment only if it has changed. A viewer that does not take what
is sent is let go: the browser connects again, and gets the current state.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from math import ceil
from operator import attrgetter
from typing import Final

import structlog

from policyd.dashboard.access import Identity
from policyd.errors import PolicydError
from policyd.kube.pace import Pace

APART_SECONDS: Final = 2.0
"""Between the moments at which channels render, all of them at the same ones: what the first of
them reads anew is what the others show."""
LONGEST_APART_SECONDS: Final = 30.0
"""Between two renderings of a channel that takes long."""
BEAT_SECONDS: Final = 15.0
"""After which something is sent in any case, so that a connection that broke shows."""
MOST_WAITING: Final = 8
"""Messages that a viewer may not have taken yet."""
PIECE_BYTES: Final = 8 * 1024
"""What is handed to a connection at once: it keeps a copy until the browser has taken it."""
MOST_VIEWERS: Final = 512
MOST_CHANNELS: Final = 64
"""Different views, scopes and queries at a time; others are not updated by themselves."""
MOST_VIEWERS_OF_ONE: Final = 32
MOST_CHANNELS_OF_ONE: Final = 12
"""Of one user, so that no user can take those of others."""
MOST_VIEWERS_OF_A_TEAM: Final = 128
MOST_CHANNELS_OF_A_TEAM: Final = 24
"""Of all service accounts of a namespace."""

log = structlog.get_logger()

Render = Callable[[], Awaitable[Mapping[str, str]]]
"""Returns the fragments of a view by the ids of the elements that they are in."""


class TooManyViewersError(PolicydError):
    """There is no room for another viewer."""


class Viewer:
    """A browser that is sent changes, of a user."""

    def __init__(self, user: Identity) -> None:
        self.user = user
        self.messages: asyncio.Queue[bytes | None] = asyncio.Queue(MOST_WAITING)

    def send(self, message: bytes) -> bool:
        """Send a message; tell whether there was room for it. If not, it is the end."""
        try:
            self.messages.put_nowait(message)
        except asyncio.QueueFull:
            self.end()
            return False
        return True

    def end(self) -> None:
        """End: what has not been taken is dropped."""
        while not self.messages.empty():
            self.messages.get_nowait()
        self.messages.put_nowait(None)


class Channel:
    """What is sent to all viewers of the same."""

    def __init__(self, pace: Pace) -> None:
        self.viewers: dict[Viewer, Render] = {}
        self._pace = pace
        self._sent: dict[str, str] = {}

    async def run(self) -> None:
        """Send changes while there are viewers."""
        while self.viewers:
            began = self._pace.clock.monotonic()
            try:
                # With the rights of one of them: all have the same.
                fragments = await next(iter(self.viewers.values()))()
            except PolicydError as error:
                self._publish(_message("problem", {"text": str(error)}))
            else:
                for name, html in fragments.items():
                    if self._sent.get(name) != html:
                        self._sent[name] = html
                        self._publish(_message("fragment", {"id": name, "html": html}))
            await self._pace.sleep(self._rest(began))

    def _rest(self, began: float) -> float:
        """Return the seconds until the channel renders again, after a rendering."""
        rest = self._pace.rest_after(began, most=LONGEST_APART_SECONDS)
        now = self._pace.clock.monotonic()
        next_ = max(round(began / APART_SECONDS) + 1, ceil((now + rest) / APART_SECONDS))
        return next_ * APART_SECONDS - now

    def join(self, viewer: Viewer, render: Render) -> None:
        """Add a viewer, and send it all that is known: what it has may be older."""
        self.viewers[viewer] = render
        for name, html in self._sent.items():
            viewer.send(_message("fragment", {"id": name, "html": html}))

    def _publish(self, message: bytes) -> None:
        for viewer in [*self.viewers]:
            if not viewer.send(message):
                del self.viewers[viewer]


def _message(event: str, data: Mapping[str, str]) -> bytes:
    return f"event: {event}\ndata: {json.dumps(data)}\n\n".encode()


class Hub:
    """The channels."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._channels: dict[Hashable, Channel] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def viewers(self) -> int:
        """How many browsers are sent changes."""
        return sum(len(each.viewers) for each in self._channels.values())

    def changes(
        self, key: Hashable, user: Identity, render: Render, still: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[bytes | memoryview]:
        """Return server-sent events until the viewer may not see them any more.

        Args:
            key: The same for viewers who see the same.
            user: The viewer.
            render: Renders that.
            still: Tells whether this viewer may see it; asked again every now and then.

        Raises:
            TooManyViewersError: If there is no room for another one.
        """
        # Once an answer has begun, it cannot become an error any more.
        self._check_room(key, user)
        return self._changes(key, Viewer(user), render, still)

    async def _changes(
        self, key: Hashable, viewer: Viewer, render: Render, still: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[bytes | memoryview]:
        try:
            channel = self._join(key, render, viewer)
        except TooManyViewersError:  # others were faster
            return
        try:
            yield b"retry: 3000\n\n"
            while await still():
                async for message in self._messages(viewer):
                    for start in range(0, len(message), PIECE_BYTES):
                        yield memoryview(message)[start : start + PIECE_BYTES]
                if viewer not in channel.viewers:
                    return
            yield _message("end", {})
        finally:
            channel.viewers.pop(viewer, None)

    async def _messages(self, viewer: Viewer) -> AsyncIterator[bytes]:
        """Yield messages until the next beat, or the end."""
        ends = self._pace.clock.monotonic() + BEAT_SECONDS
        while (left := ends - self._pace.clock.monotonic()) > 0:
            try:
                message = await self._pace.within(left, viewer.messages.get())
            except TimeoutError:
                break
            if message is None:
                return
            yield message
        yield b": \n\n"

    def _check_room(self, key: Hashable, user: Identity) -> None:
        full = self.viewers >= MOST_VIEWERS
        no_more = key not in self._channels and len(self._channels) >= MOST_CHANNELS
        for of, viewers, channels in (
            (attrgetter("name"), MOST_VIEWERS_OF_ONE, MOST_CHANNELS_OF_ONE),
            (attrgetter("team"), MOST_VIEWERS_OF_A_TEAM, MOST_CHANNELS_OF_A_TEAM),
        ):
            found = Counter(
                name
                for name, channel in self._channels.items()
                for each in channel.viewers
                if of(each.user) == of(user)
            )
            full = full or found.total() >= viewers
            no_more = no_more or (key not in found and len(found) >= channels)
        if full:
            raise TooManyViewersError("too many browsers are sent changes already")
        if no_more:
            raise TooManyViewersError("too many different views are sent changes already")

    def _join(self, key: Hashable, render: Render, viewer: Viewer) -> Channel:
        self._check_room(key, viewer.user)
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = Channel(self._pace)
            channel.join(viewer, render)
            task = asyncio.create_task(self._run(key, channel))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            channel.join(viewer, render)
        return channel

    async def _run(self, key: Hashable, channel: Channel) -> None:
        try:
            await channel.run()
        except Exception:
            log.exception("live_view_failed")
        finally:
            ended, channel.viewers = channel.viewers, {}
            for viewer in ended:
                viewer.end()
            if self._channels.get(key) is channel:
                del self._channels[key]

    async def close(self) -> None:
        """End all channels."""
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
