"""HTTP/1.1 of the webhooks: plain reviews are answered directly, all other calls by uvicorn.

The messages, tasks, timers and two writes of an ASGI server cost a review more than its decision
where no policy concerns it. So a plain review is gathered as it arrives, answered at once where
nothing is to be awaited, and its answer is one write. A plain review is a POST of JSON to an
endpoint, with a small Content-Length, on a connection that is kept and has no other call in flight.
The heads of one client are equal: of its plain reviews only the first head is parsed. The
application answers every other call, with the same messages.

This builds on private parts of uvicorn's protocol: tests state them, and `--plain-http` does
without.
"""

import asyncio
import weakref
from collections.abc import Coroutine, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from policyd.api.causes import OVERLOADED, SLOW, UnevaluatedCause
from policyd.connections import AnsweringProtocol
from webhooks.app import JSON_HEADERS, Answered, Endpoint
from webhooks.bodies import LIGHT_BYTES, NO_ROOM, Body, BodyBudget, late_body
from webhooks.deadlines import LATE, timeout_seconds

_HEADERS: Final = b"".join(b"%b: %b\r\n" % header for header in JSON_HEADERS)
_HEADS: Final = {
    status: b"%b%bcontent-length: " % (line, _HEADERS) for status, line in STATUS_LINE.items()
}
BROKEN: Final = b'{"code":500,"message":"the review could not be answered"}'
_JSON: Final = dict(JSON_HEADERS)[b"content-type"]


