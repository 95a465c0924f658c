"""The connections of one listener: their number, their timeouts, and which one is closed.

An HTTP server is behind this: it gets connections after their handshake, and complete heads. A
connection is in one of four states. It waits for a request, or for the rest of a head that is on
its way; its body is coming in; its request is whole, and not answered; or it is at rest after an
answer. Where there are too many, the oldest goes of those that wait, or of those at rest if fewer
than half of all wait; of the address that has most of them, if that has more than half. So an
attacker who only opens connections closes their own, and a caller with a request gets an answer,
even from the same address. A connection that is being answered is kept.
"""

import asyncio
import errno
import itertools
import math
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Literal, NoReturn

import structlog

from policyd.framing import KNOWN, BrokenError, Framing, Head

SWEEP_SECONDS: Final = 0.5
"""How often connections are looked through for those that took too long."""

WRITE_BUFFER_BYTES: Final = 16 * 1024
"""Written bytes that the caller has not taken, before the server has to wait."""

REQUESTS_BEHIND: Final = 8
"""Requests that may be sent before those before them are answered. Go's clients send none."""

READ_BUFFER_BYTES: Final = 64 * 1024
"""Unread bytes that TLS may keep."""

PATIENCE_SECONDS: Final = 1.0
"""How long a new connection waits where all others are being answered, before one of these goes."""

EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_GO_ON: Final = b"HTTP/1.1 100 "
_CLOSE: Final = b"content-length: 0\r\nconnection: close\r\n\r\n"

State = Literal["waiting", "body", "busy", "resting"]

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The bounds of a listener's connections. Times are in seconds."""

    connections: int = 512
    """All together."""
    handshake: float = 5.0
    """TLS, from the connection's first packet."""
    first: float = 30.0
    """Until the first byte of the first request. A Go client may open a connection that it does not
    need in the end, and keep it for later."""
    head: float = 5.0
    """From a head's first byte to its last."""
    body: float = 30.0
    """From a head's last byte to the body's: the longest timeout that a webhook can have."""
    answer: float = 10.0
    """How long a caller may take nothing of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """How a listener treats its connections."""

    bounds: Bounds = Bounds()
    tls: ssl.SSLContext | None = None
    """None serves without."""
    count: Callable[[str], None] = lambda _reason: None
    """Called with the reason for each connection that was closed before the end of its answer."""
    names: frozenset[str] = frozenset()
    """Callers' names in their certificates; empty for all that get past `tls`."""


class AnsweringProtocol(asyncio.Protocol):
    """A protocol that answers a connection, and may be given requests without their heads.

    Attributes:
        route: Its reading of the last head; None if it is to be given equal heads, too.
    """

    route: object = None

    def begin(self, route: object, length: int, piece: bytes) -> bool:
        """Take the beginning of a body whose head is known, or all of it.

        Args:
            route: Its reading of that head.
            length: How long the body is.
            piece: The bytes of it that arrived.

        Returns:
            Whether it did; if not, it is given the request with its head.
        """
        raise NotImplementedError

    def more(self, piece: bytes, *, whole: bool) -> None:
        """Take more of such a body, which is complete if it is `whole`."""
        raise NotImplementedError


