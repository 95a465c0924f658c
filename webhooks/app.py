"""The ASGI application: an AdmissionReview's bytes in, its answer's bytes out.

The doors (`/mutate`, `/validate`, `/convert`) are dispatched in front of Starlette, whose routing,
request and response cost a third of a review that no policy matches. Everything else is
Starlette's. A server may ask the doors themselves, without the messages of ASGI.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from types import MappingProxyType

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.types import ASGIApp, Receive, Scope, Send

from policyd.api.admission import MAXIMUM_REVIEW_BYTES, ReviewError
from policyd.clock import Clock, SystemClock
from policyd.engine.deadline import OutOfTime
from policyd.errors import PolicydError
from webhooks.conversion import PATH as CONVERT
from webhooks.conversion import unconverted
from webhooks.health import Readiness, health_routes
from webhooks.metrics import DoorMetrics
from webhooks.unjudged import Unjudged, refuse

Answer = Callable[[bytes, OutOfTime], Awaitable[bytes]]
"""Turns a review into its answer, both JSON, before it is out of time. Raises ReviewError for a
body that is no review."""

MOST_BYTES = {CONVERT: 32 * 1024 * 1024}
"""How long a body may be if it is not one object's: a list is converted in one, and clients read
lists in pages of 500."""

DISCARDED_BODY_BYTES = 32 * 1024 * 1024
"""How much of a body that is too large is read to its end, so that the caller sees why."""

BODY_SECONDS = 30.0
"""How long a body may take to come in: the longest timeout a webhook can have."""

DEFAULT_TIMEOUT_SECONDS = 10.0
"""The API server's default, for callers that do not say how long they wait."""

REASONS = {
    HTTPStatus.BAD_REQUEST: "BadRequest",
    HTTPStatus.METHOD_NOT_ALLOWED: "MethodNotAllowed",
    HTTPStatus.REQUEST_TIMEOUT: "Timeout",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "RequestEntityTooLarge",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "UnsupportedMediaType",
    HTTPStatus.INTERNAL_SERVER_ERROR: "InternalError",
}
"""The API server's words for what can go wrong here."""

UNJUDGED = defaultdict[str, Unjudged](lambda: refuse, {CONVERT: unconverted})
"""What answers a review that cannot be judged, unless told."""

LATE = 0.8
"""How much of the caller's patience is spent on deciding: an answer that took longer may have come
too late."""

JSON_HEADERS = ((b"content-type", b"application/json"),)

log = structlog.get_logger(__name__)