class DirectCall:
    """A call that is answered directly, with the attributes that uvicorn reads of a call."""

    def __init__(self, protocol: "ReviewProtocol", endpoint: Endpoint, query: bytes) -> None:
        self.keep_alive = True
        self.disconnected = False
        self.response_complete = False
        self.message_event = protocol.message_event
        self.body = Body(endpoint.room)
        # The protocol keeps the call: a closed connection is not to wait for the garbage collector.
        self._protocol = weakref.ref(protocol)
        self._endpoint = endpoint
        self._query = query
        self._called_at = endpoint.now()
        self._late: asyncio.TimerHandle | None = None

    def wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wait for the rest of the body, for so long."""
        if self._late is None:
            seconds = LATE * timeout_seconds(self._query)
            late = late_body(seconds)
            self._late = loop.call_later(seconds, self.give_up, SLOW, late)
            self.body.give_up = partial(self.give_up, OVERLOADED)
            self._endpoint.room.expect(self.body)

    def wait_no_more(self) -> None:
        """Note that the body is complete, or will never be."""
        if self._late is not None:
            self._late.cancel()
            self._endpoint.room.complete(self.body)

    def answer(self) -> Coroutine[Any, Any, None] | None:
        """Answer the complete body, or return a coroutine that does, to be run in a task."""
        if self._endpoint.room.full:
            self.give_up(OVERLOADED, NO_ROOM)
            return None
        try:
            answered = self._endpoint.answer(self.body.whole(), self._query, self._called_at)
        except BaseException:
            self._break()
            raise
        if not isinstance(answered, tuple):
            return self.answer_later(answered)
        self.body.close()
        self._respond(*answered)
        return None

    async def answer_later(self, answer: Coroutine[Any, Any, Answered]) -> None:
        """Answer when the answer is ready."""
        try:
            answered = await answer
        except BaseException:
            self._break()
            raise
        self.body.close()
        self._respond(*answered)

    def _break(self) -> None:
        """Answer with an error, so that the caller does not wait."""
        self.body.close()
        self.keep_alive = False
        self._respond(HTTPStatus.INTERNAL_SERVER_ERROR, BROKEN)

    def give_up(self, cause: UnevaluatedCause, reason: str) -> None:
        """Answer without a verdict, and without the rest of the body."""
        self.wait_no_more()
        protocol = self._protocol()
        if protocol is not None:
            protocol.leave(self)
        answer = self._endpoint.without_verdict(self.body.head, reason, cause)
        self.body.close()
        self._respond(*answer)

    def _respond(self, status: HTTPStatus, answer: bytes) -> None:
        protocol = self._protocol()
        self.response_complete = True
        if protocol is not None and not self.disconnected:
            protocol.respond(self._endpoint.room, status, answer, last=not self.keep_alive)


class ReviewProtocol(HttpToolsProtocol, AnsweringProtocol):
    """uvicorn's HTTP/1.1, with a short path for plain reviews."""

    route: tuple[Endpoint, bytes] | None

    def __init__(self, *given: Any, **settings: Any) -> None:  # noqa: ANN401 - as uvicorn has it
        super().__init__(*given, **settings)
        self.message_event = asyncio.Event()
        self._endpoints: Mapping[bytes, Endpoint] = getattr(self.app, "endpoints", {})
        self._incoming: DirectCall | None = None
        self._answered_at = 0.0

    def data_received(self, data: bytes) -> None:
        """Read on; a body that is not complete by then has so long to come in."""
        self.route = None
        super().data_received(data)
        if self._incoming is not None:
            self._incoming.wait(self.loop)

    def begin(self, route: object, length: int, piece: bytes) -> bool:
        """Begin to gather a review, or answer it if that is all of it."""
        if self._is_busy() or not 0 < length <= LIGHT_BYTES or self.flow.write_paused:
            return False
        endpoint, query = cast("tuple[Endpoint, bytes]", route)
        if len(piece) == length:
            self._answer(endpoint, query, piece)
        else:
            self._gather(endpoint, query)
            self.more(piece, whole=False)
        return True

    def more(self, piece: bytes, *, whole: bool) -> None:
        """Gather a piece of a body, and answer it if it is whole."""
        review = self._incoming
        if review is None:  # it was answered without the rest
            return
        review.body.add(piece)
        if whole:
            self.on_message_complete()
        elif self._incoming is review:
            review.wait(self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drop a body that was arriving."""
        review, self._incoming = self._incoming, None
        if review is not None:
            review.wait_no_more()
            review.body.close()
        self._forgive()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def resume_writing(self) -> None:
        """Resume: the caller has read the answers."""
        self._forgive()
        super().resume_writing()

    def _forgive(self) -> None:
        for endpoint in self._endpoints.values():
            endpoint.room.taken_by(self.transport)

    def leave(self, review: DirectCall) -> None:
        """Gather no more of a review."""
        if self._incoming is review:
            self._incoming = None

    def on_headers_complete(self) -> None:
        """Begin to gather a plain review; leave another call to the application."""
        path, _, query = self.url.partition(b"?")
        endpoint = self._endpoints.get(path)
        if endpoint is None or not self._is_plain():
            super().on_headers_complete()
            return
        self.route = endpoint, query
        self._gather(endpoint, query)

    def _gather(self, endpoint: Endpoint, query: bytes) -> DirectCall:
        review = self._incoming = DirectCall(self, endpoint, query)
        self.cycle = review  # type: ignore[assignment]  # it has all that uvicorn asks of one
        return review

    def _answer(self, endpoint: Endpoint, query: bytes, body: bytes) -> None:
        """Answer a body that arrived at once: it takes room only while something is awaited."""
        try:
            answered = endpoint.answer(body, query, endpoint.now())
        except BaseException:
            self.respond(endpoint.room, HTTPStatus.INTERNAL_SERVER_ERROR, BROKEN, last=True)
            raise
        if isinstance(answered, tuple):
            self.respond(endpoint.room, *answered)
            return
        review = self._gather(endpoint, query)
        self._incoming = None
        review.body.add(body)
        if endpoint.room.full:
            answered.close()
            review.give_up(OVERLOADED, NO_ROOM)
        else:
            self._start(review.answer_later(answered))

    def _start(self, answering: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(answering)
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    def respond(
        self, room: BodyBudget, status: HTTPStatus, answer: bytes, *, last: bool = False
    ) -> None:
        """Write an answer, all at once; close the connection if it is the last one."""
        transport = self.transport
        if transport.is_closing():
            return
        end = b"\r\nconnection: close\r\n\r\n" if last else b"\r\n\r\n"
        transport.write(b"%b%d%b%b" % (_HEADS[status], len(answer), end, answer))
        if last:
            transport.close()
        self._rest()
        if self.flow.write_paused:
            room.owe(transport, len(answer))

    def on_body(self, body: bytes) -> None:
        """Gather a piece of the body."""
        if self._incoming is None:
            super().on_body(body)
        else:
            self._incoming.body.add(body)

    def on_message_complete(self) -> None:
        """Answer the complete body."""
        review, self._incoming = self._incoming, None
        if review is None:
            super().on_message_complete()
            return
        review.wait_no_more()
        answering = review.answer()
        if answering is not None:
            self._start(answering)

    def _rest(self) -> None:
        """Give the caller time to send the next request, after those it has sent already."""
        if self.pipeline:
            self.on_response_complete()
            return
        self.server_state.total_requests += 1
        self._answered_at = self.loop.time()
        if self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self._look_in(self.timeout_keep_alive)

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection at rest: the timer is not set anew by each answer."""
        left = self._answered_at + self.timeout_keep_alive - self.loop.time()
        if self._is_busy():
            left = self.timeout_keep_alive
        if left > 0:
            self._look_in(left)
        else:
            super().timeout_keep_alive_handler()

    def _look_in(self, seconds: float) -> None:
        handler = self.timeout_keep_alive_handler
        self.timeout_keep_alive_task = self.loop.call_later(seconds, handler)

    def _is_busy(self) -> bool:
        """Tell whether a call is in flight."""
        return not getattr(self.cycle, "response_complete", True)

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
            and not self._is_busy()
            and not self.flow.write_paused
        )