class Connections:
    """The connections of one listener."""

    def __init__(
        self, make: Callable[[frozenset[str]], asyncio.Protocol], listening: Listening
    ) -> None:
        """Begin with no connections.

        Args:
            make: Returns the protocol that answers a connection, given the names in the caller's
                certificate.
            listening: The bounds of the connections, and their TLS.
        """
        self.make = make
        self.listening = listening
        self.all: set[BoundedConnection] = set()
        self.turn = itertools.count().__next__
        self.less = asyncio.Event()
        """Set when one is gone, or at rest, while `crowded`."""
        self.crowded = False
        """Whether a new one waits."""
        self._waiting: asyncio.Task[None] | None = None
        self.heads: tuple[Head, ...] = ()
        """Those that a protocol has read last: callers open many connections with equal heads."""

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.all)

    def at(self, *states: State) -> "list[BoundedConnection]":
        """Return those that are in one of some states."""
        return [one for one in self.all if one.state in states]

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections until cancelled; those that have had no handshake then are closed."""
        listener.settimeout(0)
        self._listen(listener)
        try:
            await self._sweep()
        finally:
            self._pause(listener)
            opening = [one.opening for one in self.all if one.opening is not None]
            for task in opening:
                task.cancel()
            await asyncio.gather(*opening, return_exceptions=True)

    def _listen(self, listener: socket.socket) -> None:
        self._waiting = None
        asyncio.get_running_loop().add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        """Accept a connection; others have their turn before the next."""
        if len(self.all) >= self.listening.bounds.connections and not self._shed():
            self._pause(listener, self._room())
            return
        try:
            accepted, address = listener.accept()
        except OSError as error:
            if error.errno in EXHAUSTED:
                log.warning("connection_refused", reason=str(error))
                self._shed()
                self._pause(listener, asyncio.sleep(SWEEP_SECONDS))
            return  # or it hung up before
        connection = BoundedConnection(self, address[0])
        opening = self._open(connection, accepted)
        connection.opening = asyncio.get_running_loop().create_task(opening)

    def _pause(
        self, listener: socket.socket, until: Coroutine[Any, Any, None] | None = None
    ) -> None:
        """Accept none before something has come about, or for good."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(listener)
        if self._waiting is not None:
            self._waiting.cancel()
        if until is not None:

            async def wait() -> None:
                await until
                self._listen(listener)

            self._waiting = loop.create_task(wait())

    async def _open(self, connection: "BoundedConnection", accepted: socket.socket) -> None:
        loop, listening = asyncio.get_running_loop(), self.listening
        more: dict[str, Any] = {}
        if listening.tls is not None:
            more = {"ssl": listening.tls, "ssl_shutdown_timeout": listening.bounds.handshake}
        try:
            await loop.connect_accepted_socket(lambda: connection, accepted, **more)
        except (OSError, ssl.SSLError) as error:
            connection.forget()
            accepted.close()
            timed_out = isinstance(error, TimeoutError)
            listening.count("handshake_slow" if timed_out else "handshake_failed")
        except asyncio.CancelledError:
            connection.forget()
            accepted.close()
            if connection.ending is None:  # the server ends, not only this connection
                raise
        except Exception:  # no caller may end the server
            log.exception("connection_failed")
            connection.forget()
            accepted.close()
        finally:
            connection.opening = None

    async def _room(self) -> None:
        """Wait for a moment where all are being answered; one of these goes if none is."""
        self.less.clear()
        self.crowded = True
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.less.wait()
        except TimeoutError:
            self._end_oldest(self.at("body") or self.at("busy"))
        finally:
            self.crowded = False

    def _shed(self) -> bool:
        """Close one that waits or rests; tell whether there was one."""
        waiting, resting = self.at("waiting"), self.at("resting")
        many = len(waiting) * 2 > self.listening.bounds.connections
        return self._end_oldest(waiting if many or not resting else resting)

    def _end_oldest(self, some: "list[BoundedConnection]") -> bool:
        if not some:
            return False
        ((address, most),) = Counter(one.address for one in some).most_common(1)
        if most * 2 > len(some):
            some = [one for one in some if one.address == address]
        min(some, key=lambda one: one.since).end("shed")
        return True

    async def _sweep(self) -> NoReturn:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = loop.time()
            for connection in [c for c in self.all if c.ends_at < now or c.stuck_at < now]:
                connection.run_out()


