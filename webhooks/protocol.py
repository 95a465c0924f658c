"""HTTP/1.1 of the door: plain reviews are answered directly, all else as uvicorn does it.

An ASGI server's messages, timers, and two writes an answer cost a review more than deciding it does
where no policy concerns it. So a plain one is gathered as it comes in, and its answer is one write:
a POST of JSON to a path of the door, its length said and not too much, on a connection that stays
and has no other call in flight. The application answers whatever is unusual, in the same words.
"""

import asyncio
import weakref
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from policyd.api.admission import MAXIMUM_REVIEW_BYTES
from webhooks.app import BODY_SECONDS, JSON_HEADERS, Door, late_body

_HEAD: Final = b"".join(b"%b: %b\r\n" % header for header in JSON_HEADERS)
BROKEN: Final = b'{"code":500,"message":"the review could not be answered"}'
_JSON: Final = dict(JSON_HEADERS)[b"content-type"]


class Review:
    """A call that is answered directly, with what uvicorn asks of the call in flight."""

    def __init__(self, protocol: "DoorProtocol", door: Door, query: bytes) -> None:
        self.keep_alive = True
        self.disconnected = False
        self.response_complete = False
        self.message_event = protocol.message_event
        self.body: list[bytes] = []
        # The protocol keeps the call: a closed connection is not to wait for the garbage collector.
        self._protocol = weakref.ref(protocol)
        self._door = door
        self._query = query
        self._called_at = door.now()

    async def answer(self) -> None:
        """Answer, the body being complete."""
        try:
            body, self.body = b"".join(self.body), []
            answer = await self._door.answer(body, self._query, self._called_at)
        except BaseException:  # as uvicorn has it: nobody waits for an answer that does not come
            self.keep_alive = False
            self._respond(HTTPStatus.INTERNAL_SERVER_ERROR, BROKEN)
            raise
        self._respond(*answer)

    def give_up(self) -> None:
        """Answer without the rest of the body."""
        self.body.clear()
        self._respond(*self._door.refuse(late_body()))

    def _respond(self, status: HTTPStatus, answer: bytes) -> None:
        """Write an answer, all at once."""
        protocol = self._protocol()
        if protocol is None or self.disconnected or protocol.transport.is_closing():
            return
        transport = protocol.transport
        close = b"" if self.keep_alive else b"connection: close\r\n"
        length = b"content-length: %d\r\n" % len(answer)
        transport.write(b"".join((STATUS_LINE[status], _HEAD, length, close, b"\r\n", answer)))
        self.response_complete = True
        if not self.keep_alive:
            transport.close()
        protocol.on_response_complete()


class DoorProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1, but for plain reviews."""

    def __init__(self, *given: Any, **settings: Any) -> None:  # noqa: ANN401 - as uvicorn has it
        super().__init__(*given, **settings)
        self.message_event = asyncio.Event()
        self._doors: Mapping[bytes, Door] = getattr(self.app, "doors", {})
        self._incoming: Review | None = None
        self._late: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        """Read on; a body that is not complete by then has so long to come in."""
        super().data_received(data)
        if self._incoming is not None and self._late is None:
            self._late = self.loop.call_later(BODY_SECONDS, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what was coming in."""
        review = self._taken()
        if review is not None:
            review.body.clear()
        super().connection_lost(exc)

    def on_headers_complete(self) -> None:
        """Begin to gather a plain review; leave another call to the application."""
        path, _, query = self.url.partition(b"?")
        door = self._doors.get(path)
        if door is None or not self._is_plain():
            super().on_headers_complete()
            return
        self._incoming = Review(self, door, query)
        self.cycle = self._incoming  # type: ignore[assignment]  # it has all that uvicorn asks of one

    def on_body(self, body: bytes) -> None:
        """Gather a piece of the body."""
        if self._incoming is None:
            super().on_body(body)
        else:
            self._incoming.body.append(body)

    def on_message_complete(self) -> None:
        """Answer what has come in."""
        review = self._taken()
        if review is None:
            super().on_message_complete()
        else:
            task = self.loop.create_task(review.answer())
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)

    def _is_plain(self) -> bool:
        parser, headers = self.parser, dict(self.headers)
        return (
            headers.get(b"content-type") == _JSON
            and 0 < int(headers.get(b"content-length", 0)) <= MAXIMUM_REVIEW_BYTES
            and len(headers) == len(self.headers)
            and not self.expect_100_continue
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and getattr(self.cycle, "response_complete", True)
            and not self.flow.write_paused
        )

    def _give_up(self) -> None:
        review = self._taken()
        if review is not None:
            review.give_up()

    def _taken(self) -> Review | None:
        """Return the review that is coming in, if one is, and wait for it no more."""
        if self._late is not None:
            self._late.cancel()
            self._late = None
        taken, self._incoming = self._incoming, None
        return taken
