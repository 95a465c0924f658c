"""The bodies of reviews in memory: so many bytes in all, and of large bodies a few at a time.

A small body takes room as it arrives. Where no room is left, the one that has been arriving for the
longest is given up: an API server sends a small body within milliseconds. A large body waits for
room for all of it, and meanwhile its caller cannot send more; one that has room and does not arrive
while others wait is given up. The caller of such a body gets an answer without a verdict.
"""

import asyncio
import io
from collections import deque
from collections.abc import Callable
from typing import Final

from starlette.types import Receive, Scope

from policyd.admission.unevaluated import HEAD_BYTES
from policyd.api.admission import MAXIMUM_REVIEW_BYTES
from policyd.api.causes import NO_LENGTH, OVERLOADED, SLOW, TOO_LARGE, UnevaluatedCause
from policyd.errors import PolicydError
from webhooks.deadlines import LATE, timeout_seconds

MEBIBYTE: Final = 1024 * 1024
LIGHT_BYTES: Final = MEBIBYTE
"""How long a body may be that takes room as it comes in. Nearly all have a few kilobytes."""

LIGHT_ROOM: Final = 24 * MEBIBYTE
"""Room for all of these together."""

HEAVY_ROOM: Final = max(MAXIMUM_REVIEW_BYTES, 64 * MEBIBYTE)
"""Room for all larger ones together: the largest there may be has it."""

ANSWERS_ROOM: Final = 4 * MEBIBYTE
"""Room for answers that their callers do not take."""

MOST_COMING_IN: Final = 128
"""Bodies that may be coming in at a time, and did not come in at once."""

MOST_WAITING: Final = 32
"""Large bodies that may wait for room."""

TURN_SECONDS: Final = 0.1
TURN_BYTES: Final = 64 * 1024
"""A large body that others wait for has so many bytes to come in, in each such time."""

NO_ROOM: Final = "the webhooks were overloaded with other reviews"
TOO_SLOW: Final = "it arrived too slowly while other reviews were waiting"


class UnreadError(PolicydError):
    """A body is not read to its end.

    Attributes:
        cause: Why not.
    """

    def __init__(self, message: str, cause: UnevaluatedCause) -> None:
        super().__init__(message, hint=cause.advice)
        self.cause = cause


class CallerGoneError(Exception):
    """The caller hung up before its body was complete."""


class Body:
    """The received part of one body."""

    __slots__ = ("_all", "_first", "_room", "give_up", "reserved", "size")

    def __init__(self, room: "BodyBudget") -> None:
        self.size = 0
        self.give_up: Callable[[str], None] = _ignore_reason
        self.reserved = 0
        """Room of a large body, all of it."""
        self._room = room
        self._first = b""
        self._all: io.BytesIO | None = None

    def add(self, piece: bytes) -> None:
        """Take a piece, giving up others if need be, and perhaps this one."""
        self.size += len(piece)
        if self._all is not None:
            self._all.write(piece)
        elif self._first:
            self._all = io.BytesIO()
            self._all.write(self._first)
            self._all.write(piece)
            self._first = b""
        else:
            self._first = piece
        if not self.reserved:
            self._room.took(len(piece))

    def reserve(self, size: int) -> None:
        """Have room for all of a large body at once: one that grows is copied again and again."""
        self.reserved = size
        if self._all is None:
            self._all = io.BytesIO()
            self._all.write(self._first)
            self._first = b""
        if self.size < size:
            self._all.seek(size - 1)
            self._all.write(b"\0")
            self._all.seek(self.size)

    @property
    def head(self) -> bytes:
        """The first bytes."""
        if self._all is None:
            return self._first
        return bytes(self._all.getbuffer()[: min(self.size, HEAD_BYTES)])

    def whole(self) -> bytes:
        """Return all of it, without copying it."""
        return self._first if self._all is None else self._all.getvalue()

    def cut(self, size: int = HEAD_BYTES) -> None:
        """Keep only the first bytes."""
        head = self.head[:size]
        if not self.reserved:
            self._room.took(len(head) - self.size)
        self.size, self._first, self._all = len(head), head, None

    def close(self) -> None:
        """Make room for others; it is empty then."""
        if self.size or self.reserved:
            self._room.left(self)
        self.size, self.reserved = 0, 0
        self._first, self._all = b"", None