class BoundedConnection(asyncio.Protocol):
    """One connection, between its transport and the protocol that answers it.

    Attributes:
        address: Where it comes from.
        state: Its state.
        since: How many others had come to be at something before it did.
        opening: The task that opens it, until its handshake is done.
        ending: Why it is closed from here.
        ends_at: The end of its state's time, by the loop's clock.
        stuck_at: When it has left an answer for too long.
    """

    def __init__(self, connections: Connections, address: str) -> None:
        self.address = address
        self.opening: asyncio.Task[None] | None = None
        self.ending: str | None = None
        self.stuck_at = math.inf
        self._loop = asyncio.get_running_loop()
        self._connections = connections
        self._bounds = connections.listening.bounds
        self._framing = Framing(connections.heads)
        self._transport: asyncio.Transport | None = None
        self._inner: asyncio.Protocol | None = None
        self._answering: AnsweringProtocol | None = None
        self._direct = False
        self._behind = b""
        self._piled = 0
        self._next: asyncio.Handle | None = None
        self._early = False
        self.state: State = "waiting"
        self.since = connections.turn()
        connections.all.add(self)
        self._phase = "handshake_slow"
        self.ends_at = self._loop.time() + self._bounds.handshake

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Hand it to the protocol that answers, if its caller may call."""
        self._transport = transport
        listening = self._connections.listening
        names = frozenset() if listening.tls is None else certificate_names(transport)
        if self.ending is not None or (listening.names and not listening.names & names):
            self.end("caller_unknown")
            return
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if listening.tls is not None:  # other transports have no such buffer
            transport.set_read_buffer_limits(high=READ_BUFFER_BYTES)  # type: ignore[attr-defined]
        self._phase, self.ends_at = "no_request", self._loop.time() + self._bounds.first
        self._inner = self._connections.make(names)
        self._answering = self._inner if isinstance(self._inner, AnsweringProtocol) else None
        self._inner.connection_made(NotifyingTransport(transport, self))  # type: ignore[arg-type]

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        self.forget()
        if self._inner is not None:
            self._inner.connection_lost(exc)
            self._inner = self._answering = None

    def forget(self) -> None:
        """Count it no more."""
        self._connections.all.discard(self)
        self._connections.less.set()

    def data_received(self, data: bytes) -> None:
        """Pass on complete requests, one after the other is answered, and keep the rest."""
        if self.ending is not None or self._transport is None:
            return
        if self._behind or self.state == "busy":
            self._behind += data
            self._transport.pause_reading()
        else:
            self._piled = 0
            self._take(data)

    def _take(self, data: bytes) -> None:
        framing = self._framing
        try:
            data, self._behind = framing.take(data)
        except BrokenError as error:
            self._break_off(error)
            return
        if not framing.in_head:
            self._go("body", "body_slow", self._bounds.body)
        elif framing.held:
            self._go("waiting", "head_slow", self._bounds.head)
        else:
            self.state, self.ends_at = "resting" if self._early else "busy", math.inf
            self._early = False
        if data:
            self._pass(data)
        if self._behind and self.state != "busy" and self._next is None:
            self._next = self._loop.call_soon(self._go_on)

    def _pass(self, data: bytes) -> None:
        """Give data to the protocol that answers, without a head that equals an earlier one."""
        inner, answering, framing = self._inner, self._answering, self._framing
        head, at = framing.head, framing.body_at
        if answering is not None:
            if self._direct:
                self._direct = not framing.in_head
                answering.more(data, whole=framing.in_head)
                return
            if (
                head is not None
                and at
                and head.route is not None
                and answering.begin(head.route, framing.length, data[at:])
            ):
                self._direct = not framing.in_head
                return
        if inner is not None:
            inner.data_received(data)
        if answering is not None and head is not None:
            head.route = answering.route
            if head.route is not None and head not in self._connections.heads:
                self._connections.heads = (head, *self._connections.heads[: KNOWN - 1])

    def _go_on(self) -> None:
        """Take the data behind a request that is answered."""
        transport, self._next = self._transport, None
        if self.state == "busy" or self.ending is not None or not self._behind:
            return
        self._piled += 1
        if self._piled > REQUESTS_BEHIND:
            self.end("too_many_requests")
        elif transport is not None and not transport.is_closing():
            data, self._behind = self._behind, b""
            transport.resume_reading()
            self._take(data)

    def _go(self, state: State, phase: str, seconds: float) -> None:
        """Give a phase its time from its beginning; data that arrives within it adds no time."""
        if self._phase != phase or self.ends_at == math.inf:
            self.state, self._phase = state, phase
            self.since = self._connections.turn()
            self.ends_at = self._loop.time() + seconds

    def answered(self) -> None:
        """Note that an answer began: the connection rests, unless its request is still arriving."""
        if self.state == "busy":
            self.state = "resting"
            self.since = self._connections.turn()
            if self._connections.crowded:
                self._connections.less.set()
            if self._behind and self._next is None:
                self._next = self._loop.call_soon(self._go_on)
        elif self.state == "body":  # answered without the rest, which may still come
            self.state, self._early = "waiting", True

    def eof_received(self) -> bool | None:
        """Pass it on."""
        return None if self._inner is None else self._inner.eof_received()

    def pause_writing(self) -> None:
        """Pause the protocol that answers, and give the caller time to read."""
        self.stuck_at = self._loop.time() + self._bounds.answer
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Resume the protocol that answers."""
        self.stuck_at = math.inf
        if self._inner is not None:
            self._inner.resume_writing()

    def run_out(self) -> None:
        """Close it for having taken too long."""
        self.end("answer_slow" if self.stuck_at < math.inf else self._phase)

    def end(self, reason: str) -> None:
        """Close it at once, and count why."""
        if self.ending is None and reason:
            self._connections.listening.count(reason)
        self.ending = reason
        self.forget()
        if self._transport is not None:
            self._transport.abort()
        elif self.opening is not None:
            self.opening.cancel()

    def _break_off(self, error: BrokenError) -> None:
        """Answer with the error, unless another answer is on its way, and close it."""
        connections, transport = self._connections, self._transport
        if transport is None or self.state == "busy":
            self.end(error.reason)
            return
        connections.listening.count(error.reason)
        self.ending = error.reason
        if not transport.is_closing():
            status = HTTPStatus(error.status)
            transport.write(b"HTTP/1.1 %d %b\r\n%b" % (status, status.phrase.encode(), _CLOSE))
            transport.close()


class NotifyingTransport:
    """A transport that says when something is written."""

    __slots__ = ("_connection", "_transport", "is_closing")

    def __init__(self, transport: asyncio.Transport, connection: BoundedConnection) -> None:
        self._transport = transport
        self._connection = connection
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Write."""
        if not data.startswith(_GO_ON):
            self._connection.answered()
        self._transport.write(data)

    def writelines(self, pieces: Iterable[bytes]) -> None:
        """Write all of them."""
        self._connection.answered()
        self._transport.writelines(pieces)

    def abort(self) -> None:
        """Close it at once, and count that: the caller takes no answers, and they need room."""
        self._connection.end("shed")

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute of a transport
        """Return an attribute of the transport."""
        return getattr(self._transport, name)


def certificate_names(transport: asyncio.BaseTransport) -> frozenset[str]:
    """Return the names in the caller's certificate: the common name and the alternative ones."""
    shown = transport.get_extra_info("peercert")
    if not shown:
        return frozenset()
    subject = (pair for part in shown.get("subject", ()) for pair in part)
    return frozenset(value for key, value in subject if key == "commonName") | {
        value for _, value in shown.get("subjectAltName", ())
    }
