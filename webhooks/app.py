"""The ASGI application: an AdmissionReview's bytes in, its answer's bytes out.

The endpoints (`/mutate`, `/validate`, `/convert`) are all there is on this port. A server may ask
them directly, without the messages of ASGI.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import lru_cache
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from policyd.admission.conversion import PATH as CONVERT
from policyd.admission.conversion import unconverted
from policyd.admission.unjudged import HEAD_BYTES, Unjudged, refuse
from policyd.api.admission import MAXIMUM_REVIEW_BYTES, ReviewError
from policyd.clock import Clock, SystemClock
from policyd.engine.model.deadline import OutOfTime
from webhooks.bodies import LIGHT_BYTES, NO_ROOM, Body, BodyBudget, UnreadError
from webhooks.deadlines import Deadlines, TooLateError, resumed
from webhooks.metrics import WebhookMetrics
from webhooks.observe.lines import Lines

Answer = Callable[[bytes, OutOfTime], Coroutine[Any, Any, bytes]]
"""Turns a review into its answer, both JSON, before it is out of time. Raises ReviewError for a
body that is no review. It is begun outside of any task: what is to be in one waits for something
before."""

Answered = tuple[HTTPStatus, bytes]
"""A status, and a body."""

MOST_TIMEOUT_SECONDS = 30.0
"""The longest timeout a webhook can have."""

DEFAULT_TIMEOUT_SECONDS = 10.0
"""The API server's default, for callers that do not say how long they wait."""

REASONS = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.NOT_FOUND: "NotFound",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowed",
    HTTPStatus.REQUEST_TIMEOUT: "Timeout",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "RequestEntityTooLarge",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "UnsupportedMediaType",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
    HTTPStatus.SERVICE_UNAVAILABLE: "ServiceUnavailable",
}
"""The API server's words for what can go wrong here."""

UNJUDGED = defaultdict[str, Unjudged](lambda: refuse, {CONVERT: unconverted})
"""What answers a review that cannot be judged, unless told."""

LATE = 0.8
"""How much of the caller's patience is spent on deciding: an answer that took longer may have come
too late."""

SPARE_SECONDS = 0.1
"""How much later nothing is waited for any more: who decides has seen by then that time is up."""

PIECE_BYTES = 64 * 1024
"""Longer answers are sent in pieces, each when the one before is on its way."""

OUT_OF_TIME = "there was no time left"

JSON_HEADERS = ((b"content-type", b"application/json"),)

log = structlog.get_logger(__name__)


class RefusedError(UnreadError):
    """A call is not one that this path answers."""


class CallerGoneError(Exception):
    """The caller hung up before its body was complete: there is nobody to answer."""


def create_app(
    answers: Mapping[str, Answer],
    *,
    metrics: WebhookMetrics,
    clock: Clock | None = None,
    unjudged: Mapping[str, Unjudged] = MappingProxyType({}),
) -> "WebhookApplication":
    """Build the application around functions that answer the API server.

    Args:
        answers: What is answered, by path: `/mutate`, `/validate`, `/convert`.
        metrics: Where reviews are counted.
        clock: Measures how long reviews take; the machine's by default.
        unjudged: What answers reviews that cannot be judged, by path. Where none is given, they
            are refused.
    """
    clock, room = clock or SystemClock(), BodyBudget()
    doors = {
        path.encode(): Endpoint(
            path, (answer, unjudged.get(path, UNJUDGED[path])), room, metrics, clock
        )
        for path, answer in answers.items()
    }
    return WebhookApplication(doors)


class WebhookApplication:
    """Endpoints, by the path of each."""

    def __init__(self, doors: "Mapping[bytes, Endpoint]") -> None:
        self.doors = doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        if scope["type"] != "http":  # there is nothing to start, and no other protocol
            raise NotImplementedError(scope["type"])
        door = self.doors.get(scope["path"].encode())
        if door is None:
            reason = "reviews alone are answered here"
            await _respond(send, HTTPStatus.NOT_FOUND, _status(HTTPStatus.NOT_FOUND, reason))
        else:
            await door(scope, receive, send)