class BodyBudget:
    """The room for all bodies of a process."""

    def __init__(self, *, light: int = LIGHT_ROOM, heavy: int = HEAVY_ROOM) -> None:
        self._light = light
        self._heavy = heavy
        self._taken = 0
        self._reserved = 0
        self._coming: dict[Body, None] = {}
        self._slow: dict[Body, tuple[int, int]] = {}  # size at the last look, looks without more
        self._waiting: deque[tuple[Body, int, asyncio.Future[None]]] = deque()
        self._look: asyncio.TimerHandle | None = None
        self._owed: dict[asyncio.Transport, int] = {}
        self._owed_bytes = 0

    @property
    def taken(self) -> int:
        """Bytes that are taken, or kept for large bodies."""
        return self._taken + self._reserved

    @property
    def full(self) -> bool:
        """Whether more is taken than there is for small bodies."""
        return self._taken > self._light

    def took(self, size: int) -> None:
        """Note received or released bytes; if they are too many, drop the oldest body."""
        self._taken += size
        while self._taken > self._light and self._coming:
            next(iter(self._coming)).give_up(NO_ROOM)

    def expect(self, body: Body) -> None:
        """Note that a body did not come in at once; `give_up` is to take it out again."""
        self._coming[body] = None
        if len(self._coming) > MOST_COMING_IN or self.full:
            next(iter(self._coming)).give_up(NO_ROOM)

    def complete(self, body: Body) -> None:
        """Note that a body came in, which keeps its room."""
        if body in self._coming:
            del self._coming[body]
        elif body.reserved:
            self._slow.pop(body, None)

    def left(self, body: Body) -> None:
        """Note that a body is gone."""
        self.complete(body)
        if body.reserved:
            self._reserved -= body.reserved
            self._admit()
        else:
            self._taken -= body.size

    def owe(self, caller: asyncio.Transport, size: int) -> None:
        """Note an answer that its caller has not taken; hang up on the slowest caller."""
        self._owed[caller] = self._owed.get(caller, 0) + size
        self._owed_bytes += size
        while self._owed_bytes > ANSWERS_ROOM:
            oldest = next(iter(self._owed))
            self.taken_by(oldest)
            oldest.abort()

    def taken_by(self, caller: asyncio.Transport) -> None:
        """Note that a caller has taken its answers, or is gone."""
        self._owed_bytes -= self._owed.pop(caller, 0)

    async def reserve(self, body: Body, size: int) -> None:
        """Wait for room for a large body, all of it.

        Raises:
            UnreadError: If too many wait already.
        """
        if self._waiting or self._reserved + size > self._heavy:
            if len(self._waiting) >= MOST_WAITING or size > self._heavy:
                raise UnreadError(NO_ROOM, OVERLOADED)
            waiting = asyncio.get_running_loop().create_future()
            entry = (body, size, waiting)
            self._waiting.append(entry)
            self._watch()
            try:
                await waiting
            except asyncio.CancelledError:
                if entry in self._waiting:
                    self._waiting.remove(entry)
                self._admit()
                raise
        else:
            self._give(body, size)

    def _give(self, body: Body, size: int) -> None:
        self.complete(body)
        self._taken -= body.size
        self._reserved += size
        body.reserve(size)
        self._slow[body] = (body.size, 0)

    def _admit(self) -> None:
        while self._waiting and self._reserved + self._waiting[0][1] <= self._heavy:
            body, size, waiting = self._waiting.popleft()
            if not waiting.done():
                self._give(body, size)
                waiting.set_result(None)

    def _watch(self) -> None:
        if self._look is None:
            loop = asyncio.get_running_loop()
            self._look = loop.call_later(TURN_SECONDS, self._look_through)

    def _look_through(self) -> None:
        """Drop large bodies that keep others waiting, if seen twice: the process may pause."""
        self._look = None
        if not self._waiting:
            return
        for body, (size, looks) in list(self._slow.items()):
            slow = looks + 1 if body.size - size < TURN_BYTES else 0
            self._slow[body] = (body.size, slow)
            if slow > 1:
                body.give_up(TOO_SLOW)
        self._watch()


async def read_body(body: Body, room: BodyBudget, scope: Scope, receive: Receive) -> None:
    """Read a call's body.

    Raises:
        UnreadError: If it is too large, does not come in time, or there is no room for it.
        CallerGoneError: If the caller hung up.
    """
    length, seconds = _length(scope), LATE * timeout_seconds(scope["query_string"])
    reasons: list[str] = []

    def give_up(reason: str) -> None:
        room.complete(body)
        body.cut()
        if not limit.expired():
            reasons.append(reason)
            limit.reschedule(0.0)

    try:
        async with asyncio.timeout(seconds) as limit:
            body.give_up = give_up
            room.expect(body)
            while not reasons and await _more(body, room, receive, length):
                pass
    except TimeoutError:
        if not reasons:
            raise UnreadError(late_body(seconds), SLOW) from None
    finally:
        room.complete(body)
    if room.full and not body.reserved:
        reasons.append(NO_ROOM)
    if reasons:
        raise UnreadError(reasons[0], OVERLOADED)


async def _have_room(body: Body, room: BodyBudget, length: int | None) -> None:
    """Wait for room if a body is large, its head being there.

    Raises:
        UnreadError: If it is too large, or too many wait.
    """
    if length is None and body.size > LIGHT_BYTES:
        raise UnreadError(
            f"the review has more than {LIGHT_BYTES} bytes, and no Content-Length", NO_LENGTH
        )
    if length is not None and length > MAXIMUM_REVIEW_BYTES:
        raise UnreadError(f"the review has more than {MAXIMUM_REVIEW_BYTES} bytes", TOO_LARGE)
    if length is not None and length > LIGHT_BYTES:
        await room.reserve(body, length)


async def _more(body: Body, room: BodyBudget, receive: Receive, length: int | None) -> bool:
    """Read on, and have room for it; tell whether there is more."""
    message = await receive()
    if message["type"] == "http.disconnect":
        raise CallerGoneError
    body.add(message.get("body", b""))
    if body.size >= HEAD_BYTES and not body.reserved:
        await _have_room(body, room, length)
    return bool(message.get("more_body", False))


def _length(scope: Scope) -> int | None:
    given = header_of(scope, b"content-length")
    return int(given) if given.isdigit() else None


def header_of(scope: Scope, wanted: bytes) -> bytes:
    """Return the first header of a name in lower case; empty if there is none."""
    for name, value in scope["headers"]:
        if name == wanted:
            return bytes(value)
    return b""


def late_body(seconds: float) -> str:
    """Return the message for a caller whose body did not arrive in time."""
    return f"the review did not come in within {seconds:g} s"


def _ignore_reason(_reason: str) -> None:
    """Do nothing: the body is not being read."""