class RefusedError(PolicydError):
    """A call is not one that this path answers."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class CallerGoneError(Exception):
    """The caller hung up before its body was complete: there is nobody to answer."""


def create_app(
    answers: Mapping[str, Answer],
    *,
    readiness: Readiness,
    metrics: DoorMetrics,
    clock: Clock | None = None,
    unjudged: Mapping[str, Unjudged] = MappingProxyType({}),
) -> "Application":
    """Build the application around functions that answer the API server.

    Args:
        answers: What is answered, by path: `/mutate`, `/validate`, `/convert`.
        readiness: What `/readyz` reports.
        metrics: What `/metrics` reports, and where reviews are counted.
        clock: Measures how long reviews take; the machine's by default.
        unjudged: What answers reviews that cannot be judged, by path. Where none is given, they
            are refused.
    """
    clock = clock or SystemClock()
    doors = {
        path.encode(): Door(path, (answer, unjudged.get(path, UNJUDGED[path])), metrics, clock)
        for path, answer in answers.items()
    }
    return Application(doors, Starlette(routes=health_routes(readiness, metrics.registry)))


class Application:
    """Doors, by the path of each, and what answers all other paths."""

    def __init__(self, doors: "Mapping[bytes, Door]", rest: ASGIApp) -> None:
        self.doors = doors
        self._rest = rest

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        door = self.doors.get(scope["path"].encode()) if scope["type"] == "http" else None
        await (door or self._rest)(scope, receive, send)


class Door:
    """One path that answers reviews."""

    def __init__(
        self, path: str, answers: tuple[Answer, Unjudged], metrics: DoorMetrics, clock: Clock
    ) -> None:
        self._path = path
        self._most_bytes = MOST_BYTES.get(path, MAXIMUM_REVIEW_BYTES)
        self._answer, self._unjudged = answers
        self._clock = clock
        self._late = metrics.late_reviews.labels(path)
        self._seconds = metrics.seconds.labels(path)
        self._refused = metrics.reviews.labels(path, "refused")
        self._failed = metrics.reviews.labels(path, "failed")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call; whatever it is, the next one is answered as well."""
        called_at = self.now()
        try:
            check_call(scope)
            body = await read_body(receive, self._most_bytes)
        except CallerGoneError:
            return
        except RefusedError as refusal:
            status, answer = self.refuse(refusal)
        else:
            status, answer = await self.answer(body, scope["query_string"], called_at)
        await _respond(send, status, answer)

    def now(self) -> float:
        """Return when a call began, in seconds of the clock that its patience is counted by."""
        return self._clock.monotonic()

    async def answer(self, body: bytes, query: bytes, called_at: float) -> tuple[HTTPStatus, bytes]:
        """Return the answer to a review that came in whole.

        Args:
            body: The review.
            query: What follows the path, which says how long the caller waits.
            called_at: When the call began.
        """
        try:
            return await self._review(body, called_at + LATE * timeout_seconds(query))
        except RefusedError as refusal:
            return self.refuse(refusal)

    def refuse(self, refusal: RefusedError) -> tuple[HTTPStatus, bytes]:
        """Return the answer to what is no call of this path."""
        self._refused.inc()
        return refusal.status, _status(refusal.status, str(refusal))

    async def _review(self, body: bytes, late_at: float) -> tuple[HTTPStatus, bytes]:
        monotonic = self._clock.monotonic
        started = monotonic()
        try:
            answer = await self._answer(body, lambda: monotonic() > late_at)
        except ReviewError as error:
            return self.without_verdict(body, str(error), HTTPStatus.BAD_REQUEST)
        except RecursionError:
            reason = "the object is nested too deep"
            return self.without_verdict(body, reason, HTTPStatus.BAD_REQUEST)
        except Exception as error:  # a bug: what nobody judged is not let through for it
            self._failed.inc()
            log.exception("review_failed", path=self._path)
            reason = f"policyd could not decide: {type(error).__name__}: {error}"
            return self.without_verdict(body, reason, HTTPStatus.INTERNAL_SERVER_ERROR)
        ended = monotonic()
        self._seconds.observe(ended - started)
        if ended > late_at:
            self._late.inc()
            log.warning("review_late", path=self._path, seconds=ended - started)
        return HTTPStatus.OK, answer

    def without_verdict(
        self, head: bytes, reason: str, otherwise: HTTPStatus
    ) -> tuple[HTTPStatus, bytes]:
        """Answer a review that cannot be judged, which the caller would take for a `yes` by itself.

        Args:
            head: Its first bytes.
            reason: Why it cannot be judged.
            otherwise: What is answered to something that is no review.
        """
        try:
            return HTTPStatus.OK, self._unjudged(head, reason)
        except ReviewError:
            return self.refuse(RefusedError(otherwise, reason))


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


async def read_body(receive: Receive, most_bytes: int = MAXIMUM_REVIEW_BYTES) -> bytes:
    """Read a call's body.

    Raises:
        RefusedError: If it has more than `most_bytes`, or does not come in time.
        CallerGoneError: If the caller hung up.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await _whole_body(receive, most_bytes)
    except TimeoutError:
        raise late_body() from None


def late_body() -> RefusedError:
    """Return what is said to a caller whose body does not come in."""
    return RefusedError(
        HTTPStatus.REQUEST_TIMEOUT, f"the body did not come in within {BODY_SECONDS:.0f} s"
    )


async def _whole_body(receive: Receive, most_bytes: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    more = True
    while more and size <= DISCARDED_BODY_BYTES:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise CallerGoneError
        chunk = message.get("body", b"")
        size += len(chunk)
        if size <= most_bytes:
            chunks.append(chunk)
        more = message.get("more_body", False)
    if size > most_bytes:
        raise RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the review has more than {most_bytes} bytes",
        )
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def timeout_seconds(query: bytes) -> float:
    """Read the caller's patience from `timeout=10s`, as the API server writes it."""
    for part in query.split(b"&"):
        name, _, value = part.partition(b"=")
        if name == b"timeout" and value.endswith(b"s") and value[:-1].isdigit():
            return float(value[:-1])
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
    await send({"type": "http.response.body", "body": body})