class Endpoint:
    """One path that answers reviews."""

    def __init__(
        self,
        path: str,
        answers: tuple[Answer, Unjudged],
        room: BodyBudget,
        metrics: WebhookMetrics,
        clock: Clock,
    ) -> None:
        self.room = room
        self._path = path
        self._answer, self._unjudged = answers
        self.now = clock.monotonic
        """Returns when a call began, in seconds of the clock that its patience is counted by."""
        self._deadlines = Deadlines()
        self._lines = Lines(clock)
        self._late = metrics.late_reviews.labels(path)
        self._seconds = metrics.seconds.labels(path)
        self._refused = metrics.reviews.labels(path, "refused")
        self._failed = metrics.reviews.labels(path, "failed")
        self._not_judged = metrics.reviews.labels(path, "unjudged")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call; whatever it is, the next one is answered as well."""
        called_at, body = self.now(), Body(self.room)
        try:
            status, answer = await self._called(scope, receive, body, called_at)
            body.cut(0)
            if not body.reserved:
                body.close()
            await _respond(send, status, answer)  # which may be as large, and takes its room
        except CallerGoneError:
            return
        finally:
            body.close()

    async def _called(
        self, scope: Scope, receive: Receive, body: Body, called_at: float
    ) -> Answered:
        try:
            check_call(scope)
            await read_body(body, self.room, scope, receive)
        except RefusedError as refusal:
            return self.refuse(refusal)
        except UnreadError as error:
            return self.without_verdict(body.head, str(error), error.status)
        answered = self.answer(body.whole(), scope["query_string"], called_at)
        return answered if isinstance(answered, tuple) else await answered

    def answer(
        self, body: bytes, query: bytes, called_at: float
    ) -> Answered | Coroutine[Any, Any, Answered]:
        """Return the answer to a review that came in whole, or what to await for it in a task.

        Args:
            body: The review.
            query: What follows the path, which says how long the caller waits.
            called_at: When the call began.
        """
        now = self.now
        started, late_at = now(), called_at + LATE * timeout_seconds(query)
        work = self._answer(body, lambda: now() > late_at)
        try:
            waits_for = work.send(None)
        except StopIteration as ended:
            return self._answered(ended.value, started, late_at)
        except Exception as error:  # noqa: BLE001 - what is no bug is told apart there
            return self._not_answered(body, error)
        return self._go_on(body, resumed(work, waits_for), started, late_at)

    async def _go_on(
        self, body: bytes, rest: Awaitable[bytes], started: float, late_at: float
    ) -> Answered:
        try:
            answer = await self._deadlines.within(late_at - started + SPARE_SECONDS, rest)
        except Exception as error:  # noqa: BLE001 - what is no bug is told apart there
            return self._not_answered(body, error)
        return self._answered(answer, started, late_at)

    def _answered(self, answer: bytes, started: float, late_at: float) -> Answered:
        ended = self.now()
        self._seconds.observe(ended - started)
        if ended > late_at:
            self._late.inc()
            seconds = ended - started
            self._lines.write(log.warning, "review_late", path=self._path, seconds=seconds)
        return HTTPStatus.OK, answer

    def _not_answered(self, body: bytes, error: Exception) -> Answered:
        if isinstance(error, TooLateError):
            return self.without_verdict(body, OUT_OF_TIME, HTTPStatus.SERVICE_UNAVAILABLE)
        if isinstance(error, ReviewError):
            return self.without_verdict(body, str(error), HTTPStatus.BAD_REQUEST)
        if isinstance(error, RecursionError):
            reason = "the object is nested too deep"
            return self.without_verdict(body, reason, HTTPStatus.BAD_REQUEST)
        # A bug: what nobody judged is not let through for it.
        self._failed.inc()
        self._lines.write(log.error, "review_failed", path=self._path, exc_info=error)
        reason = f"policyd could not decide: {type(error).__name__}: {error}"
        return self.without_verdict(body, reason, HTTPStatus.INTERNAL_SERVER_ERROR)

    def refuse(self, refusal: RefusedError) -> Answered:
        """Return the answer to what is no call of this path."""
        self._refused.inc()
        return refusal.status, _status(refusal.status, str(refusal))

    def without_verdict(self, head: bytes, reason: str, otherwise: HTTPStatus) -> Answered:
        """Answer a review that cannot be judged, which the caller would take for a `yes` by itself.

        Args:
            head: Its first bytes.
            reason: Why it cannot be judged.
            otherwise: What is answered to something that is no review.
        """
        try:
            answer = self._unjudged(head, reason)
        except ReviewError:
            return self.refuse(RefusedError(otherwise, reason))
        self._not_judged.inc()
        self._lines.write(log.warning, "review_unjudged", path=self._path, reason=reason)
        return HTTPStatus.OK, answer


def check_call(scope: Scope) -> None:
    """Check method and content type.

    Raises:
        RefusedError: If it is not a POST of JSON.
    """
    if scope["method"] != "POST":
        raise RefusedError(
            HTTPStatus.METHOD_NOT_ALLOWED, f"`{scope['method']}` is not answered here, only `POST`"
        )
    given = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    if given != b"application/json" and _media_type(given) != b"application/json":
        raise RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"`{given.decode('latin-1')}` is not a content type that is understood,"
            " only `application/json`",
        )


async def read_body(body: Body, room: BodyBudget, scope: Scope, receive: Receive) -> None:
    """Read a call's body.

    Raises:
        UnreadError: If it is too large, does not come in time, or there is no room for it.
        CallerGoneError: If the caller hung up.
    """
    length, seconds = _length(scope), body_seconds(scope["query_string"])
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
            raise UnreadError(HTTPStatus.REQUEST_TIMEOUT, late_body(seconds)) from None
    finally:
        room.complete(body)
    if room.full and not body.reserved:
        reasons.append(NO_ROOM)
    if reasons:
        raise UnreadError(HTTPStatus.SERVICE_UNAVAILABLE, reasons[0])


async def _have_room(body: Body, room: BodyBudget, length: int | None) -> None:
    """Wait for room if a body is large, its head being there.

    Raises:
        UnreadError: If it is too large, or too many wait.
    """
    most = LIGHT_BYTES if length is None else MAXIMUM_REVIEW_BYTES
    if (length or body.size) > most:
        more = "" if length else ", and the request has no Content-Length"
        raise UnreadError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the review has more than {most} bytes{more}"
        )
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
    given = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return int(given) if given.isdigit() else None


def late_body(seconds: float) -> str:
    """Return what is said to a caller whose body does not come in."""
    return f"the review did not come in within {seconds:g} s"


def body_seconds(query: bytes) -> float:
    """Return how long a body may take to come in, by how long the caller waits."""
    return LATE * timeout_seconds(query)


@lru_cache(maxsize=64)
def timeout_seconds(query: bytes) -> float:
    """Read the caller's patience from `timeout=10s`, as the API server writes it: 30 s at most."""
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        if name == b"timeout" and value.endswith(b"s") and value[:-1].isdigit():
            return min(float(value[:-1]), MOST_TIMEOUT_SECONDS)
    return DEFAULT_TIMEOUT_SECONDS


def _media_type(content_type: bytes) -> bytes:
    return content_type.partition(b";")[0].strip().lower()


def _status(status: HTTPStatus, message: str) -> bytes:
    """Say what went wrong as a Status, whose message the API server passes on to the user."""
    return msgspec.json.encode(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": REASONS[status],
            "code": status.value,
        }
    )


async def _respond(send: Send, status: HTTPStatus, body: bytes) -> None:
    length = (b"content-length", b"%d" % len(body))
    headers = [*JSON_HEADERS, length]
    await send({"type": "http.response.start", "status": status.value, "headers": headers})
    for at in range(PIECE_BYTES, len(body), PIECE_BYTES):
        piece = body[at - PIECE_BYTES : at]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    last = max(len(body) - 1, 0) // PIECE_BYTES * PIECE_BYTES
    await send({"type": "http.response.body", "body": body[last:]})
