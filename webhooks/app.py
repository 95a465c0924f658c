"""The ASGI application: it answers the bytes of a review with the bytes of the response.

A call passes these steps: its endpoint (`create_app`), method and content type (`check_call`), the
body (`read_body`), the handler (`Endpoint.answer`), and the response (`_respond`). A review that
gets no decision is answered by `Endpoint.without_verdict`. A server may call `Endpoint.answer`
directly, without the messages of ASGI.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any

import msgspec
import structlog
from starlette.types import Receive, Scope, Send

from policyd.admission.conversion import PATH as CONVERT
from policyd.admission.conversion import unconverted
from policyd.admission.unevaluated import AnswerUnevaluated, refuse
from policyd.api.admission import ReviewError
from policyd.api.causes import DEFECT, OUT_OF_TIME, TOO_DEEP, UnevaluatedCause
from policyd.clock import Clock, SystemClock
from policyd.engine.model.deadline import OutOfTime
from policyd.errors import PolicydError
from webhooks.bodies import (
    Body,
    BodyBudget,
    CallerGoneError,
    UnreadError,
    header_of,
    read_body,
)
from webhooks.deadlines import (
    LATE,
    SPARE_SECONDS,
    Deadlines,
    TooLateError,
    resumed,
    timeout_seconds,
)
from webhooks.metrics import WebhookMetrics
from webhooks.observe.review_log import ReviewLog

Answer = Callable[[bytes, OutOfTime], Coroutine[Any, Any, bytes]]
"""Turns a review into its answer, both JSON, before it is out of time. Raises ReviewError for a
body that is not a review. It is begun outside of any task: work that needs one awaits something
first."""

Answered = tuple[HTTPStatus, bytes]
"""A status, and a body."""

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
"""The API server's reasons for each status."""

UNEVALUATED = defaultdict[str, AnswerUnevaluated](lambda: refuse, {CONVERT: unconverted})
"""The default answers to reviews that cannot be evaluated."""

PIECE_BYTES = 64 * 1024
"""Longer answers are sent in pieces, each when the one before is on its way."""

NO_TIME_LEFT = "there was no time left"

JSON_HEADERS = ((b"content-type", b"application/json"),)

log = structlog.get_logger(__name__)


class RefusedError(PolicydError):
    """A call is not one that its path answers.

    Attributes:
        status: The HTTP status.
    """

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


def create_app(
    answers: Mapping[str, Answer],
    *,
    metrics: WebhookMetrics,
    clock: Clock | None = None,
    unevaluated: Mapping[str, AnswerUnevaluated] = MappingProxyType({}),
) -> "WebhookApplication":
    """Build the application around the handlers of reviews.

    Args:
        answers: The handlers, by path: `/mutate`, `/validate`, `/convert`.
        metrics: Where reviews are counted.
        clock: Measures how long reviews take; the machine's by default.
        unevaluated: Answers reviews that cannot be evaluated, by path. By default they are denied.
    """
    clock, room = clock or SystemClock(), BodyBudget()
    endpoints = {
        path.encode(): Endpoint(
            path, (answer, unevaluated.get(path, UNEVALUATED[path])), room, metrics, clock
        )
        for path, answer in answers.items()
    }
    return WebhookApplication(endpoints)


