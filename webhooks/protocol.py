"""HTTP/1.1 of the door: plain reviews are answered directly, all else as uvicorn does it.

An ASGI server's messages, timers, and two writes an answer cost a review more than deciding it does
where no policy concerns it. So a plain one is gathered as it comes in, and its answer is one write:
a POST of JSON to a path of the door, its length said and not much, on a connection that stays and
has no other call in flight. The application answers whatever is unusual, in the same words.

This builds on the insides of uvicorn's protocol: tests state what it relies on, and `--plain-http`
does without.
"""

import asyncio
import weakref
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from webhooks.app import JSON_HEADERS, Door, body_seconds, late_body
from webhooks.bodies import LIGHT_BYTES, NO_ROOM, Body

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
        self.body = Body(door.room)
        # The protocol keeps the call: a closed connection is not to wait for the garbage collector.
        self._protocol = weakref.ref(protocol)
        self._door = door
        self._query = query
        self._called_at = door.now()
        self._late: asyncio.TimerHandle | None = None

    def wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for the rest of the body, for so long."""
        if self._late is None:
            seconds = body_seconds(self._query)
            late = late_body(seconds)
            self._late = loop.call_later(seconds, self._give_up, HTTPStatus.REQUEST_TIMEOUT, late)
            self.body.give_up = partial(self._give_up, HTTPStatus.SERVICE_UNAVAILABLE)
            self._door.room.expect(self.body)

    def wait_no_more(self) -> None:
        """Note that the body is complete, or will never be."""
        if self._late is not None:
            self._late.cancel()
            self._door.room.complete(self.body)

    async def answer(self) -> None:
        """Answer, the body being complete."""
        try:
            if self._door.room.full:
                self._give_up(HTTPStatus.SERVICE_UNAVAILABLE, NO_ROOM)
                return
            answer = await self._door.answer(self.body.whole(), self._query, self._called_at)
        except BaseException:  # as uvicorn has it: nobody waits for an answer that does not come
            self.keep_alive = False
            self._respond(HTTPStatus.INTERNAL_SERVER_ERROR, BROKEN)
            raise
        finally:
            self.body.close()
        self._respond(*answer)

    def _give_up(self, status: HTTPStatus, reason: str) -> None:
        """Answer without a verdict, and without the rest of the body."""
        self.wait_no_more()
        protocol = self._protocol()
        if protocol is not None:
            protocol.leave(self)
        answer = self._door.without_verdict(self.body.head, reason, status)
        self.body.close()
        self._respond(*answer)

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
        if protocol.flow.write_paused:
            self._door.room.owe(transport, len(answer))


class DoorProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1, but for plain reviews."""

    def __init__(self, *given: Any, **settings: Any) -> None:  # noqa: ANN401 - as uvicorn has it
        super().__init__(*given, **settings)
        self.message_event = asyncio.Event()
        self._doors: Mapping[bytes, Door] = getattr(self.app, "doors", {})
        self._incoming: Review | None = None

    def data_received(self, data: bytes) -> None:
        """Read on; a body that is not complete by then has so long to come in."""
        super().data_received(data)
        if self._incoming is not None:
            self._incoming.wait(self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what was coming in."""
        review, self._incoming = self._incoming, None
        if review is not None:
            review.wait_no_more()
            review.body.close()
        self._forgive()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """Go on: the caller has taken what there was."""
        self._forgive()
        super().resume_writing()

    def _forgive(self) -> None:
        for door in self._doors.values():
            door.room.taken_by(self.transport)

    def leave(self, review: Review) -> None:
        """Gather no more of a review."""
        if self._incoming is review:
            self._incoming = None

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
            self._incoming.body.add(body)

    def on_message_complete(self) -> None:
        """Answer what has come in."""
        review, self._incoming = self._incoming, None
        if review is None:
            super().on_message_complete()
        else:
            review.wait_no_more()
            task = self.loop.create_task(review.answer())
            task.add_done_callback(self.tasks.discard)
            self.tasks.add(task)

    def _is_plain(self) -> bool:
        parser, headers = self.parser, dict(self.headers)
        return (
            headers.get(b"content-type") == _JSON
            and 0 < int(headers.get(b"content-length", 0)) <= LIGHT_BYTES
            and len(headers) == len(self.headers)
            and not self.expect_100_continue
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not parser.should_upgrade()
            and getattr(self.cycle, "response_complete", True)
            and not self.flow.write_paused
        )