class WebhookApplication:
    """The endpoints of a server, by path."""

    def __init__(self, endpoints: "Mapping[bytes, Endpoint]") -> None:
        self.endpoints = endpoints

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call."""
        if scope["type"] != "http":  # no lifespan, and no websocket
            raise NotImplementedError(scope["type"])
        endpoint = self.endpoints.get(scope["path"].encode())
        if endpoint is None:
            reason = "reviews alone are answered here"
            await _respond(send, HTTPStatus.NOT_FOUND, _status(HTTPStatus.NOT_FOUND, reason))
        else:
            await endpoint(scope, receive, send)


class Endpoint:
    """One path that answers reviews."""

    def __init__(
        self,
        path: str,
        answers: tuple[Answer, AnswerUnevaluated],
        room: BodyBudget,
        metrics: WebhookMetrics,
        clock: Clock,
    ) -> None:
        self.room = room
        self._path = path
        self._answer, self._unjudged = answers
        self.now = clock.monotonic
        """Return the current time in seconds, by the clock that timeouts are counted by."""
        self._deadlines = Deadlines()
        self._lines = ReviewLog(clock)
        self._late = metrics.late_reviews.labels(path)
        self._seconds = metrics.seconds.labels(path)
        self._refused = metrics.reviews.labels(path, "refused")
        self._failed = metrics.reviews.labels(path, "failed")
        self._not_evaluated = metrics.reviews.labels(path, "unjudged")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one call; no error of one call ends the server."""
        called_at, body = self.now(), Body(self.room)
        try:
            status, answer = await self._called(scope, receive, body, called_at)
            if body.reserved:
                body.cut(0)
            else:
                body.close()
            await _respond(send, status, answer)  # a large answer takes the room of its body
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
            return self.without_verdict(body.head, str(error), error.cause)
        answered = self.answer(body.whole(), scope["query_string"], called_at)
        return answered if isinstance(answered, tuple) else await answered

    def answer(
        self, body: bytes, query: bytes, called_at: float
    ) -> Answered | Coroutine[Any, Any, Answered]:
        """Return the answer to a whole review, or a coroutine for it, to be awaited in a task.

        Args:
            body: The review.
            query: The query of the URL, with the caller's timeout.
            called_at: When the call began.
        """
        now = self.now
        started, late_at = now(), called_at + LATE * timeout_seconds(query)
        work = self._answer(body, lambda: now() > late_at)
        try:
            waits_for = work.send(None)
        except StopIteration as ended:
            return self._answered(ended.value, started, late_at)
        except Exception as error:  # noqa: BLE001 - `_not_answered` tells bugs from other errors
            return self._not_answered(body, error)
        return self._go_on(body, resumed(work, waits_for), started, late_at)

    async def _go_on(
        self, body: bytes, rest: Awaitable[bytes], started: float, late_at: float
    ) -> Answered:
        try:
            answer = await self._deadlines.within(late_at - started + SPARE_SECONDS, rest)
        except Exception as error:  # noqa: BLE001 - `_not_answered` tells bugs from other errors
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
            return self.without_verdict(body, NO_TIME_LEFT, OUT_OF_TIME)
        if isinstance(error, ReviewError):
            return self.without_verdict(body, str(error), error.cause)
        if isinstance(error, RecursionError):
            return self.without_verdict(body, "the object is nested too deep", TOO_DEEP)
        # A bug must not let an object pass without a decision.
        self._failed.inc()
        self._lines.write(log.error, "review_failed", path=self._path, exc_info=error)
        reason = f"policyd could not decide: {type(error).__name__}: {error}"
        return self.without_verdict(body, reason, DEFECT)

    def refuse(self, refusal: RefusedError) -> Answered:
        """Return the answer to a call that is not a review."""
        self._refused.inc()
        return refusal.status, _status(refusal.status, str(refusal))

    def without_verdict(self, head: bytes, reason: str, cause: UnevaluatedCause) -> Answered:
        """Answer a review that cannot be evaluated; without an answer, the caller might allow it.

        Args:
            head: The first bytes of the review.
            reason: Why it cannot be evaluated.
            cause: The kind of reason.
        """
        try:
            answer = self._unjudged(head, reason, cause)
        except ReviewError:
            return self.refuse(RefusedError(HTTPStatus(cause.status), reason))
        self._not_evaluated.inc()
        self._lines.write(log.warning, "review_unevaluated", path=self._path, reason=reason)
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
    given = header_of(scope, b"content-type")
    if given != b"application/json" and _media_type(given) != b"application/json":
        raise RefusedError(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            f"`{given.decode('latin-1')}` is not a content type that is understood,"
            " only `application/json`",
        )


def _media_type(content_type: bytes) -> bytes:
    return content_type.partition(b";")[0].strip().lower()


def _status(status: HTTPStatus, message: str) -> bytes:
    """Return an error as a Status; the API server passes its message on to the user."""
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
